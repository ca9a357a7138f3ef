"""One set of rows in every format, what labels of each type become, and the faults of each format."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from frostline import tasks
from frostline.errors import DataError, UsageError
from frostline.tasks.formats import files
from frostline.tasks.formats.text import MOST_CHARACTERS

TEXTS = [f'row {i}, "quoted"\nand é\u2028' for i in range(40)]
LABELS = [("no", "yes")[i % 2] for i in range(40)]


def write(path: Path, columns: dict[str, list[Any]]) -> str:
    """The columns as the file's ending says."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(columns), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix in (".jsonl", ".ndjson"):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        raise AssertionError(path.suffix)
    return str(path)


def write_text(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    return str(path)


def load(source: str, **options: Any) -> tasks.TaskData:
    return tasks.load(tasks.resolve(tasks.parse(source, **options)))


TYPED = [".jsonl", ".ndjson", ".json", ".parquet"]


@pytest.mark.parametrize("suffix", TYPED)
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    import csv

    plain = tmp_path / "plain.csv"
    with plain.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("text", "label"), *zip(TEXTS, LABELS, strict=True)])
    wanted = load(str(plain))
    found = load(write(tmp_path / f"own{suffix}", {"id": list(range(40)), "text": TEXTS, "label": LABELS}))
    assert (found.train.texts, found.dev.texts) == (wanted.train.texts, wanted.dev.texts)
    assert found.train.labels.tolist() == wanted.train.labels.tolist()
    assert found.label_names == wanted.label_names
    assert found.fingerprint != wanted.fingerprint
    changed = [*TEXTS[:-1], "another"]
    other = load(write(tmp_path / f"own{suffix}", {"id": list(range(40)), "text": changed, "label": LABELS}))
    assert other.fingerprint != found.fingerprint
    assert other.train.texts + other.dev.texts != found.train.texts + found.dev.texts


@pytest.mark.parametrize("suffix", TYPED)
def test_a_folder_and_a_dev_file_of_another_format(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    write(folder / f"train{suffix}", {"text": TEXTS, "label": LABELS})
    (folder / "validation.tsv").write_text("text\tlabel\na\tno\nb\tyes\n")
    assert load(str(folder)).dev.texts == ["a", "b"]
    other = write(tmp_path / f"held{suffix}", {"label": ["yes", "no"], "text": ["c", "d"]})
    assert load(str(folder), dev=other).dev.texts == ["c", "d"]
    (folder / "validation.tsv").rename(folder / "test.tsv")
    left = load(str(folder))
    assert (len(left.train), len(left.dev)) == (36, 4)
    assert "splits not used: test; to score on one, give --dev NAME" in left.warnings
    assert load(str(folder), dev="test").dev.texts == ["a", "b"]
    write(folder / f"eval{suffix}", {"text": ["e", "f"], "label": ["yes", "no"]})
    assert "splits not used: eval, test; to score on one, give --dev NAME" in load(str(folder)).warnings
    (folder / f"eval{suffix}").unlink()
    with pytest.raises(UsageError, match="there is no dev file tset, and no split of that name; splits: test"):
        load(str(folder), dev="tset")
    with pytest.raises(UsageError, match="'train' is the training split"):
        load(str(folder), dev="train")


@pytest.mark.parametrize("suffix", TYPED)
@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([False, True], ("false", "true")),
        ([3, 1], ("1", "3")),
        ([10, -2, 9], ("-2", "9", "10")),
        ([2.0, 1.0], ("1", "2")),
        (["b", "a"], ("a", "b")),
    ],
)
def test_labels_of_any_type(tmp_path: Path, suffix: str, values: list[Any], names: tuple[str, ...]) -> None:
    labels = [values[i % len(values)] for i in range(60)]
    data = load(write(tmp_path / f"own{suffix}", {"text": [str(i) for i in range(60)], "label": labels}))
    assert data.label_names == names
    assert data.task.kind == "classification"
    for text, label in zip(data.train.texts, data.train.labels, strict=True):
        written = values[int(text) % len(values)]
        assert names[label] == (str(written).lower() if isinstance(written, bool | str) else str(int(written)))


