#!/usr/bin/env python3
"""Reads what hopfeed writes by pyarrow, and compares it with what was imported.

    check_arrow.py make SRC                 writes arrays of a random weighted graph, for hopfeed import npy
    check_arrow.py open DIR...              opens every *.arrow file below DIR as file and as stream
    check_arrow.py predictions NAME ROWS    opens NAME.arrow, .parquet and .csv, which must have the same rows
    check_arrow.py compare SRC GRAPH STORE  compares a graph made of SRC, and its hop store (sym, 2 hops), with
                                            SRC; both have been exported, to GRAPH-arrays and STORE-arrays
"""

import json
import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq


def read(path):
    """The table in an Arrow file, read both ways."""
    with pa.memory_map(str(path)) as source:
        data = source.read_buffer()
        table = pa.ipc.open_file(data).read_all()
        stream = pa.ipc.open_stream(data.slice(8)).read_all()
        table.validate(full=True)
        if not table.equals(stream, check_metadata=True):
            sys.exit(f"{path}: the file and the stream differ")
        for i in range(pa.ipc.open_file(data).num_record_batches):
            for column in pa.ipc.open_file(data).get_batch(i).columns:
                if column.null_count:
                    sys.exit(f"{path}: batch {i} has nulls")
        return table


def open_all(dirs):
    for d in dirs:
        files = sorted(pathlib.Path(d).rglob("*.arrow"))
        rows = sum(read(f).num_rows for f in files)
        listed = json.loads((pathlib.Path(d) / "manifest.json").read_text())["files"]
        if len(files) != len(listed) + 1:  # and the index
            sys.exit(f"{d}: {len(files)} files, but the manifest lists {len(listed)}")
        print(f"{d}: {len(files)} Arrow files with {rows} rows open as file and as stream, and agree")


def column(directory, name):
    """A column over all parts of a folder, [rows] or [rows, width]."""
    parts = [read(p) for p in sorted(pathlib.Path(directory).glob("part-*.arrow"))]
    values = pa.concat_tables(parts).column(name).combine_chunks()
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0)
    if pa.types.is_fixed_size_list(values.type):
        return values.flatten().to_numpy().reshape(len(values), values.type.list_size)
    return values.to_numpy()


checks = 0


def equal(what, got, want):
    global checks
    checks += 1
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or not np.array_equal(got, want):
        sys.exit(f"{what}: differs from what was imported ({got.shape} and {want.shape})")


def close(what, got, want, bound):
    global checks
    checks += 1
    worst = np.max(np.abs(got.astype(np.float64) - want) / np.maximum(bound, 1e-30))
    if not worst <= 1:
        sys.exit(f"{what}: off by {worst:.3g} times what is allowed")


def make(src):
    rng = np.random.default_rng(1)
    n, m, features = 1500, 9000, 20
    src = pathlib.Path(src)
    src.mkdir(parents=True)
    edges = np.unique(rng.integers(0, n, (m, 2)), axis=0)
    rng.shuffle(edges)
    np.save(src / "edge_index.npy", edges.T)  # in Fortran order
    np.save(src / "edge_weight.npy", rng.random(len(edges)).astype(np.float32))
    np.save(src / "node_feat.npy", rng.standard_normal((n, features)).astype(np.float32))
    np.save(src / "node_label.npy", rng.integers(-1, 5, n))
    np.save(src / "splits.npy", rng.integers(-1, 3, (2, n)).astype(np.int8))
    (src / "meta.json").write_text(json.dumps({"name": "random", "directed": True}))


