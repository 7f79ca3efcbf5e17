"""Batches of pairs of rows of a hop store, for link prediction on propagated features."""

from __future__ import annotations

import math
import operator
import zlib
from typing import Any, Callable, Generic, Iterable, Iterator, Literal

import numpy as np

from ._batch import Array, Batch, Info
from ._dataset import Dataset
from ._errors import OptionError
from ._types import NegativeSampling, Path, at_least, negative_sampling, pairs_of_nodes, share, shuffle_name

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MOST_TRIES = 10_000


def _mix(x: Any) -> Any:
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashes(seed: Any, i: Any) -> Any:
    """Hash(seed, i) of docs/format.md, of arrays of uint64."""
    with np.errstate(over="ignore"):
        return _mix(_mix(np.asarray(seed, np.uint64) + _GOLDEN) + (np.asarray(i, np.uint64) + np.uint64(1)) * _GOLDEN)


def below(hashed: Any, n: int) -> np.ndarray[Any, Any]:
    """Numbers below n < 2^32 of hashes: the upper 64 bits of hash * n."""
    half, count = np.uint64(32), np.uint64(n)
    numbers: np.ndarray[Any, Any] = ((hashed >> half) * count + ((hashed & np.uint64(0xFFFFFFFF)) * count >> half)) >> half
    return numbers.astype(np.int64)


