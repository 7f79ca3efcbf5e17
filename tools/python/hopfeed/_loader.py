"""Stores, and loaders of their batches."""

from __future__ import annotations

import ctypes
import operator
import os
import weakref
from typing import Any, Generic, Iterable, Iterator, TypeVar

import numpy as np

from . import _native
from ._errors import Error, ForkError, OptionError

Array = TypeVar("Array")


class Dataset:
    """A hop store or a graph on disk: what its manifest says.

    ``manifest`` has all fields; the most used ones are attributes. ``matrices`` lists (operator, hop),
    of which hop 0, the input, has the operator ``"x"``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.manifest: dict[str, Any] = _native.run("inspect", {"path": self.path})
        m = self.manifest
        self.kind: str = m["kind"]  # "store" or "graph"
        self.name: str = m["name"]
        self.nodes: int = m["nodes"]
        self.rows: int = m["rows"]
        self.features: int = m["features"]
        self.dtype: str = m["dtype"]
        self.classes: int = m["classes"]
        self.label_columns: int = m["label_columns"]
        self.regions: dict[str, int] = {r["name"]: r["rows"] for r in m["regions"] or []}
        self.matrices: list[tuple[str, int]] = [(operator, hop) for operator, hop in m["matrices"] or []]

    def choose(self, operators: str | Iterable[str] | None = None, hops: int | Iterable[int] | None = None) -> list[tuple[str, int]]:
        """The matrices of some operators (None: all) and some hops: a list of them, or all up to a
        number. Hop 0 belongs to all operators."""
        wanted = {operators} if isinstance(operators, str) else None if operators is None else set(operators)
        numbers = None if hops is None else set(range(hops + 1)) if isinstance(hops, (int, np.integer)) else set(hops)
        names, there = {o for o, _ in self.matrices}, {h for _, h in self.matrices}
        if wanted is not None and not wanted <= names:
            raise OptionError(f"{self.path} has no operator {sorted(wanted - names)} (it has {sorted(names - {'x'})})")
        if numbers is not None and not numbers <= there:
            raise OptionError(f"{self.path} has no hop {sorted(numbers - there)} (it has {sorted(there)})")
        return [
            (o, h) for o, h in self.matrices if (wanted is None or o in wanted or h == 0) and (numbers is None or h in numbers)
        ]

    def __repr__(self) -> str:
        return f"<hopfeed.Dataset {self.path!r}: {self.kind} of {self.rows} rows, {len(self.matrices)} matrices of {self.features} {self.dtype}>"


class Batch(dict, Generic[Array]):  # type: ignore[type-arg]
    """What one step of training sees: a dict of arrays.

    ``"x"``: features [rows, matrices, features], or, with ``stacked=False``, an array [rows, features]
    for each matrix under its name, such as ``"x/hop-0"`` and ``"sym/hop-1"``. ``"labels"``: [rows], the
    class, or [rows, L]; -1 (of values NaN) is unlabelled. ``"nodes"`` and, if asked for, ``"row_numbers"``:
    [rows].

    The arrays are memory of the loader, and must not be written to. They are valid until the next
    batch is asked for or the loader is iterated over again, or, after ``hold()``, until ``release()``.
    Afterwards they show other rows.
    """

    index: int  #: within the epoch
    rows: int  #: of this rank
    global_rows: int  #: of all ranks: what a sum of losses is divided by
    _hold: _Hold

    def hold(self) -> Batch[Array]:
        """Keeps the memory of the batch until ``release()``. A loader has only ``buffers`` of them."""
        self._hold.kept = True
        return self

    def release(self) -> None:
        """Gives the memory back."""
        self._hold.release()


class _Handle:
    """An open loader. What refers to its memory refers to this, so that it is closed after the last array."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.about = _native.run("open", options)
        self.number: int = self.about["loader"]
        self.holds: set[int] = set()  # of batches that are not released
        weakref.finalize(self, _close, self.number, self.holds).atexit = False  # a process that ends gives back all


def _close(number: int, holds: set[int]) -> None:
    if _native.is_usable():  # not in a forked process
        _native.library().hopfeed_close(number)
        while holds:
            _native.library().hopfeed_release(holds.pop())


class _Hold:
    __slots__ = ("holds", "number", "kept")

    def __init__(self, handle: _Handle, number: int) -> None:
        self.holds, self.number, self.kept = handle.holds, number, False
        self.holds.add(number)

    def release(self) -> None:
        if self.number in self.holds:
            self.holds.remove(self.number)
            _native.check(_native.library().hopfeed_release(self.number))


