"""hopfeed.NeighborLoader of a typed graph with numpy alone."""

import contextlib
import importlib.util
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import hopfeed

NODES = {"author": 90, "paper": 120, "venue": 7}
RELATIONS = [("author", "paper"), ("paper", "paper"), ("paper", "venue"), ("venue", "paper")]
WIDTHS = {"author": 3, "paper": 5}


def write_arrays(folder):
    """A typed graph in the npy layout, and its features and edges."""
    rng = np.random.default_rng(3)
    x = {name: rng.standard_normal((NODES[name], width), dtype=np.float32) for name, width in WIDTHS.items()}
    edges = {(s, d): np.unique(rng.integers(0, [[NODES[s]], [NODES[d]]], (2, 500)), axis=1) for s, d in RELATIONS}
    labels, splits = rng.integers(0, 3, NODES["paper"]), rng.choice(np.array([0, 1, 2, -1], np.int8), NODES["paper"])
    for name in NODES:
        os.makedirs(os.path.join(folder, "nodes", name))
        if name in x:
            np.save(os.path.join(folder, "nodes", name, "node_feat.npy"), x[name])
    np.save(os.path.join(folder, "nodes", "paper", "node_label.npy"), labels)
    np.save(os.path.join(folder, "nodes", "paper", "splits.npy"), splits)
    for (s, d), edge_index in edges.items():
        os.makedirs(os.path.join(folder, "edges", f"{s}__{d}"))
        np.save(os.path.join(folder, "edges", f"{s}__{d}", "edge_index.npy"), edge_index)
    with open(os.path.join(folder, "meta.json"), "w") as f:
        json.dump({"name": "toy", "node_types": NODES, "target": "paper"}, f)
    return x, edges, labels, splits


@contextlib.contextmanager
def dgl():
    """DGL or, where it is not installed, for a while its stand-in."""
    here = importlib.util.find_spec("dgl") is not None
    with mock.patch.object(sys, "path", [*sys.path, str(pathlib.Path(__file__).parent / "stand_ins")]):
        yield importlib.import_module("dgl")
    for name in [] if here else [name for name in sys.modules if name.split(".")[0] == "dgl"]:
        del sys.modules[name]


