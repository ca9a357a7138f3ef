from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.report import numbers


def number(written: str) -> float:
    return float(written.replace("−", "-").replace(",", "").rstrip("%"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (numbers.score(0.7812), "0.781"),
        (numbers.score(-0.0124), "−0.012"),
        (numbers.score(-0.0001), "0.000"),
        (numbers.difference(0.004), "+0.004"),
        (numbers.difference(-0.0131), "−0.013"),
        (numbers.difference(0.0), "0.000"),
        (numbers.difference(0.0004), "0.000"),
        (numbers.share(0.9678), "96.8%"),
        (numbers.share(-0.2), "−20.0%"),
        (numbers.rough_share(0.25), "25%"),
        (numbers.rough_share(0.004), "0.4%"),
        (numbers.rough_share(0.00001), "<0.1%"),
        (numbers.rough_share(0.0096), "1%"),
        (numbers.rough_share(0.0), "0%"),
        (numbers.part(25, 100), "25%"),
        (numbers.keep_share(0.9), "90%"),
        (numbers.keep_share(0.975), "97.5%"),
        (numbers.keep_share(0.29), "29%"),
        (numbers.score_interval((0.7431, 0.8119)), "[0.743, 0.812]"),
        (numbers.difference_interval((-0.0411, 0.0151)), "[−0.041, +0.015]"),
        (numbers.share_interval((0.95, 1.0134)), "[95.0, 101.3]"),
        (numbers.count(1_774_464), "1,774,464"),
        (numbers.counted(1, "run"), "1 run"),
        (numbers.counted(18, "run"), "18 runs"),
        (numbers.size(0), "0 bytes"),
        (numbers.size(999), "999 bytes"),
        (numbers.size(1_000), "1.0 kB"),
        (numbers.size(91_000_000), "91 MB"),
        (numbers.size(999_499_999), "999 MB"),
        (numbers.size(999_600_000), "1.0 GB"),
        (numbers.size(1_200_000_000), "1.2 GB"),
        (numbers.size(5 * 10**15), "5,000 TB"),
        (numbers.duration(0.44), "0.4 s"),
        (numbers.duration(12.3), "12 s"),
        (numbers.duration(59.6), "1 min 00 s"),
        (numbers.duration(192), "3 min 12 s"),
        (numbers.duration(3599.7), "1 h 00 min"),
        (numbers.duration(7500), "2 h 05 min"),
        (numbers.rough_duration(0.1), "5 s"),
        (numbers.rough_duration(46), "45 s"),
        (numbers.rough_duration(58), "1 min"),
        (numbers.rough_duration(119), "2 min"),
        (numbers.rough_duration(3570), "1 h 00 min"),
        (numbers.rough_duration(11_400), "3 h 10 min"),
        (numbers.seconds(0.4178), "0.42"),
        (numbers.seconds(9.996), "10.0"),
        (numbers.seconds(12.34), "12.3"),
        (numbers.seconds(99.96), "100"),
        (numbers.seconds(1234.5), "1,234"),
        (numbers.learning_rate(5e-05), "5e-5"),
        (numbers.learning_rate(0.00015), "1.5e-4"),
        (numbers.learning_rate(1e-3), "1e-3"),
        (numbers.learning_rate(1e-10), "1e-10"),
        (numbers.learning_rate(0.1), "0.1"),
        (numbers.learning_rate(0), "0"),
        (numbers.loss(float("nan")), "nan"),
        (numbers.loss(0.4123), "0.412"),
    ],
)
def test_written(written: str, expected: str) -> None:
    assert written == expected


def test_absent_values_are_a_dash() -> None:
    assert {
        numbers.score(None),
        numbers.difference(None),
        numbers.share(None),
        numbers.rough_share(None),
        numbers.score_interval(None),
        numbers.difference_interval(None),
        numbers.share_interval(None),
        numbers.count(None),
        numbers.size(None),
        numbers.duration(None),
        numbers.seconds(None),
        numbers.learning_rate(None),
        numbers.loss(None),
        numbers.part(None, 3),
        numbers.part(3, None),
        numbers.part(3, 0),
    } == {"–"}


@given(st.floats(-10, 10))
def test_scores_read_back_within_half_a_digit(value: float) -> None:
    assert abs(number(numbers.score(value)) - value) <= 0.0005 + 1e-12
    assert abs(number(numbers.difference(value)) - value) <= 0.0005 + 1e-12
    assert abs(number(numbers.share(value)) - 100 * value) <= 0.05 + 1e-9


@given(st.floats(1e-12, 1e-2, exclude_max=True))
def test_a_learning_rate_reads_back_to_the_bit(rate: float) -> None:
    assert float(numbers.learning_rate(rate)) == rate


@given(st.integers(1000, 10**14))
def test_a_size_reads_back_within_its_digits(n_bytes: int) -> None:
    amount, unit = numbers.size(n_bytes).split()
    back = number(amount) * {"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}[unit]
    assert back == pytest.approx(n_bytes, rel=0.051)
    assert number(amount) < 1000


@given(st.floats(10, 1e6))
def test_a_duration_reads_back(seconds: float) -> None:
    worth = {"s": 1, "min": 60, "h": 3600}
    words = numbers.duration(seconds).split()
    back = sum(number(amount) * worth[unit] for amount, unit in zip(words[::2], words[1::2], strict=True))
    assert abs(back - seconds) <= (60 if "h" in words else 0.5)


@given(st.text(), st.integers(5, 300))
def test_a_name_is_one_printable_line(name: str, at_most: int) -> None:
    line = numbers.one_line(name, at_most)
    assert len(line) <= at_most
    assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in line)
    line.encode("utf-8")


def test_a_long_name_keeps_both_ends() -> None:
    line = numbers.one_line("/very/long/" + "x" * 10_000 + "/bert", 40)
    assert len(line) == 40
    assert line.startswith("/very/long/")
    assert line.endswith("/bert")


def test_a_name_cannot_steer_the_terminal_or_the_reading_direction() -> None:
    assert numbers.one_line("a\x1b[31mb\nc\u202ed\ud800e") == "a [31mb c d e"
    assert numbers.one_line("👩‍🔬 naïve 模型") == "👩‍🔬 naïve 模型"
