"""Columns of edges and nodes: from arrays into a graph, out of it again, and in batches."""

import hashlib
import os
import pathlib
import tempfile
import unittest

import numpy as np

import hopfeed

TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 bool".split()
NODES, EDGES = 300, 4000


def digest(folder):
    files = sorted(p for p in pathlib.Path(folder).rglob("*") if p.is_file())
    return hashlib.sha256(b"".join(str(p.relative_to(folder)).encode() + p.read_bytes() for p in files)).hexdigest()


class Columns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.rng = np.random.default_rng(5)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, edges, arrays, nodes=NODES, meta=None):
        os.makedirs(self.path("arrays"))
        arrays = {"edge_index": edges, "node_feat": np.ones((nodes, 2), np.float32), **arrays}
        for name, array in arrays.items():
            np.save(self.path("arrays", name + ".npy"), array)
        if meta:
            pathlib.Path(self.path("arrays", "meta.json")).write_text(meta)

    def make(self, name="graph", **options):
        return hopfeed.import_npy(self.path("arrays"), self.path(name), **{"directed": True, "progress": False, **options})

    def values(self, kind, *shape):
        raw = self.rng.integers(0, 256, (*shape, np.dtype(kind).itemsize), np.uint8)  # any bits, also those of NaN
        return raw[..., 0] > 127 if kind == "bool" else raw.view(kind)[..., 0]

    def test_every_type_comes_back_in_the_order_of_the_topology(self):
        edges = self.rng.integers(0, NODES, (2, EDGES))
        arrays = {}
        for kind in TYPES:
            arrays[f"edge_{kind}"] = self.values(kind, EDGES)
            arrays[f"edge_{kind}_rows"] = self.values(kind, EDGES, 3)
            arrays[f"node_{kind}"] = self.values(kind, NODES)
            arrays[f"node_{kind}_rows"] = self.values(kind, NODES, 1)
        self.write(edges, arrays)
        for duplicates in ("merge", "keep"):
            graph = self.make(duplicates, duplicates=duplicates)
            order = np.lexsort((edges[0], edges[1]))  # stable: of duplicates, the first of the input comes first
            if duplicates == "merge":
                sorted_edges = edges[:, order]
                order = order[np.r_[True, (sorted_edges[:, 1:] != sorted_edges[:, :-1]).any(axis=0)]]
            self.assertEqual(graph.manifest["edges"], len(order))
            self.assertEqual(len(graph.columns), len(arrays))
            hopfeed.verify(graph.path, progress=False)
            hopfeed.export_npy(graph.path, self.path("out-" + duplicates), progress=False)
            np.testing.assert_array_equal(np.load(self.path("out-" + duplicates, "edge_index.npy")), edges[:, order])
            for name, array in arrays.items():
                of_edges = name.startswith("edge_")
                want = array[order] if of_edges else array
                want = want.astype(np.uint8) if want.dtype == bool else want
                column = graph.column(name if of_edges else name[5:])
                exported = np.load(self.path("out-" + duplicates, name + ".npy"))
                for got in (np.asarray(column), exported, column.rows[np.arange(len(want))]):
                    self.assertEqual((got.dtype, got.shape, got.tobytes()), (want.dtype, want.shape, want.tobytes()), name)
            again = hopfeed.import_npy(self.path("out-" + duplicates), self.path("again-" + duplicates), duplicates="keep", directed=True, progress=False)
            for name in graph.columns:
                self.assertEqual(np.asarray(again.column(name)).tobytes(), np.asarray(graph.column(name)).tobytes())

    def test_reverses_have_the_values_of_their_edge_and_loops_stay_once(self):
        edges = np.array([[0, 1, 2, 2, 3], [1, 0, 2, 0, 1]])
        self.write(edges, {"edge_attr": np.arange(5) + 10, "edge_weight": np.arange(5.0) + 1}, nodes=4, meta='{"directed": false}')
        graph = self.make(directed=None)
        hopfeed.export_npy(graph.path, self.path("out"), progress=False)
        got = dict(zip(zip(*np.load(self.path("out", "edge_index.npy")).tolist()), np.asarray(graph.column("edge_attr")).tolist()))
        self.assertEqual(got, {(0, 1): 10, (1, 0): 10, (2, 2): 12, (2, 0): 13, (0, 2): 13, (3, 1): 14, (1, 3): 14})
        weights = np.load(self.path("out", "edge_weight.npy"))
        self.assertEqual(dict(zip(got, weights.tolist())), {k: v - 9 for k, v in got.items()})
        graph = self.make("without", directed=None, self_loops="drop")
        self.assertEqual(np.asarray(graph.column("edge_attr")).tolist(), [v for (u, w), v in got.items() if u != w])

    def test_bytes_do_not_depend_on_memory_or_threads(self):
        edges, nodes = 1_500_000, 1000
        self.write(self.rng.integers(0, nodes, (2, edges)), {"edge_attr": self.rng.standard_normal((edges, 4), np.float32), "edge_time": np.arange(edges)}, nodes)
        want = None
        for i, options in enumerate(({}, {"threads": 1}, {"threads": 1, "memory": "66MiB"}, {"threads": 2, "memory": "80MiB"})):
            self.make(f"graph-{i}", duplicates="keep", **options)
            want = want or digest(self.path("graph-0"))
            self.assertEqual(digest(self.path(f"graph-{i}")), want, options)
        with self.assertRaises(hopfeed.DoesNotFit):
            self.make("none", memory="20MiB", duplicates="keep")

    def test_tables_of_edges_have_columns(self):
        count = 3000
        edges, time = self.rng.integers(0, NODES, (2, count)), self.rng.integers(-(2**62), 2**62, count)
        size, small = self.rng.standard_normal(count), self.rng.integers(-(2**31), 2**31, count).astype(np.int32)
        large = self.rng.integers(0, 2**64, count, np.uint64)
        lines = ["u,v,Time,size,other"] + [f"{u},{v},{t},{s!r},x" for u, v, t, s in zip(*edges.tolist(), time.tolist(), size.tolist())]
        pathlib.Path(self.path("edges.csv")).write_text("\n".join(lines) + "\n")
        np.save(self.path("x.npy"), np.ones((NODES, 1), np.float32))
        order = np.lexsort((edges[0], edges[1]))
        options = {"features": self.path("x.npy"), "duplicates": "keep", "directed": True, "progress": False}
        asked = ["Time:int64", "size:float64", "size"]
        imports = [lambda out, **more: hopfeed.import_csv(self.path("edges.csv"), self.path(out), **options, **more)]
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ImportError:
            pass
        else:
            table = pa.table({"u": edges[0], "v": edges[1], "Time": time, "size": size, "bytes": small, "large": large, "other": ["x"] * count})
            pyarrow.parquet.write_table(table, self.path("edges.parquet"), row_group_size=700)
            imports.append(lambda out, **more: hopfeed.import_parquet(self.path("edges.parquet"), self.path(out), **options, **more))
        for i, make in enumerate(imports):
            graph = make(f"graph-{i}", edge_columns=asked[:2])
            self.assertEqual(graph.columns, ["edge_size", "edge_time"])
            np.testing.assert_array_equal(np.asarray(graph.column("edge_time")), time[order])
            np.testing.assert_array_equal(np.asarray(graph.column("edge_size")), size[order])
            graph = make(f"floats-{i}", edge_columns=asked[2:])
            # Parquet's columns have types of their own.
            np.testing.assert_array_equal(np.asarray(graph.column("edge_size")), size[order].astype(np.float64 if i else np.float32))
            if i:
                graph = make("own", edge_columns=["Time", "bytes", "large"])
                for name, values in (("edge_time", time), ("edge_bytes", small), ("edge_large", large)):
                    found = np.asarray(graph.column(name))
                    self.assertEqual((found.dtype, found.tolist()), (values.dtype, values[order].tolist()))
            for bad in (["size:int64"], ["other"], ["none"], ["Time:int7"], ["size", "size"]):
                with self.subTest(bad=bad), self.assertRaises(hopfeed.Error):
                    make("bad", edge_columns=bad)
        self.assertEqual([name for name in os.listdir(self.folder) if "scratch" in name or name == "bad"], [])

    def test_tables_of_nodes_have_columns(self):
        order = self.rng.permutation(NODES)
        nodes = {"id": np.arange(NODES), "label": np.arange(NODES) % 3, "f": self.rng.random(NODES), "born": self.rng.integers(-(2**62), 2**62, NODES)}
        embedding = self.rng.standard_normal((NODES, 3), np.float32)
        lines = [f"{i},{y},{f!r},{b},{' '.join(map(repr, e))}" for i, y, f, b, e in zip(*(a.tolist() for a in (*nodes.values(), embedding)))]
        edges = self.rng.integers(0, NODES, (EDGES, 2))
        np.savetxt(self.path("edges.csv"), edges, "%d", ",", header="u,v", comments="")
        sources = {}
        for name, rows, options in (("by id", order, {}), ("in order", range(NODES), {"id_column": "none", "feature_columns": ["f"]})):
            pathlib.Path(self.path(name + ".csv")).write_text("\n".join(["id,label,f,born,embedding"] + [lines[i] for i in rows]) + "\n")
            sources[name] = (hopfeed.import_csv, self.path("edges.csv"), self.path(name + ".csv"), options)
        try:
            import pyarrow as pa
            import pyarrow.parquet
        except ImportError:
            pass
        else:
            pyarrow.parquet.write_table(pa.table({"u": edges[:, 0], "v": edges[:, 1]}), self.path("edges.parquet"))
            table = pa.table({**nodes, "embedding": list(embedding), "half": embedding[:, 0].astype(np.float16)})
            pyarrow.parquet.write_table(table, self.path("nodes.parquet"), row_group_size=17)
            sources["parquet"] = (hopfeed.import_parquet, self.path("edges.parquet"), self.path("nodes.parquet"), {})
        for name, (read, source, table, options) in sources.items():
            with self.subTest(name):
                make = lambda columns, **more: read(source, self.path(name), node_table=table, node_columns=columns, directed=True, force=True, progress=False, **options, **more)
                own = name == "parquet"  # has types
                graph = make(["born", "embedding", "half"] if own else ["born:int64", "embedding"])
                self.assertEqual((graph.features, graph.classes), (1, 3))
                for column, values in (("born", nodes["born"]), ("embedding", embedding)):
                    found = graph.column(column)[:]
                    self.assertEqual(found.dtype, values.dtype)
                    np.testing.assert_array_equal(found, values)
                if own:
                    np.testing.assert_array_equal(graph.column("half")[:], embedding[:, 0].astype(np.float16))
                (batch,) = hopfeed.NeighborLoader(graph, [2], [5, 7], columns=["born", "embedding"])
                np.testing.assert_array_equal(batch.embedding, embedding[batch.n_id])
                np.testing.assert_array_equal(batch.born, nodes["born"][batch.n_id])
                graph = make(["f:float64", "label:uint8", "embedding:float16"], labels=None) if own else make(["label:uint8", "embedding:float16"])
                np.testing.assert_array_equal(graph.column("embedding")[:], embedding.astype(np.float16))
                np.testing.assert_array_equal(graph.column("label")[:], (np.arange(NODES) % 3).astype(np.uint8))
                for bad, says in ((["born:int8"], "whole number of 8 bits"), (["age"], "no such column"), (["f:text"], "NAME:TYPE"), (["f:int64"], "whole number")):
                    with self.assertRaisesRegex(hopfeed.Error, says):
                        make(bad)
        pathlib.Path(self.path("by id.csv")).write_text("\n".join(["id,label,f,born,embedding", *lines[1:]]) + "\n")
        np.save(self.path("x.npy"), np.ones((NODES, 1), np.float32))
        with self.assertRaisesRegex(hopfeed.Error, "no row of node 0"):
            hopfeed.import_csv(self.path("edges.csv"), self.path("less"), features=self.path("x.npy"), node_table=self.path("by id.csv"), node_columns="f", directed=True, progress=False)
        with self.assertRaisesRegex(hopfeed.OptionError, "no table of nodes"):
            hopfeed.import_csv(self.path("edges.csv"), self.path("less"), node_columns="f", directed=True, progress=False)
        self.assertEqual([name for name in os.listdir(self.folder) if "scratch" in name or name == "less"], [])

    def test_damage_of_a_column_is_found(self):
        self.write(self.rng.integers(0, NODES, (2, EDGES)), {"edge_attr": np.arange(EDGES), "node_time": np.arange(NODES)})
        graph = self.make()
        for part in ("edges/edge_attr", "nodes/time"):
            path = pathlib.Path(graph.path, part, "part-00000.arrow")
            sound = path.read_bytes()
            path.write_bytes(sound[:9000] + bytes([sound[9000] ^ 1]) + sound[9001:])
            with self.assertRaises(hopfeed.CorruptError) as error:
                hopfeed.verify(graph.path, progress=False)
            self.assertEqual([bad["file"] for bad in error.exception.result["bad"]], [str(path)])
            with self.assertRaises(hopfeed.CorruptError):
                hopfeed.export_npy(graph.path, self.path("out"), progress=False)
            path.write_bytes(sound)
        pathlib.Path(graph.path, "edges", "edge_other").mkdir()
        pathlib.Path(graph.path, "edges", "edge_other", "part-00000.arrow").touch()
        with self.assertRaises(hopfeed.CorruptError):
            hopfeed.verify(graph.path, progress=False)

    def test_what_has_no_meaning_is_refused(self):
        for name, array, says in (
            ("edge_attr", np.arange(EDGES - 1), "edge_attr.npy"),
            ("edge_attr", np.ones((EDGES, 2, 2)), "one row for each"),
            ("edge_attr", np.asfortranarray(np.ones((EDGES, 2))), "Fortran"),
            ("edge_attr", np.arange(EDGES).astype(">i4"), "big-endian"),
            ("edge_attr", np.array(["a"] * EDGES), "numbers"),
            ("edge_Attr", np.arange(EDGES), "name"),
            ("node_time", np.arange(EDGES), "one row for each"),
            ("node_edge_time", np.arange(NODES), "rename"),
        ):
            with self.subTest(name=name, says=says):
                self.write(self.rng.integers(0, NODES, (2, EDGES)), {name: array})
                with self.assertRaisesRegex(hopfeed.Error, says):
                    self.make()
                os.rename(self.path("arrays"), self.path(f"arrays-{len(os.listdir(self.folder))}"))
        self.write(self.rng.integers(0, NODES, (2, EDGES)), {"edge_attr": np.arange(EDGES)})
        with self.assertRaisesRegex(hopfeed.OptionError, "added up"):
            self.make(duplicates="sum")

    def test_batches_have_the_columns_of_their_nodes_and_edges(self):
        edges = self.rng.integers(0, NODES, (2, EDGES))
        self.write(edges, {"edge_attr": self.rng.standard_normal((EDGES, 3), np.float32), "node_time": np.arange(NODES) * 7, "edge_weight": self.rng.random(EDGES), **{f"node_{n}": np.arange(NODES) for n in "abcde"}})
        graph = self.make()
        attr, names = np.asarray(graph.column("edge_attr")), ["edge_attr", "time"]
        hopfeed.export_npy(graph.path, self.path("out"), progress=False)
        stored, weights = np.load(self.path("out", "edge_index.npy")), np.load(self.path("out", "edge_weight.npy"))
        loaders = [
            hopfeed.NeighborLoader(graph, [4, 3], "all", 50, subgraph_type="directional", columns=names),
            hopfeed.NeighborLoader(graph, [4, 3], "all", 50, subgraph_type="induced", columns=names),
            hopfeed.LinkNeighborLoader(graph, [4, 3], edges[:, :200], batch_size=50, neg_sampling="binary", columns=names),
        ]
        for loader in loaders:
            for b in loader:
                np.testing.assert_array_equal(b.time, b.n_id * 7)
                np.testing.assert_array_equal(b.edge_attr, attr[b.e_id])
                np.testing.assert_array_equal(b.edge_weight, weights[b.e_id])
                np.testing.assert_array_equal(b.n_id[b.edge_index], stored[:, b.e_id])
        names = ["time", *"ecadb"]
        (b,) = hopfeed.NeighborLoader(graph, [4], [1, 2], columns=names, edge_ids=True)
        self.assertEqual([name for name in b if name in names], names)
        np.testing.assert_array_equal(b.time, b.n_id * 7)
        np.testing.assert_array_equal(graph.column("edge_attr")[b.blocks[0].e_id], attr[b.blocks[0].e_id])
        with self.assertRaisesRegex(hopfeed.OptionError, "block.e_id"):
            hopfeed.NeighborLoader(graph, [4], columns=["edge_attr"])
        with self.assertRaisesRegex(hopfeed.OptionError, "no column"):
            hopfeed.NeighborLoader(graph, [4], "all", columns=["age"])


if __name__ == "__main__":
    unittest.main()
