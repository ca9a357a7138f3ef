"""Bundle → merge gives back what `train --save` of the same run saves, to the bit, on six families."""

from __future__ import annotations

import functools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification

from families import matrix
from frostline.errors import DataError
from frostline.model.load import describe, load_tokenizer
from frostline.records.specs import BundleDtype, RunSpec
from frostline.saving.predict import predict_file
from frostline.saving.save import save_model
from frostline.serving.bundle import Bundle, BundleManifest, open_bundle, seal_bundle
from frostline.serving.bundles import difference as differences
from frostline.serving.bundles.folders import bundle_folder
from frostline.serving.bundles.making import Made, bundle_run, held_tensors
from frostline.serving.bundles.merging import merge_bundle
from frostline.studies.requests.resolve import Inputs
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.run import Runner

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

N_LAYERS = 3
FAMILIES: tuple[Family, ...] = ("bert", "roberta", "deberta-v2", "mpnet", "gpt2", "llama")
PLAIN = {"freeze:2": 2, "layers:2": 1, "lora:2": 0, "bitfit": 0, "norms": 0}
"""strategies whose models transformers can open, and how many layers each leaves to the trunk"""
ADDED = {"lora:2@1": 1, "adapter:2": 0, "adapter:2@1": 1, "features:logreg": N_LAYERS}
SLICED = {"heads:2.0+3.0": 1}
"""strategies whose added modules a bundle holds merged"""
EXTREME = {"full": None, "reinit:1": None, "gradual": None, "freeze:3": 3, "lora:2@3": 3, "adapter:2@3": 3}
"""strategies that train everything, or nothing but the head"""


def _is_sample(family: Family, strategy: str) -> bool:
    """Every strategy on BERT, and each other family with LoRA, which another test trains too, and with one more."""
    return family == "bert" or strategy in ("lora:2", tuple(PLAIN)[FAMILIES.index(family) % len(PLAIN)])


CASES = [
    *(case for case in matrix(FAMILIES, tuple(PLAIN), is_sample=_is_sample) if case.values != ("llama", "bitfit")),
    *(("bert", strategy) for strategy in (*ADDED, *EXTREME)),
    *(("gpt2", strategy) for strategy in ("lora:2@1", "adapter:2")),
    *((family, strategy) for family in ("bert", "gpt2", "llama") for strategy in SLICED),
]
DEPTHS: dict[str, int | None] = {**PLAIN, **ADDED, **SLICED, **EXTREME}


@dataclass(frozen=True)
class Trained:
    """A run's model: as a bundle, and as `train --save` writes it."""

    base: Path
    task: Path
    made: Made
    saved: Path

    @property
    def bundle(self) -> Bundle:
        return self.made.bundle


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toys")
    make_task(folder / "reviews.csv", n_rows=24)
    return folder


@dataclass(frozen=True)
class Place:
    """A family's tiny model, and what its runs have in common."""

    base: Path
    spec: RunSpec
    runner: Runner
    inputs: Inputs


@functools.cache
def place_of(toys: Path, family: Family) -> Place:
    base = make_model(toys / family, family, n_layers=N_LAYERS)
    spec, runner = make_spec(base, toys / "reviews.csv", epochs=1, learning_rate=0.05), Runner(max_cache_bytes=0)
    prepared = runner.preparer.prepare(spec)
    inputs = Inputs(describe(str(base)), prepared.data, prepared.train.encoded, prepared.dev.encoded)
    return Place(base, spec, runner, inputs)


@functools.cache
def trained(toys: Path, family: Family, strategy: str, dtype: BundleDtype = "fp32") -> Trained:
    """A tiny model that was trained for a moment, handed over in both ways; its folders are only to be read."""
    return handed_over(toys, toys / f"{family} {strategy} {dtype}", family, strategy, dtype)


