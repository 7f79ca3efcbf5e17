"""Graphs made of tables and of what other libraries have in memory."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import numpy as np

from ._dataset import Dataset
from ._errors import OptionError
from ._typed_arrays import import_typed, of_dgl
from ._types import Path, listed, pairs_of_nodes
from ._work import COLUMNS, columns_of, import_arrays, labels_and_splits, parts_of, to_array, warn_left_out

_TAKES = f"features, edges, labels, weights of edges, splits, and {COLUMNS}"


def from_edges(
    edges: Any,
    output: Path | None = None,
    *,
    nodes: Any = None,
    source: str = "source",
    destination: str = "destination",
    weight: str | None = None,
    id: str | None = None,
    features: Sequence[str] | None = None,
    label: str | None = None,
    split: str | None = None,
    edge_columns: Sequence[str] = (),
    node_columns: Sequence[str] = (),
    undirected: bool = False,
    name: str | None = None,
    **options: Any,
) -> Dataset:
    """Makes the graph ``output`` of tables in memory: of pyarrow, pandas or polars, or dicts of arrays; without
    ``output``, in a temporary folder that goes with the last loader of it.

    :param edges: a row for each edge, with the numbers of its nodes in the columns ``source`` and ``destination``
    :param nodes: a row for each node. Without it every node has one feature, 1
    :param weight: column of edges: weight
    :param id: column of nodes: what edges call them. Without it edges have numbers of rows of ``nodes``
    :param features: columns of nodes: numbers, or lists of equal length; default all others
    :param label: column of nodes: label
    :param split: column of nodes: 0 train, 1 val, 2 test, -1 none, or these names
    :param edge_columns: further columns of edges that the graph keeps, called ``edge_...``
    :param node_columns: further columns of nodes that it keeps
    :param undirected: add the reverse of every edge
    :param name: name of the data set (default: of the folder ``output``)
    :param options: further ones of ``import_npy``; ``duplicates`` as of ``from_pyg``
    """
    wanted = [source, destination, *([weight] if weight else []), *listed("edge_columns", edge_columns, "a list of names")]
    table = _columns("edges", edges, wanted)
    warn_left_out("from_edges", [f"column {c!r} of edges" for c in _names("edges", edges) if c not in wanted], _TAKES)
    ends = np.stack([table[source], table[destination]])
    rows = {} if nodes is None else _columns("nodes", nodes)
    missing = [c for c in (id, label, split, *(features or []), *listed("node_columns", node_columns, "a list of names")) if c and c not in rows]
    if missing:
        raise OptionError(f"nodes has no column {', '.join(map(repr, missing))} (it has {', '.join(rows) or 'none'})")
    given = len(next(iter(rows.values()), ()))
    kept, refused = columns_of({c: table[c] for c in edge_columns}, edge=ends.shape[1])
    of_nodes, others = columns_of({c: rows[c] for c in node_columns}, node=given)
    if refused or others:
        raise OptionError(f"{'edge' if refused else 'node'}_columns {', '.join([*refused, *others])}: want {COLUMNS}, with a name of a-z, 0-9 and _")
    kept |= of_nodes
    if id is not None:
        ends = _numbers_of(ends, rows.pop(id))
    if ends.dtype.kind not in "iu":
        raise OptionError(f"{source} and {destination} are of {ends.dtype}: want numbers of nodes, or id=, the column of nodes that has their names")
    arrays: dict[str, np.ndarray[Any, Any]] = {"edge_index": ends}
    arrays |= kept
    if weight:
        arrays["edge_weight"] = table[weight]
    if label:
        arrays["node_label"] = rows.pop(label)
    if split:
        arrays["splits"] = parts_of("split", rows.pop(split))
    chosen = [c for c in rows if rows[c].dtype.kind in "biuf" and c not in node_columns] if features is None else list(features)
    for c in chosen:
        if rows[c].dtype.kind not in "biuf":
            raise OptionError(f"features: column {c!r} of nodes is of {rows[c].dtype}: want numbers")
    if features is None:
        warn_left_out("from_edges", [f"column {c!r} of nodes" for c in rows if c not in (*chosen, *node_columns)], _TAKES)
    if chosen:
        arrays["node_feat"] = np.concatenate([rows[c].reshape(len(rows[c]), -1).astype(np.float32) for c in chosen], axis=1)
    else:
        count = given or int(ends.max(initial=-1)) + 1
        arrays["node_feat"] = np.ones((count, 1), np.float32)
    count = len(arrays["node_feat"])
    pairs_of_nodes("edges", ends, count)
    meta = {"name": name, "num_nodes": count, "edge_layout": "2xE"}
    return import_arrays(arrays, meta, output, undirected=undirected or None, **options)


def from_dgl(graph: Any, output: Path | None = None, *, feature: str = "feat", label: str = "label", weight: str = "weight", name: str | None = None, **options: Any) -> Dataset:
    """Makes the graph ``output`` of a ``DGLGraph``: its edges, and of ``ndata`` features, labels and ``train_mask``,
    ``val_mask`` and ``test_mask``, of ``edata`` weights, where they are there, and other numbers as columns; without
    ``output``, in a temporary folder that goes with the last loader of it. A warning names what it leaves out. A graph with
    several types of nodes or edges becomes a typed one, as of ``from_pyg``. ``options`` are those of ``import_npy``,
    ``duplicates`` as of ``from_pyg``."""
    if not hasattr(graph, "ntypes"):
        raise TypeError(f"graph is of type {type(graph).__name__}: want a DGLGraph")
    if len(graph.ntypes) != 1 or len(graph.etypes) != 1:
        return import_typed("from_dgl", *of_dgl(graph, feature, label, weight), name, output, **options)
    ndata, edata = dict(graph.ndata), dict(graph.edata)
    if feature not in ndata:
        raise OptionError(f"ndata has no {feature!r} (it has {', '.join(ndata) or 'nothing'}): name the features by feature=")
    arrays = {"edge_index": np.stack([to_array(end) for end in graph.edges()]), "node_feat": to_array(ndata.pop(feature))}
    if weight in edata:
        arrays["edge_weight"] = to_array(edata.pop(weight)).reshape(-1)
    arrays |= labels_and_splits(ndata, label, graph.num_nodes())
    of_nodes, nodes_left = columns_of(ndata, node=graph.num_nodes())
    of_edges, edges_left = columns_of(edata, edge=graph.num_edges())
    arrays |= {**of_nodes, **of_edges}
    warn_left_out("from_dgl", [*(f"ndata {k!r}" for k in nodes_left), *(f"edata {k!r}" for k in edges_left)], _TAKES)
    return import_arrays(arrays, {"name": name, "num_nodes": graph.num_nodes(), "edge_layout": "2xE"}, output, **options)


def from_ogb(dataset: Any, output: Path, *, name: str | None = None, **options: Any) -> Dataset:
    """Makes the graph ``output`` of a ``NodePropPredDataset`` of the package ogb, with its split. (``import_ogb`` reads
    the folder of a data set.) ``edge_feat`` becomes the column ``edge_attr``, and other numbers, such as ``node_year``, columns
    of their names. A warning names what it leaves out. ``options`` are those of ``import_npy``, ``duplicates`` as of
    ``from_pyg``."""
    if not isinstance(dataset[0], tuple):
        raise OptionError("dataset has no pairs of graph and labels: want a NodePropPredDataset (from_pyg takes what a PygNodePropPredDataset has)")
    graph, labels = dataset[0]
    if "edge_index" not in graph:
        raise OptionError(f"the data set has several types of nodes ({', '.join(graph)}): want one with edge_index and node_feat")
    if graph.get("node_feat") is None:
        raise OptionError("the data set has no node_feat: import_ogb makes features of what its folder has")
    arrays = {"edge_index": to_array(graph["edge_index"]), "node_feat": to_array(graph["node_feat"]), "node_label": to_array(labels)}
    if arrays["node_label"].ndim == 2 and arrays["node_label"].shape[1] == 1:
        arrays["node_label"] = arrays["node_label"][:, 0]
    nodes = int(graph["num_nodes"])
    arrays["splits"] = np.full(nodes, -1, np.int8)
    for part, key in enumerate(("train", "valid", "test")):
        arrays["splits"][to_array(dataset.get_idx_split()[key])] = part
    more = {"edge_attr" if k == "edge_feat" else k: v for k, v in graph.items() if k not in ("edge_index", "node_feat", "num_nodes")}
    more |= {k: v[:, 0] for k, v in more.items() if k.startswith("node_") and getattr(v, "shape", ())[1:] == (1,)}
    columns, left_out = columns_of(more, node=nodes, edge=arrays["edge_index"].shape[1])
    arrays |= columns
    warn_left_out("from_ogb", left_out, _TAKES)
    meta = {"name": name or getattr(dataset, "name", None), "num_nodes": nodes, "edge_layout": "2xE"}
    if not dataset.is_hetero and getattr(dataset, "meta_info", {}).get("add_inverse_edge") == "True":
        meta |= {"directed": False, "reverses_stored": True}
    return import_arrays(arrays, meta, output, **options)


def _names(what: str, table: Any) -> list[Any]:
    """The columns of a table."""
    names = getattr(table, "column_names", None)  # of pyarrow
    if names is None and not hasattr(table, "columns") and not isinstance(table, Mapping):
        raise TypeError(f"{what} is of type {type(table).__name__}: want a table, or a dict of columns")
    return list(getattr(table, "columns", table) if names is None else names)


def _columns(what: str, table: Any, wanted: Sequence[str] | None = None) -> dict[str, np.ndarray[Any, Any]]:
    """Columns of a table as arrays; columns of lists become [rows, length]."""
    names = _names(what, table)
    missing = [c for c in wanted or [] if c not in names]
    if missing:
        raise OptionError(f"{what} has no column {', '.join(map(repr, missing))} (it has {', '.join(map(str, names))})")
    found = {}
    for column in names if wanted is None else wanted:
        value = table[column]
        array = value.to_numpy() if hasattr(value, "to_numpy") else to_array(value)
        if array.dtype == object and len(array) and hasattr(array[0], "__len__") and not isinstance(array[0], str):
            if len({len(row) for row in array}) > 1:
                raise OptionError(f"column {column!r} of {what} has lists of different lengths")
            array = np.stack(list(array))
        found[str(column)] = array
    lengths = {name: len(array) for name, array in found.items()}
    if len(set(lengths.values())) > 1:
        raise OptionError(f"{what} has columns of different lengths: {lengths}")
    return found


def _numbers_of(ends: np.ndarray[Any, Any], ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The rows of nodes that have these ids."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    if len(ids) > 1 and (ordered[1:] == ordered[:-1]).any():
        raise OptionError(f"nodes has two rows with the id {ordered[:-1][ordered[1:] == ordered[:-1]][0]!r}")
    at = np.minimum(np.searchsorted(ordered, ends), max(len(ids) - 1, 0))
    unknown = ends != ordered[at] if len(ids) else np.ones(ends.shape, bool)
    if unknown.any():
        raise OptionError(f"edges has an end {ends[unknown][0]!r}, which no row of nodes has as id")
    return order[at]
