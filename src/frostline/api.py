"""What Python users call: one function a command, with the command's flags as keyword arguments."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, final

import numpy as np
from rich.console import Console
from transformers import PreTrainedModel

from frostline import atomic, tasks
from frostline.analysis import Curve, Finding
from frostline.config import train_config
from frostline.errors import DataError, UsageError, check_between, check_choice, suggestion
from frostline.estimate import Estimate, estimate
from frostline.export import check_new_folder, save_model, write_pretrained
from frostline.protocols import TUNED_RATES, spec_at, spec_at_depth, units
from frostline.records import CurveSpec, RunResult, RunSpec, TaskSpec
from frostline.report.files import write_curve, write_report
from frostline.report.progress import Progress, make_progress
from frostline.resolve import Opened, check, default_out, open_curve
from frostline.run import Runner
from frostline.search import Goal, run_find
from frostline.strategies import Freeze, Full
from frostline.sweep import Rerun, SweepOptions, Teller, chosen_rate, label, run_curve, workers

# Far above all that is sensible; a slip of the keyboard should not fill the memory.
_MOST_LAYERS, _MOST_SEEDS = 10_000, 10_000


@final
class Study(Curve):
    """A finished curve that can write itself down."""

    def report(self, path: str | Path) -> Path:
        """Writes the curve in the format of the file's ending: `.md`, `.svg` or `.json`."""
        return write_report(self, Path(path))


def curve(model: Any, task: Any, *, progress: Progress | None = None, **settings: Any) -> Study:
    """Line search, full model, every depth and seed; `curve.json`, `.md` and `.svg` in the out folder.

    Args:
        model: a Hub name, a folder, or a transformers model; with `tokenizer=` where its own is not found by its name.
        task: a known task, a file, folder or Hub data set, or the rows: a pandas DataFrame, a `datasets.Dataset`, a
            `DatasetDict` or a dict of train and dev. Rows are kept in the out folder; the task is called `name`.
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names: `out`, `data`, `seeds=5`, `lr`, `frozen="0,6-12"`, ….
    """
    request, options = make_request(model, task, settings)
    with progress or make_progress(Console(stderr=True)) as told:
        found = run_curve(request, options, told)
    write_curve(found, options.out)
    return Study(**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)})


@final
class Found(Finding):
    """A finished search that can write itself down."""

    def report(self, path: str | Path) -> Path:
        """Writes what was found in the format of the file's ending: `.md`, `.svg` or `.json`."""
        return write_report(self, Path(path))


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
    """The fewest trained layers that keep a share of the full score; `find.json`, `.md` and `.svg` in the out folder.

    Args:
        model: a Hub name, a folder, or a transformers model, as for `curve`.
        task: a known task, a file, folder or Hub data set, or the rows, as for `curve`.
        save: a new folder for the answer's model, as `train` saves one.
        confidence: how sure the answer must be.
        budget: for all runs together, in full runs; by default half of what the whole curve takes.
        progress: who is told how it gets on; standard error by default.
        settings: the command's flags by their names: `keep=0.9`, `scale`, `out`, `seeds=5`, ….
    """
    goal = Goal(confidence=_one_number("confidence", confidence), budget=_or_none("budget", budget))
    request, options = make_request(model, task, settings)
    folder = None if save is None else _folder("save", save)
    if folder is not None:
        check_new_folder(folder)
    with progress or make_progress(Console(stderr=True)) as told:
        found = run_find(request, goal, options, told)
        write_curve(found, options.out, "find")
        if folder is not None:
            opened = open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes, command="find")
            spec = spec_at_depth(opened.resolved, found.answer.n_frozen, found.learning_rate)
            _train_and_save(spec, opened, Runner(options.max_cache_bytes), told, folder)
    return Found(**{field.name: getattr(found, field.name) for field in dataclasses.fields(found)})


def _or_none(name: str, value: object) -> float | None:
    return None if value is None else _one_number(name, value)


