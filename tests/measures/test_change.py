"""What changed: each number against a naive computation, row by row without padding; exact where nothing changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from families import LAYERS
from frostline.measures.change import activity_change, weight_distances
from frostline.measures.measure import RowBatch
from frostline.model.inside.maps import showing_attention
from frostline.model.stack import Stack
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.batches import Encoded, make_batch
from frostline.training.inside.measuring import row_source
from frostline.training.prefix import Split
from frostline.training.run import Runner
from tiny import TEETH, Case

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

FAMILIES: tuple[Family, ...] = ("bert", "roberta", "modernbert", "gpt2", "llama", "xlnet", "deberta-v2")
SINGLE: tuple[Family, ...] = ("modernbert",)
"""Its plain attention computes in single precision, in which the double mask is infinite."""
N_LAYERS = 3
Floats = NDArray[np.float64]


def pair(family: Family) -> tuple[Stack, Stack]:
    """A model and one with other weights, in double precision where the library computes attention in it."""
    before, after = (Case(family).stack(n_layers=N_LAYERS) for _ in range(2))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(3)
        for parameter in after.model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    for stack in (before, after):
        stack.model.to(torch.float32 if family in SINGLE else torch.float64)
    return before, after


def batches(family: Family, stack: Stack, n_rows: int = 12) -> list[RowBatch]:
    """Rows of uneven length in one batch, with padding."""
    source = row_source(Split(Case(family).encoded(n_rows)), stack)
    found = list(source.batches())
    assert any(not batch.mask.all() for batch in found)
    return found


def alone(stack: Stack, encoded: Encoded) -> tuple[list[list[Floats]], list[Floats]]:
    """Maps (heads, tokens, tokens) of each row and layer, and the states of all tokens at each depth."""
    maps, states = [], []
    with torch.no_grad(), showing_attention(stack):
        for row in range(len(encoded)):
            inputs = make_batch(encoded, np.array([row])).padded_inputs()
            taken = {k: v for k, v in inputs.items() if k != "token_type_ids" or k in stack._accepted}
            found = stack.model(**taken, output_attentions=True)
            maps.append([one[0].numpy() for one in found.attentions])
            states.append([stack.state_at(depth, inputs)[0].numpy() for depth in range(N_LAYERS + 1)])
    return maps, [np.concatenate([of_row[depth] for of_row in states]) for depth in range(N_LAYERS + 1)]


def naive_cka(one: Floats, other: Floats) -> float:
    """Linear CKA from the centred states."""
    x, y = one - one.mean(0), other - other.mean(0)
    return float(np.square(x.T @ y).sum() / np.sqrt(np.square(x.T @ x).sum() * np.square(y.T @ y).sum()))


def naive_entropy(maps: list[list[Floats]], layer: int, head: int) -> float:
    """Of each token's attention, mean over tokens, then over rows."""
    rows = [one[layer][head] for one in maps]
    return float(np.mean([np.mean([-sum(p * np.log(p) for p in token if p > 0) for token in row]) for row in rows]))


def naive_cosine(before: list[list[Floats]], after: list[list[Floats]], layer: int, head: int) -> float:
    """Of the maps as long vectors, mean over rows."""
    pairs = [(one[layer][head].ravel(), other[layer][head].ravel()) for one, other in zip(before, after, strict=True)]
    return float(np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]))


@pytest.mark.parametrize("family", FAMILIES)
def test_maps_entropies_and_states_are_compared_as_defined(family: Family) -> None:
    before, after = pair(family)
    found = activity_change(before, after, batches(family, before))
    encoded = Case(family).encoded(12)
    (maps, states), (other_maps, other_states) = alone(before, encoded), alone(after, encoded)
    heads = [(layer, head) for layer in range(N_LAYERS) for head in range(len(maps[0][0]))]
    close = 1e-3 if family in SINGLE else 1e-6
    wanted = [naive_cosine(maps, other_maps, *head) for head in heads]
    np.testing.assert_allclose(found["attention_cosine"].ravel(), wanted, atol=close)
    for name, of_model in (("entropy_before", maps), ("entropy_after", other_maps)):
        np.testing.assert_allclose(found[name].ravel(), [naive_entropy(of_model, *head) for head in heads], atol=close)
    naive = [naive_cka(one, other) for one, other in zip(states, other_states, strict=True)]
    np.testing.assert_allclose(found["cka"], naive, atol=close)
    assert found["attention_cosine"].max() < 1 - TEETH
    assert found["cka"].max() < 1 - TEETH


