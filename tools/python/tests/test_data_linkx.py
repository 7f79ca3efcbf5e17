"""examples/linkx.py, on files in the layouts of LINKX' data sets."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hopfeed

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples", "linkx.py")
EDGES = np.array([[0, 1, 2, 3], [1, 2, 0, 1]])  # of 5 nodes
BOTH = {(0, 1), (1, 2), (2, 0), (3, 1), (1, 0), (2, 1), (0, 2), (1, 3)}


@unittest.skipUnless(importlib.util.find_spec("scipy"), "needs scipy")
class LinkxTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check(self, source, features, labels, splits=None):
        """Imports a file, and compares what is in the graph."""
        graph = os.path.join(self.folder, "graph")
        flags = ["--splits", splits] if splits else []
        subprocess.run([sys.executable, PROGRAM, source, graph, *flags], check=True, capture_output=True)
        hopfeed.export_npy(graph, os.path.join(self.folder, "arrays"), progress=False)
        array = lambda name: np.load(os.path.join(self.folder, "arrays", name + ".npy"))
        self.assertEqual(set(map(tuple, array("edge_index").T.tolist())), BOTH)
        np.testing.assert_array_equal(array("node_feat"), features)
        np.testing.assert_array_equal(array("node_label"), labels)
        if splits:
            np.testing.assert_array_equal(array("splits"), [[0, 0, 1, 2, -1], [2, -1, -1, 0, 1]])

    def save(self, name, content, compressed=True):
        import scipy.io

        path = os.path.join(self.folder, name)
        scipy.io.savemat(path, content, do_compression=compressed)
        return path

    def test_arrays_with_splits(self):
        x = np.arange(10).reshape(5, 2) / 4
        parts = [{"train": np.array([0, 1]), "valid": np.array([2]), "test": np.array([3])},
                 {"train": np.array([3]), "valid": np.array([4]), "test": np.array([0])}]
        splits = os.path.join(self.folder, "pokec-splits.npy")
        np.save(splits, np.array(parts, dtype=object), allow_pickle=True)
        source = self.save("pokec.mat", {"edge_index": EDGES, "node_feat": x, "label": [[0, 1, -1, 1, 0]], "num_nodes": 5})
        self.check(source, x, [0, 1, -1, 1, 0], splits)

    def test_sparse_features_and_years(self):
        import scipy.sparse

        x = scipy.sparse.csc_matrix(([1.0, 2.0, 3.0], ([0, 4, 2], [1, 0, 2])), (5, 3))
        source = self.save("snap_patents.mat", {"edge_index": EDGES, "node_feat": x, "years": [[1990, 1970, 2000, 1980, 1960]], "num_nodes": 5}, False)
        self.check(source, x.toarray(), [3, 1, 4, 2, 0])

    def test_facebook100(self):
        import scipy.sparse

        adjacency = scipy.sparse.csc_matrix((np.ones(4), tuple(EDGES)), (5, 5))
        people = np.array([[1, 0, 7], [1, 1, 7], [2, 2, 9], [1, 2, 0], [2, 1, 0]])
        source = self.save("Reed98.mat", {"A": adjacency, "local_info": people.astype(np.uint16)})
        self.check(source, [[0, 0, 1, 0], [0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 0, 0]], [-1, 0, 1, 1, 0])


if __name__ == "__main__":
    unittest.main()
