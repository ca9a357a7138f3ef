"""What people get wrong with models, folders and disks, through the real command: one line, the right exit code."""

from __future__ import annotations

import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from commands import ENVIRONMENT, Toy, check_one_line, run_files, runs_in, start
from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.model.census import PAPER_MODELS
from frostline.model.files.folders import DEMO_MODEL, FREQUENT_MODELS, model_types
from frostline.model.load import describe, load_config, unknown_share
from frostline.studies.requests.parse import parse
from frostline.studies.requests.settings import CurveSettings
from frostline.testing.models import make_tokenizer

Spoil = Callable[[Path], object]


def configured(**changes: Any) -> Spoil:
    """Changes the configuration; None takes a field out."""

    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))

    return spoil


def written(name: str, content: str | bytes) -> Spoil:
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def without(pattern: str) -> Spoil:
    def spoil(folder: Path) -> None:
        for path in folder.glob(pattern):
            path.unlink()

    return spoil


def only(name: str, content: str) -> Spoil:
    """Takes everything out and puts one file in, perhaps in a folder of its own."""

    def spoil(folder: Path) -> None:
        without("*")(folder)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)

    return spoil


def halved(name: str) -> Spoil:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:4000])


def with_tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Spoil:
    def spoil(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return spoil


def pickled(content: Callable[[Path], object]) -> Spoil:
    """Replaces the weights by a pickle of what `content` makes of the folder."""

    def spoil(folder: Path) -> None:
        made = content(folder)
        (folder / "model.safetensors").unlink()
        torch.save(made, folder / "pytorch_model.bin")

    return spoil


def set_to(name: str, value: float) -> Spoil:
    return with_tensors(lambda tensors: tensors[name].view(-1)[3:4].fill_(value))


class Touches:
    """A pickle that would make a file where it is loaded as any object."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mknod, (str(self.path),))


SHARDED = json.dumps({"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}})
QUERY = "encoder.layer.1.attention.self.query.weight"
NO_LAYER_2 = with_tensors(lambda tensors: [tensors.pop(name) for name in list(tensors) if ".layer.2." in name])
TENSORS = "its weights do not fit its configuration"

LIMIT_2 = '{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 2, "pad_token": "[PAD]"}'

MODELS: dict[str, tuple[Spoil, int, tuple[str, ...]]] = {
    "an empty folder": (without("*"), 3, ("no config.json", "save_pretrained")),
    "no config": (without("config.json"), 3, ("no config.json",)),
    "a broken config": (written("config.json", '{\n"model_type": '), 3, ("config.json, line 2", "not JSON")),
    "a config that is a list": (written("config.json", "[1]"), 3, ("config.json", "JSON object")),
    "a binary config": (written("config.json", b"\xff\xfe\x00"), 3, ("config.json", "not UTF-8")),
    "no model type": (configured(model_type=None), 3, ("config.json", "no model_type")),
    "an unknown model type": (configured(model_type="brt"), 3, ("unknown model_type 'brt'", "Did you mean 'bert'?")),
    "code of its own": (configured(model_type="odd", auto_map={"AutoConfig": "c.C"}), 2,
        ("auto_map", "never runs code")),
    "a model of images": (configured(model_type="vit"), 3, ("cannot classify texts", "language model")),
    "a size that is text": (configured(hidden_size="8"), 3, ("hidden_size", "expected int")),
    "heads that do not divide": (configured(num_attention_heads=3), 3, ("multiple of the number of attention heads",)),
    "an unknown activation": (configured(hidden_act="nope"), 3, ("nope",)),
    "no weights": (without("*.safetensors"), 3, ("no weights", "model.safetensors", "pytorch_model.bin")),
    "weights of TensorFlow": (lambda f: (f / "model.safetensors").rename(f / "tf_model.h5"), 3,
        ("tf_model.h5", "torch")),
    "truncated weights": (halved("model.safetensors"), 3, ("model.safetensors", "truncated", "download it again")),
    "empty weights": (written("model.safetensors", b""), 3, ("model.safetensors", "truncated")),
    "a missing shard": (lambda f: (without("*.safetensors")(f), written("model.safetensors.index.json", SHARDED)(f)), 3,
        ("index.json", "model-00001-of-00002.safetensors", "not there")),
    "a NaN weight": (set_to(QUERY, float("nan")), 3, ("NaN", f"bert.{QUERY}", "download the checkpoint again")),
    "an infinite weight": (set_to(QUERY, float("-inf")), 3, ("infinity", f"bert.{QUERY}")),
    "another width": (configured(hidden_size=16), 3, (TENSORS, "have another shape")),
    "layers without end": (configured(num_hidden_layers=10**30), 3, ("num_hidden_layers is 1000", "at most 10,000")),
    "more layers than weights": (configured(num_hidden_layers=5), 3, (TENSORS, "32 are missing")),
    "a layer without weights": (NO_LAYER_2, 3, (TENSORS, "of 53 tensors", "16 are missing", "encoder.layer.2.")),
    "another architecture": (configured(model_type="gpt2"), 3, (TENSORS, "of 38 tensors", "38 are missing")),
    "a broken tokenizer": (written("tokenizer.json", "{"), 3, ("no usable tokenizer",)),
    "a tokenizer too large": (configured(vocab_size=10), 2, ("20 tokens", "embeddings for 10", "do not fit")),
    "quantized weights": (configured(quantization_config={"quant_method": "gptq", "bits": 4}), 3, ("GPTQ",)),
    "an attention that is not installed": (configured(attn_implementation="flash_attention_2"), 3,
        ("FlashAttention2", "installed")),
    "a tokenizer's limit below all texts": (written("tokenizer_config.json", LIMIT_2), 3,
        ("model_max_length", "is 2", "at least 3")),
    "a PEFT adapter": (only("adapter_config.json", '{"base_model_name_or_path": "bert-base-cased"}'), 3,
        ("a PEFT adapter of bert-base-cased", "merge")),
    "a sentence-transformers folder": (only("0_Transformer/config.json", '{"model_type": "bert"}'), 3,
        ("there is a model in 0_Transformer", "give that folder")),
    "a .bin that is none": (lambda f: (without("*.safetensors")(f), written("pytorch_model.bin", b"no")(f)), 3,
        ("not safe to load", "safetensors")),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_folder_that_is_not_right_is_told_in_one_line(
    name: str, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil, code, words = MODELS[name]
    model = Path(shutil.copytree(toy.model, tmp_path / "model"))
    spoil(model)
    code_found = main(["curve", str(model), str(toy.train), "--out", str(tmp_path / "out")])
    check_one_line(code_found, code, (str(model), *words), capfd)
    assert not (tmp_path / "out").exists()


def test_the_folder_they_were_made_from_is_right(toy: Toy) -> None:
    assert describe(str(toy.model)).n_layers == 3


def test_weights_that_are_a_safe_pickle_are_the_same_model(toy: Toy, tmp_path: Path) -> None:
    model = Path(shutil.copytree(toy.model, tmp_path / "model"))
    pickled(lambda folder: load_file(folder / "model.safetensors"))(model)
    assert describe(str(model)).fingerprint == describe(str(toy.model)).fingerprint


def test_weights_that_are_a_program_are_not_run(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = Path(shutil.copytree(toy.model, tmp_path / "model"))
    pickled(lambda _: {"weight": Touches(tmp_path / "made")})(model)
    code = main(["curve", str(model), str(toy.train), "--out", str(tmp_path / "out")])
    check_one_line(code, 3, (str(model), "pytorch_model.bin is not safe to load", "model.safetensors"), capfd)
    assert not (tmp_path / "made").exists()
    torch.load(model / "pytorch_model.bin", weights_only=False)
    assert (tmp_path / "made").exists(), "the file is no danger: this test has no teeth"


@pytest.mark.parametrize("model_type", ["odd", "bert"])
def test_code_that_comes_with_a_model_is_not_run_whatever_is_answered(
    model_type: str, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Path(shutil.copytree(toy.model, tmp_path / "model"))
    classes = {name: f"own.{name}" for name in ("AutoConfig", "AutoModelForSequenceClassification", "AutoTokenizer")}
    configured(model_type=model_type, auto_map=classes)(model)
    (model / "own.py").write_text(f"open({str(tmp_path / 'made')!r}, 'w')\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 5))
    if model_type == "bert":  # an architecture of the library: its own code is used
        assert describe(str(model)).n_layers == 3
    else:
        code = main(["curve", str(model), str(toy.train), "--out", str(tmp_path / "out")])
        check_one_line(code, 2, ("never runs code",), capfd)
    assert not (tmp_path / "made").exists()


def test_the_head_may_be_missing_or_another(toy: Toy, tmp_path: Path) -> None:
    model = Path(shutil.copytree(toy.model, tmp_path / "model"))
    AutoModelForSequenceClassification.from_pretrained(toy.model, num_labels=5).save_pretrained(model)
    assert describe(str(model)).n_layers == 3
    NO_LAYER_2(model)
    with pytest.raises(DataError, match="16 are missing"):
        describe(str(model))


def test_a_file_and_what_is_no_name_at_all_are_told_to_layers_too(toy: Toy, capfd: pytest.CaptureFixture[str]) -> None:
    check_one_line(main(["layers", f"{toy.model}/config.json"]), 2, ("it is a file", "give the folder"), capfd)
    check_one_line(main(["layers", "x" * 5000]), 2, ("no usable model", "File name too long"), capfd)


def test_predictions_need_a_trained_head(toy: Toy, capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["predict", str(toy.model), str(toy.dev)])
    check_one_line(code, 3, (str(toy.model), "not a fine-tuned model", "classifier", "frostline train --save"), capfd)


def unknown_words(path: Path, n_unknown: int) -> Path:
    """Texts of ten words, so many of them unknown to the tiny tokenizer."""
    rows = ["text,label"]
    for number in range(40):
        words = ["qux"] * n_unknown + ["film"] * (9 - n_unknown) + ["good" if number % 2 else "bad"]
        rows.append(f"{' '.join(words)},{number % 2}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(("n_unknown", "code"), [(0, 0), (1, 0), (2, 0), (5, 0), (6, 2), (9, 2)])
def test_text_the_tokenizer_does_not_know_is_told_and_then_refused(
    n_unknown: int, code: int, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = unknown_words(tmp_path / "task.csv", n_unknown)
    flags = ["--frozen", "3", "--lr", "1e-3", "--epochs", "1", "--out", str(tmp_path / "out"), "--json"]
    found = main(["train", str(toy.model), str(task), *flags, "--save", str(tmp_path / "saved")])
    if code:
        words = (f"{n_unknown * 10}% of the training tokens are unknown", str(toy.model), "at most 50%")
        check_one_line(found, code, words, capfd)
    else:
        notices = json.loads(capfd.readouterr().out)["notices"]
        told = f"{n_unknown * 10}% of the training tokens are unknown to the tokenizer"
        assert (told in notices) == (n_unknown > 1)


@given(n_known=st.integers(0, 20), n_unknown=st.integers(0, 20), n_framing=st.integers(0, 20))
def test_the_share_of_unknown_tokens_leaves_the_framing_ones_out(n_known: int, n_unknown: int, n_framing: int) -> None:
    tokenizer = make_tokenizer("bert")
    ids = tokenizer.convert_tokens_to_ids(["film", tokenizer.unk_token, tokenizer.sep_token])
    tokens = np.repeat(np.array(ids, dtype=np.int64), [n_known, n_unknown, n_framing])
    assert unknown_share(tokenizer, tokens) == pytest.approx(n_unknown / max(1, n_known + n_unknown))


def test_names_are_compared_with_those_of_the_paper_and_the_demo() -> None:
    assert set(FREQUENT_MODELS) == {*PAPER_MODELS, DEMO_MODEL}


NAMES = {
    "bert-base-uncasd": "bert-base-uncased",
    "bert_base_uncased": "bert-base-uncased",
    "google-bert/bert-base-uncase": "bert-base-uncased",
    "brt-base-uncased": "bert-base-uncased",
    "rberta-base": "roberta-base",
    "all-MiniLM-L6": DEMO_MODEL,
    "xlnet-base-cased": None,
    "albert-base-uncased": None,
    "distilbert-base-uncased": None,
    "xlm-roberta-base": None,
    "deberta-base": None,
    "gpt2": None,
}


@pytest.mark.parametrize(("name", "meant"), NAMES.items())
def test_only_models_of_the_same_family_are_suggested(name: str, meant: str | None) -> None:
    with pytest.raises(UsageError, match=f"no usable model {name!r}") as caught:
        load_config(name)
    assert str(caught.value).endswith(f"Did you mean {meant!r}?" if meant else "or give a folder.")


class Hub(http.server.BaseHTTPRequestHandler):
    """A Hub that has nothing but one model with code of its own, and answers as the real one does."""

    def answer(self) -> None:
        if self.path == "/owner/coded/resolve/main/config.json":
            self.give(json.dumps({"model_type": "odd", "auto_map": {"AutoConfig": "own.AutoConfig"}}))
        else:
            self.refuse()

    def refuse(self) -> None:
        code, error = (403, "GatedRepo") if "gated" in self.path else (401, "RepoNotFound")
        self.send_response(code)
        self.send_header("X-Error-Code", error)
        self.send_header("X-Error-Message", error)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def give(self, content: str) -> None:
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content.encode())

    do_GET = do_HEAD = do_POST = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


HUB: dict[str, tuple[str, ...]] = {
    "bert-base-uncasd": ("'bert-base-uncasd'", "not on the Hub", "Did you mean 'bert-base-uncased'?"),
    "nobody/nothing": ("'nobody/nothing'", "no such folder", "not on the Hub", "hf auth login"),
    "owner/gated-model": ("gated", "https://huggingface.co/owner/gated-model", "hf auth login"),
    "owner/coded": ("'owner/coded'", "needs its own code", "never runs code"),
}
OFFLINE: dict[str, tuple[str, ...]] = {
    "rberta-base": ("'rberta-base'", "the Hub cannot be reached", "Did you mean 'roberta-base'?"),
    "./models/none": ("'./models/none'", "no such folder"),
    "a/b/c": ("'a/b/c'", "no such folder"),
}


@pytest.mark.parametrize("name", OFFLINE)
def test_a_model_that_is_nowhere_is_told_why(
    name: str, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    code = main(["curve", name, str(toy.train), "--out", str(tmp_path / "out")])
    check_one_line(code, 2, ("frostline: no usable model", *OFFLINE[name]), capfd)


def test_a_model_that_cannot_be_had_from_the_hub_is_told_why(hub: str, toy: Toy, tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path)}
    more = [str(toy.train), "--out", str(tmp_path / "out")]
    code = f"from frostline.cli import main\nassert [main(['curve', name, *{more!r}]) for name in {list(HUB)!r}]"
    code += f" == {[2] * len(HUB)!r}"
    process = [sys.executable, "-c", code]
    done = subprocess.run(process, capture_output=True, text=True, env=environment, input="y\n" * 9, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(HUB), done.stderr
    for line, words in zip(lines, HUB.values(), strict=True):
        assert line.startswith("frostline: no usable model")
        for word in words:
            assert word in line


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 40 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("a file system can only be mounted as root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_loses_nothing_and_the_same_command_goes_on(
    small_disk: Path, toy: Toy, capfd: pytest.CaptureFixture[str]
) -> None:
    out = small_disk / "out"
    sizes = ("--seeds", "4", "--lr", "1e-3", "--epochs", "1", "--frozen", "3", "--workers", "1")
    command = ["curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *sizes, "--out", str(out), "--json"]
    assert main(command) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    for word in ("frostline: ", str(out), "No space left on device", "make space", "goes on"):
        assert word in last
    kept = run_files(out)
    assert 0 < len(kept) < 8
    assert len(runs_in(out)) == len(kept)
    assert not list(out.rglob(".*"))
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    assert main(command) == 0
    curve = json.loads(capfd.readouterr().out)
    assert curve["runs"] == {"done": 8 - len(kept), "reused": len(kept), "crashed": 0}
    assert run_files(out).items() >= kept.items()


def test_a_model_that_does_not_fit_on_the_disk_leaves_its_result(
    small_disk: Path, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (small_disk / "filler").write_bytes(bytes(20_000))
    out = tmp_path / "out"
    flags = ["--frozen", "3", "--lr", "1e-3", "--epochs", "1", "--out", str(out)]
    assert main(["train", str(toy.model), str(toy.train), *flags, "--save", str(small_disk / "saved")]) == 2
    last = capfd.readouterr().err.splitlines()[-1]
    for word in ("--save", str(small_disk / "saved"), "No space left on device", "make space"):
        assert word in last
    assert [path.name for path in small_disk.iterdir()] == ["filler"]
    assert len(runs_in(out)) == 1


PLACES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "out below a file": (("--out", "TRAIN/out"), ("--out", "cannot be written", "give another folder")),
    "out where nothing can be made": (("--out", "/proc/none/out"), ("--out /proc/none/out", "give another folder")),
    "out with too long a name": (("--out", "TMP/" + "x" * 300), ("--out", "File name too long")),
    "save below a file": (("--save", "TRAIN/saved"), ("--save", "cannot be written", "give another folder")),
    "save where nothing can be made": (("--save", "/proc/none/saved"), ("--save /proc/none/saved", "another folder")),
    "save where something is": (("--save", "MODEL"), ("--save", "exists already", "new or empty folder")),
    "save where no folder can be": (("--save", "/proc/saved"), ("--save /proc/saved", "another folder")),
    "save is a dangling link": (("--save", "TMP/dangling"), ("--save", "broken link", "new or empty folder")),
    "save is a file": (("--save", "TRAIN"), ("--save", "exists already")),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_cannot_be_written_is_told_before_anything_is_trained(
    name: str, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags, words = PLACES[name]
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    places = {"TRAIN": str(toy.train), "MODEL": str(toy.model), "TMP": str(tmp_path)}
    filled = [next((f.replace(key, path) for key, path in places.items() if f.startswith(key)), f) for f in flags]
    command = ["train", str(toy.model), str(toy.train), "--frozen", "3", "--lr", "1e-3", "--epochs", "1"]
    given_out = [] if "--out" in flags else ["--out", str(tmp_path / "out")]
    given_save = [] if "--save" in flags else ["--save", str(tmp_path / "saved")]
    check_one_line(main([*command, *given_out, *given_save, *filled]), 2, words, capfd)
    assert not list(tmp_path.rglob("runs/*.json"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": "3"}, ("epochs is '3'", "int")),
        ({"epochs": 1.5}, ("epochs is 1.5", "int")),
        ({"seeds": [0.5]}, ("seeds is [0.5]", "whole numbers")),
        ({"seeds": 0.5}, ("seeds is 0.5", "whole numbers")),
        ({"frozen": [None]}, ("frozen is [None]", "whole numbers")),
        ({"lrs": [None]}, ("learning rates are [None]", "numbers")),
        ({"device": "gpu"}, ("device is 'gpu'", "cuda")),
        ({"cache": "no"}, ("cache is 'no'", "bool")),
        ({"max_train": "all"}, ("task.max_train is 'all'", "int")),
        ({"cache_max_gb": "much"}, ("cache_max_gb is 'much'", "at least 0")),
        ({"seeds": True}, ("seeds is True", "whole numbers")),
        ({"seeds": [True]}, ("seeds is [True]", "whole numbers")),
        ({"frozen": np.array([True])}, ("frozen is array([ True])", "whole numbers")),
        ({"lr": False}, ("learning rates are False", "numbers")),
        ({"workers": True}, ("workers is True", "whole number")),
        ({"out": 5}, ("out is 5", "folder")),
        ({"out": ""}, ("out is ''", "folder")),
        ({"dev": pd.DataFrame({"text": []})}, ("dev is a DataFrame", '{"train": …, "dev": …}')),
        ({"sede": 3}, ("unknown setting 'sede'", "Did you mean 'seeds'?")),
    ],
)
def test_what_python_users_give_is_looked_at_too(settings: dict[str, Any], words: tuple[str, ...], toy: Toy) -> None:
    from frostline import curve

    with pytest.raises(UsageError) as caught:
        curve(str(toy.model), str(toy.train), **settings)
    for word in words:
        assert word in str(caught.value)


def test_numbers_of_numpy_are_numbers(toy: Toy, tmp_path: Path) -> None:
    plain: dict[str, Any] = {"seeds": 2, "frozen": 3, "lr": 0.5, "epochs": 1, "out": tmp_path}
    given = {"seeds": np.int64(2), "frozen": np.int32(3), "lr": np.float32(0.5), "epochs": np.int64(1), "out": tmp_path}
    wanted = parse(str(toy.model), str(toy.train), plain, CurveSettings)
    assert parse(str(toy.model), str(toy.train), given, CurveSettings) == wanted
    arrays = {"seeds": np.arange(2), "frozen": np.array([3]), "lr": np.array([0.5])}
    assert parse(str(toy.model), toy.train, plain | arrays, CurveSettings) == wanted
    assert parse(str(toy.model), toy.train, plain | {"seeds": np.int64(3)}, CurveSettings) != wanted


PROCESSES: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "command": (("curv",), 2, ("No such command 'curv'", "Did you mean 'curve'?")),
    "flag": (("curve", "x", "y", "--sede", "3"), 2, ("No such option: --sede", "Did you mean '--seeds'?")),
    "flag with an underscore": (("curve", "x", "y", "--batch_sise", "3"), 2, ("Did you mean '--batch-size'?",)),
    "argument": (("curve", "x"), 2, ("Missing argument 'TASK'",)),
    "too many": (("curve", "x", "y", "z"), 2, ("unexpected extra argument", "z")),
    "number": (("curve", "x", "y", "--epochs", "1.5"), 2, ("--epochs", "valid integer", "given: '1.5'")),
    "choice": (("predict", "x", "y", "--format", "xml"), 2, ("--format", "'xml'", "jsonl")),
    "no config": (("curve", "--config", "none.toml"), 2, ("--config none.toml cannot be read",)),
    "config": (("train", "--config", "bad.yaml"), 2, ("bad.yaml", "'sede'", "Did you mean 'seeds'?", "epochs is 'x'")),
    "broken config": (("curve", "--config", "broken.json"), 3, ("broken.json", "not JSON")),
    "task": (("curve", "MODEL", "sts2"), 2, ("unknown task 'sts2'", "Did you mean 'stsb'?")),
    "model": (("curve", ".", "TRAIN"), 3, ("no config.json",)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROCESSES)
def test_the_real_process_says_one_line(name: str, toy: Toy, tmp_path: Path) -> None:
    arguments, code, words = PROCESSES[name]
    (tmp_path / "bad.yaml").write_text("sede: 3\nepochs: x\n")
    (tmp_path / "broken.json").write_text("{")
    places = {"TRAIN": str(toy.train), "MODEL": str(toy.model)}
    process = start(*(places.get(argument, argument) for argument in arguments), cwd=tmp_path)
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (code, ""), stderr
    assert stderr.startswith("frostline: ")
    assert stderr.count("\n") == 1
    for word in words:
        assert word in stderr


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        ("tasks | true", 141, ""),
        ("tasks --json | true", 141, ""),
        ("--help | true", 141, ""),
        ("tasks >&-", 0, ""),
        ("tasks 2>&-", 0, ""),
        ("curv 2>&-", 2, ""),
        ("tasks >/dev/full", 2, "No space left on device"),
        ("tasks --json >/dev/full", 2, "No space left on device"),
    ],
)
def test_an_output_that_nobody_takes_is_no_fault_of_ours(ending: str, code: int, said: str, tmp_path: Path) -> None:
    shell = ["bash", "-c", f"{sys.executable} -m frostline {ending}; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(shell, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, check=False)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)


WITHOUT_TORCH = (
    "curve MODEL sts2",
    "curve MODEL none.csv",
    "curve MODEL TRAIN --keep 90",
    "curve MODEL TRAIN --text txt",
    "curve MODEL TRAIN --kind classificaton",
    "curve MODEL TRAIN --dev none.csv",
    "curve MODEL bad.csv",
    "curve MODEL TRAIN --dry-run --epochs 0",
    "find MODEL TRAIN --seeds 3",
    "find MODEL TRAIN --budget soon",
    "find MODEL TRAIN --save MODEL",
    "compare MODEL TRAIN --strategies full,lra:8",
    "train MODEL TRAIN --save new",
    "train MODEL bad.csv --frozen 2 --save new",
    "predict MODEL TRAIN --to TRAIN",
    "curve TRAIN TRAIN",
    "curve none/of/them TRAIN",
    "curve none/ TRAIN",
    "curve all-MiniLM-L6-v2 TRAIN --frozen 0-99",
    "curve MODEL TRAIN --frozen 0-99",
    "curve MODEL TRAIN --varlen --device cpu",
    "curve MODEL TRAIN --out TRAIN",
    "train MODEL TRAIN --frozen 4 --save new",
    "predict none TRAIN",
    "predict MODEL none.csv",
    "predict MODEL MODEL",
    "layers ./none",
    "layers TRAIN",
)
FOLDERS_WITHOUT_TORCH = (
    "an empty folder", "no config", "a broken config", "a config that is a list", "a binary config", "no model type",
    "an unknown model type", "code of its own", "no weights", "weights of TensorFlow", "truncated weights",
    "empty weights", "a missing shard", "a PEFT adapter", "a sentence-transformers folder",
)  # fmt: skip


def test_the_model_types_are_those_of_the_library() -> None:
    code = "from frostline.model.files.folders import model_types; print(*sorted(model_types()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert done.stdout.split() == sorted(model_types())


def test_mistakes_that_need_no_model_are_reported_before_torch_is_imported(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("text,label\nso good,good\nbad\n")
    places = {"TRAIN": str(toy.train), "MODEL": str(toy.model)}
    commands = [[places.get(word, word) for word in command.split()] for command in WITHOUT_TORCH]
    for number, name in enumerate((*FOLDERS_WITHOUT_TORCH, "an unknown activation")):
        MODELS[name][0](Path(shutil.copytree(toy.model, tmp_path / f"model-{number}")))
        commands.append(["curve", f"model-{number}", str(toy.train)])
    needs_model = commands.pop()
    code = f"""
import sys
from frostline.cli import main
for command in {commands!r}:
    assert main(command) in (2, 3), command
    assert not {{"torch", "transformers"}} & set(sys.modules), command

class Asked(BaseException):
    pass

class Finder:
    def find_spec(self, name, *_):
        if name in ("torch", "transformers"):
            raise Asked

sys.meta_path.insert(0, Finder())
try:
    main({needs_model!r})
except Asked:
    sys.exit(0)
sys.exit("twin: this one needs a model, but torch was not imported")
"""
    process = [sys.executable, "-c", code]
    done = subprocess.run(process, capture_output=True, text=True, cwd=tmp_path, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("frostline: ") == done.stderr.count("\n") == len(commands), done.stderr
