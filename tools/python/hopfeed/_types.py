"""The values that arguments take."""

from __future__ import annotations

import operator
import os
from typing import Any, Literal, Union, get_args

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
    "saint-node",
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
