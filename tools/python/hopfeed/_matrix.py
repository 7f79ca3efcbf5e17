"""A matrix of a graph or store, mapped from disk."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Iterator

import numpy as np

from ._call import is_url
from ._errors import OptionError

_STORED = {"bfloat16": "uint16"}  # others are as numpy calls them


class Matrix:
    """Features [rows, columns] on disk. ``matrix[numbers]`` reads rows: an array of numpy or, where the numbers are a
    tensor of PyTorch, a tensor. Nothing else is read, so checksums are not compared: ``verify`` compares them.

    The numbers are those of nodes: a number, a slice, an array, or an array of a truth value for each node of the
    graph. A store has the rows of some nodes only: another node is an ``IndexError``. ``matrix.rows[numbers]`` takes
    the numbers of rows of a store instead, and ``np.asarray(matrix)`` is all rows.

    bfloat16, which numpy does not have, becomes float32.
    """

    def __init__(self, path: str, name: str, about: dict[str, Any], nodes: int, row_of: Any, flat: bool = False) -> None:
        if is_url(path):
            raise OptionError(f"{path} is in a bucket, and only files can be mapped: use a loader, or copy it to a folder")
        self.name = name
        self._flat = flat  # one number a row
        self._nodes, self._row_of = nodes, row_of  # row_of: None where row i is node i, else a function
        self._bfloat16 = about["dtype"] == "bfloat16"
        columns, dtype = about["columns"], np.dtype(_STORED.get(about["dtype"], about["dtype"])).newbyteorder("<")
        self.files = list(dict.fromkeys(os.path.join(path, s["file"]) for s in about["spans"]))  #: that it lies in
        self._spans = []
        for s in about["spans"]:
            shape = (s["chunks"], s["chunk_rows"], columns)
            strides = (s["stride"], columns * dtype.itemsize, dtype.itemsize)
            file = np.memmap(os.path.join(path, s["file"]), np.uint8, "r")
            mapped: Any = np.ndarray(shape, dtype, file, s["offset"], strides)  # which checks that the file has them
            self._spans.append(mapped)
        self._first = np.array([s["first_row"] for s in about["spans"]], np.int64)
        count = sum(len(mapped) * mapped.shape[1] for mapped in self._spans)
        self.shape: tuple[int, ...] = (count,) if self._flat else (count, columns)  #: rows and columns
        self._columns = columns
        self.dtype = np.dtype(np.float32) if self._bfloat16 else dtype  #: of the arrays that are read

    @property
    def rows(self) -> Rows:
        """The matrix by numbers of rows instead of nodes."""
        return Rows(self)

    def __len__(self) -> int:
        """The number of rows."""
        return self.shape[0]

    def __getitem__(self, nodes: Any) -> Any:
        numbers = _numbers(nodes, self._nodes)
        if self._row_of is not None:
            numbers = self._row_of(numbers)
        return self._read(nodes, numbers)

    def __iter__(self) -> Iterator[Any]:
        for mapped in self._spans:
            for chunk in mapped:
                yield from self._convert(chunk[:, 0] if self._flat else chunk)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a matrix that lies in chunks becomes an array by a copy")
        out: np.ndarray[Any, Any] = self.rows[:]
        return out if dtype is None else out.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"<hopfeed.Matrix {self.name}: {self.shape[0]} rows of {self._columns} {self.dtype}>"

    def _read(self, asked: Any, rows: np.ndarray[Any, Any]) -> Any:
        """The rows with some numbers; a tensor where one was asked with."""
        out = np.empty((*rows.shape, self._columns), np.uint16 if self._bfloat16 else self.dtype)
        span = np.searchsorted(self._first, rows, "right") - 1
        for s in np.unique(span):
            mapped, within = self._spans[s], span == s
            at = rows[within] - self._first[s]
            out[within] = mapped[at // mapped.shape[1], at % mapped.shape[1]]
        if self._flat:
            out = out[..., 0]
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(asked, torch.Tensor):
            return self._convert(out)
        if self._bfloat16:
            return torch.from_numpy(out.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(out)

    def _convert(self, stored: Any) -> Any:
        return (stored.astype(np.uint32) << 16).view(np.float32) if self._bfloat16 else stored


def open_column(
    path: str, owner: str, columns: list[dict[str, Any]], name: str, rows: dict[str, int], ask: Callable[..., dict[str, Any]]
) -> Matrix:
    """A column of those that the owner has, in the folder ``path``. rows: how many "edges" and "nodes" there are."""
    for about in columns:
        if about["name"] == name:
            return Matrix(path, name, ask("extents", column=name), rows[about["of"]], None, flat=about["columns"] == 0)
    raise OptionError(f"{owner} has no column {name!r} (it has {', '.join(c['name'] for c in columns) or 'none'})")


class Rows:
    """A matrix by numbers of rows."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix

    def __getitem__(self, rows: Any) -> Any:
        return self._matrix._read(rows, _numbers(rows, len(self._matrix)))


def _numbers(asked: Any, count: int) -> np.ndarray[Any, Any]:
    """The numbers from 0 to count-1 that an index means."""
    if isinstance(asked, slice):
        return np.arange(*asked.indices(count))
    numbers = np.asarray(asked)
    if numbers.dtype == bool:
        if numbers.shape != (count,):
            raise IndexError(f"a mask {list(numbers.shape)}: want a truth value for each of {count}")
        return np.flatnonzero(numbers)
    if numbers.size == 0:
        numbers = numbers.astype(np.int64)
    if numbers.dtype.kind not in "iu":
        raise OptionError(f"an index of {numbers.dtype}: want integers, a slice, or a mask")
    numbers = numbers.astype(np.int64, copy=False)
    if numbers.size and (numbers.min() < -count or numbers.max() >= count):
        raise IndexError(f"numbers from {numbers.min()} to {numbers.max()}: there are {count}")
    return np.where(numbers < 0, numbers + count, numbers)
