"""What a model of PyTorch is judged by: the metrics of the command ``train``."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from ._errors import OptionError
from ._types import one_of

Metric = Literal["accuracy", "macro-f1", "micro-f1", "roc-auc", "mse", "mae"]

# Of each kind of labels, the first by default.
_METRICS = {"classes": ["accuracy", "macro-f1", "micro-f1", "roc-auc"], "labels": ["micro-f1", "macro-f1", "roc-auc"], "values": ["mse", "mae"]}


def scored(metric: Any, out: Any, labels: np.ndarray[Any, Any], kind: str) -> dict[str, Any]:
    """A metric, or what a function gives, and the number of labelled rows.

    :param out: a tensor [rows, outputs]
    :param labels: [rows] classes, [rows, L] labels or values; -1 or NaN is unlabelled
    """
    known: Any = ~np.isnan(labels) if kind == "values" else labels >= 0
    rows = np.flatnonzero(known if labels.ndim == 1 else known.any(axis=1))
    y, known, name = labels[rows], known[rows], metric
    if callable(metric):
        name = getattr(metric, "__name__", type(metric).__name__)
        value = metric(out[rows], torch.as_tensor(y)) if len(rows) else None
        return {"metric": name, "value": value, "rows": len(rows)}
    name = one_of("metric", metric or _METRICS[kind][0], Metric)
    if name not in _METRICS[kind]:
        raise OptionError(f"metric {name!r}: of {kind}, want {', '.join(map(repr, _METRICS[kind]))}")
    found = out[rows].double().numpy()
    width = found.shape[1]
    if kind == "classes" and width <= y.max(initial=1) or kind != "classes" and width != y.shape[1]:
        raise OptionError(f"model gives {width} outputs: want {int(y.max()) + 1 if kind == 'classes' else y.shape[1]}, one for each of the {kind}")
    value = _value(name, found, y, known, kind) if len(rows) else None
    return {"metric": name, "value": value, "rows": len(rows)}


def _value(name: str, out: np.ndarray[Any, Any], y: np.ndarray[Any, Any], known: Any, kind: str) -> float | None:
    if kind == "values":
        errors = np.abs(out - y)[known]
        return float(np.mean(errors**2 if name == "mse" else errors))
    if name == "accuracy":
        return float(np.mean(out.argmax(axis=1) == y))
    if name == "roc-auc":
        if kind == "classes":
            if out.shape[1] != 2:
                raise OptionError(f"metric 'roc-auc': want two classes or several labels, not {out.shape[1]} classes")
            out, y, known = out[:, 1:] - out[:, :1], y[:, None], np.ones((len(y), 1), bool)
        areas = [_area(out[known[:, k], k], y[known[:, k], k] == 1) for k in range(y.shape[1])]
        there = [area for area in areas if area is not None]
        return float(np.mean(there)) if there else None
    if kind == "classes":
        classes = np.arange(out.shape[1])
        had, predicted = y[:, None] == classes, out.argmax(axis=1)[:, None] == classes
    else:
        had, predicted = (y == 1) & known, (out > 0) & known
    both, either = (had & predicted).sum(axis=0), had.sum(axis=0) + predicted.sum(axis=0)
    if name == "micro-f1":
        return float(2 * both.sum() / max(1, either.sum()))
    if kind == "classes":
        both, either = both[either > 0], either[either > 0]
    return float(np.mean(2 * both / np.maximum(1, either)))


def _area(scores: np.ndarray[Any, Any], positive: np.ndarray[Any, Any]) -> float | None:
    """The area under the ROC curve: of the pairs of a positive row and another, those where the positive one has the larger
    score, equal ones half. A score that is no number ranks worst."""
    scores = np.where(np.isnan(scores), np.where(positive, -np.inf, np.inf), scores)
    others, with_label = np.sort(scores[~positive]), scores[positive]
    if not len(others) or not len(with_label):
        return None
    below, upto = np.searchsorted(others, with_label, "left"), np.searchsorted(others, with_label, "right")
    return float((below + upto).sum() / (2 * len(others) * len(with_label)))