def handed_over(toys: Path, folder: Path, family: Family, strategy: str, dtype: BundleDtype) -> Trained:
    place = place_of(toys, family)
    rate = 0.0 if strategy.startswith("features") else 0.05
    spec = place.spec.replace(strategy=strategy, learning_rate=rate, epochs=3 if strategy == "gradual" else 1)
    result, stack = place.runner.train(spec)
    made = bundle_run(result, stack, place.inputs, folder / "bundle", dtype)
    save_model(result, stack, load_tokenizer(str(place.base)), folder / "saved")
    return Trained(place.base, toys / "reviews.csv", made, folder / "saved")


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a model, but for what people read."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "README.md"}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def refilled(bundle: Bundle, folder: Path, edit: object) -> Path:
    """A copy of a bundle, sealed again after its tensors were edited."""
    shutil.copytree(bundle.folder, folder)
    held = load_file(folder / "tail.safetensors")
    edit(held)  # type: ignore[operator]
    save_file(held, folder / "tail.safetensors")
    seal_bundle(folder, bundle.manifest)
    return folder


@pytest.mark.parametrize(("family", "strategy"), CASES)
def test_merged_is_what_train_saves_to_the_bit(family: Family, strategy: str, toys: Path, tmp_path: Path) -> None:
    run = trained(toys, family, strategy)
    manifest = run.bundle.manifest
    assert (manifest.depth, manifest.n_layers, run.made.warnings) == (DEPTHS[strategy], N_LAYERS, ())
    assert open_bundle(run.bundle.folder) == run.bundle
    merged = merge_bundle(run.bundle.folder, str(run.base), tmp_path / "merged")
    assert contents(merged) == contents(run.saved), "configuration, weights, tokenizer and manifest"


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_opens_what_was_merged(family: Family, toys: Path, tmp_path: Path) -> None:
    run = trained(toys, family, "lora:2")
    merged = merge_bundle(run.bundle.folder, str(run.base), tmp_path / "merged")
    model = AutoModelForSequenceClassification.from_pretrained(merged, dtype=torch.float32)
    wanted = AutoModelForSequenceClassification.from_pretrained(run.saved, dtype=torch.float32).state_dict()
    assert model.state_dict().keys() == wanted.keys()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("strategy", ["adapter:2", "features:logreg"])
def test_predict_opens_what_transformers_cannot(strategy: str, toys: Path, tmp_path: Path) -> None:
    run = trained(toys, "bert", strategy)
    merged = merge_bundle(run.bundle.folder, str(run.base), tmp_path / "merged")
    assert (merged / "frostline.safetensors").is_file()
    assert predict_file(merged, run.task) == predict_file(run.saved, run.task)


@pytest.mark.parametrize(
    ("family", "strategy"),
    [
        ("bert", "adapter:2@1"),
        ("bert", "features:logreg"),
        ("bert", "lora:2@1"),
        ("bert", "heads:2.0+3.0"),
        ("gpt2", "freeze:2"),
        ("llama", "norms"),
    ],
)
def test_a_saved_model_becomes_the_same_bundle_later(family: Family, strategy: str, toys: Path, tmp_path: Path) -> None:
    """`bundle` on what `train --save` wrote; only LoRA differs, whose updates are merged by then."""
    run = trained(toys, family, strategy)
    later = bundle_folder(run.saved, str(run.base), tmp_path / "later", name="reviews").bundle
    merged = merge_bundle(later.folder, str(run.base), tmp_path / "merged")
    assert tensors(merged).keys() == tensors(run.saved).keys()
    assert all(torch.equal(tensor, tensors(run.saved)[name]) for name, tensor in tensors(merged).items())
    if strategy.startswith(("adapter", "features")):
        assert later.manifest == run.bundle.manifest.replace(metric=None, files=later.manifest.files)
    else:
        assert later.manifest.strategy == f"freeze:{DEPTHS[strategy]}"
    assert (later.manifest.depth, later.manifest.run_key) == (DEPTHS[strategy], run.bundle.manifest.run_key)
    assert predict_file(merged, run.task) == predict_file(run.saved, run.task)


