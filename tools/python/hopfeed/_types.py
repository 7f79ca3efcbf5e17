"""The values that arguments take."""

from __future__ import annotations

import base64
import operator
import os
import zlib
from typing import Any, Literal, Union, get_args

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
    return memory if memory is None or isinstance(memory, str) else f"{memory}B"


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
        if value is not None and operator.index(value) < least:
            raise OptionError(f"{name} {value}: want an integer from {least} on")


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


def pairs_of_nodes(name: str, pairs: Any, nodes: int) -> np.ndarray[Any, Any]:
    """Pairs of nodes [2, pairs] as an array of integers."""
    array = np.asarray(pairs)
    if array.ndim != 2 or len(array) != 2 or not (array.dtype.kind in "iu" or array.size == 0):
        raise OptionError(f"{name} is an array {list(array.shape)} of {array.dtype}: want numbers of nodes [2, edges]")
    if array.size and (array.min() < 0 or array.max() >= nodes):
        raise OptionError(f"{name} has numbers of nodes from {array.min()} to {array.max()}: the graph has {nodes} nodes")
    return array


def seed_times(name: str, times: Any, seeds: int) -> str:
    """A time for each seed as the engine reads them."""
    array = np.asarray(times)
    if array.shape != (seeds,) or not (array.dtype.kind in "iu" or array.size == 0):
        raise OptionError(f"{name} is an array {list(array.shape)} of {array.dtype}: want an integer for each of {seeds} seeds")
    return base64.b64encode(array.astype("<i8").tobytes()).decode()


def nodes_name(numbers: list[int]) -> str:
    """What tells chosen nodes from others."""
    return f"{len(numbers)} nodes with checksum {zlib.crc32(np.asarray(numbers, np.int64).tobytes())}"
