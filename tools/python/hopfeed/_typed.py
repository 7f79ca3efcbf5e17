"""Typed graphs on disk, and batches that are sampled of them."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable

import numpy as np

from . import _native
from ._batches import Handle, Lease, view
from ._call import call, existing
from ._dataset import Dataset
from ._edges import Edges
from ._errors import OptionError
from ._matrix import Matrix
from ._opened import Opened
from ._types import Path

EdgeType = tuple[str, str, str]


class TypedDataset(Opened):
    """A graph on disk with several types of nodes: what ``types.json`` says, which ``manifest`` has.

    As in a ``HeteroData`` of PyTorch Geometric, ``graph["paper"]`` is the nodes of a type, a ``Dataset``: its features ``x``,
    labels ``y``, ``splits``, ``train_mask``, ``orig_id``. ``graph["author", "writes", "paper"]`` is the ``Edges`` of a relation;
    its name can be left out where no other leads from the one type to the other.
    """

    kind = "typed"

    def __init__(self, path: Path) -> None:
        self.path = existing(path)
        about = call(["inspect"], ["data"], {"data": self.path, "progress": False})
        if about["kind"] != self.kind:
            raise OptionError(f"{self.path} is a {about['kind']}, with one type of nodes: hopfeed.Dataset reads it")
        self.manifest: dict[str, Any] = {**about, "rows_fingerprint": about["fingerprint"]}
        self.name: str = about["name"]
        self.target: str = about["target"]  #: the type whose nodes are classified
        self.node_types: list[str] = [t["name"] for t in about["node_types"]]
        #: (source type, name, destination type), with the name ``"to"`` where there is none
        self.edge_types: list[EdgeType] = [(r["source"], r["name"] or "to", r["destination"]) for r in about["relations"]]
        self._types = {name: Dataset(os.path.join(self.path, "nodes", name)) for name in self.node_types}
        self._edges: dict[EdgeType, Edges] = {}
        # The engine numbers nodes type after type, and edges relation after relation.
        self._first_nodes = np.cumsum([0] + [t["nodes"] for t in about["node_types"]][:-1])
        self._first_edges = np.cumsum([0] + [r["edges"] for r in about["relations"]][:-1])

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether a path is that of a typed graph."""
        return os.path.exists(os.path.join(existing(path), "types.json"))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return self._relation(key)
        if key not in self._types:
            raise OptionError(f"{self.path} has no type {key!r} (it has {', '.join(self.node_types)})")
        return self._types[key]

    def _relation(self, key: tuple[str, ...]) -> Edges:
        found = [e for e in self.edge_types if key in (e, (e[0], e[2]))]
        if len(found) != 1:
            there = ", ".join(map(str, self.edge_types))
            raise OptionError(f"{self.path} has {len(found)} relations {key!r}: want one of {there}, without the name where it is the only one")
        if found[0] not in self._edges:
            relation = self.manifest["relations"][self.edge_types.index(found[0])]
            ask = functools.partial(self._ask, relation={end: relation[end] for end in ("source", "name", "destination")})
            self._edges[found[0]] = Edges("__".join(found[0]), self.path, ask("topology"), ask)
        return self._edges[found[0]]

    @functools.cached_property
    def weighted(self) -> list[EdgeType]:
        """The relations whose edges have weights."""
        return [e for e in self.edge_types if self[e].edge_weight is not None]

    def __repr__(self) -> str:
        return f"<hopfeed.TypedDataset {self.path!r}: {len(self.node_types)} types of nodes, {len(self.edge_types)} relations>"


