"""Files of any content end in rows or in one line that explains them; never in anything else."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from commands import Toy
from frostline import tasks
from frostline.cli import main
from frostline.errors import DataError, UsageError
from frostline.tasks.formats import files

TEXT_SUFFIXES = [suffix for suffix in files.SUFFIXES if suffix != ".parquet"]
KINDS = (None, "classification", "regression")

PIECES = (
    b"text", b"label", b"sentence", b"text_pair", b",", b",", b"\t", b"\n", b"\n", b"\r", b"\r\n", b'"', b'""', b"'",
    b"{", b"}", b"[", b"]", b":", b'{"text": "a", "label": 0}', b'{"text": "b", "label": 1}', b"null", b"NaN", b"true",
    b"a", b"good film", b"0", b"1", b"2.5", b"-1", b"1e400", b"-", b" ", b"\\", b"\\ud800", b"\xef\xbb\xbf",
    b"\xc3\xa9", b"\xe9", b"\xff\xfe", b"\x00", b"\xe2\x80\xa8", b"\xc2\x85", b"\x1b[31m", b"PAR1",
)  # fmt: skip
"""What files of rows are made of, and what breaks them."""

soups = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)
anything = st.one_of(
    st.binary(max_size=300), soups, st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace"))
)

words = st.one_of(
    st.sampled_from(
        ("a good film", "the plot is bad and dull", "so fine", "", " ", "é", "a,b", 'say "hi"', "two\nlines")
    ),
    st.text(max_size=12),
)
labels = st.one_of(
    st.sampled_from(
        ("0", "1", "2", "yes", "no", "-1", "0.5", "1.0", "01", "", "nan", "inf", "1e400", "1e-99999999999999999999")
    ),
    st.text(max_size=6),
)
numbers = st.from_regex(r"[+-]?[0-9]{1,3}(\.[0-9]{0,2})?([eE][+-]?[0-9]{1,22})?", fullmatch=True)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.sampled_from((0, 1, "a", "b"))
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=4,
)
headers = st.one_of(
    st.sampled_from((("text", "label"), ("label", "text", "text_pair"), ("sentence", "label", ""))),
    st.sampled_from((("text", "label"), ("text", "text", "label"), ("txt", "label"))),
)


def most_often(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The odd one is drawn in one of eight."""
    return st.integers(0, 7).flatmap(lambda number: usual if number else odd)


