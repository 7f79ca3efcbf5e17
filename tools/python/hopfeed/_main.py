"""The command ``hopfeed``, by the library of the package."""

from __future__ import annotations

import ctypes
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of the process, and returns its exit status."""
    words = [word.encode(errors="surrogateescape") for word in sys.argv[1:]]
    status: int = _native.library().hopfeed_main(len(words), (ctypes.c_char_p * len(words))(*words))
    return status