class TypedArrays:
    """Makes the arrays of batches of a typed graph, whose parts have local numbers of their own for each type."""

    def __init__(
        self, graph: TypedDataset, seed_type: str, subgraph: bool, features: bool, edge_ids: bool, columns: list[str], block: Callable[..., Any]
    ) -> None:
        self.graph, self.seed_type, self.subgraph = graph, seed_type, subgraph
        self.features, self.edge_ids, self.block = features, edge_ids or subgraph, block
        bare = [t for t in graph.node_types if not graph[t].features]
        if features and bare:
            raise OptionError(
                f"{graph.path} has no features of {', '.join(bare)}: import it with missing_features, or open the loader with features=False"
            )
        #: by name, then by type or relation
        self.of_nodes: dict[str, dict[str, Matrix]] = {}
        self.of_edges: dict[str, dict[EdgeType, Matrix]] = {}
        for name in columns:
            of_nodes = {t: graph[t].column(name) for t in graph.node_types if name in graph[t].columns}
            of_edges = {e: graph[e].column(name) for e in graph.edge_types if name in graph[e].columns}
            if not of_nodes and not of_edges:
                raise OptionError(f"columns: no type or relation of {graph.path} has a column {name!r}")
            if of_edges and not subgraph:
                e = next(iter(of_edges))
                raise OptionError(f"columns: {name} is of edges, which blocks have by number: graph[{e}].column({name!r})[block.e_id]")
            self.of_nodes[name], self.of_edges[name] = of_nodes, of_edges

    def read(self, owner: Handle | Lease, s: _native.BatchStruct, array: Callable[[str, Any], Any]) -> dict[str, Any]:
        """The arrays of the batch that the struct describes. They are copies."""
        graph = self.graph
        ids = view(owner, s.inputs, (s.feature_rows,), "<u4").astype(np.int64)
        types = np.searchsorted(graph._first_nodes, ids, side="right") - 1
        local = np.empty(len(ids), np.int64)
        n_id = {}
        for k, name in enumerate(graph.node_types):
            places = np.flatnonzero(types == k)
            local[places] = np.arange(len(places))
            n_id[name] = ids[places] - graph._first_nodes[k]
        seeds = n_id[self.seed_type][: s.rows]
        out: dict[str, Any] = {"n_id_dict": {name: array("n_id", numbers) for name, numbers in n_id.items()}, "seed_id": array("seed_id", seeds)}
        out["seed_type"] = self.seed_type
        if self.features:
            x = {name: np.asarray(graph[name].x[numbers], np.float32) for name, numbers in n_id.items()}
            out["x_dict"] = {name: array("x", rows) for name, rows in x.items()}
        for name, columns in self.of_nodes.items():
            out[f"{name}_dict"] = {t: array(name, column[n_id[t]]) for t, column in columns.items()}
        out["y"] = array("y", graph[self.seed_type].y[seeds])
        blocks = [self._relations(owner, block, types, local) for block in _native.blocks(s)]
        if not self.subgraph:
            out["blocks"] = [
                {
                    edge_type: self.block(d, n, *(array(name, part) for name, part in zip(("indptr", "indices", "weights", "e_id"), parts)))
                    for edge_type, (d, n, *parts) in block.items()
                }
                for block in blocks
            ]
            return out
        out["edge_index_dict"], out["e_id_dict"], weighted = {}, {}, {}
        for edge_type, (d, _, indptr, indices, weights, e_id) in blocks[0].items():
            edge_index = np.stack([indices.astype(np.int64), np.repeat(np.arange(d), np.diff(indptr))])
            out["edge_index_dict"][edge_type] = array("edge_index", edge_index)
            out["e_id_dict"][edge_type] = array("e_id", e_id)
            if edge_type in graph.weighted:
                weighted[edge_type] = array("edge_weight", weights)
        if weighted:
            out["edge_weight_dict"] = weighted
        for name, of_edges in self.of_edges.items():
            out[f"{name}_dict"] |= {e: array(name, column[blocks[0][e][-1]]) for e, column in of_edges.items()}
        return out

    def _relations(self, owner: Handle | Lease, block: tuple[Any, ...], types: Any, local: Any) -> dict[EdgeType, tuple[Any, ...]]:
        """Destinations, sources and arrays of each relation of a block. Its rows are those of one relation after
        another, of each the destinations of its type."""
        destinations, sources, edges, starts, *pointers = block
        of_type = {name: types == k for k, name in enumerate(self.graph.node_types)}
        rows = [int(of_type[to][:destinations].sum()) for _, _, to in self.graph.edge_types]
        indptr = view(owner, starts, (sum(rows) + 1,), "<i4") if starts else np.zeros(sum(rows) + 1, np.int32)
        indices, weights, e_id = (view(owner, p, (edges,), kind) for p, kind in zip(pointers, ("<i4", "<f4", "<i8")))
        out, row = {}, 0
        for edge_type, n, first_edge in zip(self.graph.edge_types, rows, self.graph._first_edges):
            first, end = indptr[row], indptr[row + n]
            parts = [indptr[row : row + n + 1] - first, local[indices[first:end]].astype(np.int32), weights[first:end].copy()]
            if self.edge_ids:
                parts.append(e_id[first:end] - first_edge)
            out[edge_type] = n, int(of_type[edge_type[0]][:sources].sum()), *parts
            row += n
        return out


def to_dgl(batch: Any) -> list[Any]:
    """The blocks of a batch as blocks of DGL, each with the nodes of all types."""
    import dgl  # type: ignore[import-not-found]

    before = {node_type: len(n_id) for node_type, n_id in batch["n_id_dict"].items()}
    seeds = {node_type: batch.batch_size if node_type == batch["seed_type"] else 0 for node_type in before}
    made = []
    for relations, later in zip(batch["blocks"], [*batch["blocks"][1:], {}]):
        # Destinations of a type without in-edges are what the next layer has as sources.
        after = {**seeds, **{e[0]: b.sources for e, b in later.items()}, **{e[2]: b.destinations for e, b in relations.items()}}
        arrays: dict[Any, Any] = {e: ("csc", (b.indptr, b.indices, [])) for e, b in relations.items()}
        block = dgl.create_block(arrays, num_src_nodes=before, num_dst_nodes=after)
        for e, b in relations.items():
            block.edges[e].data["weight"] = b.weights
            if b.e_id is not None:
                block.edges[e].data[dgl.EID] = b.e_id
        made.append(block)
        before = after
    for node_type, x in batch.get("x_dict", {}).items():
        made[0].srcnodes[node_type].data["feat"] = x
    made[-1].dstnodes[batch["seed_type"]].data["label"] = batch["y"]
    return made
