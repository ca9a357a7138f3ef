"""The commands on the page "Your own data" run and print what the page shows."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from frostline.cli import main

pytestmark = pytest.mark.usefixtures("draws")

PAGE = (Path(__file__).parent.parent / "docs" / "your-own-data.md").read_text(encoding="utf-8")
_NUMBER = re.compile(r"\d+ (min|s|MB|kB)\b|\babout [^,]*,")


def _commands(page: str) -> list[tuple[str, str]]:
    """Each command line of the console blocks, and what it prints."""
    blocks = "".join(re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    return [(command, said) for command, said in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", blocks, re.MULTILINE)]


def _without_measures(said: str) -> str:
    return _NUMBER.sub("#", said)


@pytest.mark.real
def test_the_commands_say_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    first_block = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert first_block is not None
    exec(first_block[1], {})
    capfd.readouterr()
    for command, wanted in _commands(PAGE):
        if "reviews.csv --dry-run" in command and not request.config.getoption("--thorough"):
            continue  # the other dry run takes less
        if not command.startswith("frostline "):
            subprocess.run(command, shell=True, check=True)
            continue
        code = main(shlex.split(command)[1:])
        said = capfd.readouterr()
        assert (code != 0) == wanted.startswith("frostline: "), said.err
        assert _without_measures(said.err if code else said.out) == _without_measures(wanted)


def test_the_test_has_teeth() -> None:
    commands = _commands(PAGE)
    assert sum("frostline: " in said for _, said in commands) >= 7
    assert sum("--dry-run" in command for command, _ in commands) == 2
    assert _commands("```console\n$ a\nb\nc\n$ d\n```\n$ e\n") == [("a", "b\nc\n"), ("d", "")]
    assert _without_measures("30 runs: about 2 min, 4 MB of x") == _without_measures("30 runs: about 9 s, 17 MB of x")
    assert _without_measures("30 runs: about 2 min, 4 MB of x") != _without_measures("31 runs: about 2 min, 4 MB of x")
