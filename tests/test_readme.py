"""The README: its code runs and prints what it shows; its commands and targets exist; so do the links of all pages."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import run_script
from frostline import errors
from test_structure import ORDER

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.mark.real
@pytest.mark.parametrize("max_train", [32, pytest.param(320, marks=pytest.mark.thorough)])
def test_the_ten_lines_of_python_print_what_the_readme_says(max_train: int, tmp_path: Path) -> None:
    """With fewer rows and seeds they print the same words, with all of them also the same numbers."""
    said = re.search(r"^```text\n(.*?)^```$", README.partition("\nprints\n")[2], re.MULTILINE | re.DOTALL)
    assert said is not None
    code = _block("python")
    assert '"max_train": 320, "max_dev": 200' in code
    assert '"seeds": 2' in code
    if max_train != 320:
        code = code.replace("320", str(max_train)).replace("200", str(max_train)).replace('"seeds": 2', '"seeds": 1')
    done = run_script(code, tmp_path)
    assert done.code == 0, done.stderr
    lines, said_lines = done.stdout.splitlines(), said.group(1).splitlines()
    assert [re.sub(r"[\d.]+", "", line) for line in lines] == [re.sub(r"[\d.]+", "", line) for line in said_lines]
    if max_train == 320:  # the last bits differ between processors, so a few rows may get another answer
        numbers, said_numbers = (re.findall(r"\d+\.\d+", "\n".join(text)) for text in (lines, said_lines))
        assert [float(n) for n in numbers] == pytest.approx([float(n) for n in said_numbers], abs=0.08)
    assert (tmp_path / "runs" / "readme" / "curve.svg").is_file()


def test_every_command_of_the_readme_exists() -> None:
    done = subprocess.run([sys.executable, "-m", "frostline", "--help"], capture_output=True, text=True, check=True)
    named = set(re.findall(r"^\| `frostline (\w+)", README, re.MULTILINE))
    assert named
    assert all(re.search(rf"^│ {name} ", done.stdout, re.MULTILINE) for name in named)


def test_the_readme_names_all_exit_codes() -> None:
    table = README.partition("| exit code |")[2]
    named = {int(code) for codes in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in codes.split(",")}
    codes = {code for name, code in vars(errors).items() if name.startswith("EXIT_") and name != "EXIT_SIGNAL"}
    assert named == {0, *codes, *(errors.EXIT_SIGNAL + number for number in (signal.SIGTERM, signal.SIGHUP))}


def test_the_table_of_packages_is_their_order() -> None:
    assert _packages(ARCHITECTURE) == [name for name in ORDER if name != "__main__"]


def test_the_table_of_packages_test_has_teeth() -> None:
    rows = [line for line in ARCHITECTURE.splitlines() if line.startswith(("| `stats`", "| `kinds`"))]
    swapped = ARCHITECTURE.replace("\n".join(rows), "\n".join(reversed(rows)))
    assert swapped != ARCHITECTURE
    assert _packages(swapped) != _packages(ARCHITECTURE)


def _packages(page: str) -> list[str]:
    table = page.partition("## Packages")[2].partition("\n## ")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    assert _broken_links(page, page.read_text(encoding="utf-8")) == []


def test_the_link_test_has_teeth() -> None:
    text = "[a](README.md), [b](https://x.y), [c](none.md#z), [d](#here), ![e](docs/demo.svg)"
    assert _broken_links(ROOT / "README.md", text) == ["none.md"]


def _broken_links(page: Path, text: str) -> list[str]:
    """Links of a page to files that do not exist."""
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    return [link for link in links if link and not (page.parent / link).exists()]


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
