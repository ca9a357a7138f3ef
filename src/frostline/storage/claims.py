"""Claims on runs, so that several commands on one output folder share the work.

A process claims a run before it does it, and releases the claim when the result is in the store. A claim is a lock
(`flock`) on the file `claims/<key>`, which holds the process id. The system drops the lock when the process dies, so a
dead process never blocks a run: the next process that asks gets the claim. The file is removed when the claim is
released; a file without a lock is the rest of a killed process, means nothing, and is removed by the next command.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from typing import final

from frostline.storage import atomic, locks


@final
class Claims:
    """The claims of this process on the runs of one output folder."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "claims"
        self._held: dict[str, FileIO] = {}
        _remove_abandoned(self._folder)
        # If the owner forgets to release (an exception in a notebook), the claims go with this object.
        weakref.finalize(self, _release_all, self._folder, self._held)

    def take(self, key: str) -> bool:
        """Claims a run; False if another living process has claimed it."""
        if key in self._held:
            return True
        path = self._folder / key
        with atomic.explained(str(path)), contextlib.ExitStack() as unless_taken:
            unless_taken.callback(self.release, key)
            # Known before it is locked: wherever a signal interrupts the command, `release_all` finds it.
            self._held[key] = _open_or_create(path)
            handle = self._held[key].fileno()
            # On a file system without locks the work cannot be shared, but it can be done.
            if locks.try_lock(handle) == "taken":
                return False
            if locks.is_at(handle, path):
                unless_taken.pop_all()
                with contextlib.suppress(OSError):  # a full disk: only `holders` cannot name this process
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, str(os.getpid()).encode(), 0)
                return True
        return self.take(key)  # between opening and locking, the process that released it removed the file

    def release(self, key: str) -> None:
        """Gives up a claim, if there is one."""
        if (file := self._held.get(key)) is not None:
            _release(self._folder / key, file)
            self._held.pop(key, None)

    def release_all(self) -> None:
        """Gives up all claims, also one that was being taken or released when the command was interrupted."""
        _release_all(self._folder, self._held)
        _remove_abandoned(self._folder)
        _remove_if_empty(self._folder)

    def holders(self, keys: Iterable[str]) -> list[int]:
        """Ids of the processes that have claimed these runs, as far as their files tell."""
        found = set()
        for key in keys:
            with contextlib.suppress(OSError, ValueError):
                found.add(int((self._folder / key).read_text()))
        return sorted(found)


def _open_or_create(path: Path, more_tries: int = 100) -> FileIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "r+")
    except OSError as error:
        # Another process may have removed the empty folder just now. If that happens inside `mkdir`, between finding
        # the folder and asking whether it is one, its error is FileExistsError.
        if not more_tries or not (locks.is_gone(error) or isinstance(error, FileExistsError)):
            raise
    return _open_or_create(path, more_tries - 1)


def _remove_abandoned(folder: Path) -> None:
    """Removes the files that nobody has locked: those of killed processes."""
    for path in locks.paths_in(folder):
        with contextlib.suppress(OSError):  # it has just gone, or it is another user's
            handle = locks.open_existing(path)
            try:
                if locks.try_lock(handle) == "ours" and locks.is_at(handle, path):
                    path.unlink()  # before the lock goes: nobody can hold this file by then
                    _remove_if_empty(folder)
            finally:
                os.close(handle)


def _release(path: Path, file: FileIO) -> None:
    """Removes the file of a claim and closes it. After an interruption, a second call does what is left."""
    if not file.closed:
        if locks.try_lock(file.fileno()) != "taken" and locks.is_at(file.fileno(), path):
            with locks.gone_is_fine():
                path.unlink()
        file.close()
    _remove_if_empty(path.parent)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # other claims are there
        folder.rmdir()


def _release_all(folder: Path, held: dict[str, FileIO]) -> None:
    for key, file in list(held.items()):
        _release(folder / key, file)
        held.pop(key, None)
