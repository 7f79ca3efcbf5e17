"""Stores that the tests read, and what numpy says is in them."""

import os
import tempfile
import unittest

import numpy as np

import hopfeed

NODES, FEATURES, HOPS, CHUNK_ROWS = 700, 5, 2, 16


def write_arrays(folder, seed=1, labels=None, nodes=NODES):
    """A folder in the npy layout: a random directed graph, with some nodes in no split."""
    rng = np.random.default_rng(seed)
    arrays = {
        "edge_index": rng.integers(0, nodes, (2, 6 * nodes)),
        "node_feat": rng.standard_normal((nodes, FEATURES), dtype=np.float32),
        "node_label": rng.integers(0, 4, nodes) if labels is None else labels,
        "splits": rng.choice(np.array([0, 0, 0, 1, 2, -1], np.int8), nodes),
    }
    os.makedirs(folder, exist_ok=True)
    for name, array in arrays.items():
        np.save(os.path.join(folder, name + ".npy"), array)
    return arrays


def walk(arrays):
    """D^-1 (A+I) in float64."""
    n = len(arrays["node_feat"])
    a = np.zeros((n, n))
    a[arrays["edge_index"][1], arrays["edge_index"][0]] = 1  # parallel edges are one
    np.fill_diagonal(a, 1)
    return a / a.sum(axis=1, keepdims=True)


def propagated(arrays, hops=HOPS):
    """D^-1 (A+I) to the powers 0 to hops, times X, in float64: [nodes, hops + 1, features]."""
    a = walk(arrays)
    out = [arrays["node_feat"].astype(np.float64)]
    for _ in range(hops):
        out.append(a @ out[-1])
    return np.stack(out, axis=1)


def make(folder, dtype=None, labels=None, **options):
    """The arrays, and the path of the store that is made of them."""
    arrays = write_arrays(os.path.join(folder, "arrays"), labels=labels)
    hopfeed.import_npy(os.path.join(folder, "arrays"), os.path.join(folder, "graph"), progress=False)
    store = os.path.join(folder, "store")
    hopfeed.propagate(
        os.path.join(folder, "graph"), store, hops=HOPS, operator="rw", dtype=dtype, chunk_rows=CHUNK_ROWS, progress=False, **options
    )
    return arrays, store


class WithStore(unittest.TestCase):
    """A graph and a store of each class of tests, and what is in them."""

    options = {}  # of make

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.arrays, cls.store = make(cls.folder.name, **cls.options)
        cls.graph = os.path.join(cls.folder.name, "graph")
        cls.expected = propagated(cls.arrays)
        cls.train = np.flatnonzero(cls.arrays["splits"] == 0)


def seeds(batch):
    """The nodes of the rows that have labels."""
    return batch["n_id"][: len(batch["y"])]


def state_after(loader, index):
    """The state of a loader after the batch with an index."""
    for batch in loader:
        if batch.index == index:
            return loader.state_dict()
    raise AssertionError(f"there is no batch {index}")
