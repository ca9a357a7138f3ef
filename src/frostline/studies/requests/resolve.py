"""A curve as asked for → everything settled, once: what a resumed call finds again.

Reads the model and the data; trains nothing.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from frostline import tasks
from frostline.errors import UsageError
from frostline.model.added.readers import POOLINGS
from frostline.model.load import Pretrained, describe, unknown_share
from frostline.records.environment import n_cores
from frostline.records.keys import key_of
from frostline.records.requests import CurveSpec, ResolvedComparison, ResolvedCurve
from frostline.records.specs import Layout, RunSpec
from frostline.storage import atomic
from frostline.storage.prefix_cache import default_folder, free_bytes
from frostline.storage.runs import FolderIdentity, Settled, Store, read_resolved
from frostline.tasks import TaskData
from frostline.training.batches import Encoded, encode
from frostline.training.prefix import estimated_bytes

MOST_UNKNOWN = 0.5
"""Largest share of unknown tokens that is trained on: above it there is nothing to learn from (TRAPS 31)."""


@dataclass(frozen=True)
class Opened:
    """A request with its model described, its data read and its store open."""

    resolved: ResolvedCurve
    store: Store
    pretrained: Pretrained
    data: TaskData
    train: Encoded
    dev: Encoded

    @property
    def prefix_bytes(self) -> int:
        """Size of the prefix states at one depth."""
        dtype = self.resolved.asked.cache_dtype
        return sum(estimated_bytes(encoded, self.pretrained.width, dtype) for encoded in (self.train, self.dev))


def open_curve(request: CurveSpec, out: Path, *, max_cache_bytes: int, command: str = "curve") -> Opened:
    """Settles a command's request, or finds how it was settled before."""
    opened = _open(request, out, max_cache_bytes, needs_depth=command != "train")
    path = opened.store.spec_path(command, key_of(request.to_json()))
    return dataclasses.replace(opened, resolved=_kept(path, opened.resolved))


def open_comparison(
    request: CurveSpec,
    strategies: Sequence[str],
    out: Path,
    *,
    max_cache_bytes: int,
    check_model: Callable[[Opened, ResolvedComparison], object],
) -> tuple[Opened, ResolvedComparison]:
    """Settles the request for a comparison, or finds how it was settled before.

    `check_model` raises where a strategy is not for the model or the task; no request is written then.
    """
    opened = _open(request, out, max_cache_bytes, needs_depth=False)
    comparison = ResolvedComparison(strategies=tuple(strategies), settled=opened.resolved)
    check_model(opened, comparison)
    key = key_of({"asked": request.to_json(), "strategies": list(strategies)})
    comparison = _kept(opened.store.spec_path("compare", key), comparison)
    return dataclasses.replace(opened, resolved=comparison.settled), comparison


def _open(request: CurveSpec, out: Path, max_cache_bytes: int, *, needs_depth: bool) -> Opened:
    check(request)
    task = tasks.resolve(request.task)
    data = tasks.load(task)
    pretrained = describe(request.model)
    if needs_depth:
        pretrained.check_depth()
    depths = _depths(request, pretrained.n_layers)
    max_length = min(request.max_length, pretrained.max_tokens)
    train, dev = (
        encode(rows, pretrained.tokenizer, max_length=max_length, pair_joiner=pretrained.pair_joiner)
        for rows in (data.train, data.dev)
    )
    _check_known(train, pretrained)
    identity = FolderIdentity(
        model=request.model,
        model_fingerprint=pretrained.fingerprint,
        task=task.name,
        data_fingerprint=data.fingerprint,
    )
    store = Store.open(out, identity)
    device = pick_device(request.device)
    base = RunSpec(
        model=request.model,
        model_fingerprint=pretrained.fingerprint,
        task=task,
        data_fingerprint=data.fingerprint,
        strategy="full",
        learning_rate=request.learning_rates[0],
        epochs=request.epochs or pretrained.epochs,
        batch_size=request.batch_size,
        max_length=max_length,
        seed=request.seeds[0],
        is_cached=False,
        frozen_dropout=request.frozen_dropout,
        layout=_layout(request, pretrained, device),
        pair_joiner=pretrained.pair_joiner if task.text_pair else None,
        threads=request.threads,
        device=device,
        precision="bf16" if device == "cuda" and torch.cuda.is_bf16_supported() else "fp32",
    )
    settled = ResolvedCurve(
        asked=request,
        base=base,
        n_layers=pretrained.n_layers,
        depths=depths,
        is_cached=False,
    )
    opened = Opened(settled, store, pretrained, data, train, dev)
    is_cached = request.cache and not request.frozen_dropout and _has_room(opened.prefix_bytes, max_cache_bytes)
    return dataclasses.replace(opened, resolved=settled.replace(is_cached=is_cached))


def _layout(request: CurveSpec, pretrained: Pretrained, device: str) -> Layout:
    """Packed on a CPU, where padding costs; padded on a GPU, which has room for it, unless asked otherwise."""
    if request.varlen and (device != "cuda" or not pretrained.is_packable):
        what = f"device is {device}" if device != "cuda" else f"rows of {pretrained.name} cannot be packed"
        raise UsageError(f"--varlen is for CUDA and models whose rows can be packed; {what}: leave it out")
    if not pretrained.is_packable:
        return "padded"
    return "packed" if device == "cpu" else "varlen" if request.varlen else "padded"


