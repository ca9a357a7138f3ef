"""What clients get, in the shapes that they already read. Every answer holds the hash of the bundle that gave it."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from frostline.serving.server.jobs import Outputs
from frostline.serving.server.refusals import Refusal
from frostline.serving.server.shapes import Asked
from frostline.serving.server.tasks import Served, Snapshot

Answer = dict[str, Any]
_SERVER = secrets.token_hex(8)
_number = itertools.count(1)
BUNDLE_HEADER = "X-Frostline-Bundle"


class ClassProbability(BaseModel):
    """One of the most probable classes."""

    label: str
    prob: float


class Item(BaseModel):
    """The answer for one text: a class, or a number."""

    index: int
    label: str | None = None
    probs: list[float] | None = None
    top_k: list[ClassProbability] | None = None
    num_classes: int | None = None
    value: float | None = None


class Usage(BaseModel):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class ClassifyAnswer(BaseModel):
    """The answer of `/v1/classify`, as vLLM has it, with the bundle's hash."""

    id: str
    object: str
    created: int
    model: str
    bundle: str
    data: list[Item]
    usage: Usage


class TaskAnswer(BaseModel):
    """One task's answers to all texts of a request."""

    bundle: str
    depth: int
    """the layer after which the task left the trunk"""
    shares: str
    """compute or storage"""
    data: list[Item]


class CombinedAnswer(BaseModel):
    """The answer of `/v1/classify/combined`: results by task."""

    id: str
    object: str
    created: int
    trunk: str
    results: dict[str, TaskAnswer]
    skipped: dict[str, str]
    """with tasks "all": tasks that read other texts, and what they read"""
    usage: Usage


class Prediction(BaseModel):
    """A class and its probability, as text-embeddings-inference has it."""

    label: str
    score: float


def classified(task: Served, outputs: Outputs, asked: Asked, n_tokens: int) -> Answer:
    """The answer of `/v1/classify`."""
    return {
        **_head("classify"),
        "model": task.name,
        "bundle": task.hash,
        "data": _items(task, outputs, asked),
        "usage": _usage(n_tokens),
    }


def combined(
    tasks: Snapshot, outputs: Outputs, asked: Asked, n_tokens: int, *, trunk: str, skipped: Mapping[str, str]
) -> Answer:
    """The answer of `/v1/classify/combined`."""
    results = {
        name: {
            "bundle": task.hash,
            "depth": task.depth,
            "shares": shares(task),
            "data": _items(task, outputs, asked),
        }
        for name, task in tasks.items()
    }
    return {
        **_head("combined"),
        "trunk": trunk,
        "results": results,
        "skipped": dict(skipped),
        "usage": _usage(n_tokens),
    }


def predicted(task: Served, outputs: Outputs, asked: Asked) -> list[Answer] | list[list[Answer]]:
    """The answer of `/predict`: for each text all classes, the most probable first; for numbers the label `value`."""
    rows = _numbers(task, outputs, is_raw=asked.is_raw)
    names = task.manifest.label_names or ("value",)
    lists = [
        [{"label": names[place], "score": row[place]} for place in _descending(row, len(row))] for row in rows.tolist()
    ]
    return lists[0] if asked.is_single else lists


def described(task: Served) -> Answer:
    """An entry of `/v1/models`."""
    manifest = task.manifest
    return {
        "id": task.name,
        "object": "model",
        "created": task.loaded_at,
        "owned_by": "frostline",
        "task": manifest.name,
        "kind": manifest.kind,
        "labels": list(manifest.label_names),
        "reads": task.reads,
        "max_tokens": manifest.max_length,
        "depth": task.depth,
        "n_layers": task.n_layers,
        "shares": shares(task),
        "strategy": manifest.strategy,
        "metric": manifest.metric,
        "score": manifest.final_score,
        "dtype": manifest.dtype,
        "bundle": task.hash,
    }


def shares(task: Served) -> str:
    """`compute`, or `storage` if the task has to compute all layers itself."""
    return "compute" if task.tail.shares_compute else "storage"


def _head(what: str) -> Answer:
    return {"id": f"{what}-{_SERVER}-{next(_number)}", "object": "list", "created": int(time.time())}


def _usage(n_tokens: int) -> Answer:
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens, "completion_tokens": 0}


def _items(task: Served, outputs: Outputs, asked: Asked) -> list[Answer]:
    rows = _numbers(task, outputs, is_raw=asked.is_raw).tolist()
    if not task.kind.has_classes:
        return [{"index": index, "value": row[0]} for index, row in enumerate(rows)]
    return [_item(index, row, task.manifest.label_names, asked.top_k) for index, row in enumerate(rows)]


def _item(index: int, row: Sequence[float], names: Sequence[str], top_k: int | None) -> Answer:
    best = _descending(row, top_k or 1)
    shown: Answer = {"index": index, "label": names[best[0]]}
    if top_k is None:
        shown["probs"] = row
    else:
        shown["top_k"] = [{"label": names[place], "prob": row[place]} for place in best]
    return {**shown, "num_classes": len(row)}


def _descending(row: Sequence[float], n_best: int) -> list[int]:
    """The places of the largest numbers; of equal ones the first."""
    if n_best == 1:
        return [row.index(max(row))]
    return sorted(range(len(row)), key=lambda place: -row[place])[:n_best]


def _numbers(task: Served, outputs: Outputs, *, is_raw: bool) -> NDArray[np.float64]:
    """What a client sees of the outputs (texts, classes): probabilities, or the outputs themselves."""
    values = task.answers(outputs[task.name])
    if not np.isfinite(values).all():
        raise Refusal(424, "backend", f"the task {task.name} gave a number that is not finite")
    if is_raw or not task.kind.has_classes:
        return values
    exponents = np.exp(values - values.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = exponents / exponents.sum(axis=1, keepdims=True)
    return shares
