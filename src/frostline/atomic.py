"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write(path: Path, text: str) -> Path:
    """Puts the text at `path` in one step, over what was there; readers see the old file or the new one."""
    temporary = _written_beside(path, text)
    temporary.replace(path)
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
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
