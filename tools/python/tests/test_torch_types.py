"""The types of the package, where mypy is installed: a test of PyTorch, since hopfeed.torch is checked too."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

from test_torch import hopfeed

PROGRAM = """
import pathlib
import torch
import hopfeed
import hopfeed.torch

def x(batch: hopfeed.Batch[torch.Tensor]) -> torch.Tensor:
    return batch.x + batch.y

loader = hopfeed.torch.Loader(pathlib.Path("store"), 100, shuffle=True, split="val", memory="1GiB")
for batch in loader:
    x(batch).sum()
sampled = hopfeed.torch.NeighborLoader("graph", [15, 10], "val", shuffle="rr", memory=1 << 30)
hopfeed.propagate("graph", pathlib.Path("store"), hops=3, dtype="float16")
"""
CONFIG = """
[mypy]
strict = true
error_summary = false
# Without what follows, checking all of PyTorch takes most of a minute.
disallow_subclassing_any = false
warn_return_any = false
warn_unused_ignores = false
[mypy-torch.*,lightning.*,pytorch_lightning.*]
follow_imports = skip
[mypy-ray.*]
follow_imports = skip
ignore_missing_imports = true
"""
MISTAKES = (
    "hopfeed.torch.Loader('store', bach_size=1)",
    "hopfeed.torch.Loader('store', 1, suffle=True)",
    "hopfeed.torch.Loader('store', shuffle='sometimes')",
    "hopfeed.torch.Loader('store', split='validation')",
    "hopfeed.torch.Loader('store', placement='disk')",
    "hopfeed.torch.NeighborLoader('graph', [1], sampler='magic')",
    "hopfeed.torch.NeighborLoader('graph', [1], num_workers=2)",
    "hopfeed.Loader('store', dtype='float64')",
    "hopfeed.propagate('graph', 'store', hop=3)",
    "hopfeed.propagate('graph', 'store', rows='none')",
    "hopfeed.evaluate('store', 'run', split='validation')",
    "hopfeed.train('store', split=1)",
    "hopfeed.torch.evaluate('run', 'store', split='dev')",
    "hopfeed.generate('tree', 'graph')",
)


@unittest.skipUnless(importlib.util.find_spec("mypy"), "mypy is not installed")
class Types(unittest.TestCase):
    def check(self, *paths):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "mypy.ini")
            config.write_text(CONFIG)
            command = [sys.executable, "-m", "mypy", "--config-file", str(config), "--cache-dir", folder, *map(str, paths)]
            return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()

    def test_the_package_is_strictly_typed_and_misspelt_arguments_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            lines = PROGRAM.splitlines()
            program.write_text("\n".join([*lines, *MISTAKES, ""]))
            said = self.check(pathlib.Path(hopfeed.__file__).parent, program)
        errors = [line for line in said if ": error: " in line]
        wrong = {int(line.split(":")[1]) for line in errors if "program.py:" in line}
        self.assertEqual(wrong, set(range(len(lines) + 1, len(lines) + len(MISTAKES) + 1)), "\n".join(said))
        self.assertEqual([line for line in errors if "program.py:" not in line], [])


if __name__ == "__main__":
    unittest.main()
