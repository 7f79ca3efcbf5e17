"""Subgraphs and link prediction, compared with what numpy finds in the edges of the graph."""

import os
import tempfile
import unittest

import numpy as np

import hopfeed
import stores

LIMIT = 5  # standard deviations that a count of draws may be off: chance gives more once in a million counts


class WithEdges(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.arrays = stores.write_arrays(os.path.join(cls.folder.name, "arrays"))
        cls.graph = os.path.join(cls.folder.name, "graph")
        hopfeed.import_npy(os.path.join(cls.folder.name, "arrays"), cls.graph, progress=False)
        # The edges in the order of the topology: by destination, then source, each once.
        destination, source = np.unique(cls.arrays["edge_index"][::-1], axis=1)
        cls.edges = np.stack([source, destination])
        cls.there = np.zeros((stores.NODES, stores.NODES), bool)
        cls.there[source, destination] = True

    def check_graph(self, b):
        """That edge_index and e_id are edges of the graph, each once."""
        n_id, e_id = b.n_id, b.e_id
        np.testing.assert_array_equal(b.x, self.arrays["node_feat"][n_id])
        np.testing.assert_array_equal(n_id[b.edge_index], self.edges[:, e_id])
        self.assertEqual(len(np.unique(b.edge_index, axis=1).T), len(e_id))

    def in_neighbors(self, node, hidden=()):
        return [e for e in np.flatnonzero(self.edges[1] == node) if e not in hidden]

    def reached(self, seeds, fanouts, hidden=()):
        """The nodes within all layers but the last, by layer, and the edges to them."""
        done, layer, edges = {}, list(dict.fromkeys(seeds)), []
        for k in range(fanouts):
            found = []
            for v in layer:
                if v not in done:
                    done[v] = k
                    edges += self.in_neighbors(v, hidden)
            layer = [u for u in dict.fromkeys(self.edges[0][edges].tolist()) if u not in done]
        return done, set(edges)


class Subgraphs(WithEdges):
    def test_all_in_neighbours_are_the_edges_that_numpy_finds(self):
        for placement in ("host", "storage"):
            loader = hopfeed.NeighborLoader(self.graph, [-1, -1], "train", 5, subgraph_type="directional", placement=placement)
            for b in list(loader)[:20]:
                self.check_graph(b)
                self.assertEqual(set(b.e_id.tolist()), self.reached(b.n_id[: b.batch_size].tolist(), 2)[1])
                np.testing.assert_array_equal(b.y, self.arrays["node_label"][b.n_id[: b.batch_size]])

    def test_a_node_is_sampled_for_once_with_the_fanout_of_its_layer(self):
        fanouts = [4, 2]
        for replace in (False, True):
            for b in list(hopfeed.NeighborLoader(self.graph, fanouts, "train", 20, subgraph_type="directional", replace=replace))[:5]:
                n_id, seeds = b.n_id, b.batch_size
                if not replace:
                    self.check_graph(b)
                counts = np.bincount(b.edge_index[1], minlength=len(n_id))
                first = set(range(seeds)) | set(b.edge_index[0][b.edge_index[1] < seeds].tolist())
                for i, count in enumerate(counts):
                    degree = len(self.in_neighbors(n_id[i]))
                    fanout = fanouts[0] if i < seeds else fanouts[1] if i in first else 0
                    self.assertEqual(count, min(fanout, degree) if not replace else fanout * (degree > 0))

    def test_each_subset_of_the_in_neighbours_has_the_same_chance(self):
        node = np.argmax(np.bincount(self.edges[1]))
        degree, fanout, epochs = len(self.in_neighbors(node)), 3, 2000
        loader = hopfeed.NeighborLoader(self.graph, [fanout], [node], subgraph_type="directional", threads=2)
        drawn = np.concatenate([b.e_id for _ in range(epochs) for b in loader])
        p = fanout / degree
        counts = np.array([(drawn == e).sum() for e in self.in_neighbors(node)])
        self.assertLess(np.abs(counts - epochs * p).max(), LIMIT * np.sqrt(epochs * p * (1 - p)))

    def test_an_induced_graph_has_all_edges_between_its_nodes(self):
        for disjoint in (False, True):
            for b in list(hopfeed.NeighborLoader(self.graph, [3, 2], "train", 30, subgraph_type="induced", disjoint=disjoint))[:5]:
                self.check_graph(b)
                tree = b.batch if disjoint else np.zeros(len(b.n_id))
                want = self.there[np.ix_(b.n_id, b.n_id)] & (tree[:, None] == tree)
                found = np.zeros_like(want)
                found[tuple(b.edge_index)] = True
                np.testing.assert_array_equal(found, want)

    def test_disjoint_seeds_have_nodes_of_their_own(self):
        nodes = [5, 5, 7, 9]
        (b,) = hopfeed.NeighborLoader(self.graph, [-1, -1], nodes, shuffle=False, subgraph_type="directional", disjoint=True)
        self.check_graph(b)
        np.testing.assert_array_equal(b.n_id[:4], nodes)
        np.testing.assert_array_equal(b.batch[:4], range(4))
        np.testing.assert_array_equal(*b.batch[b.edge_index])
        for tree, node in enumerate(nodes):
            inside = b.batch == tree
            self.assertEqual(len(set(b.n_id[inside].tolist())), inside.sum())
            self.assertEqual(set(b.e_id[inside[b.edge_index[1]]].tolist()), self.reached([node], 2)[1])

    def test_blocks_say_which_edges_of_the_graph_they_have(self):
        for sampler in "neighbor labor labor-1 ladies fastgcn saint-rw full".split():
            for aggregation in ("mean", "sym"):
                loader = hopfeed.NeighborLoader(self.graph, [4, 3], "train", 40, sampler=sampler, aggregation=aggregation, edge_ids=True)
                b = next(iter(loader))
                for block in b.blocks:
                    edges, given = b.n_id[block.edge_index()], block.e_id >= 0
                    np.testing.assert_array_equal(edges[:, given], self.edges[:, block.e_id[given]])
                    np.testing.assert_array_equal(edges[0, ~given], edges[1, ~given])
                    self.assertTrue((block.e_id[~given] == -1).all() and given.all() == (aggregation == "mean"))

    def test_batches_do_not_depend_on_threads_placement_or_mapping(self):
        for options in ({"disjoint": True}, {"subgraph_type": "induced"}, {}):
            options = {"subgraph_type": "directional", "seed": 3, **options}
            want = None
            for more in ({"threads": 1}, {"threads": 2, "mapped": True}, {"placement": "storage"}):
                got = [b[k].tobytes() for b in hopfeed.NeighborLoader(self.graph, [4, 3], "all", 64, **options, **more) for k in ("n_id", "e_id", "edge_index", "x")]
                want = want or got
                self.assertEqual(got, want)

    def test_what_is_sampled_can_be_without_features_without_a_short_batch_and_transformed(self):
        count = int((self.arrays["splits"] == 0).sum())
        loader = hopfeed.NeighborLoader(self.graph, [3], batch_size=50, features=False, drop_last=True, transform=lambda b: (b.index, b))
        got = list(loader)
        self.assertEqual([i for i, _ in got], list(range(count // 50)))
        self.assertEqual({(b.batch_size, "x" in b) for _, b in got}, {(50, False)})

    def test_what_has_no_meaning_is_refused(self):
        for options in (
            {"disjoint": True},
            {"subgraph_type": "bidirectional"},
            {"subgraph_type": "directional", "sampler": "labor"},
            {"subgraph_type": "directional", "aggregation": "sym"},
            {"subgraph_type": "directional", "disjoint": True, "cache": "degree:10rows"},
            {"features": False, "cache": "degree:10rows"},
        ):
            with self.subTest(**options), self.assertRaises(hopfeed.OptionError):
                hopfeed.NeighborLoader(self.graph, [3], **options)


class Links(WithEdges):
    def open(self, links=None, num_neighbors=(4, 3), **options):
        links = self.edges[:, ::7] if links is None else links
        return hopfeed.LinkNeighborLoader(self.graph, num_neighbors, links, **{"batch_size": 64, **options})

    def ends(self, b):
        """The pairs of a batch, as nodes."""
        if "edge_label_index" in b:
            return b.n_id[b.edge_label_index]
        return b.n_id[np.stack([b.src_index, b.dst_pos_index])]

    def test_every_edge_comes_once_an_epoch_with_its_label(self):
        links = self.edges[:, ::7]
        labels = np.random.default_rng(0).integers(0, 5, links.shape[1])
        for negatives, disjoint in ((None, False), ("binary", False), ("triplet", False), (None, True), ("binary", True), ("triplet", True)):
            with self.subTest(negatives=negatives, disjoint=disjoint):
                given = None if negatives == "triplet" else labels
                loader = self.open(links, edge_label=given, neg_sampling=negatives, disjoint=disjoint)
                seen = []
                for b in loader:
                    self.check_graph(b)
                    np.testing.assert_array_equal(self.ends(b)[:, : b.batch_size], links[:, b.input_id])
                    if given is not None:
                        want = labels[b.input_id] + (negatives == "binary")
                        np.testing.assert_array_equal(b.edge_label, np.concatenate([want, np.zeros(b.batch_size if negatives else 0)]))
                    if disjoint:
                        np.testing.assert_array_equal(*b.batch[b.edge_index])
                        first = b.src_index if negatives == "triplet" else b.edge_label_index[0]
                        np.testing.assert_array_equal(b.batch[first], np.arange(len(first)))
                    seen += b.input_id.tolist()
                self.assertEqual(sorted(seen), list(range(links.shape[1])))

    def test_seed_edges_and_the_edges_back_are_left_out(self):
        back = self.edges[:, self.there[self.edges[1], self.edges[0]]]
        links = np.concatenate([back[:, :10], self.edges[:, ::9]], axis=1)
        for left_out in (True, False):
            for kind in ("directional", "induced"):
                for b in self.open(links, [-1, -1], batch_size=6, exclude_targets=left_out, subgraph_type=kind, shuffle=False):
                    self.check_graph(b)
                    u, v = links[:, b.input_id]
                    pairs = set(zip(u.tolist(), v.tolist())) | set(zip(v.tolist(), u.tolist()))
                    hidden = {e for e, pair in enumerate(zip(*self.edges.tolist())) if pair in pairs}
                    nodes, edges = self.reached([*u.tolist(), *v.tolist()], 2, hidden if left_out else ())
                    if kind == "directional":
                        self.assertEqual(set(b.e_id.tolist()), edges)
                    else:
                        self.assertEqual(not hidden & set(b.e_id.tolist()), left_out)

    def test_the_edges_that_are_not_left_out_have_the_same_chance(self):
        node = int(np.argmax(np.bincount(self.edges[1])))
        into = self.in_neighbors(node)
        links, rest = self.edges[:, [into[1], into[4], into[-1]]], [e for i, e in enumerate(into) if i not in (1, 4, len(into) - 1)]
        fanout, epochs = 3, 2000
        loader = self.open(links, [fanout])
        drawn = np.concatenate([b.e_id[b.n_id[b.edge_index[1]] == node] for _ in range(epochs) for b in loader])
        self.assertEqual(set(drawn.tolist()), set(rest))
        p = fanout / len(rest)
        counts = np.array([(drawn == e).sum() for e in rest])
        self.assertLess(np.abs(counts - epochs * p).max(), LIMIT * np.sqrt(epochs * p * (1 - p)))

    def test_negative_pairs_are_no_edges_and_have_the_same_chance(self):
        with tempfile.TemporaryDirectory() as folder:
            rng, n = np.random.default_rng(4), 9
            edges = np.unique(rng.integers(0, n, (2, 30)), axis=1)
            os.mkdir(os.path.join(folder, "a"))
            np.save(os.path.join(folder, "a", "edge_index.npy"), edges)
            np.save(os.path.join(folder, "a", "node_feat.npy"), np.ones((n, 1), np.float32))
            graph = os.path.join(folder, "g")
            hopfeed.import_npy(os.path.join(folder, "a"), graph, directed=True, progress=False)
            none = np.ones((n, n), bool)
            np.fill_diagonal(none, False)
            none[tuple(edges)] = False
            epochs, ratio = 300, 4
            for negatives in ("binary", "triplet"):
                loader = hopfeed.LinkNeighborLoader(graph, [1], edges, batch_size=16, neg_sampling=negatives, neg_sampling_ratio=ratio)
                counts, sources = np.zeros((n, n)), np.zeros(n)
                for _ in range(epochs):
                    for b in loader:
                        if negatives == "binary":
                            u, v = b.n_id[b.edge_label_index[:, b.batch_size :]]
                            self.assertEqual(len(u), ratio * b.batch_size)
                        else:
                            u, v = np.repeat(b.n_id[b.src_index], ratio), b.n_id[b.dst_neg_index].ravel()
                            sources += np.bincount(b.n_id[b.src_index], minlength=n) * ratio
                        np.add.at(counts, (u, v), 1)
                self.assertEqual(counts[~none].sum(), 0)
                draws = np.full(n, none.sum(axis=1)) / none.sum() * counts.sum() if negatives == "binary" else sources
                mean = np.where(none, draws[:, None] / np.maximum(none.sum(axis=1, keepdims=True), 1), 0)
                self.assertLess(np.abs(counts - mean)[none].max(), LIMIT * np.sqrt(mean.max()))

    def test_a_complete_graph_has_no_negative_pairs(self):
        with tempfile.TemporaryDirectory() as folder:
            edges = np.argwhere(~np.eye(4, dtype=bool)).T
            os.mkdir(os.path.join(folder, "a"))
            np.save(os.path.join(folder, "a", "edge_index.npy"), edges)
            np.save(os.path.join(folder, "a", "node_feat.npy"), np.ones((4, 1), np.float32))
            hopfeed.import_npy(os.path.join(folder, "a"), os.path.join(folder, "g"), directed=True, progress=False)
            with self.assertRaisesRegex(hopfeed.OptionError, "all have an edge"):
                list(hopfeed.LinkNeighborLoader(os.path.join(folder, "g"), [1], edges, neg_sampling="binary"))

    def test_batches_do_not_depend_on_threads_placement_or_where_an_epoch_begins(self):
        def content(b):
            return [b[k].tobytes() for k in b if k != "info"]

        for negatives in ("binary", "triplet"):
            options = {"neg_sampling": negatives, "seed": 5}
            want = [content(b) for b in self.open(threads=1, **options)]
            for more in ({"threads": 2}, {"placement": "storage"}, {"mapped": True}):
                self.assertEqual([content(b) for b in self.open(**options, **more)], want)
            state = stores.state_after(self.open(**options), 2)
            loader = self.open(**options)
            loader.load_state_dict(state)
            self.assertEqual([content(b) for b in loader], want[3:])
            with self.assertRaisesRegex(hopfeed.OptionError, "links"):
                self.open(self.edges[:, ::5], **options).load_state_dict(state)

    def test_ranks_share_each_batch(self):
        batches = [list(self.open(rank=rank, world_size=3, shuffle=False, neg_sampling="binary", batch_size=100)) for rank in range(3)]
        numbers = [np.concatenate([b.input_id for b in shares]) for shares in zip(*batches)]
        self.assertEqual(np.concatenate(numbers).tolist(), list(range(self.edges[:, ::7].shape[1])))

    def test_what_has_no_meaning_is_refused(self):
        for options in (
            {"links": [[1, 2, 3]]},
            {"links": [[0], [stores.NODES]]},
            {"links": [[0.5], [1]]},
            {"edge_label": [1]},
            {"neg_sampling": "hard"},
            {"neg_sampling": "binary", "neg_sampling_ratio": 0},
            {"neg_sampling": "triplet", "neg_sampling_ratio": 1.5},
            {"neg_sampling": "triplet", "edge_label": np.ones(self.edges[:, ::7].shape[1])},
            {"subgraph_type": None},
        ):
            with self.subTest(**options), self.assertRaises(hopfeed.OptionError):
                self.open(**options)


class Times(WithEdges):
    """No neighbour after the seed's time."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(8)
        cls.node_time = rng.integers(-50, 50, stores.NODES)
        given = rng.integers(-50, 50, cls.arrays["edge_index"].shape[1])
        arrays = os.path.join(cls.folder.name, "arrays")
        np.save(os.path.join(arrays, "node_time.npy"), cls.node_time)
        np.save(os.path.join(arrays, "edge_time.npy"), given)
        np.save(os.path.join(arrays, "edge_float.npy"), given.astype(np.float32))
        cls.graph = os.path.join(cls.folder.name, "timed")
        hopfeed.import_npy(arrays, cls.graph, progress=False)
        cls.dataset = hopfeed.Dataset(cls.graph)
        cls.edge_time = np.asarray(cls.dataset.column("edge_time"))

    def allowed(self, attr, edges, limit):
        """Which of the edges are not later than the limit."""
        return (self.edge_time[edges] if attr == "edge_time" else self.node_time[self.edges[0][edges]]) <= limit

    def check_trees(self, b, attr, limits, fanouts):
        """The graphs of all in-neighbours, as numpy finds them; of a pair, those of both ends."""
        np.testing.assert_array_equal(self.arrays["node_feat"][b.n_id], b.x)
        np.testing.assert_array_equal(b.n_id[b.edge_index], self.edges[:, b.e_id])
        np.testing.assert_array_equal(*b.batch[b.edge_index])
        want = {}
        for i, limit in enumerate(limits):
            hidden = set(np.flatnonzero(~self.allowed(attr, np.arange(self.edges.shape[1]), limit)).tolist())
            want.setdefault(int(b.batch[i]), []).extend(self.reached([b.n_id[i]], fanouts, hidden)[1])
        found = {k: [] for k in want}
        for k, e in zip(b.batch[b.edge_index[1]].tolist(), b.e_id.tolist()):
            found[k].append(e)
        self.assertEqual({k: sorted(v) for k, v in found.items()}, {k: sorted(v) for k, v in want.items()})

    def test_a_seed_reaches_all_that_is_not_later_and_nothing_else(self):
        nodes = [3, 3, 8, 100]
        for attr, times in (("edge_time", [-20, 30, 0, 99]), ("time", [10, -40, -99, 0]), ("time", None)):
            loader = hopfeed.NeighborLoader(self.graph, [-1, -1], nodes, shuffle=False, time_attr=attr, input_time=times)
            (b,) = loader
            self.check_trees(b, attr, self.node_time[nodes] if times is None else times, 2)

    def test_random_or_the_latest_edges_are_chosen(self):
        node = int(np.argmax(np.bincount(self.edges[1])))
        into = np.array(self.in_neighbors(node))
        fanout, epochs, limit = 2, 1500, int(np.median(self.edge_time[into]))
        before = into[self.edge_time[into] <= limit]
        self.assertGreater(len(before), fanout + 1)
        options = {"time_attr": "edge_time", "input_time": [limit]}
        (b,) = hopfeed.NeighborLoader(self.graph, [fanout], [node], temporal_strategy="last", **options)
        self.assertEqual(b.e_id.tolist(), before[np.lexsort((before, self.edge_time[before]))][-fanout:].tolist())
        loader = hopfeed.NeighborLoader(self.graph, [fanout], [node], **options)
        drawn = np.concatenate([b.e_id for _ in range(epochs) for b in loader])
        p = fanout / len(before)
        counts = np.array([(drawn == e).sum() for e in before])
        self.assertEqual(counts.sum(), len(drawn))
        self.assertLess(np.abs(counts - epochs * p).max(), LIMIT * np.sqrt(epochs * p * (1 - p)))

    def test_links_have_times_and_so_have_their_negative_pairs(self):
        links = self.edges[:, ::40]
        times = np.random.default_rng(2).integers(-30, 50, links.shape[1])
        for negatives in (None, "binary", "triplet"):
            for attr in ("edge_time", "time"):
                loader = hopfeed.LinkNeighborLoader(
                    self.graph, [-1, -1], links, batch_size=8, time_attr=attr, edge_label_time=times, neg_sampling=negatives, neg_sampling_ratio=2, exclude_targets=False
                )
                for b in loader:
                    if negatives == "triplet":
                        ends = [b.src_index, b.dst_pos_index, b.dst_neg_index.T.ravel()]
                    else:
                        ends = list(b.edge_label_index)
                    of = [np.tile(times[b.input_id], len(end) // b.batch_size) for end in ends]
                    self.check_trees(b, attr, np.concatenate(of), 2)
                    if negatives and attr == "time":
                        late = [self.node_time[b.n_id[end]] > limit for end, limit in zip(ends, of)]
                        self.assertFalse(late[-1][-b.batch_size * 2 :].any())
                        self.assertFalse(negatives == "binary" and late[0][b.batch_size :].any())

    def test_what_has_no_meaning_is_refused(self):
        for options in (
            {"time_attr": "edge_time"},
            {"time_attr": "age", "input_time": [1, 2]},
            {"time_attr": "edge_float", "input_time": [1, 2]},
            {"time_attr": "edge_time", "input_time": [1]},
            {"input_time": [1, 2]},
            {"time_attr": "time", "temporal_strategy": "first"},
        ):
            with self.subTest(**options), self.assertRaises(hopfeed.OptionError):
                hopfeed.NeighborLoader(self.graph, [3], [1, 2], **options)
        with self.assertRaises(hopfeed.OptionError):
            hopfeed.LinkNeighborLoader(self.graph, [3], [[0], [1]], time_attr="time")


if __name__ == "__main__":
    unittest.main()
