"""Loaders of batches that are sampled of a graph, for models that pass messages."""

from __future__ import annotations

import ctypes
import operator
import os
from typing import Any, Generic, Literal, Sequence

import numpy as np

from . import _native
from ._batch import Array
from ._batches import Batches, Handle, Lease, view, view_labels
from ._errors import OptionError
from ._dataset import Dataset
from ._types import Aggregation, Memory, Path, Sampler, Split, at_least, memory_text, node_numbers, nodes_name, one_of, shuffle_name, split_name


class Block(Generic[Array]):
    """A layer of a sampled batch: a bipartite graph, in compressed form by destination.

    Sources and destinations are known by local numbers, and the destinations are the first of the
    sources. So of the features ``h`` of the sources, those of the destinations are ``h[:block.destinations]``.
    """

    __slots__ = ("destinations", "sources", "indptr", "indices", "weights")

    def __init__(self, destinations: int, sources: int, indptr: Array, indices: Array, weights: Array) -> None:
        self.destinations = destinations
        self.sources = sources
        self.indptr = indptr  #: [destinations + 1] int32: the edges of d are those from indptr[d] to indptr[d+1] - 1
        self.indices = indices  #: [edges] int32: their sources
        #: [edges] float32: the sum of weight * feature over the edges of a destination estimates what the
        #: aggregation of the loader is over all its in-neighbours
        self.weights = weights

    def edge_index(self) -> Array:
        """A copy of the edges as int64 [2, edges]: sources, and below them destinations."""
        indptr: Any = self.indptr
        indices: Any = self.indices
        edges: Any = np.stack([indices, np.repeat(np.arange(self.destinations), np.diff(indptr))])
        return edges  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<hopfeed.Block: {len(self.indices)} edges from {self.sources} to {self.destinations} nodes>"  # type: ignore[arg-type]