def _one_number(name: str, value: object) -> float:
    value = _without_numpy(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.80}; give a number")
    return float(value)


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
        settings["seeds"] = _one_seed(_without_numpy(settings["seeds"]))
    if str(frozen) != "full" and not str(frozen).isdecimal():
        raise UsageError(f"frozen is {frozen!r}; give how many layers to freeze, or full")
    depth = None if str(frozen) == "full" else int(frozen)
    save = _folder("save", save)
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


def make_request(model: Any, task: Any, settings: dict[str, Any]) -> tuple[CurveSpec, SweepOptions]:
    """A request and how to do it, from flags by their names; settings that are None are left at their defaults."""
    given = {name: _without_numpy(value) for name, value in settings.items() if value is not None}
    tokenizer = given.pop("tokenizer", None)
    if "lr" in given and "lrs" in given:
        raise UsageError("lr and lrs are both given; lr is one rate without a search, lrs are those to search")
    if tokenizer is not None and not isinstance(model, PreTrainedModel):
        raise UsageError(f"tokenizer is for a model object; that of {model} is found by its name")
    if "name" in given and isinstance(task, str | Path):
        raise UsageError(f"name is for rows that Python holds; the task {task} has its own")
    if unknown := [name for name in given if name not in _SETTINGS]:
        raise UsageError(f"unknown setting {unknown[0]!r}.{suggestion(unknown[0], sorted(_SETTINGS))}")
    plain = {_RENAMED.get(name, name): _READERS.get(name, lambda value: value)(value) for name, value in given.items()}
    if plain.get("protocol") == "tuned":
        plain.setdefault("learning_rates", TUNED_RATES)
    of_task, of_curve, of_sweep = (
        {name: plain[name] for name in _names(record) if name in plain}
        for record in (TaskSpec, CurveSpec, SweepOptions)
    )
    request = _typed(CurveSpec(model=_called(model), task=_task_spec(task, of_task), **of_curve))
    check(request)
    options = SweepOptions(**{"out": default_out(request.model, request.task.name)} | of_sweep)
    return _with_files(request, model, tokenizer, task, options.out), options


def _task_spec(task: Any, of_task: dict[str, Any]) -> TaskSpec:
    """The spec of a task; that of rows is still without its source."""
    if isinstance(task, str | Path):
        return tasks.parse(str(task), **of_task)
    return TaskSpec(**{"name": "data", "source": None, "data": None, "dev": None} | of_task)


def _with_files(request: CurveSpec, model: Any, tokenizer: Any, task: Any, out: Path) -> CurveSpec:
    """The request with rows and a model object, where they are given as such, in files below the out folder."""
    with atomic.explained(str(out)):
        if not isinstance(task, str | Path):
            rows = tasks.write_rows(task, out / "data", request.task.name)
            request = request.replace(task=request.task.replace(source=str(rows)))
        if isinstance(model, PreTrainedModel):
            request = request.replace(model=str(write_pretrained(model, tokenizer, out / "model")))
    return request


def _typed(request: CurveSpec) -> CurveSpec:
    """The request, if every setting is of its type: what Python users give no command line has looked at."""
    try:
        return CurveSpec.from_json(request.to_json())
    except DataError as error:
        raise UsageError(str(error).replace("CurveSpec.", "")) from error


def _called(model: Any) -> str:
    """What a model is called in the name of a folder."""
    if isinstance(model, PreTrainedModel):
        return Path(model.name_or_path).name or str(model.config.model_type)
    if not isinstance(model, str | Path):
        raise UsageError(f"the model is a {type(model).__name__}; give a Hub name, a folder, or a transformers model")
    return str(model)


def read_depths(value: str | int | Iterable[int]) -> tuple[int, ...]:
    """`"0,6-12"` → 0, 6, 7, …, 12."""
    if not isinstance(value, str):
        return _whole_numbers("frozen", [value] if isinstance(value, int) else value)
    depths: list[int] = []
    for part in value.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"frozen is {value!r}; write depths like 0,6-12")
        if dash and int(last) < int(first):
            raise UsageError(f"frozen is {value!r}: {part.strip()} runs backwards; write the lower depth first")
        if int(last or first) > _MOST_LAYERS:
            raise UsageError(f"frozen is {value!r}; no model has more than {_MOST_LAYERS} layers")
        depths += range(int(first), int(last or first) + 1)
    return tuple(depths)


