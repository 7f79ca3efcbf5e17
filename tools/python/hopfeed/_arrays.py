"""Stores of what is in memory, in a temporary folder that goes with them."""

from __future__ import annotations

import os
import shutil
from typing import Any, Mapping

import numpy as np

from ._commands import propagate
from ._dataset import Dataset, temporary
from ._errors import OptionError
from ._progress import Progress
from ._types import at_least
from ._work import import_arrays, parts_of, pyg_arrays, to_array


def temporary_store(graph: Any, kind: type[Dataset], progress: Progress, folder: Any, **options: Any) -> Dataset:
    """The store of what ``graph``, a function of the folder, makes there."""

    def store(home: str) -> Dataset:
        propagate(graph(home), os.path.join(home, "store"), progress=progress, **options)
        shutil.rmtree(os.path.join(home, "graph"), ignore_errors=True)
        return kind(os.path.join(home, "store"))

    return temporary(store, folder)


def sign_store(data: Any, kind: type[Dataset], hops: int, operator: str, progress: Progress, folder: Any) -> Dataset:
    """The hop store of a graph in memory or on disk."""

    at_least(0, hops=hops)

    def graph(home: str) -> Any:
        if isinstance(data, (str, os.PathLike, Dataset)):
            return data
        return import_arrays(*pyg_arrays(data, "data"), os.path.join(home, "graph"), duplicates="keep", progress=progress)

    return temporary_store(graph, kind, progress, folder, hops=hops, operator=operator, rows="all")


def array_store(x: Any, y: Any, splits: Any, kind: type[Dataset], progress: Progress, folder: Any) -> Dataset:
    """The store of features in memory."""
    named = dict(x) if isinstance(x, Mapping) else None
    arrays = [to_array(a) for a in named.values()] if named is not None else [to_array(x)]
    if named is None and arrays[0].ndim == 3:
        arrays = list(arrays[0].swapaxes(0, 1))
    if not arrays or any(a.ndim != 2 or a.shape != arrays[0].shape for a in arrays):
        raise OptionError(f"x has arrays {[list(a.shape) for a in arrays]}: want [rows, features], [rows, matrices, features], or a dict of arrays [rows, features] of one shape")
    rows = len(arrays[0])
    whole = {"node_feat": np.concatenate(arrays, axis=1) if len(arrays) > 1 else arrays[0], "edge_index": np.zeros((2, 0), np.int64)}
    parts = np.zeros(rows, np.int8) if splits is None else parts_of("splits", splits)
    for name, array in (("node_label", None if y is None else to_array(y)), ("splits", parts)):
        if array is not None:
            whole[name] = array
            if array.ndim == 0 or len(array) != rows or name == "splits" and array.ndim > 1:
                raise OptionError(f"{'y' if name == 'node_label' else name} has {len(array) if array.ndim == 1 else list(array.shape)} rows, and x has {rows}")
    store = temporary_store(
        lambda home: import_arrays(whole, {"name": "arrays", "num_nodes": rows}, os.path.join(home, "graph"), progress=progress),
        kind, progress, folder, hops=0, rows="all",
    )
    store.parts = [str(name) for name in named or [f"matrix-{m}" for m in range(len(arrays))]]
    store.features //= len(arrays)
    return store
