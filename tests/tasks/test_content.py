"""One version of a file: rows and fingerprint come from the same bytes, and a large file is never mixed or held."""

from __future__ import annotations

import dataclasses
import io
import os
import stat
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from bench.data_memory import measured, write_csv
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from commands import Toy
from frostline import tasks
from frostline.cli import main
from frostline.errors import DataError
from frostline.kinds import CLASSIFICATION, Kind, Labels
from frostline.records.keys import fingerprint_of_files
from frostline.tasks import content, glue
from frostline.tasks.content import Content, ContentStream
from frostline.tasks.formats.sources import fingerprint
from frostline.tasks.formats.text import Lines
from tables import columns, write

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
N_ROWS = 60


def installed(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> str:
    """The name under which `--kind` finds the kind."""
    module = types.ModuleType("meddling")
    monkeypatch.setattr(module, "KIND", kind, raising=False)
    monkeypatch.setitem(sys.modules, "meddling", module)
    return "meddling:KIND"


@pytest.fixture
def before_texts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], str]:
    """A kind of task that does something when the labels are known: after a file was parsed, before loading ends."""

    def kind_that(does: Callable[[], object]) -> str:
        def encode(written: Sequence[str], classes: Sequence[str]) -> Labels:
            does()
            return CLASSIFICATION.encode(written, classes)

        return installed(monkeypatch, dataclasses.replace(CLASSIFICATION, encode=encode))

    return kind_that


def all_texts(data: tasks.TaskData) -> list[str]:
    texts = dict(zip(data.train.ids.tolist() + data.dev.ids.tolist(), data.train.texts + data.dev.texts, strict=True))
    return [texts[number] for number in sorted(texts)]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_swapped_while_it_is_loaded(
    tmp_path: Path, before_texts: Callable[[Callable[[], object]], str], suffix: str
) -> None:
    path, other = tmp_path / f"own{suffix}", tmp_path / f"other{suffix}"
    first, second = columns(N_ROWS, seed=4), columns(N_ROWS, seed=5)
    write(path, first)
    write(other, second)
    wanted = fingerprint_of_files([("train", path)])
    data = tasks.load(tasks.parse(str(path), kind=before_texts(lambda: other.replace(path))))
    assert all_texts(data) == first["text"]
    assert data.fingerprint == wanted
    # A second read, for the fingerprint, would have found the other file.
    assert fingerprint_of_files([("train", path)]) != wanted


def test_a_dev_file_that_is_swapped(tmp_path: Path, before_texts: Callable[[Callable[[], object]], str]) -> None:
    train, dev, other = (tmp_path / f"{name}.csv" for name in ("train", "held", "other"))
    for seed, path in enumerate((train, dev, other)):
        write(path, columns(N_ROWS, seed))
    wanted = fingerprint_of_files([("train", train), ("dev", dev)])
    n_read = iter(range(2))  # the labels of train, then those of dev
    swapping = before_texts(lambda: next(n_read) and other.replace(dev))
    data = tasks.load(tasks.parse(str(train), dev=str(dev), kind=swapping))
    assert data.fingerprint == wanted
    assert data.dev.texts == columns(N_ROWS, 1)["text"]


def test_a_saved_data_set_that_is_swapped(tmp_path: Path, before_texts: Callable[[Callable[[], object]], str]) -> None:
    first, second = columns(N_ROWS, seed=4), columns(N_ROWS, seed=5)
    datasets.Dataset.from_dict(first).save_to_disk(tmp_path / "own")
    datasets.Dataset.from_dict(second).save_to_disk(tmp_path / "other")
    wanted = tasks.load(tasks.parse(str(tmp_path / "own")))

    def swap() -> None:
        for path in (tmp_path / "other").iterdir():
            path.replace(tmp_path / "own" / path.name)

    data = tasks.load(tasks.parse(str(tmp_path / "own"), kind=before_texts(swap)))
    assert data.fingerprint == wanted.fingerprint
    assert all_texts(data) == first["text"]
    assert tasks.load(tasks.parse(str(tmp_path / "own"))).fingerprint != wanted.fingerprint


