"""From settings to a request: every setting is read and checked, and objects from Python become files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from frostline import tasks
from frostline.errors import DataError, UsageError, suggestion
from frostline.records.requests import RunOptions, StudyRequest
from frostline.records.specs import Protocol, TaskSpec
from frostline.storage import atomic
from frostline.studies.planning.protocols import TUNED_RATES
from frostline.studies.requests.setting import settings_of
from frostline.studies.requests.values import READERS, without_numpy

MOST_RATE = 1.0
"""A learning rate above this one is a slip of the keyboard: AdamW would move every weight by more than 1 per step."""


@final
@dataclass(frozen=True)
class Parsed:
    """What the settings of a command say."""

    request: StudyRequest
    options: RunOptions
    own: Mapping[str, Any]
    """settings that are the command's own, unread: `confidence`, `strategies`, `save`, …"""


def parse(model: Any, task: Any, settings: Mapping[str, Any], declared: Any, *, protocol: Protocol = "paper") -> Parsed:
    """The request and the options of a command, from its settings; settings that are None were not given.

    Args:
        model: a Hub name, a folder, or a transformers model.
        task: a known task, a file, a folder, a Hub data set, or rows.
        settings: by name.
        declared: the class in `settings.py` that declares them.
        protocol: the command's own default.
    """
    given = {name: without_numpy(value) for name, value in settings.items() if value is not None}
    _check_names(given, declared)
    _check_together(given, model, task)
    read = {}
    for name in given.keys() & READERS.keys():
        field, reader = READERS[name]
        read[field] = reader(given[name])
    plain = {name: value for name, value in given.items() if name not in READERS} | read
    if plain.setdefault("protocol", protocol) == "tuned":
        plain.setdefault("learning_rates", TUNED_RATES)
    of_task, of_request, of_options = (
        {field.name: plain[field.name] for field in dataclasses.fields(record) if field.name in plain}
        for record in (TaskSpec, StudyRequest, RunOptions)
    )
    request = _typed(StudyRequest(model=_called(model), task=_task_spec(task, of_task), **of_request))
    check(request)
    options = RunOptions(**{"out": default_out(request.model, request.task.name)} | of_options)
    own = {name: value for name, value in plain.items() if name not in {**of_task, **of_request, **of_options}}
    return Parsed(_with_files(request, model, own.pop("tokenizer", None), task, options.out), options, own)


def _check_names(given: Mapping[str, Any], declared: Any) -> None:
    known = settings_of(declared)
    for name in given:
        if name not in known:
            raise UsageError(f"unknown setting {name!r}.{_elsewhere(name)}{suggestion(name, sorted(known))}")


def _elsewhere(name: str) -> str:
    """Where a setting belongs that this command does not have."""
    places = {
        "train_sizes": " Train sizes make several curves: call frostline.sizes(…, train_sizes=…).",
        "probe": " probe is for curves.",
        "frozen": " frozen is for curves and searches; a comparison takes strategies, for example freeze:3.",
        "keep": " keep is for curves and searches.",
        "scale": " scale is for curves and searches.",
    }
    return places.get(name, "")


def _check_together(given: Mapping[str, Any], model: Any, task: Any) -> None:
    """Raises where settings contradict each other or what they are for."""
    if "lr" in given and "lrs" in given:
        raise UsageError("lr and lrs are both given; lr is one rate without a search, lrs are rates to search")
    if given.get("probe") and given.get("axis", "depth") != "depth":
        raise UsageError(f"probe shows every layer beside its depth; axis is {given['axis']}: leave one of them out")
    if "tokenizer" in given and isinstance(model, str | Path):
        raise UsageError(f"tokenizer is for a model object; the tokenizer of {model} is found by its name")
    if "name" in given and isinstance(task, str | Path):
        raise UsageError(f"name is for rows that Python holds; the task {task} has its own name")


def _task_spec(task: Any, of_task: dict[str, Any]) -> TaskSpec:
    """The spec of a task; for rows in memory, still without their source."""
    if isinstance(task, str | Path):
        return tasks.parse(str(task), **of_task)
    return TaskSpec(**{"name": "data", "source": None, "data": None, "dev": None} | of_task)


def _with_files(request: StudyRequest, model: Any, tokenizer: Any, task: Any, out: Path) -> StudyRequest:
    """The request with rows and model objects written to files in the output folder: worker processes read files."""
    with atomic.explained(str(out)):
        if not isinstance(task, str | Path):
            rows = tasks.write_rows(task, out / "data", request.task.name)
            request = request.replace(task=request.task.replace(source=str(rows)))
        if not isinstance(model, str | Path):
            from frostline.saving.pretrained import write_pretrained

            request = request.replace(model=str(write_pretrained(model, tokenizer, out / "model")))
    return request


def _typed(request: StudyRequest) -> StudyRequest:
    """The request, if every setting has its type: no command line has looked at what Python users pass."""
    try:
        return StudyRequest.from_json(request.to_json())
    except DataError as error:
        raise UsageError(str(error).replace("StudyRequest.", "")) from error


