"""A saved model whose files changed is refused; a bit of its manifest is noticed or harmless, never another answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification

import frostline
from commands import Toy
from frostline.cli import main
from frostline.errors import DataError
from frostline.saving.manifest import file_faults, read_manifest, write_manifest
from synthetic import make_result

TEXTS = ["so good", "so bad", "good bad good"]
RESULT = make_result(2, 0, 0.75)


@pytest.fixture(scope="module")
def saved(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a head, its tokenizer and its manifest."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    shutil.copytree(toy.model, folder)
    AutoModelForSequenceClassification.from_pretrained(toy.model, num_labels=2).save_pretrained(folder)
    write_manifest(RESULT, folder)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def flip(path: Path, place: int) -> None:
    """Changes one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)


def test_what_was_written_is_read(saved: Path) -> None:
    manifest = read_manifest(saved)
    assert manifest is not None
    assert manifest.run_key == RESULT.key
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= set(manifest.files or {})
    assert "frostline.json" not in (manifest.files or {})
    assert list(file_faults(saved, manifest)) == []


def test_every_flipped_bit_of_the_manifest_is_noticed_or_harmless(copy: Path) -> None:
    path, wanted = copy / "frostline.json", read_manifest(copy)
    content, n_noticed = path.read_bytes(), 0
    for place in range(8 * len(content)):
        flip(path, place)
        try:
            assert read_manifest(copy) == wanted
        except DataError:
            n_noticed += 1
        path.write_bytes(content)
    assert n_noticed > 0.95 * 8 * len(content)


def test_twin_without_its_checksum_another_number_is_read(copy: Path) -> None:
    path = copy / "frostline.json"
    content = json.loads(path.read_text())
    del content["checksum"]
    content["max_length"] = 3
    path.write_text(json.dumps(content))
    manifest = read_manifest(copy)
    assert manifest is not None
    assert manifest.max_length == 3


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_flipped_bit_of_another_file_is_refused(copy: Path, name: str, rng: np.random.Generator) -> None:
    flip(copy / name, int(rng.integers(8 * (copy / name).stat().st_size)))
    with pytest.raises(DataError, match=rf"{name}: it is not as it was saved.*save the model again"):
        frostline.predict(copy, TEXTS)


def test_twin_without_its_hash_the_weights_give_another_answer(copy: Path) -> None:
    wanted = frostline.predict(copy, TEXTS)
    path = copy / "model.safetensors"
    n_head = int.from_bytes(path.read_bytes()[:8], "little")
    places = json.loads(path.read_bytes()[8 : 8 + n_head])
    flip(path, 8 * (8 + n_head + places["classifier.bias"]["data_offsets"][0] + 3) + 6)
    with pytest.raises(DataError, match=r"model\.safetensors: it is not as it was saved"):
        frostline.predict(copy, TEXTS)
    content = json.loads((copy / "frostline.json").read_text())
    del content["checksum"], content["files"]
    (copy / "frostline.json").write_text(json.dumps(content))
    assert frostline.predict(copy, TEXTS) != wanted


def test_a_missing_file_and_a_name_outside_the_folder_are_faults(copy: Path) -> None:
    (copy / "tokenizer.json").unlink()
    manifest = read_manifest(copy)
    assert manifest is not None
    assert [path.name for path, _ in file_faults(copy, manifest)] == ["tokenizer.json"]
    outside = manifest.replace(files={"../model/config.json": "", "/dev/zero": ""})
    assert len(list(file_faults(copy, outside))) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 200_000, "not readable as a frostline manifest"),
        ('{"checksum": ' + "[" * 900 + "]" * 900 + "}", "damaged or edited"),
        ('{"max_length": ' + "[" * 900 + "]" * 900 + "}", "not a frostline manifest"),
        ("9" * 5000, "not readable as a frostline manifest"),
        ('{"score": ' + "9" * 400 + "}", "not a frostline manifest"),
        (" " * (2**26 + 1), "it is larger than 64 MiB"),
        ("\udcff", "not readable as a frostline manifest"),
    ],
)
def test_anything_else_is_one_line_and_exit_3(
    copy: Path, content: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (copy / "frostline.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    (tmp_path / "texts.csv").write_text("text\nso good\n")
    assert main(["predict", str(copy), str(tmp_path / "texts.csv")]) == 3
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line
    assert len(line) < 700


@pytest.mark.parametrize("changes", [{"max_length": 0}, {"label_scale": [1.0]}, {"score": 10**400}])
def test_values_that_no_model_can_be_used_with_are_refused(copy: Path, changes: dict[str, object]) -> None:
    content = json.loads((copy / "frostline.json").read_text())
    del content["checksum"]
    (copy / "frostline.json").write_text(json.dumps(content | changes))
    with pytest.raises(DataError, match=next(iter(changes))):
        frostline.predict(copy, TEXTS)


def test_check_names_what_is_wrong_with_a_saved_model(copy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(copy)]) == 0
    flip(copy / "model.safetensors", 9999)
    assert main(["check", str(copy)]) == 3
    assert "damaged: " + str(copy / "model.safetensors") in capfd.readouterr().out
    (copy / "frostline.json").write_text("{")
    (copy / "config.json").unlink()
    assert main(["check", str(copy), "--json"]) == 3
    findings = json.loads(capfd.readouterr().out)["findings"]
    assert [Path(finding["path"]).name for finding in findings] == ["frostline.json", "config.json"]
