"""Batches that are kept, with numpy alone: each owns its memory until its last array is gone."""

import collections
import gc
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import hopfeed
import stores

PLACEMENTS = [(p, s) for p in ("device", "host", "storage") for s in ("none", "chunk", "rr") if (p, s) != ("storage", "rr")]
SAMPLED = [(p, s) for p in ("host", "storage") for s in ("none", "rr")]


def keep_all(batches):
    return list(batches)


def keep_by_comprehension(batches):
    return [{name: value for name, value in b.items()} for b in batches]


def look_ahead(batches):
    """What prefetchers do: each batch is used after the next one was taken."""
    waiting, out = collections.deque(), []
    for b in batches:
        waiting.append(b)
        if len(waiting) > 2:
            out.append(copied(waiting.popleft()))
    return out + [copied(b) for b in waiting]


def copied(batch):
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in batch.items()}


def by_another_thread(batches):
    """Batches pass through a queue that is longer than there are buffers at first."""
    passed, out = queue.Queue(maxsize=6), []

    def feed():
        for b in batches:
            passed.put(b)
        passed.put(None)

    thread = threading.Thread(target=feed)
    thread.start()
    while (b := passed.get()) is not None:
        out.append(copied(b))
    thread.join()
    return out


KEEPERS = (keep_all, keep_by_comprehension, look_ahead, by_another_thread)


