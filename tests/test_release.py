"""What release 0.1 stored is read, none of its runs is done again, and its numbers and keys are the same.

`tests/data/release-0.1` was made by the code of that release: a tiny model, two CSV files, the output folders of five
commands, what each printed as JSON, and the keys of two dozen specs and requests.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import differences
from frostline.cli import main
from frostline.records.keys import key_of
from frostline.records.requests import StudyRequest
from frostline.records.serial import request_fields
from frostline.records.specs import RunSpec

RELEASE = Path(__file__).parent / "data" / "release-0.1"
SAID: dict[str, Any] = json.loads((RELEASE / "said.json").read_text(encoding="utf-8"))
KEYS: dict[str, Any] = json.loads((RELEASE / "keys.json").read_text(encoding="utf-8"))

# What a call took, and where it ran. The words of warnings and settings may change; numbers may not. Plausible depths
# changed on purpose: they are now sure for all depths at once, and over new dev examples too. So did what counts as a
# failed run: one that learned nothing, not one at or below chance. Shares of resampled seeds became probabilities, and
# an interval over seeds whose scores are all the same is null (docs/log.md). The expected best of several runs is drawn
# without replacement.
_NOT_NUMBERS = {"cost", "runs", "warnings", "provenance", "seconds", "peak_bytes", "stopped_because", "chapters"}
_NOT_NUMBERS |= {"plausible", "n_failed", "mean_without_failed", "distribution", "expected_best"}
# Fields that came later. Only these may be there without having been there before.
_LATER = {
    "difference_ci_dev", "ratio_ci_dev", "ratio_above_chance_ci", "ratio_above_chance_ci_dev", "verdict", "is_better",
    "verdicts", "established", "confidence", "n_diverged", "failed_seeds", "p_failed", "p_failed_ci",
    "operating_points_without_failed", "seeds_to_settle", "p_pareto", "difference_ci_adjusted", "interactions", "gains",
}  # fmt: skip


def numbers_of(value: Any, *, is_answer: bool = False) -> Any:
    """A JSON value without what depends on the call, without prose, and without fields that came later."""
    if isinstance(value, dict):
        left_out = _NOT_NUMBERS | (
            _LATER - {"confidence"} if is_answer else _LATER
        )  # an answer always had a confidence
        kept = {name: item for name, item in value.items() if name not in left_out}
        kept |= {name: None for name in ("ci", "difference_ci") if _has_no_width(kept.get(name))}
        return {name: numbers_of(item, is_answer=name == "answer") for name, item in kept.items()}
    return [numbers_of(item) for item in value] if isinstance(value, list) else value


def _has_no_width(interval: Any) -> bool:
    return isinstance(interval, list) and interval[0] == interval[1]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the release's folder, which is the working directory: its requests hold relative paths."""
    folder = Path(shutil.copytree(RELEASE, tmp_path / "release"))
    monkeypatch.chdir(folder)
    return folder


def says(command: list[str], capfd: pytest.CaptureFixture[str], code: int = 0) -> Any:
    assert main([*command, "--json"]) == code, capfd.readouterr().err
    return json.loads(capfd.readouterr().out)


def run_counts(value: Any) -> list[dict[str, int]]:
    """Every `runs` of a record, however deep."""
    if isinstance(value, list):
        return [counts for item in value for counts in run_counts(item)]
    if not isinstance(value, dict):
        return []
    own = [value["runs"]] if isinstance(value.get("runs"), dict) else []
    return own + [counts for item in value.values() for counts in run_counts(item)]


# On purpose: a search races each depth and needs four seeds, and at each training size every seed draws its own rows.
_ADD_RUNS = {"find", "sizes"}


