"""Compares the store of a typed graph with scipy in float64.

    hopfeed import npy SRC -o typed && hopfeed propagate typed -o store --hops 3 [--relations-subsets 8]
    python tools/bench/peers/metapaths.py SRC store

Needs numpy, scipy and pyarrow. SRC is in the typed npy layout, with unnamed relations in one direction. For each
metapath, or hop of a subset of relations, it prints the largest |stored - exact| / sum |w x|, and fails above 1e-5.
"""

import glob
import json
import os
import sys

import numpy as np
import pyarrow.ipc as ipc
import scipy.sparse as sp

MOST = 1e-5
COLUMNS = 256  # at a time


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


def relations(src, meta):
    """The edges of each step (destination, source)."""
    out = {}
    for source, destination, _ in meta["edge_types"]:
        edges = np.load(f"{src}/edges/{source}__{destination}/edge_index.npy")
        shape = meta["node_types"][destination], meta["node_types"][source]
        a = sp.csr_matrix((np.ones(edges.shape[1]), (edges[1], edges[0])), shape)
        a.data[:] = 1  # duplicates are merged
        out[destination, source], out[source, destination] = a, a.T.tocsr()
    return out


def factors(edges, operator):
    """The factor of each step."""
    out = {}
    for key, b in edges.items():
        into, out_of = np.asarray(b.sum(1)).ravel(), np.asarray(b.sum(0)).ravel()
        out[key] = power(into, -1) @ b if operator == "rw" else power(into, -0.5) @ b @ power(out_of, -0.5)
    return out


def hop_of_subset(edges, meta, name, x):
    """A hop of a subset, such as paper<author-paper<subject=2<paper, of features x: the subset's graph is one matrix."""
    subset, rest = name.split("=")
    hop, source = rest.split("<")
    kinds = list(meta["node_types"])
    steps = [tuple(step.split("<")) for step in subset.split("-")]
    steps += [step[::-1] for step in steps]
    grid = [[edges[d, s] if (d, s) in steps else None for s in kinds] for d in kinds]
    for i, kind in enumerate(kinds):
        grid[i][i] = sp.csr_matrix((meta["node_types"][kind],) * 2)
    whole = sp.bmat(grid).tocsr()
    whole = power(np.asarray(whole.sum(1)).ravel(), -1) @ whole
    stacked = np.concatenate([x if kind == source else np.zeros((meta["node_types"][kind], x.shape[1])) for kind in kinds])
    for _ in range(int(hop)):
        stacked = whole @ stacked
    first = sum(meta["node_types"][kind] for kind in kinds[: kinds.index(meta["target"])])
    return stacked[first:][: meta["node_types"][meta["target"]]]


def main(src, store):
    with open(f"{src}/meta.json") as file:
        meta = json.load(file)
    with open(f"{store}/manifest.json") as file:
        operators = json.load(file)["operators"]
    nodes = stored(store, "rows", "node").ravel()
    edges = relations(src, meta)
    steps = factors(edges, operators[0]["name"].split(":")[0])
    worst = 0.0
    for operator in operators:
        metapath = operator["name"].split(":")[1]
        types = metapath.split("<")
        folder = operator["name"].replace(":", "+").replace("<", "-")
        got = stored(store, f"features/{folder}/hop-1", "features")
        given = features(src, types[-1])
        assert got.shape == (len(nodes), operator["features"]) == (len(nodes), given.shape[1]), got.shape
        most = 0.0
        for first in range(0, given.shape[1], COLUMNS):
            x = given[:, first : first + COLUMNS]
            sums = np.abs(x)
            if "=" in metapath:
                x, sums = (hop_of_subset(edges, meta, metapath, y) for y in (x, sums))
            else:
                for step in list(zip(types, types[1:]))[::-1]:
                    x, sums = steps[step] @ x, steps[step] @ sums
            error, sums = np.abs(got[:, first : first + COLUMNS].astype(np.float64) - x[nodes]), sums[nodes]
            assert not error[sums == 0].any(), metapath
            most = max(most, (error[sums > 0] / sums[sums > 0]).max(initial=0))
        worst = max(worst, most)
        print(f"{metapath}\t{given.shape[1]} columns\t{most:.2g}")
    assert worst <= MOST, worst


if __name__ == "__main__":
    main(*sys.argv[1:])
