"""Makes the tables of this folder. Needs pyarrow."""
import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

rows = range(40)
table = pa.table({
    "i8": pa.array([i - 20 for i in rows], pa.int8()),
    "i16": pa.array([100 * (i - 20) for i in rows], pa.int16()),
    "i32": pa.array([10**6 * (i - 20) for i in rows], pa.int32()),
    "i64": pa.array([10**12 * (i - 20) for i in rows], pa.int64()),
    "u8": pa.array([6 * i for i in rows], pa.uint8()),
    "u16": pa.array([1600 * i for i in rows], pa.uint16()),
    "u32": pa.array([2**32 - 1 - i for i in rows], pa.uint32()),
    "u64": pa.array([2**64 - 1 - i for i in rows], pa.uint64()),
    "f16": pa.array(np.array([i / 8 for i in rows], np.float16)),
    "f32": pa.array(np.arange(40, dtype=np.float32) / np.float32(4)),
    "f64": pa.array([i / 3 for i in rows], pa.float64()),
    "bool": pa.array([i % 3 == 0 for i in rows]),
    "text": pa.array([f"t{i % 5}" for i in rows]),
    "binary": pa.array([b"\xff" * (i % 3) for i in rows], pa.binary()),
    "names": pa.array([f"t{i % 5}" for i in rows]).dictionary_encode(),
    "nulls": pa.array([None if i % 4 == 1 else i for i in rows], pa.int32()),
    "list": pa.array([None if i % 7 == 3 else [None if j == 2 else i + j / 4 for j in range(i % 4)] for i in rows], pa.list_(pa.float32())),
    "fixed": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(80, dtype=np.float64)), 2),
    "date": pa.array([datetime.date(2020, 1, 1)] * 40),
    "time": pa.array([datetime.datetime(2020, 1, 1)] * 40),
    "decimal": pa.array([decimal.Decimal("1.5")] * 40),
    "struct": pa.array([{"a": 1, "b": 2}] * 40),
    "lists": pa.array([[[1]]] * 40),
})
plain = dict(use_dictionary=False)
for name, options in {
    "snappy": dict(),
    "plain": dict(plain, compression="none", row_group_size=7),
    "zstd": dict(compression="zstd", row_group_size=17),
    "gzip": dict(plain, compression="gzip", data_page_version="2.0"),
    "pages": dict(compression="zstd", data_page_version="2.0", data_page_size=1, row_group_size=17, write_page_checksum=True),
    "lz4": dict(compression="lz4", version="1.0"),
    "split": dict(plain, column_encoding={c: "BYTE_STREAM_SPLIT" for c in ["f32", "f64", "i32", "i64", "f16"]}),
}.items():
    pq.write_table(table, f"{name}.parquet", write_batch_size=5, store_schema=False, **options)
small = table.select(["i32", "text", "nulls", "list"]).slice(0, 12)
for name, options in {"small": dict(row_group_size=5), "small_v2": dict(compression="zstd", data_page_version="2.0")}.items():
    pq.write_table(small, f"{name}.parquet", write_statistics=False, store_schema=False, **options)
pq.write_table(small.slice(0, 0), "empty.parquet", write_statistics=False, store_schema=False)
pq.write_table(small, "brotli.parquet", compression="brotli")
pq.write_table(table.select(["i64"]), "delta.parquet", use_dictionary=False, column_encoding={"i64": "DELTA_BINARY_PACKED"}, write_statistics=False, store_schema=False)
