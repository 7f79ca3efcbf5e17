"""hopfeed.torch, where PyTorch is installed."""

import contextlib
import importlib
import inspect
import io
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import numpy as np

import stores
import test_ownership

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

import hopfeed.torch

PROJECT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = PROJECT / "tools/python/examples"


def in_group(rank, world, file):
    """A group of processes, while it is needed."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    return contextlib.closing(types.SimpleNamespace(close=torch.distributed.destroy_process_group))


def nodes_of(loader, state=None):
    """The nodes of the batches of an epoch, in this process of a group."""
    if state:
        loader.load_state_dict(state)
    shares = []
    for batch in loader:
        total = torch.tensor([batch.rows])
        torch.distributed.all_reduce(total)
        assert total.item() == batch.global_rows
        shares.append(stores.seeds(batch).clone())
    return shares


def rank_of_groups(rank, world, store, graph, state, folder, port):
    """Saves what a process of three loads from a state on and, as one of two, of a store, of a graph, and by an example."""
    with in_group(rank, world, f"{folder}/group-3"):
        torch.save(nodes_of(hopfeed.torch.Loader(store, 50, seed=4), state), f"{folder}/three-{rank}")
    if rank == 2:
        return
    with in_group(rank, 2, f"{folder}/group-2"):
        torch.save(nodes_of(hopfeed.torch.Loader(store, 50, seed=4)), f"{folder}/two-{rank}")
        torch.save(nodes_of(hopfeed.torch.NeighborLoader(graph, [4, 3], batch_size=50)), f"{folder}/seeds-{rank}")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    said = example("sage.py", graph, "--epochs", "2", "--placement", "storage", "--cache", "lru:99rows")
    torch.save(said, f"{folder}/example-{rank}")


def example(script, *arguments):
    """What an example prints, in this process."""
    out = io.StringIO()
    with mock.patch.multiple(sys, argv=[script, *arguments], path=[str(EXAMPLES), *sys.path]), contextlib.redirect_stdout(out):
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    return out.getvalue()


def module(name):
    """A package that is tested with, where it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"{name} is not installed") from None


