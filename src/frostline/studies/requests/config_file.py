"""Config files: read for a command, and written beside its results with every default filled in.

The names are the flags', with `-` or `_`.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

import yaml

from frostline.errors import DataError, UsageError, suggestion
from frostline.records.requests import ResolvedRequest
from frostline.records.serial import check_depth, value_from_json
from frostline.records.specs import RunSpec
from frostline.studies.requests.setting import Setting

_MAX_BYTES = 2**20
_OF_TASK = ("data", "dev", "dev_share", "text", "text_pair", "label", "kind", "metric", "max_train", "max_dev")
_OF_RUN = ("max_length", "threads", "device", "master_seed")
_OF_TRAINING = ("epochs", "batch_size", "frozen_dropout", "warmup_share", "weight_decay", "clip_norm", "precision")


def read_config(path: Path, known: Mapping[str, Setting], command: str) -> dict[str, Any]:
    """The settings of a file by the command's own names, each as its flag takes it; all faults in one UsageError.

    Args:
        path: a TOML, YAML or JSON file.
        known: the command's settings by the parameter that takes them, for example `no_cache`.
        command: for the message.
    """
    settings: dict[str, Any] = {}
    faults: list[str] = []
    for given, value in _read(path):
        name = given.replace("-", "_")
        if name not in known:
            hint = suggestion(given.replace("_", "-"), [one.replace("_", "-") for one in known])
            faults.append(f"unknown setting {given!r} of {command}{'.' + hint if hint else ''}")
        elif name in settings:
            faults.append(f"{given!r} is there twice; keep one")
        else:
            settings[name] = None
            try:
                settings[name] = _as_flag(known[name], value, given)
            except DataError as error:
                faults.append(str(error))
    if faults:
        raise UsageError(f"{path}: {UsageError.together(faults)}")
    return settings


def resolved_config(
    command: str,
    resolved: ResolvedRequest,
    own: Mapping[str, object],
    out: Path,
    max_cache_bytes: int | None = None,
    *,
    trains: bool = True,
) -> str:
    """A resolved request as a YAML file that `--config` reads.

    Args:
        command: whose file it is.
        resolved: what all commands have in common.
        own: the command's own settings, by flag name.
        out: the output folder.
        max_cache_bytes: None where results are only read.
        trains: whether the command has settings of training.
    """
    limit = {} if max_cache_bytes is None else {"cache-max-gb": max_cache_bytes / 2**30}
    settings = _shared(resolved, out) | (_training(resolved.base) if trains else {}) | limit | dict(own)
    listed = yaml.safe_dump(settings, sort_keys=False, default_flow_style=None, width=1000)
    return f"# `frostline {command}` with every default filled in; run it again with `--config`.\n{listed}"


def depth_settings(resolved: ResolvedRequest) -> dict[str, object]:
    """The settings that curves and searches have in common, by flag name."""
    goal = {"scale": resolved.request.scale, "confidence": resolved.request.confidence}
    return axis_settings(resolved) | goal | seed_settings(resolved)


def axis_settings(resolved: ResolvedRequest) -> dict[str, object]:
    """What varies, by flag name."""
    if resolved.axis is None:
        return {"frozen": list(resolved.depths)}
    found: dict[str, object] = {"axis": resolved.axis.name, "axis-values": list(resolved.axis.values)}
    return found | {"rank": resolved.request.rank} if resolved.axis.name == "heads" else found


def seed_settings(resolved: ResolvedRequest) -> dict[str, object]:
    """Seeds and learning rates, by flag name."""
    rates = list(resolved.request.learning_rates)
    return {"seeds": list(resolved.request.seeds)} | ({"lr": rates[0]} if len(rates) == 1 else {"lrs": rates})


def train_settings(spec: RunSpec, places: Mapping[str, object]) -> dict[str, object]:
    """The settings of one trained model, by flag name; `places` are those that say where it goes."""
    name, _, depth = spec.strategy.partition(":")
    what: dict[str, object] = {"strategy": spec.strategy}
    if name in ("full", "freeze"):
        what = {"frozen": int(depth) if depth else spec.strategy}
    rate = {"lr": spec.learning_rate} if spec.learning_rate else {}
    return what | {"seeds": [spec.seed]} | rate | dict(places)


def _shared(resolved: ResolvedRequest, out: Path) -> dict[str, object]:
    """The settings that all commands have in common, by flag name."""
    base, task, request = resolved.base, resolved.base.task, resolved.request
    return (
        {"model": request.model, "task": task.source or task.name, "out": str(out)}
        | {name.replace("_", "-"): getattr(task, name) for name in _OF_TASK if getattr(task, name) is not None}
        | {name.replace("_", "-"): getattr(base, name) for name in _OF_RUN}
        | {"no-cache": not resolved.is_cached, "cache-dtype": request.cache_dtype}
        | {"varlen": base.layout == "varlen"}
    )


def _training(base: RunSpec) -> dict[str, object]:
    """The settings of all commands that train, by flag name."""
    shared = {name.replace("_", "-"): getattr(base, name) for name in _OF_TRAINING}
    return shared | ({} if base.micro_batch_size is None else {"micro-batch-size": base.micro_batch_size})


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
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise DataError(f"larger than {_MAX_BYTES:,} bytes; a config file holds settings only", path=path)
        pairs = readers[path.suffix.lower()](content.decode("utf-8-sig"))
        check_depth(pairs, path)
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise DataError(f"not YAML: {error.problem}", path=path, line=line) from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise DataError(f"not {path.suffix[1:].upper()}: {error}", path=path) from error
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise DataError("it should hold settings by name, one per line", path=path)
    return [(str(name), value) for name, value in pairs]


@final
class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML without aliases: a few lines of them stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next value."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem="aliases are not read; write the value out", problem_mark=mark)
        return super().compose_node(parent, index)


def _yaml_pairs(text: str) -> Any:
    """Names and values of a YAML mapping. Loading it as a mapping would silently keep the last of two equal names."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            return [] if node is None else None
        return [(loader.construct_object(k, deep=True), loader.construct_object(v, deep=True)) for k, v in node.value]
    finally:
        loader.dispose()


def _as_flag(setting: Setting, value: object, given: str) -> Any:
    """The value as the flag takes it; a DataError that says what it should be."""
    if value is None:
        return None
    if setting.items is None:
        kind = str if setting.type is Path else setting.type
        if kind is str and not isinstance(value, str):
            raise DataError(f"{given} is {value!r:.80}; it should be text: put it in quotes")
        return value_from_json(kind, _number(value) if kind is float else value, given)
    items = value if isinstance(value, list) else value.split(",") if isinstance(value, str) else [value]
    if not items:
        raise DataError(f"{given} is an empty list; give at least one")
    plain = [_list_item(setting.items, item, given) for item in items]
    if setting.type is not str:  # a flag that is repeated
        return plain
    # One seed in a list is that seed; on its own it would be the number of seeds.
    return ",".join(map(str, plain)) + ("," if setting.name == "seeds" and isinstance(value, list) else "")


def _list_item(kind: Any, item: object, given: str) -> Any:
    if kind is int and isinstance(item, str):
        return item
    return value_from_json(kind, _number(item), given)


def _number(value: object) -> object:
    """YAML reads 1e-5, which has no dot, as text."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value
