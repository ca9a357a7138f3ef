"""Importance is the derivative of the loss by a gate, and pruning and movement are what they say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from frostline.errors import UsageError
from frostline.kinds import CLASSIFICATION
from frostline.measures import Arrays, RowBatch, RowSource, Subject, parse
from frostline.measures.pruning import outputs_of
from frostline.model.inside.gates import gated, pruned
from frostline.model.inside.heads import attention_heads
from frostline.model.stack import Stack
from frostline.records.parameters import AttentionHead, written_heads
from frostline.testing.models import Family
from frostline.training.batches import make_batch
from tiny import Case

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

FAMILIES: tuple[Family, ...] = ("bert", "roberta", "distilbert", "deberta-v2", "modernbert", "gpt2", "llama")


def subject_of(family: Family, *, n_rows: int = 9) -> Subject:
    """A tiny model in double precision, and a few rows of uneven length in batches of four."""
    case = Case(family)
    stack, encoded = case.stack(dropout=0.0), case.encoded(n_rows)
    stack.model.double()

    def batch(places: NDArray[np.int64]) -> RowBatch:
        rows = make_batch(encoded, places)
        return RowBatch(places=places, inputs=rows.padded_inputs(), mask=rows.mask, labels=rows.labels)

    def cut(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        ordered = places[np.argsort(encoded.lengths[places], kind="stable")]
        yield from (ordered[start : start + 4] for start in range(0, len(ordered), 4))

    rows = RowSource(labels=encoded.labels, lengths=encoded.lengths, batch=batch, cut=cut, pooled=None)
    return Subject(
        stack=stack,
        pretrained=lambda: _doubled(case),
        train=rows,
        dev=rows,
        loss=functional.cross_entropy,
        kind=CLASSIFICATION,
        metric="accuracy",
        on_label_scale=lambda outputs: outputs,
        seed=0,
    )


def _doubled(case: Case) -> Stack:
    stack = case.stack(dropout=0.0)
    stack.model.double()
    return stack


def row_losses(subject: Subject, layer: int, gates: list[float]) -> NDArray[np.float64]:
    """Each row's own loss with these gates in one layer."""
    layers = attention_heads(subject.stack)
    gate = torch.tensor([gates], dtype=torch.float64)
    with torch.no_grad(), gated(subject.stack, layers, {layer: gate}):
        batch = subject.train.batch(np.arange(len(subject.train)))
        losses: NDArray[np.float64] = functional.cross_entropy(
            subject.logits(batch), batch.labels, reduction="none"
        ).numpy()
    return losses


def slopes(subject: Subject) -> NDArray[np.float64]:
    """dL/dgate (layers, heads, rows), by finite differences."""
    # Not smaller: Llama's norms compute in single precision whatever the weights are.
    layers, small, found = attention_heads(subject.stack), 1e-3, []
    for layer in layers:
        of_layer = []
        for head in range(layer.n_heads):
            up, down = (
                row_losses(subject, layer.layer, [1 + sign * small * (h == head) for h in range(layer.n_heads)])
                for sign in (1, -1)
            )
            of_layer.append((up - down) / (2 * small))
        found.append(of_layer)
    return np.array(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_importance_is_the_finite_difference(family: Family) -> None:
    subject = subject_of(family)
    found = parse("importance").of(subject)["importance"]
    by_hand = slopes(subject)
    np.testing.assert_allclose(found, np.abs(by_hand).mean(2), rtol=1e-3)
    # The twins: the derivative of the mean loss is another number, and so is another head's.
    assert np.abs(np.abs(by_hand.mean(2)) / found - 1).max() > 1e-2
    assert np.abs(found[::-1] / found - 1).max() > 1e-2


def test_importance_of_some_rows_is_that_of_a_fixed_sample() -> None:
    subject = subject_of("bert")
    few, all_rows = (parse(name).of(subject)["importance"] for name in ("importance:rows=3", "importance"))
    chosen = subject.train.sample("importance", 3)
    np.testing.assert_allclose(few, np.abs(slopes(subject)[..., chosen]).mean(2), rtol=1e-3)
    assert not np.allclose(few, all_rows, rtol=1e-2)


def test_pruning_gives_the_outputs_after_each_tenth() -> None:
    subject = subject_of("bert")
    order = [AttentionHead(2, 1), AttentionHead(1, 0), AttentionHead(1, 1), AttentionHead(2, 0)]
    found: Arrays = parse(f"pruning:{written_heads(order)}").of(subject)
    assert found["n_pruned"].tolist() == [1, 2, 3, 4]
    assert parse("pruning:2.1+1.0").of(subject)["n_pruned"].tolist() == [1, 2], "as far as the order goes"
    layers = attention_heads(subject.stack)
    for number, outputs in zip(found["n_pruned"], found["outputs"], strict=True):
        with pruned(subject.stack, layers, order[:number]):
            np.testing.assert_array_equal(outputs, outputs_of(subject, subject.dev))
    whole = outputs_of(subject, subject.dev)
    assert np.abs(found["outputs"][0] - whole).max() > 1e-2
    alone = np.concatenate([subject.logits(subject.dev.batch(np.array([row]))).detach() for row in range(len(whole))])
    np.testing.assert_allclose(whole, alone, atol=1e-5)  # every row in its own place


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pruning:1.0+1.0", "each attention head once"),
        ("pruning:1", "each attention head once"),
        ("importance:rows=0", "takes rows=1000"),
        ("movement:rows=3", "takes no argument"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(name)


def test_an_order_of_another_model_is_refused() -> None:
    with pytest.raises(UsageError, match=r"names the attention head 3.1, which the model does not have"):
        parse("pruning:1.0+3.1").of(subject_of("bert"))


@pytest.mark.parametrize("name", ["importance", "importance:rows=20", "movement", "pruning:1.0+2.1"])
def test_names_are_what_was_read(name: str) -> None:
    assert parse(name).name == name


def test_movement_is_the_relative_distance_of_a_heads_own_weights() -> None:
    subject = subject_of("bert")
    assert not parse("movement").of(subject)["movement"].any(), "nothing moved yet"
    moved = attention_heads(subject.stack)[1]
    with torch.no_grad():
        for part in moved.parts:
            weight = subject.stack.model.get_submodule(part.module).get_parameter(part.name)
            own = torch.tensor(part.places[1])
            weight.index_copy_(part.dim, own, 1.25 * weight.index_select(part.dim, own))
    found = parse("movement").of(subject)["movement"]
    np.testing.assert_allclose(found, [[0.0, 0.0], [0.0, 0.25]], atol=1e-12)
