"""The library libhopfeed, by ctypes. cmd/libhopfeed/hopfeed.h describes its calls.

ctypes lets other threads of Python run during a call. Calls that wait return after POLL_MS, since
Python looks for signals such as Ctrl-C between calls only.
"""

from __future__ import annotations

import ctypes
import functools
import json
import math
import operator
import os
import pathlib
import re
import struct
import weakref
from typing import Any, Callable, Iterator, Mapping

from ._errors import CorruptError, DoesNotFit, Error, ForkError, OptionError

API = 4
POLL_MS = 100
DONE, END, WAIT, OPTIONS = 0, -1, -2, 2
_ERRORS: dict[int, type[Exception]] = {OPTIONS: OptionError, 3: CorruptError, 4: DoesNotFit, 5: FileNotFoundError}

# Element types as numpy spells them. bfloat16, which numpy does not have, is its bits as uint16.
TYPES = {1: "<f4", 2: "<f2", 3: "<u2", 4: "<i4", 7: "|i1"}
BFLOAT16, INT32 = 3, 4


class BatchStruct(ctypes.Structure):
    """hopfeed_batch."""

    _fields_ = [
        ("hold", ctypes.c_uint64),
        ("index", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("global_rows", ctypes.c_int64),
        ("features", ctypes.c_void_p),
        ("matrices", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("matrix_bytes", ctypes.c_int64),
        ("labels", ctypes.c_void_p),
        ("label_columns", ctypes.c_int64),
        ("row_numbers", ctypes.c_void_p),
        ("nodes", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("label_dtype", ctypes.c_int32),
        ("feature_rows", ctypes.c_int64),
        ("layers", ctypes.c_int64),
        ("blocks", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("row_weights", ctypes.c_void_p),
        ("trees", ctypes.c_void_p),
        ("links", ctypes.c_void_p),
        ("ends", ctypes.c_int64),
        ("link_ends", ctypes.c_void_p),
    ]


def blocks(s: BatchStruct) -> Iterator[tuple[Any, ...]]:
    """The blocks of a batch: destinations, sources, edges, and the addresses of offsets, indices, weights and edge ids."""
    return BLOCK_FIELDS.iter_unpack(ctypes.string_at(s.blocks, s.layers * BLOCK_FIELDS.size))


# hold, index, rows and global_rows of a BatchStruct, faster than one by one.
BATCH_FIELDS = struct.Struct("@Qqqq").unpack_from

# destinations, sources, edges, offsets, indices, weights and edge_ids of a hopfeed_block.
BLOCK_FIELDS = struct.Struct("@qqqPPPP")

_library: ctypes.CDLL | None = None
_release: Any = None
_forked = False  # from the process that has loaded it


def library() -> ctypes.CDLL:
    """The library, which is loaded by the first call. In a process that was forked after that, it is an error."""
    global _library, _release
    if _library is None:
        _library = _load()
        # hopfeed_release, which leaves the second argument, the weak reference, unread
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.py_object)
        _release = prototype(("hopfeed_release", _library))
        os.register_at_fork(after_in_child=_mark_forked)
    if _forked:
        raise ForkError(
            "this process was forked from one that uses hopfeed, whose threads do not exist here: start processes by "
            "'spawn' (or use hopfeed only after the fork). A loader needs no worker processes: it reads ahead by threads"
        )
    return _library


def is_usable() -> bool:
    """Whether the library is loaded, and not by a parent process."""
    return _library is not None and not _forked


# What releases a hold when its owner is gone, by hold. A weak reference calls the library without a line of Python in
# between: Python ignores a KeyboardInterrupt that comes in a __del__.
_releases: dict[int, weakref.ref[Any]] = {}
_swept = 0  # releases that were left when those of owners that are gone were removed


def release_after(owner: Any, hold: int) -> None:
    """Releases a hold of memory when its owner is gone."""
    global _swept
    library()
    assert _release
    _releases[hold] = weakref.ref(owner, functools.partial(_release, hold))
    if len(_releases) > 2 * _swept + 64:
        for gone in [number for number, reference in list(_releases.items()) if reference() is None]:
            del _releases[gone]
        _swept = len(_releases)


def _mark_forked() -> None:
    global _forked
    _forked = True
    _releases.clear()  # which a forked process must not call


def _load() -> ctypes.CDLL:
    path = pathlib.Path(__file__).with_name("libhopfeed.so")
    if not path.exists():
        raise ImportError(f"{path} is not there: hopfeed is used as an installed wheel (tools/python/build-wheel makes it)")
    lib = ctypes.CDLL(str(path))
    u64, i64, i32, text = ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32, ctypes.c_char_p
    returned = ctypes.POINTER(ctypes.c_void_p)
    for name, arguments in {
        "api": [],
        "main": [i32, ctypes.POINTER(text)],
        "start": [text, text, ctypes.POINTER(u64)],
        "wait": [u64, i32, returned],
        "end": [u64],
        "epoch": [u64, i64, i64],
        "next": [u64, i32, ctypes.POINTER(BatchStruct)],
        "release": [u64],
        "stats": [u64, returned],
        "close": [u64],
    }.items():
        function = getattr(lib, "hopfeed_" + name)
        function.argtypes, function.restype = arguments, i32
    lib.hopfeed_free.argtypes, lib.hopfeed_free.restype = [ctypes.c_void_p], None
    lib.hopfeed_last_error.argtypes, lib.hopfeed_last_error.restype = [], text
    if (api := lib.hopfeed_api()) != API:
        raise ImportError(f"{path} has version {api} of the C API, and this package wants {API}: install the wheel again")
    return lib


_LINE = re.compile(r"hopfeed ((?:import |export )?[a-z]+)((?: (?:--[a-z-]+ (?!--)[^\s;,():]+|[A-Z/][^\s;,():]*))+)")
_KIND = re.compile("(?:unusable|contradictory|bad) options: ")
_FLAG = re.compile(r"(?<![\w/.-])--([a-z][a-z-]*[a-z])")


def in_python(text: str, names: Mapping[str, str] | None = None) -> str:
    """A text of the engine, with calls instead of lines of the command, and arguments instead of flags.

    :param names: the flags that arguments with another name stand for, by argument
    """
    arguments_of = {flag: name for name, flag in (names or {}).items()}

    def called(line: re.Match[str]) -> str:
        words, arguments = iter(line[2].split()), []
        for word in words:
            arguments.append(f"{word[2:].replace('-', '_')}={next(words)}" if word.startswith("--") else word)
        return f"hopfeed.{line[1].replace(' ', '_')}({', '.join(sorted(arguments, key=lambda a: '=' in a))})"

    return _FLAG.sub(lambda flag: arguments_of.get(flag[1], flag[1].replace("-", "_")), _LINE.sub(called, _KIND.sub("", text)))


def check(status: int, names: Mapping[str, str] | None = None) -> int:
    """The status, unless it is an error, which is raised."""
    if status > 0:
        raise _ERRORS.get(status, Error)(in_python(library().hopfeed_last_error().decode(), names))
    return status


def take(returned: ctypes.c_void_p) -> Any:
    """The value of JSON that a call has returned; None where it has returned none."""
    if not returned.value:
        return None
    try:
        return json.loads(ctypes.string_at(returned.value))
    finally:
        library().hopfeed_free(returned)


_told: dict[str, str] = {}


def _tell_environment() -> None:
    """Tells the library the variables that buckets are opened by, if they are others than when it was last told: a script
    may set ``os.environ``, and the library sees the environment that the process began with."""
    global _told
    names = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST", "HOPFEED_")
    before, _told = _told, {k: v for k, v in os.environ.items() if k.startswith(names)}
    if before != _told:
        run("environment", {"variables": {**dict.fromkeys(before), **_told}})


def run(
    verb: str,
    options: dict[str, Any],
    report: Callable[[dict[str, Any]], None] | None = None,
    own: Callable[[Any], None] | None = None,
    names: Mapping[str, str] | None = None,
) -> Any:
    """The result of a task. An exception meanwhile, such as KeyboardInterrupt, stops it. A loader that it opens is closed
    then too, unless ``own``, which gets the result, has returned. ``names`` are those of ``in_python``."""
    lib = library()
    if verb != "environment":
        _tell_environment()
    task = ctypes.c_uint64()
    given = {k: v for k, v in options.items() if v is not None}
    try:
        text = json.dumps(given, default=operator.index, allow_nan=False)  # integers of numpy have an index
    except ValueError:
        bad = [k for k, v in given.items() if isinstance(v, float) and not math.isfinite(v)]
        raise OptionError(f"{', '.join(bad)}: want finite numbers") from None
    returned, owned = ctypes.c_void_p(), False
    try:
        check(lib.hopfeed_start(verb.encode(), text.encode(), ctypes.byref(task)))
        while True:
            status = lib.hopfeed_wait(task, POLL_MS, ctypes.byref(returned))
            value = take(returned)
            try:
                if check(status, names) == DONE:
                    if own:
                        own(value)
                    owned = True
                    return value
            except Error as error:
                error.result = value
                raise
            if report:
                report({**value, "notes": [in_python(note, names) for note in value["notes"]]})
    finally:
        if not owned:
            status = lib.hopfeed_wait(task, 1, ctypes.byref(returned))
            left = take(returned)
            if status == DONE and isinstance(left, dict) and "loader" in left:
                lib.hopfeed_close(left["loader"])
        lib.hopfeed_end(task)
