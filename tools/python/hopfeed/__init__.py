"""Hopfeed: propagated features of big graphs, and batches of them at the speed of the engine.

>>> import hopfeed
>>> loader = hopfeed.Loader("store", batch_size=8000)       # arrays of numpy
>>> for batch in loader:
...     batch["x"]                                          # [rows, matrices, features]

``hopfeed.torch.Loader`` is the same with tensors of PyTorch. docs/pytorch.md has the rules.
"""

from ._errors import CorruptError, DoesNotFit, Error, ForkError, OptionError
from ._loader import Batch, Dataset, Loader
from ._work import from_pyg, import_npy, plan, propagate

__version__ = "VERSION"  # tools/python/build-wheel fills it in

__all__ = [
    "Batch",
    "CorruptError",
    "Dataset",
    "DoesNotFit",
    "Error",
    "ForkError",
    "Loader",
    "OptionError",
    "from_pyg",
    "import_npy",
    "plan",
    "propagate",
]
