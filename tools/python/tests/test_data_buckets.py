"""Graphs and stores in a bucket."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import hopfeed
from buckets import bucket, needs_server
from stores import propagated, write_arrays


@needs_server
class BucketTest(unittest.TestCase):
    def test_a_store_is_made_and_read_by_several_processes(self):
        with tempfile.TemporaryDirectory() as folder, bucket(folder) as (url, own):
            path = os.pathsep.join(p for p in sys.path if p)
            done = subprocess.run([sys.executable, __file__, url, folder], env={**own, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


def check(url, folder):
    """What users do, in a process whose environment has the credentials: the engine sees those that it began with."""
    test, arrays = unittest.TestCase(), write_arrays(os.path.join(folder, "arrays"))
    graph, store, cache = url + "/graph", url + "/store", os.path.join(folder, "cache")
    hopfeed.import_npy(os.path.join(folder, "arrays"), graph, progress=False)
    hopfeed.propagate(graph, store, hops=2, operator="rw", chunk_rows=16, progress=False, cache_dir=cache)
    test.assertEqual(hopfeed.verify(store, progress=False)["bad"], [])
    data, want = hopfeed.open(store), propagated(arrays)
    test.assertEqual((data.kind, data.nodes), ("store", 700))
    for placement in ("storage", "host"):
        seen = set()
        with hopfeed.Loader(data, 100, placement=placement, cache_dir=cache) as loader:
            for batch in loader:
                np.testing.assert_allclose(batch["x"], want[batch["n_id"]], rtol=1e-5, atol=1e-6)
                seen |= set(batch["n_id"].tolist())
        test.assertEqual(seen, set(np.flatnonzero(arrays["splits"] == 0).tolist()))
    with hopfeed.NeighborLoader(graph, [5, 5], batch_size=50, cache_dir=cache) as loader:
        for batch in loader:
            np.testing.assert_array_equal(batch["x"], arrays["node_feat"][batch["n_id"]])
    with test.assertRaises(hopfeed.OptionError):
        data.matrix("rw/hop-1")
    with test.assertRaises(FileNotFoundError):
        hopfeed.open(url + "/none")
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        sums = pool.starmap(sums_of_batches, [(store, cache)] * 2)
    test.assertEqual(sums[0], sums[1])
    test.assertTrue(any(name.endswith(".pages") for name in os.listdir(cache)))


def sums_of_batches(store, cache):
    """The sum of each batch, in a process of its own, as a DataLoader has."""
    with hopfeed.Loader(store, 50, shuffle="none", placement="storage", cache_dir=cache) as loader:
        return [float(batch["x"].sum()) for batch in loader]


if __name__ == "__main__":
    check(*sys.argv[1:])
