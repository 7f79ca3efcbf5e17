"""Makes the tables of this folder, by the programs that people write tables with, and values.json: what
pyarrow reads of them. Needs pyarrow, pandas, polars, duckdb, fastparquet, pyspark and Java; what is not
installed is left as it is.

    python make.py
"""
import datetime
import decimal
import glob
import json
import math
import os
import shutil
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

os.chdir(os.path.dirname(os.path.abspath(__file__)))
D = decimal.Decimal
rows = range(24)
day, instant = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)
lists = [None if i % 7 == 3 else [None if j == 2 else i + j / 4 for j in range(i % 4)] for i in rows]
struct = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.float64()), ("d", pa.list_(pa.int32()))]))])

common = pa.table({
    "i32": pa.array([10**6 * (i - 20) for i in rows], pa.int32()),
    "i64": pa.array([10**12 * (i - 20) + i * i for i in rows], pa.int64()),
    "f32": pa.array(np.arange(24, dtype=np.float32) / np.float32(3)),
    "f64": pa.array([math.sqrt(i) for i in rows], pa.float64()),
    "bool": pa.array([i % 3 == 0 for i in rows]),
    "text": pa.array([f"t{i % 5}" for i in rows]),
    "unique": pa.array([f"a-long-prefix-{i:03d}" + "x" * (i % 3) for i in rows]),
    "nulls": pa.array([None if i % 4 == 1 else i * i for i in rows], pa.int64()),
})
with_lists = common.append_column("list", pa.array(lists, pa.list_(pa.float32())))
types = with_lists.append_column("i8", pa.array([i - 20 for i in rows], pa.int8()))
for name, values in {
    "i16": pa.array([100 * (i - 20) for i in rows], pa.int16()),
    "u8": pa.array([6 * i for i in rows], pa.uint8()),
    "u16": pa.array([1600 * i for i in rows], pa.uint16()),
    "u32": pa.array([2**32 - 1 - i for i in rows], pa.uint32()),
    "u64": pa.array([2**64 - 1 - i for i in rows], pa.uint64()),
    "f16": pa.array(np.array([i / 8 for i in rows], np.float16)),
    "binary": pa.array([b"b" * (i % 3) for i in rows], pa.binary()),
    "large": pa.array([f"t{i % 5}" for i in rows], pa.large_string()),
    "dictionary": pa.array([f"t{i % 5}" for i in rows]).dictionary_encode(),
    "fixed": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(48, dtype=np.float64)), 2),
    "decimal": pa.array([D(7 * i - 50).scaleb(-2) for i in rows], pa.decimal128(9, 2)),
    "decimal_nulls": pa.array([None if i % 5 == 0 else D(10**25 * (i - 20) + i).scaleb(-6) for i in rows], pa.decimal128(38, 6)),
    "decimal_whole": pa.array([D(10**12 * (i - 20)) for i in rows], pa.decimal128(38, 0)),
    "decimal_256": pa.array([D(10**50 * (i - 20) + 1).scaleb(-3) for i in rows], pa.decimal256(76, 3)),
    "struct": pa.array([None if i == 5 else {"a": None if i == 6 else i, "b": None if i == 7 else {"c": i / 3, "d": [i]}} for i in rows], struct),
    "required": pa.array([f"r{i}" for i in rows]),
    "date": pa.array([day] * 24),
    "time": pa.array([datetime.time(1)] * 24),
    "timestamp": pa.array([instant] * 24),
    "none": pa.nulls(24),
    "fixed_binary": pa.array([b"abcd"] * 24, pa.binary(4)),
    "map": pa.array([[("k", i)] for i in rows], pa.map_(pa.string(), pa.int32())),
    "lists": pa.array([[[i]] for i in rows], pa.list_(pa.list_(pa.int32()))),
    "structs": pa.array([[{"a": i, "b": i}] for i in rows]),
}.items():
    types = types.append_column(pa.field(name, values.type, nullable=name != "required"), values)

tables = {}  # name of a table: columns: values
files = {}  # name of a file: table


