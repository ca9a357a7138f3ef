"""The page of a sweep while it runs: rewritten as runs finish, but not so often that it costs time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from frostline.errors import one_line
from frostline.report.chapter import Chapter
from frostline.report.formats.html import page
from frostline.storage import atomic

PAUSE = 40.0
"""Wait this many times as long as the last page took: the page costs at most a fortieth of one core."""
FIRST_AFTER = 5.0
"""Seconds of a sweep before its first page: one that is over sooner gets its page only once, at the end."""


@dataclass
class LivePage:
    """`report.html` of a sweep that is running."""

    folder: Path
    """the output folder"""
    chapter: Callable[[], Chapter | None]
    """the result so far; None if there is nothing to show yet"""
    tell: Callable[[str], None]
    """called once if the page cannot be written; the sweep continues"""
    clock: Callable[[], float] = time.monotonic
    _not_before: float = field(init=False)
    _is_given_up: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._not_before = self.clock() + FIRST_AFTER

    @property
    def path(self) -> Path:
        """The path of the page."""
        return self.folder / "report.html"

    def renew(self) -> None:
        """Write the page again, unless the last time was too recent."""
        if self._is_given_up or self.clock() < self._not_before:
            return
        began = self.clock()
        try:
            chapter = self.chapter()
            if chapter is not None:
                atomic.write(self.path, page([chapter], is_live=True))
        except Exception as error:  # noqa: BLE001 - a broken page must not end hours of runs
            self._is_given_up = True
            self.tell(f"{self.path} is no longer updated: {one_line(error)}")
        self._not_before = self.clock() + PAUSE * (self.clock() - began)