def _called(model: Any) -> str:
    """What a model is called in the name of a folder."""
    if isinstance(model, str | Path):
        return str(model)
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise UsageError(f"the model is a {type(model).__name__}; give a Hub name, a folder, or a transformers model")
    return Path(model.name_or_path).name or str(model.config.model_type)


def default_out(model: str, task: str) -> Path:
    """`runs/<model>-<task>`."""
    return Path("runs") / f"{Path(model).resolve().name if Path(model).is_dir() else model.replace('/', '--')}-{task}"


def check(request: StudyRequest) -> None:
    """Raises one UsageError with every value that is out of range."""
    faults = [
        *_outside("epochs", [] if request.epochs is None else [request.epochs], least=1),
        *_outside("batch_size", [request.batch_size], least=1),
        *_outside("micro_batch_size", [] if request.micro_batch_size is None else [request.micro_batch_size], least=1),
        *_outside("max_length", [request.max_length], least=3),
        *_outside("threads", [request.threads], least=1, most=1024),
        *_outside("seeds", request.seeds, least=0),
        *_outside("master_seed", [request.master_seed], least=0),
        *_outside("max_seeds", [request.max_seeds] if request.until_settled else [], least=len(request.seeds)),
        *_too_few_to_settle(request),
        *_wrong("learning rate", request.learning_rates, lambda rate: 0 < rate <= MOST_RATE, "above 0 and at most 1"),
        *_wrong("confidence", [request.confidence], lambda sure: 0.5 <= sure < 1, "at least 0.5 and below 1"),
        *_wrong("warmup_share", [request.warmup_share], lambda share: 0 <= share <= 1, "between 0 and 1"),
        *_wrong("weight_decay", [request.weight_decay], lambda decay: 0 <= decay < math.inf, "at least 0"),
        *_wrong("clip_norm", [request.clip_norm], lambda norm: 0 < norm < math.inf, "above 0"),
        *_wrong_shares(request.keep),
    ]
    faults += _wrong_axis(request)
    if request.line_search == "race" and (request.protocol == "tuned" or len(request.learning_rates) == 1):
        why = "protocol is tuned, which has races of its own" if request.protocol == "tuned" else "one rate is given"
        faults.append(f"line_search race is for several rates under the protocol paper; {why}: leave it out")
    for name, values in (("seeds", request.seeds), ("learning rates", request.learning_rates), ("keep", request.keep)):
        if not values:
            faults.append(f"no {name}; give at least one")
        if len(set(values)) < len(values):
            faults.append(f"{name} {', '.join(map(str, values))}: give each only once")
    if request.varlen and request.device not in ("auto", "cuda"):
        faults.append(f"--varlen is for CUDA; the device is {request.device}: leave it out")
    if faults:
        raise UsageError.together(faults)


def _wrong_axis(request: StudyRequest) -> list[str]:
    """Settings of one axis that are given with another."""
    faults = []
    if request.axis == "depth" and request.axis_values is not None:
        faults.append("axis values are for another axis than depth; the depths are given by frozen")
    if request.axis != "depth" and request.frozen is not None:
        faults.append(f"frozen is for the axis depth; axis is {request.axis}: use axis_values")
    if request.axis != "heads" and request.rank != "importance":
        faults.append(f"rank is for the axis heads; axis is {request.axis}: leave it out")
    return faults


def _too_few_to_settle(request: StudyRequest) -> list[str]:
    """What is wrong with asking for verdicts without two seeds."""
    if not request.until_settled or len(request.seeds) > 1:
        return []
    return ["until_settled needs at least 2 seeds to see how much scores vary; there is 1: use --seeds 2 or more"]


def _outside(name: str, values: Sequence[int], *, least: int, most: int | None = None) -> list[str]:
    below = [f"{name} is {value}; it must be at least {least}" for value in values if value < least]
    above = [f"{name} is {value}; it must be at most {most}" for value in values if most is not None and value > most]
    return below + above


def _wrong(name: str, values: Sequence[float], is_right: Callable[[float], bool], wanted: str) -> list[str]:
    return [f"{name} is {value:g}; it must be {wanted}" for value in values if not is_right(value)]


def _wrong_shares(shares: Sequence[float]) -> list[str]:
    wrong = [share for share in shares if not 0 < share <= 1]
    hints = {share: f" Did you mean {share / 100:g}?" if 2 <= share <= 100 else "" for share in wrong}
    return [f"keep is {share:g}; it must be above 0 and at most 1.{hints[share]}" for share in wrong]


def depths_of(request: StudyRequest, n_layers: int) -> tuple[int, ...]:
    """The depths asked for, ascending; by default from half of the layers to all, as in the paper."""
    if request.axis != "depth":
        return ()
    if request.frozen is None:
        return tuple(range(n_layers // 2, n_layers + 1))
    depths = tuple(sorted(set(request.frozen)))
    wrong = [depth for depth in depths if not 0 <= depth <= n_layers]
    if wrong or not depths:
        raise UsageError(f"--frozen {_listed(wrong)}: the model has {n_layers} layers; use 0 to {n_layers}")
    return depths


def _listed(depths: Sequence[int]) -> str:
    """Depths in short: three of them, or the first and the last."""
    return ", ".join(map(str, depths)) if len(depths) <= 3 else f"{depths[0]} to {depths[-1]}"
