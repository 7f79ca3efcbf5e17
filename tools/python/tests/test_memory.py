"""Graphs and stores made of what is in memory."""

import gc
import os
import subprocess
import sys
import tempfile
import types
import unittest
import warnings

import numpy as np

import hopfeed
from hopfeed import _work


def tables(columns):
    """The columns as a table of each package that is installed."""
    yield columns
    for package, kind in (("pyarrow", "table"), ("pandas", "DataFrame"), ("polars", "DataFrame")):
        try:
            module = __import__(package)
        except ImportError:
            continue
        lists = {k: list(v) if v.ndim == 2 else v for k, v in columns.items()}
        yield getattr(module, kind)(lists)


class Memory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "graph")
        rng = np.random.default_rng(3)
        self.x, self.y = rng.standard_normal((50, 4), dtype=np.float32), rng.integers(0, 3, 50)
        self.edges = np.unique(rng.integers(0, 50, (2, 200)), axis=1)
        self.weights = rng.random(self.edges.shape[1], dtype=np.float32)
        self.time = rng.integers(0, 99, self.edges.shape[1])

    def check_graph(self, graph):
        self.assertEqual((graph.rows, graph.manifest["edges"]), (50, self.edges.shape[1]))
        np.testing.assert_array_equal(graph.x[:], self.x)
        np.testing.assert_array_equal(graph.y, self.y)

    def check_columns(self, graph, of_edges, **of_nodes):
        """The column of edges is, or begins with, the time; those of nodes are as given."""
        self.assertEqual(graph.columns, [of_edges, *of_nodes])
        found = np.asarray(graph.column(of_edges)).reshape(len(self.time), -1)
        np.testing.assert_array_equal(found[:, 0], self.time[np.lexsort(self.edges)])
        for name, values in of_nodes.items():
            np.testing.assert_array_equal(graph.column(name)[:], values)

    def test_a_graph_is_undirected_if_each_edge_is_there_as_often_as_its_reverse(self):
        random = np.random.default_rng(5)
        seen = set()
        for trial in range(200):
            edges = random.integers(0, int(random.integers(1, 6)), (2, int(random.integers(0, 9))))
            if trial % 2:
                edges = np.concatenate([edges, edges[::-1]], axis=1)[:, random.permutation(2 * edges.shape[1])]
            pairs = edges.T.tolist()
            undirected = sorted(pairs) == sorted([v, u] for u, v in pairs)
            seen.add(undirected)
            self.assertEqual(_work._symmetric(edges), undirected, edges)
        self.assertEqual(len(seen), 2)

    def test_repeated_edges_are_kept_with_columns_and_else_counted(self):
        repeated = np.concatenate([self.edges, self.edges[:, :7]], axis=1)
        count = repeated.shape[1]
        times = np.arange(count)

        def data(**items):
            items = {"edge_index": repeated, "x": self.x, **items}
            return types.SimpleNamespace(**items, to_dict=lambda: items, is_undirected=lambda: False)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph = hopfeed.from_pyg(data(t=times), self.path, progress=False)
            self.assertEqual(hopfeed.from_pyg(data(), duplicates="keep", progress=False).manifest["edges"], count)
            self.assertEqual(hopfeed.from_pyg(data(t=times), duplicates="merge", progress=False).manifest["edges"], count - 7)
        self.assertEqual(sorted(graph.column("edge_t")[:]), times.tolist())
        dgl = types.SimpleNamespace(
            ntypes=[0], etypes=[0], ndata={"feat": self.x}, edata={"weight": np.arange(1.0, count + 1)}, edges=lambda: repeated, num_nodes=lambda: 50, num_edges=lambda: count
        )
        for make in (
            lambda: hopfeed.from_pyg(data(), progress=False),
            lambda: hopfeed.from_dgl(dgl, progress=False),
            lambda: hopfeed.from_edges({"source": repeated[0], "destination": repeated[1]}, progress=False),
        ):
            with self.assertWarnsRegex(UserWarning, '^7 duplicate edges were merged.*duplicates="keep"'):
                self.assertEqual(make().manifest["edges"], count - 7)

    def check_weights(self, graph):
        """By what a node's in-neighbours add up to."""
        a = np.zeros((50, 50))
        a[self.edges[1], self.edges[0]] = self.weights
        degree = a.sum(axis=1, keepdims=True)
        want = np.divide(a, degree, out=np.zeros_like(a), where=degree > 0) @ self.x
        store = graph.path + "-store"
        hopfeed.propagate(graph, store, hops=1, operator="rw:noloops", rows="all", force=True, progress=False)
        store = hopfeed.open(store)
        np.testing.assert_allclose(store.matrix("/hop-".join(map(str, store.matrices[1])))[:50], want, rtol=1e-4, atol=1e-5)

    def test_a_graph_of_tables(self):
        names = np.array([f"n{v}" for v in np.random.default_rng(1).permutation(50)])
        parts = np.array(["train", "val", "test", "none"])[np.arange(50) % 4]
        edges = {"from": names[self.edges[0]], "to": names[self.edges[1]], "w": self.weights}
        nodes = {"name": names, "a": self.x[:, 0], "rest": self.x[:, 1:], "class": self.y, "part": parts}
        for e, n in zip(tables(edges), tables(nodes)):
            graph = hopfeed.from_edges(
                e, self.path, nodes=n, source="from", destination="to", weight="w", id="name", label="class", split="part", force=True, progress=False
            )
            self.check_graph(graph)
            np.testing.assert_array_equal(graph.splits[:, 0], np.array([0, 1, 2, -1])[np.arange(50) % 4])
        self.check_weights(graph)
        numbers = {"source": self.edges[0], "destination": self.edges[1]}
        graph = hopfeed.from_edges(numbers, self.path, nodes={"a": self.x[:, 0], "b": self.x[:, 1]}, features=["b"], force=True, progress=False)
        np.testing.assert_array_equal(graph.x[:], self.x[:, 1:2])
        self.assertEqual(hopfeed.from_edges(numbers, self.path, force=True, progress=False).x[0], [1])
        nodes = {"a": self.x, "age": self.y, "part": parts}
        graph = hopfeed.from_edges({**numbers, "time": self.time}, nodes=nodes, split="part", edge_columns=["time"], node_columns=["age"], progress=False)
        np.testing.assert_array_equal(graph.x[:], self.x)
        self.check_columns(graph, "edge_time", age=self.y)

    def test_tables_that_lack_something(self):
        numbers = {"source": self.edges[0], "destination": self.edges[1]}
        for edges, options, says in (
            ({"source": [1]}, {}, "edges has no column 'destination' .it has source"),
            (numbers, {"label": "y", "nodes": {"x": self.x}}, "nodes has no column 'y' .it has x"),
            ({"source": ["a"], "destination": ["b"]}, {}, "id="),
            (numbers, {"nodes": {"id": np.arange(3)}, "id": "id"}, "edges has an end"),
            (numbers, {"nodes": {"id": np.zeros(50)}, "id": "id"}, "two rows with the id"),
            (numbers, {"nodes": {"s": ["train", "tune"]}, "split": "s"}, "split has 'tune'"),
            (numbers, {"nodes": {"s": np.full(50, 256)}, "split": "s"}, "split has numbers from 256"),
            (numbers, {"nodes": {"a": ["x"] * 50}, "features": ["a"]}, "column 'a' of nodes is of <U1"),
            (numbers, {"nodes": {"a": self.x[:, 0], "b": [1]}}, "different lengths"),
            (numbers, {"nodes": {"a": self.x[:, 0], "b": ["x"] * 50}, "node_columns": ["b"]}, "node_columns b: want columns: numbers"),
            (numbers, {"edge_columns": ["b"]}, "edges has no column 'b'"),
            ({"source": [-1], "destination": [0]}, {}, "edges has numbers of nodes from -1"),
            (numbers, {"nodes": {"a": self.x, "y": ["x"] * 50}, "label": "y"}, "y is an array .50. of <U1: want numbers"),
            ({**numbers, "w": ["a"] * len(self.weights)}, {"weight": "w"}, "edge_weight is an array"),
        ):
            with self.assertRaisesRegex(hopfeed.OptionError, says):
                hopfeed.from_edges(edges, self.path, progress=False, **options)
        with self.assertRaisesRegex(TypeError, "'dtyp'"):
            hopfeed.from_edges(numbers, self.path, dtyp="float16")
        self.assertEqual(os.listdir(os.path.dirname(self.path)), [])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hopfeed.from_edges({**numbers, "kind": self.weights}, self.path, nodes={"a": self.x, "name": ["x"] * 50}, progress=False)
        said = " ".join(str(warning.message) for warning in caught)
        self.assertRegex(said, "leaves out column 'kind' of edges.*leaves out column 'name' of nodes")
        self.assertEqual({warning.filename for warning in caught}, {__file__})

    def test_a_graph_of_dgl(self):
        class Graph:  # with the calls of a DGLGraph that are used
            ntypes, etypes = ["_N"], ["_E"]
            ndata = {"feat": self.x, "label": self.y, "train_mask": self.y == 0, "val_mask": self.y == 1, "test_mask": self.y == 2, "age": self.y, "name": np.array(["a"] * 50)}
            edata = {"weight": self.weights, "time": self.time}

            @staticmethod
            def edges():
                return self.edges[0], self.edges[1]

            @staticmethod
            def num_nodes():
                return 50

            @staticmethod
            def num_edges():
                return len(self.weights)

        with self.assertWarnsRegex(UserWarning, "from_dgl leaves out ndata 'name':"):
            graph = hopfeed.from_dgl(Graph, self.path, progress=False)
        self.check_columns(graph, "edge_time", age=self.y)
        self.check_graph(graph)
        self.check_weights(graph)
        np.testing.assert_array_equal(graph.splits[:, 0], self.y)
        with self.assertRaisesRegex(hopfeed.OptionError, "ndata has no 'x'"):
            hopfeed.from_dgl(Graph, self.path, feature="x")

    def test_a_graph_of_ogb(self):
        class DataSet:  # with the calls of a NodePropPredDataset that are used
            name, is_hetero, meta_info = "ogbn-none", False, {"add_inverse_edge": "False"}

            def __getitem__(_, index):
                columns = {"edge_feat": self.time[:, None] * [1.0, 0.5], "node_year": self.y[:, None]}
                return {"edge_index": self.edges, "node_feat": self.x, "num_nodes": 50, **columns}, self.y[:, None]

            @staticmethod
            def get_idx_split():
                return {"train": np.arange(10), "valid": np.arange(10, 20), "test": np.arange(20, 40)}

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            graph = hopfeed.from_ogb(DataSet(), self.path, progress=False)
        self.check_graph(graph)
        self.assertEqual(graph.name, "ogbn-none")
        self.check_columns(graph, "edge_attr", node_year=self.y)
        # The same in OGB's layout of text.
        folder = os.path.join(os.path.dirname(self.path), "text", "raw")
        os.makedirs(folder)
        texts = {"edge": self.edges.T, "edge-feat": DataSet()[0][0]["edge_feat"], "node-feat": self.x, "node-label": self.y, "node_year": self.y}
        texts |= {"num-node-list": [50], "num-edge-list": [self.edges.shape[1]]}
        for name, array in texts.items():
            np.savetxt(os.path.join(folder, f"{name}.csv.gz"), np.asarray(array), fmt="%.9g", delimiter=",")
        text = hopfeed.import_ogb(os.path.dirname(folder), self.path + "-text", directed=True, duplicates="keep", progress=False)
        np.testing.assert_array_equal(text.x[:], graph.x[:])
        self.check_columns(text, "edge_attr", node_year=self.y)
        np.testing.assert_array_equal(graph.splits[:, 0], np.repeat([0, 1, 2, -1], [10, 10, 20, 10]))

    def test_folders_of_killed_processes_are_removed_by_the_next(self):
        program = (
            "import hopfeed, numpy, sys\n"
            "loader = hopfeed.Loader.from_arrays(numpy.ones((9, 2), numpy.float32), folder=sys.argv[1])\n"
            "print(loader.dataset.folder, flush=True)\n"
            "input()\n"
        )
        parent = os.path.dirname(self.path)

        def start():
            process = subprocess.Popen([sys.executable, "-c", program, parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            return process, process.stdout.readline().strip()

        (killed, left), (_, used) = start(), start()
        killed.kill()
        killed.wait()
        os.mkdir(os.path.join(parent, "hopfeed-of-others"))
        self.assertTrue(os.path.exists(left))
        loader = hopfeed.Loader.from_arrays(np.ones((9, 2), np.float32), folder=parent)
        kept = {os.path.basename(path) for path in (used, loader.dataset.folder)}
        self.assertEqual(set(os.listdir(parent)), kept | {"hopfeed-of-others"})

    def test_a_loader_of_arrays_owns_its_folder(self):
        x = np.random.default_rng(1).standard_normal((50, 3, 4), dtype=np.float32)
        parts = np.arange(50) % 3
        named = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2]}
        for given, names in ((x, ["matrix-0", "matrix-1", "matrix-2"]), (named, ["a", "b", "c"]), (x[:, :1], ["matrix-0"]), (x[:, 0], ["matrix-0"])):
            loader = hopfeed.Loader.from_arrays(given, self.y, splits=parts, batch_size=7)
            self.assertEqual((loader.matrices, loader.dataset.features), (names, 4))
            for part, split in enumerate(("train", "val", "test")):
                found = [b for b in loader.dataset.loader(split=split, batch_size=7)]
                self.assertEqual(sorted(np.concatenate([b.n_id for b in found])), np.flatnonzero(parts == part).tolist())
                for b in found:
                    np.testing.assert_array_equal(b.x, x[b.n_id][:, : len(names)])
                    np.testing.assert_array_equal(b.y, self.y[b.n_id])
            for rows in (slice(0, 10), [3, 1], 4):
                b = loader.dataset[rows]
                np.testing.assert_array_equal(b.x, x[b.n_id][..., : len(names), :])
            last = len(names) - 1
            for hops, index in ((last, slice(0, last + 1)), ([last], [last])):
                chosen = loader.dataset.loader(split="all", batch_size=7, hops=hops)
                self.assertEqual(chosen.matrices, names[-1:] if hops == [last] else names)
                for b in chosen:
                    np.testing.assert_array_equal(b.x, x[b.n_id][:, index])
            with self.assertRaisesRegex(hopfeed.OptionError, "no hop .3. .it has .0"):
                hopfeed.Loader(loader.dataset, hops=[0, 3])
            folder = loader.dataset.folder
            self.assertTrue(os.path.exists(folder))
            del chosen
            for b in hopfeed.Loader(loader.dataset, 7, stacked=False):
                np.testing.assert_array_equal(b[names[-1]], x[b.n_id][:, len(names) - 1])
            del loader, found, b
            gc.collect()
            self.assertFalse(os.path.exists(folder))
        some = hopfeed.Loader.from_arrays(x, hops=1, batch_size=7)
        self.assertEqual(some.matrices, ["matrix-0", "matrix-1"])
        for b in some:
            np.testing.assert_array_equal(b.x, x[b.n_id][:, :2])
        with self.assertRaisesRegex(hopfeed.OptionError, "splits has numbers from 0 to 300"):
            hopfeed.Loader.from_arrays(x, splits=np.arange(50) * 300 // 49)
        with self.assertRaisesRegex(TypeError, "bach_size"):
            hopfeed.Loader.from_arrays(x, folder="nowhere", bach_size=1)
        for wrong, says in (((x, self.y[:3]), "y has 3 rows"), (({"a": x[:, 0], "b": x[:, 0, :2]},), "one shape")):
            with self.assertRaisesRegex(hopfeed.OptionError, says):
                hopfeed.Loader.from_arrays(*wrong)


if __name__ == "__main__":
    unittest.main()
