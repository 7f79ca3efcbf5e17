"""Stores of what PyTorch has in memory, models applied to all rows, and batches on their way to a device."""

import collections
import contextlib
import gc
import os
import tempfile
import types
import unittest
import warnings
import weakref
from unittest import mock

import numpy as np

from test_torch import WithStore, hopfeed, module, stores, torch

from hopfeed._ahead import Mover  # after test_torch, which skips where PyTorch is not installed


class Memory(WithStore):
    def data(self):
        Data = module("torch_geometric.data").Data
        edges = torch.tensor(self.arrays["edge_index"])
        edges = torch.cat([edges, edges.flip(0)], dim=1).unique(dim=1)
        masks = {name: torch.tensor(self.arrays["splits"] == part) for part, name in enumerate(("train_mask", "val_mask", "test_mask"))}
        return Data(x=torch.tensor(self.arrays["node_feat"]), edge_index=edges[:, edges[0] != edges[1]], y=self.labels, **masks)

    def test_sign_is_that_of_pyg_without_files(self):
        data = self.data()
        loops = torch.arange(0, stores.NODES, 9).expand(2, -1)
        data.edge_index = torch.cat([data.edge_index, data.edge_index[:, ::3], loops, loops], dim=1)  # repeated edges count
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sign = module("torch_geometric.transforms").SIGN(2)(data.clone())
        want = torch.stack([sign.x, sign.x1, sign.x2], dim=1)
        loader = hopfeed.sign(data, hops=2, batch_size=50)
        for split in ("train", "val", "test"):
            batches = list(loader.dataset.loader(split=split, batch_size=50))
            self.assertTrue(torch.equal(torch.cat([b.n_id for b in batches]).sort().values, data[split + "_mask"].nonzero().view(-1)))
            for b in batches:
                self.assertLess((b.x - want[b.n_id]).abs().max() / want.abs().max(), 2e-7)
                self.assertTrue(torch.equal(b.y, data.y[b.n_id]))
        folder = loader.dataset.folder
        del loader, batches, b
        gc.collect()
        self.assertFalse(os.path.exists(folder))

    def test_rows_are_tensors_and_items_of_a_dataloader(self):
        store = hopfeed.torch.open(self.store)
        rows = torch.tensor([4, 2, 9])
        for chosen in (rows, torch.isin(torch.arange(len(store)), rows), rows[0]):
            b = store[chosen]
            self.assertEqual((b.x.dtype, b.x.shape[-2:]), (torch.bfloat16, (3, stores.FEATURES)))
            torch.testing.assert_close(b.x.float(), self.expected[b.n_id], rtol=1e-2, atol=1e-2)
            self.assertTrue(torch.equal(b.y, self.labels[b.n_id]))
        batches = list(torch.utils.data.DataLoader(store, batch_size=32))
        for b in batches:
            torch.testing.assert_close(b.x, self.expected[b.n_id], rtol=1e-2, atol=1e-2)
            self.assertTrue(torch.equal(b.y, self.labels[b.n_id]))
            self.assertEqual((b.batch_size, b.global_rows), (len(b.y), len(b.y)))
        self.assertEqual(torch.cat([b.n_id for b in batches]).tolist(), store.n_id.tolist())

    def test_a_graph_without_a_folder_goes_with_its_last_loader(self):
        data = self.data()
        data.edge_label_index = data.edge_index[:, :9]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loader = hopfeed.torch.NeighborLoader(hopfeed.from_pyg(data, progress=False), [-1], "all", 50)
        for b in loader:
            self.assertTrue(torch.equal(b.x, data.x[b.n_id]) and torch.equal(b.y, data.y[b.n_id[: b.batch_size]]))
        folder = loader.dataset.folder
        self.assertTrue(os.path.exists(folder))
        del loader, b
        gc.collect()
        self.assertFalse(os.path.exists(folder))

    def test_a_model_is_applied_to_all_rows(self):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * stores.FEATURES, 4), torch.nn.Dropout()).train()
        nodes, out = hopfeed.torch.predict(model, self.store, batch_size=50, progress=False)
        self.assertTrue(model.training)
        want = model.eval()(self.expected[nodes])
        torch.testing.assert_close(out, want, rtol=1e-2, atol=1e-2)
        self.assertEqual(sorted(nodes.tolist()), sorted(hopfeed.open(self.store).n_id.tolist()))
        graph = self.store.replace("store", "graph")
        sampled = hopfeed.torch.NeighborLoader(graph, [-1], "val", 50, shuffle=False)
        seen = []
        found = hopfeed.torch.predict(
            torch.nn.Identity(), sampled, call=lambda b: b.x[: b.batch_size], progress=lambda state: seen.append(state["tasks"][0]["done"])
        )
        self.assertTrue(torch.equal(found[1], torch.tensor(self.arrays["node_feat"])[found[0]]))
        self.assertEqual(seen[-1], len(found[0]))
        with self.assertRaisesRegex(hopfeed.OptionError, "model gives"):
            hopfeed.torch.predict(torch.nn.Identity(), self.store, call=lambda b: b.x[1:], progress=False)

    def test_a_model_is_evaluated_on_a_part(self):
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * stores.FEATURES, 4), torch.nn.Dropout()).train()
        nodes, out = hopfeed.torch.predict(model, self.store, progress=False)
        for part, split in enumerate(("train", "val", "test")):
            rows = torch.tensor(self.arrays["splits"] == part)[nodes]
            right = (out[rows].argmax(1) == self.labels[nodes][rows]).float().mean().item()
            seen = []
            found = hopfeed.torch.evaluate(model, self.store, split=split, batch_size=50, progress=seen.append)
            self.assertEqual((found["metric"], found["rows"]), ("accuracy", rows.sum()))
            self.assertAlmostEqual(found["value"], right, 6)
            self.assertEqual(seen[-1]["tasks"][0]["done"], rows.sum())
            again = hopfeed.torch.evaluate(model, self.store, split=split, metric=lambda out, y: (out.argmax(1) == y).float().mean(), progress=False)
            self.assertAlmostEqual(again["value"].item(), right, 6)
        sampled = hopfeed.torch.NeighborLoader(self.graph, [-1], "val", 50)
        blocks = types.SimpleNamespace(linear=torch.nn.Linear(stores.FEATURES, 4))
        found = hopfeed.torch.evaluate(torch.nn.Identity(), sampled, call=lambda b: blocks.linear(b.x[: b.batch_size]), progress=False)
        val = np.flatnonzero(self.arrays["splits"] == 1)
        want = (blocks.linear(torch.tensor(self.arrays["node_feat"][val])).argmax(1) == self.labels[val]).float().mean()
        self.assertAlmostEqual(found["value"], want.item(), 6)
        self.assertTrue(model.training)
        for options, says in (({"metric": "mse"}, "of classes, want"), ({"metric": "roc-auc"}, "two classes"), ({"metric": "f1"}, "metric 'f1'"), ({"split": "dev"}, "split 'dev'")):
            with self.assertRaisesRegex(hopfeed.OptionError, says):
                hopfeed.torch.evaluate(model, self.store, progress=False, **options)
        with self.assertRaisesRegex(hopfeed.OptionError, "share of process 1 of 2"):
            hopfeed.torch.evaluate(model, hopfeed.torch.Loader(self.store, rank=1, world_size=2))
        with self.assertRaisesRegex(hopfeed.OptionError, "model gives 5 outputs: want 4|model gives 3 outputs: want 4"):
            hopfeed.torch.evaluate(torch.nn.Identity(), sampled, call=lambda b: b.x[: b.batch_size, :3], progress=False)
        with self.assertRaisesRegex(FileNotFoundError, "nowhere"):
            hopfeed.torch.evaluate("nowhere", self.store)

    def test_metrics_are_what_their_names_say(self):
        def f1(had, predicted):
            both = (had & predicted).sum()
            return 2 * both / max(1, had.sum() + predicted.sum())

        def area(scores, positive):
            pairs = [(p > n) + 0.5 * (p == n) for p in scores[positive] for n in scores[~positive]]
            return np.mean(pairs)

        from hopfeed._metrics import scored

        rng = np.random.default_rng(2)
        out = rng.integers(-3, 4, (90, 3)).astype(np.float32) / 2  # with ties
        classes, several = rng.integers(-1, 3, 90), rng.integers(-1, 2, (90, 3))
        several[5] = -1
        known, guess = classes >= 0, out.argmax(1)
        values = rng.standard_normal((90, 3)).astype(np.float32)
        values[3, 1] = values[7] = np.nan
        there = ~np.isnan(values)
        cases = [
            ("classes", "accuracy", out, classes, (guess == classes)[known].mean()),
            ("classes", "micro-f1", out, classes, (guess == classes)[known].mean()),
            ("classes", "macro-f1", out, classes, np.mean([f1(classes[known] == c, guess[known] == c) for c in range(3)])),
            ("classes", "roc-auc", out[:, :2], np.minimum(classes, 1), area((out[:, 1] - out[:, 0])[known], classes[known] > 0)),
            ("labels", "micro-f1", out, several, f1(several == 1, (out > 0) & (several >= 0))),
            ("labels", "macro-f1", out, several, np.mean([f1(several[:, k] == 1, (out[:, k] > 0) & (several[:, k] >= 0)) for k in range(3)])),
            ("labels", "roc-auc", out, several, np.mean([area(out[several[:, k] >= 0, k], several[several[:, k] >= 0, k] == 1) for k in range(3)])),
            ("values", "mse", out, values, ((out - values)[there].astype(float) ** 2).mean()),
            ("values", "mae", out, values, np.abs(out - values)[there].astype(float).mean()),
        ]
        for kind, metric, given, labels, want in cases:
            with self.subTest(kind=kind, metric=metric):
                found = scored(metric, torch.tensor(given), labels, kind)
                labelled = known.sum() if kind == "classes" else (several >= 0).any(axis=1).sum() if kind == "labels" else 89
                self.assertEqual((found["metric"], found["rows"]), (metric, labelled))
                self.assertAlmostEqual(found["value"], want, 5)
                self.assertEqual(scored(metric, torch.tensor(given[:0]), labels[:0], kind), {"metric": metric, "value": None, "rows": 0})

    def test_what_has_no_rows_of_nodes_or_not_all_is_not_predicted(self):
        graph, model = self.store.replace("store", "graph"), torch.nn.Flatten()
        pairs = self.arrays["edge_index"][:, :9]
        links = hopfeed.torch.LinkNeighborLoader(graph, [2], pairs)
        data = hopfeed.torch.NeighborLoader(graph, [2], transform=lambda batch: types.SimpleNamespace(**batch))  # as Batch.to_pyg
        shares = [hopfeed.torch.Loader(self.store, rank=rank, world_size=2) for rank in range(2)]
        for loader, output, says in ((links, None, "pairs of nodes"), (data, None, "without seed_id"), (shares[1], "out.csv", "process 1 of 2.*out.csv")):
            with self.assertRaisesRegex(hopfeed.OptionError, says):
                hopfeed.torch.predict(model, loader, output, progress=False)
        self.assertEqual(sum(len(hopfeed.torch.predict(model, share, progress=False)[0]) for share in shares), shares[0].rows)
        with self.assertRaisesRegex(hopfeed.OptionError, "pairs of nodes"):
            next(iter(hopfeed.torch.PairLoader(self.store, [[0], [0]]))).seed_id

    def test_one_loader_is_open_at_a_time(self):
        alive, opened = weakref.WeakSet(), []

        def counting(*arguments, **options):
            self.assertEqual(len(alive), 0)
            alive.add(loader := Loader(*arguments, **options))
            opened.append(options["split"])
            return loader

        Loader = hopfeed.torch.Loader
        with mock.patch.object(hopfeed.torch, "Loader", counting):
            nodes, _ = hopfeed.torch.predict(torch.nn.Flatten(), self.store, batch_size=50, progress=False)
        self.assertEqual((len(nodes), len(set(opened))), (len(hopfeed.open(self.store)), len(opened)))
        self.assertGreater(len(opened), 2)

    def test_a_state_after_an_error_is_that_of_the_last_batch_of_the_loop(self):
        def failing(step, at):
            def fail(*arguments):
                calls.append(0)
                if len(calls) == at:
                    raise RuntimeError("out of memory")
                return getattr(Mover, step)(*arguments)

            return fail

        whole = [b.n_id.tolist() for b in hopfeed.torch.Loader(self.store, 20, seed=4)]
        for step in ("start", "finish"):
            for at in range(1, len(whole) + 1):
                loader, calls, seen = hopfeed.torch.Loader(self.store, 20, seed=4, device="cpu"), [], []
                setattr(loader._mover, step, types.MethodType(failing(step, at), loader._mover))
                with self.assertRaisesRegex(RuntimeError, "out of memory"):
                    for b in loader:
                        seen.append(b.n_id.tolist())
                later = hopfeed.torch.Loader(self.store, 20, seed=4, device="cpu")
                later.load_state_dict(loader.state_dict())
                self.assertEqual(seen + [b.n_id.tolist() for b in later], whole)

    def test_predictions_are_a_table(self):
        pa = module("pyarrow")
        from pyarrow import csv, parquet

        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * stores.FEATURES, 4))
        nodes, out = hopfeed.torch.predict(model, self.store, progress=False)
        with tempfile.TemporaryDirectory() as folder:
            for suffix, read in ((".arrow", lambda p: pa.ipc.open_file(p).read_all()), (".parquet", parquet.read_table), (".csv", csv.read_csv)):
                path = os.path.join(folder, "table" + suffix)
                self.assertEqual(hopfeed.torch.predict(model, self.store, path, batch_size=50, progress=False), len(nodes))
                table = read(path)
                self.assertEqual(table["node_id"].to_pylist(), nodes.tolist())
                self.assertEqual(table["class"].to_pylist(), out.argmax(dim=1).tolist())
                np.testing.assert_allclose(np.stack([table[f"output_{k}"] for k in range(4)], 1), out, rtol=1e-4, atol=1e-5)

            def interrupt(batch):
                raise KeyboardInterrupt

            with self.assertRaises(KeyboardInterrupt):
                hopfeed.torch.predict(model, self.store, path, call=interrupt, force=True, progress=False)
            with self.assertRaisesRegex(hopfeed.OptionError, "output exists .force replaces it"):
                hopfeed.torch.predict(model, self.store, path, progress=False)
            self.assertEqual(hopfeed.torch.predict(model, self.store, path, force=True, progress=False), len(nodes))
            self.assertEqual(len(os.listdir(folder)), 3)

    def test_batches_are_moved_to_a_device(self):
        for options in ({"device": "cpu"}, {"device": torch.device("meta")}):
            loader = hopfeed.torch.Loader(self.store, 50, shuffle=False, **options)
            whole = [b for b in hopfeed.torch.Loader(self.store, 50, shuffle=False)]
            states = []
            for b, want in zip(loader, whole):
                self.assertEqual((b.x.device.type, b.x.shape, b.index), (str(options["device"]), want.x.shape, want.index))
                states.append(loader.state_dict())
            self.assertEqual([(s["epoch"], s["batch"]) for s in states], [(0, k) for k in range(1, len(whole))] + [(1, 0)])
        moved = list(hopfeed.torch.NeighborLoader(self.store.replace("store", "graph"), [3, 2], batch_size=50, device="meta"))
        self.assertEqual({t.device.type for b in moved for block in b.blocks for t in (b.x, b.y, *block.tensors())}, {"meta"})
        with self.assertWarnsRegex(UserWarning, "no GPU") if not torch.cuda.is_available() else contextlib.nullcontext():
            self.check(list(hopfeed.torch.Loader(self.store, 50, pin_memory=True)))
        with self.assertRaisesRegex(hopfeed.OptionError, "hopfeed.torch"):
            hopfeed.Loader(self.store, 50, device="cpu")
        with self.assertRaisesRegex(hopfeed.OptionError, "device 'gpu'"):
            hopfeed.torch.Loader(self.store, 50, device="gpu")
        with self.assertRaisesRegex(TypeError, "bach_size"):
            hopfeed.sign(self.data(), folder="nowhere", bach_size=1)
        for options, says in (({"hops": -1}, "hops -1"), ({"operator": "magic"}, "no operator .magic"), ({"hops": 2000}, "graph: 2000 hops")):
            with self.assertRaisesRegex(hopfeed.OptionError, says) as raised:
                hopfeed.sign(self.data(), progress=False, **options)
            self.assertNotIn("hopfeed-", str(raised.exception))
        with self.assertRaisesRegex(FileNotFoundError, "nowhere'"):
            hopfeed.torch.predict(torch.nn.Flatten(), self.store, "nowhere/out.csv", progress=False)
        with self.assertRaisesRegex(hopfeed.OptionError, "reuse"):
            hopfeed.torch.Loader(self.store, 50, device="cpu", reuse=True)

    def test_what_a_transform_made_is_moved(self):
        Pair = collections.namedtuple("Pair", "x n")
        made = {
            "tuple": lambda b: (b.x, [b.n_id, b.blocks], {"y": b.y, "k": 3}, "text", Pair(b.x, 2)),
            "items": lambda b: (b.update(k=3, text="text", pair=(b.x, 4)), b)[1],
            "number": lambda b: b.batch_size,
        }
        with mock.patch.multiple(torch.cuda, is_available=lambda: True), mock.patch.object(torch.Tensor, "pin_memory", lambda t: t):
            for options in ({"device": "meta"}, {"device": "meta", "pin_memory": True}):
                found = {
                    name: next(iter(hopfeed.torch.NeighborLoader(self.store.replace("store", "graph"), [2], batch_size=50, transform=f, **options)))
                    for name, f in made.items()
                }
                x, (n_id, blocks), items, text, pair = found["tuple"]
                moved = (x, n_id, blocks[0].indptr, items["y"], pair.x, found["items"].x, found["items"].pair[0])
                self.assertEqual({t.device.type for t in moved}, {"meta"})
                self.assertEqual((items["k"], text, pair.n, found["items"].k, found["items"].text, found["number"]), (3, "text", 2, 3, "text", 50))
        with self.assertRaisesRegex(TypeError, "arrays of numpy"):
            next(iter(hopfeed.Loader(self.store, 50))).to("cpu")

    def test_copies_to_a_gpu_overlap_with_the_loop(self):
        """By a PyTorch whose GPU is the host: what it is asked for, in which order."""
        log = []

        class Stream:
            def record_event(self):
                log.append("copied")
                return f"event {log.count('copied')}"

            def wait_event(self, event):
                log.append(f"wait for {event}")

        fakes = {"is_available": lambda: True, "Stream": lambda device: Stream(), "stream": lambda s: contextlib.nullcontext(), "current_stream": lambda d: Stream()}
        with mock.patch.multiple(torch.cuda, **fakes), mock.patch.object(torch.Tensor, "pin_memory", lambda t: t.clone()), mock.patch.object(
            torch.Tensor, "record_stream", lambda t, s: log.append("recorded")
        ), mock.patch.object(torch.Tensor, "to", lambda t, device, non_blocking: (log.append("to"), t)[1]):
            batches = []
            for b in hopfeed.torch.Loader(self.store, 100, device="cuda"):
                log.append(f"loop {b.index}")
                batches.append(b)
        self.check(batches)
        steps = [entry for entry in log if entry not in ("to", "recorded")]
        count = len(batches)
        want = ["copied"]
        for k in range(count):
            want += (["copied"] if k + 1 < count else []) + [f"wait for event {k + 1}", f"loop {k}"]
        self.assertEqual(steps, want)
        self.assertEqual((log.count("to"), log.count("recorded")), (3 * count, 3 * count))


if __name__ == "__main__":
    unittest.main()
