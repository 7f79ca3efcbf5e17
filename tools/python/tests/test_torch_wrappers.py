"""The loaders in the wrappers that training is done with. A test is skipped where its package is not installed."""

import importlib
import importlib.util
import logging
import os
import tempfile
import types
import unittest
import warnings
from unittest import mock

import test_ownership
from test_torch import WithStore, hopfeed, module, stores, torch


def lightning_rank(rank, world, paths, folder):
    """Trains an epoch on each path by Lightning's DDP, as a process of torchrun, and saves its batches."""
    lightning = importlib.import_module("lightning")
    DataModule = importlib.import_module("hopfeed.lightning").DataModule
    os.environ["TORCHELASTIC_RUN_ID"] = "test"

    class Keep(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.kept = torch.nn.Linear(stores.FEATURES, 1), []

        def training_step(self, b, index):
            self.kept.append(b.copy())
            return self.layer(b.x.float()).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for path, options in paths.items():
        keep = Keep()
        trainer = lightning.Trainer(accelerator="cpu", devices=world, strategy="ddp", max_epochs=1, **quiet)
        trainer.fit(keep, DataModule(path, batch_size=50, **options))
        assert trainer.world_size == world
        torch.save(keep.kept, os.path.join(folder, f"{os.path.basename(path)}-{rank}"))


def rank_of_wrappers(rank, world, store, graph, folder):
    """One of the processes of accelerate and of Lightning."""
    accelerated_rank(rank, world, store, folder)
    if importlib.util.find_spec("lightning"):
        warnings.simplefilter("ignore")
        lightning_rank(rank, world, {store: {}, graph: {"num_neighbors": [3, 2], "subgraph_type": "directional"}}, folder)
    torch.distributed.destroy_process_group()


def accelerated_rank(rank, world, store, folder):
    """Iterates as one of the processes of accelerate: over the loader, and over a DataLoader that accelerate dispatches."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)
    accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
    assert accelerator.num_processes == world
    loader = accelerator.prepare(hopfeed.torch.Loader(store, 50, seed=4))
    torch.save([b.copy() for b in loader], os.path.join(folder, f"rank-{rank}"))
    dispatched = accelerator.prepare(torch.utils.data.DataLoader(hopfeed.torch.Loader(store, 50, seed=4), batch_size=None))
    epochs = [[b.copy() for b in dispatched] for _ in range(2)]
    assert all(b.global_rows == world * b.rows for epoch in epochs for b in epoch)
    torch.save(epochs, os.path.join(folder, f"dispatched-{rank}"))
    for loader in (hopfeed.torch.Loader(store, 50, reuse=True), hopfeed.torch.PairLoader(store, [[0], [0]])):
        try:
            next(iter(accelerator.prepare(torch.utils.data.DataLoader(loader, batch_size=None))))
        except hopfeed.OptionError as error:
            assert "the loader itself" in str(error)
        else:
            raise AssertionError("accelerate drops batches")


def as_process(rank, world):
    """What torch.distributed says in a process of a group."""
    says = {"is_initialized": lambda: True, "get_rank": lambda: rank, "get_world_size": lambda: world}
    return mock.patch.multiple(torch.distributed, **says)


class Unsized(torch.utils.data.IterableDataset):
    """A loader without its length."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


class Wrappers(WithStore):
    def trainer(self, lightning, **options):
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        return lightning.Trainer(accelerator="cpu", **quiet, **options)

    def test_lightning_gets_the_batches_of_the_store(self):
        lightning = module("lightning")

        class Keep(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer, self.kept = torch.nn.Linear(1, 1), []

            def training_step(self, b, index):
                assert b.batch_size == b.global_rows == len(b.y)
                self.kept.append({name: b[name].clone() for name in ("x", "y", "n_id")})
                b["x"].mul_(2)
                return self.layer(torch.ones(1)).sum()

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        for placement, shuffle in test_ownership.PLACEMENTS:
            loader = hopfeed.torch.Loader(self.store, 16, shuffle, placement)
            # An iterable that does not know its length is prefetched by one batch more.
            for data in (loader, torch.utils.data.DataLoader(loader, batch_size=None), Unsized(loader)):
                keep, epochs = Keep(), []
                keep.on_train_epoch_end = lambda: (epochs.append(keep.kept), setattr(keep, "kept", []))
                trainer = self.trainer(lightning, max_epochs=2)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    trainer.fit(keep, data)
                self.assertEqual(len(epochs), 2)
                for kept in epochs:
                    self.check(kept)

    def test_accelerate_gets_the_batches_of_the_store(self):
        accelerate = module("accelerate")
        for placement, shuffle in test_ownership.PLACEMENTS:
            for dispatches in (False, True):
                loader = hopfeed.torch.Loader(self.store, 16, shuffle, placement)
                how = accelerate.DataLoaderConfiguration(dispatch_batches=dispatches)
                data = accelerate.Accelerator(cpu=True, dataloader_config=how).prepare(torch.utils.data.DataLoader(loader, batch_size=None))
                for _ in range(2):
                    kept = []
                    for b in data:
                        self.assertEqual((b.batch_size, b.global_rows), (len(b.y), len(b.y)))
                        kept.append({name: b[name].clone() for name in ("x", "y", "n_id")})
                        b["x"].mul_(2)
                    self.check(kept)

    def test_processes_of_accelerate_and_lightning_share_each_batch(self):
        module("accelerate")
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(rank_of_wrappers, (2, self.store, self.graph, folder), 2)
            files = ["rank", "dispatched"] + ["store", "graph"] * bool(importlib.util.find_spec("lightning"))
            saved = {name: [torch.load(os.path.join(folder, f"{name}-{rank}"), weights_only=False) for rank in range(2)] for name in files}
        for epoch in zip(*saved.pop("dispatched")):
            self.check_dispatched(epoch)
        for name, shares in saved.items():
            self.assertEqual(len(shares[0]), len(shares[1]))
            for first, second in zip(*shares):
                self.assertEqual((first.rows + second.rows, first.global_rows), (second.global_rows, second.global_rows))
            batches = [b for share in shares for b in share]
            if name != "graph":
                self.check(batches)
                continue
            for b in batches:
                torch.testing.assert_close(b.x, torch.tensor(self.arrays["node_feat"])[b.n_id])
                self.assertTrue(torch.equal(b.y, self.labels[stores.seeds(b)]))
            self.assertEqual(torch.cat([stores.seeds(b) for b in batches]).sort().values.tolist(), self.train.tolist())

    def check_dispatched(self, epoch):
        """Accelerate deals out two batches at once, and fills an odd last one up with rows of the first."""
        for first, second in zip(*epoch):
            self.assertEqual(first.rows, second.rows)
            self.check_rows([first, second])
        nodes = torch.cat([b.n_id for b in (*epoch[0], *epoch[1])])
        self.assertEqual(nodes.unique().tolist(), self.train.tolist())
        self.assertEqual(len(nodes), len(self.train) + len(self.train) % 2)

    def test_a_loader_that_was_opened_before_its_group_is_refused(self):
        nodes = hopfeed.open(self.store).n_id[:9].tolist()
        opened = (
            lambda **share: hopfeed.torch.Loader(self.store, 4, **share),
            lambda **share: hopfeed.torch.NeighborLoader(self.store.replace("store", "graph"), [2], nodes, 4, **share),
            lambda **share: hopfeed.torch.PairLoader(self.store, [nodes, nodes[::-1]], batch_size=4, **share),
        )
        with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE="1"):
            for open_loader in opened:
                early, given = open_loader(), open_loader(rank=0, world_size=2)
                self.assertIsInstance(early.dataset, hopfeed.torch.Dataset)
                with as_process(0, 1):
                    self.assertEqual(next(iter(early)).batch_size, 4)
                with as_process(1, 2):
                    with self.assertRaisesRegex(hopfeed.OptionError, "process 0 of 1, .* process 1 of 2 .*DataModule"):
                        iter(early)
                    late = open_loader()
                    self.assertEqual([next(iter(loader)).batch_size for loader in (late, given)], [2, 2])
                with self.assertRaisesRegex(hopfeed.OptionError, "process 1 of 2, .* process 0 of 1"):
                    iter(late)
                for share in ({"world_size": 2}, {"rank": 0}):
                    with self.assertRaisesRegex(hopfeed.OptionError, "without"):
                        open_loader(**share)

    def test_processes_of_torchrun_without_a_group_are_refused(self):
        nodes = hopfeed.open(self.store).n_id[:9].tolist()
        with mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2"):
            for open_loader in (
                lambda **share: hopfeed.torch.Loader(self.store, 4, **share),
                lambda **share: hopfeed.torch.NeighborLoader(self.graph, [2], nodes, 4, **share),
                lambda **share: hopfeed.torch.PairLoader(self.store, [nodes, nodes[::-1]], batch_size=4, **share),
            ):
                with self.assertRaisesRegex(hopfeed.OptionError, "process 1 of 2 of torchrun.*init_process_group"):
                    open_loader()
                self.assertEqual(next(iter(open_loader(rank=0, world_size=1))).batch_size, 4)
                with as_process(1, 2):
                    self.assertEqual(next(iter(open_loader())).batch_size, 2)
            model = torch.nn.Flatten()
            self.assertEqual(len(hopfeed.torch.predict(model, self.store, progress=False)[0]), len(hopfeed.open(self.store)))
        with mock.patch.dict(os.environ, RANK="0", WORLD_SIZE="1"):
            hopfeed.torch.Loader(self.store, 4)

    def test_processes_of_a_machine_are_told_to_say_how_many_they_are(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("LOCAL_WORLD_SIZE", None)
            with as_process(0, 2), self.assertWarnsRegex(UserWarning, "LOCAL_WORLD_SIZE") as warned:
                hopfeed.torch.Loader(self.store, 50)
            self.assertEqual(warned.filename, __file__)
            module("lightning")
            from hopfeed.lightning import DataModule

            data = DataModule(lambda split: os.environ["LOCAL_WORLD_SIZE"])
            data.trainer = types.SimpleNamespace(num_devices=3)
            self.assertEqual(data.train_dataloader(), "3")
            self.assertNotIn("LOCAL_WORLD_SIZE", os.environ)
            os.environ["LOCAL_WORLD_SIZE"] = "2"
            self.assertEqual(data.train_dataloader(), "2")

    def test_the_prefetcher_of_pyg_gets_the_batches_of_the_store(self):
        pyg = module("torch_geometric.loader")
        for placement, shuffle in test_ownership.PLACEMENTS:
            loader = hopfeed.torch.Loader(self.store, 16, shuffle, placement)
            for _ in range(2):
                self.check([{name: b[name].clone() for name in ("x", "y", "n_id")} for b in pyg.PrefetchLoader(loader, torch.device("cpu"))])
                self.check(list(pyg.PrefetchLoader(loader, torch.device("cpu"))))

    def test_modes_of_lightnings_combined_loader_get_the_batches_of_each_store(self):
        CombinedLoader = module("lightning.pytorch.utilities").CombinedLoader
        for mode, times in (("min_size", (1, 1)), ("max_size", (1, 1)), ("sequential", (1, 1)), ("max_size_cycle", (2, 1))):
            # The first has half the batches of the second.
            loaders = {name: hopfeed.torch.Loader(self.store, size, "rr", "host") for name, size in (("a", 400), ("b", 200))}
            self.assertEqual([len(loader) for loader in loaders.values()], [1, 2])
            kept = {"a": [], "b": []}
            for batches, _, which in CombinedLoader(loaders, mode):
                for name, b in ({"ab"[which]: batches} if mode == "sequential" else batches).items():
                    if b is not None:
                        kept[name].append(b.copy())
            if mode == "min_size":
                self.assertEqual([len(k) for k in kept.values()], [1, 1])
                self.check(kept["a"])
                continue
            for name, epochs in zip("ab", times):
                for epoch in range(epochs):
                    self.check(kept[name][epoch * len(loaders[name]) : (epoch + 1) * len(loaders[name])])

    def test_a_data_module_opens_the_loader_of_each_split(self):
        lightning = module("lightning")
        from hopfeed.lightning import DataModule

        opened, kept = [], {"train": [], "val": [], "test": [], "rest": []}

        class Keep(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, b, index):
                kept["train"].append(b)
                return self.layer(torch.ones(1)).sum()

            def validation_step(self, b, index):
                kept["val"].append(b)

            def test_step(self, b, index):
                kept["test"].append(b)

            def predict_step(self, b, index):
                kept["rest"].append(b)

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 0.1)

        def open_split(split):
            opened.append(split)
            return hopfeed.torch.Loader(self.store, 50, split == "train", "host", split=split)

        for data in (DataModule(open_split), DataModule(self.store, batch_size=50, placement="host")):
            self.assertEqual(len(opened) % 4, 0)
            for batches in kept.values():
                batches.clear()
            trainer = self.trainer(lightning, max_epochs=1, num_sanity_val_steps=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                trainer.fit(Keep(), data)
                trainer.test(Keep(), data)
                trainer.predict(Keep(), data)
            self.assertEqual(opened, ["train", "val", "test", "rest"])
            self.check(kept["train"])
            for part, split in enumerate(("val", "test"), 1):
                self.check_rows(kept[split])
                self.assertEqual(torch.cat([b.n_id for b in kept[split]]).tolist(), (self.arrays["splits"] == part).nonzero()[0].tolist())

        self.assertIsInstance(data.train_dataloader().dataset, hopfeed.torch.Dataset)

    def test_the_trainer_of_transformers_gets_the_batches_of_the_store(self):
        transformers = module("transformers")
        kept = []

        class Model(torch.nn.Module):
            def __init__(self, matrices, features, classes):
                super().__init__()
                self.layer = torch.nn.Linear(matrices * features, classes)

            def forward(self, x, y, n_id, info):
                kept.append({"x": x, "y": y, "n_id": n_id})
                logits = self.layer(x.flatten(1))
                return {"loss": torch.nn.functional.cross_entropy(logits, y), "logits": logits}

        loader = hopfeed.torch.Loader(self.store, 50, "rr", "host")

        class Trainer(transformers.Trainer):
            def get_train_dataloader(self):
                return loader

        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            options = transformers.TrainingArguments(folder, num_train_epochs=2, report_to=[], disable_tqdm=True, use_cpu=True, save_strategy="no")
            trainer = Trainer(Model(3, stores.FEATURES, 4), options)
            trainer.train()
        self.assertEqual((trainer.state.global_step, len(kept)), (2 * len(loader), 2 * len(loader)))
        self.check(kept[: len(loader)])
        self.check(kept[len(loader) :])

    def test_the_stateful_dataloader_of_torchdata_goes_on_where_it_was_saved(self):
        StatefulDataLoader = module("torchdata.stateful_dataloader").StatefulDataLoader
        for placement, shuffle in test_ownership.PLACEMENTS:
            whole = hopfeed.torch.Loader(self.store, 50, shuffle, placement)
            want = [b.n_id for _ in range(2) for b in whole]
            for stop in (1, 3, len(want) // 2):
                first = StatefulDataLoader(hopfeed.torch.Loader(self.store, 50, shuffle, placement), batch_size=None)
                got = [b for _, b in zip(range(stop), first)]
                later = StatefulDataLoader(hopfeed.torch.Loader(self.store, 50, shuffle, placement), batch_size=None)
                later.load_state_dict(first.state_dict())
                got += list(later)
                if stop < len(want) // 2:
                    self.check(got)
                    got += list(later)
                self.check(got[-(len(want) // 2) :])
                self.assertEqual([b.n_id.tolist() for b in got], [n.tolist() for n in want])


if __name__ == "__main__":
    unittest.main()