def cell(v):
    """Integers, truth values and texts become texts, floats and decimals with decimal places numbers."""
    if isinstance(v, list):
        return [cell(x) for x in v]
    if isinstance(v, bool):
        return str(int(v))
    if isinstance(v, D):
        return float(v) if v.as_tuple().exponent < 0 else str(int(v))
    if isinstance(v, bytes):
        return v.decode()
    return str(v) if isinstance(v, int) else v


unread = {"date", "time", "timestamp", "none", "fixed_binary", "map", "lists", "structs", "int96", "__index_level_0__"}


def values(table):
    out = {name: [cell(v) for v in table[name].to_pylist()] for name in table.column_names if name not in unread | {"struct"}}
    if "struct" in table.column_names:
        s = [v or {} for v in table["struct"].to_pylist()]
        out["struct.a"] = [cell(v.get("a")) for v in s]
        out["struct.b.c"] = [cell((v.get("b") or {}).get("c")) for v in s]
    return out


def add(name, table, want):
    """Notes that a file that is written has the values of a table, which pyarrow must find there."""
    got = values(pq.read_table(f"{name}.parquet"))
    if table in tables:
        assert got == tables[table], name
    else:
        assert got == values(want), name
        tables[table] = got
    files[name] = table
    print(f"{name}: {os.path.getsize(name + '.parquet')} bytes")


def arrow(name, table, data, **options):
    pq.write_table(data, f"{name}.parquet", store_schema=False, **options)
    add(name, table, data)


small_pages = dict(data_page_size=1, write_batch_size=5, max_rows_per_page=5)
plain = dict(use_dictionary=False, write_statistics=False)
deltas = {**{c: "DELTA_BINARY_PACKED" for c in ["i32", "i64", "nulls"]}, "bool": "RLE", "text": "DELTA_LENGTH_BYTE_ARRAY", "unique": "DELTA_BYTE_ARRAY"}
split = {c: "BYTE_STREAM_SPLIT" for c in ["f32", "f64", "i32", "i64", "nulls"]}
arrow("types", "types", types, compression="zstd", write_statistics=False)
arrow("types_plain", "types", types, compression="gzip", row_group_size=17, **plain)
arrow("types_v2", "types", types, compression="snappy", data_page_version="2.0", write_page_checksum=True, write_statistics=False)
arrow("types_delta", "types", types.replace_schema_metadata(), compression="zstd", column_encoding={**deltas, "i8": "DELTA_BINARY_PACKED", "u32": "DELTA_BINARY_PACKED", "u64": "DELTA_BINARY_PACKED",
      "decimal_nulls": "DELTA_BYTE_ARRAY", "f16": "BYTE_STREAM_SPLIT", "decimal": "BYTE_STREAM_SPLIT", "large": "DELTA_BYTE_ARRAY"}, **plain)
for codec in ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]:
    for version in ["1.0", "2.0"]:
        few = with_lists.select(["i64", "text", "nulls", "list"])
        arrow(f"{codec}_v{version[0]}", "few", few, compression=codec, data_page_version=version, write_statistics=False)
