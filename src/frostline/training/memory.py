"""Peak private memory of a stretch of work.

Resident memory would count the pages of mapped cache files too (TRAPS 29), so RssAnon is read, several times a second:
the system keeps no peak of it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import torch

_STATUS = Path("/proc/self/status")
_SECONDS_BETWEEN_LOOKS = (0.02, 0.2)
"""At first, when memory grows; and once a second has passed: a look takes time from the run, whose steps are alike."""
_N_CLOSE_LOOKS = 50


class MemoryMeter:
    """Within its `with` block, notes the peak of private memory above the level at its start."""

    def __init__(self, device: str) -> None:
        self._on_cuda = device == "cuda"
        self._is_over = threading.Event()
        self._level: int | None = None
        self._peak = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        release_memory()
        self._level = self._read()
        self._peak = self._level or 0
        if self._on_cuda:
            torch.cuda.reset_peak_memory_stats()
        elif self._level is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def peak_bytes(self) -> int | None:
        """The peak so far; None where the system does not tell."""
        if self._level is None:
            return None
        if self._on_cuda:
            return torch.cuda.max_memory_allocated() - self._level
        self._look()
        return self._peak - self._level

    def _watch(self) -> None:
        n_looks = 0
        while not self._is_over.wait(_SECONDS_BETWEEN_LOOKS[n_looks >= _N_CLOSE_LOOKS]):
            self._look()
            n_looks += 1

    def _look(self) -> None:
        self._peak = max(self._peak, self._read() or 0)

    def _read(self) -> int | None:
        return torch.cuda.memory_allocated() if self._on_cuda else private_bytes()


def private_bytes() -> int | None:
    """Private memory of this process now; None where the system does not tell."""
    if not _STATUS.is_file():
        return None
    _, _, after = _STATUS.read_bytes().partition(b"RssAnon:")
    return int(after.split(maxsplit=1)[0]) * 1024 if after else None


def release_memory() -> None:
    """Gives freed memory back to the system, so that one run's leftovers do not hide the next one's need."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
