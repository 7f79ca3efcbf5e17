"""hopfeed.NeighborLoader with numpy alone, as it is installed."""

import gc
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import hopfeed
import stores

SAMPLERS = (
    "neighbor labor labor-1 ladies ladies-flat ladies-debias ladies-flat-debias fastgcn fastgcn-flat fastgcn-debias "
    "fastgcn-flat-debias saint-node saint-edge saint-rw locality full"
).split()


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def content(batch):
    """A batch as bytes, for comparisons."""
    arrays = [batch[name] for name in ("n_id", "x", "y")]
    for block in batch["blocks"]:
        arrays += [block.indptr, block.indices, block.weights]
    return b"".join(a.tobytes() for a in arrays)


class WithGraph(stores.WithStore):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        n = stores.NODES
        cls.there = np.zeros((n, n))  # [destination, source]
        cls.there[cls.arrays["edge_index"][1], cls.arrays["edge_index"][0]] = 1  # parallel edges are one

    def open(self, num_neighbors=(15, 10, 5), batch_size=1024, sampler="neighbor", **options):
        if sampler == "locality":
            options.setdefault("cache", "degree:100rows")
        return hopfeed.NeighborLoader(self.graph, num_neighbors, batch_size=batch_size, sampler=sampler, **options)

    def check(self, batch, layers, values=None):
        """The invariants of a batch, whatever sampled it."""
        inputs, blocks = batch["n_id"], batch["blocks"]
        np.testing.assert_array_equal(batch["x"], self.arrays["node_feat"][inputs])
        np.testing.assert_array_equal(stores.seeds(batch), inputs[: batch.rows])
        np.testing.assert_array_equal(batch["y"], np.where(np.isin(stores.seeds(batch), self.train), self.arrays["node_label"][stores.seeds(batch)], -1))
        self.assertEqual(len(set(inputs.tolist())), len(inputs))
        self.assertEqual((len(blocks), blocks[-1].destinations), (layers, batch.rows))
        sources = len(inputs)
        for block in blocks:
            self.assertEqual((block.sources, block.indptr[0], block.indptr[-1]), (sources, 0, len(block.indices)))
            self.assertEqual((len(block.indptr), len(block.weights)), (block.destinations + 1, len(block.indices)))
            self.assertTrue((np.diff(block.indptr) >= 0).all() and block.indices.max(initial=-1) < sources)
            source, destination = block.edge_index()
            np.testing.assert_array_equal(source, block.indices)
            self.assertTrue(self.there[inputs[destination], inputs[source]].all(), "an edge that the graph does not have")
            sources = block.destinations


