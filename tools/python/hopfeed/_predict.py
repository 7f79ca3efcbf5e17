"""A model of PyTorch applied to all rows."""

from __future__ import annotations

import os
from typing import Any, Callable, Generator, Iterator

import numpy as np
import torch

from ._call import existing
from ._errors import OptionError
from ._progress import Bars, Progress
from ._types import Path


def outputs(model: torch.nn.Module, loaders: Iterator[Any], total: int, call: Callable[[Any], torch.Tensor], progress: Progress) -> Generator[tuple[np.ndarray[Any, Any], torch.Tensor], None, None]:
    """The numbers of the nodes of each batch, and what the model gives for them. The model is in eval mode meanwhile. A
    loader is gone before the next is opened."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    done = 0
    try:
        with Bars(progress) as bars, torch.no_grad():
            for loader in loaders:
                for batch in loader:
                    seeds = getattr(batch, "seed_id", None)
                    if seeds is None:
                        raise OptionError(f"this loader gives a {type(batch).__name__} without seed_id, the numbers of the nodes: open it without transform")
                    out = call(batch).detach().cpu()
                    if out.shape[:1] != (batch.batch_size,) or out.ndim > 2:
                        raise OptionError(f"model gives {list(out.shape)} for {batch.batch_size} rows: want [rows] or [rows, outputs]")
                    # Copies: a view would keep the memory of all rows that were sampled.
                    yield seeds.cpu().numpy().copy(), out.reshape(batch.batch_size, -1).clone()
                    done += batch.batch_size
                    bars.report({"tasks": [{"id": 0, "label": "predict", "done": done, "total": total, "bytes": False}], "notes": []})
                    del batch, seeds, out
                del loader
    finally:
        for module, training in modes:
            module.training = training


def write(found: Iterator[tuple[np.ndarray[Any, Any], torch.Tensor]], output: Path, classes: int, force: bool) -> int:
    """Writes a table, which is there when it is complete, and returns its rows."""
    import pyarrow as pa  # type: ignore[import-untyped]

    path = os.fspath(output)
    suffix = os.path.splitext(path)[1]
    if suffix not in (".arrow", ".parquet", ".csv"):
        raise OptionError(f"output {path!r}: want a name that ends with .arrow, .parquet or .csv")
    if os.path.exists(path) and not force:
        raise OptionError(f"{path}: output exists (force replaces it)")
    existing(os.path.dirname(os.path.abspath(path)), "output")
    beside, writer, rows = f"{path}.{os.getpid()}.tmp", None, 0
    try:
        for nodes, out in found:
            columns = {"node_id": nodes.astype(np.uint32)}
            if classes and out.shape[1] == classes:
                columns["class"] = out.argmax(dim=1).numpy().astype(np.int32)
            columns |= {f"output_{k}": out[:, k].float().contiguous().numpy() for k in range(out.shape[1])}
            table = pa.table(columns)
            writer = writer or _writer(pa, beside, suffix, table.schema)
            writer.write_table(table)
            rows += len(nodes)
        if writer is None:
            raise OptionError("there are no rows to predict")
        writer.close()
        os.replace(beside, path)
    except BaseException:
        if writer is not None:
            writer.close()
            os.unlink(beside)
        raise
    return rows


def _writer(pa: Any, path: str, suffix: str, schema: Any) -> Any:
    if suffix == ".arrow":
        return pa.ipc.new_file(path, schema)
    if suffix == ".csv":
        from pyarrow import csv  # type: ignore[import-untyped]

        return csv.CSVWriter(path, schema)
    from pyarrow import parquet  # type: ignore[import-untyped]

    return parquet.ParquetWriter(path, schema)


def call_of(model: torch.nn.Module, device: Any) -> Callable[[Any], torch.Tensor]:
    """How a model takes a batch, where the caller does not say it."""

    def call(batch: Any) -> torch.Tensor:
        if device is not None:
            batch = batch.to(device)
        if "blocks" in batch:
            return model(batch.x, batch.blocks)  # type: ignore[no-any-return]
        if "edge_index" in batch:
            return model(batch.x, batch.edge_index)[: batch.batch_size]  # type: ignore[no-any-return]
        return model(batch.x)  # type: ignore[no-any-return]

    return call
