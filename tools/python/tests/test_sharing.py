"""Loaders of one graph or store hold its topology and features once, in a process and in the processes of a machine."""

import gc
import multiprocessing
import os
import resource
import tempfile
import unittest
from unittest import mock

import numpy as np

import hopfeed

NODES, FEATURES = 6000, 1500
INPUT = NODES * FEATURES * 4


def memory():
    """What this process has of memory, shared pages divided by who has them."""
    gc.collect()
    with open("/proc/self/smaps_rollup") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))


def open_loader(kind, folder, batch_size=64, **options):
    if kind == "graph":
        return hopfeed.NeighborLoader(os.path.join(folder, "graph"), [1], "train", batch_size, placement="host", **options)
    return hopfeed.Loader(os.path.join(folder, "store"), batch_size, "rr", kind, **options)


def sums(loader):
    """Of each batch's nodes and features."""
    return [(int(b.n_id.sum(dtype=np.int64)), float(b.x.sum(dtype=np.float64))) for b in loader]


def rank(kind, folder, rank, world, both, out):
    os.environ["LOCAL_WORLD_SIZE"] = str(world)
    before = memory()
    loader = open_loader(kind, folder, rank=rank, world_size=world)
    found = sums(loader)
    both.wait(60)
    out.put((rank, memory() - before, found))
    both.wait(60)


def charged(loader):
    """What the plan of a loader has for the input."""
    terms = {term["name"]: term["bytes"] for term in loader._handle.about["memory_plan"]["terms"]}
    return terms.get("input", 0) + terms.get("features", 0)


def rank_that_cannot_share(folder, out):
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))  # of shared memory too
    out.put([(kind, charged(loader), sums(loader)) for kind in ("graph", "host") for loader in [open_loader(kind, folder)]])


class Sharing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        paths = [os.path.join(cls.folder.name, name) for name in ("graph", "store")]
        hopfeed.generate("sbm", paths[0], nodes=NODES, edges=5 * NODES, features=FEATURES, classes=4, labeled=1, progress=False)
        hopfeed.propagate(*paths, hops=0, progress=False)

    def test_loaders_of_a_process_hold_the_input_once(self):
        for kind in ("graph", "host", "device"):
            first = open_loader(kind, self.folder.name)
            want = sums(first)
            before = memory()
            more = [open_loader(kind, self.folder.name) for _ in range(3)]
            for loader in more:
                self.assertEqual(sums(loader), want)
                paid = {term["name"]: term["bytes"] for term in loader._handle.about["memory_plan"]["terms"]}
                self.assertEqual([paid.get(name, 0) for name in ("input", "features", "topology")], [0, 0, 0])
            self.assertLess(memory() - before, INPUT)
            first.close()  # the others have it still
            later = [sums(loader) for loader in more]
            self.assertEqual(later, [later[0]] * 3)

    def test_memory_that_is_given_is_charged_for_all_that_a_loader_holds(self):
        for kind in ("graph", "host"):
            loaders = [open_loader(kind, self.folder.name, memory="1GiB") for _ in range(2)]
            whole = charged(loaders[0])
            self.assertGreaterEqual(whole, INPUT if kind == "graph" else INPUT // 2)
            self.assertEqual(charged(loaders[1]), whole)
            with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE="4"):
                self.assertEqual(charged(open_loader(kind, self.folder.name, memory="1GiB")), whole)
                del loaders
                gc.collect()
                self.assertLess(charged(open_loader(kind, self.folder.name)), whole / 3)
            with self.assertRaises(hopfeed.DoesNotFit):
                open_loader(kind, self.folder.name, memory=whole)

    def test_a_process_that_cannot_share_is_charged_for_the_whole(self):
        spawn = multiprocessing.get_context("spawn")
        out = spawn.Queue()
        process = spawn.Process(target=rank_that_cannot_share, args=(self.folder.name, out))
        process.start()
        for kind, bytes, found in out.get(timeout=60):
            alone = open_loader(kind, self.folder.name)
            self.assertEqual((bytes, found), (charged(alone), sums(alone)))
        process.join()

    def test_processes_of_a_machine_hold_the_input_once(self):
        spawn = multiprocessing.get_context("spawn")
        for kind in ("graph", "host"):
            both, out = spawn.Barrier(2), spawn.Queue()
            ranks = [spawn.Process(target=rank, args=(kind, self.folder.name, r, 2, both, out)) for r in range(2)]
            for process in ranks:
                process.start()
            got = sorted(out.get(timeout=60) for _ in ranks)
            for process in ranks:
                process.join()
            held = sum(bytes for _, bytes, _ in got)
            # Libraries take about 0.4 of the input in each process. A graph's input is 1 of it, a store's 0.7, the train rows.
            self.assertLess(held, 2.2 * INPUT if kind == "graph" else 1.8 * INPUT, f"{kind}: {held} of {INPUT}")
            if kind == "host":
                whole = sums(open_loader(kind, self.folder.name))
                shares = [[a + b for (a, _), (b, _) in zip(*(found for _, _, found in got))]]
                self.assertEqual(shares[0], [nodes for nodes, _ in whole])


if __name__ == "__main__":
    unittest.main()