def read_seeds(value: str | int | Iterable[int]) -> tuple[int, ...]:
    """`"5"` → 0, 1, 2, 3, 4; `"0,7"` → 0, 7."""
    if isinstance(value, str):
        parts = [_whole("seeds", part) for part in value.split(",") if part.strip()]
        value = parts if "," in value else parts[0] if parts else 0
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= _MOST_SEEDS:
            raise UsageError(f"seeds is {value}; give how many (at least 1, at most {_MOST_SEEDS}), or which: 0,1,2")
        return tuple(range(value))
    return _whole_numbers("seeds", value)


def read_rates(value: str | float | Iterable[float]) -> tuple[float, ...]:
    """`"1e-5,2e-5"` → those rates."""
    return _numbers("learning rates", value)


def read_shares(value: str | float | Iterable[float]) -> tuple[float, ...]:
    """`"0.9,0.95"` → those shares."""
    return _numbers("keep", value)


def _one_rate(value: str | float | Iterable[float]) -> tuple[float, ...]:
    rates = read_rates(value)
    if len(rates) != 1:
        raise UsageError(f"lr is {value!r}; give one rate, or those to search as lrs")
    return rates


def _one_seed(value: str | int | Iterable[int]) -> tuple[int, ...]:
    seeds = read_seeds(value)
    if len(seeds) != 1:
        raise UsageError(
            f"train makes one model; seeds is {value!r:.80}, which is {len(seeds)} of them; "
            "give one, with a comma after it: e.g. --seeds 3, for seed 3"
        )
    return seeds


def _numbers(name: str, value: str | float | Iterable[float]) -> tuple[float, ...]:
    parts: Iterable[Any]
    parts = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int | float) else value
    try:
        return tuple(float(_not_bool(part)) for part in parts)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{name} are {value!r:.80}; write numbers, separated by commas") from error


def _whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(_not_bool(value)) for value in values)
    except TypeError as error:
        raise UsageError(f"{name} is {values!r:.80}; give whole numbers") from error


def _not_bool(value: Any) -> Any:
    """The value, unless it is True or False, which Python takes for 1 and 0."""
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"{value} is no number")
    return value


def _without_numpy(value: Any) -> Any:
    """One number of numpy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


def _whole(name: str, value: object) -> int:
    if not str(value).strip().isdecimal():
        raise UsageError(f"{name} is {value!r}; write whole numbers from 0")
    return int(str(value))


def _cache_bytes(value: float) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise UsageError(f"cache_max_gb is {value!r:.80}; it must be at least 0 (0: nothing is kept) and finite")
    return int(value * 2**30)


def _n_workers(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"workers is {value!r:.80}; give a whole number")
    return value


def _folder(name: str, value: object) -> Path:
    if not isinstance(value, str | Path) or str(value) == "" or "\0" in str(value):
        raise UsageError(f"{name} is {value!r:.80}; give the name of a folder")
    return Path(value)


def _dev(value: object) -> str:
    if not isinstance(value, str | Path):
        advice = 'give a file or a split, and rows together with those to train on: {"train": …, "dev": …}'
        raise UsageError(f"dev is a {type(value).__name__}; {advice}")
    return str(value)


def _rerun(value: object) -> str:
    return check_choice("rerun", str(value), typing.get_args(Rerun))


def _names(record: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(record)]


_RENAMED = {"lr": "learning_rates", "lrs": "learning_rates", "workers": "n_workers", "cache_max_gb": "max_cache_bytes"}

_READERS: dict[str, Callable[[Any], Any]] = {
    "frozen": read_depths,
    "seeds": read_seeds,
    "lr": _one_rate,
    "lrs": read_rates,
    "keep": read_shares,
    "out": functools.partial(_folder, "out"),
    "dev": _dev,
    "cache_max_gb": _cache_bytes,
    "workers": _n_workers,
    "rerun": _rerun,
}

_SETTINGS = {*_names(TaskSpec), *_names(CurveSpec), *_READERS} - {"source", "model", "task", "learning_rates"}
