"""What graphs and stores of one type and of several have in common."""

from __future__ import annotations

import os
from typing import Any

from . import _native
from ._call import is_url
from ._errors import Error, ForkError


class Opened:
    """A graph or a store on disk, as it was when it was opened."""

    path: str
    folder: str | None = None  #: the temporary folder that it is in, if that goes with it
    _home: Any = None  # which keeps the folder
    manifest: dict[str, Any]

    def _check_same(self, about: dict[str, Any]) -> None:
        """Refuses what the engine has read of a graph or store that has replaced this one."""
        if about["rows_fingerprint"] != self.manifest["rows_fingerprint"]:
            raise Error(f"{self.path} was replaced after it was opened: open it again by hopfeed.open({self.path!r})")

    def _ask(self, verb: str, **options: Any) -> dict[str, Any]:
        about: dict[str, Any] = _native.run(verb, {"path": self.path, **options})
        self._check_same(about)
        return about

    def __reduce__(self) -> Any:  # another process opens it again, instead of getting the arrays
        if self.folder is not None:
            raise ForkError(
                f"{self!r} is in a temporary folder, which goes with this process: to send it to another, make it in a folder of "
                "yours (from_pyg and propagate take one)"
            )
        return type(self), (self.path if is_url(self.path) else os.path.abspath(self.path),)

    def __deepcopy__(self, *_: Any) -> Any:
        return self

    __copy__ = __deepcopy__
