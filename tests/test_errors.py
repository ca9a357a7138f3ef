"""What messages are made of: one line of a library's error, a few of many names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.errors import one_line, some


@given(said=st.text(), at_most=st.integers(1, 50))
def test_an_error_is_told_in_one_line_that_can_be_printed(said: str, at_most: int) -> None:
    line = one_line(ValueError(said), at_most)
    assert line.isprintable()
    assert len(line) <= at_most


def test_an_error_keeps_its_words() -> None:
    assert one_line(ValueError("no such\n  \x1b[31mtoken\x00")) == "no such [31mtoken"
    assert one_line(ValueError("x" * 999)) == "x" * 300


@pytest.mark.parametrize(("names", "told"), [("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more")])
def test_a_few_of_many_names_are_told(names: str, told: str) -> None:
    assert some(list(names)) == told
