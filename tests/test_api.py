from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from datasets.table import InMemoryTable
from transformers import AutoModel

import frostline
from commands import ENVIRONMENT, N_RUNS, Finished, Toy, curve_numbers
from frostline import api, tasks
from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.model.load import describe, load_tokenizer
from frostline.records.requests import RunOptions, StudyRequest
from frostline.saving.predict import predict_file
from frostline.studies.requests.parse import default_out, parse
from frostline.studies.requests.settings import CurveSettings
from frostline.studies.requests.values import read_depths, read_rates, read_seeds
from frostline.testing.models import make_rows


def make_request(model: Any, task: Any, settings: dict[str, Any]) -> tuple[StudyRequest, RunOptions]:
    """The request and the options that settings of `curve` give."""
    parsed = parse(model, task, settings, CurveSettings)
    return parsed.request, parsed.options


class TestReaders:
    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ("0,6-12", (0, 6, 7, 8, 9, 10, 11, 12)),
            ("3", (3,)),
            (" 1 , 2-2 ", (1, 2)),
            (4, (4,)),
            ([2, 0], (2, 0)),
            (range(3), (0, 1, 2)),
        ],
    )
    def test_depths(self, given: Any, wanted: tuple[int, ...]) -> None:
        assert read_depths(given) == wanted

    @pytest.mark.parametrize("given", ["", "a", "1-", "-3", "1--2", "1;2", "1,,2", "3-1", "0,3-1", "1.5"])
    def test_what_is_no_depth(self, given: str) -> None:
        with pytest.raises(UsageError, match="frozen is"):
            read_depths(given)

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ("5", (0, 1, 2, 3, 4)),
            (2, (0, 1)),
            ("0,7", (0, 7)),
            ("3,", (3,)),
            (" 1, 2 ", (1, 2)),
            ([4, 1], (4, 1)),
        ],
    )
    def test_seeds(self, given: Any, wanted: tuple[int, ...]) -> None:
        assert read_seeds(given) == wanted

    @pytest.mark.parametrize("given", ["", "0", 0, -1, "-1", "a", "1.5", "1,b"])
    def test_what_is_no_seed(self, given: Any) -> None:
        with pytest.raises(UsageError, match="seeds is"):
            read_seeds(given)

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [("1e-5,2e-5", (1e-5, 2e-5)), ("3e-4", (3e-4,)), (1e-3, (1e-3,)), ((1e-3, 2e-3), (1e-3, 2e-3))],
    )
    def test_rates(self, given: Any, wanted: tuple[float, ...]) -> None:
        assert read_rates(given) == wanted

    @pytest.mark.parametrize("given", ["", "low", "1e-5,", "1e-5;2e-5"])
    def test_what_is_no_rate(self, given: str) -> None:
        with pytest.raises(UsageError, match="learning rates are"):
            read_rates(given)