def compare(src, graph, store):
    src, graph, store = map(pathlib.Path, (src, graph, store))
    edges, weights = np.load(src / "edge_index.npy"), np.load(src / "edge_weight.npy")
    features, labels = np.load(src / "node_feat.npy"), np.load(src / "node_label.npy")
    splits = np.load(src / "splits.npy")
    n = len(features)

    # The graph: by destination, sources ascending.
    order = np.lexsort((edges[0], edges[1]))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[1], minlength=n))])
    neighbors = read(graph / "topology/part-00000.arrow").column("neighbors").combine_chunks()
    neighbors = neighbors.chunk(0) if isinstance(neighbors, pa.ChunkedArray) else neighbors
    equal("topology offsets", neighbors.offsets.to_numpy(), indptr)
    equal("topology", neighbors.flatten().to_numpy(), edges[0][order])
    weight_table = read(graph / "weights/part-00000.arrow")
    equal("weights", weight_table.column(0).to_numpy(), weights[order])
    equal("features", column(graph / "features/x/hop-0", "features"), features)
    equal("labels", column(graph / "nodes", "label"), labels)
    equal("splits", column(graph / "nodes", "splits"), splits.T + 1)

    # The store: its rows are nodes.
    nodes = column(store / "rows", "node")
    if len(np.unique(nodes)) != len(nodes):
        sys.exit("a node is stored twice")
    equal("stored nodes", np.sort(nodes), np.flatnonzero((labels >= 0) | (splits >= 0).any(axis=0)))
    equal("stored labels", column(store / "rows", "label"), labels[nodes])
    equal("stored splits", column(store / "rows", "splits"), splits.T[nodes] + 1)
    dtype = column(store / "features/x/hop-0", "features").dtype
    equal("stored features", column(store / "features/x/hop-0", "features"), features[nodes].astype(dtype))
    rounding = 1e-5 if dtype == np.float32 else 2.0**-10  # of one hop, relative to the sum of sizes
    loops = np.zeros(n, bool)
    loops[edges[0][edges[0] == edges[1]]] = True
    a = np.zeros((n, n))
    np.add.at(a, (edges[1], edges[0]), weights.astype(np.float64))
    a[np.flatnonzero(~loops), np.flatnonzero(~loops)] = 1
    degree = a.sum(axis=1)
    b = a / np.sqrt(np.outer(degree, degree))
    hop, size = features.astype(np.float64), np.abs(features)
    for r in (1, 2):
        hop, size = b @ hop, b @ size
        close(f"sym hop {r}", column(store / f"features/sym/hop-{r}", "features"), hop[nodes], rounding * (r + 1) * size[nodes])

    # The exports say what the Arrow files say.
    for directory, folder in ((graph, "nodes"), (store, "rows")):
        arrays = pathlib.Path(f"{directory}-arrays")
        equal("exported labels", np.load(arrays / "node_label.npy"), column(directory / folder, "label"))
        equal("exported splits", np.load(arrays / "splits.npy").T + 1, column(directory / folder, "splits"))
    arrays = pathlib.Path(f"{graph}-arrays")
    equal("exported features", np.load(arrays / "node_feat.npy"), features)
    equal("exported edges", np.load(arrays / "edge_index.npy"), edges[:, order])
    equal("exported weights", np.load(arrays / "edge_weight.npy"), weights[order])
    for matrix in sorted(pathlib.Path(f"{store}-arrays").glob("*_hop-*.npy")):
        operator, hop = matrix.stem.rsplit("_", 1)
        equal(matrix.name, np.load(matrix), column(store / "features" / operator / hop, "features"))
    print(f"{graph}, {store}: {checks} comparisons of pyarrow's values with the arrays that were imported hold")


def predictions(name, rows):
    tables = [read(name + ".arrow"), pq.read_table(name + ".parquet"), pc.read_csv(name + ".csv")]
    want = tables[0].to_pydict()
    if tables[0].num_rows != int(rows) or sorted(want["node_id"]) != list(range(int(rows))):
        sys.exit(f"{name}: {tables[0].num_rows} rows, not one for each of {rows} nodes")
    for table in tables[1:]:
        got = table.to_pydict()
        for column in want:
            as_written = tables[0].schema.field(column).type.to_pandas_dtype()  # CSV has no types
            equal(f"{name}: {column}", np.asarray(got[column], as_written), np.asarray(want[column], as_written))
    for field in tables[0].schema:
        if field.name.startswith("p_") and not field.type == tables[1].schema.field(field.name).type == pa.float32():
            sys.exit(f"{name}: {field.name} is {field.type}, not float")
    print(f"{name}: {rows} rows of {', '.join(want)} are the same in Arrow, Parquet and CSV")


if __name__ == "__main__":
    verbs = {"predictions": lambda a: predictions(*a), "make": lambda a: make(*a), "open": open_all, "compare": lambda a: compare(*a)}
    if len(sys.argv) < 3 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    verbs[sys.argv[1]](sys.argv[2:])
