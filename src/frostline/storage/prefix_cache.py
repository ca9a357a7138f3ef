"""The prefix cache: shelves of arrays, found by key and limited in size.

A shelf holds the arrays of one split of one model, one per depth (`shelf.py`). Its key (`Origin.key`) says what they
were computed from. This module knows nothing about models; `training.prefix` decides what the arrays mean.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from frostline.errors import UsageError, suggestion
from frostline.records.environment import processor, versions
from frostline.records.keys import key_of
from frostline.records.specs import CacheDtype
from frostline.storage import atomic, locks
from frostline.storage.findings import Finding, left_over
from frostline.storage.shelf import HEADER_BYTES, STATES, Entry, Shelf

FORMAT = 2
"""Part of every shelf's key; raised when older files can no longer be read."""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What states were computed from."""

    model: str
    """Hub name or folder of the pretrained model"""
    model_fingerprint: str
    """key of its weights, configuration and tokenizer"""
    task: str
    """name of the task"""
    split: str
    """train or dev"""
    layout: str
    """packed or padded: which attention computes them"""
    device: str
    """where they are computed"""
    dtype: CacheDtype
    """the number format they are stored in"""
    device_model: str = ""
    """name of the GPU, if one computes them"""
    products: str = ""
    """the library that multiplies matrices, if it is not torch's own choice"""
    threads: int = 1
    """threads that compute them"""
    is_whole: bool = False
    """keep all tokens after the last layer too, not only the one that the head reads"""

    @property
    def is_exact(self) -> bool:
        """Stored without rounding, so that deeper states computed from them have the same bits."""
        return self.dtype == "fp32"

    def key(self, tokens: str, **more: object) -> str:
        """The cache's key: equal if and only if the states are equal, whatever the names of model and task."""
        return key_of(
            {
                **more,
                **({"is_whole": True} if self.is_whole else {}),
                **({"products": self.products} if self.products else {}),
                "format": FORMAT,
                "model": self.model_fingerprint,
                "tokens": tokens,
                "layout": self.layout,
                "device": self.device,
                "device_model": self.device_model,
                "processor": processor(),  # another type may give other last bits
                "threads": self.threads,
                "dtype": self.dtype,
                "versions": {name: versions()[name] for name in ("torch", "transformers")},
            }
        )


def default_folder() -> Path:
    """`$FROSTLINE_CACHE`, else `frostline` below `$XDG_CACHE_HOME` or `~/.cache`."""
    if given := os.environ.get("FROSTLINE_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "frostline"


@dataclass(frozen=True)
class Cache:
    """All shelves of a cache folder."""

    folder: Path

    def shelf(self, key: str) -> Shelf:
        """The shelf of a key, whether it exists or not."""
        return Shelf(self.folder / "prefix" / key)

    def shelves(self) -> list[Shelf]:
        """The shelves that exist."""
        return [Shelf(path) for path in sorted((self.folder / "prefix").glob("*")) if path.is_dir()]

    def entries(self) -> list[Entry]:
        """The descriptions of all arrays."""
        found = [entry for shelf in self.shelves() for entry in shelf.entries().values()]
        return sorted(found, key=lambda entry: (entry.model, entry.task, entry.split, entry.depth))

    def used_bytes(self) -> int:
        """Size of all arrays, those that are being written included."""
        found = 0
        for folder, _, names in os.walk(self.folder / "prefix"):  # unlike `glob`, it allows folders to disappear
            if STATES in names:
                with locks.gone_is_fine():
                    found += (Path(folder) / STATES).stat().st_size
        return found

    def remove(self, name: str | None) -> int:
        """Removes the arrays of a model or task, or all; returns the freed bytes.

        A UsageError if there is nothing under the name.
        """
        known = sorted({known for entry in self.entries() for known in (entry.model, entry.task)})
        if name is not None and name not in known:
            kept = ", ".join(known) or "nothing"
            raise UsageError(f"nothing is kept of {name!r}; kept: {kept}.{suggestion(name, known)}")
        before = self.used_bytes()
        for shelf in self.shelves():
            entries = shelf.entries()
            for depth in shelf.depths() if name is None else entries:
                if name is None or name in (entries[depth].model, entries[depth].task):
                    shelf.remove(depth)
        return max(0, before - self.used_bytes())

    def check(self, *, repair: bool) -> list[Finding]:
        """What is wrong in the cache; every array is read. With `repair`, what is damaged or left over is removed."""
        top = self.folder / "prefix"
        found = left_over(top, repair=repair)
        for path in sorted(top.glob("*")):
            if path.is_dir() and not path.is_symlink() and re.fullmatch("[0-9a-f]{32}", path.name):
                found += Shelf(path).check(repair=repair)
            elif not path.name.startswith(atomic.TEMPORARY):
                found.append(Finding(path=str(path), what="foreign", why="not a file of the cache"))
        return found

    def make_room(self, shelf: Shelf, sizes: Mapping[int, int], most: int, of: Entry | None = None) -> bool:
        """Removes arrays of other depths until new arrays, sizes by depth, fit below `most`; returns whether they fit.

        Arrays of the same shelf go first, because deeper ones were built from them already; then the least recently
        used. A process that has a removed array mapped keeps its pages. If the new arrays would not fit into an empty
        cache, nothing is removed.
        """
        needed = sum(n_bytes + HEADER_BYTES for n_bytes in sizes.values())
        if needed > most:
            return False
        for other in self.shelves():
            atomic.leftovers(other.folder, remove=True)
        for other, depth in self._removable(shelf, sizes, of):
            if self.used_bytes() + needed <= most:
                break
            other.remove(depth)
        return self.used_bytes() + needed <= most and needed <= free_bytes(self.folder)

    def _removable(self, shelf: Shelf, sizes: Mapping[int, int], of: Entry | None) -> list[tuple[Shelf, int]]:
        """Arrays that may be removed to make room for others, in the order in which they go; damaged ones first."""
        found = []
        for other in self.shelves():
            entries = other.entries()
            for depth in other.depths():
                kept = entries.get(depth)
                is_other = of is not None and kept is not None and (kept.model, kept.task) != (of.model, of.task)
                if depth not in sizes or kept is None or is_other:
                    order = (kept is not None, other != shelf, other.last_used(depth))
                    found.append((order, (other, depth)))
        return [array for _, array in sorted(found, key=lambda one: one[0])]


def free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder, which need not exist yet."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free
