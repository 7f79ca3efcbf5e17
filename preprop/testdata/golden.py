"""Make the golden propagations beside this file: python golden.py DATA, with numpy and scipy.

DATA holds the data sets gamora_csa8, tolokers and cora in the npy layout. Each golden is a small graph and its hops,
multiplied by scipy in float64. Arrays are base64 of little-endian numbers: offsets int64 [n+1], neighbors uint32 [m],
weights float32 [m] (or null), x float32 [n,F], none negative, and for each operator hops float64 [n,F] each.
"""
import base64
import json
import math
import os
import sys

import numpy as np
import scipy.sparse as sp


def load(name, columns=None):
    d = os.path.join(sys.argv[1], name)
    with open(os.path.join(d, "meta.json")) as f:
        meta = json.load(f)
    source, destination = np.load(os.path.join(d, "edge_index.npy")).astype(np.int64)
    if not meta["directed"]:
        source, destination = np.r_[source, destination], np.r_[destination, source]
    n = meta["num_nodes"]
    a = sp.csr_matrix((np.ones(len(source)), (destination, source)), shape=(n, n))  # row v: in-neighbours of v
    npz = os.path.join(d, "node_feat.npz")
    x = sp.load_npz(npz).toarray() if os.path.exists(npz) else np.load(os.path.join(d, "node_feat.npy"))
    return a, x.astype(np.float32)


def matrix(a, name, flags):
    if "reverse" in flags:
        a = a.T
    if "undirected" in flags:
        a = a.maximum(a.T)
    if "noloops" not in flags:
        a = a + sp.diags((a.diagonal() == 0).astype(np.float64))
    degree = np.asarray(a.sum(axis=0 if name == "col" else 1)).ravel()
    inverse = sp.diags(np.divide(1, degree, out=np.zeros_like(degree), where=degree > 0))
    return {"sym": np.sqrt(inverse) @ a @ np.sqrt(inverse), "rw": inverse @ a, "col": a @ inverse}[name]


def propagate(a, spelling, x):
    """One hop: of ppr and heat all terms until what is left of the coefficients, whose sum is 1, is at most 1e-4."""
    name, *options = spelling.split(":")
    setting = dict(option.split("=") for option in options if "=" in option)
    if name not in ("ppr", "heat"):
        return matrix(a, name, options) @ x
    s, out, left, k = matrix(a, "sym", options), 0, 1, 0
    while left > 1e-4:
        if name == "ppr":
            alpha = float(setting["alpha"])
            theta = alpha * (1 - alpha) ** k
        else:
            t = float(setting["t"])
            theta = math.exp(-t) * t**k / math.factorial(k)
        out, x, left, k = out + theta * x, s @ x, left - theta, k + 1
    return out


def text(array, dtype):
    return base64.b64encode(np.ascontiguousarray(array, dtype=dtype).tobytes()).decode()


def golden(name, a, x, weighted, operators, hops=2):
    assert (x >= 0).all()
    a = a.tocsr()
    a.sort_indices()
    out = {"nodes": a.shape[0], "features": x.shape[1], "offsets": text(a.indptr, "<i8"), "neighbors": text(a.indices, "<u4"),
           "weights": text(a.data, "<f4") if weighted else None, "x": text(x, "<f4"), "hops": {}}
    for spelling in operators:
        h = x.astype(np.float64)
        out["hops"][spelling] = []
        for _ in range(hops):
            h = propagate(a, spelling, h)
            out["hops"][spelling].append(text(h, "<f8"))
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".json"), "w") as f:
        json.dump(out, f, indent=1)
        f.write("\n")


every = ["sym", "rw", "sym:noloops", "rw:noloops"]

a, x = load("gamora_csa8")  # directed, whole
golden("gamora_csa8", a, x, False, ["sym", "rw"])

a, x = load("tolokers")  # the 70 nodes of highest degree, and what is between them
top = np.sort(np.argsort(-np.asarray(a.sum(axis=1)).ravel(), kind="stable")[:70])
golden("tolokers_core", a[top][:, top], x[top][:, :3], False, every)

a, x = load("cora")  # two hops around a node; weights and some self-loops made up
ball = sp.csr_matrix(([1.0], ([0], [1358])), shape=(1, a.shape[0]))
ball = np.sort((ball + ball @ a + ball @ a @ a).indices)[:140]
a, x = a[ball][:, ball], x[ball]
random = np.random.default_rng(1)
a = (a + sp.diags((random.random(len(ball)) < 0.2).astype(np.float64))).tocsr()
a.data = (random.random(a.nnz) + 0.01).astype(np.float32).astype(np.float64)
x = x[:, np.argsort(-x.sum(axis=0), kind="stable")[:3]] * random.random((len(ball), 3)).astype(np.float32)
golden("cora_weighted", a, x, True, every)

# 60 gates in the middle, where edges go one way; weights, and every fifth edge also turned round, made up
a, x = load("gamora_csa8")
a, x = a[200:260][:, 200:260].tocoo(), x[200:260, :2]
back = random.random(a.nnz) < 0.2
weight = (random.random(a.nnz + back.sum()) + 0.01).astype(np.float32).astype(np.float64)
a = sp.csr_matrix((weight, (np.r_[a.row, a.col[back]], np.r_[a.col, a.row[back]])), shape=a.shape)
golden("gamora_part", a, x, True, [name + flags for name in ("sym", "rw", "col", "ppr:alpha=0.15", "heat:t=3")
                                   for flags in ("", ":reverse", ":undirected:noloops")])
