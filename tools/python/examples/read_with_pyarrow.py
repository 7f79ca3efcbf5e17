"""Reads a hop store with pyarrow, without Hopfeed. docs/reading.md says more.

    python read_with_pyarrow.py STORE
"""

import json
import pathlib
import sys

import pyarrow as pa

store = pathlib.Path(sys.argv[1])
manifest = json.loads((store / "manifest.json").read_text())
train = next(r for r in manifest["regions"] if r["name"] == "train")


def read(folder):
    """The table in a folder of Arrow files, mapped, not copied."""
    files = sorted((store / folder).glob("part-*.arrow"))
    return pa.concat_tables(pa.ipc.open_file(pa.memory_map(str(file))).read_all() for file in files)


rows = read("rows").slice(train["first_row"], train["rows"])
print("training nodes", rows["node"][:5].to_pylist(), "with labels", rows["label"][:5].to_pylist())
for operator in manifest["operators"]:
    print(operator)
for folder in sorted((store / "features").glob("*/hop-*")):
    column = read(folder.relative_to(store))["features"].slice(train["first_row"], train["rows"]).combine_chunks()
    values = column.flatten().to_numpy().reshape(train["rows"], manifest["features"])
    print(folder.relative_to(store), values.dtype, values.shape)
