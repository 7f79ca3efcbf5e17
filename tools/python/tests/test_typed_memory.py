"""Typed graphs made of what is in memory."""

import filecmp
import gc
import os
import pickle
import tempfile
import unittest
import warnings

import numpy as np

import hopfeed
import test_typed

try:
    from torch import from_numpy as tensor
except ImportError:
    tensor = np.asarray


class HeteroData:
    """What from_pyg uses of a ``HeteroData`` of PyTorch Geometric."""

    def __init__(self, nodes, edges):
        self.nodes, self.edges = nodes, edges
        self.node_types, self.edge_types = list(nodes), list(edges)

    def to_dict(self):
        return {"_global_store": {}, **self.nodes, **self.edges}


def masks(splits):
    return {f"{part}_mask": splits == k for k, part in enumerate(("train", "val", "test"))}


def tensors(stores, more):
    """The arrays of both as tensors, if PyTorch is installed."""
    both = {key: {**values, **more.get(key, {})} for key, values in stores.items()}
    return {key: {name: tensor(a) if isinstance(a, np.ndarray) else a for name, a in values.items()} for key, values in both.items()}


def same_files(case, left, right):
    """Whether two folders have the same files with the same bytes."""

    def files(folder):
        return sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)

    case.assertEqual(files(left), files(right))
    case.assertGreater(len(files(left)), 20)
    _, different, odd = filecmp.cmpfiles(left, right, files(left), shallow=False)
    case.assertEqual(different + odd, [])


