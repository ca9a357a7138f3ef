"""Rows from Python, written as files: used again only if they are whole, and readable by their owner only."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from frostline.tasks.formats.memory import is_written, write_rows

DATA = {
    "train": pd.DataFrame({"text": ["good", "bad", "fine"], "label": ["p", "n", "p"]}),
    "dev": pd.DataFrame({"text": ["poor"], "label": ["n"]}),
}


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("harm", ["a file is gone", "a file is cut", "a bit is flipped", "the mark is gone"])
def test_a_folder_that_is_not_whole_is_written_again(harm: str, tmp_path: Path) -> None:
    folder = write_rows(DATA, tmp_path, "mine")
    right = _files(folder)
    if harm == "a file is gone":
        (folder / "dev.parquet").unlink()
    elif harm == "a file is cut":
        (folder / "dev.parquet").write_bytes(right["dev.parquet"][:-10])
    elif harm == "a bit is flipped":
        _flip(folder / "train.parquet")
    else:
        (folder / ".written-by-frostline").unlink()
    assert _files(folder) != right
    assert write_rows(DATA, tmp_path, "mine") == folder
    assert _files(folder) == right


def test_a_whole_folder_is_used_again_also_one_of_release_0_1(tmp_path: Path) -> None:
    folder = write_rows(DATA, tmp_path, "mine")
    for mark in ((folder / ".written-by-frostline").read_bytes(), b""):
        (folder / ".written-by-frostline").write_bytes(mark)
        before = (folder / "train.parquet").stat().st_ino
        write_rows(DATA, tmp_path, "mine")
        assert (folder / "train.parquet").stat().st_ino == before
        assert is_written(folder)


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    assert write_rows(DATA, tmp_path, "mine").stat().st_mode & 0o777 == 0o700