@pytest.mark.parametrize("suffix", TYPED)
def test_numbers_are_classes_only_where_they_are_whole(tmp_path: Path, suffix: str) -> None:
    source = write(tmp_path / f"own{suffix}", {"text": TEXTS, "label": [i / 4 for i in range(40)]})
    with pytest.raises(UsageError, match=r"are numbers such as 0.25; pass --kind regression"):
        load(source)
    data = load(source, kind="regression")
    assert data.train.labels.dtype == np.float64
    assert data.train.labels.tolist() == [i / 4 for i in data.train.ids]


@pytest.mark.parametrize("suffix", TYPED)
def test_texts_may_be_numbers_or_missing(tmp_path: Path, suffix: str) -> None:
    source = write(tmp_path / f"own{suffix}", {"text": [None, *range(19)], "label": [0, 1] * 10})
    data = load(source, dev_share=0.5)
    texts = dict(zip([*data.train.ids, *data.dev.ids], data.train.texts + data.dev.texts, strict=True))
    assert [texts[number] for number in range(20)] == ["", *(str(i) for i in range(19))]
    assert sum("1 of 10" in warning and "empty text" in warning for warning in data.warnings) == 1


@pytest.mark.parametrize("suffix", TYPED)
@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_missing_label_names_its_row(tmp_path: Path, suffix: str, missing: float | None) -> None:
    source = write(tmp_path / f"own{suffix}", {"text": ["a", "b", "c"], "label": [0.0, 1.0, missing]})
    place = "line 3: " if suffix in (".jsonl", ".ndjson") else "row 3: "
    for kind in ("classification", "regression"):
        with pytest.raises(DataError, match=r"own.*the label \(column 'label'\) is empty or missing") as caught:
            load(source, kind=kind)
        assert place in str(caught.value)


@pytest.mark.parametrize("suffix", TYPED)
@pytest.mark.parametrize(
    ("column", "value", "what"),
    [("label", [1, 2], "a list"), ("text", ["a"], "a list"), ("text", {"en": "a"}, "an object")],
)
def test_lists_and_objects_are_refused(tmp_path: Path, suffix: str, column: str, value: Any, what: str) -> None:
    columns: dict[str, list[Any]] = {"text": ["a", "b"], "label": [0, 1]}
    columns[column] = [value, value]
    with pytest.raises(DataError, match=rf"column '{column}' holds {what}, which is not supported.*multi-label"):
        load(write(tmp_path / f"own{suffix}", columns))
    # In a column that is not used they do no harm.
    load(write(tmp_path / f"own{suffix}", {"text": TEXTS, "label": LABELS, "more": [value] * 40}))


def with_classes(path: Path, labels: list[int | None], names: list[str]) -> str:
    """Parquet as `datasets` writes it."""
    feature = {"names": names, "_type": "ClassLabel"}
    described = {"info": {"features": {"text": {"dtype": "string", "_type": "Value"}, "label": feature}}}
    table = pyarrow.table({"text": [f"t {i}" for i in range(len(labels))], "label": labels})
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(described)}), path)
    return str(path)