class NeighborLoader(Batches[Array]):
    """Sampled mini-batches of a graph, an epoch each time that it is iterated over.

    Every seed node comes once an epoch (GraphSAINT's samplers draw instead), in an order that depends on
    ``seed``, epoch, ``shuffle`` and ``batch_size`` alone. The engine samples, and gathers features, by threads
    of its own, so it needs no worker processes.

    In a batch, ``x`` is float32 [nodes, features], of the nodes ``n_id``. The first ``batch_size`` of them are the
    seed nodes, with ``y`` [batch_size], the class, or [batch_size, L], where -1 (of values NaN) is unlabelled.
    ``blocks`` has a ``Block`` for each layer of the model, in the order in which it computes them: the sources of
    the first are the rows of ``x``, the sources of each later one the destinations of the one before, and the
    destinations of the last the seed nodes. GraphSAINT's samplers also give ``row_weights`` [batch_size], which
    multiply the losses of the rows.

    :param graph: a graph, or its path
    :param num_neighbors: in-neighbours of a node (layer-wise samplers: nodes) of each layer; the first is nearest
        the seed nodes, -1 is all
    :param input_nodes: which nodes are seed nodes: ``"train"``, ``"val"`` or ``"valid"``, ``"test"``, ``"rest"``,
        ``"all"``, or an array of numbers of nodes, or of a truth value for each node
    :param batch_size: seed nodes of a batch, of all ranks together
    :param shuffle: ``"rr"`` or True: the seed nodes are, in each epoch; ``"none"`` or False: they come in their order
    :param sampler: as ``hopfeed sample --help`` lists them, such as ``"neighbor"``, ``"labor"``, ``"ladies"`` or ``"full"``
    :param cache: of rows of features that are read from storage, such as ``"lru:1GiB"`` or ``"degree:20000rows"``
    :param seed: what random orders and samples derive from
    :param split_index: number of the split that ``input_nodes`` names a part of
    :param placement: where features live: ``"host"`` (memory), ``"storage"``, or ``"auto"``: in memory, if they fit
    :param aggregation: what weights of edges estimate: ``"mean"``, ``"sym"`` (GCN) or ``"plain"`` (sum)
    :param replace: draw with replacement
    :param by_weight: ``neighbor``: draw by the weights of edges
    :param bias: ``locality``: how much cached nodes are preferred; 1 is not at all
    :param debias: ``locality``: estimates without bias
    :param mapped: map the topology from disk instead of loading it
    :param rank: which of ``world_size`` processes this one is. All get a share of each batch
    :param reuse: a batch is valid only until the next one: see ``Batch``. Else it is valid as long as an array
        of it is there, and may be written to
    :param buffers: batches in memory at first (default 3). More are added while batches are kept, as far as
        ``memory`` allows; with ``reuse``, no more, and one less may be held
    :param memory: bytes, or a text such as ``"8GiB"``: what may be used (default: what the machine has, divided by
        LOCAL_WORLD_SIZE, which torchrun sets)
    :param threads: that sample and gather (default: all)
    """

    _block_type: type[Block[Any]] = Block

    def __init__(
        self,
        graph: Path | Dataset,
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
        rank: int | None = None,
        world_size: int | None = None,
        reuse: bool = False,
        buffers: int | None = None,
        memory: Memory = None,
        threads: int | None = None,
    ) -> None:
        rank, world_size = self._share(rank, world_size)
        self.dataset: Dataset = graph if isinstance(graph, Dataset) else Dataset(graph)
        if self.dataset.kind != "graph":
            raise OptionError(f"{self.dataset.path} is a hop store: hopfeed.Loader reads it, and NeighborLoader the graph that it was made of")
        self.sampler, self.num_neighbors = sampler, [operator.index(n) for n in num_neighbors]
        sampling = {
            "sampler": one_of("sampler", sampler, Sampler),
            "fanout": self.num_neighbors,
            "aggregation": one_of("aggregation", aggregation, Aggregation),
            "replace": replace,
            "by_weight": by_weight,
            "bias": bias,
            "debias": debias,
        }
        at_least(1, batch_size=batch_size, world_size=world_size, buffers=buffers)
        at_least(0, rank=rank, seed=seed, split_index=split_index, threads=threads)
        if not self.num_neighbors or any(n == 0 or n < -1 for n in self.num_neighbors):
            raise OptionError(f"num_neighbors {self.num_neighbors}: want for each layer a number from 1 on, or -1 for all")
        part = split_name("input_nodes", input_nodes, "all") if isinstance(input_nodes, str) else None
        nodes = None if part else node_numbers(input_nodes, self.dataset.nodes)
        options = {
            **sampling,
            "graph": self.dataset.path,
            "part": part,
            "split": split_index,
            "nodes": nodes,
            "cache": cache,
            "batch_rows": batch_size,
            "world": world_size,
            "rank": rank,
            "placement": one_of("placement", placement, Literal["auto", "host", "storage"]),
            "mapped": mapped,
            "shuffle": shuffle_name(shuffle, graph=True),
            "seed": seed,
            "buffers": buffers,
            "memory": memory_text(memory),
            "processes": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
            "threads": threads,
        }
        identity = {
            **sampling,
            "split": part if nodes is None else nodes_name(nodes),
            "split_index": operator.index(split_index),
            "cache": cache if sampler == "locality" else None,  # which samples by it
        }
        super().__init__("sample", options, identity, reuse)

    def _arrays(self, owner: Handle | Lease, struct: _native.BatchStruct) -> dict[str, Any]:
        s = struct
        rows, inputs = s.rows, s.feature_rows
        arrays: dict[str, Any] = {
            "x": self._as_array("x", view(owner, s.features, (inputs, s.columns), "<f4")),
            "y": self._as_array("y", view_labels(owner, s)),
            "n_id": self._as_array("n_id", view(owner, s.inputs, (inputs,), "<u4")),
        }
        if s.row_weights:
            arrays["row_weights"] = self._as_array("row_weights", view(owner, s.row_weights, (rows,), "<f4"))
        blocks = []
        described = ctypes.string_at(s.blocks, s.layers * _native.BLOCK_FIELDS.size)
        for destinations, sources, edges, indptr, indices, weights in _native.BLOCK_FIELDS.iter_unpack(described):
            starts = view(owner, indptr, (destinations + 1,), "<i4") if indptr else np.zeros(destinations + 1, np.int32)
            blocks.append(
                self._block_type(
                    destinations,
                    sources,
                    self._as_array("indptr", starts),
                    self._as_array("indices", view(owner, indices, (edges,), "<i4")),
                    self._as_array("weights", view(owner, weights, (edges,), "<f4")),
                )
            )
        return {**arrays, "blocks": blocks}

    # hopfeed.torch has its own of this:
    def _as_array(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        """What a batch has of an array in the loader's memory."""
        if self._reuse:
            array.flags.writeable = False
        return array

    def __repr__(self) -> str:
        return (
            f"<hopfeed.NeighborLoader of {self.dataset.path!r}: {self._batches} batches of {self.batch_size} seed nodes, "
            f"{self.sampler} {self.num_neighbors}, features from {self.placement}>"
        )
