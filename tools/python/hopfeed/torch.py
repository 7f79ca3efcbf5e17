"""Loaders for PyTorch."""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import warnings
from typing import Any, Callable, Iterator, Literal

import numpy as np
import torch
import torch.utils.data._utils.collate as _collate
from torch.utils.data import IterableDataset, get_worker_info

from ._ahead import Mover
from ._batch import Batch, Info
from ._batches import Batches
from ._dataset import Dataset as _Dataset
from ._errors import ForkError, OptionError
from ._arrays import sign_store
from ._commands import evaluate as evaluate_run
from ._loader import Loader as _Loader
from ._neighbor import Block as _Block
from ._neighbor import LinkNeighborLoader as _LinkNeighborLoader
from ._neighbor import NeighborLoader as _NeighborLoader
from ._metrics import Metric, scored
from ._pairs import PairLoader as _PairLoader
from ._predict import call_of, outputs, write
from ._progress import Progress
from ._types import Path, Split, share


def _has_group() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _group() -> tuple[int, int]:
    """Rank and world size of torch.distributed."""
    return (torch.distributed.get_rank(), torch.distributed.get_world_size()) if _has_group() else (0, 1)


class _OfGroup:
    """What all loaders below have in common: each process of a group iterates over its share of every batch."""

    _dataset_kind: type[_Dataset]
    _opened: tuple[int, int] | None  # the group's rank and world size then, where they were not given

    def _share(self, rank: int | None, world_size: int | None) -> tuple[int, int]:
        """Rank and world size: those of torch.distributed, where none are given."""
        given = share(rank, world_size)
        processes = os.environ.get("WORLD_SIZE", "1")
        if rank is None and processes != "1" and "RANK" in os.environ and not _has_group():
            raise OptionError(
                f"this is process {os.environ['RANK']} of {processes} of torchrun, and there is no group, so each would load all rows: call "
                "torch.distributed.init_process_group before, or give rank and world_size (0 and 1 for all rows)"
            )
        self._opened = _group() if rank is None else None
        return self._opened or given

    def _check_process(self) -> None:
        """Refuses to iterate where rows would come several times, or be lost."""
        if get_worker_info() is not None:
            raise ForkError("every worker process would yield all batches: give the DataLoader num_workers=0")
        now = _group()
        if self._opened and self._opened != now:
            raise OptionError(
                "this loader was opened as process %d of %d, and this is process %d of %d of torch.distributed: " % (*self._opened, *now)
                + "open it when the group is there (after init_process_group, Accelerator() or TrainingArguments; for Lightning by "
                "hopfeed.lightning.DataModule), or give rank and world_size"
            )
        if _is_dispatched():
            self._begin_dispatch()

    def _begin_dispatch(self) -> None:
        """Prepares for accelerate, which takes batches from process 0 alone and cuts them up."""
        raise OptionError(
            "accelerate would cut the batches of process 0 up by rows, which only those of a Loader without reuse have: give the loop, or "
            "accelerator.prepare, the loader itself instead of a DataLoader of it"
        )


class _Torch(_OfGroup, Batches[torch.Tensor], IterableDataset):  # type: ignore[type-arg]
    """What the loaders of the engine have in common."""

    _mover: Mover | None = None

    def __iter__(self) -> Iterator[Batch[torch.Tensor]]:
        self._check_process()
        batches = Batches.__iter__(self)
        return self._moved(batches, self._mover) if self._mover else batches

    def _move(self, device: Any, pin_memory: bool, reuse: bool) -> None:
        self._mover = Mover(device, pin_memory, reuse)

    def _moved(self, batches: Iterator[Batch[torch.Tensor]], mover: Mover) -> Iterator[Batch[torch.Tensor]]:
        """The batches where they shall be, each begun to be moved before the loop gets the one before it."""
        ahead, seen = [], self._at  # by the loop
        for batch in batches:
            at, self._at = self._at, seen
            ahead.append((*mover.start(batch), at))
            del batch
            if len(ahead) > 1:
                seen = ahead[0][2]
                yield self._give(mover, *ahead.pop(0))
        end, self._at = self._at, seen
        for last in ahead:
            yield self._give(mover, *last)
        self._at = end

    def _give(self, mover: Mover, batch: Batch[torch.Tensor], there: Any, at: tuple[int, int]) -> Batch[torch.Tensor]:
        given = mover.finish(batch, there)
        self._at = at
        return given

    def _share(self, rank: int | None, world_size: int | None) -> tuple[int, int]:
        if _group()[1] > 1 and "LOCAL_WORLD_SIZE" not in os.environ:
            warnings.warn(
                "each process takes memory as if it were alone on its machine: set LOCAL_WORLD_SIZE in the environment to "
                "the number of processes on a machine, as torchrun does",
                stacklevel=3,
            )
        return super()._share(rank, world_size)


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


