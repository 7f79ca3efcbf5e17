"""Hopfeed: batches of propagated features of big graphs, or sampled of them, at the speed of the engine.

>>> import hopfeed
>>> loader = hopfeed.Loader("store", batch_size=8000)       # arrays of numpy
>>> for batch in loader:
...     batch.x, batch.y                                    # [batch_size, matrices, features], [batch_size]
>>> loader = hopfeed.NeighborLoader("graph", num_neighbors=[15, 10, 5])
>>> for batch in loader:
...     batch.x, batch.blocks                               # [nodes, features], a block for each layer

``hopfeed.torch.Loader`` and ``hopfeed.torch.NeighborLoader`` are the same with tensors of PyTorch.
docs/pytorch.md has the rules.
"""

from typing import Any

from ._batch import Batch
from ._commands import (
    devices,
    evaluate,
    export_npy,
    generate,
    import_csv,
    import_graphsaint,
    import_igb,
    import_mtx,
    import_npy,
    import_ogb,
    import_parquet,
    inspect,
    predict,
    propagate,
    repair,
    report,
    sample,
    status,
    train,
    tune,
    update,
    verify,
)
from ._dataset import Dataset
from ._edges import Edges
from ._errors import CorruptError, DoesNotFit, Error, ForkError, OptionError
from ._loader import Loader
from ._matrix import Matrix
from ._pairs import PairLoader
from ._neighbor import Block, LinkNeighborLoader, NeighborLoader
from ._typed import TypedDataset
from ._tables import from_dgl, from_edges, from_ogb
from ._work import from_pyg, plan


def sign(data: Any, hops: int = 3, operator: str = "sym:noloops", **options: Any) -> Any:
    """``hopfeed.torch.sign``: a loader of the propagated features of a graph in memory."""
    from . import torch

    return torch.sign(data, hops, operator, **options)


open = Dataset  # ``from hopfeed import *`` leaves Python's own

__version__ = "VERSION"  # tools/python/build-wheel fills it in

__all__ = [
    "Batch",
    "Block",
    "CorruptError",
    "Dataset",
    "DoesNotFit",
    "Edges",
    "Error",
    "ForkError",
    "LinkNeighborLoader",
    "Loader",
    "Matrix",
    "NeighborLoader",
    "OptionError",
    "PairLoader",
    "TypedDataset",
    "devices",
    "evaluate",
    "export_npy",
    "from_dgl",
    "from_edges",
    "from_ogb",
    "from_pyg",
    "generate",
    "import_csv",
    "import_graphsaint",
    "import_igb",
    "import_mtx",
    "import_npy",
    "import_ogb",
    "import_parquet",
    "inspect",
    "plan",
    "predict",
    "propagate",
    "repair",
    "report",
    "sample",
    "sign",
    "status",
    "train",
    "tune",
    "update",
    "verify",
]
