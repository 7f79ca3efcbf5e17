#!/usr/bin/env python3
"""Compares the hops that hopfeed computes for graphs in the npy layout with scipy in float64.

    python tools/bench/peers/accuracy.py HOPFEED DATA...    DATA is a folder that hopfeed import npy reads

For each graph, operator and type, prints the largest |error| over sum |w x|, the sum of the magnitudes of the
terms of hop r, carried on from the terms of hop r-1. Fails where float32 exceeds 1e-5. In float16 each value is compared
with the hop made from the stored previous one, and must be the nearest float16, but for ties that float32 tips (0.51
ulp; features must not be negative, since terms would cancel). Series are cut off where the coefficients left out add up to 1e-4, as by default.
Needs numpy and scipy.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import scipy.sparse as sp

SETTINGS = {"sym": "", "rw": "", "col": "", "ppr": ":alpha=0.15", "heat": ":t=3"}
OPERATORS = [name + graph + loops + setting for name, setting in SETTINGS.items()
             for graph in ("", ":reverse", ":undirected") for loops in ("", ":noloops")]
HOPS = 3


def matrix(edges, n, operator, undirected):
    """The operator as a float64 matrix, from edges [2,E] as they were before import."""
    a = sp.csr_matrix((np.ones(edges.shape[1]), (edges[1], edges[0])), shape=(n, n))
    name, *options = operator.split(":")
    if name not in ("rw", "col"):
        name = "sym"  # or a series of it
    if undirected or "undirected" in options:
        a = a + a.T
    if "reverse" in options:
        a = a.T.tocsr()
    a.data[:] = 1  # duplicates are merged
    if "noloops" not in options:
        a = a + sp.diags((a.diagonal() == 0).astype(float))
    degree = np.asarray(a.sum(axis=0 if name == "col" else 1)).ravel()
    inverse = sp.diags(np.divide(1, degree, out=np.zeros(len(degree)), where=degree > 0))
    return {"sym": np.sqrt(inverse) @ a @ np.sqrt(inverse), "rw": inverse @ a, "col": a @ inverse}[name]


def coefficients(operator):
    """Coefficients of the powers of the matrix, from 0."""
    if operator.startswith("ppr"):
        theta = lambda k: 0.15 * 0.85**k
    elif operator.startswith("heat"):
        theta = lambda k: math.exp(-3) * 3**k / math.factorial(k)
    else:
        return [0, 1]
    out = []
    while 1 - sum(out) > 1e-4:
        out.append(theta(len(out)))
    return out


def polynomial(theta, b, x):
    """sum over k of theta[k] b^k x"""
    out = 0
    for k, t in enumerate(theta):
        x = b @ x if k else x
        out = out + t * x
    return out


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
        b, theta = matrix(edges, meta["num_nodes"], operator, not meta["directed"]), coefficients(operator)
        want = stored("x", 0)
        terms = np.abs(want)
        for hop in range(1, HOPS + 1):
            got = stored(operator, hop)
            if dtype == "float32":
                nonnegative = (want == terms).all()  # as are matrices and coefficients
                want = polynomial(theta, b, want)
                terms = want if nonnegative else polynomial(theta, b, terms)
                error = np.abs(got - want)
                worst = max(worst, (error[terms > 0] / terms[terms > 0]).max(initial=0))
                if error[terms == 0].any() or worst > 1e-5:
                    sys.exit(f"{data.name}: {operator} hop {hop}: error {worst:.2e} of the sum of magnitudes")
            else:
                want = polynomial(theta, b, stored(operator, hop - 1) if hop > 1 else stored("x", 0))
                ulp = np.spacing(np.maximum(np.abs(want), 2.0**-14).astype(np.float16)).astype(np.float64)
                worst = max(worst, (np.abs(got - want) / ulp).max())
                if worst > 0.51:
                    sys.exit(f"{data.name}: {operator} hop {hop}: {worst:.3f} ulp from what the stored hop before gives")
    print(f"{data.name}: {dtype}, {HOPS} hops of {len(OPERATORS)} operators:",
          f"at most {worst:.1e} of sum |w x|" if dtype == "float32" else f"at most {worst:.4f} ulp")


with tempfile.TemporaryDirectory() as folder:
    for path in sys.argv[2:]:
        for dtype in ("float32", "float16"):
            check(sys.argv[1], pathlib.Path(path), pathlib.Path(folder), dtype)
