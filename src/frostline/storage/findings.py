"""What `frostline check` and `frostline cache check` find wrong with stored files, in one record for both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from frostline.records.serial import Record
from frostline.storage import atomic

Fault = Literal["damaged", "foreign", "orphaned", "mixed", "left over"]
"""What is wrong with a file:
- damaged: its content is not what was written;
- foreign: frostline did not write it, or it belongs to another folder;
- orphaned: whole, but what it belongs to is missing;
- mixed: whole, but made in another environment than the rest;
- left over: the rest of a process that was killed.
"""


@dataclass(frozen=True, kw_only=True)
class Finding(Record):
    """Something wrong with one stored file or folder."""

    path: str
    """the file or folder"""
    what: Fault
    """damaged, foreign, orphaned, mixed or left over"""
    why: str
    """what shows it, in a few words"""
    is_repaired: bool = False
    """whether `--repair` has removed it or moved it aside"""


def left_over(folder: Path, *, repair: bool) -> list[Finding]:
    """Temporary files and folders of killed processes in a folder; with `repair`, they are gone afterwards."""
    why = "a process was killed while it wrote this"
    found = atomic.leftovers(folder, remove=repair)
    return [Finding(path=str(path), what="left over", why=why, is_repaired=repair) for path in found]