class TestTypedGraphs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        arrays, cls.graph = (os.path.join(cls.folder.name, name) for name in ("arrays", "graph"))
        cls.x, edges, cls.y, cls.splits = write_arrays(arrays)
        cls.x["venue"] = np.ones((NODES["venue"], 1), np.float32)
        hopfeed.import_npy(arrays, cls.graph, missing_features="ones", directed=True, progress=False)
        hopfeed.import_npy(arrays, cls.graph + "-bare", directed=True, progress=False)
        # By destination, sources ascending, as numbers of edges count them.
        cls.edges = {(s, "to", d): e[:, np.lexsort(e)] for (s, d), e in edges.items()}

    def check_nodes(self, batch):
        for name, numbers in batch.n_id_dict.items():
            self.assertEqual(len(set(numbers.tolist())), len(numbers))
            np.testing.assert_array_equal(batch.x_dict[name], self.x[name][numbers])
        np.testing.assert_array_equal(batch.n_id_dict["paper"][: batch.batch_size], batch.seed_id)
        np.testing.assert_array_equal(batch.y, np.where(self.splits[batch.seed_id] >= 0, self.y[batch.seed_id], batch.y))

    def check_edges(self, batch, relation, sources, destinations, e_id, fanout, nodes):
        """Each edge is the one of its number, and each of the nodes has as many as the fanout and the graph allow."""
        source, _, destination = relation
        there = self.edges[relation]
        np.testing.assert_array_equal(there[0, e_id], batch.n_id_dict[source][sources])
        np.testing.assert_array_equal(there[1, e_id], batch.n_id_dict[destination][destinations])
        self.assertEqual(len(set(e_id.tolist())), len(e_id))
        degrees = np.bincount(there[1], minlength=NODES[destination])[batch.n_id_dict[destination][:nodes]]
        np.testing.assert_array_equal(np.bincount(destinations, minlength=nodes), np.minimum(degrees, fanout))

    def test_blocks_are_those_of_relations(self):
        loader = hopfeed.NeighborLoader(self.graph, [4, 2], batch_size=16, edge_ids=True)
        seeds = []
        for batch in loader:
            self.check_nodes(batch)
            seeds += batch.seed_id.tolist()
            for block, fanout in zip(batch.blocks, [2, 4]):
                self.assertEqual(sorted(block), sorted(self.edges))
                for relation, b in block.items():
                    self.check_edges(batch, relation, *b.edge_index(), b.e_id, fanout, b.destinations)
                    counts = np.diff(b.indptr)
                    np.testing.assert_allclose(b.weights, np.repeat(1 / np.maximum(counts, 1), counts), rtol=1e-6)
            first, last = batch.blocks
            for (source, _, destination), b in first.items():
                self.assertEqual(b.sources, len(batch.n_id_dict[source]))
            self.assertEqual({b.destinations for (_, _, d), b in last.items() if d == "paper"}, {batch.batch_size})
            self.assertEqual({b.destinations for (_, _, d), b in last.items() if d == "venue"}, {0})
        self.assertEqual(sorted(seeds), np.flatnonzero(self.splits == 0).tolist())

    def test_one_graph_for_all_layers_and_seeds_of_another_type(self):
        loader = hopfeed.NeighborLoader(self.graph, [-1], ("venue", [5, 2]), batch_size=2, shuffle=False, subgraph_type="directional")
        (batch,) = loader
        self.assertEqual(batch.n_id_dict["venue"].tolist(), [5, 2])
        for relation, edge_index in batch.edge_index_dict.items():
            if relation[2] == "venue":
                self.check_edges(batch, relation, *edge_index, batch.e_id_dict[relation], 10**9, 2)
            else:
                self.assertEqual(edge_index.shape, (2, 0))

    def test_batches_are_a_function_of_the_seed(self):
        def content(**options):
            loader = hopfeed.NeighborLoader(self.graph, [3, 3], batch_size=16, subgraph_type="directional", **options)
            return [[a.tobytes() for d in (b.n_id_dict, b.e_id_dict, b.edge_index_dict) for a in d.values()] for b in loader]

        self.assertEqual(content(threads=1), content(threads=3))
        self.assertNotEqual(content(), content(seed=1))

    def test_a_type_that_is_another_graphs_is_refused(self):
        mixed = self.graph + "-mixed"
        shutil.copytree(self.graph, mixed)
        shutil.rmtree(os.path.join(mixed, "nodes", "venue"))
        shutil.copytree(os.path.join(self.graph + "-bare", "nodes", "venue"), os.path.join(mixed, "nodes", "venue"))
        with self.assertRaisesRegex(hopfeed.CorruptError, "not the one that types.json names"):
            hopfeed.NeighborLoader(mixed, [2], ("venue", [5]), features=False)

    def test_what_cannot_be_is_an_error_that_says_so(self):
        for options, text in [
            ({"sampler": "labor"}, "only neighbor and full"),
            ({"cache": "lru:10rows"}, "without a cache"),
            ({"subgraph_type": "induced"}, "neither disjoint nor induced"),
            ({"aggregation": "sym"}, "means over relations"),
            ({"columns": ["time"]}, "no type or relation"),
            ({"time_attr": "time"}, "do not go by times"),
            ({"input_nodes": ("nobody", [0])}, "has no type 'nobody'"),
            ({"input_nodes": ("venue", [7])}, "7 nodes"),
        ]:
            with self.subTest(options), self.assertRaisesRegex(hopfeed.OptionError, text):
                hopfeed.NeighborLoader(self.graph, [2], **options)
        with self.assertRaisesRegex(hopfeed.OptionError, "no features of venue"):
            hopfeed.NeighborLoader(self.graph + "-bare", [2])
        batch = next(iter(hopfeed.NeighborLoader(self.graph + "-bare", [2], features=False)))
        self.assertNotIn("x_dict", batch)


if __name__ == "__main__":
    unittest.main()