arrow("pages", "lists", with_lists, compression="snappy", row_group_size=17, write_page_checksum=True, write_statistics=False, **small_pages)
arrow("delta", "lists", with_lists, compression="none", column_encoding=deltas, **plain)
arrow("delta_v2", "lists", with_lists, compression="zstd", data_page_version="2.0", column_encoding=deltas, **plain)
arrow("split", "common", common, compression="none", column_encoding=split, **plain)
many = pa.table({"i32": np.cumsum(np.arange(600) % 70 - 20).astype(np.int32), "i64": (np.arange(600) // 100 * 10**15).astype(np.int64), "text": [f"id-{i}" for i in range(600)]})
arrow("delta_blocks", "blocks", many, compression="none", column_encoding={"i32": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}, **plain)
arrow("runs", "blocks", many, compression="snappy", dictionary_pagesize_limit=1 << 20, write_statistics=False)
few = with_lists.select(["i32", "text", "nulls", "list"]).slice(0, 12)
arrow("small", "small", few, row_group_size=5, write_statistics=False)
arrow("small_v2", "small", few, compression="zstd", data_page_version="2.0", write_statistics=False)
arrow("checked", "small", few, compression="none", write_page_checksum=True, row_group_size=7, write_statistics=False)
arrow("empty", "empty", few.slice(0, 0), write_statistics=False)

try:
    import pandas

    common.to_pandas().set_index("unique").to_parquet("pandas.parquet", compression="zstd")
    tables["pandas"] = {c: v for c, v in tables["common"].items() if c != "nulls"}
    tables["pandas"]["nulls"] = [None if v is None else float(v) for v in tables["common"]["nulls"]]
    add("pandas", "pandas", None)
except ImportError as e:
    print(e)
try:
    import polars

    polars.from_arrow(with_lists).write_parquet("polars.parquet", compression="zstd", row_group_size=10, statistics=False)
    add("polars", "lists", with_lists)
except ImportError as e:
    print(e)
try:
    import duckdb

    connection = duckdb.connect()
    connection.register("t", with_lists)
    for version, codec in [("V1", "snappy"), ("V2", "lz4_raw")]:
        connection.execute(f"copy t to 'duckdb_{version.lower()}.parquet' (format parquet, codec '{codec}', parquet_version {version})")
        add(f"duckdb_{version.lower()}", "lists", with_lists)
except ImportError as e:
    print(e)
try:
    import fastparquet

    flat = common.drop_columns(["nulls"])
    tables["flat"] = values(flat)
    for codec in ["GZIP", "LZ4"]:
        fastparquet.write(f"fastparquet_{codec.lower()}.parquet", flat.to_pandas(), compression=codec, row_group_offsets=10)
        if codec != "LZ4":  # which pyarrow takes for another
            add(f"fastparquet_{codec.lower()}", "flat", flat)
        files[f"fastparquet_{codec.lower()}"] = "flat"
except ImportError as e:
    print(e)
try:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import *

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.sql.parquet.outputTimestampType", "INT96").getOrCreate()
    schema = StructType([
        StructField("i64", LongType(), False), StructField("i16", ShortType()), StructField("f32", FloatType()), StructField("bool", BooleanType()),
        StructField("text", StringType()), StructField("nulls", LongType()), StructField("list", ArrayType(FloatType())),
        StructField("decimal9", DecimalType(9, 2)), StructField("decimal18", DecimalType(18, 4)), StructField("decimal38", DecimalType(38, 6)),
        StructField("whole", DecimalType(38, 0)), StructField("int96", TimestampType()), StructField("date", DateType()),
        StructField("map", MapType(StringType(), IntegerType())),
        StructField("struct", StructType([StructField("a", IntegerType()), StructField("b", StructType([StructField("c", DoubleType())]))]))])
    data = [(i, i - 20, i / 4, i % 3 == 0, f"t{i % 5}", None if i % 4 == 1 else i * i, lists[i], D(i - 5).scaleb(-2), D(10**12 * (i - 20) + i).scaleb(-4),
             D(10**25 * (i - 20) + i).scaleb(-6), D(10**12 * (i - 20)), instant, day, {"k": i}, None if i == 5 else (i, (i / 3,))) for i in rows]
    frame = spark.createDataFrame(data, schema).coalesce(1)
    for name, version, codec in [("spark_v1", "PARQUET_1_0", "snappy"), ("spark_v2", "PARQUET_2_0", "zstd"), ("spark_lz4", "PARQUET_1_0", "lz4")]:
        with tempfile.TemporaryDirectory() as folder:
            frame.write.option("parquet.writer.version", version).option("compression", codec).parquet(f"{folder}/out")
            shutil.copy(glob.glob(f"{folder}/out/part-*.parquet")[0], f"{name}.parquet")
        if not os.path.exists("spark_v1.parquet"):
            raise SystemExit("Spark wrote nothing")
        add(name, "spark", pq.read_table(f"{name}.parquet"))
except ImportError as e:
    print(e)

with open("values.json", "w") as f:
    json.dump({"files": files, "tables": tables}, f, separators=(",", ":"), sort_keys=True)
    f.write("\n")
print("values.json:", os.path.getsize("values.json"), "bytes")
