"""The commands as functions: each is called once, with values of numpy, and every kind of error."""

import inspect
import json
import os
import pathlib
import pydoc
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import hopfeed
import stores

QUIET = {"progress": False}


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.graph = hopfeed.generate(
            "sbm", cls.folder / "graph", nodes=np.int64(300), edges=1500, features=6, classes=3, labeled=0.9, homophily=0.9, seed=7, **QUIET
        )
        hopfeed.propagate(cls.graph, cls.folder / "store", hops=2, operator=["sym", "rw"], chunk_rows=16, **QUIET)
        cls.trained = hopfeed.train(cls.folder / "store", model="sign", hidden=8, epochs=12, batch=50, lr=0.02, run=cls.folder / "run", **QUIET)

    def test_a_graph_is_made_inspected_and_exported(self):
        self.assertEqual((self.graph.nodes, self.graph.features, self.graph.classes, self.graph.kind), (300, 6, 3, "graph"))
        self.assertEqual(hopfeed.inspect(self.graph)["matrices"], ["x/hop-0"])
        hopfeed.export_npy(self.graph, self.folder / "arrays", force=True, **QUIET)
        again = hopfeed.import_npy(self.folder / "arrays", self.folder / "again", memory="1GiB", threads=2, **QUIET)
        self.assertEqual(again.manifest["edges"], self.graph.manifest["edges"])
        x = np.load(self.folder / "arrays" / "node_feat.npy")
        self.assertEqual((x.shape, x.dtype), ((300, 6), np.float32))

    def test_tables_of_edges_are_imported(self):
        (self.folder / "edges.csv").write_text("source,destination\n0,1\n1,2\n2,0\n")
        np.save(self.folder / "x.npy", np.eye(3, dtype=np.float32))
        graph = hopfeed.import_csv(self.folder / "edges.csv", self.folder / "csv", features=self.folder / "x.npy", undirected=True, **QUIET)
        self.assertEqual((graph.nodes, graph.manifest["edges"]), (3, 6))
        self.assertEqual(graph.edges.edge_index.tolist(), [[1, 2, 0, 2, 0, 1], [0, 0, 1, 1, 2, 2]])
        (self.folder / "named.csv").write_text("source,destination\nb,ä\nc,b\n")
        graph = hopfeed.import_csv(self.folder / "named.csv", self.folder / "named", ids="map", directed=True, **QUIET)
        self.assertEqual(sorted(graph.orig_id.tolist()), ["b", "c", "ä"])
        self.assertEqual(sorted(graph.orig_id[ends].tolist() for ends in graph.edges.edge_index.T), [["b", "ä"], ["c", "b"]])

    def test_damage_is_found_and_repaired(self):
        store = self.folder / "damaged"
        shutil.copytree(self.folder / "store", store)
        self.assertEqual(hopfeed.verify(store, **QUIET)["bad"], [])
        part = next((store / "features/sym/hop-2").glob("part-*"))
        damaged = bytearray(part.read_bytes())
        damaged[9000] ^= 0x55
        part.write_bytes(damaged)
        with self.assertRaisesRegex(hopfeed.CorruptError, "1 fault") as raised:
            hopfeed.verify(store, **QUIET)
        self.assertEqual([bad["file"] for bad in raised.exception.result["bad"]], [str(part)])
        self.assertEqual(hopfeed.repair(store, graph=self.graph.path, **QUIET)["files"], [str(part.relative_to(store))])
        self.assertEqual(hopfeed.verify(store, **QUIET)["bad"], [])

    def test_a_model_is_trained_evaluated_and_applied(self):
        self.assertGreater(self.trained["test_metric"], 0.8)
        store, run = self.folder / "store", self.folder / "run"
        self.assertEqual(hopfeed.evaluate(store, run, **QUIET)["test_metric"], self.trained["test_metric"])
        for split in ("val", "valid", "train"):
            scored = hopfeed.evaluate(store, run, split=split, split_index=0, **QUIET)
            self.assertIn("valid" if split == "val" else split, scored["rows_of"])
        output = self.folder / "predictions.csv"
        predicted = hopfeed.predict(store, run, output, force=True, **QUIET)
        self.assertEqual(len(output.read_text().splitlines()), predicted["rows"] + 1)
        best = hopfeed.tune(store, model="sgc", budget=3, trial_epochs=2, seed=1, output=self.folder / "tuning", **QUIET)
        self.assertTrue(json.dumps(best))
        self.assertTrue(os.path.exists(hopfeed.report([run], output=self.folder / "report.html", force=True, **QUIET)["output"]))
        self.assertIn("devices", hopfeed.devices())
        self.assertTrue(hopfeed.status(store))

    def test_samples_are_counted(self):
        samples = hopfeed.sample(self.graph, sampler="labor", fanout=[3, 2], batch=50, split="train", split_index=0, **QUIET)
        self.assertEqual((samples["sampler"], samples["batches"]), ("labor", 4))

    def test_progress_is_reported_to_a_function(self):
        seen = []
        hopfeed.generate("rmat", self.folder / "large", nodes=1 << 17, edges=1 << 21, force=True, progress=seen.append)
        self.assertTrue(any(task["total"] for state in seen for task in state["tasks"]))

    def test_the_last_progress_and_notes_are_reported(self):
        seen, arrays = [], self.folder / "few"
        arrays.mkdir()
        np.save(arrays / "edge_index.npy", np.array([[0, 0, 1], [1, 1, 2]]))
        np.save(arrays / "node_feat.npy", np.eye(3, dtype=np.float32))
        hopfeed.import_npy(arrays, self.folder / "few-graph", progress=seen.append)
        self.assertTrue(any("1 duplicate edges were merged" in note for state in seen for note in state["notes"]), seen)
        done = {task["label"]: (task["done"], task["total"]) for state in seen for task in state["tasks"]}
        self.assertEqual(done["sort edges"], (3, 3))
        with mock.patch.dict(sys.modules, {"tqdm.auto": None}), self.assertWarnsRegex(UserWarning, "1 duplicate edges") as warned:
            hopfeed.import_npy(arrays, self.folder / "few-graph", force=True)
        self.assertEqual(warned.filename, __file__)

    def test_errors_name_arguments_and_paths_alone(self):
        store = self.folder / "store"
        for function, says in (
            (lambda: hopfeed.generate("rmat", self.folder / "graph", nodes=10, **QUIET), "force"),
            (lambda: hopfeed.generate("rmat", self.folder / "none", nodes=-1, **QUIET), "nodes"),
            (lambda: hopfeed.generate("tree", self.folder / "none", **QUIET), "no generator"),
            (lambda: hopfeed.propagate(self.graph, self.folder / "none", rows="some", **QUIET), "rows"),
            (lambda: hopfeed.propagate(self.graph, self.folder / "none", chunk_rows=-1, **QUIET), "rows a chunk"),
            (lambda: hopfeed.propagate(self.graph, self.folder / "none", hops=object(), **QUIET), "hops .*object"),
            (lambda: hopfeed.train(store, model="resnet", **QUIET), "resnet"),
            (lambda: hopfeed.train(store, hidden=0, **QUIET), "hidden"),
            (lambda: hopfeed.sample(self.graph, sampler="magic", **QUIET), "sampler"),
            (lambda: hopfeed.evaluate(store, self.folder / "run", split="some", **QUIET), "split"),
            (lambda: hopfeed.evaluate(store, self.folder / "run", split_index=7, **QUIET), "7"),
            (lambda: hopfeed.predict(store, self.folder / "run", self.folder / "out.txt", **QUIET), "output"),
        ):
            with self.assertRaisesRegex(hopfeed.OptionError, says) as raised:
                function()
            self.assertNotIn("--", str(raised.exception))
        self.assertFalse((self.folder / "none").exists())
        for function in (hopfeed.verify, hopfeed.inspect, hopfeed.train, hopfeed.sample, lambda path: hopfeed.repair(store, path)):
            with self.assertRaisesRegex(FileNotFoundError, "nowhere"):
                function(self.folder / "nowhere")
        with self.assertRaises(hopfeed.DoesNotFit):
            hopfeed.propagate(self.graph, self.folder / "none", memory=1 << 20, **QUIET)

    def test_notebooks_show_tables(self):
        store = hopfeed.Dataset(self.folder / "store")
        loader, sampled = hopfeed.Loader(store, 50), hopfeed.NeighborLoader(self.graph, [3, 2], batch_size=50)
        for shown, says in (
            (self.graph, "<td>1500</td>|<td>3000</td>|edges"),
            (store, "x/hop-0, sym/hop-1, sym/hop-2, rw/hop-1, rw/hop-2"),
            (loader, "batches.*4 of 50 rows.*placement"),
            (sampled, "hopfeed.NeighborLoader of .*of 50 rows"),
            (next(iter(loader)), r"batch 0: 50 of 50 rows.*\[50, 5, 6\] float32"),
            (next(iter(sampled)), "blocks.*edges from .* to 50 nodes"),
        ):
            self.assertRegex(shown._repr_html_(), says)
        store.name = "<b>"
        self.assertIn("&lt;b&gt;", store._repr_html_())

    def test_texts_of_the_engine_speak_python(self):
        for text, says in (
            ("(--force replaces it)", "(force replaces it)"),
            ("hopfeed repair STORE --graph GRAPH computes it", "hopfeed.repair(STORE, graph=GRAPH) computes it"),
            ("see hopfeed evaluate --checkpoint /a/run STORE", "see hopfeed.evaluate(STORE, checkpoint=/a/run)"),
            ("give hopfeed import npy --node-table a.csv SRC: it", "give hopfeed.import_npy(SRC, node_table=a.csv): it"),
            ("run hopfeed propagate again with --force", "run hopfeed propagate again with force"),
            ("/data/run--old-one/graph and /data/--old/graph", "/data/run--old-one/graph and /data/--old/graph"),
        ):
            self.assertEqual(hopfeed._native.in_python(text), says)

    def test_help_and_signatures_are_complete(self):
        for name in hopfeed.__all__:
            public = getattr(hopfeed, name)
            self.assertGreater(len(public.__doc__ or ""), 20, name)
            if inspect.isfunction(public) and public.__module__ == "hopfeed._commands":
                parameters = inspect.signature(public).parameters
                self.assertNotIn(inspect.Parameter.VAR_KEYWORD, {p.kind for p in parameters.values()})
                for parameter in parameters:
                    self.assertIn(f":param {parameter}:", public.__doc__, name)
            elif inspect.isclass(public):
                for method, value in vars(public).items():
                    if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                        self.assertTrue(value.__doc__, f"{name}.{method}")
        self.assertIn("num_neighbors", pydoc.render_doc(hopfeed.NeighborLoader))
        with self.assertRaisesRegex(TypeError, "hop"):
            hopfeed.propagate(self.graph, self.folder / "none", hop=2)


if __name__ == "__main__":
    unittest.main()
