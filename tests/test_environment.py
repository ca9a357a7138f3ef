"""What results say about where they came from: frostline's own command, and no secrets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.analysis.provenance import Provenance
from frostline.records.depth import FULL
from frostline.records.environment import as_command, current_environment, own_command, without_secrets
from synthetic import make_result

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("--token", SECRET), ("--token", "***")),
        (("--token=hunter2",), ("--token=***",)),
        (("--db-password", SECRET, "--seeds", "3"), ("--db-password", "***", "--seeds", "3")),
        (("--DB_PASSWORD=hunter2 and more",), ("--DB_PASSWORD=***",)),
        (("-api-key", "-hunter2"), ("-api-key", "***")),
        (("HF_TOKEN=hunter2",), ("HF_TOKEN=***",)),
        (("https://me:hunter2@host/rows.csv",), ("https://***@host/rows.csv",)),
        (("s3://b/rows?signature=1&key=hunter2&x=2",), ("s3://b/rows?signature=1&key=***&x=2",)),
        (("hf_hunter2abcdefghijklmnop",), ("***",)),
    ],
)
def test_values_that_look_secret_are_left_out(given: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert without_secrets(("frostline", *given)) == ("frostline", *shown)
    assert without_secrets(shown) == shown


def test_what_does_not_look_secret_stays() -> None:
    words = ("frostline", "curve", "bert-base-uncased", "a@b.csv", "--text", "token", "--keep", "0.9", "--label", "key")
    assert without_secrets(words) == words


@given(st.lists(st.text()))
def test_any_command_line_keeps_its_number_of_words(words: list[str]) -> None:
    assert len(without_secrets(words)) == len(words)


def test_only_the_command_line_interface_names_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py", "--password", SECRET])
    assert current_environment("cpu").command == ()
    with as_command(["curve", "bert", "--token=hunter2"]):
        assert current_environment("cpu").command == ("frostline", "curve", "bert", "--token=***")
    assert own_command() == ()


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (("/usr/bin/frostline", "curve", "m", "--text", "a b"), "frostline curve m --text 'a b'"),
        (("/lib/frostline/__main__.py", "curve", "--token", SECRET), "frostline curve --token '***'"),
        (("/srv/app/train.py", "--user", SECRET), ""),
        ((), ""),
    ],
)
def test_stored_commands_of_earlier_releases_show_no_secret(stored: tuple[str, ...], shown: str) -> None:
    result = make_result(FULL, 0, 0.5)
    result = result.replace(environment=result.environment.replace(command=stored))
    assert Provenance.of(Path("out"), "", [result]).command == shown
