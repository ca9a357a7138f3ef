"""A model object, written as a folder that is named by its content: used again only if it is whole."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoModelForSequenceClassification, AutoTokenizer

from frostline.saving.pretrained import write_pretrained
from frostline.testing.models import make_model


def test_a_folder_that_is_not_whole_is_written_again(tmp_path: Path) -> None:
    name = str(make_model(tmp_path / "model"))
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    folder = write_pretrained(model, tokenizer, tmp_path / "kept")
    weights = folder / "model.safetensors"
    right, first = weights.read_bytes(), weights.stat().st_ino
    assert write_pretrained(model, tokenizer, tmp_path / "kept") == folder
    assert weights.stat().st_ino == first, "a whole one is used again"
    weights.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    assert write_pretrained(model, tokenizer, tmp_path / "kept") == folder
    assert weights.read_bytes() == right
    weights.unlink()
    write_pretrained(model, tokenizer, tmp_path / "kept")
    assert weights.read_bytes() == right
    assert list((tmp_path / "kept").iterdir()) == [folder]