class Dispatched(Batch[torch.Tensor]):
    """A batch that accelerate deals out: tensors alone. All processes get as many rows, and each counts them itself."""

    @classmethod
    def of(cls, batch: Any) -> Any:
        """A batch, without its numbers; what a transform made of one stays as it is."""
        return cls({name: item for name, item in batch.items() if name != "info"}) if type(batch) is Batch else batch

    @property
    def info(self) -> Info:
        rows = len(next(iter(self.values())))
        return Info(-1, rows, rows * _group()[1])


def _sum_info(rows: list[Info], **_: Any) -> Info:
    """The numbers of the batch that a DataLoader makes of rows of a ``Dataset``."""
    return Info(0, sum(info.rows for info in rows), sum(info.global_rows for info in rows))


getattr(_collate, "default_collate_fn_map", {})[Info] = _sum_info  # which PyTorch has from 2.0 on


def _is_copied(name: str, array: np.ndarray[Any, Any]) -> bool:
    """Whether an array becomes a copy as int64, which losses and indices want."""
    return name in ("n_id", "seed_id", "row_numbers", "input_id") or name == "y" and array.dtype == np.int32


class Loader(_Torch, _Loader[torch.Tensor]):
    """``hopfeed.Loader`` with tensors, as an ``IterableDataset``.

    Features are the loader's memory, without a copy. Labels that are classes, and the numbers of nodes
    and rows, are copies as int64, which losses and indices want. Rank and world size are those of
    ``torch.distributed``, where that is initialised and they are not given.

    Iterate over it, or give it to a ``DataLoader`` with ``batch_size=None`` and ``num_workers=0``.
    """

    _is_dispatched = False  # by accelerate

    def __iter__(self) -> Iterator[Batch[torch.Tensor]]:
        batches = _Torch.__iter__(self)
        return map(Dispatched.of, batches) if self._is_dispatched else batches

    def _begin_dispatch(self) -> None:
        if self._reuse:  # accelerate has several batches at once
            _Torch._begin_dispatch(self)
        if self._rank == 0 and not self._is_dispatched:
            self._load_all_rows()
        self._is_dispatched = True

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

    def adj_t(self) -> torch.Tensor:
        """The edges as a sparse matrix [destinations, sources] of ones, in CSR form, which is how layers of PyTorch
        Geometric sum fastest: ``conv((x, x[: block.destinations]), block.adj_t())``."""
        ones = torch.ones(len(self.indices), device=self.indices.device)
        return torch.sparse_csr_tensor(self.indptr, self.indices, ones, (self.destinations, self.sources), check_invariants=False)

    def tensors(self) -> list[torch.Tensor]:
        """All that it has."""
        return [t for t in (self.indptr, self.indices, self.weights, self.e_id) if t is not None]

    def record_stream(self, stream: Any) -> None:
        """``record_stream`` of each tensor."""
        for tensor in self.tensors():
            tensor.record_stream(stream)

    def to(self, device: Any, non_blocking: bool = False) -> Block:
        """The block on a device."""
        return self._each(lambda array: array.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Block:
        """A copy of the block in pinned memory."""
        return self._each(torch.Tensor.pin_memory)

    def _each(self, move: Callable[[torch.Tensor], torch.Tensor]) -> Block:
        e_id = None if self.e_id is None else move(self.e_id)
        return Block(self.destinations, self.sources, move(self.indptr), move(self.indices), move(self.weights), e_id, self.apart)


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


class PairLoader(_OfGroup, _PairLoader[torch.Tensor], IterableDataset):  # type: ignore[type-arg]
    """``hopfeed.PairLoader`` with tensors, as an ``IterableDataset``."""

    def __iter__(self) -> Iterator[Batch[torch.Tensor]]:
        self._check_process()
        return _PairLoader.__iter__(self)

    def _as_array(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array))


class Dataset(_Dataset):
    """``hopfeed.Dataset`` whose ``loader`` has tensors."""

    def loader(self, **options: Any) -> Any:
        return self._open(Loader, NeighborLoader, options)


open = Dataset
_OfGroup._dataset_kind = Dataset


def sign(
    data: Any, hops: int = 3, operator: str = "sym:noloops", *, folder: Path | None = None, progress: Progress = False, **options: Any
) -> Loader:
    """A loader of the propagated features of a graph, without files of yours: the store is in a temporary folder, which
    goes with the last loader of it. ``loader.dataset.loader(split="val")`` opens others.

    ``batch.x`` is [batch_size, hops + 1, features]: of ``T.SIGN(hops)`` of PyTorch Geometric, ``x``, ``x1`` and so on,
    to 2e-7 with the default operator.

    :param data: a ``Data`` of PyTorch Geometric, or a graph or its path. A warning names attributes that are left out
    :param hops: how many there are
    :param operator: what they are made by
    :param folder: where the temporary folder is made (default: as ``tempfile`` does)
    :param progress: as that of ``propagate``
    :param options: those of ``Loader``
    """
    inspect.signature(Loader).bind(None, **options)  # before anything is written
    return Loader(sign_store(data, Dataset, hops, operator, progress, folder), **options)


