"""The page of a sweep while it runs: written anew as runs finish, as often as costs next to nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from frostline.analysis import Chapter, ComparisonChapter
from frostline.errors import one_line
from frostline.report.formats.html import page
from frostline.storage import atomic

PAUSE = 40.0
"""How many times the time that the last page took passes before the next: a fortieth of one core at most."""


@dataclass
class LivePage:
    """`report.html` of what is being run."""

    folder: Path
    """the out folder"""
    chapter: Callable[[], Chapter | ComparisonChapter | None]
    """what is there so far; None before there is something to show"""
    tell: Callable[[str], None]
    """told once if the page cannot be written; the sweep goes on"""
    clock: Callable[[], float] = time.monotonic
    _not_before: float = field(default=0.0, init=False)
    _is_given_up: bool = field(default=False, init=False)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.folder / "report.html"

    def renew(self) -> None:
        """Writes the page anew, unless the last time is too near."""
        if self._is_given_up or self.clock() < self._not_before:
            return
        began = self.clock()
        try:
            chapter = self.chapter()
            if chapter is not None:
                atomic.write(self.path, page([chapter], is_live=True))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a page, hours of runs must not end by it
            self._is_given_up = True
            self.tell(f"{self.path} is not kept up to date: {one_line(error)}")
        self._not_before = self.clock() + PAUSE * (self.clock() - began)
