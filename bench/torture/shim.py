"""The library that makes calls fail or records them (shim.c), and the memory through which it is told what to do."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("shim.c")
KILL = -9
"""in place of an error: the process is killed in the middle of the call"""
_OFF, _FAIL, _RECORD, _PIPE = range(4)
_LOG_BYTES = 1 << 23
_NAME_BYTES = 512


class _Page(ctypes.Structure):
    """`struct page` of shim.c."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("mode", "error", "is_lasting", "lock")),
        *((name, ctypes.c_long) for name in ("at", "count", "log_used", "snapshots_used")),
        *((name, ctypes.c_char * _NAME_BYTES) for name in ("folder", "snapshots")),
        ("log", ctypes.c_char * _LOG_BYTES),
    )


@dataclass(frozen=True)
class Call:
    """A call that the library saw."""

    what: str
    number: int
    """which call it is, counted from 1; in a recording, the inode of the file"""
    path: str
    other: str
    """the new path, for a link or a rename"""
    snapshot: int
    """number of the copy of the file, or of what was said; 0: none"""


def why_not() -> str:
    """Why the library cannot be used here; empty if it can."""
    import platform

    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"the shim knows the system calls of Linux on x86_64, this is {platform.system()} {platform.machine()}"
    return "" if shutil.which("gcc") else "there is no gcc to compile the shim with"


class Shim:
    """The compiled library and its page of memory, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.library, self._memory, self.snapshots = folder / "shim.so", folder / "page", folder / "snapshots"
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", self.library, SOURCE, "-ldl"], check=True)
        self.snapshots.mkdir()
        self._memory.write_bytes(bytes(ctypes.sizeof(_Page)))
        with self._memory.open("r+b") as stream:
            self._page: Any = _Page.from_buffer(mmap.mmap(stream.fileno(), 0))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the processes that it is loaded into."""
        return {"LD_PRELOAD": str(self.library), "TORTURE_PAGE": str(self._memory)}

    def fail(self, folder: Path, at: int, error: int, *, is_lasting: bool = False) -> None:
        """From now on counts calls below `folder`; number `at` fails (0: none). `is_lasting`: the disk stays full."""
        self._begin(_FAIL, folder, at)
        self._page.error, self._page.is_lasting = error, is_lasting

    def record(self, folder: Path) -> None:
        """From now on records the calls below `folder`."""
        for snapshot in self.snapshots.iterdir():
            snapshot.unlink()
        self._begin(_RECORD, folder, 0)
        self._page.snapshots = str(self.snapshots).encode()

    def kill_in_pipe(self, at: int) -> None:
        """From now on counts writes to pipes; in number `at` the writer is killed half-way."""
        self._begin(_PIPE, Path("/nowhere"), at)

    def stop(self) -> None:
        """Every call is left alone again."""
        self._page.mode = _OFF

    @property
    def count(self) -> int:
        """How many calls were counted."""
        return int(self._page.count)

    def calls(self) -> list[Call]:
        """The calls so far, in order."""
        if self._page.log_used > _LOG_BYTES:
            raise RuntimeError(f"the log of calls is full: {self._page.log_used} bytes")
        text = ctypes.string_at(ctypes.addressof(self._page) + _Page.log.offset, self._page.log_used).decode()
        lines = (line.split("\t") for line in text.splitlines())
        return [Call(what, int(number), path, other, int(copy)) for what, number, path, other, copy in lines]

    def _begin(self, mode: int, folder: Path, at: int) -> None:
        page = self._page
        page.mode = _OFF
        page.lock = page.count = page.log_used = page.snapshots_used = page.is_lasting = page.error = 0
        page.folder, page.at = str(folder).encode(), at
        page.mode = mode
