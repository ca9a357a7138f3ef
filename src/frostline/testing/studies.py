"""The promises that every study keeps, checked on the runs of a finished study in a store. Trains nothing.

A promise that is broken raises an AssertionError that names it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from frostline.execution.sweep import Wanted
from frostline.report.formats.registry import FORMATS, render
from frostline.storage.runs import Store
from frostline.studies.study import ResolvedT, Results, Study, Totals


def check_study(study: Study[Any, ResolvedT, Any], resolved: ResolvedT, store: Store, rng: np.random.Generator) -> None:
    """Raises unless a study keeps all promises. All its runs must be in the store."""
    whole = study.replay(resolved, store)
    assert all(whole.has(wanted) for wanted in study.next_runs(resolved, whole)), "its runs are in the store"
    check_rounds(study, resolved, whole, rng)
    check_chapter(study, resolved, whole, store)


def check_rounds(
    study: Study[Any, ResolvedT, Any], resolved: ResolvedT, whole: Results, rng: np.random.Generator
) -> None:
    """What it wants depends on results alone: not on their order, and not on how often it is asked."""
    results, before = Results(), list[Wanted]()
    while new := [wanted for wanted in _wanted(study, resolved, results) if not results.has(wanted)]:
        now = _wanted(study, resolved, results)
        assert set(before) <= set(now), "what was wanted stays wanted"
        for number in rng.permutation(len(new)):
            _reveal(results, new[number], whole)
        before = now
    assert results.finished.keys() == whole.finished.keys(), "in any order it ends with the same runs"


def check_chapter(study: Study[Any, ResolvedT, Any], resolved: ResolvedT, whole: Results, store: Store) -> None:
    """Its record is the same twice and survives JSON, and every format shows its chapter."""
    totals = Totals(done=frozenset())
    records = [study.build(resolved, whole, totals, store) for _ in range(2)]
    assert records[0] == records[1], "the same results give the same record"
    assert type(records[0]).from_json(records[0].to_json()) == records[0], "the record survives JSON"
    chapter = study.chapter_so_far(resolved, whole, store, totals)
    assert chapter is not None, "a study that is over can be shown"
    assert chapter.n_missing == 0, "a study that is over misses no run"
    assert chapter.title, "its chapter has a title"
    assert chapter.answer, "its chapter has an answer"
    for ending in FORMATS.values():
        assert render([chapter], ending), f"{ending} shows it"


def _wanted(study: Study[Any, ResolvedT, Any], resolved: ResolvedT, results: Results) -> list[Wanted]:
    first, second = (list(study.next_runs(resolved, results)) for _ in range(2))
    assert first == second, "the same results, the same runs"
    return first


def _reveal(results: Results, wanted: Wanted, whole: Results) -> None:
    key = wanted.spec.key
    if key in whole.crashed:
        results.crashed.add(key)
    else:
        results.add(whole.finished[key] if wanted.until is None else whole.paused[key, wanted.until])
