"""Settings in a file: read for a command, and written beside its results as they were settled.

The names are the flags', with `-` or `_`. Which settings a command has, and what each takes, the caller says.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from frostline.errors import DataError, UsageError, suggestion
from frostline.records.requests import ResolvedComparison, ResolvedCurve
from frostline.records.serial import value_from_json
from frostline.records.specs import RunSpec

# Settings that take one value or a list (also as text with commas, as the flags do), and what each of it is.
_LISTS: Mapping[str, Any] = {
    "frozen": int, "seeds": int, "lrs": float, "keep": float, "strategies": str, "train-sizes": int, "train_sizes": int,
}  # fmt: skip


def read_config(path: Path, kinds: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The settings of a file by the command's own names, each as its flag takes it; all faults are told at once.

    Args:
        path: a TOML, YAML or JSON file.
        kinds: the type of each setting, by name.
        command: whose settings they are.
    """
    settings: dict[str, Any] = {}
    faults: list[str] = []
    names = {name.replace("_", "-"): name for name in kinds}
    for given, value in _read(path):
        name = names.get(given.replace("_", "-"))
        if name is None:
            hint = suggestion(given.replace("_", "-"), names)
            faults.append(f"unknown setting {given!r} of {command}{'.' + hint if hint else ''}")
        elif name in settings:
            faults.append(f"{given!r} is there twice; keep one")
        else:
            try:
                settings[name] = _as_flag(name, value, kinds[name], given)
            except DataError as error:
                settings[name] = None
                faults.append(str(error))
    if faults:
        raise UsageError(f"{path}: {UsageError.together(faults)}")
    return settings


def curve_config(resolved: ResolvedCurve, out: Path, *, max_cache_bytes: int | None = None) -> str:
    """A curve's request with everything settled, as a YAML file that `--config` takes back."""
    settings = _settled(resolved, out, max_cache_bytes) | _of_curve(resolved)
    return _written("curve", settings | {"keep": list(resolved.asked.keep), "protocol": resolved.asked.protocol})


def find_config(
    resolved: ResolvedCurve,
    out: Path,
    *,
    confidence: float,
    budget: float | None = None,
    max_cache_bytes: int | None = None,
) -> str:
    """A search's request with everything settled, as a YAML file that `--config` takes back."""
    settings = _settled(resolved, out, max_cache_bytes) | _of_curve(resolved)
    goal = {"keep": resolved.asked.keep[0], "confidence": confidence}
    return _written("find", settings | goal | ({} if budget is None else {"budget": budget}))


def compare_config(comparison: ResolvedComparison, out: Path, *, max_cache_bytes: int | None = None) -> str:
    """A comparison's request with everything settled, as a YAML file that `--config` takes back."""
    resolved = comparison.settled
    settings = _settled(resolved, out, max_cache_bytes) | _seeds_and_rates(resolved)
    return _written(
        "compare", settings | {"protocol": resolved.asked.protocol, "strategies": list(comparison.strategies)}
    )


def _of_curve(resolved: ResolvedCurve) -> dict[str, object]:
    """What curves and searches have in common, by the flags' names."""
    return {"frozen": list(resolved.depths), "scale": resolved.asked.scale} | _seeds_and_rates(resolved)


def _seeds_and_rates(resolved: ResolvedCurve) -> dict[str, object]:
    rates = list(resolved.asked.learning_rates)
    return {"seeds": list(resolved.asked.seeds)} | ({"lr": rates[0]} if len(rates) == 1 else {"lrs": rates})


def train_config(resolved: ResolvedCurve, out: Path, spec: RunSpec, *, save: Path, max_cache_bytes: int) -> str:
    """The request for one model with everything settled, as a YAML file that `--config` takes back."""
    name, _, depth = spec.strategy.partition(":")
    what: dict[str, object] = {"strategy": spec.strategy}
    if name in ("full", "freeze"):
        what = {"frozen": int(depth) if depth else spec.strategy}
    rate = {"lr": spec.learning_rate} if spec.learning_rate else {}
    settings = _settled(resolved, out, max_cache_bytes) | what | {"seeds": [spec.seed]} | rate
    return _written("train", settings | {"save": str(save)})


def _settled(resolved: ResolvedCurve, out: Path, max_cache_bytes: int | None) -> dict[str, object]:
    """What all requests have in common, by the flags' names."""
    base, task = resolved.base, resolved.base.task
    of_task = ("data", "dev", "dev_share", "text", "text_pair", "label", "kind", "metric", "max_train", "max_dev")
    of_run = ("epochs", "batch_size", "max_length", "frozen_dropout", "threads", "device")
    return (
        {"model": resolved.asked.model, "task": task.source or task.name, "out": str(out)}
        | {name.replace("_", "-"): getattr(task, name) for name in of_task if getattr(task, name) is not None}
        | {name.replace("_", "-"): getattr(base, name) for name in of_run}
        | {"no-cache": not resolved.is_cached, "cache-dtype": resolved.asked.cache_dtype}
        | {"varlen": base.layout == "varlen"}
        | ({} if max_cache_bytes is None else {"cache-max-gb": max_cache_bytes / 2**30})
    )


def _written(command: str, settings: dict[str, object]) -> str:
    listed = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None, width=1000)
    return f"# `frostline {command}` with everything settled; `frostline {command} --config` takes it back.\n{listed}"


def _read(path: Path) -> list[tuple[str, Any]]:
    """Names and values of a file, in its order."""
    readers: dict[str, Callable[[str], Any]] = {
        ".toml": lambda text: list(tomllib.loads(text).items()),
        ".yaml": _yaml_pairs,
        ".yml": _yaml_pairs,
        ".json": lambda text: json.loads(text, object_pairs_hook=list),
    }
    if path.suffix.lower() not in readers:
        raise UsageError(f"--config {path} ends in {path.suffix!r}; known: {', '.join(readers)}")
    try:
        pairs = readers[path.suffix.lower()](path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise DataError(f"not YAML: {error.problem}", path=path, line=line) from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise DataError(f"not {path.suffix[1:].upper()}: {error}", path=path) from error
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise DataError("it should hold settings by name, one a line", path=path)
    return [(str(name), value) for name, value in pairs]


def _yaml_pairs(text: str) -> Any:
    """Names and values of a YAML mapping; a mapping as such would keep the last of equal names in silence."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            return [] if node is None else None
        return [(loader.construct_object(k, deep=True), loader.construct_object(v, deep=True)) for k, v in node.value]
    finally:
        loader.dispose()


def _as_flag(name: str, value: object, kind: Any, given: str) -> Any:
    """The value as the command's function takes it; a DataError that says what it should be."""
    if value is None:
        return None
    if name not in _LISTS or kind is float:  # a search takes one share to keep, a curve several
        if kind is str and not isinstance(value, str):
            raise DataError(f"{given} is {value!r:.80}; it should be text: put it in quotes")
        return value_from_json(kind, _number(value) if kind is float else value, given)
    items = value if isinstance(value, list) else value.split(",") if isinstance(value, str) else [value]
    if not items:
        raise DataError(f"{given} is an empty list; give at least one")
    plain = [_list_item(_LISTS[name], item, given) for item in items]
    if name == "keep":
        return plain
    # One seed in a list is that seed; on its own it would be how many.
    return ",".join(map(str, plain)) + ("," if name == "seeds" and isinstance(value, list) else "")


def _list_item(kind: Any, item: object, given: str) -> Any:
    if kind is int and isinstance(item, str):
        return item
    return value_from_json(kind, _number(item), given)


def _number(value: object) -> object:
    """YAML takes 1e-5, which has no dot, for text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value