def test_a_base_in_half_precision(toys: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    AutoModel.from_pretrained(place_of(toys, "bert").base, dtype=torch.float16).save_pretrained(half)
    load_tokenizer(str(toys / "bert")).save_pretrained(half)
    runner, spec = Runner(max_cache_bytes=0), make_spec(half, toys / "reviews.csv", epochs=1, strategy="freeze:2")
    result, stack = runner.train(spec)
    bundle_run(result, stack, place_of(toys, "bert").inputs, tmp_path / "bundle")
    save_model(result, stack, load_tokenizer(str(half)), tmp_path / "saved")
    assert open_bundle(tmp_path / "bundle").manifest.depth == 2
    merged = merge_bundle(tmp_path / "bundle", str(half), tmp_path / "merged")
    assert contents(merged) == contents(tmp_path / "saved")


@pytest.fixture(scope="module")
def frozen(toys: Path) -> Trained:
    """A BERT whose top layer was trained."""
    return trained(toys, "bert", "freeze:2")


def test_a_bundle_holds_what_was_trained_and_nothing_else(frozen: Trained, toys: Path) -> None:
    names = load_file(frozen.bundle.folder / "tail.safetensors").keys()
    above = ("bert.encoder.layer.2.", "bert.pooler.", "classifier.")
    assert all(name.startswith(above) for name in names)
    assert len(names) == 16 + 2 + 2
    added = load_file(trained(toys, "bert", "lora:2").bundle.folder / "tail.safetensors").keys()
    assert {name.rpartition("lora_")[2] for name in added if "lora_" in name} == {
        "A.default.weight",
        "B.default.weight",
    }
    assert sorted(name for name in added if "lora_" not in name) == sorted(
        f"{part}.{which}" for part in ("bert.pooler.dense", "classifier") for which in ("weight", "bias")
    )


def test_twin_a_lost_or_moved_tensor_is_noticed(frozen: Trained, tmp_path: Path) -> None:
    """The comparison of files has teeth: one number of one tensor, or one tensor that was left out."""
    wanted = contents(frozen.saved)

    def move(held: dict[str, torch.Tensor]) -> None:
        held["bert.encoder.layer.2.output.dense.bias"][0] += 1e-3

    moved = refilled(frozen.bundle, tmp_path / "moved", move)
    assert contents(merge_bundle(moved, str(frozen.base), tmp_path / "a")) != wanted
    lost = refilled(frozen.bundle, tmp_path / "lost", lambda held: held.pop("bert.encoder.layer.2.output.dense.bias"))
    assert contents(merge_bundle(lost, str(frozen.base), tmp_path / "b")) != wanted


def test_twin_without_comparing_a_layer_the_bundle_is_wrong(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agree = differences._agree
    monkeypatch.setattr(differences, "_agree", lambda one, other: one is not None or agree(one, other))
    run = handed_over(toys, tmp_path, "bert", "freeze:2", "fp32")
    assert run.bundle.manifest.depth == N_LAYERS
    assert contents(merge_bundle(run.bundle.folder, str(run.base), tmp_path / "merged")) != contents(run.saved)


def test_a_head_or_a_name_that_does_not_fit_is_one_line(frozen: Trained, tmp_path: Path) -> None:
    headless = refilled(frozen.bundle, tmp_path / "headless", lambda held: held.pop("classifier.weight"))
    with pytest.raises(DataError, match=r"tail\.safetensors: it lacks classifier\.weight"):
        merge_bundle(headless, str(frozen.base), tmp_path / "a")
    odd = refilled(frozen.bundle, tmp_path / "odd", lambda held: held.update(odd=torch.zeros(1)))
    with pytest.raises(DataError, match=r"tail\.safetensors: it holds odd, which the model does not have"):
        merge_bundle(odd, str(frozen.base), tmp_path / "b")
    wide = refilled(frozen.bundle, tmp_path / "wide", lambda held: held.update({"classifier.bias": torch.zeros(9)}))
    with pytest.raises(DataError, match=r"wide: no usable bundle: .*size mismatch"):
        merge_bundle(wide, str(frozen.base), tmp_path / "c")


def test_another_base_is_refused_by_name(frozen: Trained, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other", n_layers=N_LAYERS, seed=1)
    with pytest.raises(
        DataError, match=rf"bundle: it was made for another base: {other} and .*bert differ in embeddings"
    ):
        merge_bundle(frozen.bundle.folder, str(other), tmp_path / "a")
    near = Path(shutil.copytree(frozen.base, tmp_path / "near"))
    held = load_file(near / "model.safetensors")
    weight = held["encoder.layer.1.output.dense.bias"]
    weight[3] = torch.nextafter(weight[3], torch.tensor(9.0))
    save_file(held, near / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match="differ in layer 2"):
        merge_bundle(frozen.bundle.folder, str(near), tmp_path / "b")
    deeper = make_model(tmp_path / "deeper", n_layers=N_LAYERS + 1)
    with pytest.raises(DataError, match=r"differ in the number of layers \(4 and 3\)"):
        merge_bundle(frozen.bundle.folder, str(deeper), tmp_path / "c")
    reworded = Path(shutil.copytree(frozen.base, tmp_path / "reworded"))
    words = (reworded / "tokenizer.json").read_text()
    (reworded / "tokenizer.json").write_text(words.replace('"film"', '"movie"'))
    with pytest.raises(DataError, match="another tokenizer than that of"):
        merge_bundle(frozen.bundle.folder, str(reworded), tmp_path / "d")
    assert {path.name for path in tmp_path.iterdir()} == {"other", "near", "deeper", "reworded"}, "nothing was written"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_halves_a_bundle_and_says_what_it_costs(
    dtype: BundleDtype, frozen: Trained, toys: Path, tmp_path: Path
) -> None:
    run = trained(toys, "bert", "freeze:2", dtype)
    held = load_file(run.bundle.folder / "tail.safetensors")
    wanted = load_file(frozen.bundle.folder / "tail.safetensors")
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    assert all(torch.equal(tensor, wanted[name].to(half)) for name, tensor in held.items())
    assert sum(tensor.nbytes for tensor in held.values()) * 2 == sum(tensor.nbytes for tensor in wanted.values())
    manifest: BundleManifest = run.bundle.manifest
    assert manifest.score == frozen.bundle.manifest.score
    merged = merge_bundle(run.bundle.folder, str(run.base), tmp_path / "merged")
    dev = predicted_scores(merged, run)
    assert manifest.score_in_dtype == pytest.approx(dev)
    assert json.loads((merged / "frostline.json").read_text())["score"] == manifest.score_in_dtype
    card = (run.bundle.folder / "README.md").read_text()
    assert f"| fp32 | {manifest.score:.4f} |" in card
    assert f"| {dtype} | {manifest.score_in_dtype:.4f} |" in card
    assert "not the model that was trained" in (merged / "README.md").read_text()
    assert contents(merged) != contents(run.saved)


def predicted_scores(merged: Path, run: Trained) -> float:
    """The accuracy of a merged model on the rows that were dev rows in training."""
    from frostline import tasks

    dev = tasks.load(tasks.resolve(tasks.parse(str(run.task), kind="classification"))).dev
    rows = predict_file(merged, run.task)
    names = run.bundle.manifest.label_names
    right = [rows[number]["prediction"] == names[label] for number, label in zip(dev.ids, dev.labels, strict=True)]
    return float(np.mean(right))


def test_a_folder_with_content_is_not_written_into(frozen: Trained, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("")
    with pytest.raises(Exception, match="exists already; give a new or empty folder"):
        merge_bundle(frozen.bundle.folder, str(frozen.base), tmp_path / "mine")


def test_tied_tensors_are_held_once() -> None:
    model = torch.nn.Module()
    model.one, model.two = torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False)
    model.two.weight = model.one.weight
    model.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
    assert sorted(held_tensors(model)) == ["one.weight", "seen"]
