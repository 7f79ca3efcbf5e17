"""Batches of an engine's loader, and iterations over them: what all loaders have in common."""

from __future__ import annotations

import ctypes
import gc
import operator
import weakref
from typing import Any, Callable, Generic, Iterator

import numpy as np

from . import _html, _native
from ._batch import Array, Batch, Info
from ._dataset import Dataset
from ._errors import Error, ForkError, OptionError
from ._types import at_least, share

class Handle:
    """An open loader. What refers to its memory refers to this, so that it is closed after the last array."""

    def __init__(self, verb: str, options: dict[str, Any]) -> None:
        self.about = _native.run(verb, options, own=self._own)

    def _own(self, about: dict[str, Any]) -> None:
        self.number: int = about["loader"]
        weakref.finalize(self, _close, self.number).atexit = False  # a process that ends gives back all


def _close(number: int) -> None:
    if _native.is_usable():  # not in a forked process
        _native.library().hopfeed_close(number)


class Lease:
    """The memory of a batch. What refers to it refers to this, so that it is released after the last array."""

    __slots__ = ("_handle", "__weakref__")

    def __init__(self, handle: Handle, hold: int) -> None:
        self._handle = handle
        _native.release_after(self, hold)


class _Memory:
    """Memory of the loader as numpy takes it, and what keeps it."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: Handle | Lease, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
            "version": 3,
        }


def view(
    owner: Handle | Lease, address: int | None, shape: tuple[int, ...], typestr: str, strides: tuple[int, ...] | None = None
) -> np.ndarray[Any, Any]:
    """An array in memory of the loader."""
    if not address:
        return np.empty(shape, typestr)
    return np.asarray(_Memory(owner, address, shape, strides, typestr))


def view_labels(owner: Handle | Lease, s: _native.BatchStruct) -> np.ndarray[Any, Any]:
    """The labels of a batch: [rows] of classes, else [rows, L]."""
    shape = (s.rows,) if s.label_dtype == _native.INT32 else (s.rows, s.label_columns)
    return view(owner, s.labels, shape, _native.TYPES[s.label_dtype])


class Batches(Generic[Array]):
    """An open loader: an epoch of batches each time that it is iterated over.

    :param verb: opens it, with ``options``
    :param identity: what a state has to have in common with the loader that loads it
    """

    _dataset_kind: type[Dataset] = Dataset
    dataset: Dataset
    seed: int
    batch_size: int
    placement: str
    shuffle: str

    def __init__(self, verb: str, options: dict[str, Any], identity: dict[str, Any], reuse: bool) -> None:
        self._how = verb, {**options, "owned": not reuse}
        handle = Handle(*self._how)
        self.dataset._check_same(handle.about)
        self._reuse = reuse
        self._transform: Callable[[Batch[Array]], Any] | None = None  # of what is yielded
        self._handle: Handle | None = handle
        self._struct = _native.BatchStruct()  # of the batch that the loop has
        self._last: Info | None = None  # with reuse=True: of the batch made of it, unless the loop was interrupted
        self.batch_size, self.seed = operator.index(options["batch_rows"]), operator.index(options["seed"])
        self._rank, self._world = operator.index(options["rank"]), operator.index(options["world"])
        about = handle.about
        self.placement = about["placement"]
        self.shuffle = about["shuffle"]
        self.reasons: list[str] = about["reasons"]  #: for the placement
        self.rows: int = about["rows"]  #: of an epoch, of all ranks
        self._batches: int = about["batches"]
        self._identity = {
            "fingerprint": about["fingerprint"],
            **identity,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "chunk_rows": about["chunk_rows"],
            "shuffle": about["shuffle"],
        }
        self._epoch, self._next = 0, 0  # where the next iteration begins
        self._at = (0, 0)  # what state_dict saves
        self._iteration = self._counted = 0  # the last one, and the last that had a batch

    def _arrays(self, owner: Handle | Lease, struct: _native.BatchStruct) -> dict[str, Any]:
        """What the struct describes, as arrays that keep the owner."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return self._batches

    def __iter__(self) -> Iterator[Batch[Array]]:
        return self._batches_of(self._open_handle())

    def _batches_of(self, handle: Handle) -> Iterator[Batch[Array]]:
        # The epoch begins when its first batch is asked for, and counts when that is there.
        if self._handle is not handle:
            raise Error("the loader is closed")
        self._release_last()
        epoch, first = self._epoch, self._next
        self._iteration += 1
        iteration = self._iteration
        _native.check(_native.library().hopfeed_epoch(handle.number, epoch, first))
        while self._take(handle, iteration):
            yield self._batch(handle, epoch)
        self._at = (epoch + 1, 0)
        if self._counted != iteration:  # it began at its end
            self._epoch, self._next = epoch + 1, 0

    def _take(self, handle: Handle, iteration: int) -> bool:
        """Waits for the next batch, which the struct describes then. False: the epoch is over."""
        # Whatever this does for a batch, it does while the memory is busy and caches hold other
        # things, so that a line takes ten times what it takes alone.
        pointer = ctypes.byref(self._struct)
        collected = False
        while True:
            lib = _native.library()
            if iteration != self._iteration:
                raise Error("another iteration over this loader has begun, or the loader was closed")
            self._keep_last()
            status = lib.hopfeed_next(handle.number, _native.POLL_MS, pointer)  # releases the last
            if status == _native.OPTIONS and not collected:  # all buffers are held
                gc.collect()  # some maybe by cycles
                collected = True
            elif status != _native.WAIT:
                return _native.check(status) == _native.DONE

    def _batch(self, handle: Handle, epoch: int) -> Any:
        """The batch that was taken, after which the loader is once it is there. Unless memory is reused, nothing here keeps it."""
        hold, index, rows, global_rows = _native.BATCH_FIELDS(self._struct)
        owner: Handle | Lease = handle
        info = Info(index, rows, global_rows, hold if self._reuse else 0)
        if self._reuse:
            # The caller may keep the batch and drop the iterator, whose end must not release it.
            self._last = info
        else:
            owner = Lease(handle, hold)
            self._struct.hold = 0
        batch: Any = Batch({**self._arrays(owner, self._struct), "info": info})
        if self._transform is not None:
            batch = self._transform(batch)
        self._at = (epoch, index + 1) if index + 1 < self._batches else (epoch + 1, 0)
        if self._counted != self._iteration:
            self._counted = self._iteration
            self._epoch, self._next = epoch + 1, 0
        return batch

    def _release_last(self) -> None:
        """Releases the batch that the loop has, unless it is held."""
        self._keep_last()
        _native.library().hopfeed_release(self._struct.hold)
        self._struct.hold = 0

    def _keep_last(self) -> None:
        """If the batch that the loop has is held, this is not released with the next one."""
        last = self._last
        if last is not None and last.kept and last.hold == self._struct.hold:
            self._struct.hold = 0

    def _repr_html_(self) -> str:
        rows = [("rows", self.rows), ("batches", f"{self._batches} of {self.batch_size} rows"), ("shuffle", self.shuffle)]
        return _html.table(repr(self).strip("<>").split(":")[0], [*rows, ("placement", f"{self.placement}: {'; '.join(self.reasons)}")])

    # hopfeed.torch has its own of this:
    def _move(self, device: Any, pin_memory: bool, reuse: bool) -> None:
        """Notes where batches shall be."""
        if device is not None or pin_memory:
            raise OptionError("device and pin_memory are for tensors: hopfeed.torch has loaders of them")

    def _share(self, rank: int | None, world_size: int | None) -> tuple[int, int]:
        """Rank and world size."""
        return share(rank, world_size)

    def _load_all_rows(self) -> None:
        """Opens the loader again, with the rows of all ranks."""
        verb, options = self._how
        self._rank, self._world = 0, 1
        self._handle = Handle(verb, {**options, "rank": 0, "world": 1})

    def _open_handle(self) -> Handle:
        _native.library()
        if self._handle is None:
            raise Error("the loader is closed")
        return self._handle

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of an epoch. Without it, the first is 0, and others follow."""
        at_least(0, epoch=epoch)
        epoch = operator.index(epoch)
        self._epoch, self._next, self._at = epoch, 0, (epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: to be saved, and loaded by a loader of the same data, seed, shuffle and batch
        size. Its rank, world size and placement may differ. During an iteration, it is after the batch
        that the loop has."""
        return {"version": 1, "epoch": self._at[0], "batch": self._at[1], **self._identity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration begin where a state was saved."""
        if state.get("version") != 1:
            raise OptionError(f"state of version {state.get('version')}: want 1")
        for name, value in self._identity.items():
            if state.get(name) != value:
                raise OptionError(f"the state is of a loader with {name} {state.get(name)!r}, and this one has {value!r}: open it with the same")
        epoch, batch = state["epoch"], state["batch"]
        if not (0 <= epoch and 0 <= batch <= self._batches):
            raise OptionError(f"state at batch {batch} of epoch {epoch}: an epoch has {self._batches} batches")
        self._epoch, self._next, self._at = epoch, batch, (epoch, batch)

    def stats(self) -> dict[str, Any]:
        """Counters and times of the epochs that have ended, and by which paths files were read."""
        returned = ctypes.c_void_p()
        _native.check(_native.library().hopfeed_stats(self._open_handle().number, ctypes.byref(returned)))
        stats: dict[str, Any] = _native.take(returned)
        return stats

    def close(self) -> None:
        """Ends the iteration. The memory is given back when no array refers to it any more."""
        self._handle = self._last = None
        self._iteration += 1

    def __enter__(self) -> Batches[Array]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise ForkError(
            "a loader cannot be sent to another process. It needs no worker processes, since it reads ahead by threads: "
            "iterate over it, or give it to a DataLoader with batch_size=None and num_workers=0"
        )