def test_declared_classes_keep_their_names_and_order(tmp_path: Path) -> None:
    data = load(with_classes(tmp_path / "own.parquet", [0, 1] * 20, ["zebra", "ant", "never"]))
    assert data.label_names == ("zebra", "ant", "never")
    assert data.train.labels.tolist() == [i % 2 for i in data.train.ids]
    assert any("without a training row: never" in warning for warning in data.warnings)
    dev = write(tmp_path / "dev.jsonl", {"text": ["x", "y"], "label": ["ant", "zebra"]})
    assert load(with_classes(tmp_path / "own.parquet", [0, 1] * 20, ["zebra", "ant"]), dev=dev).dev.labels.tolist() == [
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("label", "message"), [(-1, "row 3: .* means unlabelled"), (7, "is 7; it declares the classes 0 to 1")]
)
def test_numbers_that_are_no_declared_class(tmp_path: Path, label: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(with_classes(tmp_path / "own.parquet", [0, 1, label, 0], ["no", "yes"]))


@pytest.mark.parametrize(
    "metadata", [b"", b"[", b"{}", b'{"info": {"features": 3}}', b'{"info": {"features": {"label": 1}}}']
)
def test_descriptions_of_another_kind_are_passed_over(tmp_path: Path, metadata: bytes) -> None:
    table = pyarrow.table({"text": TEXTS, "label": LABELS}).replace_schema_metadata({"huggingface": metadata})
    parquet.write_table(table, tmp_path / "own.parquet")
    assert load(str(tmp_path / "own.parquet")).label_names == ("no", "yes")


def test_parquet_of_many_types(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    table = pyarrow.table(
        {
            "a.b": pyarrow.array(["x", "y"] * 5, pyarrow.large_string()),
            "kind": pyarrow.array(["p", "q"] * 5).dictionary_encode(),
            "when": pyarrow.array([-(10**14), None] * 5, pyarrow.timestamp("s")),
            "share": pyarrow.array([0.5, 1.0] * 5, pyarrow.float32()),
        }
    )
    parquet.write_table(table, path)
    columns = files.read(path, ["kind", "when", "a.b", "share"]).columns
    assert {name: values[:2] for name, values in columns.items()} == {
        "kind": ["p", "q"], "when": [columns["when"][0], ""], "a.b": ["x", "y"], "share": ["0.5", "1"],
    }  # fmt: skip
    assert "out of range" in columns["when"][0]


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.booleans()), min_size=1, max_size=8))
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, bool]]) -> None:
    folder = tmp_path_factory.mktemp("own")
    columns: dict[str, list[Any]] = {"text": [text for text, _ in rows], "label": [label for _, label in rows]}
    for suffix in TYPED:
        table = files.read(Path(write(folder / f"own{suffix}", columns)), ("text", "label"))
        assert table.columns == {
            "text": columns["text"],
            "label": ["true" if one else "false" for one in columns["label"]],
        }


ROW = '{"text": "a", "label": 0}\n'

