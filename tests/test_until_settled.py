"""`curve --until-settled`: seeds are added where they can settle something, and verdicts pay for every look."""

from __future__ import annotations

from pathlib import Path

import pytest

import frostline as public
from commands import Finished, Toy, frostline, runs_in
from frostline import stats
from frostline.errors import UsageError
from frostline.records.depth import FULL, Depth
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.studies.curve import CurveStudy
from frostline.studies.planning.settling import Settling
from frostline.studies.study import Results
from synthetic import N_LAYERS, TASK, make_result, make_spec

MEANS: dict[Depth, float] = {FULL: 0.9, 2: 0.85, 3: 0.6}
"""depth 2 is above the bar of 0.81, depth 3 far below it"""


def resolved(**changes: object) -> ResolvedRequest:
    """A curve of two depths with three seeds."""
    request = StudyRequest(
        model="toy-model",
        task=TASK,
        seeds=(0, 1, 2),
        learning_rates=(make_spec(FULL, 0).learning_rate,),
        until_settled=True,
    ).replace(**changes)
    return ResolvedRequest(request=request, base=make_spec(FULL, 0), n_layers=N_LAYERS, depths=(2, 3), is_cached=True)


def settled(asked: ResolvedRequest, failing: frozenset[tuple[Depth, int]] = frozenset()) -> Results:
    """The results of all runs that the curve asks for, on 20,000 dev rows."""
    results, study = Results(), CurveStudy()
    while new := [one.spec for one in study.next_runs(asked, results) if not results.has(one)]:
        for spec in new:
            depth: Depth = FULL if spec.strategy == "full" else int(spec.strategy.split(":")[1])
            score = MEANS[depth] + 0.02 * (-1) ** spec.seed
            score = 0.5 if (depth, spec.seed) in failing else round(20_000 * score) / 20_000
            results.add(make_result(depth, spec.seed, score, n_dev=20_000, spec=spec))
    return results


def seeds_of(results: Results, strategy: str) -> list[int]:
    return sorted(result.spec.seed for result in results.finished.values() if result.spec.strategy == strategy)


def test_seeds_are_added_to_open_depths_and_the_full_model_only() -> None:
    results = settled(resolved())
    assert seeds_of(results, "freeze:3") == [0, 1, 2], "it is short at the first look"
    assert len(seeds_of(results, "freeze:2")) > 3
    assert seeds_of(results, "full") == seeds_of(results, "freeze:2")
    found = Settling.replayed(resolved(), results)
    assert found is not None
    assert found.judge is not None
    assert found.judge.verdicts(0.9, 0.0) == {2: "kept", 3: "short"}


def test_no_depth_gets_more_than_was_allowed() -> None:
    results = settled(resolved(max_seeds=4))
    assert len(seeds_of(results, "freeze:2")) <= 4


def test_verdicts_pay_for_every_look() -> None:
    asked = resolved()
    found = Settling.replayed(asked, settled(asked))
    assert found is not None
    assert found.judge is not None
    n_looks = len(found.question.looks)
    assert n_looks > 1
    pair = found.judge.pairs[2]
    plain = stats.verdict(pair, keep=0.9, base=0.0, error=0.05 / 2 / n_looks)
    assert found.judge.verdicts(0.9, 0.0)[2] == plain


def test_failed_runs_are_replaced_for_verdicts_and_stay_in_the_mean() -> None:
    asked, failing = resolved(), frozenset({(3, 1)})
    results = settled(asked, failing)
    assert seeds_of(results, "freeze:3") == [0, 1, 2, 20]
    found = Settling.replayed(asked, results)
    assert found is not None
    assert found.judge is not None
    assert len(found.judge.scored[3].scores) == 3
    assert 0.5 not in found.judge.scored[3].scores
    assert [spec.seed for spec in found.ended()[3]] == [0, 1, 2]


@pytest.fixture(scope="module")
def curve(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A real one, on rows that a tiny model learns."""
    return frostline(*command(toy), "--until-settled", "--max-seeds", "5", out=tmp_path_factory.mktemp("s") / "out")


def command(toy: Toy) -> tuple[str, ...]:
    settings = ("--lr", "1e-2", "--epochs", "2", "--seeds", "3", "--frozen", "2-3", "--json", "--workers", "2")
    return ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), *settings)


def test_from_the_command_line_it_says_what_would_settle_the_rest(curve: Finished) -> None:
    assert curve.code == 0, curve.stderr
    for point in curve.json["points"]:
        assert 3 <= len(point["seeds"]) <= 5
        assert point["verdict"] in ("kept", "short", "open")
        assert point["seeds_to_settle"] is None or point["verdict"] == "open"
    assert len(runs_in(curve.out)) >= 9


def test_a_plain_curve_does_only_what_was_asked(toy: Toy, tmp_path: Path) -> None:
    plain = frostline(*command(toy), out=tmp_path / "out")
    assert all(len(point["seeds"]) == 3 for point in plain.json["points"])


def test_one_seed_can_settle_nothing(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"until_settled needs at least 2 seeds .* use --seeds 2 or more"):
        public.curve(toy.model, toy.train, dev=str(toy.dev), seeds=1, until_settled=True, out=tmp_path / "out")