class TestRequest:
    def make(self, toy: Toy, **settings: Any) -> Any:
        return make_request(str(toy.model), str(toy.train), settings)

    def test_settings_go_where_they_belong(self, toy: Toy, tmp_path: Path) -> None:
        request, options = self.make(
            toy, frozen="1-2", seeds=2, lr=1e-3, max_train=10, dev_share=0.5, workers=3, out=str(tmp_path),
            cache_max_gb=0.5, rerun="never", cache=False, keep=[0.9, 0.5], threads=2,
        )  # fmt: skip
        assert (request.frozen, request.seeds, request.learning_rates) == ((1, 2), (0, 1), (1e-3,))
        assert (request.task.max_train, request.task.dev_share, request.task.source) == (10, 0.5, str(toy.train))
        assert (request.cache, request.keep, request.threads) == (False, (0.9, 0.5), 2)
        assert (options.n_workers, options.out, options.max_cache_bytes) == (3, tmp_path, 2**29)
        assert options.rerun == "never"

    def test_none_is_the_default(self, toy: Toy) -> None:
        assert self.make(toy, seeds=None, lr=None, epochs=None, out=None) == self.make(toy)
        assert self.make(toy)[0].learning_rates == (1e-5, 2e-5, 3e-5, 4e-5, 5e-5)

    def test_an_unknown_setting_is_named_with_the_nearest(self, toy: Toy) -> None:
        with pytest.raises(UsageError, match=r"unknown setting 'seed'\. Did you mean 'seeds'\?"):
            self.make(toy, seed=3)

    def test_one_rate_or_those_to_search(self, toy: Toy) -> None:
        assert self.make(toy, lr="1e-3")[0].learning_rates == (1e-3,)
        assert self.make(toy, lrs="1e-3,1e-2")[0].learning_rates == (1e-3, 1e-2)
        for settings in ({"lr": 1e-3, "lrs": "1e-3"}, {"lr": "1e-3,1e-2"}, {"lr": "fast"}):
            with pytest.raises(UsageError):
                self.make(toy, **settings)

    def test_the_default_folder_is_named_by_model_and_task(self, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.make(toy)[1].out == Path("runs/tiny-bert-reviews")
        assert default_out("google/bert", "sst2") == Path("runs/google--bert-sst2")
        monkeypatch.chdir(toy.model)
        assert default_out(".", "sst2") == Path("runs/tiny-bert-sst2")


def frame(n_rows: int = 48, **changes: Any) -> pd.DataFrame:
    rows = make_rows(n_rows=n_rows)
    return pd.DataFrame({"text": rows.texts, "label": rows.labels == 1, "id": range(n_rows), **changes})


class TestRowsInMemory:
    def source(self, data: object, out: Path, **settings: Any) -> Path:
        request, options = make_request("a model", data, {"out": out, **settings})
        assert (request.task.name, options.out) == (settings.get("name", "data"), out)
        assert request.task.source is not None
        return Path(request.task.source)

    def test_they_are_kept_once_by_their_content(self, tmp_path: Path) -> None:
        kept = self.source(frame(), tmp_path)
        assert (kept.parent.parent, kept.name) == (tmp_path / "data", "data")
        assert sorted(path.name for path in kept.iterdir()) == [".written-by-frostline", "train.parquet"]
        before = (kept / "train.parquet").stat().st_ino
        assert self.source(frame(), tmp_path) == kept
        assert (kept / "train.parquet").stat().st_ino == before
        assert list(kept.parent.iterdir()) == [kept]
        assert self.source(frame(), tmp_path, name="mine") == kept.parent / "mine"
        others = [frame(id=1), frame(47), frame().astype({"label": int}), frame().rename(columns={"id": "n"})]
        assert len({self.source(other, tmp_path) for other in (frame(), *others)}) == 5

    def test_a_frame_a_data_set_and_a_file_give_the_same_rows(self, tmp_path: Path) -> None:
        frame().to_json(tmp_path / "own.jsonl", orient="records", lines=True)
        wanted = tasks.load(tasks.parse(str(tmp_path / "own.jsonl")))
        turned = Dataset.from_pandas(frame().iloc[::-1]).select(range(47, -1, -1))
        for data in (frame(), frame().set_index("id"), Dataset.from_pandas(frame()), turned):
            found = tasks.load(tasks.parse(str(self.source(data, tmp_path))))
            assert (found.train.texts, found.dev.texts) == (wanted.train.texts, wanted.dev.texts)
            assert found.train.labels.tolist() == wanted.train.labels.tolist()
            assert found.label_names == ("false", "true")

    def test_splits_and_class_names_are_kept(self, tmp_path: Path) -> None:
        classes = Features({"text": Value("string"), "label": ClassLabel(names=["zebra", "ant"])})
        columns = {"text": ["a", "b", "c"], "label": [0, 1, 0]}
        data = Dataset.from_dict(columns, features=classes)
        split = DatasetDict(train=data, validation=data.select([1, 0]), test=data)
        kept = self.source(split, tmp_path)
        assert sorted(path.stem for path in kept.glob("[!.]*")) == ["test", "train", "validation"]
        found = tasks.load(tasks.parse(str(kept)))
        assert (found.label_names, found.dev.texts, found.dev.labels.tolist()) == (("zebra", "ant"), ["b", "a"], [1, 0])
        both = {"train": frame(), "dev": frame(10)}
        assert len(tasks.load(tasks.parse(str(self.source(both, tmp_path)))).dev) == 10

    def test_a_test_split_is_left_alone_and_told(self, tmp_path: Path) -> None:
        kept = self.source({"train": frame(), "test": frame(10)}, tmp_path)
        found = tasks.load(tasks.parse(str(kept)))
        assert len(found.train) + len(found.dev) == 48
        assert any("splits not used: test;" in warning for warning in found.warnings)
        assert len(tasks.load(tasks.parse(str(kept), dev="test")).dev) == 10

    def test_every_split_can_be_named_as_dev(self, tmp_path: Path) -> None:
        data = {"train": frame(), "validation": frame(8), "test": frame(10), "eval": frame(12)}
        kept = self.source(data, tmp_path)
        found = {dev: len(tasks.load(tasks.parse(str(kept), dev=dev)).dev) for dev in (None, "test", "eval")}
        assert found == {None: 8, "test": 10, "eval": 12}
        assert self.source(dict(reversed(data.items())), tmp_path) == kept

    def test_the_settled_request_takes_them_back(
        self, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        settings: dict[str, Any] = {"seeds": 1, "lr": 1e-3, "epochs": 1, "frozen": "3", "workers": 1, "out": out}
        first = frostline.curve(str(toy.model), frame(), name="mine", **settings)
        capfd.readouterr()
        assert main(["curve", "--config", str(out / "curve.yaml"), "--rerun", "never", "--json"]) == 0
        again = json.loads(capfd.readouterr().out)
        assert (again["task"], again["runs"]) == ("mine", {"done": 0, "reused": first.runs.done, "crashed": 0})
        # The folder's name is all that carries the task's: under another one its runs are not these.
        (kept,) = (out / "data").glob("*/mine")
        written = (out / "curve.yaml").read_text()
        (out / "curve.yaml").write_text(written.replace(str(kept), str(kept.rename(kept.with_name("other")))))
        assert main(["curve", "--config", str(out / "curve.yaml"), "--rerun", "never", "--json"]) == 2

    @pytest.mark.parametrize(
        "settings",
        [
            {"name": "../up"}, {"name": ".."}, {"name": ""}, {"name": 3}, {"epochs": 0}, {"epochs": "3"},
            {"rerun": "nver"}, {"rerun": 3}, {"workers": "2"}, {"workers": 1.5}, {"tokenizer": "x"},
            {"learning_rates": (1e-3,)}, {"source": "x"}, {"n_workers": 1}, {"max_cache_bytes": 1}, {"task": "x"},
        ],
    )  # fmt: skip
    def test_nothing_is_written_for_a_request_that_is_refused(self, settings: dict[str, Any], tmp_path: Path) -> None:
        with pytest.raises(UsageError):
            self.source(frame(), tmp_path, **settings)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"train": frame(), "a/b": frame()}, "the split 'a/b' cannot be the name of a file"),
            ([1, 2], "is a builtins.list; give a pandas DataFrame"),
            (None, "is a builtins.NoneType"),
            ({"train": frame(), "dev": "dev.csv"}, r"\(dev\) is a builtins.str"),
            ({"dev": frame()}, "no split 'train'; its splits: dev"),
            (pd.DataFrame({"text": ["a", 1], "label": [0, 1]}), "cannot be kept as a table.*column text"),
            (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "cannot be kept as a table.*Duplicate"),
        ],
    )
    def test_what_is_no_data(self, data: object, message: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=message) as caught:
            self.source(data, tmp_path)
        assert "\n" not in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    def test_an_out_folder_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="cannot be written"):
            self.source(frame(), tmp_path / "file")

    def test_a_name_is_for_rows_only(self, toy: Toy, tmp_path: Path) -> None:
        for task in (str(toy.train), toy.train, "sst2"):
            with pytest.raises(UsageError, match=r"name is for rows that Python holds; the task .* has its own"):
                make_request(str(toy.model), task, {"name": "mine", "out": tmp_path})
            assert make_request(str(toy.model), task, {"out": tmp_path})[0].task.name != "mine"

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            (
                {"text": "txt"},
                r"^the data \(train\) has no column 'txt'; its columns: text, label, id. Did you mean 'text'",
            ),
            ({"label": "lable"}, r"^the data \(train\) has no column 'lable'"),
            (
                {"label": "text", "text": "id", "kind": "regression"},
                r"^the data \(train\): row 1: the label '.*not a fin",
            ),
        ],
    )
    def test_faults_name_the_data_and_no_internal_file(
        self, changes: dict[str, str], reason: str, toy: Toy, tmp_path: Path
    ) -> None:
        request, _ = make_request(str(toy.model), frame(), {"out": tmp_path, **changes})
        with pytest.raises((UsageError, DataError), match=reason) as caught:
            tasks.load(tasks.resolve(request.task))
        assert "parquet" not in str(caught.value)
        assert str(tmp_path) not in str(caught.value)

    def test_text_that_is_not_utf_8_is_told_in_one_line(self, tmp_path: Path) -> None:
        broken = pyarrow.array([b"so good", b"caf\xe9"]).view(pyarrow.string())
        table = pyarrow.table({"text": broken, "label": [0, 1]})
        with pytest.raises(UsageError, match=r"the train rows cannot be kept: .*'text' .* not UTF-8") as caught:
            self.source(Dataset(InMemoryTable(table)), tmp_path)
        assert "\n" not in str(caught.value)
        sound = table.set_column(0, "text", [["so good", "caf\xe9"]])
        assert self.source(Dataset(InMemoryTable(sound)), tmp_path).is_dir()

    def test_without_out_the_folder_is_named_by_model_and_name(
        self, toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert make_request(str(toy.model), frame(), {})[1].out == Path("runs/tiny-bert-data")
        assert make_request(toy.model, frame(), {"name": "mine"})[1].out == Path("runs/tiny-bert-mine")

    def test_a_model_trained_on_them_predicts_files_of_any_format(self, toy: Toy, tmp_path: Path) -> None:
        saved = tmp_path / "saved"
        settings: dict[str, Any] = {"lr": 1e-2, "epochs": 1, "out": tmp_path / "out", "seeds": "3,"}
        result = api.train(str(toy.model), frame(), frozen=3, save=saved, **settings)
        assert (result.spec.task.name, result.spec.seed, result.label_names) == ("data", 3, ("false", "true"))
        data = frame(6)
        data.to_csv(tmp_path / "new.csv", index=False)
        data.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
        data.to_json(tmp_path / "new.json", orient="records")
        data.to_parquet(tmp_path / "new.parquet")
        wanted = [row["probability_true"] for row in predict_file(saved, tmp_path / "new.csv")]
        assert len(set(wanted)) > 1
        for suffix in ("jsonl", "json", "parquet"):
            rows = list(predict_file(saved, tmp_path / f"new.{suffix}"))
            assert [row["probability_true"] for row in rows] == wanted
            assert [row["id"] for row in rows] == [str(number) for number in range(6)]


@pytest.mark.parametrize("seeds", ["3", 2, "0,1", (4, 5), []])
def test_train_takes_one_seed(seeds: Any, toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train makes one model.* --seeds 3, for seed 3"):
        api.train(str(toy.model), frame(), frozen=3, save=tmp_path / "saved", seeds=seeds, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("save", [5, ""])
def test_what_is_no_folder_to_save_in_is_told_before_anything_is_written(save: Any, toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"save is {save!r}; give the name of a folder"):
        api.train(str(toy.model), frame(), frozen=3, save=save, seeds="3,", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


class TestModelInMemory:
    def test_it_is_kept_once_and_is_the_folder_it_came_from(self, toy: Toy, tmp_path: Path) -> None:
        model = AutoModel.from_pretrained(toy.model)
        kept = {make_request(model, str(toy.train), {"out": tmp_path})[0].model for _ in range(2)}
        (folder,) = [Path(one) for one in kept]
        assert folder.parent == tmp_path / "model"
        assert (folder / "model.safetensors").is_file()
        assert list(folder.parent.iterdir()) == [folder]
        assert describe(str(folder)).fingerprint == describe(str(toy.model)).fingerprint
        next(model.parameters()).data[0] += 1
        other = make_request(model, str(toy.train), {"out": tmp_path})[0].model
        assert describe(other).fingerprint != describe(str(folder)).fingerprint

    def test_its_tokenizer_is_given_or_found_by_its_name(self, toy: Toy, tmp_path: Path) -> None:
        model = AutoModel.from_pretrained(toy.model)
        model.name_or_path = ""
        with pytest.raises(UsageError, match=r"BertModel was not loaded by name.* pass tokenizer="):
            make_request(model, str(toy.train), {"out": tmp_path})
        model.name_or_path = str(tmp_path / "gone")
        with pytest.raises(UsageError, match=r"no tokenizer for the BertModel: .*gone.* pass tokenizer="):
            make_request(model, str(toy.train), {"out": tmp_path})
        given = {"out": tmp_path, "tokenizer": load_tokenizer(str(toy.model))}
        request, _ = make_request(model, str(toy.train), given)
        assert describe(request.model).fingerprint == describe(str(toy.model)).fingerprint

    def test_what_is_no_model(self, toy: Toy, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="the model is a dict; give a Hub name"):
            make_request({}, frame(), {})
        with pytest.raises(UsageError, match="tokenizer is for a model object"):
            make_request(str(toy.model), str(toy.train), {"tokenizer": "x", "out": tmp_path})

    def test_a_curve_of_objects_is_that_of_the_files_and_is_not_run_twice(self, toy: Toy, tmp_path: Path) -> None:
        settings: dict[str, Any] = {"seeds": 1, "lr": 1e-3, "epochs": 1, "frozen": "3", "workers": 1}
        named = settings | {"name": "mine"}
        train, dev = pd.read_csv(toy.train), pd.read_csv(toy.dev)
        from_files = frostline.curve(str(toy.model), str(toy.train), dev=str(toy.dev), out=tmp_path / "a", **settings)
        first, second = (
            frostline.curve(
                AutoModel.from_pretrained(toy.model), {"train": train, "dev": dev}, out=tmp_path / "b", **named
            )
            for _ in range(2)
        )
        assert (first.runs.done, second.runs.done, second.runs.reused) == (2, 0, 2)
        assert (first.task, first.full.scores, first.full.train_loss) == (
            "mine", from_files.full.scores, from_files.full.train_loss,
        )  # fmt: skip


SCRIPT = """
import frostline

curve = frostline.curve({model!r}, {train!r}, dev={dev!r}, out={out!r}, seeds=3, lrs=(1e-3, 3e-3), epochs=2,
                        batch_size=16, workers=1)
point = curve.operating_point(keep=0.9)
assert isinstance(point, frostline.OperatingPoint), point
assert (point.keep, point.scale) == (0.9, "ratio")
try:
    curve.operating_point(keep=0.5)
except frostline.UsageError as error:
    assert "0.9" in str(error)
else:
    raise AssertionError("a share that was not asked for has no operating point")
for name in ("x.svg", "x.md", "x.json"):
    curve.report(name)
"""


def test_a_plain_script_without_a_guard_gives_the_curve_of_the_command(
    toy: Toy, undisturbed: Finished, out_copy: Path, tmp_path: Path
) -> None:
    # One run is left to do, so that a worker is: it must not run the script again.
    (lost,) = [path for path in (out_copy / "runs").iterdir() if '"freeze:3"' in path.read_text()][:1]
    lost.unlink()
    script = tmp_path / "script.py"
    script.write_text(
        SCRIPT.format(model=str(toy.model), train=str(toy.train), dev=str(toy.dev), out=str(out_copy)), encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path, env=ENVIRONMENT
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    said = json.loads((tmp_path / "x.json").read_text())
    assert said["runs"] == {"done": 1, "reused": N_RUNS - 1, "crashed": 0}
    found, wanted = curve_numbers(said), curve_numbers(undisturbed.json)
    for point in (*found["points"], *wanted["points"]):
        del point["seconds"], point["peak_bytes"]
    assert found == wanted
    assert "<svg" in (tmp_path / "x.svg").read_text()
    assert (tmp_path / "x.md").read_text()


class TestPackage:
    def test_importing_brings_no_torch(self) -> None:
        code = "import sys, frostline; frostline.UsageError, frostline.Curve; sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    def test_all_public_names_are_there(self) -> None:
        assert {"curve", "train", "dry_run", "Curve", "OperatingPoint", "UsageError"} <= set(frostline.__all__)
        for name in frostline.__all__:
            assert getattr(frostline, name) is not None
        assert len(frostline.__all__) <= 25

    def test_a_name_that_is_not_there_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'curves'"):
            frostline.curves  # noqa: B018

    def test_no_progress_bar_reaches_standard_output(
        self, toy: Toy, out_copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        settings: dict[str, Any] = {"seeds": 3, "lrs": (1e-3, 3e-3), "epochs": 2, "batch_size": 16, "rerun": "never"}
        study = frostline.curve(str(toy.model), str(toy.train), dev=str(toy.dev), out=out_copy, workers=1, **settings)
        assert study.runs.reused == N_RUNS
        said = capsys.readouterr()
        assert said.out == ""
        assert "3 layers" in said.err


def test_train_shows_warnings_in_python_too(toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {"lr": 1e-3, "epochs": 1, "out": tmp_path / "out", "save": tmp_path / "saved"}
    result = api.train(str(toy.model), {"train": frame(), "dev": frame()}, frozen=3, **settings)
    said = capfd.readouterr()
    assert said.out == ""
    assert "warning: leakage: 48 of 48 dev rows (100%) are also in train" in said.err
    assert all(f"warning: {warning}\n" in said.err for warning in result.warnings)
