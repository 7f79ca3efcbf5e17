"""The values that arguments take."""

from __future__ import annotations

import base64
import numbers
import operator
import os
import zlib
from typing import Any, Literal, Protocol, Union, get_args

import numpy as np

from ._errors import OptionError

Path = Union[str, "os.PathLike[str]"]
#: bytes, or a text such as "8GiB"
Memory = Union[int, str, None]
#: a part of the split
Split = Literal["train", "valid", "val", "test", "rest"]
#: True is "rr", single rows in random order; "chunk": chunks are; False is "none", the order of the store
Shuffle = Union[bool, Literal["rr", "chunk", "auto", "none"]]
Placement = Literal["auto", "device", "host", "storage"]
StoredType = Literal["float32", "float16", "bfloat16"]
Sampler = Literal[
    "neighbor",
    "labor",
    "labor-1",
    "locality",
    "ladies",
    "ladies-flat",
    "ladies-debias",
    "ladies-flat-debias",
    "fastgcn",
    "fastgcn-flat",
    "fastgcn-debias",
    "fastgcn-flat-debias",
    "ladies-paper",
    "ladies-flat-paper",
    "ladies-debias-paper",
    "ladies-flat-debias-paper",
    "fastgcn-paper",
    "fastgcn-flat-paper",
    "fastgcn-debias-paper",
    "fastgcn-flat-debias-paper",
    "saint-node",
    "saint-node-paper",
    "saint-edge",
    "saint-rw",
    "full",
]
Aggregation = Literal["mean", "sym", "plain"]


def memory_text(memory: Memory) -> str | None:
    """Bytes as the engine reads them."""
    if memory is None or isinstance(memory, str):
        return memory
    at_least(1, memory=memory)
    return f"{operator.index(memory)}B"


def cache_options(given: dict[str, Any]) -> dict[str, str | None]:
    """The cache of what is read from buckets, as the engine reads it."""
    folder, size = given.get("cache_dir"), given.get("cache_size")
    return {
        "cache_dir": None if folder is None else os.path.abspath(folder),
        "cache_size": "0B" if isinstance(size, int) and size == 0 else memory_text(size),
    }


def shuffle_name(shuffle: Any, *, graph: bool = False) -> str:
    """How the engine reshuffles."""
    if isinstance(shuffle, bool):
        return "rr" if shuffle else "none"
    name: str = one_of("shuffle", shuffle, Literal["rr", "none"] if graph else get_args(Shuffle)[1], "True, False")
    return name


def split_name(name: str, split: Any, *more: str) -> str:
    """A part of the split as the engine calls it."""
    return "valid" if one_of(name, split, Split, *more) == "val" else split


def one_of(name: str, value: Any, literal: Any, *more: str) -> Any:
    """The value of an argument, unless it is none of those that it takes."""
    if isinstance(value, str) and value in (*get_args(literal), *more):
        return value
    raise OptionError(f"{name} {value!r}: want {', '.join([repr(v) for v in get_args(literal)] + list(more))}")


def at_least(least: int, **arguments: Any) -> None:
    """Refuses arguments that are not integers from least on; None is a default."""
    for name, value in arguments.items():
        if value is None:
            continue
        want = f"want an integer from {least} on"
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} is {value!r}, of type {type(value).__name__}: {want}")
        if operator.index(value) < least:
            raise OptionError(f"{name} {value}: {want}")


def share(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size; where they are not given, those of one process."""
    if (rank is None) != (world_size is None):
        given, missing = (f"rank {rank}", "world_size") if world_size is None else (f"world_size {world_size}", "rank")
        raise OptionError(f"{given} without {missing}: give both, or none")
    return (0, 1) if rank is None or world_size is None else (rank, world_size)


def listed(name: str, values: Any, want: str) -> list[Any]:
    """The values of an argument that is a list."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} is {values!r}, of type {type(values).__name__}: want {want}")
    return list(values)


class _PyGNegativeSampling(Protocol):
    mode: Any
    amount: Any