def test_a_file_of_glue_that_is_swapped(tmp_path: Path) -> None:
    folder = tmp_path / "SST-2"
    folder.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
    task = next(task for task in tasks.known() if task.name == "sst2")
    source = glue.find_rows(task, tmp_path, None)
    wanted = fingerprint_of_files([("train", folder / "train.tsv")])
    table = source.train.read(task.columns)
    (folder / "train.tsv").write_text("sentence\tlabel\nother\t1\nrows\t0\n")
    assert fingerprint({"train": table}, task.columns) == wanted
    assert table.column("sentence") == ["good", "bad"]
    assert fingerprint({"train": source.train.read(task.columns)}, task.columns) != wanted


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_a_large_file_that_changes_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_texts: Callable[[Callable[[], object]], str], suffix: str
) -> None:
    monkeypatch.setattr(content, "KEPT", 0)
    path = tmp_path / f"own{suffix}"
    write(path, columns(N_ROWS, seed=4))
    whole = path.read_bytes()
    place = whole.index(b"plain", len(whole) // 2)

    def change(to: bytes) -> str:
        path.write_bytes(whole)
        return before_texts(lambda: path.write_bytes(to))

    for to in (whole[:place] + b"PLAIN" + whole[place + 5 :], whole[:-1]):
        with pytest.raises(DataError, match="changed while it was read; run the command again") as caught:
            tasks.load(tasks.parse(str(path), kind=change(to)))
        assert caught.value.path == path
    path.write_bytes(whole)
    gone = tasks.parse(str(path), kind=before_texts(path.unlink))
    with pytest.raises(DataError, match="cannot be read again"):
        tasks.load(gone)
    # What is added at the end of a file belongs to the next reading.
    data = tasks.load(tasks.parse(str(path), kind=change(whole + whole)))
    assert len(all_texts(data)) == N_ROWS


def test_parquet_reads_only_what_was_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "KEPT", 0)
    monkeypatch.setattr(content, "PIECE", 64)
    path = tmp_path / "own.parquet"
    write(path, columns(N_ROWS, seed=4))
    whole = path.read_bytes()
    read = Content(path)
    assert b"".join(read.first_read()) == whole
    stream = ContentStream(read)
    assert [stream.seek(-3, io.SEEK_END), stream.read(), stream.read()] == [len(whole) - 3, whole[-3:], b""]
    assert [stream.seek(70), stream.read(100), stream.tell()] == [70, whole[70:170], 170]
    path.write_bytes(whole[:100] + b"?" + whole[101:])
    assert [stream.seek(0), stream.read(64)] == [0, whole[:64]]
    with pytest.raises(DataError, match="changed while it was read"):
        stream.read(64)
    with pytest.raises(DataError, match="changed while it was read"):
        parquet.read_table(stream)


@given(
    st.lists(st.sampled_from(["a", "é", "漢", "\n", "\r", "\r\n", "\u2028", "\x85", " ", "\ufeff"]), max_size=30),
    st.integers(1, 9),
    st.sampled_from(["", "\n"]),
)
def test_lines_do_not_depend_on_where_pieces_end(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], piece: int, newline: str
) -> None:
    written = "x" + "".join(parts)
    path = tmp_path_factory.mktemp("lines") / "own.csv"
    path.write_bytes(written.encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(content, "PIECE", piece)
        with Lines(Content(path), newline=newline) as lines:
            begins = [(lines.position, lines.number, line) for line in lines]
        assert [line for _, _, line in begins] == list(io.StringIO(written, newline=newline))
        assert lines.position == len(written.encode())
        # Positions are those after each line, because a line is counted when it is handed out.
        ends = np.cumsum([len(line.encode()) for _, _, line in begins]).tolist()
        assert [position for position, _, _ in begins] == ends


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_a_large_csv(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    write_csv(path, 30_000, 2000, ("no", "yes"))
    assert path.stat().st_size > 6e7
    assert measured(path, {"max_train": 1000, "max_dev": 1000})["growth_mb"] < 40
    assert measured(path, {})["growth_mb"] > 60, "all texts are in memory"
    path.unlink()


def test_copies_of_rows_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        frame = pd.DataFrame({"text": ["a", "b"], "label": [0, 1]})
        folder = tasks.write_rows({"train": frame, "dev": frame}, tmp_path, "mine")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes.pop("mine") == 0o700
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}


def test_a_command_resolves_and_loads_from_one_read(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    n_read: list[int] = []

    def class_names(labels: Sequence[str]) -> tuple[str, ...]:
        n_read.append(len(labels))
        assert CLASSIFICATION.class_names is not None
        return CLASSIFICATION.class_names(labels)

    kind = installed(monkeypatch, dataclasses.replace(CLASSIFICATION, class_names=class_names))
    asked = ["curve", str(toy.model), str(toy.train), "--kind", kind, "--dry-run", "--out", str(tmp_path)]
    assert main(asked) == 0, capsys.readouterr().err
    assert len(n_read) == 2, "one read for the command, one for its timed steps, which load rows as a worker does"
