"""Models without a depth: refused with the reason by whatever needs one, trained as a whole where that is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from frostline.cli import main
from frostline.model.load import quiet
from frostline.testing.models import make_task, make_tokenizer

_ANY = {"vocab_size": 20, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
CONFIGS: dict[str, dict[str, Any]] = {
    "albert": {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 16,
               "embedding_size": 8, "max_position_embeddings": 42},
    "funnel": {"d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 16, "block_sizes": [1, 1]},
    "xlm": {"emb_dim": 8, "n_layers": 2, "n_heads": 2},
    "flaubert": {"emb_dim": 8, "n_layers": 2, "n_heads": 2},
    "t5": {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0},
    "bart": {"d_model": 8, **_HEADS, "encoder_layers": 2, "decoder_layers": 2, "decoder_start_token_id": 3,
             "max_position_embeddings": 42},
}  # fmt: skip
REASONS = {
    "albert": "its 3 layers share their weights",
    "funnel": "its layers are nested in groups that differ",
    "xlm": "its layers are spread over parallel lists",
    "flaubert": "its layers are spread over parallel lists",
    "t5": "it has an encoder and a decoder: two stacks",
    "bart": "it has an encoder and a decoder: two stacks",
}


def _model(folder: Path, family: str) -> Path:
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        config = AutoConfig.for_model(family, **_ANY, **CONFIGS[family])
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    make_tokenizer("roberta").save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", CONFIGS)
def test_no_depth_is_refused_with_the_reason_and_full_trains(
    family: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, task = str(_model(tmp_path / family, family)), str(make_task(tmp_path / "task.csv", n_rows=24))
    saved, out = tmp_path / "saved", str(tmp_path / "out")
    train = ("train", model, task, "--lr", "1e-3", "--epochs", "1", "--out", out, "--save", str(saved))
    for command in (
        ("curve", model, task, "--out", out),
        ("layers", model),
        (*train, "--frozen", "1"),
        ("compare", model, task, "--out", out, "--strategies", "full,features"),
        (*train, "--strategy", "bitfit"),
    ):
        assert main(command) == 2
        said = capfd.readouterr().err
        assert said.count("\n") == 1
        for words in ("no single stack of layers", REASONS[family], "--frozen full", "BERT"):
            assert words in said
    assert main((*train, "--frozen", "full")) == 0
    capfd.readouterr()
    assert main(("predict", str(saved), task)) == 0
    rows = capfd.readouterr().out.splitlines()
    assert rows[0] == "text,label,prediction,probability_bad,probability_good"
    assert len(rows) == 25
