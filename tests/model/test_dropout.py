"""Dropout that draws fast: the same rate, the same mean, the same places in the model."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from frostline.model.added.attention import _attended
from frostline.model.added.dropout import drop, quicken
from frostline.testing.models import Family
from frostline.training.forward import Forward
from frostline.training.prefix import Split
from tiny import PACKED, TEETH, Case, distance


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("n_values", [400_000, 400_003])
def test_the_rate_the_mean_and_the_gradient(rate: float, n_values: int) -> None:
    torch.manual_seed(0)
    values = torch.ones(n_values, requires_grad=True)
    dropped = drop(values, rate)
    is_kept = dropped != 0
    error = math.sqrt(rate * (1 - rate) / n_values)
    assert abs(float((~is_kept).float().mean()) - rate) < 5 * error + 1 / 65536
    assert dropped[is_kept].unique().tolist() == pytest.approx([1 / (1 - rate)], rel=1e-4 / (1 - rate))
    assert abs(float(dropped.detach().mean()) - 1) < 5 * error / (1 - rate)
    dropped.sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad, dropped.detach())


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(0)
    is_kept = (drop(torch.ones(400_000), 0.3) != 0).float()
    for step in (1, 2, 3, 4, 5):
        one, other = is_kept[:-step], is_kept[step:]
        assert abs(float(((one - one.mean()) * (other - other.mean())).mean())) < 5 * 0.21 / math.sqrt(400_000)


def test_the_ends_of_the_scale() -> None:
    values = torch.randn(10)
    assert drop(values, 0.0) is values
    assert torch.equal(drop(values, 1.0), torch.zeros(10))


def test_the_same_seed_drops_the_same() -> None:
    torch.manual_seed(3)
    one = drop(torch.ones(100), 0.5)
    torch.manual_seed(3)
    assert torch.equal(drop(torch.ones(100), 0.5), one)
    assert not torch.equal(drop(torch.ones(100), 0.5), one)


def test_every_plain_dropout_is_swapped_and_keeps_its_rate_and_mode() -> None:
    inner = nn.Sequential(nn.Dropout(0.1), nn.AlphaDropout(0.2)).eval()
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.3), inner)
    quicken(model)
    kinds = [
        (type(m).__name__, m.p, m.training) for m in model.modules() if isinstance(m, nn.Dropout | nn.AlphaDropout)
    ]
    assert kinds == [("QuickDropout", 0.3, True), ("QuickDropout", 0.1, False), ("AlphaDropout", 0.2, False)]
    values = torch.ones(1000)
    assert inner[0](values) is values
    assert float((model[1](values) == 0).float().mean()) == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("n_key_heads", [1, 2, 4])
def test_attention_with_dropout_is_the_librarys_but_for_what_is_dropped(n_key_heads: int) -> None:
    torch.manual_seed(0)
    query = torch.randn(3, 4, 5, 8)
    key, value = torch.randn(2, 3, n_key_heads, 5, 8)
    mask = torch.rand(3, 1, 5, 5) > 0.3
    mask |= torch.eye(5, dtype=torch.bool)
    plain = _attended(query, key, value, mask, {"dropout": 0.0, "scaling": 0.2})
    nothing_dropped = _attended(query, key, value, mask, {"dropout": 1e-9, "scaling": 0.2})
    assert distance(nothing_dropped, plain) < 1e-5
    blind = _attended(query, key, value, torch.ones_like(mask), {"dropout": 1e-9, "scaling": 0.2})
    assert distance(blind, plain) > TEETH
    means = torch.stack([_attended(query, key, value, mask, {"dropout": 0.2, "scaling": 0.2}) for _ in range(4000)])
    assert distance(means.mean(0), plain) < 0.1
    assert distance(means[0], plain) > TEETH


@pytest.mark.parametrize("family", PACKED)
@torch.no_grad()
def test_packed_training_passes_differ_and_evaluation_does_not(family: Family) -> None:
    case = Case(family)
    stack, batch, split = case.stack(dropout=0.3), case.batch(), Split(case.encoded())
    stack.allow_packing()
    forward = Forward(stack, layout="packed")
    assert torch.equal(forward.logits(batch, split), forward.logits(batch, split))
    stack.model.train()
    assert distance(forward.logits(batch, split), forward.logits(batch, split)) > TEETH
