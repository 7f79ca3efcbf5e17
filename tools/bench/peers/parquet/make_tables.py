"""Makes the large tables of `parquet speed`, as pyarrow writes them: python make_tables.py FOLDER [SHARE]

SHARE is the part of the full size, 1 by default. Needs numpy and pyarrow, and 1.2 GB of disk.
"""

import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

folder, share = pathlib.Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 1
folder.mkdir(parents=True, exist_ok=True)
random = np.random.default_rng(0)
rows, edges, nodes = int(2_000_000 * share), int(20_000_000 * share), 100_000
features = pa.table({f"f{i}": random.standard_normal(rows, np.float32) for i in range(32)})
pq.write_table(features, folder / "features-snappy.parquet", compression="snappy")
ends = pa.table({name: (nodes * random.random(edges) ** 3).astype(np.int64) for name in ("source", "destination")})
for name, options in {
    "edges-dictionary-snappy": {"compression": "snappy"},
    "edges-dictionary-zstd": {"compression": "zstd"},
    "edges-plain-snappy": {"compression": "snappy", "use_dictionary": False},
    "edges-delta-zstd": {"compression": "zstd", "use_dictionary": False, "column_encoding": "DELTA_BINARY_PACKED"},
}.items():
    pq.write_table(ends, folder / f"{name}.parquet", **options)
