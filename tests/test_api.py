from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import frostline
from commands import ENVIRONMENT, N_RUNS, Finished, Toy, curve_numbers
from frostline import api
from frostline.errors import UsageError
from frostline.resolve import default_out


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
        assert api.read_depths(given) == wanted

    @pytest.mark.parametrize("given", ["", "a", "1-", "-3", "1--2", "1;2", "1,,2", "3-1", "0,3-1", "1.5"])
    def test_what_is_no_depth(self, given: str) -> None:
        with pytest.raises(UsageError, match="frozen is"):
            api.read_depths(given)

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
        assert api.read_seeds(given) == wanted

    @pytest.mark.parametrize("given", ["", "0", 0, -1, "-1", "a", "1.5", "1,b"])
    def test_what_is_no_seed(self, given: Any) -> None:
        with pytest.raises(UsageError, match="seeds is"):
            api.read_seeds(given)

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [("1e-5,2e-5", (1e-5, 2e-5)), ("3e-4", (3e-4,)), (1e-3, (1e-3,)), ((1e-3, 2e-3), (1e-3, 2e-3))],
    )
    def test_rates(self, given: Any, wanted: tuple[float, ...]) -> None:
        assert api.read_rates(given) == wanted

    @pytest.mark.parametrize("given", ["", "low", "1e-5,", "1e-5;2e-5"])
    def test_what_is_no_rate(self, given: str) -> None:
        with pytest.raises(UsageError, match="learning rates are"):
            api.read_rates(given)


class TestRequest:
    def make(self, toy: Toy, **settings: Any) -> Any:
        return api.make_request(str(toy.model), str(toy.train), settings)

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


SCRIPT = """
import frostline

curve = frostline.curve({model!r}, {train!r}, dev={dev!r}, out={out!r}, seeds=3, lrs=(1e-3, 3e-3), epochs=2,
                        batch_size=8, workers=1)
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
        assert len(frostline.__all__) <= 16

    def test_a_name_that_is_not_there_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'curves'"):
            frostline.curves  # noqa: B018

    def test_no_progress_bar_reaches_standard_output(
        self, toy: Toy, out_copy: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        settings: dict[str, Any] = {"seeds": 3, "lrs": (1e-3, 3e-3), "epochs": 2, "batch_size": 8, "rerun": "never"}
        study = frostline.curve(str(toy.model), str(toy.train), dev=str(toy.dev), out=out_copy, workers=1, **settings)
        assert study.runs.reused == N_RUNS
        said = capsys.readouterr()
        assert said.out == ""
        assert "3 layers" in said.err
