from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.report import text


def number(written: str) -> float:
    return float(written.replace("−", "-").replace(",", "").rstrip("%"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (text.score(0.7812), "0.781"),
        (text.score(-0.0124), "−0.012"),
        (text.score(-0.0001), "0.000"),
        (text.difference(0.004), "+0.004"),
        (text.difference(-0.0131), "−0.013"),
        (text.difference(0.0), "0.000"),
        (text.difference(0.0004), "0.000"),
        (text.share(0.9678), "96.8%"),
        (text.share(-0.2), "−20.0%"),
        (text.rough_share(0.25), "25%"),
        (text.rough_share(0.004), "0.4%"),
        (text.rough_share(0.00001), "<0.1%"),
        (text.rough_share(0.0096), "1%"),
        (text.rough_share(0.0), "0%"),
        (text.part(25, 100), "25%"),
        (text.keep_share(0.9), "90%"),
        (text.keep_share(0.975), "97.5%"),
        (text.keep_share(0.29), "29%"),
        (text.score_interval((0.7431, 0.8119)), "[0.743, 0.812]"),
        (text.difference_interval((-0.0411, 0.0151)), "[−0.041, +0.015]"),
        (text.share_interval((0.95, 1.0134)), "[95.0, 101.3]"),
        (text.count(1_774_464), "1,774,464"),
        (text.counted(1, "run"), "1 run"),
        (text.counted(18, "run"), "18 runs"),
        (text.size(0), "0 bytes"),
        (text.size(999), "999 bytes"),
        (text.size(1_000), "1.0 kB"),
        (text.size(91_000_000), "91 MB"),
        (text.size(999_499_999), "999 MB"),
        (text.size(999_600_000), "1.0 GB"),
        (text.size(1_200_000_000), "1.2 GB"),
        (text.size(5 * 10**15), "5,000 TB"),
        (text.duration(0.44), "0.4 s"),
        (text.duration(12.3), "12 s"),
        (text.duration(59.6), "1 min 00 s"),
        (text.duration(192), "3 min 12 s"),
        (text.duration(3599.7), "1 h 00 min"),
        (text.duration(7500), "2 h 05 min"),
        (text.rough_duration(0.1), "5 s"),
        (text.rough_duration(46), "45 s"),
        (text.rough_duration(58), "1 min"),
        (text.rough_duration(119), "2 min"),
        (text.rough_duration(3570), "1 h 00 min"),
        (text.rough_duration(11_400), "3 h 10 min"),
        (text.seconds(0.4178), "0.42"),
        (text.seconds(9.996), "10.0"),
        (text.seconds(12.34), "12.3"),
        (text.seconds(99.96), "100"),
        (text.seconds(1234.5), "1,234"),
        (text.learning_rate(5e-05), "5e-5"),
        (text.learning_rate(0.00015), "1.5e-4"),
        (text.learning_rate(1e-3), "1e-3"),
        (text.learning_rate(1e-10), "1e-10"),
        (text.learning_rate(0.1), "0.1"),
        (text.learning_rate(0), "0"),
        (text.loss(float("nan")), "nan"),
        (text.loss(0.4123), "0.412"),
    ],
)
def test_written(written: str, expected: str) -> None:
    assert written == expected


def test_absent_values_are_a_dash() -> None:
    assert {
        text.score(None),
        text.difference(None),
        text.share(None),
        text.rough_share(None),
        text.score_interval(None),
        text.difference_interval(None),
        text.share_interval(None),
        text.count(None),
        text.size(None),
        text.duration(None),
        text.seconds(None),
        text.learning_rate(None),
        text.loss(None),
        text.part(None, 3),
        text.part(3, None),
        text.part(3, 0),
    } == {"–"}


@given(st.floats(-10, 10))
def test_scores_read_back_within_half_a_digit(value: float) -> None:
    assert abs(number(text.score(value)) - value) <= 0.0005 + 1e-12
    assert abs(number(text.difference(value)) - value) <= 0.0005 + 1e-12
    assert abs(number(text.share(value)) - 100 * value) <= 0.05 + 1e-9


@given(st.floats(1e-12, 1e-2, exclude_max=True))
def test_a_learning_rate_reads_back_to_the_bit(rate: float) -> None:
    assert float(text.learning_rate(rate)) == rate


@given(st.integers(1000, 10**14))
def test_a_size_reads_back_within_its_digits(n_bytes: int) -> None:
    amount, unit = text.size(n_bytes).split()
    back = number(amount) * {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    assert back == pytest.approx(n_bytes, rel=0.051)
    assert number(amount) < 1000


@given(st.floats(10, 1e6))
def test_a_duration_reads_back(seconds: float) -> None:
    worth = {"s": 1, "min": 60, "h": 3600}
    words = text.duration(seconds).split()
    back = sum(number(amount) * worth[unit] for amount, unit in zip(words[::2], words[1::2], strict=True))
    assert abs(back - seconds) <= (60 if "h" in words else 0.5)


@given(st.text(), st.integers(5, 300))
def test_a_name_is_one_printable_line(name: str, at_most: int) -> None:
    line = text.one_line(name, at_most)
    assert len(line) <= at_most
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in line)
    line.encode("utf-8")


def test_a_long_name_keeps_both_ends() -> None:
    line = text.one_line("/very/long/" + "x" * 10_000 + "/bert", 40)
    assert len(line) == 40
    assert line.startswith("/very/long/")
    assert line.endswith("/bert")


def test_a_name_cannot_steer_the_terminal_or_the_reading_direction() -> None:
    assert text.one_line("a\x1b[31mb\nc\u202ed\ud800e") == "a [31mb c d e"
    assert text.one_line("👩‍🔬 naïve 模型") == "👩‍🔬 naïve 模型"
