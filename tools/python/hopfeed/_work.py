"""Plans, and graphs made of what other packages have."""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import re
import tempfile
import warnings
from typing import Any

import numpy as np

from . import _native
from ._commands import import_npy
from ._errors import OptionError
from ._dataset import Dataset
from ._loader import Loader, open_options
from ._types import Path


def plan(store: Path | Dataset, **options: Any) -> dict[str, Any]:
    """What a Loader with these options would do, and why, with predicted times of loading an epoch. It
    measures the machine for about a second.

    :return: ``placement``, ``shuffle``, ``reasons``, and ``alternatives`` with their memory and times
    """
    arguments = inspect.signature(Loader).bind(store, **options)
    arguments.apply_defaults()
    wishes = open_options(arguments.arguments)
    del wishes["dataset"]
    result: dict[str, Any] = _native.run("plan", wishes)
    return result


def from_pyg(data: Any, output: Path, *, name: str | None = None, **options: Any) -> Dataset:
    """Makes the graph ``output`` of a ``Data`` of PyTorch Geometric.

    It takes ``x``, ``edge_index``, and, where they are there, ``y``, ``edge_weight`` and the masks
    ``train_mask``, ``val_mask`` and ``test_mask``, [n] or, for several splits, [n, k]. Other tensors of numbers with a row
    for each edge become columns of the edges, called ``edge_...`` (``t`` becomes ``edge_t``), those with a row for each
    node columns of the nodes. Attributes that it leaves out are named in a warning. ``options`` are those of ``import_npy``. The data set is called ``name``, by default as the
    folder ``output``. The arrays are written to a folder beside ``output`` first, which is removed afterwards.
    """
    return import_arrays(*pyg_arrays(data, name), output, **options)


def pyg_arrays(data: Any, name: str | None) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """What ``import_arrays`` wants of a ``Data``."""
    columns = _check_pyg(data)
    arrays = {"edge_index": to_array(data.edge_index), "node_feat": to_array(data.x), **columns}
    for source, target in (("y", "node_label"), ("edge_weight", "edge_weight")):
        if getattr(data, source, None) is not None:
            arrays[target] = to_array(getattr(data, source))
    masks = [getattr(data, mask, None) for mask in ("train_mask", "val_mask", "test_mask")]
    if any(mask is not None for mask in masks):
        arrays["splits"] = splits_of(masks)
    meta: dict[str, Any] = {"name": name, "num_nodes": int(arrays["node_feat"].shape[0]), "edge_layout": "2xE"}
    if data.is_undirected():
        meta |= {"directed": False, "reverses_stored": True}
    return arrays, meta


def import_arrays(arrays: dict[str, np.ndarray[Any, Any]], meta: dict[str, Any], output: Path, **options: Any) -> Dataset:
    """Makes the graph ``output`` of arrays in the npy layout, with the options of ``import_npy``. The arrays are written
    to a folder beside ``output`` first, which is removed afterwards."""
    if options.get("features_in_place"):
        raise OptionError("features_in_place: the features are in no file that stays")
    meta["name"] = meta["name"] or pathlib.Path(output).absolute().name
    with tempfile.TemporaryDirectory(prefix=".hopfeed-arrays-", dir=pathlib.Path(output).absolute().parent) as folder:
        for file, array in arrays.items():
            np.save(os.path.join(folder, file + ".npy"), array)
        with open(os.path.join(folder, "meta.json"), "w") as f:
            json.dump(meta, f)
        return import_npy(folder, output, **options)


_TAKEN = {"x", "edge_index", "y", "edge_weight", "train_mask", "val_mask", "test_mask", "num_nodes"}


def _check_pyg(data: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Refuses what from_pyg cannot take, says in a warning what it leaves out, and returns columns by names of files."""
    if hasattr(data, "node_types"):
        raise OptionError(f"data is a {type(data).__name__} with several types of nodes: want a Data with one (data.to_homogeneous())")
    if getattr(data, "edge_index", None) is None:
        hint = ": make it of adj_t by torch.stack(data.adj_t.t().coo()[:2])" if getattr(data, "adj_t", None) is not None else ""
        raise OptionError(f"data has no edge_index [2, edges]{hint}")
    x = getattr(data, "x", None)
    if x is None:
        raise OptionError("data has no x [nodes, features]: give each node features, such as torch.ones(data.num_nodes, 1)")
    if getattr(x, "is_sparse", False) or str(getattr(x, "layout", "torch.strided")) != "torch.strided" or not hasattr(x, "ndim"):
        raise OptionError("data.x is sparse: want a dense tensor [nodes, features] (data.x.to_dense())")
    if x.ndim != 2:
        raise OptionError(f"data.x is {list(x.shape)}: want [nodes, features]")
    columns, left_out = {}, []
    for key, value in sorted(data.to_dict().items()):
        if key in _TAKEN or value is None:
            continue
        rows = value.shape[0] if getattr(value, "ndim", 0) in (1, 2) and "sparse" not in str(getattr(value, "layout", "")) else -1
        name = key if key.startswith("edge_") else f"edge_{key}"
        if rows == x.shape[0] and not (rows == data.edge_index.shape[1] and key == name):
            name = f"node_{key}"
        elif rows != data.edge_index.shape[1]:
            rows = -1
        if rows < 0 or not re.fullmatch("[a-z][a-z0-9_]{0,90}", key) or name in ("node_feat", "node_label", "node_id", "edge_index", "edge_weight") or name in columns:
            left_out.append(key)
        else:
            columns[name] = np.ascontiguousarray(to_array(value))
    warn_left_out("from_pyg", left_out, "x, edge_index, y, edge_weight, masks, and columns: numbers with a row for each edge or node", 5)
    return columns


def warn_left_out(function: str, left_out: list[str], takes: str, level: int = 4) -> None:
    """Warns of what a graph does not get."""
    if left_out:
        warnings.warn(f"{function} leaves out {', '.join(left_out)}: a graph has {takes}", stacklevel=level)


def to_array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor of PyTorch as an array that an import reads."""
    if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
        tensor = tensor.float()
    array = tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else np.asarray(tensor)
    return array.astype(np.int8) if array.dtype == bool else array


def splits_of(masks: list[Any]) -> np.ndarray[Any, Any]:
    """Masks [n] or [n, k] of train, valid and test as splits [k, n]: 0, 1, 2, and -1 for none."""
    out = None
    for part, mask in enumerate(masks):
        if mask is None:
            continue
        array = to_array(mask).astype(bool)
        array = array.reshape(len(array), -1).T
        out = np.full(array.shape, -1, np.int8) if out is None else out
        if out.shape != array.shape:  # one test set of several splits
            out, array = np.broadcast_arrays(out, array)
            out = out.copy()
        out[array] = part
    assert out is not None
    return out