class WithStore(stores.WithStore):
    """What is in the store as tensors."""

    options = {"dtype": "bfloat16"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expected = torch.tensor(cls.expected, dtype=torch.float32)
        cls.labels = torch.tensor(cls.arrays["node_label"])

    def check(self, batches, matrices=None):
        """All train nodes come once, with their features and labels."""
        self.check_rows(batches, matrices)
        nodes = torch.cat([stores.seeds(b) for b in batches]).sort().values
        self.assertEqual(nodes.tolist(), np.flatnonzero(self.arrays["splits"] == 0).tolist())

    def check_rows(self, batches, matrices=None):
        """The rows have the features and labels of their nodes."""
        for b in batches:
            x = b["x"] if matrices is None else torch.stack([b[m] for m in matrices], dim=1)
            torch.testing.assert_close(x.float(), self.expected[stores.seeds(b)], rtol=1e-2, atol=1e-2)
            self.assertTrue(torch.equal(b["y"], self.labels[stores.seeds(b)]))


class Torch(WithStore):
    def test_tensors_are_the_loaders_memory(self):
        for dtype, want in (("float32", torch.float32), ("stored", torch.bfloat16)):
            for stacked in (True, False):
                loader = hopfeed.torch.Loader(self.store, 50, "rr", "host", dtype=dtype, stacked=stacked)
                places = set()
                for b in loader:
                    x = b["x"] if stacked else torch.stack([b[m] for m in loader.matrices], dim=1)
                    self.assertEqual(x.dtype, want)
                    torch.testing.assert_close(x.float(), self.expected[stores.seeds(b)], rtol=1e-2, atol=1e-2)
                    self.assertTrue(torch.equal(b["y"], self.labels[stores.seeds(b)]))
                    places.add(b[next(iter(b))].data_ptr())
                    del x
                self.assertLessEqual(len(places), 4)

    def check_sampled(self, batches):
        for b in batches:
            # The features of the graph are bfloat16 in the store alone.
            torch.testing.assert_close(b["x"], torch.tensor(self.arrays["node_feat"])[b["n_id"]])
            self.assertTrue(torch.equal(b["y"], self.labels[stores.seeds(b)]))
        self.assertEqual(sum(stores.seeds(b).numel() for b in batches), (self.arrays["splits"] == 0).sum())

    def test_batches_that_are_kept_stay(self):
        for placement, shuffle in test_ownership.PLACEMENTS:
            for dtype in ("float32", "stored"):
                for stacked in (True, False):
                    with self.subTest(placement=placement, shuffle=shuffle, dtype=dtype, stacked=stacked):
                        loader = hopfeed.torch.Loader(self.store, 30, shuffle, placement, dtype=dtype, stacked=stacked)
                        data = torch.utils.data.DataLoader(loader, batch_size=None)
                        for kept in [list(loader), list(data)]:
                            self.check(kept, None if stacked else loader.matrices)
        for placement, shuffle in test_ownership.SAMPLED:
            loader = self.sampled(placement=placement, shuffle=shuffle)
            for kept in [list(loader), list(torch.utils.data.DataLoader(loader, batch_size=None))]:
                self.check_sampled(kept)
                for b in kept:
                    h = b["x"]
                    for block in b["blocks"]:
                        self.assertEqual(len(h), block.sources)
                        h = block.matrix() @ h

    def test_what_is_done_in_place_is_in_no_other_batch(self):
        for placement, shuffle in test_ownership.PLACEMENTS:
            for batch_size in (16, 1000):
                loader = hopfeed.torch.Loader(self.store, batch_size, shuffle, placement, dtype="stored")
                for _ in range(2):
                    kept = []
                    for b in loader:
                        kept.append({name: tensor.clone() for name, tensor in b.items()})
                        b["x"].mul_(2)
                    self.check(kept)

    def test_a_graph_of_gradients_keeps_its_batch(self):
        layer = torch.nn.Linear(stores.FEATURES, 1, bias=False)
        losses, want = [], 0
        for b in hopfeed.torch.Loader(self.store, 30, "rr", "host", hops=0):
            losses.append(layer(b["x"]).sum())
            want = want + b["x"].sum(dim=(0, 1))
        torch.stack(losses).sum().backward()
        torch.testing.assert_close(layer.weight.grad[0], want)

    def test_batches_move_with_their_blocks_and_numbers(self):
        for b in (next(iter(hopfeed.torch.Loader(self.store, 16))), next(iter(self.sampled()))):
            for dtype in (torch.float64, "cpu"):
                moved = b.to(dtype, non_blocking=True)
                self.assertEqual((type(moved), list(moved), moved.batch_size, moved.global_rows), (type(b), list(b), b.rows, b.rows))
                self.assertEqual(moved.x.dtype, torch.float64 if dtype == torch.float64 else b.x.dtype)
                for block, was in zip(moved.get("blocks", []), b.get("blocks", [])):
                    self.assertEqual((block.destinations, block.indices.shape), (was.destinations, was.indices.shape))

    def test_signatures_name_what_arguments_take(self):
        for loader in (hopfeed.torch.Loader, hopfeed.torch.NeighborLoader):
            parameters = inspect.signature(loader).parameters
            self.assertNotIn(inspect.Parameter.VAR_KEYWORD, {p.kind for p in parameters.values()})
            self.assertIn("Literal", str(parameters["placement"].annotation) + str(hopfeed._types.Placement))
            for parameter in set(parameters) - {"world_size"}:
                self.assertIn(f":param {parameter}:", loader.__doc__)
            with self.assertRaisesRegex(TypeError, "suffle"):
                loader(self.store, suffle=True)

    def test_from_pyg_says_what_it_wants_and_what_it_leaves_out(self):
        pyg = module("torch_geometric.data")
        edges, x = torch.tensor([[0, 1], [1, 2]]), torch.ones(3, 2)
        sparse = pyg.Data(edge_index=edges, x=x.to_sparse())
        for data, says in (
            (pyg.HeteroData({"a": {"x": x}}), "no relations, only nodes of type 'a'"),
            (pyg.Data(x=x), "no edge_index"),
            (pyg.Data(edge_index=edges, num_nodes=3), "no x"),
            (sparse, "sparse"),
            (pyg.Data(edge_index=edges, x=x[0]), "want .nodes, features"),
        ):
            with self.assertRaisesRegex(hopfeed.OptionError, says):
                hopfeed.from_pyg(data, os.path.join(self.folder.name, "none"))
        data = pyg.Data(edge_index=edges, x=x, y=torch.tensor([0, 1, 0]), edge_attr=torch.tensor([[2.5], [1.5]]), msg=torch.arange(2), time=torch.arange(3), text=["a"])
        with self.assertWarnsRegex(UserWarning, "leaves out text:"):
            graph = hopfeed.from_pyg(data, os.path.join(self.folder.name, "from-pyg"), progress=False)
        self.assertEqual((graph.nodes, graph.manifest["edges"]), (3, 2))
        self.assertEqual(graph.columns, ["edge_attr", "edge_msg", "time"])
        self.assertTrue(torch.equal(torch.as_tensor(graph.column("edge_attr").rows[:]), data.edge_attr))
        (batch,) = hopfeed.torch.NeighborLoader(graph, [1, 1], [2], subgraph_type="directional", columns=graph.columns)
        self.assertEqual((batch.time.tolist(), batch.edge_msg.tolist()), ([2, 1, 0], [1, 0]))

    def test_blocks_are_matrices_and_edges_of_the_graph(self):
        x = torch.tensor(self.arrays["node_feat"])
        for data in (self.sampled(), torch.utils.data.DataLoader(self.sampled(), batch_size=None)):
            for b in data:
                self.assertTrue(torch.equal(b["x"], x[b["n_id"]]))
                self.assertTrue(torch.equal(b["y"], self.labels[stores.seeds(b)]))
                h = b["x"]
                for block in b["blocks"]:
                    source, destination = block.edge_index()
                    want = torch.zeros(block.destinations, h.shape[1]).index_add_(0, destination, h[source] * block.weights[:, None])
                    h = block.matrix() @ h
                    torch.testing.assert_close(h, want)
                self.assertEqual(len(h), b.rows)
                copied = b["blocks"][0].to("cpu")
                self.assertEqual((copied.sources, copied.indices.data_ptr()), (len(b["x"]), b["blocks"][0].indices.data_ptr()))

    def sampled(self, **options):
        return hopfeed.torch.NeighborLoader(os.path.join(self.folder.name, "graph"), [4, 3], batch_size=50, **options)

    def test_gradients_go_through_blocks(self):
        for b in self.sampled():
            [block] = b["blocks"][1:]
            h = torch.randn(block.sources, 2, requires_grad=True)
            (block.matrix() @ h).sum().backward()
            want = torch.zeros(block.sources).index_add_(0, block.indices.long(), block.weights)
            torch.testing.assert_close(h.grad, want[:, None].expand(-1, 2))

    def test_a_dataloader_without_workers(self):
        loader = hopfeed.torch.Loader(self.store, 50, seed=2)
        want = torch.cat([stores.seeds(b) for b in loader])
        loader.set_epoch(0)
        data = torch.utils.data.DataLoader(loader, batch_size=None)
        self.assertEqual(len(data), len(loader))
        self.assertTrue(torch.equal(torch.cat([stores.seeds(b) for b in data]), want))

    def test_a_batch_outlives_the_iteration(self):
        loader = hopfeed.torch.Loader(self.store, 50, "rr", "host")
        for data in (loader, torch.utils.data.DataLoader(loader, batch_size=None)):
            b = next(iter(data))
            time.sleep(0.05)  # the engine reads ahead as far as it may
            torch.testing.assert_close(b["x"], self.expected[stores.seeds(b)], rtol=1e-2, atol=1e-2)

    def test_a_dataloader_with_workers_is_told_what_to_do(self):
        loader = hopfeed.torch.Loader(self.store, 50)
        with self.assertRaisesRegex(RuntimeError, "num_workers=0|spawn"):
            next(iter(torch.utils.data.DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="fork")))
        with self.assertRaisesRegex(RuntimeError, "num_workers=0"):
            next(iter(torch.utils.data.DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="spawn")))

    def test_processes_of_a_group_share_each_batch(self):
        alone = hopfeed.torch.Loader(self.store, 50, seed=4)
        want = [stores.seeds(b).clone() for b in alone]
        alone.set_epoch(0)
        for _, b in zip(range(3), alone):
            state = alone.state_dict()
        seeds = [stores.seeds(b) for b in self.sampled()]
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            server.close()
            torch.multiprocessing.spawn(rank_of_groups, (3, self.store, self.graph, state, folder, port), 3)
            said = [torch.load(f"{folder}/example-{rank}").count("test accuracy") for rank in range(2)]
            for name, world, batches in (("two", 2, want), ("three", 3, want[3:]), ("seeds", 2, seeds)):
                ranks = [torch.load(f"{folder}/{name}-{rank}") for rank in range(world)]
                got = [torch.cat(shares) for shares in zip(*ranks)]
                self.assertEqual([nodes.tolist() for nodes in got], [nodes.tolist() for nodes in batches])
        self.assertEqual(said, [1, 0])

    def test_examples_run(self):
        for arguments in (("sign.py", self.store), ("hoga.py", self.store), ("sage.py", self.graph)):
            with self.subTest(arguments=arguments):
                self.assertEqual(example(*arguments, "--epochs", "2").count("test accuracy"), 1)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "sign.py", self.store, "--epochs", "2"]
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        done = subprocess.run(command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("test accuracy"), 1, done.stdout)

    def test_the_example_learns_what_only_in_neighbours_tell(self):
        nodes, classes = 600, 3
        rng = np.random.default_rng(3)
        sources = rng.integers(0, nodes, (nodes, 5))
        features = np.eye(classes, dtype=np.float32)[rng.integers(0, classes, nodes)]
        with tempfile.TemporaryDirectory() as parent:
            folder, graph = os.path.join(parent, "arrays"), os.path.join(parent, "graph")
            os.mkdir(folder)
            for name, array in {
                "edge_index": np.stack([sources.ravel(), np.repeat(np.arange(nodes), 5)]),
                "node_feat": features,
                "node_label": features[sources].sum(axis=1).argmax(axis=1),
                "splits": rng.choice(np.array([0, 0, 0, 1, 2], np.int8), nodes),
            }.items():
                np.save(os.path.join(folder, name + ".npy"), array)
            hopfeed.import_npy(folder, graph, progress=False)
            said = example("sage.py", graph, "--epochs", "40", "--eval-every", "10", "--fanout", "5", "--batch-size", "100")
        self.assertGreater(float(said.split("test accuracy ")[1][:6]), 0.85)

    @unittest.skipUnless("HOPFEED_PHOTO" in os.environ, "HOPFEED_PHOTO names no graph of amazon_photo, as hopfeed demo makes it")
    def test_the_example_is_as_good_as_the_command_on_amazon_photo(self):
        said = example("sage.py", os.environ["HOPFEED_PHOTO"], "--epochs", "30", "--eval-every", "5")
        self.assertGreater(float(said.split("test accuracy ")[1][:6]), 0.955)  # of the command: 0.964 +- 0.002

    def test_the_snippets_of_the_page_run(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(self.folder.name, "graph"), os.path.join(folder, "graph"))
            command = [sys.executable, str(PROJECT / ".ci/run_snippets.py"), str(PROJECT / "docs/pytorch.md")]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotIn("SKIPPED", done.stdout)

    def test_the_example_of_pyarrow_runs(self):
        module("pyarrow")
        done = subprocess.run([sys.executable, "read_with_pyarrow.py", self.store], cwd=EXAMPLES, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