class _View:
    """Memory as numpy takes it, and its owner."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, owner: _Handle, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            "typestr": typestr,
            "version": 3,
        }


class Loader(Generic[Array]):
    """Batches of a region of a hop store, an epoch each time that it is iterated over.

    Every row comes once an epoch, in an order that depends on ``seed``, epoch, ``shuffle`` and
    ``batch_size`` alone. The loader reads ahead by threads of its own, so it needs no worker processes.

    :param store: a hop store, or its path
    :param batch_size: rows of a batch, of all ranks together
    :param shuffle: ``"chunk"`` (chunks are reshuffled, which storage is read fast by), ``"rr"`` (rows are),
        ``"auto"`` or, for the order of the store, ``"none"``
    :param placement: where the input lives: ``"device"`` and ``"host"`` (both host memory; the first
        copies no batch that is one run of rows), ``"storage"`` or ``"auto"``
    :param region: ``"train"``, ``"valid"``, ``"test"`` or ``"rest"``
    :param hops: the hops to load: all up to a number, or a list (None: all)
    :param operators: the operators to load (None: all)
    :param rank: which of ``world_size`` processes this one is. All get a share of each batch
    :param dtype: ``"float32"``, or ``"stored"`` for the type of the store (bfloat16 as uint16)
    :param nodes: batches have the numbers of their nodes in the graph
    :param row_numbers: batches have the numbers of their rows in the store
    :param stacked: one array of all matrices, or else one for each
    :param buffers: batches in memory, of which one less may be held (default 2)
    :param memory: such as ``"8GiB"``: what placements may use (default: what the machine has, divided by
        LOCAL_WORLD_SIZE, which torchrun sets)
    :param threads: that read and gather (default: all)
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | Dataset,
        batch_size: int = 8000,
        shuffle: str = "chunk",
        placement: str = "auto",
        *,
        region: str = "train",
        hops: int | Iterable[int] | None = None,
        operators: str | Iterable[str] | None = None,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        dtype: str = "float32",
        nodes: bool = True,
        row_numbers: bool = False,
        stacked: bool = True,
        buffers: int | None = None,
        memory: str | None = None,
        threads: int | None = None,
    ) -> None:
        options = open_options(locals())
        self.dataset: Dataset = options.pop("dataset")
        self._stacked, self._nodes, self._row_numbers = stacked, nodes, row_numbers
        handle = _Handle(options)
        self._handle: _Handle | None = handle
        self._last: _Hold | None = None  # of the batch that the loop has
        self.batch_size, self.seed = operator.index(batch_size), operator.index(seed)
        about = handle.about
        self.matrices: list[str] = about["matrices"]
        self.placement: str = about["placement"]
        self.shuffle: str = about["shuffle"]
        self.reasons: list[str] = about["reasons"]  #: for the placement
        self.rows: int = about["rows"]  #: of an epoch, of all ranks
        self._batches: int = about["batches"]
        self._identity = {
            "fingerprint": about["fingerprint"],
            "region": region,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "chunk_rows": about["chunk_rows"],
            "shuffle": about["shuffle"],
        }
        self._epoch, self._next = 0, 0  # where the next iteration begins
        self._at = (0, 0)  # what state_dict saves
        self._iteration = 0

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return self._batches

    def __iter__(self) -> Iterator[Batch[Array]]:
        handle = self._open_handle()
        lib, number = _native.library(), handle.number
        self._release_last()
        epoch, first = self._epoch, self._next
        self._epoch, self._next = epoch + 1, 0
        self._at = (epoch, first)
        self._iteration += 1
        iteration = self._iteration
        _native.check(lib.hopfeed_epoch(number, epoch, first))
        return self._batches_of(handle, iteration, epoch)

    def _batches_of(self, handle: _Handle, iteration: int, epoch: int) -> Iterator[Batch[Array]]:
        struct = _native.BatchStruct()
        while True:
            status = _native.WAIT
            while status == _native.WAIT:
                lib = _native.library()
                if iteration != self._iteration:
                    raise Error("another iteration over this loader has begun, or the loader was closed")
                self._release_last()
                status = _native.check(lib.hopfeed_next(handle.number, _native.POLL_MS, ctypes.byref(struct)))
            if status == _native.END:
                self._at = (epoch + 1, 0)
                return
            # The caller may keep the batch and drop this generator, whose end must not release it.
            self._last = hold = _Hold(handle, struct.hold)
            batch = self._batch(handle, struct)
            batch._hold = hold
            last = struct.index + 1 == self._batches
            self._at = (epoch + 1, 0) if last else (epoch, struct.index + 1)
            yield batch
            del batch

    def _release_last(self) -> None:
        last, self._last = self._last, None
        if last and not last.kept:
            last.release()

    def _batch(self, handle: _Handle, s: _native.BatchStruct) -> Batch[Array]:
        batch: Batch[Array] = Batch()
        batch.index, batch.rows, batch.global_rows = s.index, s.rows, s.global_rows

        def view(address: int | None, shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str) -> np.ndarray[Any, Any]:
            if not address:
                return np.empty(shape, typestr)
            return np.asarray(_View(handle, address, shape, strides, typestr))

        typestr = _native.TYPES[s.dtype]
        size = int(typestr[2:])
        x = view(s.features, (s.rows, s.matrices, s.columns), (s.row_bytes, s.matrix_bytes or size, size), typestr)
        labels = view(s.labels, (s.rows,) if s.label_dtype == 4 else (s.rows, s.label_columns), None, _native.TYPES[s.label_dtype])
        bfloat16 = s.dtype == _native.BFLOAT16
        if self._stacked:
            batch["x"] = self._features(x, bfloat16)
        else:
            for m, name in enumerate(self.matrices):
                batch[name] = self._features(x[:, m], bfloat16)
        batch["labels"] = self._labels(labels)
        if self._nodes:
            batch["nodes"] = self._numbers(view(s.nodes, (s.rows,), None, "<u4"))
        if self._row_numbers:
            batch["row_numbers"] = self._numbers(view(s.row_numbers, (s.rows,), None, "<u4"))
        return batch

    # How arrays of numpy become those of the batch: see hopfeed.torch.
    def _features(self, array: np.ndarray[Any, Any], bfloat16: bool) -> Any:
        return _read_only(array)

    def _labels(self, array: np.ndarray[Any, Any]) -> Any:
        return _read_only(array)

    def _numbers(self, array: np.ndarray[Any, Any]) -> Any:
        return _read_only(array)

    def _open_handle(self) -> _Handle:
        _native.library()
        if self._handle is None:
            raise Error("the loader is closed")
        return self._handle

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of an epoch. Without it, the first is 0, and others follow."""
        epoch = operator.index(epoch)
        self._epoch, self._next, self._at = epoch, 0, (epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: to be saved, and loaded by a loader of the same store, region, seed, shuffle
        and batch size. Its rank, world size and placement may differ. During an iteration, it is after
        the batch that the loop has."""
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
        self._handle = None
        self._iteration += 1

    def __enter__(self) -> Loader[Array]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise ForkError(
            "a loader cannot be sent to another process. It needs no worker processes, since it reads ahead by threads: "
            "iterate over it, or give it to a DataLoader with batch_size=None and num_workers=0"
        )

    def __repr__(self) -> str:
        return f"<hopfeed.Loader of {self.dataset.path!r}: {self._batches} batches of {self.batch_size} rows from {self.placement}, shuffle {self.shuffle}>"


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


def open_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of the verbs "open" and "plan" from the arguments of Loader."""
    store = given["store"]
    dataset = store if isinstance(store, Dataset) else Dataset(store)
    if dataset.kind != "store":
        raise OptionError(f"{dataset.path} is a graph: hopfeed.propagate({dataset.path!r}, STORE) makes a store of it")
    if given["dtype"] not in ("float32", "stored"):
        raise OptionError(f"dtype {given['dtype']!r}: want 'float32' or 'stored'")
    return {
        "dataset": dataset,
        "store": dataset.path,
        "region": given["region"],
        "matrices": dataset.choose(given["operators"], given["hops"]),
        "batch_rows": given["batch_size"],
        "world": given["world_size"],
        "rank": given["rank"],
        "placement": given["placement"],
        "shuffle": given["shuffle"],
        "seed": given["seed"],
        "stored": given["dtype"] == "stored",
        "nodes": given["nodes"],
        "row_numbers": given["row_numbers"],
        "buffers": given["buffers"],
        "memory": given["memory"],
        "processes": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "threads": given["threads"],
    }
