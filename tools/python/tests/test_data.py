"""What graphs and stores have, read without a loader, and loaders of chosen rows."""

import copy
import multiprocessing
import os
import pickle
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np

import hopfeed
import stores
from test_hopfeed import epoch


class Labels(stores.WithStore):
    options = {"label_hops": 1}

    def test_labels_of_training_nodes_follow_the_features_without_the_own_one(self):
        data, walk = hopfeed.Dataset(self.store), stores.walk(self.arrays)
        labels = np.zeros((stores.NODES, 4))
        labels[self.train, self.arrays["node_label"][self.train]] = 1
        np.fill_diagonal(walk, 0)
        for hop, expected in ((0, 0 * labels), (1, walk @ labels), (2, 0 * labels)):
            m = data.matrix(f"rw/hop-{hop}" if hop else "x/hop-0")
            np.testing.assert_allclose(m.rows[:], np.hstack([self.expected[:, hop], expected])[data.n_id], rtol=1e-5, atol=1e-6)
        loader = hopfeed.Loader(self.store, batch_size=100, shuffle=False)
        self.assertEqual({b.x.shape[1:] for b in loader}, {(3, stores.FEATURES + 4)})


class Data(stores.WithStore):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = hopfeed.Dataset(cls.store)
        cls.graph = hopfeed.Dataset(cls.graph)
        cls.stored = np.flatnonzero(cls.arrays["splits"] >= 0)  # all have labels: the store has every node

    def test_matrices_are_read_by_node_and_by_row(self):
        for hop, name in enumerate(("x/hop-0", "rw/hop-1", "rw/hop-2")):
            m = self.data.matrix(name)
            self.assertEqual((m.shape, m.dtype, len(m)), ((self.data.rows, stores.FEATURES), np.float32, self.data.rows))
            nodes = self.data.n_id
            for chosen in (nodes[:1], nodes[::-1], nodes[:0], nodes[[5, 5, 3]].reshape(1, 3), int(nodes[7]), np.uint32(nodes[7])):
                np.testing.assert_allclose(m[chosen], self.expected[chosen][..., hop, :], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(m.rows[3:17:2], self.expected[nodes[3:17:2]][:, hop], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(np.asarray(m), self.expected[nodes][:, hop], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(np.stack(list(m)), self.expected[nodes][:, hop], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(self.graph.x[[3, 1]], self.arrays["node_feat"][[3, 1]])
        np.testing.assert_array_equal(self.graph.x[self.arrays["splits"] == 1], self.arrays["node_feat"][self.arrays["splits"] == 1])
        np.testing.assert_array_equal(self.graph.x[-3:], self.arrays["node_feat"][-3:])
        for wrong, kind in ((stores.NODES, IndexError), (np.ones(3, bool), IndexError), ([0.5], hopfeed.OptionError)):
            with self.assertRaises(kind):
                self.graph.x[wrong]
        with self.assertRaisesRegex(hopfeed.OptionError, "rw/hop-1, rw/hop-2"):
            self.data.matrix("sym/hop-1")

    def test_rows_are_indexed_and_iterated_over(self):
        self.assertEqual((len(self.graph), len(self.data)), (stores.NODES, self.data.rows))
        np.testing.assert_array_equal(self.graph.y, np.where(self.arrays["splits"] == -1, self.graph.y, self.arrays["node_label"]))
        np.testing.assert_array_equal(self.graph.splits[:, 0], self.arrays["splits"])
        for row, b in zip(range(3), self.data):
            np.testing.assert_allclose(b.x, self.expected[b.n_id], rtol=1e-5, atol=1e-6)
            self.assertEqual((b.x.shape, b.y, b.n_id), ((3, 5), self.arrays["node_label"][b.n_id], self.data.n_id[row]))
        b = self.data[[4, 2]]
        np.testing.assert_allclose(b.x, self.expected[b.n_id], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(self.graph[10:12].x, self.arrays["node_feat"][10:12])
        with self.assertRaises(IndexError):
            self.data[len(self.data)]

    def test_threads_read_the_table_of_rows_at_once(self):
        data, ask, both = hopfeed.Dataset(self.store), hopfeed.Dataset._ask, threading.Barrier(2)

        def slowly(self, verb, **options):
            table = ask(self, verb, **options)
            time.sleep(0.1)
            return table

        def read(_):
            both.wait()
            return data._column("labels", "<i4")

        with mock.patch.object(hopfeed.Dataset, "_ask", slowly), ThreadPoolExecutor(2) as threads:
            for found in threads.map(read, range(2)):
                np.testing.assert_array_equal(found, self.arrays["node_label"][data.n_id])

    def test_another_process_opens_the_path_again(self):
        self.data.matrix("rw/hop-2"), self.data.y  # what it has mapped and read does not travel
        text = pickle.dumps(self.data)
        self.assertLess(len(text), 1000)
        again = pickle.loads(text)
        np.testing.assert_array_equal(again.matrix("rw/hop-2").rows[:], self.data.matrix("rw/hop-2").rows[:])
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            self.assertEqual(pool.apply(len, (self.data,)), len(self.data))
        data = hopfeed.Loader.from_arrays(np.ones((5, 2), np.float32)).dataset
        self.assertIs(copy.deepcopy(data), data)
        with self.assertRaisesRegex(hopfeed.ForkError, "temporary folder"):
            pickle.dumps(data)

    def test_types_and_kinds_of_labels(self):
        rng = np.random.default_rng(5)
        several = rng.integers(0, 2, (stores.NODES, 3)).astype(np.int8)
        values = rng.standard_normal((stores.NODES, 2), dtype=np.float32)
        for dtype, labels in (("float16", several), ("bfloat16", values)):
            with tempfile.TemporaryDirectory() as folder:
                arrays, store = stores.make(folder, dtype, labels)
                data = hopfeed.Dataset(store)
                np.testing.assert_allclose(data.matrix("rw/hop-2")[data.n_id], stores.propagated(arrays)[data.n_id, 2], rtol=1e-2, atol=1e-2)
                np.testing.assert_array_equal(data.y, labels[data.n_id])

    def test_a_loader_takes_chosen_nodes(self):
        chosen = self.data.n_id[::3]
        mask = np.zeros(stores.NODES, bool)
        mask[chosen] = True
        for placement in ("host", "device"):
            for shuffle in (False, "rr", "chunk"):
                for nodes in (chosen, mask):
                    loader = hopfeed.Loader(self.data, 50, shuffle, placement, input_nodes=nodes)
                    found, x, y = epoch(loader)
                    self.assertEqual((loader.rows, sorted(found)), (len(chosen), sorted(chosen)))
                    np.testing.assert_allclose(x, self.expected[found], rtol=1e-5, atol=1e-6)
                    np.testing.assert_array_equal(y, self.arrays["node_label"][found])
                    if shuffle is False:
                        np.testing.assert_array_equal(found, chosen if nodes is chosen else np.sort(chosen))
        found = epoch(hopfeed.Loader(self.data, 50, False, split="all"))[0]
        np.testing.assert_array_equal(found, self.data.n_id)
        shares = [epoch(hopfeed.Loader(self.data, 50, "rr", "host", input_nodes=chosen, rank=r, world_size=2))[0] for r in range(2)]
        self.assertEqual(sorted(np.concatenate(shares)), sorted(chosen))
        with self.assertRaisesRegex(hopfeed.OptionError, "storage"):
            hopfeed.Loader(self.data, 50, placement="storage", input_nodes=chosen)
        with self.assertRaisesRegex(hopfeed.OptionError, "input_nodes"):
            hopfeed.Loader(self.data, 50, input_nodes=[stores.NODES])
        state = hopfeed.Loader(self.data, 50, input_nodes=chosen).state_dict()
        with self.assertRaisesRegex(hopfeed.OptionError, "region"):
            hopfeed.Loader(self.data, 50, input_nodes=chosen[1:]).load_state_dict(state)

    def test_what_is_open_opens_loaders(self):
        store, graph = hopfeed.open(self.store), hopfeed.open(self.data.path.replace("store", "graph"))
        found, x, _ = epoch(store.loader(split="val", batch_size=50, shuffle=False))
        self.assertEqual(found.tolist(), np.flatnonzero(self.arrays["splits"] == 1).tolist())
        np.testing.assert_allclose(x, self.expected[found], rtol=1e-5, atol=1e-6)
        seeds = [stores.seeds(b) for b in graph.loader(split="val", num_neighbors=[2], batch_size=50)]
        self.assertEqual(sorted(np.concatenate(seeds)), found.tolist())
        with self.assertRaisesRegex(TypeError, "bach_size"):
            graph.loader(bach_size=3)

    def test_a_graph_or_store_that_was_replaced_is_opened_again(self):
        with tempfile.TemporaryDirectory() as folder:
            _, store = stores.make(folder)
            arrays, graph = os.path.join(folder, "arrays"), os.path.join(folder, "graph")
            np.save(os.path.join(arrays, "edge_time.npy"), np.arange(6 * stores.NODES))
            hopfeed.import_npy(arrays, graph, force=True, progress=False)
            old = [hopfeed.Dataset(graph), hopfeed.Dataset(store)]
            hopfeed.propagate(graph, store, hops=2, operator="rw", chunk_rows=stores.CHUNK_ROWS, force=True, progress=False)
            grown = hopfeed.Dataset(store)
            hopfeed.propagate(graph, store, hops=3, operator="rw", progress=False)
            self.assertEqual(len(grown.loader(batch_size=50).matrices), 3)  # those that it knows
            np.save(os.path.join(arrays, "edge_time.npy"), -np.arange(6 * stores.NODES))
            hopfeed.import_npy(arrays, graph, force=True, progress=False)
            for use in (
                lambda: old[0].loader(num_neighbors=[2], subgraph_type="directional", columns=["edge_time"]),
                lambda: hopfeed.LinkNeighborLoader(old[0], [2], [[0], [1]]),
                lambda: old[0].x,
                lambda: old[0].y,
                lambda: old[0].to_arrow(),
                lambda: old[1].loader(),
                lambda: hopfeed.PairLoader(old[1], [[0], [1]]),
                lambda: old[1].matrix("rw/hop-1"),
            ):
                with self.assertRaisesRegex(hopfeed.Error, "was replaced after .*open it again by hopfeed.open"):
                    use()

    def test_folds_train_on_all_but_one_part(self):
        folds = self.data.folds(5, seed=1)
        np.testing.assert_array_equal(np.sort(np.concatenate([val for _, val in folds])), np.sort(self.data.n_id[self.data.y >= 0]))
        for train, val in folds:
            self.assertFalse(set(train) & set(val))
            found = [epoch(hopfeed.Loader(self.data, 50, input_nodes=nodes))[0] for nodes in (train, val)]
            self.assertEqual([sorted(f) for f in found], [sorted(train), sorted(val)])

    def test_another_split_of_the_graph_is_loaded(self):
        rng = np.random.default_rng(2)
        splits = rng.integers(0, 3, (2, stores.NODES)).astype(np.int8)
        folder = os.path.join(self.folder.name, "two")
        arrays = stores.write_arrays(folder)
        np.save(os.path.join(folder, "splits.npy"), splits)
        graph = hopfeed.import_npy(folder, folder + "-graph", progress=False)
        hopfeed.propagate(graph, folder + "-store", hops=1, progress=False)
        for index in range(2):
            for part, name in enumerate(("train", "val", "test")):
                found, x, y = epoch(hopfeed.Loader(folder + "-store", 50, split=name, split_index=index))
                self.assertEqual(sorted(found), np.flatnonzero(splits[index] == part).tolist())
                np.testing.assert_array_equal(x[:, 0], arrays["node_feat"][found])
        with self.assertRaisesRegex(hopfeed.OptionError, "split 2"):
            hopfeed.Loader(folder + "-store", 50, split_index=2)


try:
    import pyarrow
except ImportError:
    pyarrow = None


@unittest.skipIf(pyarrow is None, "pyarrow is not installed")
class Tables(stores.WithStore):
    def test_tables_are_mapped_and_go_to_other_packages(self):
        data = hopfeed.Dataset(self.store)
        before = pyarrow.total_allocated_bytes()
        table = data.to_arrow()
        self.assertLess(pyarrow.total_allocated_bytes() - before, 4096)  # mapped
        self.assertEqual(table["node"].to_pylist(), data.n_id.tolist())
        np.testing.assert_array_equal(np.stack(table["rw/hop-2"].to_numpy()), np.asarray(data.matrix("rw/hop-2")))
        self.assertEqual(hopfeed.Dataset(os.path.join(self.folder.name, "graph")).to_arrow().num_rows, stores.NODES)
        for name, make in (("polars", lambda m: m.DataFrame(data)), ("pandas", lambda m: m.DataFrame.from_arrow(data))):
            try:
                frame = make(__import__(name))
            except ImportError:
                continue
            self.assertEqual(list(frame["label"]), data.y.tolist())


if __name__ == "__main__":
    unittest.main()
