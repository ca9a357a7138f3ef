"""Bundles of models that other tools trained: how deep they agree with their base is found, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
)

from commands import check_one_line
from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.saving.predict import predict_file
from frostline.serving.bundle import open_bundle
from frostline.serving.bundles.folders import DevRows, bundle_folder
from frostline.serving.bundles.merging import merge_bundle
from frostline.testing.models import Family, make_model, make_task, make_tokenizer

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

N_LAYERS = 3


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("base") / "base", n_layers=N_LAYERS)


def layers_of(model: PreTrainedModel) -> torch.nn.ModuleList:
    return next(
        module for module in model.modules() if isinstance(module, torch.nn.ModuleList) and len(module) == N_LAYERS
    )


def tuned(base: Path, folder: Path, n_frozen: int, *, seed: int = 0, **config: Any) -> Path:
    """A model with a head whose layers above `n_frozen` moved, as any tool may have saved it: without a tokenizer."""
    model = AutoModelForSequenceClassification.from_pretrained(base, dtype=torch.float32, **config)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for layer in layers_of(model)[n_frozen:]:
            for parameter in layer.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        for name, parameter in model.named_parameters():
            if "classifier" in name or name.startswith("score"):
                parameter.copy_(torch.randn_like(parameter))
    model.save_pretrained(folder)
    return folder


def saved_tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for file in folder.glob("*.safetensors") for name, tensor in load_file(file).items()}


def are_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """The same names and the same bits."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("n_frozen", range(N_LAYERS + 1))
def test_the_depth_is_found_and_merging_gives_every_bit_back(base: Path, tmp_path: Path, n_frozen: int) -> None:
    model = tuned(base, tmp_path / "tuned", n_frozen)
    bundle = bundle_folder(model, str(base), tmp_path / "bundle").bundle
    manifest = bundle.manifest
    assert (manifest.depth, manifest.strategy, manifest.name) == (n_frozen, f"freeze:{n_frozen}", "tuned")
    assert (manifest.kind, manifest.label_names, manifest.score) == ("classification", ("LABEL_0", "LABEL_1"), None)
    assert (manifest.run_key, manifest.text, manifest.max_length) == (None, None, 42)
    merged = merge_bundle(bundle.folder, str(base), tmp_path / "merged")
    assert are_equal(saved_tensors(merged), saved_tensors(model))
    assert json.loads((merged / "config.json").read_text()) == json.loads((model / "config.json").read_text())
    assert not (merged / "frostline.json").exists(), "another tool trained it"
    held = load_file(bundle.folder / "tail.safetensors")
    assert len(held) == 16 * (N_LAYERS - n_frozen) + 4
    other = tuned(base, tmp_path / "other", n_frozen, seed=1)
    assert not are_equal(saved_tensors(merged), saved_tensors(other)), "the comparison has teeth"


@pytest.mark.parametrize(
    "family", ["roberta", "deberta-v2", "mpnet", "gpt2", "llama", "xlnet", "modernbert", "distilbert"]
)
def test_other_families(family: Family, tmp_path: Path) -> None:
    base = make_model(tmp_path / "base", family, n_layers=N_LAYERS)
    config = {"pad_token_id": 1} if family in ("gpt2", "llama") else {}
    model = tuned(base, tmp_path / "tuned", 2, **config)
    made = bundle_folder(model, str(base), tmp_path / "bundle")
    assert (made.bundle.manifest.depth, made.warnings) == (2, ())
    merged = merge_bundle(tmp_path / "bundle", str(base), tmp_path / "merged")
    assert are_equal(saved_tensors(merged), saved_tensors(model))


