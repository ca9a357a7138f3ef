from __future__ import annotations

from pathlib import Path

import pytest

from frostline.storage import atomic


class TestNewFolder:
    def test_it_appears_whole_and_with_usual_rights(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "new"
        with atomic.new_folder(path) as unfinished:
            (unfinished / "file").write_text("x")
            assert not path.exists()
        assert [one.name for one in path.iterdir()] == ["file"]
        assert list(path.parent.iterdir()) == [path]
        usual = tmp_path / "usual"
        usual.mkdir()
        assert path.stat().st_mode == usual.stat().st_mode

    def test_nothing_stays_of_one_that_fails(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError), atomic.new_folder(tmp_path / "new") as unfinished:
            (unfinished / "not there" / "file").write_text("x")
        assert list(tmp_path.iterdir()) == []

    def test_whoever_was_first_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "new"
        with atomic.new_folder(path) as unfinished:
            (unfinished / "file").write_text("second")
            path.mkdir()
            (path / "file").write_text("first")
        assert (path / "file").read_text() == "first"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_file_in_its_place_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "new").write_text("x")
        with pytest.raises(NotADirectoryError), atomic.new_folder(tmp_path / "new"):
            pass
        assert (tmp_path / "new").read_text() == "x"
