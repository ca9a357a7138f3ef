"""Training on kept states, packed, with the top layer on one token, is what the plain library's model does.

The plain side is written here and computes with transformers and torch alone. Of ours it takes data: names of
parameters, texts, tokens and the order of the rows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, get_linear_schedule_with_warmup

from families import ABOVE, DECODERS, DISTINCT, LAYERS, matrix
from frostline.kinds import CLASSIFICATION
from frostline.model.load import load_model
from frostline.model.stack import Stack
from frostline.records.specs import RunSpec
from frostline.storage.prefix_cache import Cache, Origin
from frostline.testing.models import FAMILIES, Family, make_model, make_rows, make_tokenizer
from frostline.training.batches import Encoded, training_batches
from frostline.training.prefix import Prefixes, Split
from tiny import BASIC, PACKED, STEPS, Case, step_losses

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

N_LAYERS = 4
DEPTHS = (2, 3, 4)
"""Half of the layers frozen, all but one, all."""
N_ROWS, BATCH_SIZE, N_EPOCHS = 38, 8, 10
N_STEPS = N_EPOCHS * math.ceil(N_ROWS / BATCH_SIZE)
CLOSE = 1e-5
SHOWS = 100 * CLOSE
"""What is broken on purpose must be off by more than this."""
WIDE, RATE = 0.3, 0.1
"""Of the first weights, and of learning. Wider or faster, 50 steps part a plain model from itself one rounding off."""
WARMUP_SHARE = 0.1
ONE_TOKEN: tuple[Family, ...] = ("bert", "roberta", "xlm-roberta", "electra", "distilbert")
"""Families whose top layer can be called with the head's token alone."""

Harm = Literal["mask", "rows", "weight"]
Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class Course:
    """What came of training: the gradient of the first step, before it is clipped, and the loss of every step."""

    first: Gradients
    losses: NDArray[np.float64]