BROKEN: dict[str, tuple[str, str, int | None, str]] = {
    "nothing": (".jsonl", "", None, "is empty"),
    "no rows in an array": (".json", " [ ] ", None, "has no rows"),
    "a broken line": (".jsonl", ROW + '{"text": "a", "label"}\n', 2, "is not JSON .Expecting ':' .* column 22"),
    "a line that was cut": (".jsonl", ROW + "\n" + ROW[:10], 3, "is not JSON"),
    "a broken array": (".json", "[" + ROW + "," + ROW[:10], 2, "is not JSON"),
    "one object over many lines": (".json", '{\n "text": ["a"]\n}', None, "one object per line, or one array"),
    "a line that is no object": (".jsonl", ROW + "[1, 2]\n", 2, "is not a JSON object but list"),
    "an array of numbers": (".json", "[1, 2]", None, "row 1: is not a JSON object but int"),
    "other keys": (".jsonl", ROW + '{"txt": "a", "label": 0}\n', 2, "no key 'text'; its keys: txt, label. Did you"),
    "other keys in an array": (".json", f"[{ROW}, {{}}]", None, "row 2: has no key"),
    "a key twice": (".jsonl", '{"text": "a", "label": 0, "text": "b"}\n', 1, "the key 'text' occurs more than once"),
    "half a character": (".jsonl", ROW + '{"text": "a\\ud83d", "label": 1}\n', 2, "half of a surrogate pair"),
    "a deep nest": (".jsonl", "[" * 100_000, None, "too deeply nested"),
    "a number without end": (".jsonl", ROW + f'{{"text": "a", "label": {"1" * 5000}}}\n', 2, "4300 digits"),
    "one class": (".jsonl", ROW * 3, None, "all labels .* are '0'"),
    "a NUL": (".csv", "text,label\na\0,0\n", 2, "looks binary, not like text"),
    "Parquet by another name": (".csv", "PAR1\x15", None, "is a Parquet file; rename it to .parquet"),
    "a zip": (".tsv", "PK\x03\x04", None, "is a zip or Excel file"),
    "another file by the name of Parquet": (".parquet", "text,label\na,0\n", None, "is not a readable Parquet file"),
    "empty Parquet": (".parquet", "", None, "is not a readable Parquet file"),
    "too large a number": (".csv", "text,label\na,1\nb,1e39\n", 3, "too large to train on"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_faults_name_the_file_and_the_line(tmp_path: Path, name: str) -> None:
    suffix, text, line, message = BROKEN[name]
    source = write_text(tmp_path / f"own{suffix}", text)
    with pytest.raises(DataError, match=message) as caught:
        load(source, kind="regression" if "number" in name and suffix == ".csv" else None)
    assert caught.value.path == Path(source)
    assert caught.value.line == line
    assert str(caught.value).count(source) == 1
    assert "\n" not in str(caught.value)


def test_utf16_and_gzip_are_named(tmp_path: Path) -> None:
    for content, what in (("text,label\n".encode("utf-16"), "is UTF-16"), (b"\x1f\x8b\x08\x00\x00", "by gzip")):
        (tmp_path / "own.csv").write_bytes(content)
        with pytest.raises(DataError, match=what):
            load(str(tmp_path / "own.csv"))


def test_parquet_that_was_cut_and_columns_that_are_not_there(tmp_path: Path) -> None:
    source = write(tmp_path / "own.parquet", {"text": TEXTS, "lable": LABELS})
    with pytest.raises(UsageError, match=r"no column 'label'; its columns: text, lable. Did you mean 'lable'"):
        load(source)
    assert load(source, label="lable").label_names == ("no", "yes")
    with pytest.raises(DataError, match=r"dev.parquet: has no column 'lable'"):
        load(source, label="lable", dev=write(tmp_path / "dev.parquet", {"text": TEXTS}))
    whole = Path(source).read_bytes()
    for n_bytes in (3, 8, len(whole) // 2, len(whole) - 1):
        Path(source).write_bytes(whole[:n_bytes])
        with pytest.raises(DataError, match=r"own.parquet: is not a readable Parquet file; was it written"):
            load(source)
    twice = pyarrow.table([["a"], ["b"], [0]], names=["text", "text", "label"])
    parquet.write_table(twice, source)
    with pytest.raises(DataError, match="names text more than once"):
        load(source)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
def test_a_line_of_200_mb_is_given_up_at_once(tmp_path: Path, suffix: str) -> None:
    import resource

    path = tmp_path / f"own{suffix}"
    with path.open("wb") as stream:
        begins = {".csv": b"text,label\n", ".tsv": b"text\tlabel\n"}
        stream.write(begins.get(suffix, b'{"text": "a", "label": 0}\n'))
        for _ in range(200):
            stream.write(b"x" * 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        DataError, match="longer than 10,000,000 characters" if suffix != ".parquet" else "not a readable Parquet"
    ) as caught:
        load(str(path))
    assert caught.value.line == (None if suffix == ".parquet" else 2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024
    path.unlink()


def test_a_field_over_many_lines_ends_somewhere_too(tmp_path: Path) -> None:
    line = "x" * 999 + "\n"
    source = write_text(tmp_path / "own.csv", 'text,label\n"' + line * (MOST_CHARACTERS // 1000 + 1))
    with pytest.raises(DataError, match=r"line 2: a field is longer than .* quotation mark that is never closed"):
        load(source)


def test_the_limit_is_one_of_lines_not_of_files(tmp_path: Path) -> None:
    line = "x" * 999_000
    rows = "".join(f"{line},{i % 2}\n" for i in range(24))
    assert len(load(write_text(tmp_path / "own.csv", "text,label\n" + rows)).train) == 22
    array = [{"text": line, "label": i % 2} for i in range(24)]
    assert len(load(write_text(tmp_path / "own.json", json.dumps(array))).train) == 22
    array[3]["text"] = "x" * (MOST_CHARACTERS + 1)
    with pytest.raises(DataError, match="row 4: column 'text' holds a text that is too long"):
        load(write_text(tmp_path / "own.json", json.dumps(array)))


def test_messages_stay_short_and_printable(tmp_path: Path) -> None:
    header = ",".join(f'"{i}\n\x1b[31m{"x" * 500}"' for i in range(3000))
    with pytest.raises(UsageError, match="3000 in all") as caught:
        load(write_text(tmp_path / "own.csv", header + "\n"), text="txt")
    assert len(str(caught.value)) < 5000
    assert str(caught.value).isprintable()


def test_all_columns_for_predictions(tmp_path: Path) -> None:
    unlabelled = with_classes(tmp_path / "test.parquet", [-1, 1], ["no", "yes"])
    assert tasks.read_columns(Path(unlabelled)) == {"text": ["t 0", "t 1"], "label": ["", "yes"]}
    columns: dict[str, list[Any]] = {"text": ["a", None], "more": [[1, "é"], []], "n": [1.5, 2.0], "is": [True, None]}
    for suffix in TYPED:
        found = tasks.read_columns(Path(write(tmp_path / f"own{suffix}", columns | {"more": [["1", "é"], []]})))
        assert found == {"text": ["a", ""], "more": ['["1", "é"]', "[]"], "n": ["1.5", "2"], "is": ["true", ""]}


ONE_OBJECT = {
    "rows in a key": ({"data": [{"text": "a", "label": 1}]}, r"keys: data\).*in 'data'; write that array alone"),
    "columns of pandas": (
        {"text": {"0": "a"}, "label": {"0": 1}},
        r"keys: text, label\), each key with a whole .*records",
    ),
    "columns as lists": ({"text": ["a", "b"], "label": [0, 1]}, r"keys: text, label\), each key with a whole column"),
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ONE_OBJECT)
def test_a_file_that_is_one_object_is_told_what_it_is(name: str, indent: int | None, tmp_path: Path) -> None:
    content, message = ONE_OBJECT[name]
    source = write_text(tmp_path / "own.json", json.dumps(content, indent=indent))
    for reads in (load, lambda path: tasks.read_columns(Path(path))):
        with pytest.raises(DataError, match=rf"own\.json: is one JSON object \({message}"):
            reads(source)


def test_one_row_is_a_row_and_over_several_lines_it_is_not(tmp_path: Path) -> None:
    row = {"text": "a", "tokens": ["a"]}
    assert tasks.read_columns(Path(write_text(tmp_path / "own.json", json.dumps(row))))["text"] == ["a"]
    with pytest.raises(DataError, match="over several lines; write one object per line"):
        tasks.read_columns(Path(write_text(tmp_path / "own.json", json.dumps(row, indent=2))))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(objects=st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=4), min_size=1, max_size=5))
def test_objects_of_any_keys_are_read_for_predictions(
    objects: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("own") / "own.json"
    path.write_text(json.dumps([{"text": "a"}, *objects]))
    found = tasks.read_objects(path)
    assert [list(one) for one in found] == [["text"], *(list(one) for one in objects)]
    columns = tasks.read_columns(path)
    assert list(columns) == list(dict.fromkeys(["text", *(name for one in objects for name in one)]))
    assert {len(fields) for fields in columns.values()} == {len(objects) + 1}
    json.dumps(found, allow_nan=False, ensure_ascii=False).encode()


def test_halves_of_characters_and_numbers_that_json_has_not_are_replaced(tmp_path: Path) -> None:
    path = Path(write_text(tmp_path / "own.jsonl", r'{"text": "a", "k\ud800": ["\udc00", NaN, 1e999, "\ud83d\ude00"]}'))
    assert tasks.read_objects(path) == [{"text": "a", "k\ufffd": ["\ufffd", None, None, "😀"]}]
