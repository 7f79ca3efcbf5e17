"""hopfeed.PairLoader, compared with the arrays that the store was made of."""

import tempfile
import unittest

import numpy as np

import hopfeed
import stores
from hopfeed import _pairs

try:
    import torch

    import hopfeed.torch
except ImportError:
    torch = None


class Pairs(stores.WithStore):
    options = {"rows": "all"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pairs = cls.arrays["edge_index"][:, :500]

    def open(self, **options):
        return hopfeed.PairLoader(self.store, options.pop("pairs", self.pairs), **{"batch_size": 64, **options})

    def test_hashes_are_those_of_the_format(self):
        def mix(v):
            v ^= v >> 30
            v = v * 0xBF58476D1CE4E5B9 % 2**64
            v ^= v >> 27
            v = v * 0x94D049BB133111EB % 2**64
            return v ^ v >> 31

        golden = 0x9E3779B97F4A7C15
        for seed, i in ((0, 0), (2**64 - 1, 5), (123, 2**63)):
            want = mix((mix((seed + golden) % 2**64) + (i + 1) * golden) % 2**64)
            self.assertEqual(int(_pairs.hashes(np.uint64(seed), np.uint64(i))), want)
            for n in (1, 7, 2**32 - 1):
                self.assertEqual(int(_pairs.below(np.uint64(want), n)), want * n >> 64)

    def test_every_pair_comes_once_with_the_rows_of_both_nodes(self):
        labels = np.arange(500) % 3
        for negatives in (None, "binary", "triplet"):
            given = None if negatives == "triplet" else labels
            for _, seen in enumerate([[], []]):
                for b in self.open(edge_label=given, neg_sampling=negatives, neg_sampling_ratio=2 if negatives else None):
                    np.testing.assert_array_equal(b.n_id[:, : b.batch_size], self.pairs[:, b.input_id])
                    for x, nodes in ((b.x_src, b.n_id[0]), (b.x_dst, b.n_id[1])):
                        np.testing.assert_allclose(x, self.expected[nodes], rtol=1e-5, atol=1e-6)
                    if negatives == "triplet":
                        np.testing.assert_allclose(b.x_neg, self.expected[b.n_id_neg], rtol=1e-5, atol=1e-6)
                    else:
                        want = labels[b.input_id] + (negatives == "binary")
                        np.testing.assert_array_equal(b.edge_label, np.r_[want, np.zeros(2 * b.batch_size if negatives else 0)])
                    seen += b.input_id.tolist()
                self.assertEqual(sorted(seen), list(range(500)))

    def test_negative_pairs_are_no_edges_and_have_the_same_chance(self):
        nodes = np.arange(12)
        edges = np.unique(np.random.default_rng(1).integers(0, 12, (2, 50)), axis=1)
        with tempfile.TemporaryDirectory() as folder:
            arrays = stores.write_arrays(folder + "/a", nodes=12)
            hopfeed.import_npy(folder + "/a", folder + "/g", progress=False)
            hopfeed.propagate(folder + "/g", folder + "/s", operator="rw", rows="all", progress=False)
            self.assertEqual(len(arrays["node_feat"]), len(nodes))
            none = ~np.eye(12, dtype=bool)
            none[tuple(edges)] = False
            for negatives in ("binary", "triplet"):
                loader = hopfeed.PairLoader(folder + "/s", edges, batch_size=10, neg_sampling=negatives, neg_sampling_ratio=3)
                counts, sources = np.zeros((12, 12)), np.zeros(12)
                for _ in range(200):
                    for b in loader:
                        if negatives == "binary":
                            u, v = b.n_id[:, b.batch_size :]
                        else:
                            u, v = np.repeat(b.n_id[0], 3), b.n_id_neg.ravel()
                            sources += np.bincount(u, minlength=12)
                        np.add.at(counts, (u, v), 1)
                self.assertEqual(counts[~none].sum(), 0)
                draws = none.sum(axis=1) / none.sum() * counts.sum() if negatives == "binary" else sources
                mean = np.where(none, draws[:, None] / np.maximum(none.sum(axis=1, keepdims=True), 1), 0)
                self.assertLess(np.abs(counts - mean)[none].max(), 5 * np.sqrt(mean.max()))  # standard deviations

    def test_ranks_share_each_batch_and_an_epoch_goes_on_from_a_state(self):
        def content(b):
            return {name: b[name].tobytes() for name in b if name != "info"}

        options = {"neg_sampling": "binary", "seed": 4}
        whole = list(self.open(**options))
        for index, shares in enumerate(zip(*(self.open(rank=rank, world_size=3, **options) for rank in range(3)))):
            self.assertEqual(sum(b.batch_size for b in shares), whole[index].batch_size)
            for part in (slice(None, whole[index].batch_size), slice(whole[index].batch_size, None)):
                together = [tuple(p) for b in shares for p in b.n_id[:, : b.batch_size].T.tolist() if part.stop] or [
                    tuple(p) for b in shares for p in b.n_id[:, b.batch_size :].T.tolist()
                ]
                self.assertEqual(sorted(together), sorted(map(tuple, whole[index].n_id[:, part].T.tolist())))
        state = stores.state_after(self.open(**options), 2)
        loader = self.open(**options)
        loader.load_state_dict(state)
        self.assertEqual([content(b) for b in loader], [content(b) for b in whole[3:]])
        self.assertNotEqual([content(b) for b in loader], [content(b) for b in whole])  # the next epoch
        for change, says in (
            ({"pairs": self.pairs[:, 1:]}, "pairs"),
            ({"neg_sampling": "triplet"}, "neg_sampling"),
            ({"neg_sampling": None}, "neg_sampling"),
            ({"neg_sampling_ratio": 2}, "neg_sampling_ratio"),
            ({"edges": self.pairs[:, 1:]}, "edges"),
            ({"shuffle": False}, "shuffle"),
        ):
            with self.assertRaisesRegex(hopfeed.OptionError, f"the state is of a loader with {says}"):
                self.open(**{**options, **change}).load_state_dict(state)
        with self.assertRaisesRegex(hopfeed.OptionError, "an epoch has"):
            self.open(**options).load_state_dict({**state, "batch": 99})
        self.assertEqual(len(self.open(drop_last=True)), 500 // 64)
        self.assertEqual(next(iter(self.open(shuffle=False, transform=lambda b: b.input_id.tolist()))), list(range(64)))

    def test_a_batch_that_its_transform_refuses_comes_again(self):
        def refuse(b):
            if b.index == 3 and refused.append(b) is None and len(refused) == 1:
                raise KeyError("not this one")
            return b

        for open in (self.open, lambda **options: hopfeed.NeighborLoader(self.folder.name + "/graph", [2], "all", batch_size=64, **options)):
            refused, seen = [], []
            loader = open(shuffle=False, transform=refuse)
            with self.assertRaises(KeyError):
                for b in loader:
                    seen.append(b.index)
            later = open(shuffle=False, transform=refuse)
            later.load_state_dict(loader.state_dict())
            self.assertEqual(seen + [b.index for b in later], list(range(len(loader))))

    def test_matrices_of_arrays_are_apart(self):
        x = np.random.default_rng(1).standard_normal((50, 3, 4), dtype=np.float32)
        loader = hopfeed.Loader.from_arrays({name: x[:, m] for m, name in enumerate("abc")})
        pairs = np.arange(50).reshape(2, 25)
        for hops, names, want in ((None, list("abc"), x), ([2, 0], list("ac"), x[:, [0, 2]]), (0, ["a"], x[:, :1])):
            found = hopfeed.PairLoader(loader.dataset, pairs, batch_size=10, hops=hops, neg_sampling="triplet")
            self.assertEqual(found.matrices, names)
            for b in found:
                np.testing.assert_array_equal(b.x_src, want[b.n_id[0]])
                np.testing.assert_array_equal(b.x_dst, want[b.n_id[1]])
                np.testing.assert_array_equal(b.x_neg, want[b.n_id_neg])

    def test_a_ratio_alone_is_binary_and_samplings_of_pyg_are_taken(self):
        class Triplets:  # as torch_geometric.sampler.NegativeSampling
            def __init__(self, **weights):
                self.mode, self.amount, self.src_weight, self.dst_weight = "triplet", 2, None, weights.get("dst_weight")

        self.assertEqual(next(iter(self.open(neg_sampling_ratio=2))).n_id.shape, (2, 192))
        self.assertEqual(next(iter(self.open(neg_sampling={"mode": "binary", "amount": 2}))).n_id.shape, (2, 192))
        self.assertEqual(next(iter(self.open(neg_sampling=Triplets()))).n_id_neg.shape, (64, 2))
        with self.assertRaisesRegex(hopfeed.OptionError, "dst_weight"):
            self.open(neg_sampling=Triplets(dst_weight=[1]))

    def test_what_has_no_meaning_is_refused(self):
        for options in ({"pairs": [[1], [stores.NODES]]}, {"shuffle": "chunk"}, {"neg_sampling": "hard"}, {"edge_label": [1]}, {"neg_sampling": "triplet", "neg_sampling_ratio": 0.5}, {"rank": 2}):
            with self.subTest(**options), self.assertRaises(hopfeed.OptionError):
                self.open(**options)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_tensors_have_the_values_of_arrays(self):
        loader = hopfeed.torch.PairLoader(self.store, torch.from_numpy(self.pairs), batch_size=64, neg_sampling="binary")
        for data in (loader, torch.utils.data.DataLoader(loader, batch_size=None)):
            loader.set_epoch(0)
            for got, want in zip(data, self.open(neg_sampling="binary")):
                for name in ("x_src", "x_dst", "n_id", "edge_label", "input_id"):
                    np.testing.assert_array_equal(got[name].numpy(), want[name])


if __name__ == "__main__":
    unittest.main()
