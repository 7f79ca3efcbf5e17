"""Plans, and graphs made of what other packages have."""

from __future__ import annotations

import inspect
import json
import os
import pathlib
import re
import sys
import warnings
from typing import Any

import numpy as np

from . import _native
from ._call import call, is_url
from ._commands import import_npy
from ._errors import CorruptError, OptionError
from ._dataset import Dataset, temporary
from ._folders import Folder
from ._loader import Loader, open_options
from ._types import Path, pairs_of_nodes


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


def from_pyg(data: Any, output: Path | None = None, *, name: str | None = None, **options: Any) -> Dataset:
    """Makes the graph ``output`` of a ``Data`` or ``HeteroData`` of PyTorch Geometric; without ``output``, in a temporary
    folder that goes with the last loader of it.

    It takes ``x`` [nodes, features], ``edge_index`` [2, edges] and, where they are there, ``y`` [nodes] or [nodes, L],
    ``edge_weight`` [edges] and the masks ``train_mask``, ``val_mask`` and ``test_mask``, [nodes] or, for several splits,
    [nodes, k]. Other tensors of numbers with a row for each edge become columns of the edges, called ``edge_...`` (``t``
    becomes ``edge_t``), those with a row for each node columns of the nodes; a warning names attributes that it leaves
    out, but for ``edge_label`` and ``edge_label_index``, which are arguments of a loader. The arrays are copied, by way
    of a folder beside ``output``, which is removed afterwards. What it cannot take is an ``OptionError`` that names the
    attribute.

    A ``HeteroData`` becomes a typed graph, with ``x`` of some of its types, or ``num_nodes``. The relation ``"to"`` has no
    name in a graph. Reverses of relations are added where no relation goes back, unless ``directed=True``.
    A name such as ``"Paper"`` becomes ``"paper"``, with a warning.

    :param name: of the data set (default: of the folder ``output``)
    :param options: those of ``import_npy``, such as ``target``, the type to classify (default: the only one with ``y``),
        and ``missing_features``; ``duplicates`` is "keep" by default if edges have columns, else "merge", with a
        warning that counts the edges that are left out
    """
    if hasattr(data, "node_types"):
        from ._typed_arrays import import_typed, of_pyg

        return import_typed("from_pyg", *of_pyg(data), name, output, **options)
    return import_arrays(*pyg_arrays(data, name), output, **options)


def pyg_arrays(data: Any, name: str | None) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """What ``import_arrays`` wants of a ``Data``."""
    columns = _check_pyg(data)
    x = to_array(data.x)
    arrays = {"edge_index": pairs_of_nodes("data.edge_index", to_array(data.edge_index), len(x)), "node_feat": x, **columns}
    if getattr(data, "edge_weight", None) is not None:
        arrays["edge_weight"] = to_array(data.edge_weight).reshape(-1)
    arrays |= labels_and_splits({key: getattr(data, key, None) for key in ("y", *MASKS)}, "y", len(x))
    meta: dict[str, Any] = {"name": name, "num_nodes": len(x), "edge_layout": "2xE"}
    if _symmetric(arrays["edge_index"]) and (getattr(data, "edge_attr", None) is None or data.is_undirected()):
        meta |= {"directed": False, "reverses_stored": True}
    return arrays, meta


def _symmetric(edges: np.ndarray[Any, Any]) -> bool:
    """Whether edges [2, edges] are each there as often as their reverses: then the sums of a hash of (u, v) and of (v, u)
    are equal; else only by a chance of 2^-64. PyTorch Geometric's ``is_undirected`` sorts the edges twice."""
    total = np.uint64(0)
    with np.errstate(over="ignore"):
        for first in range(0, edges.shape[1], 1 << 20):
            u, v = edges[:, first : first + (1 << 20)].astype(np.uint64)
            for ends, sign in (((u, v), 1), ((v, u), -1)):
                h = ends[0] * np.uint64(0x9E3779B97F4A7C15) + ends[1] * np.uint64(0xD1B54A32D192ED03)
                h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                total += np.uint64(sign % (1 << 64)) * np.sum(h ^ (h >> np.uint64(31)), dtype=np.uint64)
    return bool(total == 0)


# What errors call the arrays of an import.
_NAMES = {"node_feat": "x", "node_label": "y", "splits": "masks"}


def _called(file: str) -> str:
    """What errors call the file of an array: of a typed graph, nodes/TYPE/ARRAY or edges/RELATION/ARRAY."""
    *folders, name = file.split("/")
    return " of ".join([_NAMES.get(name, name), *folders[1:]])