class Batches(WithGraph):
    def test_every_sampler_gives_blocks_of_the_graph_with_features_of_their_inputs(self):
        for sampler in SAMPLERS:
            for placement in ("host", "storage"):
                with self.subTest(sampler=sampler, placement=placement):
                    loader = self.open([4, 3], 50, sampler, placement=placement)
                    self.assertEqual(loader.placement, placement)
                    seen, batches = [], 0
                    for b in loader:
                        self.check(b, 2)
                        seen += stores.seeds(b).tolist()
                        batches += 1
                        self.assertEqual("row_weights" in b, sampler.startswith("saint"))
                        if sampler.startswith("saint"):
                            self.assertTrue((b["row_weights"] > 0).all() and np.isin(stores.seeds(b), self.train).all())
                            self.assertEqual((len(b["row_weights"]), b.global_rows), (b.rows, b.rows))
                        if sampler in ("neighbor", "locality"):
                            for block, fanout in zip(b["blocks"], (3, 4)):  # the first fanout is nearest the seeds
                                degrees = self.there[b["n_id"][: block.destinations]].sum(axis=1)
                                np.testing.assert_array_equal(np.diff(block.indptr), np.minimum(degrees, fanout))
                    self.assertEqual(batches, len(loader))
                    if not sampler.startswith("saint"):
                        self.assertEqual(sorted(seen), self.train.tolist())

    def test_layers_as_the_papers_have_them_say_which_nodes_their_seeds_are(self):
        for sampler in SAMPLERS + [f"{kind}-paper" for kind in SAMPLERS if kind.startswith(("ladies", "fastgcn"))] + ["saint-node-paper"]:
            apart = sampler.endswith("-paper") and not sampler.startswith("saint")
            seen = []
            for b in self.open([30, 20], 50, sampler):
                self.assertEqual(("seed_id" in b, {block.apart for block in b.blocks}), (apart, {apart}))
                np.testing.assert_array_equal(b.y, self.arrays["node_label"][b.seed_id])
                seen += b.seed_id.tolist()
                if not apart:
                    np.testing.assert_array_equal(b.seed_id, b.n_id[: b.batch_size])
                    continue
                for block in b.blocks:
                    with self.assertRaisesRegex(hopfeed.OptionError, "not the first of its sources"):
                        block.to_dgl()
                self.assertEqual(b.blocks[-1].destinations, len(b.seed_id))
            if not sampler.startswith("saint"):
                self.assertEqual(sorted(seen), self.train.tolist())
        for b in self.open([30], 50, "ladies-paper"):  # whose edges are of the graph
            source, destination = b.blocks[0].edge_index()
            self.assertTrue(self.there[b.seed_id[destination], b.n_id[source]].all())

    def test_all_neighbours_give_the_exact_product(self):
        n = stores.NODES
        features = self.arrays["node_feat"].astype(np.float64)
        degrees = self.there.sum(axis=1, keepdims=True)
        loops = self.there.copy()
        np.fill_diagonal(loops, 1)
        root = np.sqrt(loops.sum(axis=1))
        for aggregation, a in (
            ("mean", self.there / np.maximum(degrees, 1)),
            ("sym", loops / root[:, None] / root[None, :]),
            ("plain", loops),
        ):
            with self.subTest(aggregation=aggregation):
                expected = a @ (a @ features)
                seeds = 0
                for b in self.open([-1, -1], 64, "full", input_nodes="all", aggregation=aggregation, shuffle="none"):
                    h = b["x"].astype(np.float64)
                    for block in b["blocks"]:
                        m = np.zeros((block.destinations, block.sources))
                        source, destination = block.edge_index()
                        np.add.at(m, (destination, source), block.weights)
                        h = m @ h
                    np.testing.assert_array_equal(stores.seeds(b), np.arange(seeds, seeds + b.rows))
                    np.testing.assert_allclose(h, expected[stores.seeds(b)], rtol=1e-4, atol=1e-5)
                    seeds += b.rows
                self.assertEqual(seeds, n)

    def test_batches_are_the_same_by_any_threads_from_anywhere(self):
        def all_of(**options):
            loader = self.open([4, 3], 50, seed=3, **options)
            return [content(b) for _ in range(2) for b in loader]

        want = all_of()
        self.assertEqual(len(set(want)), len(want), "two batches are the same")
        for options in ({"threads": 1}, {"placement": "storage"}, {"placement": "storage", "cache": "lru:60rows"}, {"mapped": True}, {"buffers": 5}):
            with self.subTest(**options):
                self.assertEqual(all_of(**options), want)

    def test_ranks_share_the_seeds_of_each_batch(self):
        alone = [stores.seeds(b).copy() for b in self.open([4, 3], 50, seed=3)]
        for world in (2, 3):
            loaders = [self.open([4, 3], 50, rank=r, world_size=world, seed=3) for r in range(world)]
            for k, shares in enumerate(zip(*loaders)):
                np.testing.assert_array_equal(np.concatenate([stores.seeds(b) for b in shares]), alone[k])
                self.assertEqual({b.global_rows for b in shares}, {len(alone[k])})
                for b in shares:
                    self.check(b, 2)
            self.assertEqual(k + 1, len(alone))

    def test_ranks_without_seeds_get_empty_batches(self):
        batches = 0
        for b in self.open([4, 3], 2, rank=2, world_size=3):
            batches += 1
            self.assertEqual((b.rows, b.global_rows, b["x"].shape), (0, 2, (0, stores.FEATURES)))
            for block in b["blocks"]:
                self.assertEqual((block.indptr.tolist(), len(block.indices), block.edge_index().shape), ([0], 0, (2, 0)))
            self.assertEqual(len(b["blocks"]), 2)
        self.assertEqual(batches, len(self.train) // 2)

    def test_seeds_are_chosen_by_split_or_listed(self):
        for split, want in (
            ("valid", np.flatnonzero(self.arrays["splits"] == 1)),
            ("rest", np.flatnonzero(self.arrays["splits"] == -1)),
            ("all", np.arange(stores.NODES)),
            (np.array([600, 5, 17], np.int16), [600, 5, 17]),
            ([4], [4]),
            (self.arrays["splits"] == 2, np.flatnonzero(self.arrays["splits"] == 2)),
            ([], []),
        ):
            loader = self.open([2], 7, input_nodes=split, shuffle="none")
            self.assertEqual([int(v) for b in loader for v in stores.seeds(b)], list(want))
            self.assertEqual(loader.rows, len(want))

    def test_labels_of_several_kinds_and_features_of_others(self):
        rng = np.random.default_rng(5)
        several = rng.integers(0, 2, (stores.NODES, 3)).astype(np.int8)
        values = rng.standard_normal((stores.NODES, 2), dtype=np.float32)
        for dtype, labels in (("float16", several), ("bfloat16", values)):
            with tempfile.TemporaryDirectory() as folder:
                arrays = stores.write_arrays(os.path.join(folder, "arrays"), labels=labels)
                graph = os.path.join(folder, "graph")
                hopfeed.import_npy(os.path.join(folder, "arrays"), graph, dtype=dtype, progress=False)
                for b in hopfeed.NeighborLoader(graph, [3, 3], batch_size=50):
                    self.assertEqual((b["x"].dtype, b["y"].dtype), (np.float32, labels.dtype))
                    np.testing.assert_allclose(b["x"], arrays["node_feat"][b["n_id"]], rtol=1e-2, atol=1e-2)
                    np.testing.assert_array_equal(b["y"], labels[stores.seeds(b)])

    def test_a_graph_of_one_node_without_edges_or_labels(self):
        with tempfile.TemporaryDirectory() as folder:
            arrays, graph = os.path.join(folder, "arrays"), os.path.join(folder, "graph")
            os.mkdir(arrays)
            np.save(os.path.join(arrays, "edge_index.npy"), np.zeros((2, 0), np.int64))
            np.save(os.path.join(arrays, "node_feat.npy"), np.array([[3.5, 1]], np.float32))
            hopfeed.import_npy(arrays, graph, progress=False)
            for b in hopfeed.NeighborLoader(graph, [3, 3], input_nodes="all"):
                self.assertEqual((b["x"].tolist(), b["y"].tolist(), b["n_id"].tolist()), ([[3.5, 1]], [-1], [0]))
                self.assertEqual([(k.indptr.tolist(), len(k.indices)) for k in b["blocks"]], [([0, 0], 0)] * 2)
            with self.assertRaisesRegex(hopfeed.OptionError, "no train nodes"):
                hopfeed.NeighborLoader(graph)


class Memory(WithGraph):
    def test_arrays_are_the_loaders_memory_and_of_the_batch_alone(self):
        loader = self.open([4, 3], 50, reuse=True)
        for _ in range(3):
            for b in loader:
                for array in (b["x"], b["y"], b["blocks"][0].indices, b["blocks"][1].weights):
                    self.assertFalse(array.flags.owndata)
                    with self.assertRaises(ValueError):
                        array[0] = 1
                b["x"].shape = (-1,)  # which no later batch sees
                b["blocks"].clear()

    def test_a_batch_that_is_held_stays_as_it_is(self):
        loader = self.open([4, 3], 50, buffers=3, reuse=True)
        held = []
        for b in loader:
            if b.index in (0, 2):
                held.append((b.hold(), content(b)))
        for _ in loader:
            pass
        for b, before in held:
            self.assertEqual(content(b), before)
            b.release()
            b.release()
        held = [b.hold() for b, _ in zip(loader, range(2))]
        with self.assertRaisesRegex(hopfeed.OptionError, "all 3 batch buffers are held"):
            for b in loader:
                held.append(b.hold())

    def test_arrays_outlive_the_loader(self):
        loader = self.open([4, 3], 50)
        for b in loader:
            break
        before, blocks, x = content(b), b["blocks"], b["x"]
        inputs = b["n_id"].copy()
        loader.close()
        self.assertEqual(content(b), before)
        del loader, b
        gc.collect()
        np.testing.assert_array_equal(x, self.arrays["node_feat"][inputs])
        self.assertEqual(blocks[0].indptr[-1], len(blocks[0].indices))

    def test_batches_that_are_over_can_be_read(self):
        # They show other rows by then, but their memory stays: here batches grow.
        loader = self.open([-1, -1], 4, shuffle="none", reuse=True)
        seen, largest = 0, 0
        for b in list(loader):
            seen, largest = seen + 1, max(largest, b["x"].size)
            self.assertEqual(b["x"].sum(), b["x"].sum())
        self.assertEqual(seen, len(loader))
        self.assertGreater(largest, 0)

    def test_a_thousand_epochs_take_no_more_memory(self):
        loader = self.open([4, 3], 50, placement="storage", cache="lru:100rows")

        def after_epochs():
            for _ in range(500):
                for b in loader:
                    b["blocks"][0].indices
            return resident()

        after_epochs()
        before = after_epochs()
        self.assertLess(after_epochs() - before, 4 << 20)
        self.assertEqual(loader.state_dict()["epoch"], 1500)

    def test_loaders_that_are_gone_take_no_memory_and_no_files(self):
        def after_loaders():
            for _ in range(30):
                next(iter(self.open([4, 3], 50, placement="storage", cache="presampled:50rows")))
            gc.collect()
            return resident(), len(os.listdir("/proc/self/fd"))

        after_loaders(), after_loaders()
        memory, files = after_loaders()
        later, files_later = after_loaders()
        self.assertLess(later - memory, 24 << 20)  # 30 that stay open take 270 MiB
        self.assertEqual(files_later, files)


class State(WithGraph):
    def test_an_epoch_goes_on_where_it_was_saved(self):
        for sampler, options in (("neighbor", {}), ("locality", {"cache": "gns:90rows", "bias": 4}), ("saint-edge", {})):
            with self.subTest(sampler):
                whole = self.open([4, 3], 50, sampler, seed=9, **options)
                want = [content(b) for _ in range(2) for b in whole]
                for stop in range(1, len(want)):
                    first = self.open([4, 3], 50, sampler, seed=9, **options)
                    got = []
                    while len(got) < stop:
                        for b in first:
                            got.append(content(b))
                            if len(got) == stop:
                                break
                    second = self.open([4, 3], 50, sampler, seed=9, placement="storage", **options)
                    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
                    while len(got) < len(want):
                        got += [content(b) for b in second]
                    self.assertEqual(got, want)

    def test_other_ranks_go_on_with_the_same_seeds(self):
        alone = self.open([4, 3], 50, seed=9)
        want = [stores.seeds(b).tolist() for b in alone]
        first = self.open([4, 3], 50, seed=9)
        for _, _ in zip(range(3), first):
            state = first.state_dict()
        later = [self.open([4, 3], 50, seed=9, rank=r, world_size=2) for r in range(2)]
        for loader in later:
            loader.load_state_dict(state)
        got = [sum((stores.seeds(b).tolist() for b in shares), []) for shares in zip(*later)]
        self.assertEqual(got, want[3:])

    def test_a_state_of_other_batches_is_refused(self):
        same = {"num_neighbors": [4, 3], "batch_size": 50, "seed": 1}
        state = self.open(**same).state_dict()
        for change in (
            {"seed": 2}, {"batch_size": 51}, {"input_nodes": "valid"}, {"input_nodes": self.train}, {"shuffle": "none"}, {"num_neighbors": [4, 4]},
            {"sampler": "labor"}, {"replace": True}, {"aggregation": "sym"},
        ):
            with self.subTest(**change), self.assertRaisesRegex(hopfeed.OptionError, "the state is of a loader with"):
                self.open(**{**same, **change}).load_state_dict(state)
        with self.assertRaisesRegex(hopfeed.OptionError, "the state is of a loader with"):
            hopfeed.Loader(self.store, 50, "rr", seed=1).load_state_dict(state)


class Failures(WithGraph):
    def test_options(self):
        for options, says in (
            ({"sampler": "walk"}, "walk"),
            ({"num_neighbors": []}, "num_neighbors"),
            ({"num_neighbors": [3, 0]}, "num_neighbors"),
            ({"batch_size": 0}, "batch_size 0"),
            ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
            ({"rank": 0, "world_size": 2, "sampler": "saint-node"}, "2 ranks cannot share"),
            ({"sampler": "locality", "cache": None}, "needs a cache"),
            ({"cache": "magic:5rows"}, "magic"),
            ({"placement": "device"}, "device"),
            ({"shuffle": "chunk"}, "chunk"),
            ({"input_nodes": "night"}, "night"),
            ({"split_index": 1}, "split 1"),
            ({"split_index": -1}, "split_index -1"),
            ({"input_nodes": [3, stores.NODES]}, f"has {stores.NODES} nodes"),
            ({"input_nodes": [3, 5, 3]}, "twice"),
            ({"input_nodes": [-1]}, "-1"),
            ({"input_nodes": [0.5]}, "float64"),
            ({"input_nodes": [[1]]}, "numbers of nodes"),
            ({"input_nodes": [True, False]}, "a bool for each of 700 nodes"),
            ({"aggregation": "max"}, "max"),
            ({"by_weight": True}, "no weights"),
            ({"bias": 2}, "locality"),
            ({"bias": float("nan")}, "bias: want finite"),
            ({"seed": -1}, "seed -1: want"),
            ({"seed": 2**64}, "seed: number 18446744073709551616 is not"),
            ({"memory": "much"}, "memory"),
            ({"threads": -1}, "threads -1"),
            ({"buffers": -1}, "buffers"),
        ):
            with self.subTest(**options), self.assertRaisesRegex(hopfeed.OptionError, says):
                self.open(**options)
        with self.assertRaisesRegex(hopfeed.OptionError, "hopfeed.Loader reads it"):
            hopfeed.NeighborLoader(self.store)
        with self.assertRaises(FileNotFoundError):
            hopfeed.NeighborLoader("nowhere")

    def test_what_does_not_fit(self):
        with self.assertRaisesRegex(hopfeed.DoesNotFit, "sampling 700 nodes"):
            self.open(memory="1MiB")

    def test_damage_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            stores.make(folder)
            graph = os.path.join(folder, "graph")
            loader = hopfeed.NeighborLoader(graph, [4, 3], batch_size=50, placement="storage")
            [part] = pathlib.Path(graph, "features").glob("x/hop-0/part-*.arrow")
            row = next(iter(loader))["x"][7].tobytes()
            damaged = bytearray(part.read_bytes())
            damaged[damaged.index(row)] ^= 1
            part.write_bytes(damaged)
            with self.assertRaisesRegex(hopfeed.CorruptError, "hop-0"):
                for _ in loader:
                    pass
            with self.assertRaises(hopfeed.CorruptError):
                hopfeed.NeighborLoader(graph, [4, 3], batch_size=50)

    def test_a_closed_loader(self):
        with self.open([4, 3], 50) as loader:
            iterator = iter(loader)
            next(iterator)
        for use in (lambda: next(iterator), lambda: iter(loader), loader.stats):
            with self.assertRaisesRegex(hopfeed.Error, "closed"):
                use()

    def test_integers_of_numpy_are_integers(self):
        loader = self.open(np.array([4, 3]), np.int64(50), seed=np.uint8(4), rank=np.int64(0), world_size=np.int64(1), split_index=np.int32(0))
        want = self.open([4, 3], 50, seed=4)
        self.assertEqual([content(b) for b in loader], [content(b) for b in want])
        self.assertEqual(json.dumps(loader.state_dict()), json.dumps(want.state_dict()))

    def test_stats_count_what_was_sampled(self):
        loader = self.open([4, 3], 50, placement="storage", cache="lru:100rows")
        edges = inputs = 0
        for b in loader:
            edges += sum(len(block.indices) for block in b["blocks"])
            inputs += len(b["n_id"])
        stats = loader.stats()
        traffic = stats["traffic"]
        self.assertEqual((stats["batches"], stats["rows"], traffic["edges"], traffic["rows"]), (len(loader), len(self.train), edges, inputs))
        self.assertEqual(stats["cache"]["hits"], traffic["cached_rows"])
        self.assertEqual(traffic["cache_bytes"] + traffic["storage_bytes"], inputs * 4 * stores.FEATURES)


def in_fork(graph, loader, queue):
    messages = []
    for use in (lambda: next(iter(loader)), lambda: hopfeed.NeighborLoader(graph), loader.stats):
        try:
            use()
        except hopfeed.ForkError as e:
            messages.append(str(e))
    queue.put(messages)


class Processes(WithGraph):
    def test_a_forked_process_is_told_what_to_do(self):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=in_fork, args=(self.graph, self.open([4, 3], 50), queue))
        process.start()
        messages = queue.get(timeout=30)
        process.join(30)
        self.assertEqual((len(messages), process.exitcode), (3, 0))
        self.assertIn("spawn", messages[0])

    def test_a_loader_is_not_sent_to_another_process(self):
        with self.assertRaisesRegex(hopfeed.ForkError, "no worker processes"):
            pickle.dumps(self.open([4, 3], 50))

    def test_interrupt_ends_the_process_within_a_batch(self):
        program = (
            "import hopfeed, itertools\n"
            f"loader = hopfeed.NeighborLoader({self.graph!r}, [4, 3], batch_size=1, placement='storage')\n"
            "try:\n"
            "    for i in itertools.count():\n"
            "        for b in loader:\n"
            "            if i == 0 and b.index == 0: print('running', flush=True)\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted', len(list(loader)) == len(loader))\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "running\n")
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=30)
        self.assertEqual((out, process.returncode), ("interrupted True\n", 0))


if __name__ == "__main__":
    unittest.main()
