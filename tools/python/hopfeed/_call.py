"""Calls of the command's verbs in this process."""

from __future__ import annotations

import errno
import os
from typing import Any, Sequence

from . import _native
from ._errors import OptionError
from ._progress import Bars


def is_url(path: str) -> bool:
    """Whether a path is of an object store, or else of a file system."""
    return path.startswith(("s3:/", "az:/", "gs:/"))


def existing(path: Any, name: str = "path") -> str:
    """A path that is there, or that of a Dataset; else FileNotFoundError."""
    path = getattr(path, "path", path)
    if not isinstance(path, (str, os.PathLike)):
        hint = " (hopfeed.from_pyg makes a graph of it)" if hasattr(path, "edge_index") or hasattr(path, "edge_types") else ""
        raise TypeError(f"{name} is of type {type(path).__name__}: want a path, or a Dataset{hint}")
    text: str = os.fspath(path)
    if not is_url(text) and not os.path.exists(text):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
    return text


def call(words: Sequence[str], positional: Sequence[str], given: dict[str, Any], read: Sequence[str] = ()) -> dict[str, Any]:
    """The result of a verb.

    :param words: the verb
    :param positional: the arguments without a flag; the others are flags of the same name
    :param given: the value of each argument, and ``progress``; None is the default
    :param read: the arguments that are paths, of what has to be there
    """
    for name in read:
        if given[name] is not None:
            existing(given[name], name)
    flags = []
    names = {"split_index": "split", "split": "seeds" if words[0] == "sample" else "rows"}
    if words[0] == "propagate":
        del names["split"]
    for name, value in given.items():
        if name in positional or name == "progress" or value is None:
            continue
        flag = names.get(name) or name.strip("_").replace("_", "-")
        flags.append(f"--{flag}={_text(name, value)}")
    rest = []
    for name in positional:
        value = given[name]
        rest += [os.fspath(v) for v in value] if isinstance(value, (list, tuple)) else [_text(name, value)]
    with Bars(given.get("progress", True)) as bars:
        result: dict[str, Any] = _native.run("command", {"args": [*words, *flags, "--", *rest]}, bars.report, names=names)
    return result


def _text(name: str, value: Any) -> str:
    """An argument as the command reads it."""
    value = getattr(value, "path", value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, os.PathLike)):
        text: str = os.fspath(value)
        return "valid" if name == "split" and text == "val" else text
    if isinstance(value, (int, float)) or hasattr(value, "__index__"):
        return f"{value}s" if name in ("max_time", "save_every") else f"{value}B" if name in ("memory", "max_memory") else str(value)
    try:
        return ",".join(str(v) for v in value)
    except TypeError:
        raise OptionError(f"{name} {value!r}: a {type(value).__name__} is none of its values") from None
