"""How graphs, stores, batches and loaders look in a notebook."""

from __future__ import annotations

import html
from typing import Any, Iterable


def table(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """A table of names and values, as HTML."""
    lines = "".join(f"<tr><th style='text-align: left'>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in rows)
    return f"<table><caption style='text-align: left'>{html.escape(title)}</caption>{lines}</table>"


def shape(value: Any) -> str:
    """The shape and type of an array, or of each in a list; what it is else."""
    if isinstance(value, list):
        return "; ".join(str(part).strip("<>") for part in value)
    if not hasattr(value, "shape"):
        return str(value)
    return f"{list(value.shape)} {str(value.dtype).replace('torch.', '')}"
