"""Atomic writes: a file or folder appears whole or not at all, and a written file survives a power loss."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

from frostline.errors import UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


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


def write(path: Path, content: str | bytes) -> Path:
    """Writes a file in one step, over what was there; readers see the old file or the new one."""
    with explained(str(path)):
        temporary = _written_beside(path, content)
        try:
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)
    return path


def write_new(path: Path, text: str) -> bool:
    """Writes a file in one step unless there is one already; returns whether it did."""
    with explained(str(path)):
        temporary = _written_beside(path, text)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink()
        sync(path.parent)
    return True


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """An empty folder to fill; it appears at `path` when the block succeeds, unless one is there by then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as private:
        unfinished = Path(private) / path.name  # the outer folder is private (0700), and would stay so
        unfinished.mkdir()
        yield unfinished
        try:
            unfinished.rename(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _remedy(error: OSError) -> str:
    if is_full(error):
        return "make space there: what is finished is kept, and the same command goes on from it"
    return "give another folder"


def _written_beside(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(temporary.unlink, missing_ok=True)
        with temporary.open("xb") as stream:
            stream.write(content.encode("utf-8") if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        if_it_fails.pop_all()
    return temporary


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
