"""How a number, a name or a missing value is written, in one place for every format.

This module knows no record.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

from frostline.errors import UNPRINTABLE

DASH = "–"
"""written for a missing value"""

_UNPRINTABLE = re.compile(f"{UNPRINTABLE.pattern}+")


def score(value: float | None) -> str:
    """A score: `0.781`, `−0.012`."""
    return DASH if value is None else _signless_zero(f"{value:.3f}")


def difference(value: float | None) -> str:
    """A difference of scores with its sign: `+0.004`, `−0.013`, `0.000`."""
    return DASH if value is None else _signless_zero(f"{value:+.3f}")


def share(value: float | None) -> str:
    """A share with one decimal: `96.8%`."""
    return DASH if value is None else f"{_percent(value)}%"


def rough_share(value: float | None) -> str:
    """A share for a sentence: `25%`, `0.4%`, `<0.1%`."""
    if value is None:
        return DASH
    if 0 < value < 0.0005:
        return "<0.1%"
    return f"{_signless_zero(f'{100 * value:.1f}')}%" if 0 < value < 0.0095 else f"{100 * value:.0f}%"


def part(amount: float | None, whole: float | None) -> str:
    """An amount as a share of the whole, for a sentence: `25%`."""
    return DASH if amount is None or not whole else rough_share(amount / whole)


def keep_share(value: float) -> str:
    """A share that the user asked for, without unnecessary digits: `90%`, `97.5%`."""
    return f"{round(100 * value, 6):g}%"


def score_interval(ends: Sequence[float] | None) -> str:
    """An interval of scores: `[0.743, 0.812]`."""
    return _interval([score(end) for end in ends] if ends is not None else None)


def difference_interval(ends: Sequence[float] | None) -> str:
    """An interval of differences: `[−0.041, +0.015]`."""
    return _interval([difference(end) for end in ends] if ends is not None else None)


def share_interval(ends: Sequence[float] | None) -> str:
    """An interval of shares, in percent: `[95.0, 101.3]`."""
    return _interval([_percent(end) for end in ends] if ends is not None else None)


def count(value: int | None) -> str:
    """A whole number with thousands separators: `1,774,464`."""
    return DASH if value is None else f"{value:,}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 run`, `18 runs`."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def size(n_bytes: int | None) -> str:
    """A size in powers of 1,000: `91 MB`, `1.2 GB`."""
    if n_bytes is None:
        return DASH
    if n_bytes < 1000:
        return counted(n_bytes, "byte")
    power = next((power for power in (1, 2, 3) if n_bytes / 1000**power < 999.5), 4)
    amount, unit = n_bytes / 1000**power, ("kB", "MB", "GB", "TB")[power - 1]
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:,.0f} {unit}"


def duration(seconds: float | None) -> str:
    """A measured time: `0.4 s`, `12 s`, `3 min 12 s`, `2 h 05 min`."""
    if seconds is None:
        return DASH
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def rough_duration(seconds: float) -> str:
    """An estimated time, rounded as an estimate should be: `45 s`, `2 min`, `3 h 10 min`."""
    if seconds < 57.5:
        return f"{max(5, 5 * round(seconds / 5))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    minutes = 10 * round(minutes / 10)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def seconds(value: float | None) -> str:
    """A time in seconds, for a table: `0.42`, `12.3`, `1,234`."""
    if value is None:
        return DASH
    places = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{places}f}"


def learning_rate(value: float | None) -> str:
    """A learning rate with all its digits: `5e-5`, `1.5e-4`, `0.1`."""
    if value is None:
        return DASH
    return f"{Decimal(repr(value)).normalize():e}" if 0 < abs(value) < 0.01 else f"{value:g}"


def change(value: float | None) -> str:
    """A change of weights, of any size, with two digits: `0.013`, `3.1e-07`, `0`."""
    return DASH if value is None else f"{value:.2g}"


def loss(value: float | None) -> str:
    """A training loss: `0.412`; `inf` and `nan` as they are."""
    if value is not None and not math.isfinite(value):
        return str(value)
    return score(value)


def one_line(text: str, at_most: int = 200) -> str:
    """Text from outside, safe to show: one line, no control characters; if it is long, without its middle."""
    line = _UNPRINTABLE.sub(" ", text).strip()
    if len(line) <= at_most:
        return line
    head = (at_most - 1) // 2
    return f"{line[:head]}…{line[len(line) - (at_most - 1 - head) :]}"


def is_folder(model: str) -> bool:
    """Whether a model is named by a path. A Hub name has at most one slash and does not begin like a path."""
    has_parts = model.rstrip("/").count("/") > 1 and "://" not in model
    return model.startswith(("/", "./", "../", "~")) or has_parts


def model_name(model: str, at_most: int = 200) -> str:
    """A model as reports show it: a Hub name as it is, a folder by its last part."""
    last = model.rstrip("/").rpartition("/")[2]
    return one_line(last if is_folder(model) and last else model, at_most)


def _interval(ends: list[str] | None) -> str:
    return DASH if ends is None else f"[{', '.join(ends)}]"


def _percent(value: float) -> str:
    return _signless_zero(f"{100 * value:.1f}")


def _signless_zero(number: str) -> str:
    """A number with a real minus sign, and none (nor a plus) before a zero."""
    bare = number.lstrip("+-")
    return bare if not bare.strip("0.") else number.replace("-", "−")
