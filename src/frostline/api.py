"""What Python users call: one function a command, with the command's flags as keyword arguments."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, TypeVar, final

from rich.console import Console

from frostline import atomic
from frostline.analysis import Chapter, Curve, Finding
from frostline.config import train_config
from frostline.errors import UsageError, check_between
from frostline.estimate import Estimate, estimate
from frostline.export import check_new_folder, save_model
from frostline.protocols import spec_at, spec_at_depth, units
from frostline.records import RunResult, RunSpec
from frostline.report.files import write_curve, write_report
from frostline.report.progress import Progress, make_progress
from frostline.resolve import Opened, open_curve
from frostline.run import Runner
from frostline.search import Goal, run_find
from frostline.settings import make_request, read_folder, read_number, read_number_or_none, read_one_seed, without_numpy
from frostline.strategies import Freeze, Full
from frostline.sweep import Teller, chosen_rate, label, run_curve, workers


@final
class Study(Curve):
    """A finished curve that can write itself down."""

    @property
    def chapter(self) -> Chapter:
        """Its runs too, and how to do it again."""
        return _chapter_of(self)

    def report(self, path: str | Path) -> Path:
        """Writes it in the format of the file's ending: `.html`, `.md`, `.tex`, `.csv`, `.svg`, `.png`, `.pdf`…"""
        return write_report([self.chapter], Path(path))


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
    return _with_chapter(Study, chapter)


def _write(chapter: Chapter, folder: Path, name: str) -> None:
    """The files of a finished curve or search."""
    write_curve(chapter.curve, folder, name)
    write_report([chapter], folder / "report.html")


AnyCurve = TypeVar("AnyCurve", bound=Curve)


def _with_chapter(kind: type[AnyCurve], chapter: Chapter) -> AnyCurve:
    """The chapter's curve as one that holds its chapter."""
    fields = dataclasses.fields(chapter.curve)
    made = kind(**{field.name: getattr(chapter.curve, field.name) for field in fields})
    vars(made)["_chapter"] = chapter  # it is no field: JSON and equality are the curve's
    return made


def _chapter_of(made: Curve) -> Chapter:
    """What a curve was made with; one that was read or changed tells of itself alone."""
    chapter: Chapter = vars(made).get("_chapter", Chapter(curve=made))
    return chapter


@final
class Found(Finding):
    """A finished search that can write itself down."""

    @property
    def chapter(self) -> Chapter:
        """Its runs too, and how to do it again."""
        return _chapter_of(self)

    def report(self, path: str | Path) -> Path:
        """Writes it in the format of the file's ending, as a curve's `report` does."""
        return write_report([self.chapter], Path(path))


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
    return _with_chapter(Found, chapter)


def dry_run(model: Any, task: Any, **settings: Any) -> Estimate:
    """How many runs a curve still takes, how many minutes and bytes, from a few timed steps."""
    request, options = make_request(model, task, settings)
    n_workers = workers(request, options)
    return estimate(open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes), n_workers)


def train(
    model: Any, task: Any, *, frozen: int | str, save: str | Path, progress: Progress | None = None, **settings: Any
) -> RunResult:
    """One trained model in the folder `save`, which `from_pretrained` and `pipeline` open; its result.

    Args:
        model: a Hub name, a folder, or a transformers model.
        task: a known task, a file, folder or Hub data set, or the rows, as for `curve`.
        frozen: how many layers to freeze, or `"full"`.
        save: a new folder.
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names; without `lr` the rate is the line search's.
    """
    if settings.get("seeds") is not None:
        settings["seeds"] = read_one_seed(without_numpy(settings["seeds"]))
    if str(frozen) != "full" and not str(frozen).isdecimal():
        raise UsageError(f"frozen is {frozen!r}; give how many layers to freeze, or full")
    depth = None if str(frozen) == "full" else int(frozen)
    save = read_folder("save", save)
    request, options = make_request(model, task, settings)
    check_new_folder(save)
    with progress or make_progress(Console(stderr=True)) as told:
        opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes, command="train")
        if depth is not None:
            opened.pretrained.check_depth()
        strategy = Full() if depth is None else Freeze(check_between("frozen", depth, 0, opened.resolved.n_layers))
        spec = spec_at(opened.resolved, strategy, chosen_rate(opened, options, told))
        limit = options.max_cache_bytes
        settled = train_config(opened.resolved, options.out, spec, save=save, max_cache_bytes=limit)
        atomic.write(options.out / "train.yaml", settled)
        return _train_and_save(spec, opened, Runner(limit), told, save)


def _train_and_save(spec: RunSpec, opened: Opened, runner: Runner, told: Progress, save: Path) -> RunResult:
    cost = units(spec, opened.resolved.n_layers)
    told.note(f"{spec.strategy} at rate {spec.learning_rate:g}, {spec.epochs} epochs, seed {spec.seed}")
    told.start(cost, [label(spec)])
    told.run_started(label(spec))
    result, stack = runner.train(spec, lambda record: Teller(told).epoch(spec, record))
    told.run_finished(label(spec), cost, result.cost.seconds, result.score)
    opened.store.put(result)
    save_model(result, stack, opened.pretrained.tokenizer, save)
    return result
