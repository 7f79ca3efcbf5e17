"""Loaders of batches that are sampled of a graph, for models that pass messages."""

from __future__ import annotations

import base64
import operator
import os
import zlib
from typing import Any, Callable, Generic, Literal, Sequence

import numpy as np

from . import _native
from ._batch import Array, Batch
from ._batches import Batches, Handle, Lease, view, view_labels
from ._errors import OptionError
from ._dataset import Dataset
from ._typed import TypedArrays, TypedDataset
from ._types import Aggregation, Memory, NegativeSampling, Path, Sampler, Split, at_least, cache_options, listed, memory_text, negative_sampling, node_numbers, nodes_name, one_of, pairs_of_nodes, seed_times, shuffle_name, split_name


class Block(Generic[Array]):
    """A layer of a sampled batch: a bipartite graph, in compressed form by destination.

    Sources and destinations are known by local numbers, and the destinations are the first of the
    sources: ``h[:block.destinations]`` are their rows of the sources' features ``h``. By samplers that end in
    ``-paper``, blocks are ``apart``: destinations are sources only where they were drawn, and have no rows of their own.
    """

    __slots__ = ("destinations", "sources", "indptr", "indices", "weights", "e_id", "apart")

    def __init__(
        self, destinations: int, sources: int, indptr: Array, indices: Array, weights: Array, e_id: Array | None = None, apart: bool = False
    ) -> None:
        self.apart = apart  #: the destinations are not the first of the sources
        self.destinations = destinations
        self.sources = sources
        self.indptr = indptr  #: [destinations + 1] int32: the edges of d are those from indptr[d] to indptr[d+1] - 1
        self.indices = indices  #: [edges] int32: their sources
        #: [edges] float32: the sum of weight * feature over the edges of a destination estimates what the
        #: aggregation of the loader is over all its in-neighbours
        self.weights = weights
        #: [edges] int64, with ``edge_ids=True``: their numbers in the graph, -1 of a self-loop that the aggregation adds
        self.e_id = e_id

    def to_dgl(self) -> Any:
        """The block as a ``dgl.DGLBlock`` with the same arrays: ``edata["weight"]`` and, where there are edge ids,
        ``edata[dgl.EID]``. Give it tensors. A block that is ``apart`` is an ``OptionError``: layers of DGL would take the
        first sources for the destinations."""
        if self.apart:
            raise OptionError(
                "the destinations of this block are not the first of its sources (sampler *-paper), as layers of DGL want them: "
                "compute block.matrix() @ h, or open the loader with another sampler"
            )
        import dgl  # type: ignore[import-not-found]

        block = dgl.create_block(("csc", (self.indptr, self.indices, [])), num_src_nodes=self.sources, num_dst_nodes=self.destinations)
        block.edata["weight"] = self.weights
        if self.e_id is not None:
            block.edata[dgl.EID] = self.e_id
        return block

    def edge_index(self) -> Array:
        """A copy of the edges as int64 [2, edges]: sources, and below them destinations."""
        indptr: Any = self.indptr
        indices: Any = self.indices
        edges: Any = np.stack([indices, np.repeat(np.arange(self.destinations), np.diff(indptr))])
        return edges  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<hopfeed.Block: {len(self.indices)} edges from {self.sources} to {self.destinations} nodes>"  # type: ignore[arg-type]