def test_embeddings_that_moved_leave_storage_to_share(base: Path, tmp_path: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(base, dtype=torch.float32)
    with torch.no_grad():
        model.bert.embeddings.LayerNorm.bias[0] += 1e-3
    model.save_pretrained(tmp_path / "tuned")
    bundle = bundle_folder(tmp_path / "tuned", str(base), tmp_path / "bundle").bundle
    assert (bundle.manifest.depth, bundle.manifest.strategy) == (None, "full")
    assert len(load_file(bundle.folder / "tail.safetensors")) == 5
    assert "shares storage with other tasks of this base, but no compute" in (bundle.folder / "README.md").read_text()
    merged = merge_bundle(bundle.folder, str(base), tmp_path / "merged")
    assert are_equal(saved_tensors(merged), saved_tensors(tmp_path / "tuned"))


def test_a_base_with_a_head_of_its_own_and_one_without_a_pooler(tmp_path: Path) -> None:
    plain = make_model(tmp_path / "plain", n_layers=N_LAYERS)
    AutoModelForMaskedLM.from_pretrained(plain, dtype=torch.float32).save_pretrained(tmp_path / "masked")
    shutil.copy(plain / "tokenizer.json", tmp_path / "masked")
    shutil.copy(plain / "tokenizer_config.json", tmp_path / "masked")
    assert not any("pooler" in name for name in saved_tensors(tmp_path / "masked"))
    model = tuned(plain, tmp_path / "tuned", 1)
    for base in (plain, tmp_path / "masked"):
        bundle = bundle_folder(model, str(base), tmp_path / f"{base.name} bundle").bundle
        assert bundle.manifest.depth == 1
        assert "bert.pooler.dense.weight" in load_file(bundle.folder / "tail.safetensors")
        merged = merge_bundle(bundle.folder, str(base), tmp_path / f"{base.name} merged")
        assert are_equal(saved_tensors(merged), saved_tensors(model))
    hashes = {open_bundle(tmp_path / f"{name} bundle").manifest.trunk.chain for name in ("plain", "masked")}
    assert len(hashes) == 1, "a head of the base is not part of the trunk"


def test_a_base_in_half_precision_is_widened(base: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    AutoModel.from_pretrained(base, dtype=torch.float16).save_pretrained(half)
    AutoTokenizer.from_pretrained(base).save_pretrained(half)
    assert {tensor.dtype for tensor in saved_tensors(half).values()} == {torch.float16}
    model = tuned(half, tmp_path / "tuned", 2)
    bundle = bundle_folder(model, str(half), tmp_path / "bundle").bundle
    assert bundle.manifest.depth == 2
    merged = merge_bundle(bundle.folder, str(half), tmp_path / "merged")
    assert are_equal(saved_tensors(merged), saved_tensors(model))
    assert bundle_folder(tuned(base, tmp_path / "other", 2), str(half), tmp_path / "x").bundle.manifest.depth is None


def test_shards_are_read_as_one(base: Path, tmp_path: Path) -> None:
    whole = tuned(base, tmp_path / "whole", 2)
    model = AutoModelForSequenceClassification.from_pretrained(whole, dtype=torch.float32)
    model.save_pretrained(tmp_path / "shards", max_shard_size="4KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    bundles = [
        bundle_folder(tmp_path / n, str(base), tmp_path / f"{n} bundle", name="t").bundle for n in ("whole", "shards")
    ]
    assert bundles[0].manifest.files["tail.safetensors"] == bundles[1].manifest.files["tail.safetensors"]
    next((tmp_path / "shards").glob("*-00002-*")).unlink()
    with pytest.raises(DataError, match="which is not in the folder"):
        bundle_folder(tmp_path / "shards", str(base), tmp_path / "broken")


def test_another_configuration_is_not_shared(base: Path, tmp_path: Path) -> None:
    """The same weights compute other states with another activation."""
    model = tuned(base, tmp_path / "tuned", 2, hidden_act="relu")
    made = bundle_folder(model, str(base), tmp_path / "bundle")
    assert made.bundle.manifest.depth is None
    (warning,) = made.warnings
    assert "differ in hidden_act" in warning
    unimportant = tuned(base, tmp_path / "dropout", 2, hidden_dropout_prob=0.5, classifier_dropout=0.2)
    assert bundle_folder(unimportant, str(base), tmp_path / "b").bundle.manifest.depth == 2


def test_regression_and_named_classes(base: Path, tmp_path: Path) -> None:
    one = bundle_folder(tuned(base, tmp_path / "one", 2, num_labels=1), str(base), tmp_path / "a").bundle.manifest
    assert (one.kind, one.label_names) == ("regression", ())
    names: dict[str, Any] = {
        "id2label": {0: "no", 1: "perhaps", 2: "yes"},
        "label2id": {"no": 0, "perhaps": 1, "yes": 2},
    }
    three = bundle_folder(tuned(base, tmp_path / "three", 2, **names), str(base), tmp_path / "b", name="mood").bundle
    assert (three.manifest.name, three.manifest.label_names) == ("mood", ("no", "perhaps", "yes"))
    assert "Classes: `no`, `perhaps`, `yes`." in (three.folder / "README.md").read_text()


def test_the_score_of_half_precision_is_measured_on_given_rows(base: Path, tmp_path: Path) -> None:
    model = tuned(base, tmp_path / "tuned", 1)
    rows = make_task(tmp_path / "dev.csv", n_rows=40)
    rows.write_text(rows.read_text().replace(",good", ",1").replace(",bad", ",0"))
    made = bundle_folder(model, str(base), tmp_path / "bundle", dtype="bf16", dev=DevRows(file=rows))
    manifest = made.bundle.manifest
    assert manifest.metric == "accuracy"
    for folder, wanted in ((model, manifest.score), (tmp_path / "merged", manifest.score_in_dtype)):
        if folder == model:
            make_tokenizer().save_pretrained(model)
        else:
            merge_bundle(made.bundle.folder, str(base), folder)
        found = predict_file(folder, rows)
        right = [row["prediction"] == f"LABEL_{row['label']}" for row in found]
        assert sum(right) / len(right) == wanted
    without = bundle_folder(model, str(base), tmp_path / "unmeasured", dtype="fp16").bundle.manifest
    assert (without.score, without.score_in_dtype) == (None, None)
    assert "What that costs was not measured" in (tmp_path / "unmeasured" / "README.md").read_text()
    assert "was not measured" not in (made.bundle.folder / "README.md").read_text()
    with pytest.raises(UsageError, match="has no column 'stars'"):
        bundle_folder(model, str(base), tmp_path / "x", dev=DevRows(file=rows, label="stars"))
    rows.write_text(rows.read_text().replace(",1", ",7"))
    with pytest.raises(DataError, match=r"dev\.csv: "):
        bundle_folder(model, str(base), tmp_path / "x", dev=DevRows(file=rows))


def without_head(base: Path, folder: Path) -> Path:
    return Path(shutil.copytree(base, folder))


def of_tokens(base: Path, folder: Path) -> Path:
    AutoModelForTokenClassification.from_pretrained(base, dtype=torch.float32).save_pretrained(folder)
    return folder


def multi_label(base: Path, folder: Path) -> Path:
    return tuned(base, folder, 2, problem_type="multi_label_classification")


def pickled(base: Path, folder: Path) -> Path:
    tuned(base, folder, 2)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return folder


def other_words(base: Path, folder: Path) -> Path:
    tuned(base, folder, 2)
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace('"film"', '"movie"'))
    return folder


def infinite(base: Path, folder: Path) -> Path:
    tuned(base, folder, 2)
    held = load_file(folder / "model.safetensors")
    held["classifier.bias"][0] = torch.inf
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def truncated(base: Path, folder: Path) -> Path:
    path = tuned(base, folder, 2) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    return folder


def deeper(base: Path, folder: Path) -> Path:
    model = make_model(folder / "base", n_layers=N_LAYERS + 1)
    AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).save_pretrained(folder)
    return folder