@pytest.mark.parametrize("name", [name for name in SAID if not name.startswith("report") and name not in _ADD_RUNS])
@pytest.mark.usefixtures("release")
def test_no_run_is_done_again_and_the_numbers_are_the_same(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted((path.name, path.read_bytes()) for path in Path().glob("out*/runs/*"))
    said = says(SAID[name]["command"], capfd)
    counts = run_counts(said)
    assert counts
    assert all(one["done"] == 0 and one["crashed"] == 0 and one["reused"] > 0 for one in counts)
    assert differences(numbers_of(said), numbers_of(SAID[name]["json"])) == []
    assert sorted((path.name, path.read_bytes()) for path in Path().glob("out*/runs/*")) == before


@pytest.mark.parametrize("name", [name for name in SAID if name.startswith("report")])
@pytest.mark.usefixtures("release")
def test_report_shows_the_same_chapters(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    said = says(SAID[name]["command"], capfd)["chapters"]
    wanted = SAID[name]["json"]["chapters"]
    assert differences([numbers_of(chapter) for chapter in said], [numbers_of(chapter) for chapter in wanted]) == []
    for chapter, old in zip(said, wanted, strict=True):
        keys = ("key", "score", "train_score", "epoch_scores", "epoch_losses", "learning_rate", "seed")
        runs = {run["key"]: [run[key] for key in keys] for run in chapter["runs"]}
        assert runs == {run["key"]: [run[key] for key in keys] for run in old["runs"]}


@pytest.mark.usefixtures("release")
def test_twin_a_run_that_is_missing_is_done(capfd: pytest.CaptureFixture[str]) -> None:
    for path in sorted(Path("out/runs").iterdir()):
        spec = json.loads(path.read_text())["content"]["spec"]
        if (spec["strategy"], spec["seed"], spec["learning_rate"], spec["task"]["max_train"]) == (
            "full",
            1,
            4e-3,
            None,
        ):
            path.unlink()
    assert sum(one["done"] for one in run_counts(says(SAID["curve"]["command"], capfd))) == 1


def test_twin_a_number_that_differs_by_a_billionth_is_found() -> None:
    wanted = json.loads('{"a": [{"ci": [0.25, 0.5]}, 1, null], "b": "text"}')
    assert differences(wanted, wanted) == []
    noisy = {"a": [{"ci": [0.25 * (1 + 1e-13), 0.5]}, 1, None], "b": "text"}
    assert differences(noisy, wanted) == []
    moved = {"a": [{"ci": [0.25 * (1 + 1e-9), 0.5]}, 1, None], "b": "text"}
    assert [found.partition(":")[0] for found in differences(moved, wanted)] == [".a[0].ci[0]"]
    for other, place in (
        ({"b": "text", "a": wanted["a"]}, "."),
        ({"a": [{"ci": [0.25, 0.5]}, 1.0, None], "b": "text"}, ".a[1]"),
        ({"a": [{"ci": [0.25, 0.5]}, 1, 0.0], "b": "text"}, ".a[2]"),
        ({"a": [{"ci": [0.25]}, 1, None], "b": "text"}, ".a[0].ci"),
        ({"a": wanted["a"], "b": "texts"}, ".b"),
    ):
        assert [found.partition(":")[0] for found in differences(other, wanted)] == [place]


@pytest.mark.parametrize("stored", KEYS["specs"], ids=lambda stored: stored["spec"]["strategy"])
def test_keys_of_specs_are_the_same(stored: dict[str, Any]) -> None:
    spec = RunSpec.from_json(stored["spec"])
    assert spec.key == stored["key"]
    assert spec.replace(epochs=spec.epochs + 1).key != stored["key"], "the key has teeth"


@pytest.mark.parametrize("stored", KEYS["requests"], ids=lambda stored: stored["key"][:8])
def test_keys_of_requests_are_the_same(stored: dict[str, Any]) -> None:
    request = StudyRequest.from_json(stored["request"])
    assert key_of(request_fields(request)) == stored["key"]
    assert key_of(request_fields(request.replace(weight_decay=0.01))) != stored["key"], "a later field counts when set"


@pytest.mark.parametrize("stored", KEYS["comparisons"], ids=lambda stored: stored["key"][:8])
def test_keys_of_comparisons_are_the_same(stored: dict[str, Any]) -> None:
    request = StudyRequest.from_json(stored["request"])
    assert key_of({"asked": request_fields(request), "strategies": stored["strategies"]}) == stored["key"]
