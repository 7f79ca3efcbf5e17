"""The command ``hopfeed``, by the library of the package."""

from __future__ import annotations

import ctypes
import signal
import sys

from . import _native


def main() -> int:
    """Runs the command with the arguments of the process, and returns its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the library handles the first Ctrl-C, and a second one ends the command
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    words = [word.encode(errors="surrogateescape") for word in sys.argv[1:]]
    status: int = _native.library().hopfeed_main(len(words), (ctypes.c_char_p * len(words))(*words))
    return status
