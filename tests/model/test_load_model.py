"""What comes out of a folder: the pretrained trunk, a head of each seed's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from families import matrix
from frostline.kinds import CLASSIFICATION
from frostline.model.load import load_model, load_trained, quiet
from frostline.testing.models import FAMILIES, Family, make_model

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


def _weights(folder: Path, head_seed: int) -> dict[str, Tensor]:
    model = load_model(str(folder), head_seed=head_seed, head=CLASSIFICATION.head(("bad", "good")), pad_token_id=0)
    return dict(model.named_parameters())


def test_layers_are_not_left_out_at_random(tmp_path: Path) -> None:
    folder = make_model(tmp_path, "opt", n_layers=3)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "layerdrop": 1.0}))
    model = load_model(str(folder), head_seed=0, head=CLASSIFICATION.head(("bad", "good")), pad_token_id=0).train()
    called: list[int] = []
    for number, layer in enumerate(model.model.decoder.layers):
        layer.register_forward_hook(lambda *_, number=number: called.append(number))
    model(input_ids=torch.tensor([[4, 5]]))
    assert called == [0, 1, 2]


@pytest.mark.parametrize(("family", "has_architectures"), matrix(FAMILIES, (True, False)))
def test_every_seed_draws_its_own_head_also_where_the_checkpoint_brings_one(
    family: Family, has_architectures: bool, tmp_path: Path
) -> None:
    bare = make_model(tmp_path / "bare", family)
    with quiet():
        classifier = load_model(str(bare), head_seed=7, head=CLASSIFICATION.head(("bad", "good")), pad_token_id=0)
        classifier.save_pretrained(tmp_path / "classifier")
    if not has_architectures:
        config = json.loads((tmp_path / "classifier" / "config.json").read_text())
        (tmp_path / "classifier" / "config.json").write_text(json.dumps({**config, "architectures": None}))
    saved = dict(classifier.named_parameters())
    in_trunk = {name for name in saved if name.startswith(f"{classifier.base_model_prefix}.")}
    matrices = {name for name in set(saved) - in_trunk if saved[name].ndim == 2}
    assert matrices
    zero, one, again = (_weights(tmp_path / "classifier", seed) for seed in (0, 1, 0))
    for name in saved:
        assert torch.equal(zero[name], again[name])
        if name in in_trunk:
            assert torch.equal(zero[name], saved[name])
        elif name in matrices:
            assert not torch.equal(zero[name], saved[name])
            assert not torch.equal(zero[name], one[name])
    kept = dict(load_trained(tmp_path / "classifier").named_parameters())
    assert all(torch.equal(kept[name], saved[name]) for name in saved)
