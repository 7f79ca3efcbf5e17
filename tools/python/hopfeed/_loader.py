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
    _number: int  # of its hold
    _kept = False

    def hold(self) -> Batch[Array]:
        """Keeps the memory of the batch until ``release()``. A loader has only ``buffers`` of them."""
        self._kept = True
        return self

    def release(self) -> None:
        """Gives the memory back."""
        _native.library().hopfeed_release(self._number)


class _Handle:
    """An open loader. What refers to its memory refers to this, so that it is closed after the last array."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.about = _native.run("open", options)
        self.number: int = self.about["loader"]
        weakref.finalize(self, _close, self.number).atexit = False  # a process that ends gives back all


def _close(number: int) -> None:
    if _native.is_usable():  # not in a forked process
        _native.library().hopfeed_close(number)


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
    :param buffers: batches in memory, of which one less may be held (default 3)
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
        self._struct = _native.BatchStruct()  # of the batch that the loop has
        self._last: Batch[Array] | None = None  # made of it, unless the loop was interrupted
        # Arrays of a batch, by where it lies: few places come again and again, and making arrays is slow.
        self._arrays: dict[tuple[int, int, int], dict[str, Any]] = {}
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
        self._keep_last()
        lib.hopfeed_release(self._struct.hold)
        epoch, first = self._epoch, self._next
        self._epoch, self._next = epoch + 1, 0
        self._at = (epoch, first)
        self._iteration += 1
        iteration = self._iteration
        _native.check(lib.hopfeed_epoch(number, epoch, first))
        return self._batches_of(handle, iteration, epoch)

    def _batches_of(self, handle: _Handle, iteration: int, epoch: int) -> Iterator[Batch[Array]]:
        # Whatever this does for a batch, it does while the memory is busy and caches hold other
        # things, so that a line takes ten times what it takes alone.
        struct, fields = self._struct, _native.BATCH_FIELDS
        pointer = ctypes.byref(struct)
        while True:
            status = _native.WAIT
            while status == _native.WAIT:
                lib = _native.library()
                if iteration != self._iteration:
                    raise Error("another iteration over this loader has begun, or the loader was closed")
                self._keep_last()
                status = lib.hopfeed_next(handle.number, _native.POLL_MS, pointer)  # releases the last
            if status:
                _native.check(status)
                self._at = (epoch + 1, 0)
                return
            hold, index, rows, global_rows, features, labels = fields(struct)
            arrays = self._arrays.get((features, labels, rows)) or self._make_arrays(handle, struct)
            # The caller may keep the batch and drop this generator, whose end must not release it.
            self._last = batch = self._make_batch(arrays)
            batch._number = hold
            batch.index, batch.rows, batch.global_rows = index, rows, global_rows
            index += 1
            self._at = (epoch, index) if index < self._batches else (epoch + 1, 0)
            yield batch
            del batch

    def _keep_last(self) -> None:
        """If the batch that the loop has is held, this is not released with the next one."""
        last = self._last
        if last is not None and last._kept and last._number == self._struct.hold:
            self._struct.hold = 0

    def _make_arrays(self, handle: _Handle, s: _native.BatchStruct) -> dict[str, Any]:
        def view(address: int | None, shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str) -> np.ndarray[Any, Any]:
            if not address:
                return np.empty(shape, typestr)
            return np.asarray(_View(handle, address, shape, strides, typestr))

        typestr = _native.TYPES[s.dtype]
        size = int(typestr[2:])
        x = view(s.features, (s.rows, s.matrices, s.columns), (s.row_bytes, s.matrix_bytes or size, size), typestr)
        arrays = {"x": x} if self._stacked else {name: x[:, m] for m, name in enumerate(self.matrices)}
        arrays["labels"] = view(s.labels, (s.rows,) if s.label_dtype == 4 else (s.rows, s.label_columns), None, _native.TYPES[s.label_dtype])
        if self._nodes:
            arrays["nodes"] = view(s.nodes, (s.rows,), None, "<u4")
        if self._row_numbers:
            arrays["row_numbers"] = view(s.row_numbers, (s.rows,), None, "<u4")
        if len(self._arrays) >= 64:  # a batch of device memory may lie anywhere
            self._arrays.clear()
        arrays = {name: self._as_array(name, array, s.dtype == _native.BFLOAT16) for name, array in arrays.items()}
        self._arrays[s.features or 0, s.labels or 0, s.rows] = arrays
        return arrays

    # hopfeed.torch has its own of these:
    def _as_array(self, name: str, array: np.ndarray[Any, Any], bfloat16: bool) -> Any:
        """What _arrays keeps of an array in the loader's memory."""
        array.flags.writeable = False
        return array

    def _make_batch(self, arrays: dict[str, Any]) -> Batch[Array]:
        return Batch(arrays)

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
        self._handle = self._last = None
        self._arrays.clear()
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
