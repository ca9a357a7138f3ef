"""Peak private memory of a block of work, and the memory of the machine.

Resident memory would include the pages of mapped cache files (TRAPS 29). The meter reads RssAnon instead, several
times a second, because the system keeps no peak of it.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import torch

_STATUS, _MEMORY = Path("/proc/self/status"), Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
_Batch = TypeVar("_Batch")
_SECONDS_BETWEEN_LOOKS = (0.02, 0.2)
"""Often at first, while memory grows; rarely after the first second, because each look takes time from the run."""
_N_CLOSE_LOOKS = 50
_BATCHES_BETWEEN_RETURNS = 10
_M_ARENA_MAX = -8
"""glibc's number for the largest number of heaps"""


class MemoryMeter:
    """Measures the peak of private memory in its `with` block, above the level at the start."""

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
        """The peak so far; None where the system does not report it."""
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
    """Private memory of this process now; None where the system does not report it."""
    private = _number_after("RssAnon:", _STATUS)
    return None if private is None else private * 1024


def machine_bytes(device: str) -> int | None:
    """Memory of the device, or what the process's control group may use of it; None where the system does not say."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[1])
    total, limit = _number_after("MemTotal:", _MEMORY), _number_in(_GROUP / "memory.max")
    if total is None:
        return None
    return total * 1024 if limit is None else min(total * 1024, limit)


def _number_after(word: str, file: Path) -> int | None:
    _, _, after = (file.read_text() if file.is_file() else "").partition(word)
    return int(after.split(maxsplit=1)[0]) if after else None


def _number_in(file: Path) -> int | None:
    """The number in a file; None without one: a group without a limit says `max`."""
    text = file.read_text().strip() if file.is_file() else ""
    return int(text) if text.isdecimal() else None


def release_memory() -> None:
    """Returns freed memory to the system, so that memory left over from one run does not hide the need of the next."""
    gc.collect()
    return_freed_memory()


def return_freed_memory() -> None:
    """Returns memory to the system that the allocator keeps for later; takes milliseconds."""
    _glibc("malloc_trim", 0)


def returning_memory(batches: Iterable[_Batch]) -> Iterator[_Batch]:
    """Yields the same batches, and returns freed memory to the system after every ten of them and at the end.

    A pass over sorted rows begins with batches of many short rows and ends with batches of few long ones. Each new size
    leaves gaps in the heap into which no later batch fits: 400 MB after all rows of SST-2.
    """
    for n_before, batch in enumerate(batches):
        if n_before % _BATCHES_BETWEEN_RETURNS == 0:
            return_freed_memory()
        yield batch
    return_freed_memory()


def use_one_heap() -> None:
    """Lets all threads that start from now on allocate from the heap of the process, as long as the process lives.

    By default glibc gives each thread a heap of its own. What one thread freed is then of no use to another, and the
    free end of such a heap is never returned to the system. Heaps that exist already stay: a new thread takes over the
    heap of one that has ended, so call this before other threads start.
    """
    _glibc("mallopt", _M_ARENA_MAX, 1)


def _glibc(function: str, *arguments: int) -> None:
    """Calls a function of glibc; does nothing where there is none of that name."""
    call = getattr(ctypes.CDLL(None), function, None) if sys.platform == "linux" else None
    if call is not None:
        call(*arguments)
