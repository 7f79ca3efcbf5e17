"""The scripts that were written for other loaders, and the notebook, in short form."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from test_torch import EXAMPLES, PROJECT, module

DATA = PROJECT.parent / "shared/data"
NOTEBOOK = EXAMPLES / "first_steps.ipynb"


@unittest.skipUnless((DATA / "amazon_photo").exists(), "the data sets are not beside the project")
class Ports(unittest.TestCase):
    def test_scripts_of_other_loaders_run_and_learn(self):
        for package in ("torch_geometric", "lightning", "torchmetrics"):
            module(package)
        path = os.environ.get("PYTHONPATH", "")
        if importlib.util.find_spec("dgl") is None:
            path = os.pathsep.join([str(pathlib.Path(__file__).parent / "stand_ins"), path])
        command = [sys.executable, "tools/bench/peers/ports.py", str(DATA), "--data", "cora", "--epochs", "30", "--seeds", "1", "--threads", "1", "--least", "0.6"]
        halves, said = [("sign_pyg", "sage_dgl", "links_pyg"), ("sage_pyg", "lightning_pyg")], ""
        how = {"cwd": PROJECT, "env": dict(os.environ, PYTHONPATH=path), "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        running = [subprocess.Popen([*command, "--scripts", *names], **how) for names in halves]
        for names, process in zip(halves, running):
            self.addCleanup(process.kill)
            text = process.communicate(timeout=1800)[0]
            self.assertEqual(process.returncode, 0, text)
            for name in names:
                self.assertIn(f"{name} hopfeed: test 0.", text)
            said += text
        self.assertIn("sign_pyg original: test 0.", said)
        print("".join(line + "\n" for line in said.splitlines() if "SKIPPED" in line), end="")

    def test_the_notebook_runs(self):
        nbclient, nbformat = module("nbclient"), module("nbformat")
        for package in ("torch_geometric", "matplotlib", "ipykernel"):
            module(package)
        notebook = nbformat.read(NOTEBOOK, 4)
        self.assertFalse([cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")], "outputs are not kept")
        with tempfile.TemporaryDirectory() as folder:
            raw = pathlib.Path(folder, "data/Photo/raw")
            raw.mkdir(parents=True)
            self.as_pyg_downloads_it(raw / "amazon_electronics_photo.npz")
            os.environ["EPOCHS"] = "4"
            self.addCleanup(os.environ.pop, "EPOCHS")
            nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        self.assertEqual(sum("image/png" in output.get("data", {}) for output in outputs), 1)
        text = "".join(output.get("text", "") for output in outputs)
        for model in ("SIGN", "GraphSAGE"):
            self.assertGreater(float(text.split(f"{model}: ")[1][:5]), 0.8, json.dumps(text))

    def as_pyg_downloads_it(self, file):
        """Writes amazon_photo as the data set Amazon of PyTorch Geometric reads it."""
        import scipy.sparse

        x = scipy.sparse.load_npz(DATA / "amazon_photo/node_feat.npz").tocsr()
        source, destination = np.load(DATA / "amazon_photo/edge_index.npy")
        adjacency = scipy.sparse.csr_matrix((np.ones(len(source), np.float32), (source, destination)), (x.shape[0], x.shape[0]))
        parts = {f"{name}_{part}": getattr(m, part) for name, m in (("adj", adjacency), ("attr", x)) for part in ("data", "indices", "indptr", "shape")}
        np.savez(file, labels=np.load(DATA / "amazon_photo/node_label.npy"), **parts)


if __name__ == "__main__":
    unittest.main()
