"""Writing a file or a folder whole or not at all."""

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
    """Turns a failure to write into one line that says what to do."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{what} cannot be written: {error.strerror}; {_remedy(error)}") from error


def is_full(error: OSError) -> bool:
    """Whether there was no space, or no more of it for us."""
    return error.errno in _FULL


def write(path: Path, content: str | bytes) -> Path:
    """Puts the content at `path` in one step, over what was there; readers see the old file or the new one."""
    with explained(str(path)):
        temporary = _written_beside(path, content)
        try:
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)
    return path


def write_new(path: Path, text: str) -> bool:
    """Puts the text at `path` in one step, unless a file is there already; says whether it did."""
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
    """An empty folder to be filled; it appears at `path` when the block ends well, unless one is there by then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as private:
        unfinished = Path(private) / path.name  # the outer one is for our eyes only, and would stay so
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
    """Has what was written to a file, or the names in a folder, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
