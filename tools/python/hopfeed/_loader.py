"""Loaders of batches of stores."""

from __future__ import annotations

import inspect
import os
from typing import Any, Callable, Iterable, Literal

import numpy as np

from . import _native
from ._batch import Array, Batch
from ._batches import Batches, Handle, Lease, view, view_labels
from ._dataset import Dataset
from ._errors import OptionError
from ._progress import Progress
from ._types import Memory, Path, Placement, Shuffle, Split, at_least, cache_options, memory_text, node_numbers, nodes_name, one_of, shuffle_name, split_name


class Loader(Batches[Array]):
    """Batches of a part of a hop store, an epoch each time that it is iterated over.

    In a batch, ``x`` is features [batch_size, matrices, features] or, with ``stacked=False``, there is an array
    [batch_size, features] for each matrix under its name, such as ``"x/hop-0"`` and ``"sym/hop-1"``. ``y``:
    [batch_size], the class, or [batch_size, L]; -1 (of values NaN) is unlabelled. ``n_id`` and, if asked for,
    ``row_numbers``: [batch_size].

    Every row comes once an epoch, in an order that depends on ``seed``, epoch, ``shuffle`` and
    ``batch_size`` alone. The loader reads ahead by threads of its own, so it needs no worker processes.

    Wrong arguments are an ``OptionError`` (a ``ValueError``) or a ``TypeError``, a missing path is a ``FileNotFoundError``,
    what memory has no room for is ``DoesNotFit``, and damage, which may be found while it is iterated over,
    ``CorruptError``.

    :param store: a hop store, or its path
    :param batch_size: rows of a batch, of all ranks together
    :param shuffle: ``"chunk"`` (chunks are reshuffled, which storage is read fast by), ``"rr"`` or True (rows are),
        ``"auto"`` or, for the order of the store, ``"none"`` or False
    :param placement: where the input lives: ``"device"`` and ``"host"`` (both host memory; the first
        copies no batch that is one run of rows), ``"storage"`` or ``"auto"``
    :param split: ``"train"``, ``"val"`` or ``"valid"``, ``"test"``, ``"rest"``, or ``"all"`` rows
    :param split_index: number of the split that ``split`` names a part of (default: the one that the store is laid out
        by; rows of others, ``"all"`` and ``input_nodes`` are loaded from memory, not from storage, and reshuffled
        as rows, not as chunks)
    :param input_nodes: instead of ``split``, an array of numbers of nodes, or of a truth value for each node of the
        graph
    :param seed: what random orders derive from
    :param hops: the hops to load: all up to a number, or a list (None: all)
    :param operators: the operators to load (None: all)
    :param rank: which of ``world_size`` processes this one is. All get a share of each batch
    :param world_size: how many processes there are; given with ``rank`` (hopfeed.torch: else both are those of
        ``torch.distributed``)
    :param dtype: ``"float32"``, or ``"stored"`` for the type of the store (bfloat16 as uint16)
    :param drop_last: leave out a last batch that is smaller than the others
    :param transform: is called with each batch, in the loop's own thread; the loop gets what it returns
    :param n_id: batches have the numbers of their nodes in the graph
    :param row_numbers: batches have the numbers of their rows in the store
    :param stacked: one array of all matrices, or else one for each
    :param reuse: a batch is valid only until the next one: see ``Batch``. Else it is valid as long as an array
        of it is there, and may be written to
    :param buffers: batches in memory at first (default 3). More are added while batches are kept, as far as
        ``memory`` allows; with ``reuse``, no more, and one less may be held
    :param memory: bytes, or a text such as ``"8GiB"``: what the input and all batches may use (default: what the
        machine has, divided by LOCAL_WORLD_SIZE, which torchrun sets)
    :param threads: that read and gather (default: all, divided by LOCAL_WORLD_SIZE)
    :param cache_dir: folder that keeps what is read from buckets, for all processes of the machine (default: that of
        HOPFEED_CACHE_DIR, or ``~/.cache/hopfeed``)
    :param cache_size: how large that may become; bytes, or a text; 0: nothing is kept (default: HOPFEED_CACHE_SIZE, or
        half of what the disk has free)
    :param device: of PyTorch, that batches are moved to (hopfeed.torch alone): to a GPU by pinned memory and a stream
        of its own, one batch ahead
    :param pin_memory: batches are in pinned memory (hopfeed.torch alone)
    """

    def __init__(
        self,
        store: Path | Dataset,
        batch_size: int = 8000,
        shuffle: Shuffle = "chunk",
        placement: Placement = "auto",
        *,
        split: Split | Literal["all"] = "train",
        split_index: int | None = None,
        input_nodes: Any = None,
        hops: int | Iterable[int] | None = None,
        operators: str | Iterable[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        dtype: Literal["float32", "stored"] = "float32",
        drop_last: bool = False,
        transform: Callable[[Batch[Array]], Any] | None = None,
        n_id: bool = True,
        row_numbers: bool = False,
        stacked: bool = True,
        reuse: bool = False,
        buffers: int | None = None,
        memory: Memory = None,
        threads: int | None = None,
        cache_dir: Path | None = None,
        cache_size: Memory = None,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None:
        rank, world_size = self._share(rank, world_size)
        self._move(device, pin_memory, reuse)
        options = open_options(locals())
        self.dataset: Dataset = options.pop("dataset")
        self._stacked, self._n_id, self._row_numbers = stacked, n_id, row_numbers
        rows = {"region": options["region"], "split_index": options["split"]}
        if options["node_list"] is not None:
            rows = {"region": nodes_name(options["node_list"]), "split_index": None}
        parts = self.dataset.parts  # of the one matrix that from_arrays makes of several
        self._parts = self.dataset._hops_of(hops, set(range(len(parts)))) if parts else []
        super().__init__("open", options, rows, reuse)
        self._transform = transform
        assert self._handle
        self.matrices: list[str] = [parts[p] for p in self._parts] or self._handle.about["matrices"]

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any = None, *, splits: Any = None, progress: Progress = False, folder: Path | None = None, **options: Any
    ) -> Any:
        """A loader of features in memory, such as those that were propagated elsewhere: they are written to a temporary
        folder, which goes with the loader. ``loader.dataset.loader(split="val")`` opens others of the same.

        :param x: arrays [rows, matrices, features] or [rows, features], or a dict of arrays [rows, features] by name
        :param y: labels [rows] or [rows, L]
        :param splits: 0 train, 1 val, 2 test, -1 none for each row (default: all train). Row i is node i
        :param folder: where the temporary folder is made (default: as ``tempfile`` does)
        :param options: those of the loader; ``hops`` are numbers of matrices
        """
        from . import _arrays

        inspect.signature(cls).bind(None, **options)  # before anything is written
        store = _arrays.array_store(x, y, splits, cls._dataset_kind, progress, folder)
        return cls(store, **options)

    def _arrays(self, owner: Handle | Lease, struct: _native.BatchStruct) -> dict[str, Any]:
        s = struct
        typestr = _native.TYPES[s.dtype]
        size = int(typestr[2:])
        parts = len(self.dataset.parts)
        if parts:
            x = view(owner, s.features, (s.rows, parts, s.columns // parts), typestr, (s.row_bytes, s.columns // parts * size, size))
            if len(self._parts) < parts:
                x = x[:, self._parts]
        else:
            x = view(owner, s.features, (s.rows, s.matrices, s.columns), typestr, (s.row_bytes, s.matrix_bytes or size, size))
        arrays = {"x": x} if self._stacked else {name: x[:, m] for m, name in enumerate(self.matrices)}
        arrays["y"] = view_labels(owner, s)
        if self._n_id:
            arrays["n_id"] = view(owner, s.nodes, (s.rows,), "<u4")
        if self._row_numbers:
            arrays["row_numbers"] = view(owner, s.row_numbers, (s.rows,), "<u4")
        bfloat16 = s.dtype == _native.BFLOAT16
        return {name: self._as_array(name, array, bfloat16) for name, array in arrays.items()}

    # hopfeed.torch has its own of this:
    def _as_array(self, name: str, array: np.ndarray[Any, Any], bfloat16: bool) -> Any:
        """What a batch has of an array in the loader's memory."""
        if self._reuse:
            array.flags.writeable = False
        return array

    def __repr__(self) -> str:
        return f"<hopfeed.Loader of {self.dataset.path!r}: {self._batches} batches of {self.batch_size} rows from {self.placement}, shuffle {self.shuffle}>"


def open_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of the verbs "open" and "plan" from the arguments of Loader."""
    store = given["store"]
    dataset = store if isinstance(store, Dataset) else getattr(given.get("self"), "_dataset_kind", Dataset)(store)
    if dataset.kind != "store":
        raise OptionError(f"{dataset.path} is a graph: hopfeed.propagate({dataset.path!r}, STORE) makes a store of it, and hopfeed.NeighborLoader samples it")
    one_of("dtype", given["dtype"], Literal["float32", "stored"])
    at_least(1, batch_size=given["batch_size"], world_size=given["world_size"], buffers=given["buffers"])
    at_least(0, rank=given["rank"], split_index=given["split_index"], seed=given["seed"], threads=given["threads"])
    index = given["split_index"] if given["split_index"] != dataset.manifest.get("split", 0) else None
    region = split_name("split", given["split"], "all")
    if region != "all" and index is None and given["input_nodes"] is None and not dataset.regions.get(region):
        rows = ", ".join(f"{rows} {name}" for name, rows in dataset.regions.items() if rows)
        raise OptionError(f"split {given['split']!r}: {dataset.path} has no such rows (it has {rows or 'none'}; \"all\" loads all)")
    shuffle = shuffle_name(given["shuffle"])
    if shuffle == "chunk" and (index is not None or given["input_nodes"] is not None or given["split"] == "all"):
        shuffle = "rr"  # these rows are no whole chunks
    return {
        "dataset": dataset,
        "store": dataset.path,
        "region": region,
        "split": index,
        "node_list": None if given["input_nodes"] is None else node_numbers(given["input_nodes"], dataset.nodes),
        "matrices": dataset.choose(given["operators"], None if dataset.parts else given["hops"]),
        "batch_rows": given["batch_size"],
        "world": 1 if given["world_size"] is None else given["world_size"],
        "rank": given["rank"] or 0,
        "placement": one_of("placement", given["placement"], Placement),
        "shuffle": shuffle,
        "seed": given["seed"],
        "stored": given["dtype"] == "stored",
        "nodes": given["n_id"],
        "row_numbers": given["row_numbers"],
        "drop_last": given["drop_last"],
        "buffers": given["buffers"],
        "memory": memory_text(given["memory"]),
        "processes": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "threads": given["threads"],
        **cache_options(given),
    }