def import_arrays(arrays: dict[str, np.ndarray[Any, Any]], meta: dict[str, Any], output: Path | None, **options: Any) -> Dataset:
    """Makes the graph ``output`` (None: in a temporary folder) of arrays in the npy layout, which it takes out of the dict,
    with the options of ``import_npy``. They are written to a folder beside ``output`` first, which is removed
    afterwards. Where ``duplicates`` is not given, repeated edges are kept if edges have columns, and else merged, with a
    warning."""
    if output is None:
        return temporary(lambda home: import_arrays(arrays, meta, os.path.join(home, "graph"), **options))
    inspect.signature(import_npy).bind("", output, **options)  # before anything is written
    if options.get("features_in_place"):
        raise OptionError("features_in_place: the features are in no file that stays")
    for file, array in arrays.items():
        if array.dtype.kind not in "biuf":
            raise OptionError(f"{_called(file)} is an array {list(array.shape)} of {array.dtype}: want numbers")
    asked = options.get("duplicates")
    names = {file.rpartition("/")[2] for file in arrays}
    if asked is None and any(name.startswith("edge_") for name in names - {"edge_index", "edge_weight"}):
        options["duplicates"] = asked = "keep"
    meta["name"] = meta["name"] or pathlib.Path(output).absolute().name
    parent = None if is_url(os.fspath(output)) else pathlib.Path(output).absolute().parent
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    home = Folder(parent, ".hopfeed-arrays-")
    try:
        source = os.path.join(home.path, "arrays")
        os.makedirs(os.path.join(source, "nodes" if "node_types" in meta else ""))
        for file in list(arrays):
            path = os.path.join(source, file + ".npy")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            np.save(path, arrays.pop(file))  # the import needs the memory
        with open(os.path.join(source, "meta.json"), "w") as f:
            json.dump(meta, f)
        made = call(["import", "npy"], ["source"], {"source": source, "output": output, **options})
        for note in made["notes"] or []:
            if asked is None and note.endswith("were merged"):
                warn(f'{note}, the first of each pair of nodes is left: duplicates="keep" keeps all')
        return Dataset(output)
    except CorruptError as error:
        named = re.sub(re.escape(source) + r"/?([\w/]*)(\.npy)?", lambda file: _called(file[1]), str(error))
        raise OptionError(named.replace("invalid input: ", "").replace("meta.json: ", "")) from None
    finally:
        home.remove()


MASKS = ("train_mask", "val_mask", "test_mask")
TAKEN = {"x", "edge_index", "y", "edge_weight", *MASKS, "num_nodes", "edge_label", "edge_label_index"}