@st.composite
def tables(draw: st.DrawFn, suffix: str) -> bytes:
    """A CSV or TSV that is nearly right: now and then a row is short or long, or a byte is lost."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, "excel-tab" if suffix == ".tsv" else "excel")
    header = draw(headers)
    writer.writerow(header)
    few_labels = draw(
        st.one_of(
            st.just(["0", "1"]),
            st.just(["1.5", "-2", "3"]),
            st.lists(labels, min_size=2, max_size=3),
            st.lists(numbers, min_size=2, max_size=3),
        )
    )
    n_columns = draw(most_often(st.none(), st.just(1)))
    for number in range(draw(st.integers(0, 12))):
        row = [few_labels[number % len(few_labels)] if name == "label" else draw(words) for name in header]
        writer.writerow(row[:n_columns])
    return _with_a_slip(draw, stream.getvalue().encode("utf-8", "replace"))


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """JSON lines, or an array, that are nearly right."""
    few_labels = draw(
        st.one_of(st.just([False, True]), st.just([1, -2.5, 3]), st.lists(values, min_size=2, max_size=3))
    )
    texts = draw(most_often(st.just(words), st.just(values)))
    odd_row = draw(most_often(st.none(), st.sampled_from(({"text": "lost"}, ["text"], 1, {}))))
    rows: list[Any] = [] if odd_row is None else [odd_row]
    for number in range(draw(st.integers(0, 12))):
        rows.append({"text": draw(texts), "label": few_labels[number % len(few_labels)], "id": number})
    written = json.dumps(rows) if draw(st.booleans()) else "".join(json.dumps(row) + "\n" for row in reversed(rows))
    return _with_a_slip(draw, written.encode("utf-8", "replace"))


def _with_a_slip(draw: st.DrawFn, content: bytes) -> bytes:
    if not content or draw(st.integers(0, 3)):
        return content
    place = draw(st.integers(0, len(content) - 1))
    return content[:place] + draw(st.sampled_from((*PIECES, b""))) + content[place + 1 :]


@st.composite
def any_file(draw: st.DrawFn) -> tuple[str, bytes]:
    """An ending and a content."""
    suffix = draw(st.sampled_from(TEXT_SUFFIXES))
    near = tables(suffix) if suffix in (".csv", ".tsv") else objects()
    return suffix, draw(st.one_of(near, near, anything))


def outcome(path: Path, **options: Any) -> str:
    """`rows`, or the message of the error that explains the file; anything else fails."""
    try:
        data = tasks.load(tasks.resolve(tasks.parse(str(path), dev_share=0.5, **options)))
    except (UsageError, DataError) as error:
        return str(error)
    for text in data.train.texts + data.dev.texts:
        text.encode()
    return "rows"


def check_message(message: str) -> None:
    assert message.isprintable()
    assert 10 < len(message) < 3000


def fuzz(n_examples: int) -> settings:
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=n_examples, deadline=None, suppress_health_check=checks)


@fuzz(500)
@given(file=any_file(), kind=st.sampled_from(KINDS))
def test_any_file_gives_rows_or_one_line(tmp_path: Path, file: tuple[str, bytes], kind: str | None) -> None:
    path = tmp_path / f"own{file[0]}"
    path.write_bytes(file[1])
    check_message(outcome(path, kind=kind) + " " * 10)


@fuzz(100)
@given(data=st.data())
def test_damaged_parquet_gives_rows_or_one_line(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "own.parquet"
    rows = {"text": [f"good film {i}" for i in range(20)], "label": [i % 2 for i in range(20)]}
    parquet.write_table(pyarrow.table(rows), path, compression=data.draw(st.sampled_from(("none", "snappy"))))
    assert outcome(path) == "rows"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=5))
    path.write_bytes(content)
    check_message(outcome(path) + " " * 10)


@fuzz(60)
@given(file=any_file(), kind=st.sampled_from(KINDS))
def test_the_command_ends_in_an_estimate_or_one_line(
    toy: Toy, tmp_path_factory: pytest.TempPathFactory, file: tuple[str, bytes], kind: str | None
) -> None:
    folder = tmp_path_factory.mktemp("fuzzed")
    path = folder / f"own{file[0]}"
    path.write_bytes(file[1])
    arguments = ["curve", str(toy.model), str(path), "--dry-run", "--dev-share", "0.5", "--out", str(folder / "out")]
    said, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
        code = main([*arguments, *(["--kind", kind] if kind else [])])
    if code == 0:
        assert "runs" in said.getvalue()
        return
    assert code in (2, 3), told.getvalue()
    assert told.getvalue().startswith("frostline: ")
    assert told.getvalue().endswith("\n")
    check_message(told.getvalue()[:-1])


@pytest.mark.parametrize("suffix", TEXT_SUFFIXES)
def test_the_files_are_not_all_broken(tmp_path: Path, suffix: str) -> None:
    """Both ends are reached: a fuzzer whose files are all refused at the first byte would test nothing."""
    near = tables(suffix) if suffix in (".csv", ".tsv") else objects()

    def ends_in(wanted: str) -> bytes:
        def is_so(content: bytes) -> bool:
            (tmp_path / f"own{suffix}").write_bytes(content)
            return wanted in outcome(tmp_path / f"own{suffix}")

        return find(near, is_so, settings=settings(max_examples=2000, database=None))

    assert ends_in("rows")
    assert ends_in("label")
