"""Typed graphs made of what PyTorch Geometric and DGL have in memory."""

from __future__ import annotations

import re
import types
from typing import Any, Iterable

import numpy as np

from ._dataset import Dataset
from ._errors import OptionError
from ._types import Path, pairs_of_nodes
from ._work import COLUMNS, MASKS, TAKEN, check_dense, check_edges, columns_of, import_arrays, labels_and_splits, to_array, warn, warn_left_out

#: by type, or by (source type, name, destination type): arrays and numbers by the names of PyTorch Geometric
Stores = dict[Any, dict[str, Any]]


def of_pyg(data: Any) -> tuple[Stores, Stores]:
    """The nodes of each type and the edges of each relation of a ``HeteroData``."""
    stores = data.to_dict()
    return {t: dict(stores[t]) for t in data.node_types}, {e: dict(stores[e]) for e in data.edge_types}


def of_dgl(graph: Any, feature: str, label: str, weight: str) -> tuple[Stores, Stores]:
    """Those of a ``DGLGraph``, whose features, labels and weights have these names."""
    ours = {feature: "x", label: "y", **{mask: mask for mask in MASKS}}
    nodes, edges = {}, {}
    for t in graph.ntypes:
        nodes[t] = {ours.get(key, f"ndata {key!r}" if key in TAKEN else key): value for key, value in graph.nodes[t].data.items()}
        nodes[t]["num_nodes"] = graph.num_nodes(t)
    for e in graph.canonical_etypes:
        ours = {weight: "edge_weight"}
        edges[e] = {ours.get(key, f"edata {key!r}" if key in TAKEN else key): value for key, value in graph.edges[e].data.items()}
        edges[e]["edge_index"] = np.stack([to_array(end) for end in graph.edges(etype=e)])
    return nodes, edges


def import_typed(function: str, nodes: Stores, edges: Stores, name: str | None, output: Path | None, **options: Any) -> Dataset:
    """Makes the typed graph ``output`` of nodes and edges, for a function that errors name, with the options of
    ``import_npy``."""
    if not edges:
        raise OptionError(f"there are no relations, only nodes of type {', '.join(map(repr, nodes))}: want edge_index of some")
    called = _names(function, [*nodes, *(e[1] for e in edges)])
    counts = {t: _count(t, values) for t, values in nodes.items()}
    _check_different({t: called[t] for t in nodes})
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    left_out = []
    for t, values in nodes.items():
        found = {}
        if values.get("x") is not None:
            check_dense(f"x of {t}", values["x"])
            found["node_feat"] = to_array(values["x"])
        found |= labels_and_splits(values, "y", counts[t], f" of {t}")
        columns, others = columns_of(_more(values), node=counts[t])
        arrays |= {f"nodes/{called[t]}/{file}": array for file, array in (found | columns).items()}
        left_out += [f"{key} of {t}" for key in others]
    folders = {}
    for e, values in edges.items():
        unknown = [t for t in (e[0], e[2]) if t not in nodes]
        if unknown:
            raise OptionError(f"relation {e} has an end of type {unknown[0]!r}, of which there are no nodes: give their number, num_nodes")
        check_edges(f"relation {e}", types.SimpleNamespace(**values))
        relation = called[e[1]]  # "to" is what PyTorch Geometric calls a relation without a name
        folders[e] = "__".join([called[e[0]], *([] if relation == "to" else [relation]), called[e[2]]])
        found = {"edge_index": pairs_of_nodes(f"edge_index of {e}", to_array(values["edge_index"]), counts[e[0]], counts[e[2]])}
        if values.get("edge_weight") is not None:
            found["edge_weight"] = to_array(values["edge_weight"]).reshape(-1)
        columns, others = columns_of(_more(values), edge=found["edge_index"].shape[1])
        arrays |= {f"edges/{folders[e]}/{file}": array for file, array in (found | columns).items()}
        left_out += [f"{key} of {e}" for key in others]
    _check_different(folders)
    warn_left_out(function, left_out, f"x, y, masks, edge_index, edge_weight, and {COLUMNS}")
    if (target := options.get("target")) in called:
        options["target"] = called[target]
    return import_arrays(arrays, {"name": name, "node_types": {called[t]: n for t, n in counts.items()}}, output, **options)


def _more(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sorted(values.items()) if key not in TAKEN}


def _names(function: str, names: Iterable[str]) -> dict[str, str]:
    """What types and relations are called in a graph: capitals become small letters, other characters "_"."""
    called = {name: re.sub("[^a-z0-9]+", "_", str(name).lower()).strip("_") for name in names}
    bad = [name for name, now in called.items() if not re.fullmatch("[a-z][a-z0-9_]{0,39}", now)]
    if bad:
        raise OptionError(
            f"{bad[0]!r} cannot name a type or a relation: rename it (a letter of a-z, then a-z, 0-9 and single _, at most 40 characters)"
        )
    changed = [f"{name!r} becomes {now!r}" for name, now in called.items() if name != now]
    if changed:
        warn(f"{function}: names of types and relations have a-z, 0-9 and single _: {', '.join(changed)}")
    return called


def _check_different(called: dict[Any, str]) -> None:
    """Refuses types or relations that would have the same name."""
    seen: dict[str, Any] = {}
    for given, now in called.items():
        if seen.setdefault(now, given) != given:
            raise OptionError(f"{seen[now]!r} and {given!r} would both be called {now!r}: rename one")


def _count(node_type: str, values: dict[str, Any]) -> int:
    """How many nodes of a type there are."""
    if values.get("num_nodes") is not None:
        return int(values["num_nodes"])
    for key in ("x", "y", *MASKS):
        if values.get(key) is not None:
            return len(values[key])
    raise OptionError(f"type {node_type!r} has no x: give the number of its nodes, num_nodes")
