"""`frostline heads` end to end, the ranking of attention heads, and what a report says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import frostline
from commands import Finished, Toy
from commands import frostline as command
from frostline.analysis.inside.heads import (
    HeadsRecord,
    Pruned,
    by_importance,
    pruning_curve,
    ranked_heads,
    relative_importance,
)
from frostline.errors import UsageError
from frostline.records.arrays import StoredArray
from frostline.records.depth import Rank
from frostline.records.parameters import AttentionHead
from frostline.records.requests import ResolvedRequest
from frostline.report.inside.heads_chapter import HeadsChapter
from frostline.report.wording import heads_words
from frostline.storage.runs import Store
from frostline.strategies import Freeze, Heads, RankedHeads
from frostline.studies.inside.heads import HeadsStudy
from frostline.studies.planning.ranking import movement_spec, ranking, resolve_heads
from frostline.studies.registry import chapters
from frostline.studies.requests.parse import parse
from frostline.studies.requests.resolve import Resolver
from frostline.studies.requests.settings import CurveSettings
from frostline.testing.studies import check_study

pytestmark = pytest.mark.usefixtures("draws")

N_HEADS, N_RUNS = 6, 8
"""three layers of two; one run for importance and one for each of seven orders"""


@pytest.fixture(scope="module")
def finished(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The command, done by two workers."""
    out = tmp_path_factory.mktemp("heads") / "out"
    return command("heads", str(toy.model), str(toy.train), "--dev", str(toy.dev), "--json", "--workers", "2", out=out)


def test_the_command_measures_prunes_and_writes_files(finished: Finished) -> None:
    record = HeadsRecord.from_json(finished.json)
    assert (finished.code, record.n_layers, record.n_heads, record.n_dev) == (0, 3, N_HEADS, 24)
    assert [len(of_layer) for of_layer in record.importance] == [2, 2, 2]
    assert min(value for of_layer in record.importance for value in of_layer) > 0
    assert [curve.order for curve in record.pruning] == ["importance", "random", "top"]
    assert [len(curve.points[0].scores) for curve in record.pruning] == [1, 5, 1]
    numbers = [[point.n_pruned for point in curve.points] for curve in record.pruning]
    assert numbers == [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]]
    written = {path.name for path in finished.out.iterdir()}
    assert {"heads.json", "heads.md", "heads.svg", "heads.yaml", "report.html"} <= written
    assert len(Store(finished.out).results()) == N_RUNS
    page = (finished.out / "report.html").read_text()
    assert "Importance of attention heads" in page
    assert "Pruned attention heads" in page


def test_again_it_does_nothing_and_half_done_it_goes_on(toy: Toy, finished: Finished, tmp_path: Path) -> None:
    out = finished.out
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    again = command("heads", "--config", str(out / "heads.yaml"), "--json", out=out)
    assert _numbers(again.json) == _numbers(finished.json)
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == before
    lost = sorted(before)[:3]
    for path in lost:
        path.unlink()
    resumed = command("heads", "--config", str(out / "heads.yaml"), "--json", "--workers", "1", out=out)
    assert _numbers(resumed.json) == _numbers(finished.json)
    assert all(path.is_file() for path in lost)


