"""Claims on runs, so that several commands on one output folder share the work.

A process claims a run before it does it, and releases the claim when the result is in the store. A claim is a lock
(`flock`) on the file `claims/<key>`, which holds the process id. The system drops the lock when the process dies, so a
dead process never blocks a run: the next process that asks gets the claim. The file is removed when the claim is
released; a file without a lock is the rest of a killed process and means nothing.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import final

from frostline.storage import atomic


@final
class Claims:
    """The claims of this process on the runs of one output folder."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "claims"
        self._held: dict[str, int] = {}
        # If the owner forgets to release (an exception in a notebook), the claims go with this object.
        weakref.finalize(self, _release_all, self._folder, self._held)

    def take(self, key: str) -> bool:
        """Claims a run; False if another living process has claimed it."""
        if key in self._held:
            return True
        while (handle := self._open(key)) is not None:
            # Between opening and locking, the file may have been removed by the process that released it.
            if _is_at(handle, self._folder / key):
                os.truncate(handle, 0)
                os.write(handle, str(os.getpid()).encode())
                self._held[key] = handle
                return True
            os.close(handle)
        return False

    def release(self, key: str) -> None:
        """Gives up a claim, if there is one."""
        if (handle := self._held.pop(key, None)) is not None:
            _release(self._folder / key, handle)

    def release_all(self) -> None:
        """Gives up all claims."""
        _release_all(self._folder, self._held)

    def holders(self, keys: Iterable[str]) -> list[int]:
        """Ids of the processes that have claimed these runs, as far as their files tell."""
        found = set()
        for key in keys:
            with contextlib.suppress(OSError, ValueError):
                found.add(int((self._folder / key).read_text()))
        return sorted(found)

    def _open(self, key: str) -> int | None:
        """The claim's file, opened and locked; None if another process has the lock."""
        path = self._folder / key
        with atomic.explained(str(path)):
            handle = _open_or_create(path)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                return None
            except OSError as error:
                # A file system without locks: the work cannot be shared, but it can be done.
                if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                    os.close(handle)
                    raise
        return handle


def _open_or_create(path: Path) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process removed the empty folder just now
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _release(path: Path, handle: int) -> None:
    path.unlink(missing_ok=True)  # before the lock goes: nobody can hold this file by then
    os.close(handle)
    with contextlib.suppress(OSError):  # other claims are there
        path.parent.rmdir()


def _release_all(folder: Path, held: dict[str, int]) -> None:
    while held:
        key, handle = held.popitem()
        _release(folder / key, handle)
