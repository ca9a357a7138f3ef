"""Reads the values of settings: text as a flag takes it, or what Python users pass. Each is checked here."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final, get_args

import numpy as np

from frostline.errors import UsageError, check_choice
from frostline.execution.trackers import TRACKERS
from frostline.records.requests import Place, Rerun

# Far above anything sensible: a slip of the keyboard should not fill the memory.
_MOST_LAYERS, _MOST_SEEDS = 10_000, 10_000


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


def read_axis_values(value: str | int | Iterable[int]) -> tuple[int, ...]:
    """`"6,12"` → 6, 12, each once."""
    if isinstance(value, str):
        value = [_whole("axis values", part) for part in value.split(",") if part.strip()]
    values = _whole_numbers("axis values", [value] if isinstance(value, int) else value)
    if not values or min(values) < 0 or len(set(values)) < len(values):
        raise UsageError(f"axis values are {', '.join(map(str, values)) or 'none'}; give whole numbers, each once")
    return values


def read_seeds(value: str | int | Iterable[int]) -> tuple[int, ...]:
    """`"5"` → 0, 1, 2, 3, 4; `"0,7"` → 0, 7."""
    if isinstance(value, str):
        parts = [_whole("seeds", part) for part in value.split(",") if part.strip()]
        value = parts if "," in value else parts[0] if parts else 0
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= _MOST_SEEDS:
            raise UsageError(f"seeds is {value}; give how many (at least 1, at most {_MOST_SEEDS}), or a list: 0,1,2")
        return tuple(range(value))
    return _whole_numbers("seeds", value)


def read_one_seed(value: str | int | Iterable[int]) -> tuple[int, ...]:
    """`"3,"` → 3, in a tuple; a UsageError where it is not one seed."""
    seeds = read_seeds(value)
    if len(seeds) != 1:
        raise UsageError(
            f"train makes one model; seeds is {value!r:.80}, which is {len(seeds)} seeds; "
            "give one, with a comma after it: for example --seeds 3, for seed 3"
        )
    return seeds


def read_rates(value: str | float | Iterable[float]) -> tuple[float, ...]:
    """`"1e-5,2e-5"` → those rates."""
    return _numbers("learning rates", value)


def read_one_rate(value: str | float | Iterable[float]) -> tuple[float, ...]:
    """One rate, in a tuple."""
    rates = read_rates(value)
    if len(rates) != 1:
        raise UsageError(f"lr is {value!r}; give one rate, or several to search as lrs")
    return rates


def read_shares(value: str | float | Iterable[float]) -> tuple[float, ...]:
    """`"0.9,0.95"` → those shares."""
    return _numbers("shares to keep", value)


def read_strategies(value: object) -> tuple[str, ...]:
    """`"full,freeze:3"` → those strategies, as they are written."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"strategies is {value!r:.80}; separate them by commas, for example full,freeze:3,lora:8")
    written = tuple(name.strip() for name in names if name.strip())
    if not written:
        raise UsageError("no strategies; give at least one, for example full,freeze:3,lora:8")
    return written


def read_sizes(value: object, name: str = "train sizes") -> tuple[int, ...]:
    """`"50,100"` → those numbers of training rows, ascending."""
    if isinstance(value, str):
        value = [_whole(name, part) for part in value.split(",") if part.strip()]
    sizes = _whole_numbers(name, [value] if isinstance(value, int) else value)
    if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise UsageError(f"{name} are {', '.join(map(str, sizes)) or 'none'}; give numbers of rows, each once")
    return tuple(sorted(sizes))


def read_folder(name: str, value: object) -> Path:
    """A folder's path, or a UsageError."""
    if not isinstance(value, str | Path) or str(value) == "" or "\0" in str(value):
        raise UsageError(f"{name} is {value!r:.80}; give the name of a folder")
    return Path(value)


def read_number(name: str, value: object) -> float:
    """A number, or a UsageError."""
    value = without_numpy(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.80}; give a number")
    return float(value)


@final
@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most to spend on a search."""

    amount: float
    unit: Literal["", "min", "h"] = ""
    """of wall time; empty: full-run equivalents"""

    def __str__(self) -> str:
        return f"{self.amount:g}{self.unit}"

    @property
    def seconds(self) -> float:
        """Of wall time."""
        return self.amount * (3600.0 if self.unit == "h" else 60.0)


def read_budget(value: object) -> Budget:
    """`12` full-run equivalents, `30min` or `2h`."""
    found = re.fullmatch(r"\s*([0-9.e+-]+)\s*(min|h)?\s*", str(without_numpy(value)))
    try:
        if found is not None and not isinstance(value, bool):
            return Budget(amount=float(found[1]), unit="min" if found[2] == "min" else "h" if found[2] else "")
    except ValueError:
        found = None
    raise UsageError(f"budget is {value!r:.80}; give full-run equivalents, for example 12, or a time: 30min, 2h")


def without_numpy(value: Any) -> Any:
    """A single number of numpy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value


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
        raise TypeError(f"{value} is not a number")
    return value


def _whole(name: str, value: object) -> int:
    if not str(value).strip().isdecimal():
        raise UsageError(f"{name} is {value!r}; write whole numbers from 0")
    return int(str(value))


def _cache_bytes(value: float) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise UsageError(f"cache_max_gb is {value!r:.80}; it must be at least 0 (0: no cache on disk) and finite")
    return int(value * 2**30)


def _n_workers(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"workers is {value!r:.80}; give a whole number")
    return value


def _amount(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise UsageError(f"{name} is {value!r:.80}; give a number, at least 0")
    return float(value)


def _dev(value: object) -> str:
    if not isinstance(value, str | Path):
        advice = 'give a file or a split, or pass the rows together: {"train": …, "dev": …}'
        raise UsageError(f"dev is a {type(value).__name__}; {advice}")
    return str(value)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {value!r:.80}; give True or False")
    return value


def _trackers(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"track is {value!r:.80}; give names of trackers: {', '.join(TRACKERS)}")
    return tuple(check_choice("tracker", name.strip(), TRACKERS) for name in names)


READERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "frozen": ("frozen", read_depths),
    "axis_values": ("axis_values", read_axis_values),
    "seeds": ("seeds", read_seeds),
    "lr": ("learning_rates", read_one_rate),
    "lrs": ("learning_rates", read_rates),
    "keep": ("keep", read_shares),
    "out": ("out", lambda value: read_folder("out", value)),
    "dev": ("dev", _dev),
    "cache_max_gb": ("max_cache_bytes", _cache_bytes),
    "workers": ("n_workers", _n_workers),
    "rerun": ("rerun", lambda value: check_choice("rerun", str(value), get_args(Rerun))),
    "probe": ("probe", lambda value: _switch("probe", value)),
    "same_environment": ("same_environment", lambda value: _switch("same_environment", value)),
    "track": ("trackers", _trackers),
    "on": ("on", lambda value: check_choice("on", str(value), get_args(Place))),
    "cpus_per_run": ("cpus_per_run", lambda value: _amount("cpus_per_run", value)),
    "gpus_per_run": ("gpus_per_run", lambda value: _amount("gpus_per_run", value)),
    "memory_per_run": ("memory_per_run", lambda value: int(_amount("memory_per_run", value) * 2**30)),
    "no_wait": ("no_wait", lambda value: _switch("no_wait", value)),
}
"""By setting: the record's field that it fills, and how its value is read."""
