"""Control characters in names, labels and foreign files never reach a terminal raw; names in a model card are data."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import pty
import re
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from commands import Toy
from frostline.cli import main
from frostline.cli import main as cli_main
from frostline.errors import printable
from frostline.records.depth import FULL
from frostline.report.formats.latex import latex
from frostline.report.formats.markdown import markdown
from frostline.report.formats.spreadsheet import as_csv
from frostline.report.terminal import Screen
from frostline.saving.save import _card
from report.chapters import make_chapter
from synthetic import make_result

EVIL = "\x1b]0;owned\x07\x1b[38;5;201m\x9b5n\x7f\u202etxt\u2066"
"""Sets the title, colours, asks for the state of the terminal, deletes, turns the direction of text."""
EVIL_FILE = EVIL.replace("/", "")

# What rich writes on purpose: colours, and moves of the progress display.
OURS = re.compile(r"\x1b\[(?:[0-9;]*m|\d*[ABK]|\?25[lh])|\r")
EVIL_COLOUR = "\x1b[38;5;201m"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Standard output and error are a terminal; what was printed there is in the list afterwards."""
    ours, theirs = pty.openpty()
    read = bytearray()

    def listen() -> None:
        try:
            while chunk := os.read(ours, 65536):
                read.extend(chunk)
        except OSError:  # all ends on the other side are closed
            pass

    listener = threading.Thread(target=listen)
    listener.start()
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "200")
        with os.fdopen(theirs, "w", encoding="utf-8") as screen:
            patch.setattr(sys, "stdout", screen)
            patch.setattr(sys, "stderr", screen)
            yield said
    listener.join()
    os.close(ours)
    said.append(read.decode("utf-8"))


def check_harmless(said: str) -> None:
    """Fails if a control character was printed that rich does not write itself."""
    assert EVIL_COLOUR not in said
    found = CONTROL.search(OURS.sub("", said))
    assert found is None, said[max(0, found.start() - 200) : found.end() + 200]