@dataclass(frozen=True)
class Subject:
    """A model with a head, saved, and the folder of its prefix states."""

    family: Family
    trained: Path
    """the model as both sides start with it"""
    cache: Path

    @property
    def case(self) -> Case:
        return Case(self.family, is_pair=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("as-plain")


@functools.cache
def _subject(family: Family, folder: Path) -> Subject:
    pretrained = make_model(folder / family, family, n_layers=N_LAYERS, dropout=0.0, initializer_range=WIDE)
    model = load_model(str(pretrained), head_seed=1, head=CLASSIFICATION.head(("bad", "good")), pad_token_id=0)
    model.save_pretrained(folder / f"{family}-with-head")
    return Subject(family, folder / f"{family}-with-head", folder / "cache")


def _first_gradients(model: nn.Module) -> Gradients:
    """Filled, by the first backward pass that comes, with the gradient of every parameter that trains."""
    found: Gradients = {}

    def keep(parameter: Tensor, name: str) -> None:
        if name not in found:
            assert parameter.grad is not None
            found[name] = parameter.grad.clone()

    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(functools.partial(keep, name=name))
    return found


def _plain_model(subject: Subject, depth: int, harm: Harm | None) -> PreTrainedModel:
    """The library's own model, its embeddings and lowest layers frozen and in eval."""
    model = AutoModelForSequenceClassification.from_pretrained(subject.trained, dtype=torch.float32)
    layers = LAYERS[subject.family]
    trained = tuple(f"{layers}.{number}." for number in range(depth, N_LAYERS))
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name in ABOVE[subject.family] or name.startswith(trained)
        if harm == "weight" and name.startswith(f"{layers}.0.") and parameter.ndim == 2:
            parameter.data[0] += 0.5
    model.train()
    for module in model.modules():
        trains = [parameter.requires_grad for parameter in module.parameters()]
        if trains and not any(trains):
            module.eval()
    return model


def _plain_rows(family: Family) -> list[dict[str, list[int]]]:
    """The tokens of every row, and their types where the tokenizer gives them."""
    rows, tokenizer = make_rows(n_rows=N_ROWS, is_pair=True), make_tokenizer(family)
    assert rows.pairs is not None
    if family in DECODERS:
        texts = [f"{text}\n{pair}" for text, pair in zip(rows.texts, rows.pairs, strict=True)]
        return [dict(tokenizer(text, return_attention_mask=False)) for text in texts]
    pairs = zip(rows.texts, rows.pairs, strict=True)
    return [dict(tokenizer(text, pair, return_attention_mask=False)) for text, pair in pairs]


def _plain_inputs(family: Family, rows: Sequence[dict[str, list[int]]], harm: Harm | None) -> dict[str, Tensor]:
    """The rows as the library's model wants them: padded, on the side that is right for it, and with a mask."""
    longest = max(len(row["input_ids"]) for row in rows)
    fill = {"input_ids": 0, "token_type_ids": 3 if family == "xlnet" else 0, "attention_mask": 0}
    lists: dict[str, list[list[int]]] = {}
    for row in rows:
        for name, values in {**row, "attention_mask": [1] * len(row["input_ids"])}.items():
            padding = [fill[name]] * (longest - len(values))
            # XLNet's head reads the last place, whatever the mask says.
            lists.setdefault(name, []).append([*padding, *values] if family == "xlnet" else [*values, *padding])
    inputs = {name: torch.tensor(values) for name, values in lists.items()}
    if harm == "mask":
        # A decoder never sees padding on the right: it shows where a text's second token is hidden.
        inputs["attention_mask"][:, 1 : 2 if family in DECODERS else None] = 0 if family in DECODERS else 1
    return inputs


@functools.cache
def _plain_course(subject: Subject, depth: int, n_epochs: int = N_EPOCHS, harm: Harm | None = None) -> Course:
    """What the library's model does in a plain loop, over batches of the same rows in the same order."""
    model = _plain_model(subject, depth, harm)
    first, rows = _first_gradients(model), _plain_rows(subject.family)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=RATE)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(WARMUP_SHARE * N_STEPS), N_STEPS)
    encoded, losses = _encoded(subject.case), list[float]()
    for epoch in range(1, n_epochs + 1):
        for batch in training_batches(encoded, BATCH_SIZE, seed=0, epoch=epoch):
            positions = np.roll(batch.positions, 1) if harm == "rows" else batch.positions
            inputs = _plain_inputs(subject.family, [rows[place] for place in positions], harm)
            loss = model(**inputs, labels=1 - torch.from_numpy(batch.positions) % 2).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return Course(first, np.array(losses))


@functools.cache
def _encoded(case: Case) -> Encoded:
    return case.encoded(N_ROWS)


def _layout(family: Family) -> Literal["packed", "mixed"]:
    return "packed" if family in PACKED else "mixed"


def _our_stack(subject: Subject) -> Stack:
    stack = Stack(AutoModelForSequenceClassification.from_pretrained(subject.trained, dtype=torch.float32))
    if subject.family in PACKED:
        stack.allow_packing()
        assert stack.can_read_one_token == (subject.family in ONE_TOKEN)
    return stack


def _our_split(subject: Subject, stack: Stack, depth: int) -> Split:
    """The rows with their states on disk."""
    family, encoded = subject.family, _encoded(subject.case)
    origin = Origin(
        model=family,
        model_fingerprint=family,
        task="t",
        split="train",
        layout=_layout(family),
        device="cpu",
        dtype="fp32",
    )
    states = Prefixes(2**30, Cache(subject.cache)).states(encoded, origin, depth, lambda: stack)
    assert isinstance(states.values, np.memmap)
    assert states.is_one_token == (depth == N_LAYERS and stack.head_reads != "all")
    return Split(encoded, states)


def _nudged(split: Split) -> Split:
    """Every state off in its first number; a norm would take away what is added to all of them."""
    assert split.states is not None
    values = np.array(split.states.values)
    values[:, 0] += 0.5
    return dataclasses.replace(split, states=dataclasses.replace(split.states, values=values))


