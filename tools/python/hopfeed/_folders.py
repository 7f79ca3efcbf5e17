"""Temporary folders, which the next process removes if theirs was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from typing import Any

_LOCK = ".hopfeed-owner"


class Folder:
    """A folder that goes with the last reference to this. A file in it is locked while its process runs.

    :param parent: the folder that it is in (None: as ``tempfile`` has it)
    :param prefix: of its name. Folders with it whose process is gone are removed first
    """

    def __init__(self, parent: Any, prefix: str) -> None:
        parent = os.path.abspath(tempfile.gettempdir() if parent is None else parent)
        _reclaim(parent, prefix)
        self.path = tempfile.mkdtemp(prefix=prefix, dir=parent)
        path = os.path.join(self.path, _LOCK)
        lock = open(path + ".new", "w")
        _locked(lock)
        os.rename(path + ".new", path)  # from now on, who can lock it may remove the folder
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid(), lock)


def _locked(lock: Any) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has it, or the file system has no locks
        return False
    return True


def _reclaim(parent: str, prefix: str) -> None:
    for name in os.listdir(parent):
        if not name.startswith(prefix):
            continue
        try:
            with open(os.path.join(parent, name, _LOCK), "r+") as lock:
                if _locked(lock):
                    shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
        except OSError:  # it is not ours, or another process removes it
            continue


def _remove(path: str, owner: int, lock: Any) -> None:
    """Removes the folder, unless this is a process that was forked from the one that made it."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)
    lock.close()
