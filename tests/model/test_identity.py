"""What identifies a model: the fingerprint of release 0.1, every load compared with it, and tokenizer settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedConfig

from frostline.errors import DataError
from frostline.kinds import CLASSIFICATION, REGRESSION, Head
from frostline.model.identity import Identity
from frostline.model.load import describe, identify, load_model, load_tokenizer, quiet
from frostline.model.stack import bits_of
from frostline.records.keys import key_of
from frostline.testing.models import FAMILIES, WORDS, Family, make_model

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

TWO, THREE = CLASSIFICATION.head(("bad", "good")), CLASSIFICATION.head(("bad", "so-so", "good"))
NUMBER = REGRESSION.head(())
NOT_OF_THE_MODEL = {
    "_name_or_path", "architectures", "dtype", "finetuning_task", "id2label", "label2id", "num_labels",
    "problem_type", "torch_dtype", "transformers_version",
}  # fmt: skip


def fingerprint_of_release_0_1(folder: Path) -> str:
    """The formula that stored folders were made with, written down a second time."""
    with quiet():
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    drawn = {*info["missing_keys"], *(item[0] for item in info["mismatched_keys"])}
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if name not in drawn:
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(bits_of(tensor))
    raw, _ = PreTrainedConfig.get_config_dict(str(folder))
    config = {field: value for field, value in raw.items() if field not in NOT_OF_THE_MODEL}
    vocabulary = tokenizer.backend_tokenizer.to_str() if tokenizer.is_fast else sorted(tokenizer.get_vocab().items())
    return key_of({"weights": digest.hexdigest(), "config": config, "tokenizer": vocabulary})


def load(folder: Path, identity: Identity, head: Head = TWO) -> None:
    load_model(str(folder), head_seed=0, head=head, pad_token_id=0, identity=identity)


def identity_of(folder: Path) -> Identity:
    return identify(str(folder), None, describe(str(folder)).fingerprint)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_its_fingerprint_and_is_known_again_with_any_head(family: Family, tmp_path: Path) -> None:
    folder = make_model(tmp_path / family, family)
    assert describe(str(folder)).fingerprint == fingerprint_of_release_0_1(folder)
    identity = identity_of(folder)
    for head in (TWO, THREE, NUMBER):
        load(folder, identity, head)
    edit_weights(folder, move_one)
    for head in (TWO, THREE):
        with pytest.raises(DataError, match=r"the model .* changed since this run was planned: its weights differ"):
            load(folder, identity, head)


@pytest.fixture(params=["bert", "roberta", "gpt2"])
def classifier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint with a head for three classes."""
    folder = make_model(tmp_path / "classifier", request.param)
    with quiet():
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3, dtype=torch.float32)
        model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("head", [TWO, THREE, NUMBER], ids=["two", "three", "number"])
def test_a_checkpoint_with_a_head_is_known_again_with_any_other(classifier: Path, head: Head) -> None:
    assert describe(str(classifier)).fingerprint == fingerprint_of_release_0_1(classifier)
    load(classifier, identity_of(classifier), head)


def smallest(weights: dict[str, torch.Tensor]) -> str:
    """The name of a tensor of a layer."""
    return min((name for name in weights if ".1." in name), key=lambda name: (weights[name].numel(), name))


def move_one(weights: dict[str, torch.Tensor]) -> None:
    weights[smallest(weights)] += 1e-3


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def edit_json(path: Path, **fields: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a weight": (
        lambda folder: edit_weights(folder, move_one),
        "weights differ in",
    ),
    # The library would silently draw it at random.
    "a missing weight": (
        lambda folder: edit_weights(folder, lambda w: w.pop(smallest(w))),
        "weights differ in",
    ),
    "the configuration": (
        lambda folder: edit_json(folder / "config.json", layer_norm_eps=1e-3, layer_norm_epsilon=1e-3),
        "configuration differs in layer_norm_eps",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("head", [TWO, THREE], ids=["two", "three"])
def test_whatever_changed_is_refused_by_name(classifier: Path, change: str, head: Head) -> None:
    identity, (edit, said) = identity_of(classifier), CHANGES[change]
    edit(classifier)
    with pytest.raises(DataError, match=rf"the model {classifier} changed .*{said}.*new --out folder"):
        load(classifier, identity, head)
    with pytest.raises(DataError, match=rf"the model {classifier} changed .*fingerprint"):
        identify(str(classifier), None, "0" * 32)


def test_another_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "bert")
    identity = identity_of(folder)
    identity.check_tokenizer(load_tokenizer(str(folder)))
    edit_json(folder / "tokenizer_config.json", truncation_side="left")
    with pytest.raises(DataError, match=rf"the model {folder} changed .*tokenizer"):
        identity.check_tokenizer(load_tokenizer(str(folder)))


LONG = " ".join(WORDS)


def tokens(folder: Path) -> list[int]:
    encoded = load_tokenizer(str(folder))([LONG], truncation=True, max_length=6)
    return list(encoded["input_ids"][0])


class TestTokenizerSettings:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return make_model(tmp_path / "bert")

    @pytest.mark.parametrize(
        "settings", [{"truncation_side": "left"}, {"split_special_tokens": True}, {"model_input_names": ["input_ids"]}]
    )
    def test_a_setting_that_changes_tokens_gives_another_fingerprint(
        self, folder: Path, settings: dict[str, Any]
    ) -> None:
        before = describe(str(folder)).fingerprint
        edit_json(folder / "tokenizer_config.json", **settings)
        assert describe(str(folder)).fingerprint != before
        assert fingerprint_of_release_0_1(folder) == before, "release 0.1 did not see it"

    def test_the_tokens_of_the_other_side_are_others(self, folder: Path) -> None:
        before = tokens(folder)
        edit_json(folder / "tokenizer_config.json", truncation_side="left")
        assert tokens(folder) != before

    @pytest.mark.parametrize(
        "settings",
        [
            {"truncation_side": "right", "split_special_tokens": False},
            {"padding_side": "left"},
            {"clean_up_tokenization_spaces": True},
        ],
    )
    def test_a_default_that_is_stated_and_what_moves_no_token_keep_it(
        self, folder: Path, settings: dict[str, Any]
    ) -> None:
        before = describe(str(folder)).fingerprint
        edit_json(folder / "tokenizer_config.json", **settings)
        assert describe(str(folder)).fingerprint == before

    def test_a_slow_tokenizer_is_more_than_its_vocabulary(self, folder: Path) -> None:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[X_SEP]", *WORDS[:12], "Good"]
        (folder / "prophetnet.tokenizer").write_text("\n".join(words))
        (folder / "tokenizer.json").unlink()
        config = {"tokenizer_class": "ProphetNetTokenizer", "unk_token": "[UNK]"}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        assert not load_tokenizer(str(folder)).is_fast
        before = describe(str(folder)).fingerprint
        lower = load_tokenizer(str(folder)).tokenize("Good film")
        edit_json(folder / "tokenizer_config.json", do_lower_case=True, strip_accents=None)
        assert describe(str(folder)).fingerprint == before, "the defaults, stated"
        edit_json(folder / "tokenizer_config.json", do_lower_case=False)
        assert describe(str(folder)).fingerprint != before
        assert load_tokenizer(str(folder)).tokenize("Good film") != lower