def _check_pyg(data: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Refuses what from_pyg cannot take, says in a warning what it leaves out, and returns columns by names of files."""
    if hasattr(data, "node_types"):
        raise OptionError(f"data is a {type(data).__name__} with several types of nodes: want a Data with one (data.to_homogeneous())")
    check_edges("data", data)
    if getattr(data, "x", None) is None:
        raise OptionError("data has no x [nodes, features]: give each node features, such as torch.ones(data.num_nodes, 1)")
    check_dense("data.x", data.x)
    more = {key: value for key, value in sorted(data.to_dict().items()) if key not in TAKEN}
    columns, left_out = columns_of(more, node=data.x.shape[0], edge=data.edge_index.shape[-1])
    warn_left_out("from_pyg", left_out, f"x, edge_index, y, edge_weight, masks, and {COLUMNS}")
    return columns


def check_edges(name: str, data: Any) -> None:
    """Refuses data without ``edge_index``."""
    if getattr(data, "edge_index", None) is None:
        hint = ": make it of adj_t by torch.stack(adj_t.t().coo()[:2])" if getattr(data, "adj_t", None) is not None else ""
        raise OptionError(f"{name} has no edge_index [2, edges]{hint}")


def check_dense(name: str, x: Any) -> None:
    """Refuses features that are no dense matrix."""
    if getattr(x, "is_sparse", False) or str(getattr(x, "layout", "torch.strided")) != "torch.strided" or not hasattr(x, "ndim"):
        raise OptionError(f"{name} is sparse: want a dense tensor [nodes, features] (to_dense())")
    if x.ndim != 2:
        raise OptionError(f"{name} is {list(x.shape)}: want [nodes, features]")


COLUMNS = "columns: numbers with a row for each edge or node"


def columns_of(values: dict[str, Any], **rows: int) -> tuple[dict[str, np.ndarray[Any, Any]], list[str]]:
    """Columns, by names of files, and the keys of the values that cannot be columns.

    :param rows: how many there are, of each ``node``, of each ``edge``: the first that a value has as many of"""
    columns: dict[str, np.ndarray[Any, Any]] = {}
    left_out = []
    for key, value in values.items():
        if value is None:
            continue
        of = [name for name, count in rows.items() if getattr(value, "ndim", 0) in (1, 2) and _is_column(value) and value.shape[0] == count]
        of.sort(key=lambda name: not key.startswith(name))
        file = key if key.startswith("edge_") else f"{of[0]}_{key}" if of else ""
        taken = file in ("node_feat", "node_label", "node_id", "edge_index", "edge_weight") or file in columns
        if not of or file == key and of[0] == "node" or not re.fullmatch("[a-z][a-z0-9_]{0,90}", key) or taken:
            left_out.append(key)
        else:
            columns[file] = np.ascontiguousarray(to_array(value))
    return columns, left_out


_COLUMN_TYPES = frozenset("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bfloat16".split())


def _is_column(value: Any) -> bool:
    """Whether an array or tensor is of numbers that a graph has as columns."""
    return "sparse" not in str(getattr(value, "layout", "")) and str(value.dtype).rpartition(".")[2] in _COLUMN_TYPES


def warn(text: str) -> None:
    """Warns whoever has called the package."""
    level = 1
    while sys._getframe(level).f_globals.get("__package__") == __package__:
        level += 1
    warnings.warn(text, stacklevel=level + 1)


def warn_left_out(function: str, left_out: list[str], takes: str) -> None:
    """Warns of what a graph does not get."""
    if left_out:
        warn(f"{function} leaves out {', '.join(left_out)}: a graph has {takes}")


def to_array(tensor: Any) -> np.ndarray[Any, Any]:
    """A tensor of PyTorch as an array that an import reads."""
    if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
        tensor = tensor.float()
    array = tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else np.asarray(tensor)
    return array.astype(np.int8) if array.dtype == bool else array


def labels_and_splits(values: dict[str, Any], label: str, nodes: int, of: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of the labels and masks of nodes, which it takes out of the values. ``of`` tells errors of which nodes."""
    arrays = {}
    if (y := values.pop(label, None)) is not None:
        arrays["node_label"] = to_array(y)
    masks = {mask + of: values.pop(mask, None) for mask in MASKS}
    if any(mask is not None for mask in masks.values()):
        arrays["splits"] = _splits_of(masks, nodes)
    return arrays


def _splits_of(masks: dict[str, Any], nodes: int) -> np.ndarray[Any, Any]:
    """Masks [nodes] or [nodes, k] of train, valid and test, by their names, as splits [k, nodes]: 0, 1, 2, and -1 for none."""
    parts = []
    for name, mask in masks.items():
        array = np.zeros((nodes, 1), np.int8) if mask is None else to_array(mask)
        if array.ndim not in (1, 2) or len(array) != nodes or array.dtype not in (np.int8, np.uint8):
            raise OptionError(f"{name} is an array {list(array.shape)} of {array.dtype}: want truth values [{nodes}] or [{nodes}, splits]")
        parts.append(array.astype(bool).reshape(nodes, -1).T)
    out = np.full((max(len(part) for part in parts), nodes), -1, np.int8)
    taken = np.zeros(out.shape, bool)
    for number, (name, part) in enumerate(zip(masks, parts)):
        if len(part) not in (1, len(out)):
            raise OptionError(f"{name} has {len(part)} splits, and another mask has {len(out)}")
        if (twice := taken & part).any():
            warn(f"{twice.sum()} nodes are in {name} and in a mask before it: they count for {name} alone")
        taken |= part
        out[np.broadcast_to(part, out.shape)] = number
    return out


def parts_of(name: str, column: Any) -> np.ndarray[Any, Any]:
    """Parts of a split, as numbers or names, as numbers: 0, 1, 2, and -1 for none."""
    array = to_array(column)
    if array.dtype.kind in "iu":
        if array.size and not (-1 <= array.min() and array.max() <= 2):
            raise OptionError(f"{name} has numbers from {array.min()} to {array.max()}: want 0 train, 1 val, 2 test, -1 none")
        return array.astype(np.int8)
    numbers = {"train": 0, "val": 1, "valid": 1, "test": 2, "none": -1, "": -1, "None": -1}
    texts = [str(part) for part in array]
    unknown = sorted(set(texts) - set(numbers))
    if unknown:
        raise OptionError(f"{name} has {', '.join(map(repr, unknown[:20]))}: want train, val, test or none")
    return np.array([numbers[part] for part in texts], np.int8)
