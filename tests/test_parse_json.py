"""JSON of any content gives a value or one DataError that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.errors import DataError
from frostline.records.serial import parse_json, read_json

FILE = Path("some.json")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
)


@given(values)
def test_what_was_written_is_read(value: Any) -> None:
    assert parse_json(json.dumps(value), FILE) == value
    assert parse_json(json.dumps(value, ensure_ascii=False).encode(), FILE) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON: Expecting value at column 1"),
        ('{"a": 1,\n "b"', "line 2: not JSON"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        ("[" * 100_000, "not readable JSON: too deeply nested"),
        ("[" * 500 + "]" * 500, "nested more than 100 levels"),
        ('{"a": ' * 101 + "1" + "}" * 101, "nested more than 100 levels"),
        ("1" * 5000, "not readable JSON: Exceeds the limit"),
        (r'{"a": "\ud800"}', r"it holds half a character: '\ud800'"),
        (r'{"\uDFFF": 1}', r"it holds half a character: '\udfff'"),
    ],
)
def test_what_cannot_be_used_is_one_error(text: str | bytes, said: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_json(text, FILE)
    assert said in str(caught.value)
    assert str(caught.value).startswith("some.json")
    assert str(caught.value).isprintable()


def test_a_hundred_levels_and_whole_characters_are_read() -> None:
    assert parse_json("[" * 100 + "]" * 100, FILE)
    assert parse_json(r'"\ud83d\ude00"', FILE) == "\N{GRINNING FACE}"
    assert parse_json(r'"\\ud800"', FILE) == r"\ud800"


def test_a_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    path.write_text('"' + "x" * 98 + '"')
    assert read_json(path, max_bytes=100) == "x" * 98
    with pytest.raises(DataError, match=r"some\.json: larger than 99 bytes"):
        read_json(path, max_bytes=99)
    with pytest.raises(DataError, match=r"cannot be read: Is a directory"):
        read_json(tmp_path)
