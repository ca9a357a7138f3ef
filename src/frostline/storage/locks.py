"""Locks (`flock`) on files and folders: the system drops them when their holder dies, so a dead process blocks nobody.

Some file systems have no locks. There a process goes on without one: locks share work and protect temporary files, but
no promise about content rests on them alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

SECONDS_BEFORE_REPORT = 30.0
"""how long a process waits for a lock before it says so"""

# EBADF: NFS locks only what is open for writing, which a folder cannot be.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EBADF}
_GONE = {errno.ENOENT, errno.ESTALE}

Say = Callable[[str], None]
Attempt = Literal["ours", "taken", "no locks"]


def is_gone(error: BaseException | None) -> bool:
    """Whether an error says that a file is not there: it was removed, also by another host (a stale NFS handle)."""
    return isinstance(error, OSError) and error.errno in _GONE


@contextlib.contextmanager
def gone_is_fine() -> Iterator[None]:
    """Ends the block quietly if a file in it is not there."""
    try:
        yield
    except OSError as error:
        if not is_gone(error):
            raise


def paths_in(folder: Path) -> list[Path]:
    """What is in a folder; nothing if there is no such folder, or if it goes meanwhile (`Path.glob` would raise)."""
    with gone_is_fine(), contextlib.suppress(NotADirectoryError):
        return sorted(folder.iterdir())
    return []


def open_existing(path: Path) -> int:
    """A handle on a file or folder that can be locked; a link is not followed."""
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except IsADirectoryError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def try_lock(handle: int) -> Attempt:
    """Locks an open file or folder without waiting; says whether it is ours, taken, or cannot be locked."""
    return _lock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def wait_for_lock(handle: int) -> Attempt:
    """Locks an open file or folder, and waits for it if needed; says whether it is ours or cannot be locked."""
    return _lock(handle, fcntl.LOCK_EX)


def is_at(handle: int, path: Path) -> bool:
    """Whether an open file or folder is still the one at `path`."""
    with gone_is_fine():
        return os.path.samestat(os.fstat(handle), path.lstat())
    return False


@contextlib.contextmanager
def locked(path: Path, say: Say = lambda _: None) -> Iterator[None]:
    """Holds the lock on a file, which is made if needed and names the process that holds it.

    Args:
        path: the file; a link in its place is refused.
        say: called once, from another thread, if the wait takes longer than 30 seconds. The wait goes on.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if try_lock(handle) == "taken":
            with _reported(path, say):
                wait_for_lock(handle)
        with contextlib.suppress(OSError):  # a full disk: only the report to those who wait is poorer
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()} {platform.node()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def is_stopped(pid: int) -> bool:
    """Whether a process of this host is stopped (SIGSTOP, Ctrl-Z); False where the system does not say (macOS)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[:1] in (["T"], ["t"])


def _lock(handle: int, how: int) -> Attempt:
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        return "taken"
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return "no locks"
    return "ours"


@contextlib.contextmanager
def _reported(path: Path, say: Say) -> Iterator[None]:
    """Says who holds a lock if the block takes long. Nothing is said after the block has ended."""
    timer = threading.Timer(SECONDS_BEFORE_REPORT, lambda: say(_who_holds(path)))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _who_holds(path: Path) -> str:
    try:
        pid, _, host = path.read_text(encoding="utf-8").strip().partition(" ")
    except (OSError, ValueError):
        pid = host = ""
    waited = f"waited {SECONDS_BEFORE_REPORT:.0f} seconds for {path}"
    if not pid.isdigit():
        return f"{waited}, which another process has locked; the wait goes on"
    place = "" if host == platform.node() else f" on {host!r}"
    remedy = f"; it is stopped: `kill -CONT {pid}` lets it go on" if not place and is_stopped(int(pid)) else ""
    return f"{waited}, which process {pid}{place} has locked{remedy}; the wait goes on"
