"""A data set of LINKX (Lim et al. 2021) becomes a graph.

    python linkx.py pokec.mat GRAPH [--splits pokec-splits.npy]

The first argument is a .mat file (pokec, snap_patents, genius, deezer-europe, YelpChi, or a university of facebook100)
or the folder with wiki_edges2M.pt, wiki_features2M.pt and wiki_views2M.pt. Features and labels are those of LINKX' own
code, which adds the reverse of every edge, too. Files of splits are pickled: take only those that you trust.

Needs scipy, and for wiki torch.
"""

import argparse
import os
import tempfile

import numpy as np
import scipy.io
import scipy.sparse

import hopfeed


def read(path):
    """Edges [2,E], features [n,F], which may be sparse, and labels [n]."""
    if os.path.isdir(path):
        import torch

        edges, x, y = (torch.load(os.path.join(path, f"wiki_{part}2M.pt")).numpy() for part in ("edges", "features", "views"))
        return edges.T, x, y.reshape(-1)
    found = scipy.io.loadmat(path)
    adjacency = found.get("A", found.get("homo"))
    edges = found["edge_index"] if adjacency is None else np.stack(adjacency.nonzero())
    if "local_info" in found:
        return edges, *facebook(found["local_info"].astype(np.int64))
    y = quantiles(found["years"].reshape(-1)) if "years" in found else found["label"].reshape(-1)
    return edges, found.get("node_feat", found.get("features")), y


def facebook(people):
    """Columns are status, gender, major, second major, house and year, and in some files the high school; 0 is unknown.
    The label is the gender, each value of another column a feature; of two values the second."""
    columns = []
    for column in np.delete(people, 1, axis=1).T:
        values = np.unique(column)
        columns.append(column[:, None] == (values[1:] if len(values) == 2 else values))
    return np.concatenate(columns, axis=1).astype(np.float32), people[:, 1] - 1


def quantiles(values, classes=5):
    """Classes of equal size; -1 for NaN."""
    bounds = np.nanquantile(values, np.arange(1, classes) / classes)
    return np.where(np.isnan(values), -1, np.searchsorted(bounds, values, side="right"))


def splits(path, nodes):
    """Each split is a dict of node ids."""
    parts = np.load(path, allow_pickle=True)
    out = np.full((len(parts), nodes), -1, np.int8)
    for row, ids in zip(out, parts):
        for part, name in enumerate(("train", "valid", "test")):
            row[np.asarray(ids[name])] = part
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source")
    p.add_argument("graph")
    p.add_argument("--splits")
    o = p.parse_args()
    edges, x, y = read(o.source)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(os.path.abspath(o.graph))) as folder:
        arrays = {"edge_index": edges, "node_label": y}
        if scipy.sparse.issparse(x):
            scipy.sparse.save_npz(os.path.join(folder, "node_feat.npz"), x.tocsr())
        else:
            arrays["node_feat"] = x
        if o.splits:
            arrays["splits"] = splits(o.splits, len(y))
        for name, array in arrays.items():
            np.save(os.path.join(folder, name + ".npy"), array)
        name = os.path.splitext(os.path.basename(os.path.abspath(o.source)))[0]
        print(hopfeed.import_npy(folder, o.graph, undirected=True, name=name))


if __name__ == "__main__":
    main()
