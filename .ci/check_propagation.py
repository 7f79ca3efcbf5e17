#!/usr/bin/env python3
"""Compares the hops that hopfeed computes for graphs in the npy layout with scipy in float64.

    check_propagation.py HOPFEED DATA...    DATA is a folder that hopfeed import npy reads

For each graph, operator and type, prints the largest |error| over sum |w x|, the sum of the magnitudes of the
terms of hop r, carried on from those of hop r-1. Fails where float32 exceeds 1e-5. In float16 each value is compared with the
product of the stored previous hop, and must be the nearest float16, but for ties that the float32 sum tips (0.51 ulp).
Needs numpy and scipy.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import scipy.sparse as sp

OPERATORS = ["sym", "rw", "sym:noloops", "rw:noloops"]
HOPS = 3


def matrix(edges, n, operator, undirected):
    """The operator as a float64 matrix, from edges [2,E] as they were before import."""
    a = sp.csr_matrix((np.ones(edges.shape[1]), (edges[1], edges[0])), shape=(n, n))
    if undirected:
        a = a + a.T
    a.data[:] = 1  # duplicates are merged
    if not operator.endswith(":noloops"):
        a = a + sp.diags((a.diagonal() == 0).astype(float))
    degree = np.asarray(a.sum(axis=1)).ravel()
    with np.errstate(divide="ignore"):
        if operator.startswith("sym"):
            d = np.where(degree > 0, degree**-0.5, 0)
            return sp.diags(d) @ a @ sp.diags(d)
        return sp.diags(np.where(degree > 0, 1 / degree, 0)) @ a


def check(hopfeed, data, work, dtype):
    def run(*args):
        subprocess.run([hopfeed, "--quiet", *map(str, args)], check=True, stdout=subprocess.DEVNULL)

    graph, store, arrays = (work / f"{data.name}-{dtype}-{k}" for k in ("graph", "store", "arrays"))
    run("import", "npy", data, "-o", graph, "--normalize-features")
    run("propagate", graph, "-o", store, "--rows", "all", "--dtype", dtype, "--hops", HOPS, "--operator", ",".join(OPERATORS))
    run("export", "npy", store, "-o", arrays)
    order = np.argsort(np.load(arrays / "node_id.npy"))
    stored = lambda operator, hop: np.load(arrays / f"{operator.replace(':', '+')}_hop-{hop}.npy").astype(np.float64)[order]

    meta = json.loads((data / "meta.json").read_text())
    edges = np.load(data / "edge_index.npy").astype(np.int64)
    worst = 0.0
    for operator in OPERATORS:
        b = matrix(edges, meta["num_nodes"], operator, not meta["directed"])
        want = stored("x", 0)
        terms = np.abs(want)
        for hop in range(1, HOPS + 1):
            got = stored(operator, hop)
            if dtype == "float32":
                want, terms = b @ want, abs(b) @ terms
                error = np.abs(got - want)
                worst = max(worst, (error[terms > 0] / terms[terms > 0]).max(initial=0))
                if error[terms == 0].any() or worst > 1e-5:
                    sys.exit(f"{data.name}: {operator} hop {hop}: error {worst:.2e} of the sum of magnitudes")
            else:
                want = b @ (stored(operator, hop - 1) if hop > 1 else stored("x", 0))
                ulp = np.spacing(np.maximum(np.abs(want), 2.0**-14).astype(np.float16)).astype(np.float64)
                worst = max(worst, (np.abs(got - want) / ulp).max())
                if worst > 0.51:
                    sys.exit(f"{data.name}: {operator} hop {hop}: {worst:.3f} ulp from the product of the stored hop before")
    print(f"{data.name}: {dtype}, {HOPS} hops of {', '.join(OPERATORS)}:", f"at most {worst:.1e} of sum |w x|" if dtype == "float32" else f"at most {worst:.4f} ulp")


with tempfile.TemporaryDirectory() as folder:
    for path in sys.argv[2:]:
        for dtype in ("float32", "float16"):
            check(sys.argv[1], pathlib.Path(path), pathlib.Path(folder), dtype)
