"""A bundle that does not fit its trunk is refused by name, in one line, and says what to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from frostline.errors import DataError, FrostlineError, UsageError
from frostline.serving.bundle import Bundle, open_bundle, seal_bundle
from frostline.serving.engine import Engine
from frostline.serving.tail import load_tail
from frostline.serving.trunk import Trunk, load_trunk

from .tasks import make_task, make_trunk


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_trunk(tmp_path_factory.mktemp("base") / "trunk")


@pytest.fixture(scope="module")
def trunk(base: Path) -> Trunk:
    return load_trunk(str(base))


@pytest.fixture(scope="module")
def good(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_task(tmp_path_factory.mktemp("good") / "task", base, "freeze:2").bundle


def edited(good: Bundle, folder: Path, edit: Callable[[dict[str, Any]], None]) -> Bundle:
    """A copy with other tensors, sealed again: whoever made it made it so."""
    shutil.copytree(good.folder, folder)
    tensors = load_file(folder / "tail.safetensors")
    edit(tensors)
    save_file(tensors, folder / "tail.safetensors")
    seal_bundle(folder, good.manifest)
    return open_bundle(folder)


def _poison(tensors: dict[str, Any]) -> None:
    tensors["classifier.bias"][0] = float("nan")


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda tensors: tensors.pop("classifier.bias"), "lacks classifier.bias"),
        (lambda tensors: tensors.update(extra=tensors["classifier.bias"].clone()), "holds extra, which a Bert"),
        (
            lambda tensors: tensors.update({"classifier.bias": tensors["classifier.bias"][:1].clone()}),
            r"classifier.bias has the shape \[1\]; the model needs \[2\]",
        ),
        (_poison, "holds NaN or infinity, in classifier.bias"),
    ],
)
def test_tensors_that_do_not_fit(
    edit: Callable[[dict[str, Any]], None], message: str, good: Bundle, trunk: Trunk, tmp_path: Path
) -> None:
    bundle = edited(good, tmp_path / "edited", edit)
    with pytest.raises(DataError, match=message) as caught:
        load_tail(trunk, bundle)
    assert str(bundle.folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert load_tail(trunk, edited(good, tmp_path / "same", lambda _: None)).depth == 2


def test_another_trunk(good: Bundle, tmp_path: Path) -> None:
    other = load_trunk(str(make_trunk(tmp_path / "other", seed=1)))
    with pytest.raises(DataError, match=r"was made for another trunk: .*trunk and .*other differ in embeddings"):
        load_tail(other, good)
    deeper = load_trunk(str(make_trunk(tmp_path / "deeper", n_layers=4)))
    with pytest.raises(DataError, match=r"differ in the number of layers"):
        load_tail(deeper, good)


def test_a_trunk_that_differs_only_above_what_is_used(base: Path, good: Bundle, tmp_path: Path) -> None:
    """Layer 3 is the task's own, so it does not matter what the trunk has there; layer 2 does."""
    for layer, is_refused in ((2, False), (1, True)):
        folder = tmp_path / str(layer)
        shutil.copytree(base, folder)
        model = AutoModel.from_pretrained(folder)
        model.encoder.layer[layer].output.dense.bias.data += 1e-3
        model.save_pretrained(folder)
        changed = load_trunk(str(folder))
        if is_refused:
            with pytest.raises(DataError, match="differ in layer 2"):
                load_tail(changed, good)
        else:
            assert load_tail(changed, good).depth == 2


def test_another_tokenizer(base: Path, good: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(base, folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    words = content["model"]["vocab"]
    words["good"], words["bad"] = words["bad"], words["good"]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match="made with another tokenizer"):
        load_tail(load_trunk(str(folder)), good)


def test_a_trunk_that_is_configured_differently(base: Path, good: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    shutil.copytree(base, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    with pytest.raises(DataError, match=r"configured differently from those of .*: hidden_act"):
        load_tail(load_trunk(str(folder)), good)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 10**9}, "its configuration has the num_hidden_layers 1000000000; .*trunk has 3"),
        ({"model_type": "bart"}, "its configuration has the model_type 'bart'; .*trunk has 'bert'"),
        ({"model_type": "unheard-of"}, "unknown model_type 'unheard-of'"),
        ({"hidden_size": 10}, r"has the shape \[.*\]; the model needs \["),
        ({"num_attention_heads": 3}, "no usable bundle: .*multiple of the number of attention"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {}}, r"classifier.weight has the shape \[2, 8\]"),
    ],
)
def test_configurations_that_do_not_fit(
    changes: dict[str, Any], message: str, base: Path, trunk: Trunk, tmp_path: Path
) -> None:
    """Of a task that shares no layer: its configuration need not be the trunk's."""
    bundle = make_task(tmp_path / "task", base, "full").bundle
    config = json.loads((bundle.folder / "config.json").read_text())
    (bundle.folder / "config.json").write_text(json.dumps(config | changes))
    seal_bundle(bundle.folder, bundle.manifest)
    with pytest.raises(DataError, match=message) as caught:
        load_tail(trunk, open_bundle(bundle.folder))
    assert str(bundle.folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_change_after_they_were_checked(good: Bundle, trunk: Trunk, tmp_path: Path) -> None:
    for name in ("tail.safetensors", "config.json"):
        folder = tmp_path / name
        shutil.copytree(good.folder, folder)
        bundle = open_bundle(folder)
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        with pytest.raises(DataError, match=f"{name}: it changed while the bundle was loaded"):
            load_tail(trunk, bundle)


def test_tasks_of_another_engine(base: Path, good: Bundle, trunk: Trunk) -> None:
    engine = Engine(load_trunk(str(base)))
    with pytest.raises(UsageError, match="was loaded over another trunk"):
        engine.add(load_tail(trunk, good), "task")
    with pytest.raises(UsageError, match="unknown task 'task'"):
        engine.drop("task")


def test_positions_that_follow_the_longest_text(tmp_path: Path) -> None:
    base = make_trunk(tmp_path / "llama", "llama")
    assert load_trunk(str(base)).n_layers == 3
    config = json.loads((base / "config.json").read_text())
    scaled = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    (base / "config.json").write_text(json.dumps(config | {"rope_parameters": scaled}))
    assert AutoConfig.from_pretrained(base).rope_parameters["rope_type"] == "dynamic"
    with pytest.raises(FrostlineError, match="rotary positions of the type 'dynamic'"):
        load_trunk(str(base))
