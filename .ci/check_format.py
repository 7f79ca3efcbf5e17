#!/usr/bin/env python3
"""Reads and writes graphs and hop stores by docs/format.md alone, with numpy and pyarrow.

    check_format.py write DIR       writes DIR/graph and DIR/store, small ones, for hopfeed verify
    check_format.py read DIR...     reads graphs and stores: every byte is covered by a checksum that holds, the
                                    fingerprint is that of the content, and the values of chunks are where the
                                    index says
"""

import hashlib
import json
import pathlib
import struct
import sys

import numpy as np
import pyarrow as pa

PAGE = 4096


def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def up(n, multiple):
    return -(-n // multiple) * multiple


# Arrow files. pyarrow makes messages and footer; where things lie is written over them, in place.


def at(buf, table, slot):
    """Where a field of a flatbuffer's table is."""
    vtable = table - struct.unpack_from("<i", buf, table)[0]
    offset = struct.unpack_from("<H", buf, vtable + 4 + 2 * slot)[0]
    assert offset, "the field is not there"
    return table + offset


def follow(buf, position):
    return position + struct.unpack_from("<I", buf, position)[0]


def message(start, metadata):
    """A message from byte start on that ends at a multiple of PAGE."""
    length = up(start + len(metadata), PAGE) - start
    return struct.pack("<II", 0xFFFFFFFF, length - 8) + metadata[8:].ljust(length - 8, b"\0")


class ArrowFile:
    """The bytes of a file of record batches, and the extents of their data."""

    def __init__(self, schema, batches):
        out = bytearray(b"ARROW1\0\0")
        self.extents, blocks = [], []
        out += message(len(out), schema.serialize().to_pybytes())
        for batch in batches:
            raw = batch.serialize().to_pybytes()
            metadata_length = 8 + struct.unpack_from("<I", raw, 4)[0]
            metadata, body = bytearray(raw[:metadata_length]), raw[metadata_length:]
            root = follow(metadata, 8)
            header = follow(metadata, at(metadata, root, 2))
            vector = follow(metadata, at(metadata, header, 2))
            new, end = bytearray(), 0
            for i in range(struct.unpack_from("<I", metadata, vector)[0]):
                offset, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * i)
                if length:  # buffers of data; those of validity have none, as there are no nulls
                    new = new.ljust(up(len(new), 64), b"\0")
                    struct.pack_into("<q", metadata, vector + 4 + 16 * i, len(new))
                    new += body[offset : offset + length]
                else:
                    struct.pack_into("<q", metadata, vector + 4 + 16 * i, up(len(new), 64))
            size = up(len(new), PAGE)
            struct.pack_into("<q", metadata, at(metadata, root, 3), size)
            metadata = message(len(out), metadata)
            blocks.append((len(out), len(metadata), size))
            out += metadata
            self.extents.append((len(out), len(new), crc32c(new)))
            out += new.ljust(size, b"\0")
        out += struct.pack("<II", 0xFFFFFFFF, 0)
        out += self.footer(schema, batches, blocks)
        self.bytes = bytes(out)
        outside, position = b"", 0
        for offset, length, _ in self.extents:
            outside += self.bytes[position:offset]
            position = offset + length
        self.crc32c = crc32c(outside + self.bytes[position:])

    @staticmethod
    def footer(schema, batches, blocks):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        raw = sink.getvalue().to_pybytes()
        length = struct.unpack_from("<I", raw, len(raw) - 10)[0]
        footer = bytearray(raw[len(raw) - 10 - length : len(raw) - 10])
        if blocks:
            vector = follow(footer, at(footer, follow(footer, 0), 3))
            for i, block in enumerate(blocks):
                struct.pack_into("<qi4xq", footer, vector + 4 + 24 * i, *block)
        return bytes(footer) + struct.pack("<I", length) + b"ARROW1"


def field(name, type_):
    return pa.field(name, type_, nullable=False)