def test_counting_padding_as_tokens_is_noticed() -> None:
    before, after = pair("bert")
    rows = batches("bert", before)
    unmasked = [dataclasses.replace(batch, mask=torch.ones_like(batch.mask)) for batch in rows]
    found, wrong = (activity_change(before, after, some) for some in (rows, unmasked))
    assert max(np.abs(found[name] - wrong[name]).max() for name in ("attention_cosine", "entropy_after")) > TEETH
    assert np.abs(found["cka"] - wrong["cka"]).max() > TEETH / 10


@pytest.mark.parametrize("family", ["bert", "gpt2", "mpnet"])
def test_a_model_has_not_changed_from_itself(family: Family) -> None:
    stack, twin = (Case(family).stack(n_layers=N_LAYERS) for _ in range(2))
    found = activity_change(stack, twin, batches(family, stack)) | weight_distances(stack, twin)
    assert (found["attention_cosine"] == 1).all()
    assert (found["cka"] == 1).all()
    np.testing.assert_array_equal(found["entropy_before"], found["entropy_after"])
    assert all((values == 0).all() for name, values in found.items() if name.startswith("distance"))


@pytest.mark.parametrize("family", ["bert", "gpt2", "xlnet"])
def test_distances_are_norms_over_the_weights_of_a_layer(family: Family) -> None:
    before, after = pair(family)
    one, other = ({name: p.detach().numpy() for name, p in stack.model.named_parameters()} for stack in (before, after))
    found = weight_distances(before, after)
    for layer in range(N_LAYERS):
        names = [name for name in one if name.startswith(f"{LAYERS[family]}.{layer}.")]
        moved = np.concatenate([(other[name] - one[name]).ravel() for name in names])
        base = np.concatenate([one[name].ravel() for name in names])
        assert found["distance"][layer] == pytest.approx(np.linalg.norm(moved) / np.linalg.norm(base), rel=1e-6)
    assert found["distance"].min() > TEETH


def test_parts_of_a_layer_add_up_to_the_layer() -> None:
    before, after = pair("bert")
    with torch.no_grad():  # only attention of the second layer moves
        for (name, p), (_, q) in zip(before.model.named_parameters(), after.model.named_parameters(), strict=True):
            if not name.startswith("bert.encoder.layer.1.attention.self"):
                q.copy_(p)
    found = weight_distances(before, after)
    assert (found["distance_ffn"] == 0).all()
    assert (found["distance_norms"] == 0).all()
    assert found["distance_embeddings"] == 0
    assert found["distance_attention"][1] > found["distance"][1] > 0
    assert (found["distance_attention"][[0, 2]] == 0).all()


@pytest.mark.parametrize(
    ("family", "layout"), [("bert", "packed"), ("modernbert", "packed"), ("gpt2", "packed"), ("llama", "packed"),
                           ("xlnet", "padded")],
)  # fmt: skip
def test_below_the_cut_exactly_nothing_changes(family: Family, layout: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", family, n_layers=N_LAYERS)
    spec = make_spec(model, make_task(tmp_path / "task.csv", n_rows=32), layout=layout, measures=("change:rows=20",))
    frozen = spec.replace(strategy="freeze:2", is_cached=True)
    runner = Runner(max_cache_bytes=0)
    for run, n_frozen in ((frozen, 2), (spec, 0)):
        found = runner.run(run).measurement("change:rows=20")
        assert found is not None
        assert (found["attention_cosine"][:n_frozen] == 1).all()
        assert (found["distance"][:n_frozen] == 0).all()
        assert (found["cka"][: n_frozen + (n_frozen > 0)] == 1).all()
        np.testing.assert_array_equal(found["entropy_before"][:n_frozen], found["entropy_after"][:n_frozen])
        assert (found["attention_cosine"][n_frozen:] < 1).any(1).all()
        assert (found["distance"][n_frozen:] > 0).all()
        assert (found["cka"][n_frozen + 1 :] < 1).all()
