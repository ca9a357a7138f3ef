"""Atomic writes: a file or folder appears whole or not at all, and what was written survives a power loss.

Everything is written under a temporary name, `.frostline-<16 digits>`, in the folder where it will be, flushed to the
disk, and then renamed or linked. So what exists under its final name is complete.

**Leftovers.** A process holds a lock on its temporary files and folders. The system drops the lock when the process
dies, so a temporary name without a lock was left by a killed process. It is removed when a process first writes into
the same folder. Where a lock proves nothing, because the name was made on another host or the file system has no
locks, it is removed when it is older than a day.

**Other file systems.** exFAT, SMB, FUSE and cloud drives may lack hard links or the flushing of folders.
- Without hard links, `write_new` renames under a lock on the folder. The file is still whole, and the first of several
  processes of one machine still wins. Without locks too, or from several machines, the last may win.
- A folder that cannot be flushed is not: a power loss may then lose the name of a file, but never part of its content.
- Some mounted object stores copy a folder's files one by one to rename it. A kill in the middle leaves an incomplete
  folder there, so readers that use a folder again compare its files with a fingerprint.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import os
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from frostline.errors import UsageError
from frostline.storage import locks

TEMPORARY = ".frostline-"
"""how the names of temporary files and folders begin"""

Content = str | bytes | memoryview | Sequence[bytes | memoryview]
"""What is written: text, bytes, or parts of a large file that are not copied together."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EINVAL)
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF, errno.EACCES)
_SECONDS_PER_DAY = 24 * 3600


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns a failed write into a UsageError that says what to do."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{what} cannot be written: {error.strerror}; {_remedy(error)}") from error


def is_full(error: OSError) -> bool:
    """Whether the disk or the user's quota is full."""
    return error.errno in _FULL


def write(path: Path, content: Content) -> Path:
    """Writes a file in one step, over what was there; readers see the old file or the new one."""
    with explained(str(path)), _written_beside(path, content) as temporary:
        temporary.replace(path)
        sync(path.parent)
    return path


def write_new(path: Path, content: Content) -> bool:
    """Writes a file in one step unless there is one already; returns whether it did."""
    with explained(str(path)), _written_beside(path, content) as temporary:
        is_new = _linked(temporary, path)
        if is_new:
            sync(path.parent)
    return is_new


def move_aside(path: Path, folder: Path) -> None:
    """Moves a file into a folder, under a name that is free there; nothing if another process has moved it."""
    with explained(str(folder)):
        make_folder(folder)
        names = (folder / f"{path.stem}-{number}{path.suffix}" for number in itertools.count())
        with locks.gone_is_fine():
            path.rename(next(name for name in names if not name.exists()))


@contextlib.contextmanager
def new_folder(path: Path, *, mode: int = 0o777) -> Iterator[Path]:
    """An empty folder to fill; it appears at `path` when the block succeeds, unless one is there by then.

    All its files are flushed to the disk first. An empty folder at `path` is replaced.
    """
    with private_folder(path.parent) as private:
        unfinished = private / path.name  # the outer folder is private (0700), and would stay so
        unfinished.mkdir(mode)
        yield unfinished
        for folder, _, names in os.walk(unfinished, topdown=False):
            for name in names:
                sync(Path(folder) / name)
            sync(Path(folder))
        _rename_folder(unfinished, path)
        sync(path.parent)


@contextlib.contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """A temporary folder that only this user can read; it is removed after the block."""
    make_folder(parent)
    _remove_leftovers_once(parent.absolute())
    private, handle = _owned(parent, lambda path: path.mkdir(0o700))
    try:
        yield private
    finally:
        shutil.rmtree(private, ignore_errors=True)
        os.close(handle)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Makes a folder and its missing parents with these rights, so that they survive a power loss."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode, exist_ok=True)
        sync(folder.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder in one step, if it is there: readers find all of it or nothing."""
    gone = _temporary_name(path.parent)
    with locks.gone_is_fine():
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)  # a rest is removed like any leftover


def leftovers(folder: Path, *, remove: bool) -> list[Path]:
    """Temporary files and folders in a folder whose owner is dead; with `remove`, they are gone afterwards."""
    found = []
    for path in sorted(folder.glob(f"{TEMPORARY}*")):
        with contextlib.suppress(OSError):  # it has just gone, or it is another user's
            if _is_left(path, remove=remove):
                found.append(path)
    return found


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk; a folder only where the file system can."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC or not path.is_dir():
            raise


def _remedy(error: OSError) -> str:
    if is_full(error):
        return "make space there: what is finished is kept, and the same command goes on from it"
    return "give another folder"


@contextlib.contextmanager
def _written_beside(path: Path, content: Content) -> Iterator[Path]:
    """A temporary file next to `path` with this content, flushed to the disk."""
    make_folder(path.parent)
    _remove_leftovers_once(path.parent.absolute())
    temporary, handle = _owned(path.parent, lambda path: path.touch(exist_ok=False))
    try:
        with open(handle, "wb", closefd=False) as stream:
            stream.writelines(_parts(content))
        os.fsync(handle)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def _parts(content: Content) -> Sequence[bytes | memoryview]:
    if isinstance(content, str):
        return [content.encode("utf-8")]
    return [content] if isinstance(content, bytes | memoryview) else content


def _linked(temporary: Path, path: Path) -> bool:
    """Gives a file its final name unless that name is taken; returns whether it did."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _renamed_if_new(temporary, path)
    return True


def _renamed_if_new(temporary: Path, path: Path) -> bool:
    """The same without hard links: nobody else gives this name while the folder is locked."""
    folder = locks.open_existing(path.parent.resolve())
    try:
        locks.wait_for_lock(folder)
        if os.path.lexists(path):
            return False
        temporary.rename(path)
    finally:
        os.close(folder)
    return True


def _rename_folder(unfinished: Path, path: Path) -> None:
    """Gives a folder its final name, unless there is a folder with content."""
    try:
        unfinished.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        try:
            path.rmdir()  # some file systems do not rename over an empty folder
        except OSError:
            return
        unfinished.rename(path)


def _owned(folder: Path, make: Callable[[Path], None]) -> tuple[Path, int]:
    """A new temporary file or folder, and the handle that holds its lock."""
    while True:
        path = _temporary_name(folder)
        make(path)
        with contextlib.ExitStack() as if_it_is_not_ours, locks.gone_is_fine():
            handle = locks.open_existing(path)
            if_it_is_not_ours.callback(os.close, handle)
            # Before it was locked, another process may have taken it for a leftover.
            if locks.try_lock(handle) != "taken" and locks.is_at(handle, path):
                if_it_is_not_ours.pop_all()
                return path, handle


def _is_left(path: Path, *, remove: bool) -> bool:
    handle = locks.open_existing(path)
    try:
        attempt = locks.try_lock(handle)
        is_provable = attempt == "ours" and path.name.startswith(TEMPORARY + _host())
        is_old = time.time() - os.fstat(handle).st_mtime > _SECONDS_PER_DAY
        is_left = attempt != "taken" and (is_provable or is_old)
        if is_left and remove:  # while it is locked, so that its maker sees that it is gone
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return is_left
    finally:
        os.close(handle)


def _temporary_name(folder: Path) -> Path:
    return folder / f"{TEMPORARY}{_host()}{secrets.token_hex(6)}"


@functools.cache
def _host() -> str:
    """Four digits that stand for this machine."""
    return hashlib.blake2b(platform.node().encode(), digest_size=2).hexdigest()


@functools.cache
def _remove_leftovers_once(folder: Path) -> None:
    leftovers(folder, remove=True)
