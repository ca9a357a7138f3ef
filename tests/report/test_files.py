from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from frostline.analysis import Curve
from frostline.errors import UsageError
from frostline.report.charts.curve import svg
from frostline.report.formats.markdown import markdown
from frostline.report.formats.registry import write_report, write_result

from .chapters import alone
from .curves import make_curve


def write_curve(curve: Curve, folder: Path | str) -> tuple[Path, ...]:
    return write_result(alone(curve)[0], folder, "curve")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}


def test_three_files_tell_of_one_curve(tmp_path: Path) -> None:
    curve = make_curve().replace(model="naïve 👩‍🔬 \ud800")
    paths = write_curve(curve, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["curve.json", "curve.md", "curve.svg"]
    written = contents(tmp_path / "new" / "folder")
    assert Curve.from_json(json.loads(written["curve.json"])) == curve
    assert json.loads(written["curve.json"]) == curve.to_json()
    assert written["curve.md"] == markdown(alone(curve))
    assert written["curve.svg"] == svg(curve)
    assert set(written) == {"curve.json", "curve.md", "curve.svg"}


def test_writing_again_replaces_and_leaves_nothing_beside(tmp_path: Path) -> None:
    write_curve(make_curve(), tmp_path)
    changed = make_curve().replace(task="other")
    write_curve(changed, str(tmp_path))
    assert json.loads(contents(tmp_path)["curve.json"])["task"] == "other"
    assert len(contents(tmp_path)) == 3


def test_a_number_json_cannot_hold_changes_no_file(tmp_path: Path) -> None:
    write_curve(make_curve(), tmp_path)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="JSON"):
        write_curve(make_curve().replace(chance=float("nan")), tmp_path)
    assert contents(tmp_path) == before


def test_a_full_disk_leaves_the_old_files_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_curve(make_curve(), tmp_path)
    before = contents(tmp_path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space"):
        write_curve(make_curve().replace(task="other"), tmp_path)
    assert contents(tmp_path) == before


def test_a_reader_never_finds_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_curve(make_curve(), tmp_path)
    before = contents(tmp_path)
    seen: dict[str, str] = {}
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen[target.name] = target.read_text(encoding="utf-8")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_curve(make_curve().replace(task="other"), tmp_path)
    assert seen == before
    assert all(content != before[name] for name, content in contents(tmp_path).items())


def test_a_report_has_the_format_of_its_ending(tmp_path: Path) -> None:
    curve = make_curve()
    chapters = alone(curve)
    paths = [write_report(chapters, tmp_path / name) for name in ("a.MD", "b.svg", "c.json")]
    written = [path.read_text(encoding="utf-8") for path in paths]
    assert written == [markdown(alone(curve)), svg(curve), json.dumps(curve.to_json(), indent=2) + "\n"]
    with pytest.raises(UsageError, match=r"unknown report ending '\.doc'; known: \.html, \.md"):
        write_report(chapters, tmp_path / "d.doc")
    assert not (tmp_path / "d.doc").exists()


def test_reports_start_without_the_heavy_libraries() -> None:
    modules = "curve_chapter, comparison_chapter, terminal, charts, progress"
    heavy = "{'torch', 'transformers', 'altair', 'pandas', 'scipy', 'sklearn', 'vl_convert'}"
    code = f"import sys; from frostline.report.formats import registry; from frostline.report import {modules}; "
    code += f"print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
