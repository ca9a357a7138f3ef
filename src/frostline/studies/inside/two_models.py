"""What changed from one given model to another: weights alone, or on the dev rows of a task too. Trains nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from frostline.analysis import CurveCost, RunCounts
from frostline.analysis.inside.change import Change, strategy_change
from frostline.errors import UsageError
from frostline.kinds import CLASSIFICATION
from frostline.kinds.kind import Head
from frostline.measures import RowBatch
from frostline.measures.change import activity_change, weight_distances
from frostline.model.load import Pretrained, describe, load_model
from frostline.model.stack import Stack
from frostline.records.requests import StudyRequest
from frostline.studies.requests.task_reader import TaskReader
from frostline.tasks import TaskData
from frostline.training.batches import encode
from frostline.training.device.settings import torch_settings
from frostline.training.inside.measuring import row_source
from frostline.training.prefix import Split


def change_between(base: str, tuned: str, request: StudyRequest | None, rows: int) -> Change:
    """What changed from a model to another one that was fine-tuned from it.

    Args:
        base: the pretrained model.
        tuned: the fine-tuned one.
        request: the task whose dev rows attention and states are compared on; None: weights alone.
        rows: most dev rows.
    """
    began = time.monotonic()
    data = None if request is None else _read(request)
    known, other = describe(base), describe(tuned)
    known.check_depth()
    other.check_depth()
    head = CLASSIFICATION.head(("0", "1")) if data is None else data.head
    with torch_settings(1 if request is None else request.threads):
        before, after = (_stack(one, head) for one in (known, other))
        _check_alike(before, after, base, tuned)
        found = weight_distances(before, after)
        batches = [] if data is None or request is None else list(_batches(data, known, before, request, rows))
        if batches:
            found |= activity_change(before, after, batches)
    has_maps = "attention_cosine" in found or not batches
    return Change(
        model=base,
        tuned=tuned,
        task=None if request is None else request.task.name,
        metric=None,
        n_layers=before.n_layers,
        n_rows=sum(len(batch.places) for batch in batches),
        strategies=(strategy_change(tuned, None, [found]),),
        operating_point=None,
        cost=CurveCost(wall_seconds=time.monotonic() - began, prefix_seconds=0.0, train_seconds=0.0, cache_bytes=0),
        runs=RunCounts(done=0, reused=0, crashed=0),
        warnings=() if has_maps else (f"{base} gives no attention maps; states and weights are compared without them",),
    )


def _read(request: StudyRequest) -> TaskData:
    reader = TaskReader()
    return reader.load(reader.resolve(request.task))


def _stack(known: Pretrained, head: Head) -> Stack:
    """A model with any head: the layers alone are compared."""
    pad = known.tokenizer.pad_token_id
    return Stack(load_model(known.name, head_seed=0, head=head, pad_token_id=pad, revision=known.revision))


def _batches(data: TaskData, known: Pretrained, stack: Stack, request: StudyRequest, rows: int) -> Iterator[RowBatch]:
    """Dev rows as the first model's tokenizer reads them."""
    length = min(request.max_length, known.max_tokens)
    encoded = encode(data.dev, known.tokenizer, max_length=length, pair_joiner=known.pair_joiner)
    source = row_source(Split(encoded, source="dev"), stack)
    yield from source.batches(source.sample("change", rows))


def _check_alike(before: Stack, after: Stack, base: str, tuned: str) -> None:
    """Raises if two models have not the same layers: then nothing can be compared layer by layer."""
    one, other = (_shapes(stack) for stack in (before, after))
    if one != other:
        differing = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
        raise UsageError(
            f"{tuned} was not fine-tuned from {base}: {differing[0]} has shape {other.get(differing[0], 'none')}, "
            f"not {one.get(differing[0], 'none')}; give the model that it was fine-tuned from"
        )


def _shapes(stack: Stack) -> dict[str, tuple[int, ...]]:
    found = stack.structure
    trunk = {*found.below_parameters, *np.concatenate([[], *found.layer_parameters]).tolist()}
    return {name: tuple(p.shape) for name, p in stack.model.named_parameters() if name in trunk}