def predict(
    model: torch.nn.Module,
    data: Path | _Dataset | Loader | NeighborLoader,
    output: Path | None = None,
    *,
    call: Callable[[Batch[torch.Tensor]], torch.Tensor] | None = None,
    batch_size: int = 8000,
    device: Any = None,
    force: bool = False,
    progress: Progress = True,
) -> Any:
    """Applies a model to all rows of a store, or to those of a loader.

    :param model: it gets ``batch.x``; of sampled batches ``batch.x, batch.blocks`` or ``batch.x, batch.edge_index``
    :param data: a store, a graph's loader with all in-neighbours (``num_neighbors=[-1, -1]``), or another loader of nodes;
        with ``output``, one of a process of a group, which has a share of the rows, is an ``OptionError``
    :param output: a table to write, .arrow, .parquet or .csv (needs pyarrow), that is there when it is complete: with
        ``node_id``, the outputs ``output_0`` and so on and, where there is one for each class, the ``class`` of the
        largest
    :param call: how the model takes a batch, where that is another way: a function that returns [batch_size, outputs]
    :param batch_size: rows of a batch, of a store
    :param device: where the model is, and batches are moved to
    :param force: replace an output that exists, which is else an ``OptionError``
    :param progress: as that of ``propagate``
    :return: the rows that were written; without ``output`` the numbers of nodes [rows] and the outputs [rows, outputs]
    """
    loaders: Iterator[Any] = iter([data])
    if isinstance(data, Batches):
        if output is not None and data._world > 1:
            raise OptionError(
                f"the loader has the share of process {data._rank} of {data._world}, and each would write {os.fspath(output)}: open it "
                "with rank=0, world_size=1 in one process, or gather what predict returns without output"
            )
        store, total = data.dataset, data.rows
    else:
        store = data if isinstance(data, _Dataset) else Dataset(data)
        parts: Any = [part for part, rows in store.regions.items() if rows]
        loaders = (Loader(store, batch_size, False, split=part, rank=0, world_size=1) for part in parts)
        total = store.rows
    with contextlib.closing(outputs(model, loaders, total, call or call_of(model, device), progress)) as found:
        if output is not None:
            return write(found, output, store.classes, force)
        nodes, out = zip(*found)
    return torch.from_numpy(np.concatenate(nodes)), torch.cat(out)


def evaluate(
    model: torch.nn.Module | Path,
    data: Path | _Dataset | Loader | NeighborLoader,
    *,
    split: Split | Literal["all"] = "test",
    split_index: int | None = None,
    metric: Metric | Callable[[torch.Tensor, torch.Tensor], Any] | None = None,
    call: Callable[[Batch[torch.Tensor]], torch.Tensor] | None = None,
    batch_size: int = 8000,
    device: Any = None,
    progress: Progress = True,
) -> dict[str, Any]:
    """The value of a metric for a model, on the labelled rows of a part of a store, or of a loader's nodes.

    :param model: as that of ``predict``; or the run folder of a training, for ``hopfeed.evaluate``
    :param data: a store, a graph's loader with all in-neighbours (``num_neighbors=[-1, -1]``) of the nodes to evaluate, or
        another loader of nodes; one with a share of the rows is an ``OptionError``
    :param split: of a store: ``"test"``, ``"val"``, ``"train"``, ``"rest"`` or ``"all"``
    :param split_index: number of the split that it names a part of
    :param metric: ``"accuracy"`` (default of classes), ``"micro-f1"`` (of several labels), ``"macro-f1"``, ``"roc-auc"``,
        ``"mse"`` (of values) or ``"mae"``, as ``hopfeed train --help`` defines them; or a function of outputs [rows, outputs]
        and labels [rows] or [rows, L], such as one of torchmetrics
    :param call: as that of ``predict``, and so are ``batch_size``, ``device`` and ``progress``
    :return: the ``metric``, its ``value`` (None without labelled rows) and ``rows``, the number of labelled ones; of a run
        folder what ``hopfeed.evaluate`` returns
    """
    if not isinstance(model, torch.nn.Module):
        options: Any = {"split": split, "split_index": split_index, "metric": metric, "progress": progress}
        return evaluate_run(data, model, **options)  # type: ignore[arg-type]
    loader: Any = data
    if not isinstance(data, Batches):
        loader = Loader(data, batch_size, False, split=split, split_index=split_index, rank=0, world_size=1)
    if loader._world > 1:
        raise OptionError(f"the loader has the share of process {loader._rank} of {loader._world}: open it with rank=0, world_size=1")
    nodes, out = predict(model, loader, call=call, device=device, progress=progress)
    dataset = loader.dataset
    labels = dataset.y[dataset._rows_of(nodes.numpy())]
    return scored(metric, out, labels, "values" if dataset.manifest.get("label_values") else "classes" if labels.ndim == 1 else "labels")


for _tensors, _arrays in ((Loader, _Loader), (NeighborLoader, _NeighborLoader), (LinkNeighborLoader, _LinkNeighborLoader), (PairLoader, _PairLoader), (Block, _Block)):
    _tensors.__doc__ = f"{_tensors.__doc__}\n{_arrays.__doc__}"  # which has the arguments
