"""The package with numpy alone, as it is installed: python -m unittest discover tools/python/tests."""

import copy
import gc
import itertools
import json
import linecache
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
from hopfeed import _native
from hopfeed._batches import Handle


def epoch(loader):
    """Copies of nodes, features and labels of an epoch."""
    parts = [(b["n_id"].copy(), b["x"].copy(), b["y"].copy()) for b in loader]
    return tuple(np.concatenate(p) for p in zip(*parts))


class Batches(stores.WithStore):
    def test_every_row_comes_once_with_what_numpy_computes(self):
        for placement in ("device", "host", "storage"):
            for shuffle in ("none", "chunk", "rr"):
                if (placement, shuffle) == ("storage", "rr"):
                    continue
                with self.subTest(placement=placement, shuffle=shuffle):
                    loader = hopfeed.Loader(self.store, 50, shuffle, placement, seed=3)
                    nodes, x, labels = epoch(loader)
                    self.assertEqual(len(loader), -(-len(self.train) // 50))
                    np.testing.assert_array_equal(np.sort(nodes), self.train)
                    np.testing.assert_allclose(x, self.expected[nodes], rtol=1e-5, atol=1e-6)
                    np.testing.assert_array_equal(labels, self.arrays["node_label"][nodes])
                    again = epoch(loader)[0]
                    self.assertEqual(np.array_equal(nodes, again), shuffle == "none")

    def test_the_order_is_the_same_from_everywhere(self):
        orders = [epoch(hopfeed.Loader(self.store, 50, "chunk", p, seed=3))[0] for p in ("device", "host", "storage")]
        np.testing.assert_array_equal(orders[0], orders[1])
        np.testing.assert_array_equal(orders[0], orders[2])

    def test_ranks_share_each_batch_in_the_same_order(self):
        alone = list(map(lambda b: b["n_id"].copy(), hopfeed.Loader(self.store, 50, seed=3)))
        for world in (2, 3):
            loaders = [hopfeed.Loader(self.store, 50, rank=r, world_size=world, seed=3) for r in range(world)]
            for k, shares in enumerate(zip(*loaders)):
                np.testing.assert_array_equal(np.concatenate([b["n_id"] for b in shares]), alone[k])
                self.assertEqual({b.global_rows for b in shares}, {len(alone[k])})
            self.assertEqual(k + 1, len(alone))

    def test_hops_and_operators_are_chosen(self):
        for hops, index in ((1, [0, 1]), ([0, 2], [0, 2]), ([2], [2]), (0, [0])):
            with self.subTest(hops=hops):
                nodes, x, _ = epoch(hopfeed.Loader(self.store, 64, hops=hops, operators="rw"))
                np.testing.assert_allclose(x, self.expected[nodes][:, index], rtol=1e-5, atol=1e-6)

    def test_an_array_for_each_matrix(self):
        loader = hopfeed.Loader(self.store, 64, stacked=False)
        self.assertEqual(loader.matrices, ["x/hop-0", "rw/hop-1", "rw/hop-2"])
        for b in loader:
            for m, name in enumerate(loader.matrices):
                np.testing.assert_allclose(b[name], self.expected[b["n_id"]][:, m], rtol=1e-5, atol=1e-6)

    def test_other_regions(self):
        for split, part in (("valid", 1), ("val", 1), ("test", 2)):
            nodes = epoch(hopfeed.Loader(pathlib.Path(self.store), 64, False, split=split, memory=1 << 28))[0]
            np.testing.assert_array_equal(np.sort(nodes), np.flatnonzero(self.arrays["splits"] == part))

    def test_row_numbers_are_those_of_the_store(self):
        batches = hopfeed.Loader(self.store, 64, n_id=False, row_numbers=True)
        rows = np.concatenate([b["row_numbers"].copy() for b in batches])
        np.testing.assert_array_equal(np.sort(rows), np.arange(len(self.train)))
        self.assertEqual(set(next(iter(batches))), {"x", "y", "row_numbers", "info"})

    def test_a_batch_has_its_items_as_attributes_and_keeps_its_numbers_in_copies(self):
        for index, batch in enumerate(hopfeed.Loader(self.store, 64, True, row_numbers=True)):
            for b in (batch, type(batch)({name: value for name, value in batch.items()}), pickle.loads(pickle.dumps(batch)), batch.copy()):
                for name in ("x", "y", "n_id", "row_numbers"):
                    np.testing.assert_array_equal(getattr(b, name), batch[name])
                self.assertEqual((b.index, b.rows, b.batch_size, b.global_rows), (index, len(b.y), len(b.y), len(b.y)))
                self.assertIn("x", b)
                for lookup in (lambda: b["labels"], lambda: b.labels):
                    with self.assertRaisesRegex((KeyError, AttributeError), "no 'labels' .it has x, y, n_id, row_numbers, info"):
                        lookup()
            with self.assertRaisesRegex(TypeError, "hopfeed.torch"):
                batch.to("cpu")

    def test_ranks_without_rows_get_empty_batches(self):
        loader = hopfeed.Loader(self.store, 2, rank=2, world_size=3)
        for b in loader:
            self.assertEqual((b["x"].shape, b["y"].shape, b.rows), ((0, 3, 5), (0,), 0))

    def test_a_short_last_batch_is_left_out_and_a_transform_sees_each(self):
        count = len(self.train)
        size = next(size for size in range(30, 60) if count % size)
        for placement, shuffle in (("host", "rr"), ("storage", "chunk"), ("host", False)):
            loader = hopfeed.Loader(self.store, size, shuffle, placement, drop_last=True, transform=lambda b: (b.n_id.copy(), b.x.copy()))
            self.assertEqual(len(loader), count // size)
            for _ in range(2):
                nodes, x = map(np.concatenate, zip(*loader))
                self.assertEqual(len(np.unique(nodes)), count // size * size)
                np.testing.assert_allclose(x, self.expected[nodes], rtol=1e-5, atol=1e-6)
            whole = [nodes.tolist() for nodes, _ in loader]
            loader.set_epoch(2)
            next(iter(loader))
            later = hopfeed.Loader(self.store, size, shuffle, placement, drop_last=True)
            later.load_state_dict(loader.state_dict())
            self.assertEqual([b.n_id.tolist() for b in later], whole[1:])
        with self.assertRaisesRegex(hopfeed.OptionError, "rows"):
            hopfeed.Loader(self.store, 10 * count, drop_last=True)


class Types(unittest.TestCase):
    def test_types_and_kinds_of_labels(self):
        rng = np.random.default_rng(5)
        several = rng.integers(0, 2, (stores.NODES, 3)).astype(np.int8)
        values = rng.standard_normal((stores.NODES, 2), dtype=np.float32)
        for dtype, numpy_type, labels in (("float16", np.float16, several), ("bfloat16", np.uint16, values)):
            with self.subTest(dtype=dtype), tempfile.TemporaryDirectory() as folder:
                arrays, store = stores.make(folder, dtype, labels)
                expected = stores.propagated(arrays)
                for as_stored in ("stored", "float32"):
                    for placement in ("device", "host", "storage"):
                        for b in hopfeed.Loader(store, 50, placement=placement, dtype=as_stored):
                            x = b["x"]
                            self.assertEqual(x.dtype, numpy_type if as_stored == "stored" else np.float32)
                            if x.dtype == np.uint16:
                                x = (x.astype(np.uint32) << 16).view(np.float32)
                            np.testing.assert_allclose(x, expected[b["n_id"]], rtol=1e-2, atol=1e-2)
                            np.testing.assert_array_equal(b["y"], labels[b["n_id"]])
                            self.assertEqual(b["y"].dtype, labels.dtype)


class Memory(stores.WithStore):
    def test_batches_are_the_loaders_memory(self):
        for reuse in (False, True):
            loader = hopfeed.Loader(self.store, 50, "rr", "host", reuse=reuse)
            seen = {b["x"].__array_interface__["data"][0] for _ in range(3) for b in loader}
            self.assertLessEqual(len(seen), 3 if reuse else 4, "buffers")
        for b in loader:
            with self.assertRaises(ValueError):
                b["x"][0] = 1

    def test_arrays_are_of_their_batch_alone(self):
        loader = hopfeed.Loader(self.store, 50, "none", "host", reuse=True)
        kept = []
        for _ in range(3):  # the same memory comes again
            for b in loader:
                self.assertEqual((b["x"].shape, b["x"].flags.writeable), ((b.rows, 3, 5), False))
                b["x"].shape = (-1,)
                kept.append(b["x"])
        self.assertEqual(len(set(map(id, kept))), len(kept))

    def test_a_batch_that_is_held_stays_as_it_is(self):
        loader = hopfeed.Loader(self.store, 50, "rr", "host", buffers=3, reuse=True)
        held = []
        for b in loader:
            if b.index in (0, 2):
                held.append((b.hold(), b["x"].copy()))
        for _ in loader:
            pass
        for b, before in held:
            np.testing.assert_array_equal(b["x"], before)
            b.release()
            b.release()  # once more does nothing

    def test_a_batch_may_be_released_before_the_next(self):
        for reuse in (False, True):
            loader = hopfeed.Loader(self.store, 50, "rr", "host", reuse=reuse)
            for _ in range(3):
                for b in loader:
                    if b.index % 2:
                        b.release()
                        self.assertEqual((len(b), b.batch_size), (0, b.global_rows))
                b.hold().release()
            self.assertEqual(len(epoch(loader)[0]), len(self.train))

    def test_a_copy_that_is_held_keeps_the_memory_of_its_batch(self):
        for copied in (hopfeed.Batch.copy, copy.copy, lambda b: hopfeed.Batch(dict(b))):
            kept = []
            for b in hopfeed.Loader(self.store, 50, "rr", "host", seed=3, reuse=True, buffers=4):
                kept.append((copied(b).hold(), b.x.copy()))
                if len(kept) == 3:
                    break
            for b, x in kept:
                np.testing.assert_array_equal(b.x, x)
                b.release()

    def test_a_batch_stays_as_it_is_until_the_next_is_asked_for(self):
        def stopped_at(loader):
            for b in loader:
                return b

        orders = hopfeed.Loader(self.store, 50, "rr", "host", seed=3)
        firsts = [[b["n_id"].copy() for b in orders][0] for _ in range(3)]
        for first_of in (lambda loader: next(iter(loader)), stopped_at):
            loader = hopfeed.Loader(self.store, 50, "rr", "host", seed=3, reuse=True)
            for want in firsts:  # more epochs than buffers: iterating again takes them back
                b = first_of(loader)
                time.sleep(0.05)  # the engine reads ahead as far as it may
                np.testing.assert_array_equal(b["n_id"], want)
                np.testing.assert_allclose(b["x"], self.expected[want], rtol=1e-5, atol=1e-6)
            loader.close()
            del loader
            gc.collect()
            time.sleep(0.05)
            np.testing.assert_array_equal(b["n_id"], want)
            np.testing.assert_allclose(b["x"], self.expected[want], rtol=1e-5, atol=1e-6)

    def test_holding_all_is_an_error_that_says_so(self):
        loader = hopfeed.Loader(self.store, 50, reuse=True)
        batches = []
        with self.assertRaisesRegex(hopfeed.OptionError, "all 3 batch buffers are held, the oldest by batch 0, the newest by batch 2: release a batch"):
            for b in loader:
                batches.append(b.hold())
        for b in batches:
            b.release()
        self.assertEqual(len(epoch(loader)[0]), len(self.train))

    def test_an_epoch_ends_while_all_buffers_are_held(self):
        for buffers in (len(self.train) // 50 + 1, 1):
            loader = hopfeed.Loader(self.store, 50 if buffers > 1 else 1000, reuse=True, buffers=buffers)
            held = [b.hold() for b in loader]
            self.assertEqual(len(held), len(loader))
            with self.assertRaisesRegex(hopfeed.OptionError, "buffers are held"):
                next(iter(loader))
            held.pop().release()
            self.assertEqual(next(iter(loader)).index, 0)

    def test_arrays_outlive_the_loader(self):
        x = next(iter(hopfeed.Loader(self.store, 50, "none", "device"))).hold()["x"]
        gc.collect()
        copies = [hopfeed.Loader(self.store, 50, "none", "device") for _ in range(3)]  # may take freed memory
        np.testing.assert_allclose(x, self.expected[self.order()[:50]], rtol=1e-5, atol=1e-6)
        del copies

    def order(self):
        return epoch(hopfeed.Loader(self.store, 50, "none"))[0]

    def test_a_thousand_epochs_take_no_more_memory(self):
        loader = hopfeed.Loader(self.store, 50)

        def resident():
            for _ in range(500):
                for b in loader:
                    b["x"]
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

        resident()
        before = resident()
        resident()
        self.assertLess(resident() - before, 4 << 20)
        self.assertEqual(loader.state_dict()["epoch"], 2000)

    def test_loaders_that_are_gone_take_no_memory(self):
        def resident():
            for _ in range(30):
                next(iter(hopfeed.Loader(self.store, 50)))
            gc.collect()
            return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

        resident(), resident()
        before = resident()
        self.assertLess(resident() - before, 8 << 20)


class State(stores.WithStore):
    def test_an_epoch_goes_on_where_it_was_saved_with_other_ranks_and_placement(self):
        def nodes(loaders):
            return [np.concatenate([b["n_id"] for b in shares]) for shares in zip(*loaders)]

        def open_all(world, placement):
            return [hopfeed.Loader(self.store, 50, "chunk", placement, seed=9, rank=r, world_size=world) for r in range(world)]

        whole = open_all(1, "host")
        want = nodes(whole) + nodes(whole)
        for world, later in ((1, 2), (2, 3), (3, 1)):
            for stop in range(1, 2 * len(whole[0]) + 1):
                first = open_all(world, "storage")
                got = []
                while len(got) < stop:
                    iterators = [iter(loader) for loader in first]
                    for shares in zip(*iterators):
                        got.append(np.concatenate([b["n_id"] for b in shares]))
                        if len(got) == stop:
                            break
                states = [json.loads(json.dumps(loader.state_dict())) for loader in first]
                self.assertEqual(len({json.dumps(s) for s in states}), 1)
                second = open_all(later, "device")
                for loader in second:
                    loader.load_state_dict(states[0])
                while len(got) < len(want):
                    got += nodes(second)
                self.assertEqual([list(g) for g in got], [list(w) for w in want])

    def test_a_state_of_another_order_is_refused(self):
        state = hopfeed.Loader(self.store, 50, seed=1).state_dict()
        for change in ({"seed": 2}, {"batch_size": 51}, {"split": "valid"}, {"shuffle": "rr"}):
            with self.assertRaisesRegex(hopfeed.OptionError, "the state is of a loader with"):
                hopfeed.Loader(self.store, **{"batch_size": 50, "seed": 1, **change}).load_state_dict(state)
        for change in ({"version": 2}, {"batch": 10**6}, {"epoch": -1}):
            with self.assertRaises(hopfeed.OptionError):
                hopfeed.Loader(self.store, 50, seed=1).load_state_dict({**state, **change})

    def test_epochs_can_be_chosen(self):
        loader = hopfeed.Loader(self.store, 50)
        orders = [list(epoch(loader)[0]) for _ in range(3)]
        loader.set_epoch(1)
        self.assertEqual(list(epoch(loader)[0]), orders[1])
        for _ in loader:
            break  # what is left of an epoch is not made up for
        loader.set_epoch(2)
        self.assertEqual(list(epoch(loader)[0]), orders[2])

    def test_an_iteration_counts_when_its_first_batch_is_there(self):
        loader = hopfeed.Loader(self.store, 50)
        orders = [epoch(loader)[0].tolist() for _ in range(2)]
        loader.set_epoch(0)
        state = loader.state_dict()
        for _ in range(3):
            iter(loader)
        self.assertEqual(loader.state_dict(), state)
        self.assertEqual(epoch(loader)[0].tolist(), orders[0])
        loader.set_epoch(0)
        batches = iter(loader)
        got = [next(batches)["n_id"].tolist() for _ in range(3)]
        state = loader.state_dict()
        self.assertEqual((state["epoch"], state["batch"]), (0, 3))
        iter(loader)
        self.assertEqual(loader.state_dict(), state)
        got += [b["n_id"].tolist() for b in batches]  # which goes on
        self.assertEqual(sum(got, []), orders[0])
        self.assertEqual(epoch(loader)[0].tolist(), orders[1])
        loader.set_epoch(0)
        for b in loader:
            loader.set_epoch(1)  # is for the next iteration
        self.assertEqual(epoch(loader)[0].tolist(), orders[1])
        loader.load_state_dict({**state, "batch": len(loader)})  # the end of epoch 0
        self.assertEqual(len(list(loader)), 0)
        self.assertEqual(epoch(loader)[0].tolist(), orders[1])

    def test_an_epoch_without_its_first_batch_does_not_count(self):
        with tempfile.TemporaryDirectory() as folder:
            _, store = stores.make(folder)
            want = epoch(hopfeed.Loader(store, 50))[0].tolist()
            loader = hopfeed.Loader(store, 50, placement="storage")
            state = loader.state_dict()
            part = pathlib.Path(store, "features/rw/hop-1/part-00000.arrow")
            whole = part.read_bytes()
            part.write_bytes(whole[:4096] + bytes(len(whole) - 8192) + whole[-4096:])
            with self.assertRaises(hopfeed.CorruptError):
                next(iter(loader))
            self.assertEqual(loader.state_dict(), state)
            part.write_bytes(whole)
            self.assertEqual(epoch(loader)[0].tolist(), want)

    def test_of_two_iterations_the_first_ends(self):
        loader = hopfeed.Loader(self.store, 50)
        first = iter(loader)
        next(first)
        second = iter(loader)
        next(second)
        with self.assertRaisesRegex(hopfeed.Error, "another iteration"):
            next(first)
        self.assertEqual(len(list(second)), len(loader) - 1)


class Failures(stores.WithStore):
    def test_options(self):
        for options, says in (
            ({"placement": "tape"}, "tape"),
            ({"shuffle": "rr", "placement": "storage"}, "chunk"),
            ({"batch_size": 0}, "batch_size 0: want"),
            ({"split": "night"}, "split 'night': want 'train', 'valid', 'val'"),
            ({"shuffle": "all"}, "shuffle 'all': want 'rr'"),
            ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
            ({"rank": 0, "world_size": 0}, "world_size 0"),
            ({"rank": 0, "world_size": 2, "shuffle": "auto"}, "differently"),
            ({"hops": 7}, "no hop"),
            ({"operators": "sym"}, "no operator"),
            ({"dtype": "int8"}, "dtype 'int8'"),
            ({"memory": "much"}, "memory"),
            ({"threads": -1}, "threads -1"),
        ):
            with self.subTest(**options), self.assertRaisesRegex(hopfeed.OptionError, says):
                hopfeed.Loader(self.store, **options)
        with self.assertRaisesRegex(hopfeed.OptionError, "propagate"):
            hopfeed.Loader(self.store[: -len("store")] + "graph")
        for missing in (hopfeed.Dataset, hopfeed.Loader, lambda path: hopfeed.import_npy(path, "out"), lambda path: hopfeed.propagate(path, "out")):
            with self.assertRaises(FileNotFoundError) as raised:
                missing(pathlib.Path("nowhere"))
            self.assertEqual(raised.exception.filename, "nowhere")

    def test_integers_of_numpy_are_integers(self):
        one = np.int64(1)
        loader = hopfeed.Loader(self.store, np.int64(50), hops=one, seed=np.uint8(4), rank=one - 1, world_size=one, buffers=np.int32(3), threads=one)
        loader.set_epoch(one)
        want = hopfeed.Loader(self.store, 50, hops=1, seed=4)
        want.set_epoch(1)
        for got, expected in zip(epoch(loader), epoch(want)):
            np.testing.assert_array_equal(got, expected)
        self.assertEqual(json.dumps(loader.state_dict()), json.dumps(want.state_dict()))

    def test_what_does_not_fit(self):
        with self.assertRaisesRegex(hopfeed.DoesNotFit, "memory"):
            hopfeed.Loader(self.store, memory="49MiB", batch_size=10**6, buffers=10**6)

    def test_damage_is_found_during_the_epoch(self):
        with tempfile.TemporaryDirectory() as folder:
            _, store = stores.make(folder)
            part = pathlib.Path(store, "features/rw/hop-1/part-00000.arrow")
            row = next(iter(hopfeed.Loader(store, 50)))["x"][7, 1].tobytes()
            damaged = bytearray(part.read_bytes())
            damaged[damaged.index(row)] ^= 1
            part.write_bytes(damaged)
            loader = hopfeed.Loader(store, 50, placement="storage")
            with self.assertRaisesRegex(hopfeed.CorruptError, "hop-1"):
                for _ in loader:
                    pass
            with self.assertRaises(hopfeed.CorruptError):
                hopfeed.Loader(store, placement="host")

    def test_a_closed_loader(self):
        with hopfeed.Loader(self.store, 50) as loader:
            iterator = iter(loader)
            x = next(iterator)["x"]
        for use in (lambda: next(iterator), lambda: iter(loader), loader.stats):
            with self.assertRaisesRegex(hopfeed.Error, "closed"):
                use()
        self.assertEqual(x.shape, (50, 3, 5))


def in_fork(store, loader, queue):
    messages = []
    for use in (lambda: next(iter(loader)), lambda: hopfeed.Loader(store), loader.stats):
        try:
            use()
        except hopfeed.ForkError as e:
            messages.append(str(e))
    queue.put(messages)


def in_spawned(store, queue):
    queue.put(sum(b.rows for b in hopfeed.Loader(store, 50)))


class Processes(stores.WithStore):
    def test_a_forked_process_is_told_what_to_do(self):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        process = context.Process(target=in_fork, args=(self.store, hopfeed.Loader(self.store, 50), queue))
        process.start()
        messages = queue.get(timeout=30)
        process.join(30)
        self.assertEqual((len(messages), process.exitcode), (3, 0))
        self.assertIn("spawn", messages[0])

    def test_a_spawned_process_loads(self):
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=in_spawned, args=(self.store, queue))
        process.start()
        self.assertEqual(queue.get(timeout=60), len(self.train))
        process.join(30)

    def test_a_loader_is_not_sent_to_another_process(self):
        with self.assertRaisesRegex(hopfeed.ForkError, "no worker processes"):
            pickle.dumps(hopfeed.Loader(self.store, 50))

    def test_interrupt_ends_the_process_within_a_batch(self):
        program = (
            "import hopfeed, itertools, sys\n"
            f"loader = hopfeed.Loader({self.store!r}, 1, placement='storage')\n"
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

    def test_an_interrupt_while_a_loader_is_opened_leaves_none_open(self):
        lines = {f.__code__ for f in (_native.run, _native.take, Handle.__init__, Handle._own)}

        def interrupted(at):
            """A loader, unless an interrupt comes before the line with this number of those that run."""
            left = at

            def trace(frame, event, _):
                nonlocal left
                if frame.f_code not in lines:
                    return None
                source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
                if event == "line" and source.strip() != "try:":  # which calls nothing, so no signal comes there
                    left -= 1
                    if left == 0:
                        raise KeyboardInterrupt
                return trace

            sys.settrace(trace)
            try:
                return hopfeed.Loader(self.store, 50)
            except KeyboardInterrupt:
                return None
            finally:
                sys.settrace(None)

        last = hopfeed.Loader(self.store, 50)._handle.number
        for at in itertools.count(1):
            if loader := interrupted(at):
                break
            gc.collect()
            number = hopfeed.Loader(self.store, 50)._handle.number
            for between in range(last + 1, number):
                self.assertNotEqual(_native.library().hopfeed_close(between), _native.DONE, f"left open by an interrupt at line {at}")
            last = number
        self.assertGreater(at, 20)
        self.assertGreater(len(list(loader)), 0)

    def test_interrupt_ends_a_propagation_which_goes_on_later(self):
        graph, output = self.store[: -len("store")] + "graph", self.store + "-long"
        options = {"hops": 40, "operator": "heat:t=100", "rows": "all"}
        program = (
            "import hopfeed, re\n"
            "def seen(state):\n"  # after two hops, of which something is saved
            "    if any(int(hop) > 2 for task in state['tasks'] for hop in re.findall('hop[- ](\\\\d+)', task['label'])):\n"
            "        print('running', flush=True)\n"
            f"hopfeed.propagate({graph!r}, {output!r}, progress=seen, **{options})\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            self.assertEqual(process.stdout.readline(), "running\n")
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT, errors)
        self.assertIn("KeyboardInterrupt", errors)
        result = hopfeed.propagate(graph, output, progress=False, **options)
        self.assertTrue(result["resumed"] and result["complete"])


class Work(stores.WithStore):
    def test_a_plan_says_where_and_why(self):
        plan = hopfeed.plan(self.store, batch_size=64, shuffle="auto")
        self.assertIn(plan["placement"], ("device", "host", "storage"))
        self.assertTrue(plan["reasons"] and plan["alternatives"])
        self.assertEqual(plan["rows"], len(self.train))
        with self.assertRaises(TypeError):
            hopfeed.plan(self.store, batches=3)

    def test_a_store_grows(self):
        with tempfile.TemporaryDirectory() as folder:
            _, store = stores.make(folder)
            graph = os.path.join(folder, "graph")
            self.assertTrue(hopfeed.propagate(graph, store, operator="rw", progress=False)["already_complete"])
            seen = []
            hopfeed.propagate(graph, store, hops=3, operator="rw,sym", progress=seen.append)
            self.assertEqual(hopfeed.Dataset(store).matrices, [("x", 0)] + [(o, h) for o in ("sym", "rw") for h in (1, 2, 3)])
            with self.assertRaises(hopfeed.OptionError):
                hopfeed.propagate(graph, store, rows="all", progress=False)
            with self.assertRaises(hopfeed.OptionError):
                hopfeed.propagate(graph, store, operator="magic", progress=False)

    def test_an_output_within_a_graph_or_store_is_refused(self):
        graph = self.store[: -len("store")] + "graph"
        for within in (os.path.join(graph, "store"), os.path.join(self.store, "a", "b")):
            with self.assertRaisesRegex(hopfeed.OptionError, "nothing may be added"):
                hopfeed.propagate(graph, within, progress=False)
            with self.assertRaisesRegex(hopfeed.OptionError, "nothing may be added"):
                hopfeed.import_npy(graph[: -len("graph")] + "arrays", within, progress=False)
            self.assertFalse(os.path.exists(within))

    def test_stats_count_rows_and_reads(self):
        loader = hopfeed.Loader(self.store, 50, placement="storage")
        epoch(loader)
        stats = loader.stats()
        self.assertEqual((stats["batches"], stats["rows"]), (len(loader), len(self.train)))
        self.assertEqual(stats["bytes_read"], 3 * len(self.train) * 4 * stores.FEATURES)
        self.assertTrue(stats["reads"])

    def test_a_graph_of_arrays_like_those_of_pyg(self):
        class Data:  # what from_pyg uses of torch_geometric.data.Data
            edge_index, x = self.arrays["edge_index"], self.arrays["node_feat"]
            y = self.arrays["node_label"]
            train_mask, val_mask, test_mask = (self.arrays["splits"] == part for part in range(3))

            def is_undirected(self):
                return False

            def to_dict(self):
                return {"x": self.x, "time": self.y, "edge_attr": None, "other": "text"}

        with tempfile.TemporaryDirectory() as folder:
            graph = os.path.join(folder, "graph")
            with self.assertWarnsRegex(UserWarning, "leaves out other:"):
                dataset = hopfeed.from_pyg(Data(), graph, name="things", progress=False)
            self.assertEqual((dataset.kind, dataset.name, dataset.nodes, dataset.classes), ("graph", "things", stores.NODES, 4))
            hopfeed.propagate(graph, os.path.join(folder, "store"), operator="rw", progress=False)
            self.assertEqual(os.listdir(folder).count("graph") + os.listdir(folder).count("store"), len(os.listdir(folder)))
            nodes, x, labels = epoch(hopfeed.Loader(os.path.join(folder, "store"), 50))
            np.testing.assert_array_equal(np.sort(nodes), self.train)
            np.testing.assert_allclose(x, self.expected[nodes], rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(labels, self.arrays["node_label"][nodes])


if __name__ == "__main__":
    unittest.main()
