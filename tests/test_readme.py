"""What the README says runs, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.mark.real
def test_the_ten_lines_of_python_print_what_the_readme_says(tmp_path: Path) -> None:
    printed = README.partition("\nprints\n")[2]
    said = re.search(r"^```text\n(.*?)^```$", printed, re.MULTILINE | re.DOTALL)
    assert said is not None
    done = subprocess.run(
        [sys.executable, "-c", _block("python")], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines, said_lines = done.stdout.splitlines(), said.group(1).splitlines()
    assert len(lines) == len(said_lines)
    for line, said_line in zip(lines, said_lines, strict=True):
        # Another processor gives other last bits, and so, a row here and there, other scores.
        numbers, said_numbers = (re.findall(r"\d+\.\d+", text) for text in (line, said_line))
        assert [float(n) for n in numbers] == pytest.approx([float(n) for n in said_numbers], abs=0.08)
        assert re.sub(r"[\d.]+", "", line) == re.sub(r"[\d.]+", "", said_line)
    assert (tmp_path / "runs" / "readme" / "curve.svg").is_file()


def test_every_command_of_the_readme_is_there() -> None:
    done = subprocess.run([sys.executable, "-m", "frostline", "--help"], capture_output=True, text=True, check=True)
    named = set(re.findall(r"^\| `frostline (\w+)", README, re.MULTILINE))
    assert named
    assert all(re.search(rf"^│ {name} ", done.stdout, re.MULTILINE) for name in named)


def test_what_is_where_is_the_order_of_modules() -> None:
    table = README.partition("## What's where")[2]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = [name.rstrip("/") for row in rows for name in re.findall(r"`([\w/]+)`", row)]
    from test_structure import ORDER

    assert named == [name for name in ORDER if name != "__main__"]


def test_make_targets_of_the_readme_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