class PairLoader(Generic[Array]):
    """Batches of pairs of nodes with the propagated features of both, an epoch each time that it is iterated over.

    Every pair comes once an epoch. In a batch, ``x_src`` and ``x_dst`` are [pairs, matrices, features] in the type of
    the store (bfloat16 becomes float32), ``n_id`` int64 [2, pairs] are the nodes, and ``input_id`` [batch_size] the
    numbers of the pairs that were given. With ``neg_sampling="binary"``, negative pairs follow, and ``edge_label``
    [pairs] has 1 and 0; with ``"triplet"``, ``x_neg`` and ``n_id_neg`` [batch_size, neg_sampling_ratio, ...] are other
    destinations for each source. With ``edge_label``, its labels and 0, where labels from 0 on are raised by 1.

    A negative pair has two different nodes with rows, and is none of ``edges``; each such pair (of a triplet, each
    such destination) is drawn with the same probability. Orders and draws depend on ``seed``, epoch, and batch alone, so
    ranks share the same batches. Rows are read from mapped files when a batch is asked for. A node without a row is an
    ``IndexError``; other errors are those of ``Loader``.

    :param store: a hop store, or its path; propagated of a graph without the edges that are to be predicted
    :param pairs: [2, pairs] numbers of nodes, all with rows in the store
    :param edge_label: a label for each
    :param batch_size: of these pairs, of all ranks together
    :param shuffle: ``"rr"`` or True: each epoch has an order of its own; ``"none"`` or False
    :param neg_sampling: ``"binary"``, ``"triplet"``, a ``NegativeSampling`` of PyTorch Geometric, or None: no negative
        pairs, or binary ones where ``neg_sampling_ratio`` is given
    :param neg_sampling_ratio: of negative pairs to pairs (default 1)
    :param edges: [2, edges] that are never negative pairs (default: ``pairs``)
    :param operators: the operators to read (None: all)
    :param hops: the hops to read: all up to a number, or a list (None: all)
    :param seed: what random orders and negative pairs derive from
    :param drop_last: leave out a last batch that is smaller than the others
    :param transform: is called with each batch; the loop gets what it returns
    :param rank: which of ``world_size`` processes this one is; they take turns of a batch's pairs
    :param world_size: how many processes there are; given with ``rank`` (hopfeed.torch: else both are those of
        ``torch.distributed``)
    """

    _dataset_kind: type[Dataset] = Dataset

    def __init__(
        self,
        store: Path | Dataset,
        pairs: Any,
        edge_label: Any = None,
        batch_size: int = 8000,
        shuffle: bool | Literal["rr", "none"] = True,
        *,
        neg_sampling: NegativeSampling = None,
        neg_sampling_ratio: float | None = None,
        edges: Any = None,
        operators: str | Iterable[str] | None = None,
        hops: int | Iterable[int] | None = None,
        seed: int = 0,
        drop_last: bool = False,
        transform: Callable[[Batch[Array]], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.dataset = store if isinstance(store, Dataset) else self._dataset_kind(store)
        if self.dataset.kind != "store":
            raise OptionError(f"{self.dataset.path} is a graph: hopfeed.LinkNeighborLoader reads it")
        self._rank, self._world = self._share(rank, world_size)
        at_least(1, batch_size=batch_size, world_size=self._world)
        at_least(0, rank=self._rank, seed=seed)
        if self._rank >= self._world:
            raise OptionError(f"rank {self._rank} of {self._world}: ranks count from 0")
        self._pairs = pairs_of_nodes("pairs", pairs, self.dataset.nodes).astype(np.int64)
        self.dataset._rows_of(self._pairs)  # all of which there must be
        self._labels = None if edge_label is None else np.array(edge_label)
        if self._labels is not None and self._labels.shape[:1] != self._pairs.shape[1:]:
            raise OptionError(f"edge_label is {list(self._labels.shape)}: want a label for each of {self._pairs.shape[1]} pairs")
        self.neg_sampling, self._ratio = negative_sampling(neg_sampling, neg_sampling_ratio, self._labels)
        if self.neg_sampling and self._labels is not None and self._labels.min(initial=1) == 0:
            self._labels = self._labels + 1
        known = self._pairs if edges is None else pairs_of_nodes("edges", edges, self.dataset.nodes).astype(np.int64)
        self._known = np.unique(self._number(known))
        parts = self.dataset.parts  # of the one matrix that from_arrays makes of several
        self._parts = self.dataset._hops_of(hops, set(range(len(parts)))) if parts else []
        chosen = self.dataset.choose(operators, None if parts else hops)
        self._stored = [f"{o}/hop-{h}" for o, h in chosen]
        self.matrices = [parts[p] for p in self._parts] or self._stored
        self.batch_size, self.seed = operator.index(batch_size), operator.index(seed)
        self.shuffle: str = shuffle_name(shuffle, graph=True)
        count = self._pairs.shape[1]
        self._batches = count // self.batch_size if drop_last else -(-count // self.batch_size)
        self._transform = transform
        self._epoch, self._next = 0, 0
        self._at = (0, 0)

    # hopfeed.torch has its own of this:
    def _share(self, rank: int | None, world_size: int | None) -> tuple[int, int]:
        """Rank and world size."""
        return share(rank, world_size)

    def __len__(self) -> int:
        """The number of batches of an epoch."""
        return self._batches

    def __iter__(self) -> Iterator[Batch[Array]]:
        epoch, first = self._epoch, self._next
        if first == self._batches:  # it begins at its end
            self._at = (epoch + 1, 0)
            self._epoch, self._next = self._at
        key = hashes(hashes(self.seed % 2**64, epoch), 0)
        order = np.arange(self._pairs.shape[1])
        if self.shuffle == "rr":
            order = np.argsort(hashes(key, order), kind="stable")
        for index in range(first, self._batches):
            batch: Any = self._batch(index, order[index * self.batch_size :][: self.batch_size], hashes(key, index + 1))
            if self._transform is not None:
                batch = self._transform(batch)
            self._at = (epoch, index + 1) if index + 1 < self._batches else (epoch + 1, 0)
            if index == first:
                self._epoch, self._next = epoch + 1, 0
            yield batch
            del batch

    def _batch(self, index: int, numbers: np.ndarray[Any, Any], key: Any) -> Batch[Array]:
        """The batch of some pairs; ranks take turns of its pairs."""
        count, ratio = len(numbers), self._ratio
        own = np.arange(self._rank, count, self._world)
        pairs, items = self._pairs[:, numbers], {"input_id": numbers[own]}
        labels = None if self._labels is None else self._labels[items["input_id"]]
        if self.neg_sampling == "triplet":
            negative = self._negatives(np.repeat(pairs[0], int(ratio)), count * int(ratio), key)[1].reshape(count, int(ratio))[own]
            items["n_id_neg"], items["x_neg"] = negative, self._rows(negative)
        pairs_of_rank = pairs[:, own]
        if self.neg_sampling == "binary":
            negative = self._negatives(None, math.ceil(ratio * count), key)[:, self._rank :: self._world]
            labels = np.ones(len(own), np.float32) if labels is None else labels
            labels = np.concatenate([labels, np.zeros((negative.shape[1], *labels.shape[1:]), labels.dtype)])
            pairs_of_rank = np.concatenate([pairs_of_rank, negative], axis=1)
        if labels is not None:
            items["edge_label"] = labels
        items |= {"n_id": pairs_of_rank, "x_src": self._rows(pairs_of_rank[0]), "x_dst": self._rows(pairs_of_rank[1])}
        arrays = {name: self._as_array(array) for name, array in items.items()}
        return Batch({**arrays, "info": Info(index, len(own), count)})

    def _negatives(self, sources: np.ndarray[Any, Any] | None, count: int, key: Any) -> np.ndarray[Any, Any]:
        """Pairs [2, count] that are no edges, with sources or with random ones. What may not be drawn is drawn again."""
        nodes = self.dataset.n_id
        out, again, keys = np.zeros((2, count), np.int64), np.arange(count), hashes(hashes(key, 0), np.arange(count))
        for attempt in range(_MOST_TRIES):
            if not len(again):
                return out
            out[0, again] = nodes[below(hashes(keys[again], 2 * attempt), len(nodes))] if sources is None else sources[again]
            out[1, again] = nodes[below(hashes(keys[again], 2 * attempt + 1), len(nodes))]
            u, v = out[:, again]
            pair = self._number(out[:, again])
            at = np.minimum(np.searchsorted(self._known, pair), max(0, len(self._known) - 1))
            known = self._known[at] == pair if len(self._known) else np.zeros(len(pair), bool)
            again = again[known | (u == v)]
        raise OptionError(f"{_MOST_TRIES} random pairs of nodes are all edges: ask for no negative pairs")

    @staticmethod
    def _number(pairs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A number for each pair of nodes."""
        numbers: np.ndarray[Any, Any] = (pairs[0].astype(np.uint64) << np.uint64(32)) | pairs[1].astype(np.uint64)
        return numbers

    def _rows(self, nodes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The features [..., matrices, features] of nodes."""
        rows = self.dataset._rows_of(nodes)
        x = np.stack([self.dataset.matrix(name).rows[rows] for name in self._stored], axis=-2)
        return x.reshape(*rows.shape, len(self.dataset.parts), -1)[..., self._parts, :] if self._parts else x

    # hopfeed.torch has its own of this:
    def _as_array(self, array: np.ndarray[Any, Any]) -> Any:
        return array

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of an epoch. Without it, the first is 0, and others follow."""
        self._epoch, self._next = operator.index(epoch), 0
        self._at = (self._epoch, 0)

    def _identity(self) -> dict[str, Any]:
        return {
            "rows": self.dataset.manifest["rows_fingerprint"],
            "seed": self.seed,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "pairs": f"{self._pairs.shape[1]} pairs with checksum {zlib.crc32(np.ascontiguousarray(self._pairs).tobytes())}",
            "neg_sampling": self.neg_sampling,
            "neg_sampling_ratio": self._ratio,
            "edges": f"{len(self._known)} edges with checksum {zlib.crc32(self._known.tobytes())}" if self.neg_sampling else None,
        }

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: during an iteration, after the batch that the loop has."""
        return {"version": 1, "epoch": self._at[0], "batch": self._at[1], **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration begin where a state was saved."""
        for name, value in {"version": 1, **self._identity()}.items():
            if state.get(name) != value:
                raise OptionError(f"the state is of a loader with {name} {state.get(name)!r}, and this one has {value!r}: open it with the same")
        epoch, batch = state["epoch"], state["batch"]
        if not (0 <= epoch and 0 <= batch <= self._batches):
            raise OptionError(f"state at batch {batch} of epoch {epoch}: an epoch has {self._batches} batches")
        self._epoch, self._next = self._at = epoch, batch

    def __repr__(self) -> str:
        return f"<hopfeed.PairLoader of {self.dataset.path!r}: {self._batches} batches of {self.batch_size} pairs>"
