"""`train --bundle`, `find --bundle`, and `predict` with several bundles: one pass over the file, columns per task."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import yaml
from safetensors.torch import load_file

import frostline
from commands import Toy, check_one_line
from commands import frostline as command
from frostline import api
from frostline.cli import main
from frostline.errors import UsageError
from frostline.model.added.walking import ConcurrentStack
from frostline.serving import predicting
from frostline.serving.bundle import open_bundle
from frostline.serving.trunk import Trunk, load_trunk
from frostline.testing.models import make_model, make_task
from tiny import TEETH

QUICK = ("--lr", "1e-2", "--epochs", "1")
CLOSE = 1e-5


@pytest.fixture(scope="module")
def folders(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks over one model, each as a bundle and as a saved model: `reviews`, `reviews saved`, …"""
    folder = tmp_path_factory.mktemp("tasks")
    pairs = make_task(folder / "pairs.csv", n_rows=32, is_pair=True)
    values = make_task(folder / "values.csv", n_rows=32, kind="regression")
    tasks: dict[str, tuple[Path, dict[str, Any]]] = {
        "reviews": (toy.train, {"frozen": 2}),
        "pairs": (pairs, {"strategy": "adapter:2@1"}),
        "values": (values, {"frozen": 1, "kind": "regression"}),
        "again": (toy.train, {"frozen": 2, "seeds": "1,"}),
    }
    for name, (task, settings) in tasks.items():
        places: dict[str, Any] = {
            "bundle": folder / name,
            "save": folder / f"{name} saved",
            "out": folder / f"{name} out",
        }
        api.train(str(toy.model), str(task), lr=1e-2, epochs=1, **places, **settings)
    return folder


def test_train_writes_a_bundle_beside_the_model_or_alone(toy: Toy, tmp_path: Path) -> None:
    asked = ("train", str(toy.model), str(toy.train), "--frozen", "2", *QUICK)
    done = command(*asked, "--bundle", str(tmp_path / "a"), "--save", str(tmp_path / "saved"), out=tmp_path / "out")
    assert done.code == 0, done.stderr
    assert f"{tmp_path / 'saved'} and {tmp_path / 'a'}: accuracy" in done.stdout
    alone = command(*asked, "--bundle", str(tmp_path / "b"), out=tmp_path / "other")
    assert alone.code == 0, alone.stderr
    hashes = {open_bundle(tmp_path / name).hash for name in "ab"}
    assert len(hashes) == 1, "the same run gives the same bundle"
    manifest = open_bundle(tmp_path / "b").manifest
    assert (manifest.name, manifest.depth, manifest.metric) == ("reviews", 2, "accuracy")
    assert (manifest.label_names, manifest.text, manifest.text_pair) == (("bad", "good"), "text", None)
    api.merge_bundle(tmp_path / "a", str(toy.model), tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(tmp_path / "saved")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "README.md"}