def of_another_family(base: Path, folder: Path) -> Path:
    model = make_model(folder / "base", "gpt2", n_layers=N_LAYERS)
    AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).save_pretrained(folder)
    return folder


def missing(base: Path, folder: Path) -> Path:
    return folder


REFUSED: dict[Callable[[Path, Path], Path], tuple[int, str]] = {
    without_head: (3, "it is a BertModel; bundles are made of models for whole texts"),
    of_tokens: (3, "it is a BertForTokenClassification"),
    multi_label: (3, "is a multi-label model"),
    pickled: (3, "has no model.safetensors"),
    other_words: (3, "its tokenizer is not that of"),
    infinite: (3, "classifier.bias holds NaN or infinity"),
    truncated: (3, "model.safetensors"),
    deeper: (2, "has 4 layers and"),
    of_another_family: (2, "different architectures"),
    missing: (2, "there is no model folder"),
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_cannot_become_a_bundle_is_one_line(
    make: Callable[[Path, Path], Path], base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = REFUSED[make]
    folder = make(base, tmp_path / "model")
    capfd.readouterr()
    found = main(["bundle", str(folder), "--base", str(base), "--save", str(tmp_path / "bundle")])
    check_one_line(found, code, (said,), capfd)
    assert not (tmp_path / "bundle").exists()


def test_names_without_the_prefix_of_the_class_are_those_that_the_library_loads(base: Path, tmp_path: Path) -> None:
    model = tuned(base, tmp_path / "tuned", 1)
    held = {name.removeprefix("bert."): tensor for name, tensor in saved_tensors(model).items()}
    save_file(held, model / "model.safetensors", metadata={"format": "pt"})
    bundle = bundle_folder(model, str(base), tmp_path / "bundle").bundle
    assert bundle.manifest.depth == 1
    merged = merge_bundle(bundle.folder, str(base), tmp_path / "merged")
    loaded = AutoModelForSequenceClassification.from_pretrained(model, dtype=torch.float32).state_dict()
    assert are_equal(saved_tensors(merged), dict(loaded))


def test_a_head_that_is_not_there_is_named(base: Path, tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(base)
    config.architectures = ["BertForSequenceClassification"]
    headless = Path(shutil.copytree(base, tmp_path / "headless"))
    config.save_pretrained(headless)
    with pytest.raises(DataError, match=r"it lacks classifier\.bias, classifier\.weight"):
        bundle_folder(headless, str(base), tmp_path / "bundle")


class TestCommands:
    def test_make_and_merge(self, base: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        model = tuned(base, tmp_path / "tuned", 2)
        capfd.readouterr()
        assert main(["bundle", str(model), "--base", str(base), "--save", str(tmp_path / "a")]) == 0
        said = capfd.readouterr().out
        assert "It shares the embeddings and the lowest 2 of 3 layers with other tasks of this base" in said
        explicit = ["bundle", "make", "--base", str(base), "--save", str(tmp_path / "b"), str(model), "--json"]
        assert main(explicit) == 0
        found = json.loads(capfd.readouterr().out)
        assert (found["depth"], found["hash"]) == (2, open_bundle(tmp_path / "b").hash)
        assert found["hash"] == open_bundle(tmp_path / "a").hash, "the same model gives the same bundle"
        merging = ["bundle", "merge", str(tmp_path / "a"), "--base", str(base), "--save", str(tmp_path / "merged")]
        assert main(merging) == 0
        assert are_equal(saved_tensors(tmp_path / "merged"), saved_tensors(model))
        assert main(merging) == 2
        assert "exists already" in capfd.readouterr().err

    def test_options_first_and_half_precision(self, base: Path, tmp_path: Path) -> None:
        model = tuned(base, tmp_path / "tuned", 2)
        asked = ["--dtype", "fp16", "--base", str(base), "--save", str(tmp_path / "a"), "--name", "mood", str(model)]
        assert main(["bundle", *asked]) == 0
        manifest = open_bundle(tmp_path / "a").manifest
        assert (manifest.dtype, manifest.name) == ("fp16", "mood")

    def test_help_and_what_is_missing(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert main(["bundle", "--help"]) == 0
        assert "merge" in capfd.readouterr().out
        assert main(["bundle", "model"]) == 2
        assert "Missing option '--base'" in capfd.readouterr().err
        assert main(["bundle", "model", "--base", "b", "--save", "s", "--metric", "f1"]) == 2
        assert "--dev" in capfd.readouterr().err