class _Sampled(Batches[Array]):
    """Batches that are sampled of a graph: what the loaders below have in common."""

    _block_type: type[Block[Any]] = Block
    _subgraph: str | None
    _disjoint: bool
    _edge_ids: bool
    _apart = False
    _typed: TypedArrays | None = None  # of a typed graph

    def _open(self, given: dict[str, Any], seeds: dict[str, Any], identity: dict[str, Any], **sampling: Any) -> None:
        """Opens the loader.

        :param given: the arguments of the loader, and ``dataset``
        :param seeds: options that say what the seeds are, and ``identity`` what tells them from others
        :param sampling: options that batches depend on, beside those of all samplers
        """
        self.dataset = given["dataset"]
        if self.dataset.kind == "store":
            raise OptionError(f"{self.dataset.path} is a hop store: hopfeed.Loader reads it, and NeighborLoader the graph that it was made of")
        self._subgraph, self._disjoint = given["subgraph_type"], given["disjoint"]
        columns = _column_names(given["columns"])
        self._columns = {name: self.dataset.column(name) for name in columns}
        self._of_edges = {c["name"] for c in self.dataset.manifest.get("columns") or [] if c["of"] == "edges"}
        for name in columns:
            if name in self._of_edges and self._subgraph is None:
                raise OptionError(f"columns: {name} is of edges, which blocks have by number: dataset.column({name!r})[block.e_id]")
        rank, world_size = self._share(given["rank"], given["world_size"])
        at_least(1, batch_size=given["batch_size"], world_size=world_size, buffers=given["buffers"])
        at_least(0, rank=rank, seed=given["seed"], threads=given["threads"])
        fanouts = listed("num_neighbors", given["num_neighbors"], "a list of integers, one for each layer")
        at_least(-1, **{f"num_neighbors[{i}]": n for i, n in enumerate(fanouts)})
        self.num_neighbors = [operator.index(n) for n in fanouts]
        if not self.num_neighbors or 0 in self.num_neighbors:
            raise OptionError(f"num_neighbors {self.num_neighbors}: want for each layer a number from 1 on, or -1 for all")
        sampling |= {
            "fanout": self.num_neighbors,
            "replace": given["replace"],
            "subgraph": self._subgraph,
            "disjoint": self._disjoint,
            "drop_last": given["drop_last"],
            "time_column": given["time_attr"],
            "newest": one_of("temporal_strategy", given["temporal_strategy"], Literal["uniform", "last"]) == "last",
        }
        options = {
            "graph": self.dataset.path,
            "batch_rows": given["batch_size"],
            "world": world_size,
            "rank": rank,
            "seed": given["seed"],
            "placement": one_of("placement", given["placement"], Literal["auto", "host", "storage"]),
            "shuffle": shuffle_name(given["shuffle"], graph=True),
            "memory": memory_text(given["memory"]),
            "processes": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            "threads": given["threads"],
            **cache_options(given),
            "buffers": given["buffers"],
            "mapped": given["mapped"],
            "no_features": not given["features"] or self._typed is not None,
            "edge_ids": self._edge_ids or self._subgraph is not None,
        }
        self._move(given["device"], given["pin_memory"], given["reuse"])
        super().__init__("sample", {**seeds, **sampling, **options}, {**sampling, **identity}, given["reuse"])
        self._transform = given["transform"]

    def _arrays(self, owner: Handle | Lease, struct: _native.BatchStruct) -> dict[str, Any]:
        s = struct
        rows, inputs = s.rows, s.feature_rows
        arrays: dict[str, Any] = {}
        if s.columns:
            arrays["x"] = self._as_array("x", view(owner, s.features, (inputs, s.columns), "<f4"))
        arrays["n_id"] = self._as_array("n_id", view(owner, s.inputs, (inputs,), "<u4"))
        for name in [n for n in self._columns if n not in self._of_edges]:
            arrays[name] = self._as_array(name, self._columns[name][view(owner, s.inputs, (inputs,), "<u4")])
        if s.row_weights:
            arrays["row_weights"] = self._as_array("row_weights", view(owner, s.row_weights, (rows,), "<f4"))
        blocks = []
        for destinations, sources, edges, indptr, indices, weights, e_id in _native.blocks(s):
            starts = view(owner, indptr, (destinations + 1,), "<i4") if indptr else np.zeros(destinations + 1, np.int32)
            blocks.append(
                (
                    destinations,
                    sources,
                    starts,
                    view(owner, indices, (edges,), "<i4"),
                    view(owner, weights, (edges,), "<f4"),
                    view(owner, e_id, (edges,), "<i8"),
                )
            )
        if self._subgraph is None:
            names = ["indptr", "indices", "weights"] + ["e_id"] * self._edge_ids
            for d, n, *parts in blocks:
                given = {name: self._as_array(name, a) for name, a in zip(names, parts)}
                arrays.setdefault("blocks", []).append(self._block_type(d, n, **given, apart=self._apart))
            if self._apart:
                arrays["seed_id"] = self._as_array("seed_id", view(owner, s.nodes, (rows,), "<u4"))
            return arrays
        _, nodes, indptr, indices, weights, e_id = blocks[0]
        edge_index = np.stack([indices.astype(np.int64), np.repeat(np.arange(nodes), np.diff(indptr))])
        arrays["edge_index"] = self._as_array("edge_index", edge_index)
        arrays["e_id"] = self._as_array("e_id", e_id)
        for name in [n for n in self._columns if n in self._of_edges]:
            arrays[name] = self._as_array(name, self._columns[name][e_id])
        if self.dataset.manifest["weighted"]:
            arrays["edge_weight"] = self._as_array("edge_weight", weights)
        if self._disjoint:
            arrays["batch"] = self._as_array("batch", self._trees(view(owner, s.trees, (inputs,), "<u4").astype(np.int64), s))
        return arrays

    def _trees(self, trees: np.ndarray[Any, Any], s: _native.BatchStruct) -> np.ndarray[Any, Any]:
        """Which seed the trees belong to."""
        return trees

    # hopfeed.torch has its own of this:
    def _as_array(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        """What a batch has of an array in the loader's memory."""
        if self._reuse:
            array.flags.writeable = False
        return array


def _column_names(columns: Any) -> list[str]:
    names = listed("columns", columns, "a list of names")
    for name in names:
        if name in _TAKEN:
            raise OptionError(f"columns: a batch has another {name!r}: read the column by dataset.column({name!r})[batch.n_id]")
    return names


def _nodes_of_part(dataset: Dataset, part: str | None, split_index: int) -> list[int]:
    """The nodes of a part of a split, ascending."""
    if part == "all":
        return list(range(dataset.nodes))
    which = {"train": 0, "valid": 1, "test": 2, "rest": -1}[part or "train"]
    if split_index >= dataset.splits.shape[1]:
        raise OptionError(f"split_index {split_index}: {dataset.path} has {dataset.splits.shape[1]} splits, numbered from 0")
    nodes: list[int] = np.flatnonzero(dataset.splits[:, split_index] == which).tolist()
    return nodes


# What a batch has that is no column.
_TAKEN = frozenset(
    "x y n_id seed_id blocks row_weights edge_index e_id edge_weight batch info input_id index rows batch_size global_rows num_nodes "
    "edge_label edge_label_index src_index dst_pos_index dst_neg_index copy to pin_memory hold release".split()
)

_SAMPLED = """
    :param shuffle: ``"rr"`` or True: the seeds are, in each epoch; ``"none"`` or False: they come in their order
    :param subgraph_type: None: ``blocks``, one for each layer, in which a node is sampled for once a layer.
        ``"directional"`` and ``"induced"``, as in PyTorch Geometric: one graph for all layers, ``edge_index`` int64
        [2, edges] (sources, and below them destinations, by place in ``n_id``) with ``e_id`` [edges], the numbers of its
        edges in the graph, and ``edge_weight`` of a graph with weights; of the edges that were sampled, or all edges
        between the nodes. ``batch.to_pyg()`` makes a ``Data`` of it
    :param disjoint: each seed has a graph of its own, as in PyTorch Geometric: ``batch`` [nodes] says which
    :param time_attr: a column of int64 times of the edges or the nodes: a seed with a time (``input_time`` [seed nodes],
        by default the time of the node; ``edge_label_time`` [seed edges]) reaches no edge, or no node, of a later time.
        Each seed then has a graph of its own, as with ``disjoint``
    :param input_time: times of the seed nodes, int64 [seed nodes], with ``time_attr``
    :param temporal_strategy: ``"uniform"``: random ones of the edges that it reaches; ``"last"``: the latest
    :param edge_ids: blocks have ``e_id`` too
    :param features: False: batches have no ``x``, as for inference layer by layer
    :param columns: columns of the graph that batches have under their names: those of nodes [nodes, ...], and, with
        ``subgraph_type``, those of edges [edges, ...]. Of a typed graph they are dicts, such as ``batch.time_dict``, by the
        types and relations that have the column. They are read from mapped files
    :param drop_last: leave out a last batch that is smaller than the others
    :param transform: is called with each batch, in the loop's own thread; the loop gets what it returns
    :param seed: what random orders and samples derive from
    :param placement: where features live: ``"host"`` (memory), ``"storage"``, or ``"auto"``: in memory, if they fit
    :param replace: draw with replacement
    :param mapped: map the topology from disk instead of loading it
    :param rank: which of ``world_size`` processes this one is. All get a share of each batch
    :param world_size: how many processes there are; given with ``rank`` (hopfeed.torch: else both are those of
        ``torch.distributed``)
    :param reuse: a batch is valid only until the next one: see ``Batch``. Else it is valid as long as an array
        of it is there, and may be written to
    :param buffers: batches in memory at first (default 3). More are added while batches are kept, as far as
        ``memory`` allows; with ``reuse``, no more, and one less may be held
    :param memory: bytes, or a text such as ``"8GiB"``: what may be used (default: what the machine has, divided by
        LOCAL_WORLD_SIZE, which torchrun sets)
    :param threads: that sample and gather (default: all)
    :param cache_dir: folder that keeps what is read from buckets, for all processes of the machine (default: that of
        HOPFEED_CACHE_DIR, or ``~/.cache/hopfeed``)
    :param cache_size: how large that may become; bytes, or a text; 0: nothing is kept (default: HOPFEED_CACHE_SIZE, or
        half of what the disk has free)
    :param device: of PyTorch, that batches are moved to (hopfeed.torch alone): to a GPU by pinned memory and a stream
        of its own, one batch ahead
    :param pin_memory: batches are in pinned memory (hopfeed.torch alone)
    """


class NeighborLoader(_Sampled[Array]):
    """Sampled mini-batches of a graph, an epoch each time that it is iterated over.

    Every seed node comes once an epoch (GraphSAINT's samplers draw instead), in an order that depends on
    ``seed``, epoch, ``shuffle`` and ``batch_size`` alone. The engine samples, and gathers features, by threads
    of its own, so it needs no worker processes.

    In a batch, ``x`` is float32 [nodes, features], of the nodes ``n_id``. The first ``batch_size`` of them are the
    seed nodes, with ``y`` [batch_size], the class, or [batch_size, L], where -1 (of values NaN) is unlabelled.
    ``blocks`` has a ``Block`` for each layer of the model, in the order in which it computes them: the sources of
    the first are the rows of ``x``, the sources of each later one the destinations of the one before, and the
    destinations of the last the seed nodes. GraphSAINT's samplers also give ``row_weights`` [batch_size], which
    multiply the losses of the rows. With ``"ladies-paper"``, ``"fastgcn-paper"`` and their variants, ``n_id`` has the
    nodes that are drawn alone: seed nodes and other destinations are not the first of them, nor of a block's sources.
    ``seed_id`` [batch_size] has the numbers of the seed nodes, with any sampler. Errors are those of ``Loader``.

    Of a typed graph, up to ``num_neighbors`` are sampled for a node in each relation (samplers ``neighbor`` and
    ``full``). Batches have the dicts ``n_id_dict`` and ``x_dict`` by type, ``seed_id``, and each of ``blocks`` is a dict
    of a ``Block`` for each relation (source type, name, destination type), whose weights estimate means. With
    ``subgraph_type="directional"`` they have ``edge_index_dict`` and ``e_id_dict`` instead, ``edge_weight_dict`` of relations
    with weights, and ``batch.to_pyg()`` makes a ``HeteroData``. Nodes are numbered within their types, edges within their relations, and the seed nodes come first.

    :param graph: a graph, a typed one too, or its path
    :param num_neighbors: in-neighbours of a node (layer-wise samplers: nodes) of each layer; the first is nearest
        the seed nodes, -1 is all
    :param input_nodes: which nodes are seed nodes: ``"train"``, ``"val"`` or ``"valid"``, ``"test"``, ``"rest"``,
        ``"all"``, or an array of numbers of nodes, or of a truth value for each node; of a typed graph, nodes of the
        target type, or of another with a tuple (type, nodes)
    :param batch_size: seed nodes of a batch, of all ranks together
    :param sampler: as ``hopfeed sample --help`` lists them, such as ``"neighbor"``, ``"labor"``, ``"ladies"`` or ``"full"``
    :param cache: of rows of features that are read from storage, such as ``"lru:1GiB"`` or ``"degree:20000rows"``
    :param split_index: number of the split that ``input_nodes`` names a part of
    :param aggregation: what weights of edges estimate: ``"mean"``, ``"sym"`` (GCN) or ``"plain"`` (sum)
    :param by_weight: ``neighbor``: draw by the weights of edges
    :param bias: ``locality``: how much cached nodes are preferred; 1 is not at all
    :param debias: ``locality``: estimates without bias"""

    def __init__(
        self,
        graph: Path | Dataset | TypedDataset,
        num_neighbors: Sequence[int] = (15, 10, 5),
        input_nodes: Split | Literal["all"] | Any = "train",
        batch_size: int = 1024,
        shuffle: bool | Literal["rr", "none"] = "rr",
        *,
        sampler: Sampler = "neighbor",
        cache: str | None = None,
        split_index: int = 0,
        seed: int = 0,
        placement: Literal["auto", "host", "storage"] = "auto",
        aggregation: Aggregation = "mean",
        replace: bool = False,
        by_weight: bool = False,
        bias: float = 0,
        debias: bool = False,
        mapped: bool = False,
        subgraph_type: Literal["directional", "induced"] | None = None,
        disjoint: bool = False,
        time_attr: str | None = None,
        input_time: Any = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        edge_ids: bool = False,
        features: bool = True,
        columns: Sequence[str] = (),
        drop_last: bool = False,
        transform: Callable[[Batch[Array]], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        reuse: bool = False,
        buffers: int | None = None,
        memory: Memory = None,
        threads: int | None = None,
        cache_dir: Path | None = None,
        cache_size: Memory = None,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None:
        dataset: Any = graph if isinstance(graph, (Dataset, TypedDataset)) else self._dataset_kind(graph)
        typed, seeds_of, seed_type = dataset if isinstance(dataset, TypedDataset) else None, dataset, ""
        if typed is not None:
            seed_type, input_nodes = input_nodes if isinstance(input_nodes, tuple) else (typed.target, input_nodes)
            if time_attr is not None:
                raise OptionError(f"time_attr: {typed.path} is a typed graph, whose batches do not go by times")
            seeds_of = typed[seed_type]
            names = _column_names(columns)
            self._typed = TypedArrays(typed, seed_type, subgraph_type is not None, features, edge_ids, names, self._block_type)
            columns = ()
        at_least(0, split_index=split_index)
        part = split_name("input_nodes", input_nodes, "all") if isinstance(input_nodes, str) else None
        nodes = None if part else node_numbers(input_nodes, seeds_of.nodes)
        times = None
        if time_attr is not None:
            subgraph_type, disjoint = subgraph_type or "directional", True
            if nodes is None:
                nodes, part = _nodes_of_part(dataset, part, split_index), None
            if input_time is None and any(c["name"] == time_attr and c["of"] == "nodes" for c in dataset.manifest.get("columns") or []):
                input_time = dataset.column(time_attr)[np.array(nodes, np.int64)]
            times = seed_times("input_time", input_time, len(nodes))
        elif input_time is not None:
            raise OptionError("input_time: want time_attr, the column of times of the edges or nodes, with it")
        if subgraph_type is not None:
            one_of("subgraph_type", subgraph_type, Literal["directional", "induced"])
        elif disjoint:
            raise OptionError('disjoint: want subgraph_type="directional" or "induced" with it')
        self._sampler, self._edge_ids = one_of("sampler", sampler, Sampler), edge_ids  # Lightning takes .sampler for a DataLoader's
        self._apart = sampler.endswith("-paper") and not sampler.startswith("saint")
        identity = {
            "times": None if times is None else zlib.crc32(times.encode()),
            "split": part if nodes is None else nodes_name(nodes),
            "split_index": operator.index(split_index),
            "cache": cache if sampler == "locality" else None,  # which samples by it
        }
        seeds = {"part": part, "split": split_index, "nodes": nodes, "times": times, "cache": cache}
        if typed is not None:
            seeds["seed_type"] = identity["seed_type"] = seed_type
        one_of("aggregation", aggregation, Aggregation)
        if by_weight and not (dataset.manifest["weighted"] if typed is None else typed.weighted):
            raise OptionError(f"by_weight: {dataset.path} has no weights to draw by")
        self._open(locals(), seeds, identity, sampler=sampler, aggregation=aggregation, by_weight=by_weight, bias=bias, debias=debias)

    def _arrays(self, owner: Handle | Lease, struct: _native.BatchStruct) -> dict[str, Any]:
        if self._typed is not None:
            return self._typed.read(owner, struct, self._as_array)
        arrays = super()._arrays(owner, struct)
        arrays["y"] = self._as_array("y", view_labels(owner, struct))
        return arrays

    def __repr__(self) -> str:
        return (
            f"<hopfeed.NeighborLoader of {self.dataset.path!r}: {self._batches} batches of {self.batch_size} seed nodes, "
            f"{self._sampler} {self.num_neighbors}, features from {self.placement}>"
        )


class LinkNeighborLoader(_Sampled[Array]):
    """Mini-batches of edges and of pairs of nodes that are none, for link prediction, with the graph around them.

    Every seed edge comes once an epoch. In a batch, ``x`` is float32 [nodes, features] of the nodes ``n_id``,
    ``edge_index`` int64 [2, edges] the graph that was sampled around them, with ``e_id``, and ``input_id``
    [batch_size] the numbers of its seed edges.

    With ``neg_sampling="binary"`` or None, ``edge_label_index`` int64 [2, pairs] has the seed edges, then the negative
    pairs, by place in ``n_id``, and ``edge_label`` [pairs] their labels: 1 and 0. With ``edge_label``, its labels and
    0, where labels from 0 on are raised by 1. With ``"triplet"``, there are ``src_index`` and ``dst_pos_index``
    [batch_size], and ``dst_neg_index`` [batch_size], or [batch_size, neg_sampling_ratio] of several.

    A negative pair has two different nodes and no edge from the one to the other in the graph; each such pair
    (of a triplet: each such destination of the seed edge's source) is drawn with the same probability, by random numbers
    that depend on ``seed``, epoch, batch and rank alone. Errors are those of ``Loader``.

    :param graph: a graph, or its path
    :param num_neighbors: in-neighbours of a node in each layer; the first is nearest the seeds, -1 is all
    :param edge_label_index: the seed edges [2, edges], sources and below them destinations
    :param edge_label: a label for each
    :param batch_size: seed edges of a batch, of all ranks together
    :param edge_label_time: times of the seed edges, int64 [seed edges], with ``time_attr``
    :param neg_sampling: ``"binary"``, ``"triplet"``, a ``NegativeSampling`` of PyTorch Geometric, or None: no negative
        pairs, or binary ones where ``neg_sampling_ratio`` is given
    :param neg_sampling_ratio: of negative pairs to seed edges (default 1)
    :param exclude_targets: the seed edges of a batch, and the edges back, are not among the edges that are sampled for it"""

    def __init__(
        self,
        graph: Path | Dataset,
        num_neighbors: Sequence[int] = (15, 10),
        edge_label_index: Any = None,
        edge_label: Any = None,
        batch_size: int = 1024,
        shuffle: bool | Literal["rr", "none"] = "rr",
        *,
        neg_sampling: NegativeSampling = None,
        neg_sampling_ratio: float | None = None,
        exclude_targets: bool = True,
        seed: int = 0,
        placement: Literal["auto", "host", "storage"] = "auto",
        replace: bool = False,
        mapped: bool = False,
        subgraph_type: Literal["directional", "induced"] = "directional",
        disjoint: bool = False,
        time_attr: str | None = None,
        edge_label_time: Any = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        features: bool = True,
        columns: Sequence[str] = (),
        drop_last: bool = False,
        transform: Callable[[Batch[Array]], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        reuse: bool = False,
        buffers: int | None = None,
        memory: Memory = None,
        threads: int | None = None,
        cache_dir: Path | None = None,
        cache_size: Memory = None,
        device: Any = None,
        pin_memory: bool = False,
    ) -> None:
        dataset = graph if isinstance(graph, Dataset) else self._dataset_kind(graph)
        one_of("subgraph_type", subgraph_type, Literal["directional", "induced"])
        links = pairs_of_nodes("edge_label_index", edge_label_index, dataset.nodes)
        self._labels = None if edge_label is None else np.array(edge_label)
        if self._labels is not None and self._labels.shape[:1] != links.shape[1:]:
            raise OptionError(f"edge_label is {list(self._labels.shape)}: want a label for each of {links.shape[1]} edges")
        kind, ratio = negative_sampling(neg_sampling, neg_sampling_ratio, self._labels)
        if kind == "binary" and self._labels is not None and self._labels.min(initial=1) == 0:
            self._labels = self._labels + 1
        times = None
        if time_attr is not None:
            disjoint, times = True, seed_times("edge_label_time", edge_label_time, links.shape[1])
        elif edge_label_time is not None:
            raise OptionError("edge_label_time: want time_attr, the column of times of the edges or nodes, with it")
        self.neg_sampling, self._ratio, self._edge_ids = kind, ratio, True
        identity = {
            "links": f"{links.shape[1]} edges with checksum {zlib.crc32(links.tobytes())}",
            "times": None if times is None else zlib.crc32(times.encode()),
            "neg_sampling": kind,
            "neg_sampling_ratio": ratio,
            "exclude_targets": exclude_targets,
        }
        sources, destinations = (base64.b64encode(end.astype("<u4").tobytes()).decode() for end in links)
        seeds = {"sources": sources, "destinations": destinations, "negatives": kind or "", "ratio": ratio, "hide": exclude_targets, "times": times}
        self._open(locals(), {"links": seeds}, identity, sampler="neighbor")

    def _arrays(self, owner: Handle | Lease, struct: _native.BatchStruct) -> dict[str, Any]:
        arrays = super()._arrays(owner, struct)
        numbers = view(owner, struct.links, (struct.rows,), "<u4").astype(np.int64)
        ends = view(owner, struct.link_ends, (struct.ends,), "<u4").astype(np.int64)
        out = {"input_id": numbers}
        if self.neg_sampling == "triplet":
            out["src_index"], out["dst_pos_index"], negative = np.split(ends, [struct.rows, 2 * struct.rows])
            out["dst_neg_index"] = negative if self._ratio == 1 else negative.reshape(operator.index(int(self._ratio)), -1).T.copy()
        else:
            out["edge_label_index"] = ends.reshape(2, -1)
            labels = None if self._labels is None else self._labels[numbers]
            if self.neg_sampling:
                labels = np.ones(struct.rows, np.float32) if labels is None else labels
                none = np.zeros((out["edge_label_index"].shape[1] - struct.rows, *labels.shape[1:]), labels.dtype)
                labels = np.concatenate([labels, none])
            if labels is not None:
                out["edge_label"] = labels
        arrays.update((name, self._as_array(name, array)) for name, array in out.items())
        return arrays

    def _trees(self, trees: np.ndarray[Any, Any], s: _native.BatchStruct) -> np.ndarray[Any, Any]:
        """The pair whose end the seed is: of triplets, the seed edge."""
        if self.neg_sampling == "triplet":
            return trees % s.rows
        return trees % (s.ends // 2)

    def __repr__(self) -> str:
        return (
            f"<hopfeed.LinkNeighborLoader of {self.dataset.path!r}: {self._batches} batches of {self.batch_size} edges, "
            f"{self.num_neighbors}, features from {self.placement}>"
        )


for _loader in (NeighborLoader, LinkNeighborLoader):
    assert _loader.__doc__
    _loader.__doc__ += _SAMPLED