def _numbers(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def test_it_keeps_the_promises_of_every_study(finished: Finished, rng: np.random.Generator) -> None:
    store, study = Store(finished.out), HeadsStudy()
    check_study(study, study.stored(store)[0], store, rng)
    assert [type(chapter) for chapter in chapters(finished.out)] == [HeadsChapter], "a report finds it once"


def test_importance_alone(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = frostline.heads(str(toy.model), str(toy.train), dev=str(toy.dev), out=out, rows=20, prune=False, workers=1)
    assert (found.n_rows, found.pruning) == (20, ())
    assert "The most important of 6 attention heads is" in str(found)
    assert len(Store(out).results()) == 1


def test_a_fine_tuned_folder_is_measured_with_its_own_head(toy: Toy, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    data = {"dev": str(toy.dev), "workers": 1}
    trained = frostline.train(
        str(toy.model),
        str(toy.train),
        dev=str(toy.dev),
        frozen=0,
        lr=3e-3,
        epochs=4,
        save=saved,
        out=tmp_path / "train",
    )
    found = frostline.heads(
        str(toy.model),
        str(toy.train),
        tuned=saved,
        out=tmp_path / "out",
        prune=False,
        **data,  # type: ignore[arg-type]
    )
    assert found.tuned == str(saved)
    assert found.score == pytest.approx(trained.score), "the score that it was saved with"
    with pytest.raises(frostline.DataError, match="not a fine-tuned model"):
        frostline.heads(str(toy.model), str(toy.train), tuned=toy.model, out=tmp_path / "base", **data)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def resolver(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> tuple[Resolver, ResolvedRequest]:
    """A request that is resolved, as a study has it when it ranks."""
    out = tmp_path_factory.mktemp("ranking") / "out"
    return _resolved(toy, out)


def _resolved(toy: Toy, out: Path, **settings: Any) -> tuple[Resolver, ResolvedRequest]:
    own: CurveSettings = {"dev": str(toy.dev), "out": out, "lrs": "1e-3,1e-2,3e-3", **settings}  # type: ignore[typeddict-item]
    parsed = parse(str(toy.model), str(toy.train), own, CurveSettings)
    resolver = Resolver(out, parsed.options.max_cache_bytes)
    return resolver, resolver.fill_in(parsed.request, needs_depth=True)


def test_heads_are_ranked_before_the_runs(resolver: tuple[Resolver, ResolvedRequest], finished: Finished) -> None:
    ranked: dict[Rank, tuple[AttentionHead, ...]] = {
        rank: ranking(*resolver, rank) for rank in ("importance", "change", "random", "top")
    }
    assert all(len({*heads}) == N_HEADS for heads in ranked.values())
    assert ranked["top"] == tuple(AttentionHead(layer, head) for layer in (3, 2, 1) for head in (0, 1))
    record = HeadsRecord.from_json(finished.json)
    assert ranked["importance"] == tuple(head for head, _ in record.ranked), "as the command ranks them"
    moved = movement_spec(resolver[1])
    assert (moved.strategy, moved.epochs, moved.learning_rate, moved.role) == ("full", 1, 3e-3, "line_search")
    stored = resolver[0].store.get(moved.key)
    assert stored is not None
    values = stored.measurement("movement")
    assert values is not None
    assert ranked["change"] == tuple(head for head, _ in ranked_heads(values["movement"].tolist()))
    assert len(set(ranked.values())) > 2, "the rankings differ"


def test_a_ranked_strategy_becomes_one_that_names_its_heads(resolver: tuple[Resolver, ResolvedRequest]) -> None:
    n_runs = len(resolver[0].store.results())
    found = resolve_heads(*resolver, RankedHeads(3, "top"))
    assert found == Heads(frozenset({AttentionHead(3, 0), AttentionHead(3, 1), AttentionHead(2, 0)}))
    assert resolve_heads(*resolver, Freeze(2)) == Freeze(2)
    with pytest.raises(UsageError, match="the model has 6 attention heads"):
        resolve_heads(*resolver, RankedHeads(7, "top"))
    assert len(resolver[0].store.results()) == n_runs, "from the top and at random, nothing is run"


def test_random_is_from_the_master_seed(toy: Toy, resolver: tuple[Resolver, ResolvedRequest], tmp_path: Path) -> None:
    other = _resolved(toy, tmp_path / "out", master_seed=1)
    assert ranking(*resolver, "random") == ranking(*resolver, "random")
    assert ranking(*other, "random") != ranking(*resolver, "random")


def test_ranked_heads_train_by_name(toy: Toy, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    result = frostline.train(
        str(toy.model), str(toy.train), dev=str(toy.dev), strategy="heads:2@top", lr=1e-3, epochs=1, save=saved,
        out=tmp_path / "out",
    )  # fmt: skip
    assert result.spec.strategy == "heads:3.0+3.1"
    assert frostline.predict(saved, ["good film", "dull plot"])


class TestCurves:
    """Pruning curves from outputs."""

    def test_scores_intervals_and_verdicts(self, finished: Finished) -> None:
        whole = next(one for one in Store(finished.out).results() if one.spec.measures == ("importance",))
        labels = whole.predictions.labels.array()
        right, wrong = (np.eye(2, dtype=np.float32)[classes] for classes in (labels, 1 - labels))
        whole = whole.replace(
            predictions=whole.predictions.replace(outputs=type(whole.predictions.outputs).of(right)), score=1.0
        )
        half = np.where(np.arange(len(labels))[:, None] % 4 < 3, right, wrong)
        steps = np.stack([right, half, wrong])
        curve = pruning_curve("random", whole, [Pruned([1, 2, 3], steps)] * 3, 0.5)
        assert [point.score for point in curve.points] == [1.0, 0.75, 0.0]
        assert [point.verdict for point in curve.points] == ["kept", "kept", "short"]
        assert (curve.most_pruned, curve.established) == (2, 2)
        strict = pruning_curve("top", whole, [Pruned([1, 2, 3], steps)], 0.8)
        assert [point.verdict for point in strict.points] == ["kept", "open", "short"]
        assert strict.points[0].difference_ci_dev == (0.0, 0.0), "the same answers have the same score on all rows"
        low, high = strict.points[1].difference_ci_dev or (0.0, 0.0)
        assert low < -0.25 < high < 0
        assert strict.points[1].difference_ci is None, "one draw has no interval over draws"
        # The twin: draws that differ make the interval wider.
        apart = [Pruned([1, 2, 3], np.stack([one, one, one])) for one in (right, half, wrong)]
        wide = pruning_curve("random", whole, apart, 0.5).points[0]
        assert wide.difference_ci_dev is not None
        assert wide.difference_ci_dev[1] - wide.difference_ci_dev[0] > 1

    def test_points_that_failed_are_not_recommended(self, finished: Finished) -> None:
        whole = next(one for one in Store(finished.out).results() if one.spec.measures == ("importance",))
        labels = whole.predictions.labels.array()
        right, constant = np.eye(2)[labels], np.tile([1.0, 0.0], (len(labels), 1))
        whole = whole.replace(predictions=whole.predictions.replace(outputs=StoredArray.of(right)), score=1.0)
        curve = pruning_curve("importance", whole, [Pruned([1, 2], np.stack([right, constant]))], 0.3)
        assert [point.is_failed for point in curve.points] == [False, True]
        assert curve.points[1].score >= 0.3, "a constant answer keeps the share"
        assert (curve.most_pruned, curve.established) == (1, 1)

    def test_attention_heads_are_ranked_within_their_layers(self) -> None:
        loud = [[1.0, 2.0], [30.0, 20.0]]
        assert [str(head) for head, _ in by_importance(loud)] == ["1.1", "2.0", "2.1", "1.0"]
        assert [str(head) for head, _ in ranked_heads(loud)] == ["2.0", "2.1", "1.1", "1.0"], "the twin"

    def test_importance_within_layers(self) -> None:
        assert relative_importance([[3.0, 4.0], [0.0, 0.0]]) == [[0.6, 0.8], [0.0, 0.0]]


class TestWords:
    """What people read."""

    def test_the_answer(self, finished: Finished) -> None:
        record = HeadsRecord.from_json(finished.json)
        best, *others = record.pruning
        assert record.is_failed, "the toy's linear head learns nothing"
        (said,) = heads_words.answer(record)
        assert said.startswith("The fitted linear head learned nothing (accuracy ")
        record = record.replace(is_failed=False)
        some = record.replace(pruning=(best.replace(most_pruned=3, established=2), *others), score=0.9, keep=0.9)
        said, sure = heads_words.answer(some)
        assert said.startswith("The 3 least important of 6 attention heads can be pruned with 90% of the score kept")
        assert sure == "The dev rows (24) establish it for 2 of them."
        none = record.replace(pruning=(best.replace(most_pruned=0, established=0), *others))
        assert "Keep them all." in heads_words.answer(none)[0]

    def test_tables(self, finished: Finished) -> None:
        chapter = HeadsChapter(heads=HeadsRecord.from_json(finished.json))
        brief, ranked = chapter.tables
        assert [row[0] for row in brief.rows] == ["1 (17%)", "2 (33%)", "3 (50%)", "4 (67%)", "5 (83%)", "6 (100%)"]
        assert brief.rows[-1][2:] == ("–", "–"), "only one order goes so far"
        assert len(chapter.wide_tables[0].rows) == 16
        assert [row[0] for row in ranked.rows] == [str(place) for place in range(1, 7)]
        cells = chapter.wide_tables[-1]
        assert [row[0] for row in cells.rows] == ["3", "2", "1"], "the top layer first"
        rows = HeadsChapter.rows([chapter])
        assert len(rows) == N_HEADS + 16