def test_the_settings_of_a_bundle_come_back_from_the_config_file(toy: Toy, tmp_path: Path) -> None:
    where = {"bundle": tmp_path / "bundle", "bundle_dtype": "fp16", "out": tmp_path / "out"}
    api.train(str(toy.model), str(toy.train), strategy="lora:2@1", lr=1e-2, epochs=1, **where)  # type: ignore[arg-type]
    assert open_bundle(tmp_path / "bundle").manifest.dtype == "fp16"
    config = yaml.safe_load((tmp_path / "out" / "train.yaml").read_text())
    assert (config["bundle"], config["bundle-dtype"]) == (str(tmp_path / "bundle"), "fp16")
    again = ("train", "--config", str(tmp_path / "out" / "train.yaml"), "--bundle", str(tmp_path / "again"))
    assert command(*again, out=tmp_path / "out").code == 0
    assert open_bundle(tmp_path / "again").hash == open_bundle(tmp_path / "bundle").hash


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "give --save, a folder for the model, or --bundle"),
        (("--save", "{0}/x", "--bundle", "{0}/x"), "save and bundle are both"),
        (("--save", "{0}/x", "--bundle-dtype", "fp16"), "bundle_dtype is for a bundle"),
        (("--bundle", "{0}/full"), "--bundle {0}/full exists already"),
        (("--bundle", "{0}/x", "--bundle-dtype", "fp8"), "fp8"),
    ],
)
def test_mistakes_are_found_before_training(
    flags: Sequence[str], said: str, toy: Toy, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("")
    given = [flag.format(tmp_path) for flag in flags]
    asked = ["train", str(toy.model), str(toy.train), "--frozen", "2", *QUICK, "--out", str(tmp_path / "out"), *given]
    check_one_line(main(asked), 2, (said.format(tmp_path),), capfd)
    assert not (tmp_path / "out").exists()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_task(tmp_path_factory.mktemp("file") / "new.csv", n_rows=20, is_pair=True, seed=7)


class TestPredict:
    def test_several_bundles_give_columns_per_task(
        self, folders: Path, file: Path, toy: Toy, capfd: pytest.CaptureFixture[str]
    ) -> None:
        names = ("reviews", "pairs", "values")
        given = [str(folders / name) for name in names]
        assert main(["predict", *given, str(file), "--trunk", str(toy.model)]) == 0
        together = rows_of(capfd.readouterr().out)
        assert list(together[0]) == [
            "text", "text_pair", "label",
            "reviews_prediction", "reviews_probability_bad", "reviews_probability_good",
            "pairs_prediction", "pairs_probability_bad", "pairs_probability_good",
            "values_prediction",
        ]  # fmt: skip
        for name in names:
            assert main(["predict", str(folders / f"{name} saved"), str(file)]) == 0
            for row, alone in zip(together, rows_of(capfd.readouterr().out), strict=True):
                for column in set(alone) - {"text", "text_pair", "label"}:
                    one, other = row[f"{name}_{column}"], alone[column]
                    if column == "prediction" and name != "values":
                        assert one == other
                    else:
                        assert abs(float(one) - float(other)) < CLOSE

    def test_twin_other_tasks_give_other_numbers(self, folders: Path, file: Path) -> None:
        rows = frostline.predict([folders / "reviews", folders / "pairs"], file)
        both = np.array([[row["reviews_probability_bad"], row["pairs_probability_bad"]] for row in rows])
        assert np.abs(both[:, 0] - both[:, 1]).max() > TEETH

    def test_one_bundle_has_the_columns_of_a_saved_model(self, folders: Path, toy: Toy) -> None:
        found = frostline.predict(folders / "reviews", str(toy.dev))
        wanted = frostline.predict(folders / "reviews saved", str(toy.dev))
        assert [list(row) for row in found] == [list(row) for row in wanted]
        for row, other in zip(found, wanted, strict=True):
            assert abs(row["probability_good"] - other["probability_good"]) < CLOSE

    def test_lists_and_frames(self, folders: Path) -> None:
        texts = ["so good", "", "so bad"]
        rows = frostline.predict([folders / "reviews", folders / "values"], texts)
        assert [row["text"] for row in rows] == texts
        frame = pandas.DataFrame({"text": texts}, index=[3, 4, 5])
        found = frostline.predict([folders / "reviews", folders / "values"], frame)
        assert list(found.index) == [3, 4, 5]
        assert found["values_prediction"].tolist() == [row["values_prediction"] for row in rows]
        with pytest.raises(UsageError, match="the model reads pairs of texts, but the list holds single texts"):
            frostline.predict([folders / "reviews", folders / "pairs"], texts)

    def test_the_trunk_sees_each_text_once(self, folders: Path, toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
        n_tokens: list[int] = []
        trunks: list[Trunk] = []
        states = ConcurrentStack.states

        def loaded(name: str) -> Trunk:
            trunks.append(trunk := load_trunk(name))
            return trunk

        def counted(self: ConcurrentStack, depths: Any, inputs: Any, *more: Any, **named: Any) -> Any:
            if any(self is trunk.model for trunk in trunks):
                n_tokens.append(inputs["input_ids"].numel())
            return states(self, depths, inputs, *more, **named)

        monkeypatch.setattr(predicting, "load_trunk", loaded)
        monkeypatch.setattr(ConcurrentStack, "states", counted)
        totals = []
        for names in (["reviews"], ["reviews", "again"]):
            n_tokens.clear()
            frostline.predict([folders / name for name in names], str(toy.dev))
            totals.append(sum(n for n in n_tokens if n > 20))  # a tail that is loaded is tried on a few tokens
        assert totals[0] == totals[1] > 100

    def test_mistakes(self, folders: Path, file: Path, toy: Toy, tmp_path: Path) -> None:
        bundle, saved = folders / "reviews", folders / "reviews saved"
        with pytest.raises(UsageError, match=r"each must be a bundle; .*reviews saved is not"):
            frostline.predict([bundle, saved], file)
        with pytest.raises(UsageError, match="trunk is for bundles"):
            frostline.predict(saved, file, trunk=toy.model)
        with pytest.raises(UsageError, match="two bundles are called 'reviews'; rename one"):
            frostline.predict([bundle, bundle], file)
        other = make_model(tmp_path / "other", n_layers=3, seed=5)
        with pytest.raises(Exception, match="was made for another trunk"):
            frostline.predict(bundle, file, trunk=other)
        taken = pandas.DataFrame({"text": ["a"], "reviews_prediction": [1], "text_pair": ["b"]})
        with pytest.raises(UsageError, match="has a column reviews_prediction already"):
            frostline.predict([bundle, folders / "pairs"], taken)
        assert load_file(bundle / "tail.safetensors"), "nothing was changed"