class Ownership(stores.WithStore):
    def check(self, batches, matrices=None):
        """All train nodes come once, with their features and labels."""
        for b in batches:
            x = b["x"] if matrices is None else np.stack([b[m] for m in matrices], axis=1)
            np.testing.assert_allclose(x, self.expected[stores.seeds(b)], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(b["y"], self.arrays["node_label"][stores.seeds(b)])
        np.testing.assert_array_equal(np.sort(np.concatenate([stores.seeds(b) for b in batches])), self.train)

    def check_sampled(self, batches):
        for b in batches:
            np.testing.assert_array_equal(b["x"], self.arrays["node_feat"][b["n_id"]])
            np.testing.assert_array_equal(b["n_id"][: len(stores.seeds(b))], stores.seeds(b))
            np.testing.assert_array_equal(b["y"], self.arrays["node_label"][stores.seeds(b)])
        np.testing.assert_array_equal(np.sort(np.concatenate([stores.seeds(b) for b in batches])), self.train)

    def test_batches_of_a_store_that_are_kept_stay(self):
        for placement, shuffle in PLACEMENTS:
            for stacked in (True, False):
                for keep in KEEPERS:
                    with self.subTest(placement=placement, shuffle=shuffle, stacked=stacked, keep=keep.__name__):
                        loader = hopfeed.Loader(self.store, 30, shuffle, placement, seed=3, stacked=stacked)
                        epochs = [keep(loader) for _ in range(2)]
                        for kept in epochs:
                            self.check(kept, None if stacked else loader.matrices)

    def test_batches_of_a_graph_that_are_kept_stay(self):
        for placement, shuffle in SAMPLED:
            for cache in (None, "lru:60rows"):
                for keep in KEEPERS:
                    with self.subTest(placement=placement, shuffle=shuffle, cache=cache, keep=keep.__name__):
                        options = {"placement": placement, "shuffle": shuffle, "cache": cache, "seed": 3}
                        kept = keep(hopfeed.NeighborLoader(self.graph, [4, 3], batch_size=30, **options))
                        self.check_sampled(kept)
                        for b, want in zip(kept, hopfeed.NeighborLoader(self.graph, [4, 3], batch_size=30, reuse=True, **options)):
                            for block, other in zip(b["blocks"], want["blocks"]):
                                np.testing.assert_array_equal(block.indptr, other.indptr)
                                if keep in (keep_all, keep_by_comprehension):  # copied copies no blocks
                                    np.testing.assert_array_equal(block.indices, other.indices)
                                    np.testing.assert_array_equal(block.weights, other.weights)

    def test_a_view_keeps_the_memory_and_the_last_gives_it_back(self):
        for loader, more in (
            (hopfeed.Loader(self.store, 30, "rr", "host"), lambda b: b["y"]),
            (hopfeed.NeighborLoader(self.graph, [4, 3], batch_size=30), lambda b: b["blocks"][1].indices),
        ):
            place = lambda b: b["x"].__array_interface__["data"][0]  # noqa: E731
            b = next(iter(loader))
            first, view, other, want = place(b), b["x"][3:7, ...].T, more(b)[2:], b["x"][3:7, ...].copy()
            del b
            self.assertNotIn(first, [place(b) for _ in range(3) for b in loader])
            np.testing.assert_array_equal(view.T, want)
            del view
            self.assertNotIn(first, [place(b) for _ in range(3) for b in loader])
            del other
            self.assertIn(first, [place(b) for _ in range(3) for b in loader])

    def test_what_is_written_to_a_batch_is_in_no_other(self):
        for placement, shuffle in PLACEMENTS:
            for batch_size in (16, 30, 1000):  # one run of rows, and several
                loader = hopfeed.Loader(self.store, batch_size, shuffle, placement)
                for _ in range(2):
                    batches = []
                    for b in loader:
                        batches.append(copied(b))
                        b["x"] *= 2
                        b["y"][:] = 9
                        stores.seeds(b)[:] = 0
                    self.check(batches)
        for placement, shuffle in SAMPLED:
            loader = hopfeed.NeighborLoader(self.graph, [4, 3], batch_size=30, placement=placement, shuffle=shuffle, cache="degree:300rows")
            for _ in range(2):
                batches = []
                for b in loader:
                    batches.append(copied(b))
                    b["x"] *= 2
                    b["y"][:] = 9
                    for block in b["blocks"]:
                        block.weights[:] = 0
                self.check_sampled(batches)

    def test_more_than_memory_allows_is_an_error_that_says_who_holds_it(self):
        for placement in ("device", "host", "storage"):
            loader = hopfeed.Loader(self.store, 1, "chunk", placement, memory="49MiB", threads=2)
            [most, each] = map(int, re.search(r"up to (\d+) batches, of (\d+) KiB", loader.reasons[-1]).groups())
            self.assertTrue(10 < most < len(loader) and most * each < 1024, loader.reasons[-1])
            self.keep_too_many(loader, most)
        loader = hopfeed.NeighborLoader(self.graph, [4, 3], batch_size=1, memory="49500KiB", threads=2)
        self.assertRegex(loader.reasons[-1], "batches that are kept take up to .* KiB in all")
        self.keep_too_many(loader, None)

    def keep_too_many(self, loader, most):
        kept, batches = [], iter(loader)
        with self.assertRaisesRegex(hopfeed.OptionError, "are held, the oldest by batch 0, .* copy what is kept of them .*iB, allows no more"):
            for b in batches:
                kept.append(b)
        if most is not None:
            self.assertEqual(len(kept), most)
        for b in kept:
            np.testing.assert_allclose(b["x"].reshape(len(b["x"]), -1, stores.FEATURES)[:, 0], self.arrays["node_feat"][b["n_id"]])
        nodes = np.concatenate([stores.seeds(b) for b in kept])
        self.assertEqual(len(set(nodes.tolist())), len(kept))
        del b
        kept.clear()
        self.assertEqual(len(list(map(lambda b: b.index, loader))), len(loader))  # the next epoch

    def test_batches_that_are_no_longer_kept_leave_room_for_larger_ones(self):
        random, nodes, seeds = np.random.default_rng(0), 4000, 600
        lists = [random.choice(nodes, 1500 if v % 20 == 0 else 2, replace=False) for v in range(seeds)]
        arrays = {
            "node_feat": random.normal(size=(nodes, 64)).astype(np.float32),
            "edge_index": np.stack([np.concatenate(lists), np.repeat(np.arange(seeds), [len(n) for n in lists])]),
            "splits": np.where(np.arange(nodes) < seeds, 0, -1).astype(np.int8),
        }
        with tempfile.TemporaryDirectory() as parent:
            folder = os.path.join(parent, "arrays")
            os.mkdir(folder)
            for name, array in arrays.items():
                np.save(os.path.join(folder, name + ".npy"), array)
            graph = hopfeed.import_npy(folder, os.path.join(parent, "graph"), progress=False)
            loader = hopfeed.NeighborLoader(graph, [-1], batch_size=10, memory="56MiB", threads=2)
            for _ in range(2):
                kept = []
                with self.assertRaisesRegex(hopfeed.OptionError, "are held, the oldest by batch 0, .* allows no more"):
                    for b in loader:
                        kept.append(b)
                del b
                for b in kept:
                    np.testing.assert_array_equal(b["x"], arrays["node_feat"][b["n_id"]])
                self.assertGreater(len(kept), 3)
                del b
                kept.clear()
                seen = []
                for b in loader:
                    np.testing.assert_array_equal(b["x"], arrays["node_feat"][b["n_id"]])
                    seen.append(b.index)
                self.assertEqual(seen, list(range(len(loader))))

    def test_an_epoch_goes_on_when_batches_are_dropped(self):
        loader = hopfeed.Loader(self.store, 1, memory="49MiB")
        kept, seen = [], []
        for b in loader:
            seen.append(b.index)
            kept.append(b)
            if len(kept) == 50:
                del kept[:40]
        self.assertEqual(seen, list(range(len(loader))))

    def test_batches_in_cycles_are_collected_before_it_is_an_error(self):
        gc.disable()
        try:
            loader = hopfeed.Loader(self.store, 1, memory="49MiB")
            for b in loader:
                b["self"] = b
        finally:
            gc.enable()

    def test_a_process_ends_and_forks_with_batches_that_are_kept(self):
        program = (
            "import hopfeed, os\n"
            f"loader = hopfeed.Loader({self.store!r}, 30)\n"
            "kept = list(loader)\n"
            "b = kept.pop()\n"
            "b['self'] = b\n"
            "batches = iter(loader)\n"
            "last = next(batches)['x'][3:]\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    kept.clear()\n"
            "    del b, last, batches, loader\n"
            "else:\n"
            "    assert os.waitpid(child, 0)[1] == 0\n"
        )
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
