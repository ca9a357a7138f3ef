"""Settings by their names → a request, every one of them checked: what Python users give no command line has read."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from frostline import tasks
from frostline.errors import DataError, UsageError, check_choice, suggestion
from frostline.execution.sweep import Rerun, SweepOptions
from frostline.execution.trackers import TRACKERS
from frostline.records.requests import CurveSpec
from frostline.records.specs import TaskSpec
from frostline.saving.pretrained import write_pretrained
from frostline.storage import atomic
from frostline.studies.protocols import TUNED_RATES
from frostline.studies.requests.resolve import check, default_out

# Far above all that is sensible; a slip of the keyboard should not fill the memory.
_MOST_LAYERS, _MOST_SEEDS = 10_000, 10_000


def make_request(model: Any, task: Any, settings: dict[str, Any]) -> tuple[CurveSpec, SweepOptions]:
    """A request and how to do it, from flags by their names; settings that are None are left at their defaults."""
    given = {name: without_numpy(value) for name, value in settings.items() if value is not None}
    tokenizer = given.pop("tokenizer", None)
    if "lr" in given and "lrs" in given:
        raise UsageError("lr and lrs are both given; lr is one rate without a search, lrs are those to search")
    if tokenizer is not None and not isinstance(model, PreTrainedModel):
        raise UsageError(f"tokenizer is for a model object; that of {model} is found by its name")
    if "name" in given and isinstance(task, str | Path):
        raise UsageError(f"name is for rows that Python holds; the task {task} has its own")
    if "train_sizes" in given:
        raise UsageError("train_sizes make several curves: call frostline.grid(…, train_sizes=…)")
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


def read_strategies(value: object) -> tuple[str, ...]:
    """`"full,freeze:3"` → those strategies, as they are written."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"strategies are {value!r:.80}; write them with commas, e.g. full,freeze:3,lora:8")
    written = tuple(name.strip() for name in names if name.strip())
    if not written:
        raise UsageError("no strategies; give at least one, e.g. full,freeze:3,lora:8")
    return written


def read_sizes(value: object) -> tuple[int, ...]:
    """`"50,100"` → those numbers of training rows, ascending."""
    if isinstance(value, str):
        value = [_whole("train sizes", part) for part in value.split(",") if part.strip()]
    sizes = _whole_numbers("train sizes", [value] if isinstance(value, int) else value)
    if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise UsageError(f"train sizes are {', '.join(map(str, sizes)) or 'none'}; give numbers of rows, each once")
    return tuple(sorted(sizes))


def read_one_seed(value: str | int | Iterable[int]) -> tuple[int, ...]:
    """`"3,"` → 3, in a tuple; a UsageError where it is not one seed."""
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


def without_numpy(value: Any) -> Any:
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


def read_folder(name: str, value: object) -> Path:
    """A folder's path, or a UsageError."""
    if not isinstance(value, str | Path) or str(value) == "" or "\0" in str(value):
        raise UsageError(f"{name} is {value!r:.80}; give the name of a folder")
    return Path(value)


def _dev(value: object) -> str:
    if not isinstance(value, str | Path):
        advice = 'give a file or a split, and rows together with those to train on: {"train": …, "dev": …}'
        raise UsageError(f"dev is a {type(value).__name__}; {advice}")
    return str(value)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.80}; give True or False")
    return value


def _rerun(value: object) -> str:
    return check_choice("rerun", str(value), typing.get_args(Rerun))


def _trackers(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"track is {value!r:.80}; give names of trackers: {', '.join(TRACKERS)}")
    return tuple(check_choice("tracker", name.strip(), TRACKERS) for name in names)


def read_number_or_none(name: str, value: object) -> float | None:
    """A number, None where it is left open, or a UsageError."""
    return None if value is None else read_number(name, value)


def read_number(name: str, value: object) -> float:
    """A number, or a UsageError."""
    value = without_numpy(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.80}; give a number")
    return float(value)


def _names(record: type[Any]) -> list[str]:
    return [field.name for field in dataclasses.fields(record)]


_RENAMED = {
    "lr": "learning_rates",
    "lrs": "learning_rates",
    "workers": "n_workers",
    "cache_max_gb": "max_cache_bytes",
    "track": "trackers",
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "frozen": read_depths,
    "seeds": read_seeds,
    "lr": _one_rate,
    "lrs": read_rates,
    "keep": read_shares,
    "out": functools.partial(read_folder, "out"),
    "dev": _dev,
    "cache_max_gb": _cache_bytes,
    "workers": _n_workers,
    "rerun": _rerun,
    "probe": functools.partial(_switch, "probe"),
    "track": _trackers,
}

_SETTINGS = {*_names(TaskSpec), *_names(CurveSpec), *_READERS} - {"source", "model", "task", "learning_rates"}
