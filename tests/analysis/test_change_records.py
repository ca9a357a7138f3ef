"""Records of change: means and intervals over runs, where change begins, and a chapter for every case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from frostline.analysis import CurveCost, RunCounts
from frostline.analysis.inside.change import Change, MeasuredDepth, StrategyChange, strategy_change
from frostline.report.formats.registry import render
from frostline.report.inside.change_chapter import ChangeChapter

pytestmark = pytest.mark.usefixtures("draws")

N_LAYERS = 4


def found(moved: list[float], *, has_maps: bool = True, shift: float = 0.0) -> dict[str, NDArray[Any]]:
    """What the measure gives for a run whose layers changed by these amounts, by whatever is looked at."""
    change = np.array(moved) + shift * (np.array(moved) > 0)
    arrays = {"distance": change, "distance_embeddings": np.zeros(1), "cka": np.concatenate([[1.0], 1 - change])}
    maps = {"attention_cosine": np.stack([1 - change, 1 - change], axis=1)}
    maps |= {name: np.ones((N_LAYERS, 2)) for name in ("entropy_before", "entropy_after")}
    return arrays | (maps if has_maps else {})


def change_of(*strategies: StrategyChange, **changes: Any) -> Change:
    given: dict[str, Any] = {"model": "m", "tuned": None, "task": "t", "metric": "accuracy", "n_layers": N_LAYERS}
    given |= {"n_rows": 10, "strategies": strategies, "operating_point": None, "warnings": ()}
    given["cost"] = CurveCost(wall_seconds=None, prefix_seconds=0.0, train_seconds=0.0, cache_bytes=0)
    return Change(**given | {"runs": RunCounts(done=0, reused=0, crashed=0)} | changes)


@pytest.mark.parametrize(
    ("moved", "layer"),
    [([0.0, 0.1, 0.21, 0.4], 3), ([0.3, 0.1, 0.2, 0.4], 1), ([0.0, 0.0, 0.0, 1e-9], 4), ([0.0] * 4, None)],
)
def test_change_begins_at_the_lowest_layer_with_half_of_the_largest(moved: list[float], layer: int | None) -> None:
    one = strategy_change("full", None, [found(moved)])
    for begin in one.begins:
        assert (begin.layer, begin.n_frozen) == (layer, None if layer is None else layer - 1)


def test_means_and_intervals_are_over_runs() -> None:
    runs = [found([0.0, 0.1, 0.2, 0.4], shift=shift) for shift in (-0.02, 0.0, 0.02)]
    one = strategy_change("freeze:1", 1, runs, seeds=(0, 1, 2), score=0.8)
    assert one.layers[0].weights_ci == (0.0, 0.0)
    assert one.layers[0].attention == one.layers[0].states == 0.0
    for what in ("attention", "states", "weights"):
        low, high = getattr(one.layers[3], f"{what}_ci")
        assert getattr(one.layers[3], what) == pytest.approx(0.4)
        assert (high - low) / 2 == pytest.approx(4.303 * 0.02 / np.sqrt(3), rel=1e-3)
    assert strategy_change("full", None, runs[:2]).layers[3].weights_ci is None


@pytest.mark.parametrize("has_maps", [True, False], ids=["maps", "no maps"])
def test_every_format_shows_it_with_and_without_maps(has_maps: bool) -> None:
    one = strategy_change("full", None, [found([0.0, 0.1, 0.2, 0.4], has_maps=has_maps)])
    point = MeasuredDepth(command="curve", keep=0.9, scale="ratio", n_frozen=2)
    record = change_of(one, operating_point=point)
    assert Change.from_json(record.to_json()) == record
    chapter = ChangeChapter(change=record)
    for ending in (".html", ".md", ".csv", ".svg", ".tex"):
        assert render([chapter], ending)
    by = "attention" if has_maps else "weights"
    assert f"changes {by} most in layer 4 of 4" in chapter.answer[0]
    assert "measured 2 of 4 at 90%" in chapter.answer[2]


def test_nothing_changed_is_said_so() -> None:
    chapter = ChangeChapter(change=change_of(strategy_change("full", None, [found([0.0] * 4)]), task=None, tuned="x"))
    assert list(chapter.answer) == ["Full fine-tuning changed nothing in the layers."]
    assert chapter.title == "What changed: m to x"
