"""Progress of long work: bars of tqdm, where that is installed, or a function of the caller."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Union

Progress = Union[bool, Callable[[dict[str, Any]], None]]
"""True for bars and lines of notes or, where tqdm is missing, notes as warnings; False for nothing; or a function that is
called, some ten times a second and at the end, with {"tasks": [{"id", "label", "done", "total", "bytes"}], "notes": [text]}:
tasks that run or have ended since the last call, and notes since then."""


class Bars:
    """A bar for each task that runs. They are closed at the end of a with statement."""

    def __init__(self, progress: Progress) -> None:
        self._function = progress if callable(progress) else None
        self._bars: dict[int, Any] = {}
        self._tqdm = None
        self._warns = False
        if progress is True:
            try:
                from tqdm.auto import tqdm  # type: ignore[import-untyped]
            except ImportError:
                self._warns = True
                return
            self._tqdm = tqdm

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        for bar in self._bars.values():
            bar.close()

    def report(self, state: dict[str, Any]) -> None:
        if self._function:
            self._function(state)
        for note in state["notes"] if self._warns else []:
            warnings.warn(note, stacklevel=5)
        if not self._tqdm:
            return
        for note in state["notes"]:
            self._tqdm.write(note)
        running = {task["id"]: task for task in state["tasks"]}
        for id in set(self._bars) - set(running):
            self._bars.pop(id).close()
        for id, task in running.items():
            if id not in self._bars:
                unit = {"unit": "B", "unit_scale": True, "unit_divisor": 1024} if task["bytes"] else {}
                self._bars[id] = self._tqdm(desc=task["label"], total=task["total"] or None, leave=False, **unit)
            self._bars[id].update(task["done"] - self._bars[id].n)