@pytest.fixture(scope="module")
def evil(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a file of rows and a saved model, all with evil names and labels."""
    folder = tmp_path_factory.mktemp("evil")
    shutil.copytree(toy.model, folder / f"model{EVIL_FILE}")
    with toy.train.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    with (folder / f"rows{EVIL_FILE}.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([f"text{EVIL}", f"label{EVIL}", f"=other{EVIL}"])
        writer.writerows([f"{row['text']} {EVIL}", f"{row['label']}{EVIL}", f"=1+1{EVIL}"] for row in rows)
    return folder


def asked(evil: Path) -> list[str]:
    model, rows = evil / f"model{EVIL_FILE}", evil / f"rows{EVIL_FILE}.csv"
    columns = ["--text", f"text{EVIL}", "--label", f"label{EVIL}", "--dev-share", "0.5"]
    return [str(model), str(rows), *columns, "--lr", "1e-3", "--epochs", "1", "--workers", "1"]


@pytest.fixture(scope="module")
def printed(evil: Path) -> dict[str, str]:
    """What each command printed on a terminal."""
    out, save = evil / f"out{EVIL_FILE}", evil / f"saved{EVIL_FILE}"
    rows = str(evil / f"rows{EVIL_FILE}.csv")
    damaged = {"checksum": EVIL, "content": {EVIL: EVIL}}
    said = {}

    def run(name: str, *arguments: str, code: int = 0) -> None:
        with pytest.MonkeyPatch.context() as patch, terminal(patch) as written:
            found = main(list(arguments))
        said[name] = written[0]
        assert found == code, written[0]

    run("curve", "curve", *asked(evil), "--seeds", "2", "--frozen", "2,3", "--out", str(out))
    run("train", "train", *asked(evil), "--frozen", "2", "--out", str(out), "--save", str(save))
    run("predict", "predict", str(save), rows)
    run("predict jsonl", "predict", str(save), rows, "--format", "jsonl")
    run("report", "report", str(out))
    run("report files", "report", str(out), "--format", "md,latex,csv,html")
    run("report json", "report", str(out), "--json")
    run("layers", "layers", str(evil / f"model{EVIL_FILE}"))
    run("tasks", "tasks")
    run("cache", "cache", "ls")
    run("no such entry", "cache", "rm", EVIL, code=2)
    run("no such file", "curve", str(evil / f"model{EVIL_FILE}"), f"{rows}{EVIL}.csv", code=2)
    run("no such column", "curve", str(evil / f"model{EVIL_FILE}"), rows, "--text", EVIL, code=2)
    run("no such model", "layers", str(evil / f"no{EVIL_FILE}"), code=2)
    run("no such flag", "curve", f"--{EVIL}", code=2)
    run("no such command", EVIL, code=2)
    path = next((out / "runs").iterdir())
    path.write_text(json.dumps(damaged, ensure_ascii=False), encoding="utf-8")
    run("a damaged run", "curve", *asked(evil), "--seeds", "2", "--frozen", "2,3", "--out", str(out))
    config = evil / f"model{EVIL_FILE}" / "config.json"
    config.write_text(json.dumps({"model_type": EVIL}, ensure_ascii=False), encoding="utf-8")
    run("a foreign config", "layers", str(config.parent), code=3)
    return said


def test_no_control_character_reaches_the_terminal(printed: dict[str, str]) -> None:
    for said in printed.values():
        check_harmless(said)


def test_what_was_printed_had_evil_names(printed: dict[str, str]) -> None:
    quiet = {"tasks", "train", "report json", "no such flag"}
    for name in printed.keys() - quiet:
        assert "owned" in printed[name], name
    assert r"\x1b]0;owned\x07" in printed["predict"]
    for line in printed["predict jsonl"].splitlines():
        assert "owned" in json.loads(line)["prediction"]


def test_without_our_screen_the_terminal_would_be_steered(monkeypatch: pytest.MonkeyPatch) -> None:
    for screen, is_safe in ((Screen, True), (Console, False)):
        with terminal(monkeypatch) as said:
            screen().print(EVIL, highlight=False)
        if is_safe:
            check_harmless(said[0])
            assert said[0] == printable(EVIL.replace("\x07", "")) + "\r\n", "rich drops the bell"
        else:
            with pytest.raises(AssertionError):
                check_harmless(said[0])


def test_warnings_and_log_messages_of_libraries_are_safe_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    before = logging.getLogRecordFactory()
    sys.modules[cli_main.__module__]._make_safe()
    try:
        sys.stderr.write(warnings.formatwarning(EVIL, UserWarning, EVIL, 1))
        logging.getLogger("library").error("not read: %s", EVIL)
    finally:
        logging.setLogRecordFactory(before)
    said = capsys.readouterr().err
    check_harmless(said)
    assert said.count("owned") >= 2


@given(st.text())
def test_printable_text_is_left_alone_and_the_rest_is_escaped_once(text: str) -> None:
    shown = printable(text)
    assert CONTROL.search(shown.replace("\t", "")) is None
    assert printable(shown) == shown
    if CONTROL.search(text.replace("\t", "")) is None and "\ufffe" not in text and "\uffff" not in text:
        assert shown == text
    shown.encode()


def test_markdown_and_latex_hold_no_control_character_and_no_line_of_a_name() -> None:
    name = f"{EVIL}\n# owned\n| a | b |\n\\input{{x}}"
    chapter = make_chapter(task=name, model=name, warnings=(name,), command=name)
    for made in (markdown([chapter]), latex([chapter])):
        assert CONTROL.search(made) is None
        assert not [line for line in made.splitlines() if line.startswith(("# owned", "| a | b", "\\input"))]
    assert "\\input" not in latex([chapter])


# How the documentation says to undo it.
UNDO = re.compile(r"^'(?='*[=+@\t\r-])")

cells = st.one_of(
    st.text(), st.text("'=+-@\t\r1.e "), st.floats(allow_nan=False, allow_infinity=False), st.integers(), st.none()
)


@given(st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=5))
@settings(deadline=None)
def test_no_cell_is_a_formula_and_the_way_back_is_exact(rows: list[list[object]]) -> None:
    written = as_csv(["=a", "b"], [dict(zip(("=a", "b"), row, strict=True)) for row in rows])
    header, *read = csv.reader(io.StringIO(written, newline=""))
    assert header == ["'=a", "b"]
    for row, back in zip(rows, read, strict=True):
        for value, cell in zip(row, back, strict=True):
            if isinstance(value, str):
                assert UNDO.sub("", cell) == value
            if cell[:1] in ("=", "+", "-", "@", "\t", "\r"):
                assert all(re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", part) for part in cell.split(" ")), cell


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
@settings(deadline=None)
def test_names_in_a_model_card_are_data(name: str) -> None:
    result = make_result(FULL, 0, 0.5)
    spec = result.spec.replace(model=name, task=result.spec.task.replace(name=name))
    environment = result.environment.replace(versions={"frostline": "0.2"})
    card = _card(result.replace(spec=spec, environment=environment), is_plain=True)
    _, front_matter, body = re.split(r"^---\n", card, maxsplit=2, flags=re.MULTILINE)
    base = name if not Path(name).is_dir() else Path(name).name
    assert yaml.safe_load(front_matter) == {
        "base_model": base,
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["frostline"],
    }
    assert body.startswith("# ")
    assert sum(line.startswith("#") for line in body.splitlines()) == 1
    assert CONTROL.search(body) is None
