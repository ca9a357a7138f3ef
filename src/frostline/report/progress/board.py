"""The state of a sweep while it runs: one row per kind of run, with a small chart of the means so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.text import Text

from frostline import stats
from frostline.report import numbers

LANE = 20
"""columns of the small chart"""
_MOST_NAME = 24
MEAN = "●"


@dataclass
class _Kind:
    """The runs of one row."""

    n_runs: int = 0
    scores: list[float] = field(default_factory=list)
    n_crashed: int = 0

    @property
    def n_left(self) -> int:
        return self.n_runs - len(self.scores) - self.n_crashed


class Board:
    """Counts runs by the common part of their labels: all but the last word, which is a seed or a rate."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def add(self, labels: Sequence[str]) -> None:
        """Add planned runs."""
        for label in labels:
            self._kind(label).n_runs += 1

    def finish(self, label: str, score: float | None) -> None:
        """A run is done."""
        kind = self._kind(label)
        if score is None:
            kind.n_runs -= 1
        else:
            kind.scores.append(score)

    def crash(self, label: str) -> None:
        """A run raised an error."""
        self._kind(label).n_crashed += 1

    def render(self, running: Mapping[str, str]) -> Group:
        """The board, with the state of running runs by label; lines are cut at the width of the terminal."""
        means = {name: stats.mean(kind.scores) for name, kind in self._kinds.items() if kind.scores}
        names = list(dict.fromkeys([*self._kinds, *(_name(label) for label in running)]))
        width = max((len(numbers.one_line(name, _MOST_NAME)) for name in names), default=0)
        lines = []
        for name in names:
            kind = self._kinds.get(name, _Kind())
            now = "; ".join(words for label, words in running.items() if _name(label) == name)
            done = f"{len(kind.scores)}/{kind.n_runs}" if kind.n_runs else ""
            head = f"  {numbers.one_line(name, _MOST_NAME):{width}}  {done:>6}  {numbers.score(means.get(name)):>6}"
            line = f"{head}  {_lane(means.get(name), list(means.values()))}  {now or _state(kind)}"
            lines.append(Text(line, no_wrap=True, overflow="ellipsis"))
        return Group(*lines)

    def _kind(self, label: str) -> _Kind:
        return self._kinds.setdefault(_name(label), _Kind())


def _name(label: str) -> str:
    """The common part of the labels of a row: `freeze:3` of `freeze:3 seed 2`."""
    return label.rpartition(" ")[0].removesuffix(" seed") or label


def _state(kind: _Kind) -> str:
    """The state of a row if none of its runs is running."""
    crashed = f"{kind.n_crashed} crashed" if kind.n_crashed else ""
    waiting = "waiting" if kind.n_left > 0 else ""
    return ", ".join(word for word in (waiting, crashed) if word)


def _lane(mean: float | None, means: Sequence[float]) -> str:
    """A mean among the others, the lowest on the left."""
    if mean is None:
        return " " * LANE
    low, high = min(means), max(means)
    at = round((mean - low) / (high - low) * (LANE - 1)) if high > low else LANE - 1
    return f"{'·' * at}{MEAN}".ljust(LANE)