def check_pooled(opened: Opened, max_cache_bytes: int) -> None:
    """Raises where the pooled states of all layers would be more than may be kept."""
    n_rows = len(opened.train) + len(opened.dev)
    n_bytes = n_rows * (opened.resolved.n_layers + 1) * len(POOLINGS) * opened.pretrained.width * 4
    if n_bytes > max_cache_bytes > 0:
        raise UsageError(
            f"features of {n_rows:,} rows are {n_bytes / 2**30:.1f} GB, more than --cache-max-gb "
            f"{max_cache_bytes / 2**30:g}; give fewer rows by --max-train, or a larger --cache-max-gb"
        )


def _has_room(n_bytes: int, max_cache_bytes: int) -> bool:
    """Whether the prefix states of one depth fit: under the limit, and on the disk."""
    return n_bytes <= max_cache_bytes and n_bytes <= free_bytes(default_folder())


def default_out(model: str, task: str) -> Path:
    """`runs/<model>-<task>`."""
    return Path("runs") / f"{Path(model).resolve().name if Path(model).is_dir() else model.replace('/', '--')}-{task}"


def check(request: CurveSpec) -> None:
    """Raises one UsageError with all that is out of range."""
    faults = [
        *_at_least("epochs", 1, [] if request.epochs is None else [request.epochs]),
        *_at_least("batch_size", 1, [request.batch_size]),
        *_at_least("max_length", 3, [request.max_length]),
        *_at_least("threads", 1, [request.threads]),
        *_at_most("threads", 1024, [request.threads]),
        *_at_least("seeds", 0, request.seeds),
    ]
    faults += [
        f"learning rate {r:g}; it must be above 0 and finite" for r in request.learning_rates if not 0 < r < math.inf
    ]
    faults += [f"keep {k:g}; it must be above 0 and at most 1" for k in request.keep if not 0 < k <= 1]
    for name, values in (("seeds", request.seeds), ("learning rates", request.learning_rates), ("keep", request.keep)):
        if not values:
            faults.append(f"no {name}; give at least one")
        if len(set(values)) < len(values):
            faults.append(f"{name} {', '.join(map(str, values))}: each only once")
    if faults:
        raise UsageError.together(faults)


def _check_known(train: Encoded, pretrained: Pretrained) -> None:
    share = unknown_share(pretrained.tokenizer, train.tokens)
    if share > MOST_UNKNOWN:
        raise UsageError(
            f"{share:.0%} of the training tokens are unknown to the tokenizer of {pretrained.name}; at most "
            f"{MOST_UNKNOWN:.0%} may be: check its tokenizer files, or give a model for this language"
        )
    rows = np.split(train.tokens, train.offsets[1:-1])
    if len({row.tobytes() for row in rows}) == 1:
        raise UsageError(
            f"all {len(rows)} training texts are the same tokens to the tokenizer of {pretrained.name}: nothing can be "
            "learnt from them; check its tokenizer files, the text column, or give a larger --max-length"
        )


def _at_least(name: str, lowest: int, values: Sequence[int]) -> list[str]:
    return [f"{name} is {value}; it must be at least {lowest}" for value in values if value < lowest]


def _at_most(name: str, highest: int, values: Sequence[int]) -> list[str]:
    return [f"{name} is {value}; it must be at most {highest}" for value in values if value > highest]


def _depths(request: CurveSpec, n_layers: int) -> tuple[int, ...]:
    """The depths asked for, ascending; by default from half of the layers to all, as in the paper."""
    depths = tuple(range(n_layers // 2, n_layers + 1)) if request.frozen is None else tuple(sorted(set(request.frozen)))
    wrong = [depth for depth in depths if not 0 <= depth <= n_layers]
    if wrong or not depths:
        raise UsageError(
            f"--frozen {', '.join(map(str, wrong))}: the model has {n_layers} layers; give 0 to {n_layers}"
        )
    return depths


def pick_device(asked: Literal["auto", "cpu", "cuda", "mps"]) -> Literal["cpu", "cuda", "mps"]:
    """The device asked for, if it is there; `auto`: the fastest."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if asked == "auto":
        return "cuda" if there["cuda"] else "mps" if there["mps"] else "cpu"
    if not there[asked]:
        raise UsageError(f"device {asked!r} is not there; there is: {', '.join(name for name in there if there[name])}")
    return asked


def _kept(path: Path, settled: Settled) -> Settled:
    """What the first call with the same request settled, in a file of its own; this one, if it is the first."""
    atomic.write_new(path, json.dumps(settled.to_json(), indent=2, allow_nan=False) + "\n")
    return read_resolved(path, type(settled))


def default_workers(threads: int, device: str) -> int:
    """One run a core, by the threads of a run; one run a device."""
    return max(1, n_cores() // threads) if device == "cpu" else 1