NegativeSampling = Union[Literal["binary", "triplet"], _PyGNegativeSampling, "dict[str, Any]", None]


def negative_sampling(given: Any, ratio: Any, labels: Any) -> tuple[str | None, float]:
    """How negative pairs are drawn, and how many for each pair. ``given`` may be a ``NegativeSampling`` of PyTorch
    Geometric or its dict; where it is None, a ratio alone means ``"binary"``, as there."""
    if isinstance(given, dict) or hasattr(given, "mode"):
        items = given if isinstance(given, dict) else vars(given)
        weights = [name for name in ("src_weight", "dst_weight") if items.get(name) is not None]
        if weights:
            raise OptionError(f"neg_sampling has {', '.join(weights)}: all negative pairs have the same probability")
        given, ratio = items.get("mode"), items.get("amount", ratio)
    kind = getattr(given, "value", given)
    if ratio is not None and not isinstance(ratio, numbers.Real):
        raise TypeError(f"neg_sampling_ratio is {ratio!r}, of type {type(ratio).__name__}: want a number")
    if kind is None and not ratio:
        return None, 1
    kind = one_of("neg_sampling", kind or "binary", Literal["binary", "triplet"])
    ratio = 1 if ratio is None else float(ratio)
    if not 0 < ratio < 2**31 or kind == "triplet" and ratio != int(ratio):
        raise OptionError(f"neg_sampling_ratio {ratio}: want more than 0, and a whole number for triplets")
    if kind == "triplet" and labels is not None:
        raise OptionError("edge_label: triplets have no labels")
    return kind, ratio


def node_numbers(chosen: Any, nodes: int) -> list[int]:
    """The nodes that an array of numbers, or of a truth value for each node, chooses."""
    array = np.asarray(chosen)
    if array.dtype == bool and array.shape == (nodes,):
        array = np.flatnonzero(array)
    if array.ndim != 1 or not (array.dtype.kind in "iu" or array.size == 0):
        raise OptionError(f"input_nodes is an array {array.shape} of {array.dtype}: want the name of a part, numbers of nodes, or a bool for each of {nodes} nodes")
    if array.size and (array.min() < 0 or array.max() >= nodes):
        raise OptionError(f"input_nodes has numbers of nodes from {array.min()} to {array.max()}: the graph has {nodes} nodes")
    numbers: list[int] = array.tolist()
    return numbers


def pairs_of_nodes(name: str, pairs: Any, nodes: int, destinations: int | None = None) -> np.ndarray[Any, Any]:
    """Pairs of nodes [2, pairs] as an array of integers. Of a relation, ``nodes`` counts the sources."""
    array = np.asarray(pairs)
    if array.ndim != 2 or len(array) != 2 or not (array.dtype.kind in "iu" or array.size == 0):
        raise OptionError(f"{name} is an array {list(array.shape)} of {array.dtype}: want numbers of nodes [2, edges]")
    for ends, count in [(array, nodes)] if destinations is None else zip(array, (nodes, destinations)):
        if ends.size and (ends.min() < 0 or ends.max() >= count):
            raise OptionError(f"{name} has numbers of nodes from {ends.min()} to {ends.max()}, and there are {count} nodes")
    return array


def seed_times(name: str, times: Any, seeds: int) -> str:
    """A time for each seed as the engine reads them."""
    if times is None:
        raise OptionError(f"{name}: want the times of {seeds} seeds, an integer each")
    array = np.asarray(times)
    if array.shape != (seeds,) or not (array.dtype.kind in "iu" or array.size == 0):
        raise OptionError(f"{name} is an array {list(array.shape)} of {array.dtype}: want an integer for each of {seeds} seeds")
    return base64.b64encode(array.astype("<i8").tobytes()).decode()


def nodes_name(numbers: list[int]) -> str:
    """What tells chosen nodes from others."""
    return f"{len(numbers)} nodes with checksum {zlib.crc32(np.asarray(numbers, np.int64).tobytes())}"
