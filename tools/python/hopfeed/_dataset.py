"""Graphs and stores on disk."""

from __future__ import annotations

import base64
import errno
import functools
import os
import pathlib
import sys
import threading
from typing import Any, Callable, Iterable

import numpy as np

from . import _html
from ._batch import Batch, Info
from ._call import call, existing, is_url
from ._edges import Edges
from ._errors import Error, OptionError
from ._folders import Folder
from ._matrix import Matrix, open_column
from ._opened import Opened
from ._types import Path, at_least, listed


class Dataset(Opened):
    """A hop store or a graph on disk: what its manifest says. A missing path is a ``FileNotFoundError``.

    ``manifest`` has all fields; the most used ones are attributes. ``matrices`` lists (operator, hop);
    the input, hop 0, has the operator ``"x"``. The path of a typed graph gives a ``TypedDataset``.
    """

    def __new__(cls, path: Path) -> Any:
        from ._typed import TypedDataset

        return TypedDataset(path) if TypedDataset.is_at(path) else super().__new__(cls)

    def __init__(self, path: Path) -> None:
        self.path = existing(path)
        if not is_url(self.path) and not os.path.isdir(self.path):
            raise NotADirectoryError(errno.ENOTDIR, "graphs and stores are folders, and this is a file", self.path)
        self.parts: list[str] = []  #: names of matrices that lie side by side in one
        self._mapped: dict[str, Matrix] = {}
        self._table: Any = None
        self._lock = threading.Lock()  # of the table
        self.manifest = m = self._inspect()
        self.kind: str = m["kind"]  # "store" or "graph"
        self.name: str = m["name"]
        self.nodes: int = m["nodes"]
        self.rows: int = m["rows"]
        self.features: int = m["features"]
        self.dtype: str = m["dtype"]
        self.classes: int = m["classes"]
        self.label_columns: int = m["label_columns"]
        self.regions: dict[str, int] = {r["name"]: r["rows"] for r in m["regions"] or []}
        names = [name.rsplit("/hop-", 1) for name in m["matrices"] or []]
        self.matrices: list[tuple[str, int]] = [(operator, int(hop)) for operator, hop in names]

    def __len__(self) -> int:
        """The number of rows: of a graph, its nodes."""
        return self.rows

    def __getitem__(self, rows: Any) -> Batch[Any]:
        """Rows by their numbers: features ``x`` [..., matrices, features], or [..., features] of a graph, labels ``y``
        and the numbers of nodes ``n_id``. A tensor as index gives tensors. So a store is a map-style data set
        of PyTorch too, whose rows ``DataLoader(store, batch_size=32)`` stacks if ``hopfeed.torch`` is imported; a ``Loader``
        is faster."""
        names = [f"{operator}/hop-{hop}" for operator, hop in self.matrices]
        x = [self.matrix(name).rows[rows] for name in names]
        numbers = np.arange(self.rows)[rows]
        features, y, n_id, size = x[0], self.y[numbers], self.n_id[numbers], int(np.size(numbers))
        torch: Any = sys.modules.get("torch")
        tensors = torch is not None and isinstance(rows, torch.Tensor)
        if self.kind == "store":
            features = torch.stack(x, -2) if tensors else np.stack(x, -2)
        if self.parts:
            features = features.reshape(*features.shape[:-2], len(self.parts), self.features)
        if tensors:
            y, n_id = torch.as_tensor(y), torch.as_tensor(n_id)
        return Batch({"x": features, "y": y, "n_id": n_id, "info": Info(0, size, size)})

    def loader(self, **options: Any) -> Any:
        """A loader of this data: a ``Loader`` of a store, with its options, or a ``NeighborLoader`` of a graph, where
        ``split`` may be given instead of ``input_nodes``. All loaders of one graph or store share what they have in
        memory. ``hopfeed.torch.open`` returns a data set whose loaders have tensors."""
        from . import _loader, _neighbor

        return self._open(_loader.Loader, _neighbor.NeighborLoader, options)

    def _open(self, loader: Any, neighbor_loader: Any, options: dict[str, Any]) -> Any:
        if self.kind == "store":
            return loader(self, **options)
        if "split" in options:
            if "input_nodes" in options:
                raise TypeError("split and input_nodes: want one of them")
            options["input_nodes"] = options.pop("split")
        return neighbor_loader(self, **options)

    def _inspect(self) -> dict[str, Any]:
        return call(["inspect"], ["data"], {"data": self.path, "progress": False})

    def matrix(self, name: str) -> Matrix:
        """A matrix, such as ``"sym/hop-2"``, mapped from disk."""
        if name not in self._mapped:
            if name not in [f"{operator}/hop-{hop}" for operator, hop in self.matrices]:
                raise OptionError(f"{self.path} has no matrix {name!r} (it has {', '.join(f'{o}/hop-{h}' for o, h in self.matrices)})")
            operator, _, hop = name.rpartition("/hop-")
            about = self._ask("extents", operator=operator, hop=int(hop))
            self._mapped[name] = Matrix(self.path, name, about, self.nodes, self._rows_of if self.kind == "store" else None)
        return self._mapped[name]

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the graph's edges and nodes."""
        return [c["name"] for c in self.manifest.get("columns") or []]

    def column(self, name: str) -> Matrix:
        """A column of the edges, in the order of the topology, or of the nodes, mapped from disk: ``[numbers]`` reads the
        rows of some edges or nodes, such as ``graph.column("edge_attr")[block.e_id]``."""
        if name not in self._mapped:
            rows = {"edges": self.manifest["edges"], "nodes": self.nodes}
            self._mapped[name] = open_column(self.path, self.path, self.manifest.get("columns") or [], name, rows, self._ask)
        return self._mapped[name]

    @property
    def x(self) -> Matrix:
        """The features of the graph: ``graph.x[numbers]`` reads those of some nodes."""
        return self.matrix("x/hop-0")

    @functools.cached_property
    def edges(self) -> Edges:
        """The edges of the graph."""
        if self.kind == "store":
            raise OptionError(f"{self.path} is a hop store, which has no edges: open the graph that it was made of")
        return Edges(self.name, self.path, self._ask("topology"), self._ask)

    @property
    def num_nodes(self) -> int:
        """The number of nodes: ``nodes``."""
        return self.nodes

    @functools.cached_property
    def n_id(self) -> np.ndarray[Any, Any]:
        """The number of the node of each row, [rows]."""
        return np.arange(self.rows) if self.kind == "graph" else self._column("nodes", "<u4").astype(np.int64)

    @functools.cached_property
    def y(self) -> np.ndarray[Any, Any]:
        """The label of each row: [rows], the class, or [rows, L]. -1, and of values NaN, is unlabelled."""
        if not self.label_columns:
            return np.full(self.rows, -1)
        if self.manifest.get("label_values"):
            return self._column("labels", "<f4").reshape(self.rows, -1)
        if self.label_columns > 1:
            return self._column("labels", "|i1").reshape(self.rows, -1)
        return self._column("labels", "<i4").astype(np.int64)

    @functools.cached_property
    def splits(self) -> np.ndarray[Any, Any]:
        """The part of each row in each split, int8 [rows, splits]: 0 train, 1 val, 2 test, -1 none, as imports take them."""
        return self._column("splits", "|u1").reshape(self.rows, -1).astype(np.int8) - np.int8(1)

    @property
    def train_mask(self) -> np.ndarray[Any, Any]:
        """Which rows are of the part, bool [rows], or [rows, splits] where there are several splits."""
        return self._mask(0)

    @property
    def val_mask(self) -> np.ndarray[Any, Any]:
        """As ``train_mask``."""
        return self._mask(1)

    @property
    def test_mask(self) -> np.ndarray[Any, Any]:
        """As ``train_mask``."""
        return self._mask(2)

    def _mask(self, part: int) -> np.ndarray[Any, Any]:
        splits = self.splits
        return np.asarray((splits[:, 0] if splits.shape[1] == 1 else splits) == part)

    @functools.cached_property
    def orig_id(self) -> np.ndarray[Any, Any]:
        """The id of each row in the input of the import, [rows] of ``str``; where it had none, ``n_id``."""
        return np.array(self._ask("rows", ids=True)["ids"] or [], object) if self.manifest["orig_ids"] else self.n_id

    def _column(self, name: str, typestr: str) -> np.ndarray[Any, Any]:
        with self._lock:
            if self._table is None or name not in self._table:  # or another thread has taken it
                self._table = self._ask("rows")
            return np.frombuffer(base64.b64decode(self._table.pop(name) or ""), typestr)

    @functools.cached_property
    def _row_by_node(self) -> np.ndarray[Any, Any]:
        rows = np.full(self.nodes, -1)
        rows[self.n_id] = np.arange(self.rows)
        return rows

    def _rows_of(self, nodes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows: np.ndarray[Any, Any] = self._row_by_node[nodes]
        if rows.size and rows.min() < 0:
            raise IndexError(f"node {np.atleast_1d(nodes)[np.atleast_1d(rows) < 0][0]} has no row in {self.path}, which holds {self.rows} of {self.nodes} nodes")
        return rows

    def folds(self, k: int, seed: int = 0) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """The labelled nodes in k parts at random: for each, the nodes of the others, to train on, and its own, to
        validate on, as the ``input_nodes`` of loaders."""
        at_least(2, k=k)
        labels: Any = self.y.reshape(self.rows, -1)
        labelled = self.n_id[(labels == labels).all(axis=1) & (labels != -1).any(axis=1)]
        parts = np.array_split(np.random.default_rng(seed).permutation(labelled), k)
        return [(np.concatenate(parts[:i] + parts[i + 1 :]), part) for i, part in enumerate(parts)]

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table`` of all rows, mapped from disk, without a copy: the columns of the table of rows, such as
        ``node``, ``label`` and ``splits``, and a column for each matrix, such as ``sym/hop-2``, of lists.

        ``polars.DataFrame(dataset)`` and ``pandas.DataFrame.from_arrow(dataset)`` call it by themselves."""
        self._check_same(self._inspect())
        import pyarrow as pa  # type: ignore[import-untyped]

        def read(files: Iterable[str]) -> Any:
            return pa.concat_tables(pa.ipc.open_file(pa.memory_map(file)).read_all() for file in files)

        rows = pathlib.Path(self.path, "rows" if self.kind == "store" else "nodes")
        table = read(sorted(map(str, rows.glob("part-*.arrow"))))
        for operator, hop in self.matrices:
            name = f"{operator}/hop-{hop}"
            files = self.matrix(name).files
            if not all(file.endswith(".arrow") for file in files):
                raise Error(f"{name} of {self.path} was left in place, in {files[0]}: it is no table")
            table = table.append_column(name, read(files).column(0))
        return table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def choose(self, operators: str | Iterable[str] | None = None, hops: int | Iterable[int] | None = None) -> list[tuple[str, int]]:
        """The matrices of some operators (None: all) and some hops: a list of them, or all up to a
        number. Hop 0 belongs to all operators."""
        wanted = {operators} if isinstance(operators, str) else None if operators is None else set(listed("operators", operators, "a name, or a list of them"))
        numbers = self._hops_of(hops, {h for _, h in self.matrices})
        names = {o for o, _ in self.matrices}
        if wanted is not None and not wanted <= names:
            raise OptionError(f"{self.path} has no operator {sorted(wanted - names)} (it has {sorted(names - {'x'})})")
        return [(o, h) for o, h in self.matrices if (wanted is None or o in wanted or h == 0) and h in numbers]

    def _hops_of(self, hops: int | Iterable[int] | None, there: set[int]) -> list[int]:
        """Some of the hops: a list of them, all up to a number, or all."""
        if hops is None:
            return sorted(there)
        if isinstance(hops, (int, np.integer)):
            hops = range(int(hops) + 1)
        numbers = set(listed("hops", hops, "a number, or a list of them"))
        if not numbers <= there:
            raise OptionError(f"{self.path} has no hop {sorted(numbers - there)} (it has {sorted(there)})")
        return sorted(numbers)

    def _repr_html_(self) -> str:
        m = self.manifest
        rows = [("nodes", self.nodes), ("edges", m["edges"]), ("features", f"{self.features}, {self.dtype}")]
        rows += [("classes", self.classes)] if self.classes else [("label columns", self.label_columns)]
        if self.kind == "store":
            rows += [("matrices", ", ".join(f"{o}/hop-{h}" for o, h in self.matrices))]
            rows += [("rows", ", ".join(f"{rows} {name}" for name, rows in self.regions.items()))]
        return _html.table(f"{self.kind} {self.name} in {self.path}", rows)

    def __repr__(self) -> str:
        return f"<hopfeed.Dataset {self.path!r}: {self.kind} of {self.rows} rows, {len(self.matrices)} matrices of {self.features} {self.dtype}>"


def temporary(make: Callable[[str], Dataset], folder: Any = None) -> Dataset:
    """The data set that ``make`` makes in a folder. The folder goes with the last reference to the data set, which
    loaders have too."""
    home = Folder(folder, "hopfeed-")
    try:
        data = make(home.path)
    except BaseException as error:
        home.remove()  # the traceback has it still
        if isinstance(error, Error):
            error.args = (str(error).replace(os.path.join(home.path, ""), ""),)
        raise
    for part in (data, *getattr(data, "_types", {}).values()):  # of a typed graph, the nodes of each type
        part.folder, part._home = home.path, home
    return data
