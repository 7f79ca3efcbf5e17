"""The edges of a graph, or of a relation of a typed graph, mapped from disk."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

import numpy as np

from ._call import is_url
from ._errors import OptionError
from ._matrix import Matrix, open_column


class Edges:
    """The edges of a graph, or of a relation of a typed graph, by destination (CSC), mapped from disk. Node ``v`` has the
    in-neighbours ``indices[indptr[v] : indptr[v + 1]]``, ascending. Edges are numbered in this order, as ``e_id`` of batches
    is. Checksums are not compared: ``verify`` compares them.
    """

    def __init__(self, name: str, path: str, about: dict[str, Any], ask: Callable[..., dict[str, Any]]) -> None:
        if is_url(path):
            raise OptionError(f"{path} is in a bucket, and only files can be mapped: use a loader, or copy it to a folder")
        self.name = name
        self._folder, self._about_columns, self._ask = about["folder"], about["columns"] or [], ask
        self.num_edges: int = about["edges"]
        self._size: tuple[int, int] = about["sources"], about["nodes"]
        file = os.path.join(about["folder"], about["file"])
        self.indptr = _mapped(file, "<i8", about["offsets_at"], about["nodes"] + 1)  #: [destinations + 1] int64
        self.indices = _mapped(file, "<u4", about["neighbors_at"], self.num_edges)  #: [edges] uint32: their sources
        weights = about["weights_file"] and os.path.join(about["folder"], about["weights_file"])
        #: [edges] float32; None: the edges have no weights
        self.edge_weight = _mapped(weights, "<f4", about["weights_at"], self.num_edges) if weights else None

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the edges."""
        return [c["name"] for c in self._about_columns]

    def column(self, name: str) -> Matrix:
        """A column of the edges, mapped from disk: ``[numbers]`` reads the rows of some edges, such as
        ``edges.column("edge_attr")[block.e_id]``."""
        return open_column(self._folder, f"hopfeed.Edges {self.name}", self._about_columns, name, {"edges": self.num_edges}, self._ask)

    def size(self) -> tuple[int, int]:
        """How many sources and how many destinations there may be."""
        return self._size

    @functools.cached_property
    def edge_index(self) -> np.ndarray[Any, Any]:
        """The edges as int64 [2, edges]: sources, and below them destinations. It is a copy."""
        return np.stack([self.indices.astype(np.int64), np.repeat(np.arange(self._size[1]), np.diff(self.indptr))])

    def __len__(self) -> int:
        """The number of edges."""
        return self.num_edges

    def __repr__(self) -> str:
        weighted = "" if self.edge_weight is None else ", with weights"
        return f"<hopfeed.Edges {self.name}: {self.num_edges} from {self._size[0]} to {self._size[1]} nodes{weighted}>"


def _mapped(file: str, typestr: str, at: int, count: int) -> np.ndarray[Any, Any]:
    if count == 0:
        return np.empty(0, typestr)
    return np.ndarray((count,), typestr, np.memmap(file, np.uint8, "r"), at)  # which checks that the file has them
