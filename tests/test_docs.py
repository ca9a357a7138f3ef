"""The pages about your own data and your own Trainer: every Python block runs and prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from commands import run_script

PAGES = sorted((Path(__file__).parent.parent / "docs").glob("your-own-*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\s*^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_END = "– end of a block –"
_DECIMAL = re.compile(r"\d+\.\d+")
_LOG_LINE = re.compile(r"^\{'.*'\}\n", re.MULTILINE)
"""timings that Trainer prints on its own"""


def _blocks(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, in order, each with what it prints: the text block that follows."""
    return _BLOCK.findall(page)


def _is_said(printed: str, said: str) -> bool:
    """Decimals may differ by a tenth, because the last bits differ between processors."""
    numbers, said_numbers = (_DECIMAL.findall(text) for text in (printed, said))
    return _DECIMAL.sub("#", printed) == _DECIMAL.sub("#", said) and all(
        float(number) == pytest.approx(float(other), rel=0.1, abs=0.02)
        for number, other in zip(numbers, said_numbers, strict=True)
    )


@pytest.mark.real
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    blocks = _blocks(page.read_text(encoding="utf-8"))
    assert blocks
    code = "\n".join(f"{block}\nprint({_END!r})" for block, _ in blocks)
    done = run_script(code, tmp_path)
    assert done.code == 0, done.stderr
    for printed, (block, said) in zip(done.stdout.split(f"{_END}\n"), blocks, strict=False):
        assert _is_said(_LOG_LINE.sub("", printed), said), f"{block}\nprints\n{printed}"


def test_the_test_has_teeth() -> None:
    page = "a\n```python\nx = 1\n```\n\n```text\n1\n```\n```sh\nls\n```\n```python\nprint(x)\n```\nb\n```text\n2\n```\n"
    assert _blocks(page) == [("x = 1\n", "1\n"), ("print(x)\n", "")]
    assert _is_said("mean 0.741\n", "mean 0.739\n")
    assert not _is_said("mean 0.741\n", "mean 0.640\n")
    assert not _is_said("mean 0.741\n", "")
    assert not _is_said("2 rows\n", "3 rows\n")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("own_data.py", {"range(20)": "range(5)", "seeds=2": "seeds=1"}),  # fewer rows and runs, the same calls
        pytest.param("own_data.py", {}, marks=pytest.mark.thorough),
        ("keep_your_trainer.py", {}),
    ],
    ids=["own_data.py, fewer rows", "own_data.py", "keep_your_trainer.py"],
)
def test_the_examples_run(name: str, changes: dict[str, str], tmp_path: Path) -> None:
    code = (Path(__file__).parent.parent / "examples" / name).read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in code
        code = code.replace(old, new)
    done = run_script(code, tmp_path)
    assert done.code == 0, done.stderr
    assert "frozen weights did not change" in done.stdout or "layers keep 90%" in done.stdout
