"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write(path: Path, text: str) -> Path:
    """Puts the text at `path` in one step, over what was there; readers see the old file or the new one."""
    temporary = _written_beside(path, text)
    try:
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return path


def write_new(path: Path, text: str) -> bool:
    """Puts the text at `path` in one step, unless a file is there already; says whether it did."""
    temporary = _written_beside(path, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    _sync_folder(path.parent)
    return True


def _written_beside(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with contextlib.ExitStack() as if_it_fails:
        if_it_fails.callback(temporary.unlink, missing_ok=True)
        with temporary.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if_it_fails.pop_all()
    return temporary


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
