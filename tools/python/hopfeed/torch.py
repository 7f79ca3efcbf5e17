"""Loaders for PyTorch."""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterator

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from ._batch import Batch
from ._batches import Batches
from ._dataset import Dataset as _Dataset
from ._errors import ForkError, OptionError
from ._loader import Loader as _Loader
from ._neighbor import Block as _Block
from ._neighbor import LinkNeighborLoader as _LinkNeighborLoader
from ._neighbor import NeighborLoader as _NeighborLoader
from ._pairs import PairLoader as _PairLoader


class _Torch(Batches[torch.Tensor], IterableDataset):  # type: ignore[type-arg]
    """What the loaders below have in common."""

    def __iter__(self) -> Iterator[Batch[torch.Tensor]]:
        if get_worker_info() is not None:
            raise ForkError("a loader needs no worker processes, since it reads ahead by threads: give the DataLoader num_workers=0")
        if _is_dispatched():
            raise OptionError(
                "accelerate would deal out the batches of process 0 alone, which are its share of each batch: give the loop, or "
                "accelerator.prepare, the loader itself instead of a DataLoader of it"
            )
        return Batches.__iter__(self)

    @staticmethod
    def _share(rank: int | None, world_size: int | None) -> tuple[int, int]:
        """Rank and world size: those of torch.distributed, where none are given."""
        if rank is None and world_size is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return _Loader._share(rank, world_size)


def _is_dispatched() -> bool:
    """Whether accelerate iterates in process 0 for all processes."""
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    if state is None or state._shared_state.get("num_processes", 1) == 1:
        return False
    frame = sys._getframe(1)
    while frame := frame.f_back:  # type: ignore[assignment]
        if type(frame.f_locals.get("self")).__name__ == "DataLoaderDispatcher":
            return True
    return False


def _is_copied(name: str, array: np.ndarray[Any, Any]) -> bool:
    """Whether an array becomes a copy as int64, which losses and indices want."""
    return name in ("n_id", "row_numbers", "input_id") or name == "y" and array.dtype == np.int32


class Loader(_Torch, _Loader[torch.Tensor]):
    """``hopfeed.Loader`` with tensors, as an ``IterableDataset``.

    Features are the loader's memory, without a copy. Labels that are classes, and the numbers of nodes
    and rows, are copies as int64, which losses and indices want. Rank and world size are those of
    ``torch.distributed``, where that is initialised and they are not given.

    Iterate over it, or give it to a ``DataLoader`` with ``batch_size=None`` and ``num_workers=0``.
    """

    def _as_array(self, name: str, array: np.ndarray[Any, Any], bfloat16: bool) -> Any:
        if _is_copied(name, array):
            array = array.astype(np.int64)
        elif bfloat16 and name != "y":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


class Block(_Block[torch.Tensor]):
    """``hopfeed.Block`` with tensors."""

    __slots__ = ()

    def edge_index(self) -> torch.Tensor:
        """A copy of the edges as int64 [2, edges], sources and below them destinations, as PyTorch Geometric
        wants them."""
        return torch.stack([self.indices.long(), torch.repeat_interleave(self.indptr.diff().long())])

    def matrix(self) -> torch.Tensor:
        """The block as a sparse matrix [destinations, sources] of its weights, in CSR form, without a copy."""
        return torch.sparse_csr_tensor(self.indptr, self.indices, self.weights, (self.destinations, self.sources), check_invariants=False)

    def to(self, device: Any, non_blocking: bool = False) -> Block:
        """The block on a device."""
        return self._each(lambda array: array.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Block:
        """A copy of the block in pinned memory."""
        return self._each(torch.Tensor.pin_memory)

    def _each(self, move: Callable[[torch.Tensor], torch.Tensor]) -> Block:
        e_id = None if self.e_id is None else move(self.e_id)
        return Block(self.destinations, self.sources, move(self.indptr), move(self.indices), move(self.weights), e_id)


class NeighborLoader(_Torch, _NeighborLoader[torch.Tensor]):
    """``hopfeed.NeighborLoader`` with tensors, as an ``IterableDataset``.

    Features and blocks are the loader's memory, without a copy. Labels that are classes, and the numbers
    of nodes, are copies as int64. Rank, world size and ``DataLoader`` are as those of ``Loader``.
    """

    _block_type = Block

    def _as_array(self, name: str, array: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64) if _is_copied(name, array) else array)


class LinkNeighborLoader(_Torch, _LinkNeighborLoader[torch.Tensor]):
    """``hopfeed.LinkNeighborLoader`` with tensors, as an ``IterableDataset``; all but that is as in ``NeighborLoader``."""

    _block_type = Block

    def _as_array(self, name: str, array: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(array.astype(np.int64) if _is_copied(name, array) else array)


class PairLoader(_PairLoader[torch.Tensor], IterableDataset):  # type: ignore[type-arg]
    """``hopfeed.PairLoader`` with tensors, as an ``IterableDataset``."""

    def __iter__(self) -> Iterator[Batch[torch.Tensor]]:
        if get_worker_info() is not None:
            raise ForkError("every worker process would yield all batches: give the DataLoader num_workers=0")
        return _PairLoader.__iter__(self)

    _share = staticmethod(_Torch._share)

    def _as_array(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array))


class Dataset(_Dataset):
    """``hopfeed.Dataset`` whose ``loader`` has tensors."""

    def loader(self, **options: Any) -> Any:
        return self._open(Loader, NeighborLoader, options)


open = Dataset


for _tensors, _arrays in ((Loader, _Loader), (NeighborLoader, _NeighborLoader), (LinkNeighborLoader, _LinkNeighborLoader), (PairLoader, _PairLoader), (Block, _Block)):
    _tensors.__doc__ = f"{_tensors.__doc__}\n{_arrays.__doc__}"  # which has the arguments