def list_of(type_, width):
    return pa.list_(pa.field("item", type_, nullable=False), width)


def fixed(values):
    """A column of fixed-size lists of the rows of a matrix."""
    values = np.ascontiguousarray(values)
    type_ = list_of(pa.from_numpy_dtype(values.dtype), values.shape[1])
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=type_)


def table(columns, cuts):
    """The file of columns, by name, with a record batch for each (first, end) of rows."""
    schema = pa.schema([field(name, array.type) for name, array in columns.items()])
    batches = []
    for first, end in cuts:
        # Copied, so that no offset of a slice is left.
        parts = [pa.concat_arrays([array.slice(first, end - first)]) for array in columns.values()]
        batches.append(pa.RecordBatch.from_arrays(parts, schema=schema))
    return ArrowFile(schema, batches)


# Directories.


def fingerprint(m, index):
    lines = [("format", m["format"]), ("kind", m["kind"])]
    lines += [("requires", feature) for feature in m.get("requires", [])]
    for name in ("nodes", "edges", "directed", "weighted", "features", "dtype", "classes", "label_columns", "label_values", "splits", "orig_ids", "rows", "chunk_rows"):
        lines.append((name, m.get(name, False)))
    lines += [("class_name", len(name.encode()), name) for name in m.get("class_names", [])]
    lines += [("column", c["of"], c["name"], c["dtype"], c["columns"], c["chunk_rows"]) for c in m.get("columns", [])]
    lines += [("region", r["name"], r["first_row"], r["rows"], r["first_chunk"], r["chunks"]) for r in m["regions"]]
    lines += [("operator", o["name"], o["hops"]) for o in m.get("operators", [])]
    if m["kind"] == "store":
        lines += [("split", m.get("split", 0)), ("row_set", m["row_set"]), ("seed", m.get("seed", 0))]
    lines += [("file", f["path"], f["size"], f["crc32c"], f.get("offset", 0)) for f in m["files"]]
    text = "".join(" ".join(str(v).lower() if isinstance(v, bool) else str(v) for v in line) + "\n" for line in lines)
    rows = b"".join(struct.pack("<IIQQ", file, crc, offset, length) for file, offset, length, crc in index)
    return hashlib.sha256(text.encode() + rows).hexdigest()


def write_directory(directory, m, files):
    m["files"], index = [], []
    for i, (path, file) in enumerate(sorted(files.items(), key=lambda item: item[0].encode())):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(file.bytes)
        m["files"].append({"path": path, "size": len(file.bytes), "crc32c": f"{file.crc32c:08x}"})
        index += [(i, *extent) for extent in file.extents]
    columns = zip(("file", "offset", "length", "crc32c"), (np.uint32, np.uint64, np.uint64, np.uint32), zip(*index))
    rows = table({name: pa.array(np.array(values, dtype)) for name, dtype, values in columns}, [(0, len(index))])
    (directory / "index.arrow").write_bytes(rows.bytes)
    m["fingerprint"] = fingerprint(m, index)
    m["index_size"], m["index_crc32c"] = len(rows.bytes), f"{crc32c(rows.bytes):08x}"
    m["crc32c"] = "00000000"
    zeroed = (json.dumps(m, indent=1) + "\n").encode()
    m["crc32c"] = f"{crc32c(zeroed):08x}"
    (directory / "manifest.json").write_text(json.dumps(m, indent=1) + "\n")