class TypedMemory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.arrays, cls.graph = (os.path.join(cls.folder.name, name) for name in ("arrays", "graph"))
        x, edges, labels, splits = test_typed.write_arrays(cls.arrays)
        cls.weights = np.random.default_rng(5).random(edges["author", "paper"].shape[1], dtype=np.float32)
        np.save(os.path.join(cls.arrays, "edges", "author__paper", "edge_weight.npy"), cls.weights)
        # As other packages have them: a relation with a name, edges in no order, several splits.
        os.rename(os.path.join(cls.arrays, "edges", "paper__paper"), os.path.join(cls.arrays, "edges", "paper__cites__paper"))
        splits = np.stack([splits, splits[::-1]])
        np.save(os.path.join(cls.arrays, "nodes", "paper", "splits.npy"), splits)
        hopfeed.import_npy(cls.arrays, cls.graph, missing_features="degree", progress=False)
        cls.edges = {(s, "cites" if s == d else "to", d): ends for (s, d), ends in edges.items()}
        cls.x, cls.y, cls.splits = x, labels, splits

    def data(self, nodes={}, edges={}):
        """The graph as a ``HeteroData``, with more of some types and relations."""
        found = {name: {"x": x} for name, x in self.x.items()} | {"venue": {"num_nodes": test_typed.NODES["venue"]}}
        found["paper"] |= {"y": self.y, **masks(self.splits.T)}
        relations = {e: {"edge_index": ends} for e, ends in self.edges.items()}
        relations["author", "to", "paper"]["edge_weight"] = self.weights
        return HeteroData(tensors(found, nodes), tensors(relations, edges))

    def test_a_graph_of_pyg_has_the_bytes_of_the_same_arrays(self):
        path = self.graph + "-pyg"
        graph = hopfeed.from_pyg(self.data(), path, name="toy", missing_features="degree", progress=False)
        same_files(self, path, self.graph)
        self.assertEqual((graph.target, graph["paper"].classes), ("paper", 3))
        np.testing.assert_array_equal(graph["paper"].splits, self.splits.T)
        self.assertIn(("paper", "rev_cites", "paper"), graph.edge_types)
        directed = hopfeed.from_pyg(self.data(), missing_features="ones", directed=True, progress=False)
        self.assertEqual(sorted(directed.edge_types), sorted(self.edges))
        batch = next(iter(hopfeed.NeighborLoader(directed, [-1], batch_size=8)))
        for name, numbers in batch.n_id_dict.items():
            np.testing.assert_array_equal(batch.x_dict[name], self.x[name][numbers] if name in self.x else np.ones((len(numbers), 1)))

    def test_a_graph_of_dgl_has_the_bytes_of_the_same_arrays(self):
        with test_typed.dgl() as dgl:
            graph = dgl.heterograph({e: tuple(map(tensor, ends)) for e, ends in self.edges.items()}, num_nodes_dict=test_typed.NODES)
        for name, x in self.x.items():
            graph.nodes[name].data["feat"] = tensor(x)
        for name, values in {"label": self.y, **masks(self.splits.T), "x": self.y}.items():
            graph.nodes["paper"].data[name] = tensor(values)
        graph.edges["author", "to", "paper"].data["weight"] = tensor(self.weights)
        graph.edges["venue", "to", "paper"].data["x"] = tensor(np.zeros(self.edges["venue", "to", "paper"].shape[1]))
        path = self.graph + "-dgl"
        with self.assertWarnsRegex(UserWarning, r"from_dgl leaves out ndata 'x' of paper, edata 'x' of \('venue', 'to', 'paper'\):"):
            hopfeed.from_dgl(graph, path, name="toy", missing_features="degree", progress=False)
        same_files(self, path, self.graph)

    def test_types_and_relations_have_the_columns_of_the_arrays(self):
        graph = hopfeed.open(self.graph)
        for name, x in self.x.items():
            np.testing.assert_array_equal(graph[name].x, x)
            self.assertEqual(graph[name].num_nodes, test_typed.NODES[name])
        paper = graph["paper"]
        for mask, values in masks(self.splits.T).items():
            np.testing.assert_array_equal(getattr(paper, mask), values)
        np.testing.assert_array_equal(paper.y, self.y)
        np.testing.assert_array_equal(paper.orig_id, np.arange(test_typed.NODES["paper"]))
        for relation, ends in self.edges.items():
            edges, order = graph[relation], np.lexsort(ends)
            np.testing.assert_array_equal(edges.edge_index, ends[:, order])
            np.testing.assert_array_equal(np.diff(edges.indptr), np.bincount(ends[1], minlength=test_typed.NODES[relation[2]]))
            self.assertEqual(edges.size(), (test_typed.NODES[relation[0]], test_typed.NODES[relation[2]]))
            self.assertEqual((edges.num_edges, len(edges), edges.indices.dtype, edges.indptr.dtype), (ends.shape[1], ends.shape[1], "<u4", "<i8"))
            for mapped in (edges.indices, edges.indptr):
                self.assertIsInstance(mapped.base, np.memmap)
                with self.assertRaisesRegex(ValueError, "read-only"):
                    mapped[0] = 1
        weighted = ("author", "to", "paper")
        np.testing.assert_array_equal(graph["author", "paper"].edge_weight, self.weights[np.lexsort(self.edges[weighted])])
        self.assertIs(graph["author", "paper"], graph[weighted])
        self.assertIsNone(graph["venue", "paper"].edge_weight)
        self.assertEqual(sorted(graph.weighted), [weighted, ("paper", "to", "author")])
        for key, says in (("nobody", "no type 'nobody'"), (("paper", "paper"), "has 2 relations"), (("venue", "author"), "has 0 relations")):
            with self.assertRaisesRegex(hopfeed.OptionError, says):
                graph[key]

    def test_weights_of_edges_come_with_batches(self):
        graph = hopfeed.open(self.graph)
        for batch in hopfeed.NeighborLoader(graph, [3, 2], batch_size=16, subgraph_type="directional"):
            self.assertEqual(sorted(batch.edge_weight_dict), sorted(graph.weighted))
            for e, weights in batch.edge_weight_dict.items():
                np.testing.assert_array_equal(weights, graph[e].edge_weight[batch.e_id_dict[e]])
        for batch in hopfeed.NeighborLoader(graph, [-1, -1], batch_size=16, edge_ids=True):
            for e, block in [item for blocks in batch.blocks for item in blocks.items()]:
                edges, there = graph[e], graph[e].edge_index[1][block.e_id]
                weights = np.ones(edges.num_edges) if edges.edge_weight is None else edges.edge_weight
                total = np.bincount(edges.edge_index[1], weights, minlength=edges.size()[1])
                np.testing.assert_allclose(block.weights, weights[block.e_id] / total[there], rtol=1e-5)
        weights = [w for batch in hopfeed.NeighborLoader(graph, [2], by_weight=True, replace=True) for b in batch.blocks[0].values() for w in b.weights]
        np.testing.assert_allclose(weights, 0.5, rtol=1e-5)
        bare = hopfeed.from_pyg(self.data({}, {("author", "to", "paper"): {"edge_weight": None}}), missing_features="ones", progress=False)
        with self.assertRaisesRegex(hopfeed.OptionError, "no weights to draw by"):
            hopfeed.NeighborLoader(bare, [2], by_weight=True)
        self.assertNotIn("edge_weight_dict", next(iter(hopfeed.NeighborLoader(bare, [2], subgraph_type="directional"))))

    def test_columns_come_with_batches(self):
        rng = np.random.default_rng(8)
        year = {"paper": {"year": rng.integers(0, 99, test_typed.NODES["paper"])}, "venue": {"year": np.arange(test_typed.NODES["venue"])}}
        more = {e: {"edge_attr": rng.random((ends.shape[1], 2))} for e, ends in self.edges.items() if e[0] != "venue"}
        more["author", "to", "paper"]["time"] = rng.integers(0, 99, len(self.weights))
        with test_typed.dgl() as dgl:
            made = dgl.heterograph({e: tuple(map(tensor, ends)) for e, ends in self.edges.items()}, num_nodes_dict=test_typed.NODES)
        for name in test_typed.NODES:
            made.nodes[name].data.update({k: tensor(v) for k, v in year.get(name, {}).items()})
        for e in self.edges:
            made.edges[e].data.update({k: tensor(v) for k, v in more.get(e, {}).items()})
        made.nodes["paper"].data.update({"label": tensor(self.y), "train_mask": tensor(self.splits[0] == 0)})
        options = {"missing_features": "ones", "directed": True, "progress": False}
        for graph in (hopfeed.from_pyg(self.data(year, more), **options), hopfeed.from_dgl(made, **options)):
            for e, given in more.items():
                order = np.lexsort(self.edges[e])
                self.assertEqual(graph[e].columns, ["edge_attr", "edge_time"][: len(given)])
                for name, values in zip(graph[e].columns, given.values()):
                    np.testing.assert_array_equal(graph[e].column(name), values[order])
            self.assertEqual(graph["venue", "paper"].columns, [])
            with self.assertRaisesRegex(hopfeed.OptionError, "has no column 'edge_time' .it has edge_attr"):
                graph["paper", "cites", "paper"].column("edge_time")
            names = ["edge_attr", "edge_time", "year"]
            loader = hopfeed.NeighborLoader(graph, [3, 2], batch_size=16, subgraph_type="directional", columns=names)
            for batch in loader:
                self.assertEqual(list(batch.edge_attr_dict), [e for e in graph.edge_types if e in more])
                self.assertEqual((list(batch.edge_time_dict), list(batch.year_dict)), ([("author", "to", "paper")], ["paper", "venue"]))
                for name in names:
                    for key, values in batch[f"{name}_dict"].items():
                        numbers = batch.n_id_dict[key] if name == "year" else batch.e_id_dict[key]
                        np.testing.assert_array_equal(values, graph[key].column(name)[numbers])
            for batch in hopfeed.NeighborLoader(graph, [3], batch_size=16, columns=["year"]):
                np.testing.assert_array_equal(batch.year_dict["venue"], batch.n_id_dict["venue"])
            for columns, text in [(["edge_attr"], "is of edges, which blocks have by number"), (["price"], "no type or relation .* 'price'"),
                                  (["n_id"], "a batch has another 'n_id'")]:
                with self.assertRaisesRegex(hopfeed.OptionError, text):
                    hopfeed.NeighborLoader(graph, [2], columns=columns)

    def test_a_graph_that_was_replaced_has_other_edges(self):
        path = self.graph + "-replaced"
        options = {"missing_features": "ones", "progress": False, "force": True}
        before = hopfeed.import_npy(self.arrays, path, **options)
        hopfeed.import_npy(self.arrays, path, directed=True, **options)
        with self.assertRaisesRegex(hopfeed.Error, "was replaced"):
            before["venue", "paper"]

    def test_names_that_a_graph_cannot_have_are_changed_or_refused(self):
        def renamed(**names):
            data = self.data()
            nodes = {names.get(t, t): values for t, values in data.nodes.items()}
            return HeteroData(nodes, {tuple(names.get(n, n) for n in e): values for e, values in data.edges.items()})

        with self.assertWarnsRegex(UserWarning, "from_pyg: names .*: 'Paper' becomes 'paper', 'Is-cited by' becomes 'is_cited_by'"):
            graph = hopfeed.from_pyg(renamed(paper="Paper", cites="Is-cited by"), target="Paper", missing_features="ones", progress=False)
        self.assertEqual((graph.target, graph.node_types), ("paper", sorted(test_typed.NODES)))
        self.assertIn(("paper", "is_cited_by", "paper"), graph.edge_types)
        for names, says in (
            ({"paper": "1st"}, "'1st' cannot name a type or a relation: rename it"),
            ({"cites": ""}, "'' cannot name"),
            ({"paper": "p" * 41}, "at most 40"),
            ({"paper": "Venue"}, "'Venue' and 'venue' would both be called 'venue': rename one"),
        ):
            with self.assertRaisesRegex(hopfeed.OptionError, says), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                hopfeed.from_pyg(renamed(**names), self.graph + "-none", progress=False)

    def test_what_cannot_be_is_an_error_that_says_so(self):
        relation = ("author", "to", "paper")
        ends = self.edges[relation]
        wrong = np.array([[0], [test_typed.NODES["paper"]]])
        extra = self.data()
        del extra.nodes["venue"], extra.node_types[extra.node_types.index("venue")]
        for data, options, says in (
            (self.data({"venue": {"num_nodes": None}}), {}, "type 'venue' has no x: give .* num_nodes"),
            (extra, {}, r"relation \('paper', 'to', 'venue'\) has an end of type 'venue'"),
            (self.data({}, {relation: {"edge_index": None}}), {}, r"relation \('author', 'to', 'paper'\) has no edge_index"),
            (self.data({}, {relation: {"edge_index": wrong, "edge_weight": None}}), {}, r"edge_index of \('author', .* from 120 to 120, and there are 120 nodes"),
            (self.data({}, {relation: {"edge_index": ends[0]}}), {}, r"edge_index of .* want numbers of nodes \[2, edges\]"),
            (self.data({}, {relation: {"edge_weight": -self.weights}}), {}, "edge_weight of author__paper"),
            (self.data({}, {relation: {"edge_weight": self.weights[1:]}}), {}, "edge_weight of author__paper"),
            (self.data({"paper": {"x": self.x["paper"][0]}}), {}, r"x of paper is \[5\]"),
            (self.data({"paper": {"x": self.x["paper"] * np.nan}}), {}, "x of paper"),
            (self.data({"paper": {"y": self.y[1:]}}), {}, "y of paper"),
            (self.data({"paper": {"train_mask": self.y}}), {}, "train_mask of paper is an array"),
            (self.data({"author": {"num_nodes": 91}}), {}, "90 rows, .* 91 nodes"),
            (self.data({"venue": {"y": np.zeros(7, int)}}), {}, "^no target: .*with labels: paper, venue"),
            (self.data({"paper": {"y": None}}), {}, "^no target: .*with labels: none"),
            (self.data(), {"target": "nobody"}, "^the target is .nobody.: want one of the types author, paper"),
            (self.data(), {"missing_features": "zeros"}, "missing_features"),
        ):
            with self.subTest(says), self.assertRaisesRegex(hopfeed.OptionError, says) as raised:
                hopfeed.from_pyg(data, self.graph + "-none", progress=False, **options)
            self.assertNotIn("hopfeed-arrays", str(raised.exception))
            self.assertFalse(os.path.exists(self.graph + "-none"))
        with self.assertRaisesRegex(hopfeed.OptionError, "to_homogeneous"):
            hopfeed._work.pyg_arrays(self.data(), None)

    def test_what_is_left_out_is_said_once(self):
        data = self.data({"paper": {"title": ["a"] * len(self.y), "edge_label": self.y}}, {("author", "to", "paper"): {"edge_attr": self.weights[1:]}})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            hopfeed.from_pyg(data, missing_features="ones", progress=False)
        (said,) = caught
        self.assertRegex(str(said.message), r"from_pyg leaves out title of paper, edge_attr of \('author', 'to', 'paper'\): a graph has")
        self.assertEqual(said.filename, __file__)

    def test_a_graph_in_a_temporary_folder_goes_with_the_last_of_its_types(self):
        graph = hopfeed.from_pyg(self.data(), missing_features="ones", progress=False)
        folder, papers = graph.folder, graph["paper"]
        for data in (graph, papers):
            with self.assertRaises(hopfeed.ForkError):
                pickle.dumps(data)
        del graph, data
        gc.collect()
        np.testing.assert_array_equal(papers.x[:], self.x["paper"])
        del papers
        gc.collect()
        self.assertFalse(os.path.exists(folder))


if __name__ == "__main__":
    unittest.main()
