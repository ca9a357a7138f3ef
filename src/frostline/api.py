"""What Python users call: one function a command, with the command's flags as keyword arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from rich.console import Console

from frostline.analysis import Equal, build_sizes
from frostline.errors import UsageError, check_between, check_choice
from frostline.execution.sweep import SweepOptions, Teller, chosen_rate, label, run_curve, workers
from frostline.records.requests import CurveSpec
from frostline.records.results import RunResult
from frostline.records.specs import RunSpec
from frostline.report import numbers
from frostline.report.chapter import Chapter
from frostline.report.formats.files import write_report, write_result
from frostline.report.progress.display import Progress, make_progress
from frostline.saving.save import check_new_folder, save_model
from frostline.storage import atomic
from frostline.strategies import Freeze, Full, Strategy, parse
from frostline.studies.compare import check_plan, check_strategies, opened_comparison, run_compare
from frostline.studies.estimate import Estimate, estimate
from frostline.studies.find import Goal, run_find
from frostline.studies.protocols import of_comparison, of_curve, spec_at, spec_at_depth, units
from frostline.studies.requests.config_file import train_config
from frostline.studies.requests.resolve import Opened, open_curve
from frostline.studies.requests.settings import (
    make_request,
    read_folder,
    read_number,
    read_number_or_none,
    read_one_seed,
    read_sizes,
    read_strategies,
    without_numpy,
)
from frostline.studies.results import Compared, Found, SizeStudy, Study, study_of
from frostline.studies.sizes import run_sizes
from frostline.training.run import Runner


def curve(model: Any, task: Any, *, progress: Progress | None = None, **settings: Any) -> Study:
    """Line search, full model, every depth and seed; `report.html`, `curve.json`, `.md`, `.svg` in the out folder.

    Args:
        model: a Hub name, a folder, or a transformers model; with `tokenizer=` where its own is not found by its name.
        task: a known task, a file, folder or Hub data set, or the rows: a pandas DataFrame, a `datasets.Dataset`, a
            `DatasetDict` or a dict of train and dev. Rows are kept in the out folder; the task is called `name`.
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names: `out`, `data`, `seeds=5`, `lr`, `frozen="0,6-12"`, ….
    """
    request, options = make_request(model, task, settings)
    with progress or make_progress(Console(stderr=True)) as told:
        chapter = run_curve(request, options, told)
    _write(chapter, options.out, "curve")
    return study_of(Study, chapter.curve, [chapter])


def _write(chapter: Chapter, folder: Path, name: str) -> None:
    """The files of a finished curve or search."""
    write_result(chapter, folder, name)
    write_report([chapter], folder / "report.html")


def grid(
    model: Any,
    task: Any,
    *,
    train_sizes: str | Sequence[int],
    equal: Equal = "epochs",
    progress: Progress | None = None,
    **settings: Any,
) -> SizeStudy:
    """A curve at each of several numbers of training rows; `report.html` with a heat map, `grid.json`.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, folder or Hub data set, or the rows, as for `curve`.
        train_sizes: numbers of training rows; a larger subset holds the smaller ones.
        equal: what is the same at every size, `epochs` or `steps`.
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names, as for `curve`.
    """
    sizes = read_sizes(train_sizes)
    check_choice("equal", equal, get_args(Equal))
    request, options = make_request(model, task, settings)
    with progress or make_progress(Console(stderr=True)) as told:
        chapters = run_sizes(request, sizes, equal, options, told)
    sized = [(one.provenance.n_train, one.curve) for one in chapters if one.provenance is not None]
    found = build_sizes(sized, equal)
    atomic.write(options.out / "grid.json", json.dumps(found.to_json(), indent=2, allow_nan=False) + "\n")
    write_report(chapters, options.out / "report.html")
    return study_of(SizeStudy, found, chapters)


def compare(
    model: Any, task: Any, *, strategies: str | Sequence[str], progress: Progress | None = None, **settings: Any
) -> Compared:
    """Quality against cost of several strategies; `report.html`, `compare.json`, `.md`, `.svg` in the out folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, folder or Hub data set, or the rows, as for `curve`.
        strategies: what is compared: `full`, `freeze:3`, `freeze:+2`, `lora:8`, `bitfit`, `features`, ….
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names; the protocol is `tuned` by default.
    """
    names, request, options = _comparison(model, task, strategies, settings)
    with progress or make_progress(Console(stderr=True)) as told:
        chapter = run_compare(request, names, options, told)
    _write(chapter, options.out, "compare")
    return study_of(Compared, chapter.comparison, [chapter])


def dry_run_compare(model: Any, task: Any, *, strategies: str | Sequence[str], **settings: Any) -> Estimate:
    """How many runs a comparison still takes, how many minutes and bytes, from a few timed steps."""
    names, request, options = _comparison(model, task, strategies, settings)
    opened, comparison, _ = opened_comparison(request, names, options)
    return estimate(opened, of_comparison(comparison), workers(request, options))


def _comparison(
    model: Any, task: Any, strategies: str | Sequence[str], settings: dict[str, Any]
) -> tuple[tuple[str, ...], CurveSpec, SweepOptions]:
    """The strategies, the request and how to do it, from the settings that a comparison takes."""
    names = read_strategies(strategies)
    check_strategies(names)
    given = {name: value for name, value in settings.items() if value is not None}
    if wrong := sorted(given.keys() & {"frozen", "keep", "scale", "probe"}):
        raise UsageError(f"{wrong[0]} is for curves; a comparison takes strategies, e.g. freeze:3 for a depth")
    return names, *make_request(model, task, {"protocol": "tuned"} | given)


def find(
    model: Any,
    task: Any,
    *,
    save: str | Path | None = None,
    confidence: float = 0.95,
    budget: float | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Found:
    """The fewest trained layers that keep a share; `report.html`, `find.json`, `.md`, `.svg` in the out folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, folder or Hub data set, or the rows, as for `curve`.
        save: a new folder for the answer's model, as `train` saves one.
        confidence: how sure the answer must be.
        budget: for all runs together, in full runs; by default half of what the whole curve takes.
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names: `keep=0.9`, `scale`, `out`, `seeds=5`, ….
    """
    _check_no_probe(settings)
    goal = Goal(confidence=read_number("confidence", confidence), budget=read_number_or_none("budget", budget))
    request, options = make_request(model, task, settings)
    folder = None if save is None else read_folder("save", save)
    if folder is not None:
        check_new_folder(folder)
    with progress or make_progress(Console(stderr=True)) as told:
        finding, chapter = run_find(request, goal, options, told)
        _write(chapter, options.out, "find")
        if folder is not None:
            opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes, command="find")
            spec = spec_at_depth(opened.resolved, finding.answer.n_frozen, finding.learning_rate)
            _train_and_save(spec, opened, Runner(options.max_cache_bytes), told, folder)
    return study_of(Found, finding, [chapter])


def dry_run(model: Any, task: Any, **settings: Any) -> Estimate:
    """How many runs a curve still takes, how many minutes and bytes, from a few timed steps."""
    request, options = make_request(model, task, settings)
    n_workers = workers(request, options)
    opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes)
    return estimate(opened, of_curve(opened.resolved), n_workers)


def train(
    model: Any,
    task: Any,
    *,
    save: str | Path,
    frozen: int | str | None = None,
    strategy: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> RunResult:
    """One trained model in the folder `save`, which `from_pretrained` and `pipeline` open; its result.

    Args:
        model: a Hub name, a folder, or a transformers model.
        task: a known task, a file, folder or Hub data set, or the rows, as for `curve`.
        save: a new folder.
        frozen: how many layers to freeze, or `"full"`.
        strategy: instead of `frozen`, any other: `"lora:8"`, `"features"`, ….
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names; without `lr` the rate is the line search's.
    """
    if settings.get("seeds") is not None:
        settings["seeds"] = read_one_seed(without_numpy(settings["seeds"]))
    _check_no_probe(settings)
    wanted = _wanted(frozen, strategy)
    if strategy is not None:
        settings = {"protocol": "tuned"} | settings
    save = read_folder("save", save)
    request, options = make_request(model, task, settings)
    check_new_folder(save)
    with progress or make_progress(Console(stderr=True)) as told:
        opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes, command="train")
        if wanted != Full():
            opened.pretrained.check_depth()
        resolved = opened.resolved
        if isinstance(wanted, Freeze):
            check_between("frozen", wanted.n_frozen, 0, resolved.n_layers)
        settled_for = wanted.settled(resolved.n_layers, opened.data.task.kind)
        check_plan(opened, settled_for)
        rate = 0.0 if settled_for.rates == "none" else chosen_rate(opened, options, told, settled_for)
        spec = spec_at(resolved, settled_for, rate)
        limit = options.max_cache_bytes
        settled = train_config(opened.resolved, options.out, spec, save=save, max_cache_bytes=limit)
        atomic.write(options.out / "train.yaml", settled)
        return _train_and_save(spec, opened, Runner(limit), told, save)


def _check_no_probe(settings: dict[str, Any]) -> None:
    if settings.get("probe") is not None:
        raise UsageError("probe is for curves; leave it out")


def _wanted(frozen: int | str | None, strategy: str | None) -> Strategy:
    """What to train, from either of the two settings that say it."""
    if (frozen is None) == (strategy is None):
        raise UsageError("give either frozen (how many layers to freeze, or full) or strategy (e.g. lora:8)")
    if strategy is not None:
        return parse(strategy)
    if str(frozen) != "full" and not str(frozen).isdecimal():
        raise UsageError(f"frozen is {frozen!r}; give how many layers to freeze, or full")
    return Full() if str(frozen) == "full" else Freeze(int(str(frozen)))


def _train_and_save(spec: RunSpec, opened: Opened, runner: Runner, told: Progress, save: Path) -> RunResult:
    cost = units(spec, opened.resolved.n_layers)
    told.note(
        f"{spec.strategy} at rate {spec.learning_rate:g}, {numbers.counted(spec.epochs, 'epoch')}, seed {spec.seed}"
    )
    told.start(cost, [label(spec)])
    told.run_started(label(spec))
    result, stack = runner.train(spec, lambda record: Teller(told).epoch(spec, record))
    told.run_finished(label(spec), cost, result.cost.seconds, result.score)
    opened.store.put(result)
    save_model(result, stack, opened.pretrained.tokenizer, save)
    return result
