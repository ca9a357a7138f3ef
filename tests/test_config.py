"""Settings in files: read by the flags' names, overruled by flags, written as settled, taken back."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from commands import N_RUNS, Finished, Toy, curve_numbers, run_files
from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.studies.requests.config_file import read_config
from frostline.studies.requests.setting import settings_of
from frostline.studies.requests.settings import SizesSettings

NAMES = ("epochs", "lr", "lrs", "seeds", "frozen", "keep", "device", "batch_size", "text")
DECLARED = settings_of(SizesSettings)
KNOWN = {name: DECLARED[name] for name in NAMES} | {"no_cache": DECLARED["cache"]}


def read(path: Path, content: str | bytes) -> dict[str, Any]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_config(path, KNOWN, "curve")


WANTED = {"epochs": 3, "lr": 1e-5, "no_cache": True, "batch_size": 8, "text": "review", "seeds": "0,4,", "keep": [0.9]}
SAME = {
    "c.toml": 'epochs = 3\nlr = 1e-5\nno-cache = true\nbatch_size = 8\ntext = "review"\nseeds = [0, 4]\nkeep = 0.9\n',
    "c.yaml": "epochs: 3\nlr: 1e-5\nno-cache: true\nbatch_size: 8\ntext: review\nseeds: [0, 4]\nkeep: [0.9]\n",
    "c.yml": "epochs: 3\nlr: 1.0e-5\nno_cache: yes\nbatch-size: 8\ntext: review\nseeds:\n- 0\n- 4\nkeep: 0.9\n",
    "c.json": '{"epochs": 3, "lr": 1e-5, "no-cache": true, "batch-size": 8, "text": "review", "seeds": [0, 4], '
    '"keep": 0.9}',
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_every_format_says_the_same(name: str, tmp_path: Path) -> None:
    assert read(tmp_path / name, SAME[name]) == WANTED


AS_FLAGS = {
    "seeds: 5": {"seeds": "5"},
    "seeds: [5]": {"seeds": "5,"},
    "seeds: 0,1": {"seeds": "0,1"},
    "frozen: [0, 6-12]": {"frozen": "0,6-12"},
    "frozen: 4": {"frozen": "4"},
    "frozen: full": {"frozen": "full"},
    "lrs: [1e-5, 2.0e-5]": {"lrs": "1e-05,2e-05"},
    "lrs: 1e-5,2e-5": {"lrs": "1e-05,2e-05"},
    "keep: 0.8,0.9": {"keep": [0.8, 0.9]},
    "keep: [1, 0.9]": {"keep": [1.0, 0.9]},
    "lr: 1": {"lr": 1.0},
    "epochs:": {"epochs": None},
    "": {},
    "# nothing": {},
}


@pytest.mark.parametrize("content", AS_FLAGS)
def test_values_become_what_the_flags_take(content: str, tmp_path: Path) -> None:
    assert read(tmp_path / "c.yaml", content) == AS_FLAGS[content]


FAULTS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "unknown": ("c.toml", "sede = 3", ("unknown setting 'sede' of curve", "Did you mean 'seeds'?")),
    "unknown and unlike": ("c.toml", "frobnicate = 3", ("unknown setting 'frobnicate'",)),
    "a flag's dashes": ("c.toml", "batch-sise = 3", ("batch-sise", "Did you mean 'batch-size'?")),
    "a table": ("c.toml", "[train]\nepochs = 3", ("unknown setting 'train'",)),
    "text for a number": ("c.toml", 'epochs = "many"', ("epochs is 'many'", "int")),
    "a half for a whole number": ("c.yaml", "epochs: 1.5", ("epochs is 1.5", "int")),
    "true for a number": ("c.yaml", "epochs: yes", ("epochs is True", "int")),
    "a number for a switch": ("c.yaml", "no-cache: 1", ("no-cache is 1", "bool")),
    "a word YAML takes for false": ("c.yaml", "text: no", ("text is False", "quotes")),
    "a number for a column": ("c.toml", "text = 3", ("text is 3", "quotes")),
    "a list for a number": ("c.toml", "lr = [1e-5]", ("lr is [1e-05]", "number")),
    "no choice": ("c.toml", 'device = "gpu"', ("device is 'gpu'", "cpu", "cuda")),
    "an empty list": ("c.toml", "lrs = []", ("lrs is an empty list", "at least one")),
    "half a seed": ("c.toml", "seeds = [0, 0.5]", ("seeds is 0.5", "int")),
    "a word for a rate": ("c.yaml", "lrs: [low]", ("lrs is 'low'", "number")),
    "twice in YAML": ("c.yaml", "epochs: 3\nepochs: 4", ("'epochs' is there twice",)),
    "twice in JSON": ("c.json", '{"epochs": 3, "epochs": 4}', ("'epochs' is there twice",)),
    "twice by two names": ("c.toml", "batch-size = 3\nbatch_size = 4", ("is there twice",)),
    "all at once": ("c.toml", 'sede = 3\nepochs = "x"\nlr = true', ("'sede'", "epochs is 'x'", "lr is True")),
    "no known ending": ("c.ini", "epochs = 3", ("'.ini'", ".toml, .yaml, .yml, .json")),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_names_file_and_setting(name: str, tmp_path: Path) -> None:
    file, content, words = FAULTS[name]
    with pytest.raises(UsageError) as caught:
        read(tmp_path / file, content)
    for word in (str(tmp_path / file), *words):
        assert word in str(caught.value)


BROKEN: dict[str, tuple[str, str | bytes, int | None]] = {
    "TOML": ("c.toml", "epochs = = 3", None),
    "TOML twice": ("c.toml", "epochs = 3\nepochs = 4", None),
    "YAML": ("c.yaml", "epochs: 3\nlr: [1\n", 3),
    "YAML that makes objects": ("c.yaml", "epochs: !!python/object/apply:os.getcwd []", 1),
    "JSON": ("c.json", '{"epochs": ', None),
    "a list": ("c.yaml", "- epochs", None),
    "a JSON list": ("c.json", "[3]", None),
    "a word": ("c.yaml", "epochs", None),
    "no UTF-8": ("c.yaml", b"text: caf\xe9", None),
    "binary": ("c.toml", b"\x00\x01\x02", None),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_a_data_error_with_its_place(name: str, tmp_path: Path) -> None:
    file, content, line = BROKEN[name]
    with pytest.raises(DataError) as caught:
        read(tmp_path / file, content)
    assert caught.value.path == tmp_path / file
    assert line is None or caught.value.line == line


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    for name in ("none.toml", "folder.toml"):
        with pytest.raises(UsageError, match=rf"--config .*{name} cannot be read"):
            read_config(tmp_path / name, KNOWN, "curve")


@given(
    content=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)),
    ending=st.sampled_from(sorted(SAME)),
)
@example(content=b"? [a]\n: 1", ending="c.yaml")
@example(content=b"&a [*a]", ending="c.yaml")
@example(content=b"a: 2024-13-45", ending="c.yaml")
@example(content=b"<<: 1", ending="c.yaml")
@example(content=b"--- a\n--- b", ending="c.yaml")
@example(content=b'{"a": ' + b"[" * 100_000, ending="c.json")
def test_no_file_gives_a_traceback(content: bytes, ending: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzzed-{ending}"
    with contextlib.suppress(UsageError, DataError):
        assert set(read(path, content)) <= set(KNOWN)


settings = st.fixed_dictionaries(
    {},
    optional={
        "epochs": st.integers(-5, 5),
        "lr": st.floats(allow_nan=False, allow_infinity=False),
        "text": st.text(max_size=8),
        "no_cache": st.booleans(),
        "keep": st.lists(st.floats(0, 1), min_size=1, max_size=3),
    },
)


@given(wanted=settings, ending=st.sampled_from(["c.yaml", "c.json"]))
def test_what_is_written_is_read_again(
    wanted: dict[str, Any], ending: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = yaml.safe_dump(wanted) if ending == "c.yaml" else json.dumps(wanted)
    assert read(tmp_path_factory.getbasetemp() / f"written-{ending}", written) == wanted


def test_the_settled_request_gives_the_same_curve_without_a_run(
    undisturbed: Finished, out_copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = run_files(out_copy)
    assert main(["curve", "--config", str(out_copy / "curve.yaml"), "--out", str(out_copy), "--json"]) == 0
    curve = json.loads(capfd.readouterr().out)
    assert curve["runs"] == {"done": 0, "reused": N_RUNS, "crashed": 0}
    assert curve_numbers(curve) == curve_numbers(undisturbed.json)
    assert run_files(out_copy) == before


def test_everything_is_settled_in_it(undisturbed: Finished, toy: Toy) -> None:
    written = yaml.safe_load((undisturbed.out / "curve.yaml").read_text())
    assert written == {
        "model": str(toy.model), "task": str(toy.train), "out": str(undisturbed.out), "dev": str(toy.dev),
        "dev-share": 0.1, "text": "text", "label": "label", "kind": "classification", "metric": "accuracy",
        "epochs": 2, "batch-size": 16, "max-length": 42, "frozen-dropout": False, "threads": 1, "device": "cpu",
        "warmup-share": 0.1, "weight-decay": 0.0, "clip-norm": 1.0, "precision": "fp32", "master-seed": 0,
        "no-cache": False, "cache-dtype": "fp32", "varlen": False, "cache-max-gb": 8.0, "frozen": [1, 2, 3],
        "seeds": [0, 1, 2], "keep": [0.9],
        "scale": "ratio", "confidence": 0.95, "protocol": "paper", "lrs": [0.001, 0.003],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ((), 0, ""),
        (("--epochs", "1"), 2, "runs are missing"),
        (("--lr", "0.5"), 2, "runs are missing"),
        (("--seeds", "5"), 2, "runs are missing"),
        (("--lr", "0.5", "--lrs", "0.1,0.2"), 2, "both given"),
    ],
)
def test_flags_win_over_the_file(
    flags: tuple[str, ...], code: int, said: str, out_copy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    base = ("curve", "--config", str(out_copy / "curve.yaml"), "--out", str(out_copy), "--rerun", "never")
    assert main([*base, *flags]) == code
    assert said in capfd.readouterr().err


def test_a_trained_model_s_request_is_settled_too(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = tmp_path / "asked.toml"
    asked.write_text(
        f'model = "{toy.model}"\ntask = "{toy.train}"\ndev = "{toy.dev}"\nfrozen = 2\nlr = 1e-3\nepochs = 1\n'
        f'out = "{tmp_path / "out"}"\nsave = "{tmp_path / "saved"}"\njson = true\n'
    )
    assert main(["train", "--config", str(asked)]) == 0
    first = json.loads(capfd.readouterr().out)
    again = ["train", "--config", str(tmp_path / "out" / "train.yaml")]
    assert main(again) == 2
    assert "exists already" in capfd.readouterr().err
    assert main([*again, "--save", str(tmp_path / "again"), "--json"]) == 0
    second = json.loads(capfd.readouterr().out)
    assert second["spec"] == first["spec"]
    assert second["predictions"] == first["predictions"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", ("Missing argument 'MODEL'",)),
        ('model = "x"', ("Missing argument 'TASK'",)),
        ('sede = 3\ndry_rum = true', ("c.toml", "'sede'", "'seeds'", "'dry-run'")),
        ('config = "d.toml"', ("unknown setting 'config'",)),
        ('ctx = 1', ("unknown setting 'ctx'",)),
        ("epochs = 0.5", ("c.toml", "epochs is 0.5")),
        ('scale = "rato"', ("scale is 'rato'", "ratio_above_chance")),
    ],
)  # fmt: skip
def test_the_command_tells_what_is_wrong_with_a_file(
    content: str, words: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text(content)
    assert main(["curve", "--config", str(tmp_path / "c.toml")]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    for word in words:
        assert word in said


def test_a_setting_of_another_command_is_unknown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text("keep = 0.9")
    assert main(["train", "x", "y", "--config", str(tmp_path / "c.toml")]) == 2
    assert "unknown setting 'keep' of train" in capfd.readouterr().err


LAUGHS = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: &d [*c, *c]\nepochs: *d\n"
TOO_MUCH = {
    "aliases": ("c.yaml", LAUGHS, "line 2: not YAML: aliases are not read"),
    "a merge": ("c.yaml", "a: &a {epochs: 3}\n<<: *a\n", "line 2: not YAML: aliases are not read"),
    "deep YAML": ("c.yaml", "epochs: " + "[" * 50_000, "not YAML: maximum recursion depth"),
    "deep enough to print": ("c.yaml", "epochs: " + "[" * 150 + "]" * 150, "nested more than 100 levels deep"),
    "deep JSON": ("c.json", '{"epochs": ' + "[" * 50_000, "not JSON: maximum recursion depth"),
    "deep TOML": ("c.toml", "epochs = " + "[" * 50_000, "not TOML: maximum recursion depth"),
    "huge": ("c.yaml", "# " + "x" * 2**20, "larger than 1,048,576 bytes"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_a_file_that_would_take_all_memory_is_one_line(name: str, tmp_path: Path) -> None:
    file, content, said = TOO_MUCH[name]
    with pytest.raises(DataError) as caught:
        read(tmp_path / file, content)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