@functools.cache
def _our_course(subject: Subject, depth: int, *, is_nudged: bool = False) -> Course:
    """What we do: states from the cache, and no padding but in attention of a model's own."""
    stack = _our_stack(subject)
    split = _our_split(subject, stack, depth)
    if is_nudged:
        split = _nudged(split)
    stack.apply(stack.parameters_above(depth))
    first = _first_gradients(stack.model)
    return Course(first, step_losses(stack, depth, _spec(_layout(subject.family)), split))


def _spec(layout: Literal["packed", "mixed"]) -> RunSpec:
    return STEPS.replace(
        learning_rate=RATE, epochs=N_EPOCHS, batch_size=BATCH_SIZE, layout=layout, warmup_share=WARMUP_SHARE
    )


def _gradient_error(found: Gradients, wanted: Gradients) -> float:
    """How far the whole gradients are apart, as a share of the wanted one."""
    assert found.keys() == wanted.keys()
    norm = torch.cat([gradient.flatten() for gradient in wanted.values()]).double().norm()
    return float(torch.cat([(found[name] - wanted[name]).flatten() for name in wanted]).double().norm() / norm)


def _loss_error(found: Course, wanted: Course) -> float:
    """The largest difference of two losses of the same step."""
    n_steps = min(len(found.losses), len(wanted.losses))
    return float(np.abs(found.losses[:n_steps] - wanted.losses[:n_steps]).max())


def _is_sample(family: Family, depth: int) -> bool:
    """Half of the layers frozen on each kind of family; the other depths on two."""
    return family in DISTINCT if depth == DEPTHS[0] else (family, depth) in (("bert", 3), ("bert", 4), ("gpt2", 4))


@pytest.mark.parametrize(("family", "depth"), matrix(FAMILIES, DEPTHS, is_sample=_is_sample))
def test_the_first_gradient_and_fifty_losses_are_the_plain_models(family: Family, depth: int, folder: Path) -> None:
    subject = _subject(family, folder)
    ours, plain = _our_course(subject, depth), _plain_course(subject, depth)
    assert len(ours.losses) == len(plain.losses) == N_STEPS == 50
    assert _gradient_error(ours.first, plain.first) < CLOSE
    assert _loss_error(ours, plain) < CLOSE
    an_epoch = N_STEPS // N_EPOCHS
    assert plain.losses[-an_epoch:].mean() < plain.losses[:an_epoch].mean() - SHOWS, "it learns nothing: no teeth"


def _is_twin(family: Family, depth: int) -> bool:
    return depth == DEPTHS[0] or family in BASIC


def _is_sampled_twin(family: Family, depth: int) -> bool:
    """An encoder and a decoder that are packed, and two with attention of their own."""
    return family in ("bert", "gpt2", "deberta-v2", "xlnet") and _is_sample(family, depth)


_ALL_TWINS = matrix(FAMILIES, (DEPTHS[0], N_LAYERS), is_sample=_is_sampled_twin)
TWINS = [case for case in _ALL_TWINS if _is_twin(*case.values)]


def _check_shows(ours: Course, plain: Course) -> None:
    assert _gradient_error(ours.first, plain.first) > SHOWS
    assert _loss_error(ours, plain) > SHOWS


@pytest.mark.parametrize("harm", typing.get_args(Harm))
@pytest.mark.parametrize(("family", "depth"), TWINS)
def test_twin_another_mask_order_or_frozen_weight_shows(family: Family, depth: int, harm: Harm, folder: Path) -> None:
    subject = _subject(family, folder)
    _check_shows(_our_course(subject, depth), _plain_course(subject, depth, n_epochs=1, harm=harm))


@pytest.mark.parametrize(("family", "depth"), TWINS)
def test_twin_nudged_states_show(family: Family, depth: int, folder: Path) -> None:
    subject = _subject(family, folder)
    _check_shows(_our_course(subject, depth, is_nudged=True), _plain_course(subject, depth))
