"""Graphs and stores in a bucket."""

import multiprocessing
import os
import tempfile
import unittest
from unittest import mock

import numpy as np

import hopfeed
from buckets import bucket, needs_server
from stores import propagated, write_arrays


@needs_server
class BucketTest(unittest.TestCase):
    def test_a_store_is_made_and_read_by_several_processes(self):
        with tempfile.TemporaryDirectory() as folder, bucket(folder) as (url, own), mock.patch.dict(os.environ, own):
            arrays = write_arrays(os.path.join(folder, "arrays"))
            graph, store, cache = url + "/graph", url + "/store", os.path.join(folder, "cache")
            hopfeed.import_npy(os.path.join(folder, "arrays"), graph, progress=False)
            hopfeed.propagate(graph, store, hops=2, operator="rw", chunk_rows=16, progress=False, cache_dir=cache)
            self.assertEqual(hopfeed.verify(store, progress=False)["bad"], [])
            data, want = hopfeed.open(store), propagated(arrays)
            self.assertEqual((data.kind, data.nodes), ("store", 700))
            for placement in ("storage", "host"):
                seen = set()
                with hopfeed.Loader(data, 100, placement=placement, cache_dir=cache) as loader:
                    for batch in loader:
                        np.testing.assert_allclose(batch["x"], want[batch["n_id"]], rtol=1e-5, atol=1e-6)
                        seen |= set(batch["n_id"].tolist())
                self.assertEqual(seen, set(np.flatnonzero(arrays["splits"] == 0).tolist()))
            with hopfeed.NeighborLoader(graph, [5, 5], batch_size=50, cache_dir=cache) as loader:
                for batch in loader:
                    np.testing.assert_array_equal(batch["x"], arrays["node_feat"][batch["n_id"]])
            with self.assertRaises(hopfeed.OptionError):
                data.matrix("rw/hop-1")
            with self.assertRaises(FileNotFoundError):
                hopfeed.open(url + "/none")
            context = multiprocessing.get_context("spawn")
            with context.Pool(2) as pool:
                sums = pool.starmap(sums_of_batches, [(store, cache)] * 2)
            self.assertEqual(sums[0], sums[1])
            self.assertTrue(any(name.endswith(".pages") for name in os.listdir(cache)))


def sums_of_batches(store, cache):
    """The sum of each batch, in a process of its own, as a DataLoader has."""
    with hopfeed.Loader(store, 50, shuffle="none", placement="storage", cache_dir=cache) as loader:
        return [float(batch["x"].sum()) for batch in loader]


if __name__ == "__main__":
    unittest.main()
