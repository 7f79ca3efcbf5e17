"""Loader for PyTorch."""

from __future__ import annotations

import os
from typing import Any, Iterator

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from ._errors import ForkError
from ._loader import Batch, Dataset
from ._loader import Loader as _Loader


class Loader(_Loader[torch.Tensor], IterableDataset):  # type: ignore[misc,type-arg]
    """``hopfeed.Loader`` with tensors, as an ``IterableDataset``.

    Features are the loader's memory, without a copy. Labels that are classes, and the numbers of nodes
    and rows, are copies as int64, which losses and indices want. Rank and world size are those of
    ``torch.distributed``, where that is initialised and they are not given.

    Iterate over it, or give it to a ``DataLoader`` with ``batch_size=None`` and ``num_workers=0``.
    """

    def __init__(self, store: str | os.PathLike[str] | Dataset, *args: Any, rank: int | None = None, world_size: int | None = None, **options: Any) -> None:
        if rank is None and world_size is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
        _Loader.__init__(self, store, *args, rank=rank or 0, world_size=world_size or 1, **options)

    def __iter__(self) -> Iterator[Batch[torch.Tensor]]:
        if get_worker_info() is not None:
            raise ForkError("a loader needs no worker processes, since it reads ahead by threads: give the DataLoader num_workers=0")
        return _Loader.__iter__(self)

    def _as_array(self, name: str, array: np.ndarray[Any, Any], bfloat16: bool) -> Any:
        if name in ("nodes", "row_numbers") or name == "labels" and array.dtype == np.int32:
            return array  # to be copied
        if bfloat16 and name != "labels":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def _make_batch(self, arrays: dict[str, Any]) -> Batch[torch.Tensor]:
        # Each batch has tensors of its own, since a tensor also has gradients.
        return Batch({n: a.detach() if isinstance(a, torch.Tensor) else torch.from_numpy(a.astype(np.int64)) for n, a in arrays.items()})
