"""A batch: what one step of training sees."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from . import _html, _native
from ._errors import OptionError

Array = TypeVar("Array")


def each(value: Any, method: str, *arguments: Any, **options: Any) -> Any:
    """What has a method, such as ``to``, after it: the parts of lists, tuples and dicts too. All else stays as it is."""
    if hasattr(value, method):
        return getattr(value, method)(*arguments, **options)
    if isinstance(value, dict):
        return {name: each(part, method, *arguments, **options) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [each(part, method, *arguments, **options) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, np.ndarray):
        raise TypeError("this batch has arrays of numpy: hopfeed.torch has loaders of tensors")
    return value


class Info:
    """The numbers of a batch. It is an item of the batch, so that it comes along where a wrapper builds the batch anew
    from its items; moving and pinning leave it as it is."""

    __slots__ = ("index", "rows", "global_rows", "hold", "kept")

    def __init__(self, index: int, rows: int, global_rows: int, hold: int = 0) -> None:
        self.index, self.rows, self.global_rows = index, rows, global_rows
        self.hold, self.kept = hold, False  # with reuse=True: which memory it is, and whether that is kept

    def __reduce__(self) -> Any:  # a deep copy has memory of its own
        return Info, (self.index, self.rows, self.global_rows)

    def to(self, *_: Any, **__: Any) -> Info:
        return self

    cpu = cuda = pin_memory = clone = detach = to

    def __repr__(self) -> str:
        return f"batch {self.index}: {self.rows} of {self.global_rows} rows"


class Batch(dict, Generic[Array]):  # type: ignore[type-arg]
    """What one step of training sees: a mapping of arrays, with the names of PyTorch Geometric, each also an attribute.

    ``x`` has features, ``y`` labels [batch_size] and ``n_id`` numbers of nodes in the graph; the loader describes their
    shapes and what else there is. ``info`` holds the numbers below.

    The arrays are memory of the loader, which is the batch's own until the last array, and the last view
    of one, is gone. With ``reuse=True``, the arrays are valid until the next batch is asked for or the
    loader is iterated over again, or, after ``hold()``, until ``release()``; afterwards they show other
    rows, and they must not be written to.
    """

    x: Array
    y: Array
    n_id: Array
    row_numbers: Array
    row_weights: Array
    blocks: list[Any]
    edge_index: Array
    edge_weight: Array
    e_id: Array
    batch: Array
    input_id: Array
    edge_label_index: Array
    edge_label: Array
    src_index: Array
    dst_pos_index: Array
    dst_neg_index: Array
    x_src: Array
    x_dst: Array
    x_neg: Array
    n_id_neg: Array

    _released: Info | None = None  # the numbers, once the items are gone

    @property
    def info(self) -> Info:
        """The numbers of the batch."""
        info: Info = self._released or self["info"]
        return info

    @property
    def index(self) -> int:
        """The number of the batch within the epoch."""
        return self.info.index

    @property
    def batch_size(self) -> int:
        """The rows of this rank that have labels and a loss; of a sampled batch the seed nodes, which are the first
        ``batch_size`` nodes of ``n_id``."""
        return self.info.rows

    rows = batch_size

    @property
    def seed_id(self) -> Array:
        """The numbers in the graph of the nodes that ``y`` has labels of, [batch_size]: the first of ``n_id`` or, by samplers
        that end in ``-paper``, an item. Batches of pairs of nodes have none: an ``OptionError``."""
        if "input_id" in self:
            raise OptionError("the seeds of this batch are pairs of nodes, whose numbers input_id has, not single nodes")
        own: Array = self["seed_id"] if "seed_id" in self else self["n_id"][: self.batch_size]
        return own

    @property
    def global_rows(self) -> int:
        """The rows of all ranks: what a sum of losses is divided by."""
        return self.info.global_rows

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(str(error)) from None

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"this batch has no {name!r} (it has {', '.join(self)})")

    def __repr__(self) -> str:
        items = [f"{name} {_html.shape(value)}" for name, value in self.items() if name != "info"]
        return f"<hopfeed.Batch, {self.info}: {', '.join(items)}>"

    def _repr_html_(self) -> str:
        rows = [(name, _html.shape(value)) for name, value in self.items() if name != "info"]
        return _html.table(str(self.info), rows)

    def copy(self) -> Batch[Array]:
        """A batch of the same arrays."""
        return type(self)(self)

    def to(self, device: Any, non_blocking: bool = False) -> Batch[Array]:
        """The batch on a device of PyTorch. Items that cannot be moved, such as numbers, stay as they are."""
        return type(self)(each(dict(self), "to", device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch[Array]:
        """A copy of the batch in pinned memory, which a GPU copies from beside its work."""
        return type(self)(each(dict(self), "pin_memory"))

    def to_pyg(self) -> Any:
        """A ``torch_geometric.data.Data`` of the same tensors, for models that take one graph for all layers. ``y`` has the
        labels of the seed nodes, which are the first ``batch_size`` nodes. A batch of a typed graph becomes a
        ``HeteroData``, whose seed type has ``y`` and ``batch_size``. The loader must be open with
        ``subgraph_type="directional"`` or ``"induced"``."""
        from torch_geometric.data import Data, HeteroData  # type: ignore[import-untyped]

        if "edge_index_dict" in self:
            data = HeteroData()
            for node_type, n_id in self["n_id_dict"].items():
                data[node_type].num_nodes = len(n_id)
            for name, arrays in self.items():
                if name.endswith("_dict"):
                    for key, array in arrays.items():
                        data[key][name.removesuffix("_dict")] = array
            data[self["seed_type"]].y, data[self["seed_type"]].batch_size = self["y"], self.batch_size
            return data
        if "edge_index" not in self:
            raise OptionError('this batch has blocks, not one graph: open the loader with subgraph_type="directional"')
        items = {name: value for name, value in self.items() if name != "info"}
        return Data(**items, batch_size=self.batch_size, num_nodes=len(self["n_id"]))

    def to_dgl(self) -> tuple[Any, Any, list[Any]]:
        """What a ``DataLoader`` of DGL yields of a batch with blocks: numbers of input nodes, those of seed nodes, and
        blocks of DGL, with the features as ``blocks[0].srcdata["feat"]``, where the batch has them, and labels as
        ``blocks[-1].dstdata["label"]``. Give it to a loader: ``transform=hopfeed.Batch.to_dgl``. Of a typed graph, numbers
        are dicts by type, and so are ``srcdata["feat"]``, of several types, and ``dstdata["label"]``."""
        if "blocks" not in self:
            raise OptionError("this batch has one graph for all layers, not blocks: open the loader without subgraph_type")
        if "n_id_dict" in self:
            from . import _typed

            return self["n_id_dict"], {self["seed_type"]: self["seed_id"]}, _typed.to_dgl(self)
        blocks = [block.to_dgl() for block in self["blocks"]]
        if "x" in self:
            blocks[0].srcdata["feat"] = self["x"]
        blocks[-1].dstdata["label"] = self["y"]
        return self["n_id"], self["n_id"][: self.batch_size], blocks

    def hold(self) -> Batch[Array]:
        """With ``reuse=True``, keeps the memory of the batch, and of its copies, until ``release()``. A loader has
        only ``buffers`` of them. Other batches keep their memory by themselves."""
        self.info.kept = True
        return self

    def release(self) -> None:
        """Removes the arrays from the batch. Their memory is given back when nothing else refers to it;
        with ``reuse=True``, at once."""
        self._released = self.info
        self.clear()
        _native.library().hopfeed_release(self._released.hold)