def write(out):
    out = pathlib.Path(out)
    rng = np.random.default_rng(3)
    n, width, chunk = 23, 5, 4
    edges = np.unique(rng.integers(0, n, (60, 2)), axis=0)
    edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]  # by destination, then source
    indptr = np.concatenate([[0], np.cumsum(np.bincount(edges[:, 1], minlength=n))])
    x = rng.standard_normal((n, width)).astype(np.float32)
    labels = rng.integers(-1, 3, n).astype(np.int32)
    splits = rng.integers(0, 4, (n, 2)).astype(np.uint8)

    def cuts(*sizes):
        """Regions, and the rows of their chunks."""
        regions, rows, first = [], [], 0
        names = ["all"] if len(sizes) == 1 else ["train", "valid", "test", "rest"]
        for name, size in zip(names, sizes):
            chunks = -(-size // chunk)
            regions.append({"name": name, "first_row": first, "rows": size, "first_chunk": len(rows), "chunks": chunks})
            rows += [(first + k * chunk, first + min(size, (k + 1) * chunk)) for k in range(chunks)]
            first += size
        return regions, rows

    regions, rows = cuts(n)
    shared = {"tool": "check_format.py", "name": "random \u00e9\u4e16", "nodes": n, "edges": len(edges), "directed": True, "weighted": False, "features": width,
              "dtype": "float32", "classes": 3, "label_columns": 1, "splits": 2, "orig_ids": False, "chunk_rows": chunk, "class_names": ["a b", "c\nd", "\u00e9"], "later": {"unknown": [1.5, None]}}
    neighbors = pa.LargeListArray.from_arrays(pa.array(indptr, pa.int64()), pa.array(edges[:, 0].astype(np.uint32)),
                                              type=pa.large_list(pa.field("item", pa.uint32(), nullable=False)))
    graph = {"format": 2, "kind": "graph", "requires": ["columns"], **shared, "rows": n, "regions": regions, "input": {"importer": "numpy"},
             "columns": [{"of": "edges", "name": "edge_time", "dtype": "int64", "columns": 0, "chunk_rows": 7}, {"of": "nodes", "name": "size", "dtype": "float16", "columns": 2, "chunk_rows": n}]}
    times = rng.integers(-(2**60), 2**60, (len(edges), 1))
    write_directory(out / "graph", graph, {
        "topology/part-00000.arrow": table({"neighbors": neighbors}, [(0, n)]),
        "nodes/part-00000.arrow": table({"label": pa.array(labels), "splits": fixed(splits)}, rows),
        "features/x/hop-0/part-00000.arrow": table({"features": fixed(x)}, rows),
        "edges/edge_time/part-00000.arrow": table({"features": fixed(times)}, [(k, min(k + 7, len(edges))) for k in range(0, len(edges), 7)]),
        "nodes/size/part-00000.arrow": table({"features": fixed(x[:, :2].astype(np.float16))}, [(0, n)]),
    })

    # A store of split 1: train rows by (Hash(seed, node), node), the others by node.
    def mix(v):
        v ^= v >> 30
        v = v * 0xBF58476D1CE4E5B9 % 2**64
        v ^= v >> 27
        v = v * 0x94D049BB133111EB % 2**64
        return v ^ v >> 31

    def key(seed, node):
        return mix((mix((seed + 0x9E3779B97F4A7C15) % 2**64) + (node + 1) * 0x9E3779B97F4A7C15) % 2**64)

    seed = 2**63 + 5
    train = sorted(np.flatnonzero(splits[:, 1] == 1).tolist(), key=lambda v: (key(seed, v), v))
    parts = [train] + [np.flatnonzero(splits[:, 1] == k).tolist() for k in (2, 3, 0)]
    nodes = np.concatenate([np.array(p, np.int64) for p in parts])
    regions, rows = cuts(*map(len, parts))
    a = np.zeros((n, n), np.float64)
    a[edges[:, 1], edges[:, 0]] = 1
    np.fill_diagonal(a, 1)
    hop = (a / np.sqrt(np.outer(a.sum(1), a.sum(1))) @ x).astype(np.float32)
    store = {"format": 2, "kind": "store", **shared, "rows": n, "regions": regions, "operators": [{"name": "sym", "hops": 1}], "split": 1,
             "row_set": "all", "seed": seed, "input": {"graph": graph["fingerprint"]}}
    half = len(rows) // 2  # two parts
    files = {"rows/part-00000.arrow": table({"node": pa.array(nodes.astype(np.uint32)), "label": pa.array(labels[nodes]), "splits": fixed(splits[nodes])}, rows)}
    for folder, values in ("x/hop-0", x), ("sym/hop-1", hop):
        files[f"features/{folder}/part-00000.arrow"] = table({"features": fixed(values[nodes])}, rows[:half])
        files[f"features/{folder}/part-00001.arrow"] = table({"features": fixed(values[nodes])}, rows[half:])
    write_directory(out / "store", store, files)


def fail(*words):
    sys.exit("check_format.py: " + " ".join(map(str, words)))


def read(directory):
    directory = pathlib.Path(directory)
    raw = (directory / "manifest.json").read_bytes()
    end = len(raw) - len('"\n}\n')
    if raw[end - 19 :] != b'"crc32c": "' + raw[end - 8 : end] + b'"\n}\n':
        fail(directory, "manifest.json does not end with its checksum")
    if crc32c(raw[: end - 8] + b"00000000" + raw[end:]) != int(raw[end - 8 : end], 16):
        fail(directory, "manifest.json is damaged")
    m = json.loads(raw)
    columns = {f"{c['of']}/{c['name']}": (m[c["of"]], c["dtype"], max(1, c["columns"])) for c in m.get("columns", [])}
    if m["format"] != 2 or m.get("requires", []) != ["columns"] * bool(columns):
        fail(directory, "of another format")
    encoded = (directory / "index.arrow").read_bytes()
    if (len(encoded), f"{crc32c(encoded):08x}") != (m["index_size"], m["index_crc32c"]):
        fail(directory, "index.arrow is damaged")
    index = pa.ipc.open_file(encoded).read_all()
    index = list(zip(*(index.column(name).to_pylist() for name in ("file", "offset", "length", "crc32c"))))
    if fingerprint(m, index) != m["fingerprint"]:
        fail(directory, "the fingerprint is another")
    paths = [f["path"] for f in m["files"]]
    if paths != sorted(paths, key=str.encode):
        fail(directory, "files are out of order")
    rows = {}
    for i, f in enumerate(m["files"]):
        data = (directory / (f.get("source") or f["path"])).read_bytes()
        if len(data) != f["size"]:
            fail(f["path"], "has another size")
        outside, position, chunks = b"", 0, []
        for file, offset, length, crc in index:
            if file != i:
                continue
            if crc32c(data[offset : offset + length]) != crc:
                fail(f["path"], "is damaged at", offset)
            outside += data[position:offset]
            position = offset + length
            chunks.append(data[offset:position])
        if f"{crc32c(outside + data[position:]):08x}" != f["crc32c"]:
            fail(f["path"], "is damaged outside of chunks")
        folder = f["path"].rsplit("/", 1)[0]
        if f["path"].startswith("features/") or folder in columns:
            _, dtype, width = columns.get(folder, (0, m["dtype"], m["features"]))
            dtype = np.dtype({"bfloat16": "uint16"}.get(dtype, dtype)).newbyteorder("<")
            values = np.frombuffer(b"".join(chunks), dtype).reshape(-1, width)
            rows[folder] = rows.get(folder, 0) + len(values)
            if "source" not in f:
                arrow = pa.ipc.open_file(data).read_all().column(0).combine_chunks()
                arrow = arrow.chunk(0) if isinstance(arrow, pa.ChunkedArray) else arrow
                if not np.array_equal(arrow.flatten().to_numpy().view(dtype).reshape(-1, width).view("u1"), values.view("u1")):
                    fail(f["path"], "pyarrow reads other values than are at the offsets of the index")
    for folder, n in rows.items():
        if n != columns.get(folder, (m["rows"],))[0]:
            fail(folder, "has", n, "rows")
    print(f"{directory}: {len(m['files'])} files, {len(index)} extents and the fingerprint are as docs/format.md says")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("read", "write"):
        sys.exit(__doc__)
    for argument in sys.argv[2:]:
        (read if sys.argv[1] == "read" else write)(argument)
