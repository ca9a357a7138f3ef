"""The parameter table: PAPER.md's numbers for its four models, closed forms for others."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from transformers import GPT2Config

from frostline.kinds import CLASSIFICATION, REGRESSION
from frostline.model.census import PAPER_MODELS, census
from frostline.model.load import count_trained
from frostline.testing.models import FAMILIES, Family, make_model

# embeddings, one layer, all layers, pooler, total: PAPER.md
PAPER = {
    "bert-base-uncased": (23_837_184, 7_087_872, 85_054_464, 590_592, 109_482_240),
    "roberta-base": (39_000_576, 7_087_872, 85_054_464, 590_592, 124_645_632),
    "bert-large-uncased": (31_782_912, 12_596_224, 302_309_376, 1_049_600, 335_141_888),
    "roberta-large": (52_000_768, 12_596_224, 302_309_376, 1_049_600, 355_359_744),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_models(name: str) -> None:
    found = census(name)
    assert (found.embeddings, found.layer, found.layers, found.pooler, found.total) == PAPER[name]
    assert found.embeddings + found.layers + found.pooler == found.total
    n_layers, width = (24, 1024) if "large" in name else (12, 768)
    assert found.n_layers == n_layers
    # BERT keeps its pooler under the new layer of two classes; RoBERTa brings a dense layer of its own for it.
    top = 2 * width + 2
    is_bert = name.startswith("bert")
    assert found.head == (top if is_bert else width * width + width + top)
    above = found.head + (found.pooler if is_bert else 0)
    assert found.full == found.embeddings + found.layers + above
    assert [(d.n_frozen, d.trained_parameters) for d in found.depths] == [
        (depth, (n_layers - depth) * found.layer + above) for depth in range(n_layers + 1)
    ]
    assert all(math.isclose(d.share, d.trained_parameters / found.full) for d in found.depths)


def test_all_four_are_there() -> None:
    assert set(PAPER_MODELS) == set(PAPER)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_small_gpt2(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    n_layers, n_heads, n_words, n_positions = (int(n) for n in rng.integers((1, 1, 8, 4), (6, 5, 90, 50)))
    width = n_heads * int(rng.integers(2, 9))
    GPT2Config(
        vocab_size=n_words, n_positions=n_positions, n_embd=width, n_layer=n_layers, n_head=n_heads,
        bos_token_id=1, eos_token_id=1,
    ).save_pretrained(tmp_path)  # fmt: skip
    found = census(str(tmp_path))
    layer = 12 * width * width + 13 * width
    assert found.embeddings == (n_words + n_positions) * width
    assert (found.n_layers, found.layer, found.layers) == (n_layers, layer, n_layers * layer)
    assert (found.pooler, found.head) == (2 * width, 2 * width)
    assert found.total == found.embeddings + found.layers + 2 * width
    assert found.full == found.total + 2 * width
    assert [d.trained_parameters for d in found.depths] == [
        (n_layers - depth) * layer + 4 * width for depth in range(n_layers + 1)
    ]


def test_what_trains_is_counted_with_the_head_the_classes_want(tmp_path: Path) -> None:
    model = str(make_model(tmp_path / "tiny"))
    two, three = (count_trained(model, CLASSIFICATION.head(labels), [0, 2]) for labels in (("a", "b"), ("a", "b", "c")))
    assert {depth: three[depth] - two[depth] for depth in two} == dict.fromkeys([None, 0, 2], 8 + 1)
    assert count_trained(model, REGRESSION.head(()), [2])[2] == two[2] - (8 + 1)


# The library's DeBERTa calls torch.jit.script on import.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_adds_up(family: Family, tmp_path: Path) -> None:
    model = str(make_model(tmp_path, family, n_layers=3))
    found = census(model)
    assert found.embeddings + found.layers + found.pooler == found.total
    counted = count_trained(model, CLASSIFICATION.head(("bad", "good")), range(4))
    assert {depth.n_frozen: depth.trained_parameters for depth in found.depths} == {d: counted[d] for d in range(4)}
    assert found.full == counted[None]
