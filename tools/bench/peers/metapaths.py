"""Compares the store of a typed graph with scipy in float64.

    hopfeed import npy SRC -o typed && hopfeed propagate typed -o store --hops 3
    python tools/bench/peers/metapaths.py SRC store

Needs numpy, scipy and pyarrow. SRC is in the typed npy layout, with unnamed relations in one direction. For each
metapath it prints the largest |stored - exact| / sum |w x|, and fails above 1e-5.
"""

import glob
import json
import os
import sys

import numpy as np
import pyarrow.ipc as ipc
import scipy.sparse as sp

MOST = 1e-5


def features(src, kind):
    path = f"{src}/nodes/{kind}/node_feat."
    if os.path.exists(path + "npz"):
        return sp.load_npz(path + "npz").toarray().astype(np.float32).astype(np.float64)
    return np.load(path + "npy").astype(np.float32).astype(np.float64)


def stored(store, folder, column):
    rows = []
    for path in sorted(glob.glob(f"{store}/{folder}/part-*.arrow")):
        reader = ipc.open_file(path)
        for k in range(reader.num_record_batches):
            values = reader.get_batch(k).column(column)
            flat = values.flatten() if values.type.num_fields else values
            rows.append(flat.to_numpy().reshape(len(values), -1))
    return np.concatenate(rows)


def power(degrees, exponent):
    return sp.diags([d**exponent if d > 0 else 0.0 for d in degrees])


def relations(src, meta, operator):
    """The factor of each step (destination, source)."""
    out = {}
    for source, destination, _ in meta["edge_types"]:
        edges = np.load(f"{src}/edges/{source}__{destination}/edge_index.npy")
        shape = meta["node_types"][destination], meta["node_types"][source]
        a = sp.csr_matrix((np.ones(edges.shape[1]), (edges[1], edges[0])), shape)
        a.data[:] = 1  # duplicates are merged
        for key, b in ((destination, source), a), ((source, destination), a.T.tocsr()):
            into, out_of = np.asarray(b.sum(1)).ravel(), np.asarray(b.sum(0)).ravel()
            if operator == "rw":
                out[key] = power(into, -1) @ b
            else:
                out[key] = power(into, -0.5) @ b @ power(out_of, -0.5)
    return out


def main(src, store):
    with open(f"{src}/meta.json") as file:
        meta = json.load(file)
    with open(f"{store}/manifest.json") as file:
        operators = json.load(file)["operators"]
    nodes = stored(store, "rows", "node").ravel()
    factors = relations(src, meta, operators[0]["name"].split(":")[0])
    worst = 0.0
    for operator in operators:
        metapath = operator["name"].split(":")[1]
        types = metapath.split("<")
        x = features(src, types[-1])
        sums = np.abs(x)
        for step in list(zip(types, types[1:]))[::-1]:
            x, sums = factors[step] @ x, factors[step] @ sums
        folder = operator["name"].replace(":", "+").replace("<", "-")
        got = stored(store, f"features/{folder}/hop-1", "features").astype(np.float64)
        assert got.shape == (len(nodes), operator["features"]), got.shape
        error, sums = np.abs(got - x[nodes]), sums[nodes]
        assert not error[sums == 0].any(), metapath
        most = (error[sums > 0] / sums[sums > 0]).max()
        worst = max(worst, most)
        print(f"{metapath}\t{got.shape[1]} columns\t{most:.2g}")
    assert worst <= MOST, worst


if __name__ == "__main__":
    main(*sys.argv[1:])
