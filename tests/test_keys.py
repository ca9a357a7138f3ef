from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.records import specs
from frostline.records.keys import RESULTS_VERSION, canonical_json, derived_seed, fingerprint_of_files, key_of
from frostline.records.serial import Record
from frostline.records.specs import RunSpec, TaskSpec
from frostline.storage.runs import FolderIdentity
from synthetic import make_spec

NOT_IN_KEY: dict[type[Record], set[str]] = {
    RunSpec: {"model", "model_revision", "subset_of", "padded_because", "micro_batch_because"},
    TaskSpec: {"source", "data", "dev"},
    FolderIdentity: {"model"},
}
"""Where something is found. Whatever else a spec says changes numbers: a field marked so by mistake would mix runs."""

SPEC = make_spec(2, 0)
IDENTITY = FolderIdentity(model="m", model_fingerprint="a", task="toy", data_fingerprint="b")

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def other(kind: Any, value: Any) -> Any:
    """Another value of a field's type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner = next(argument for argument in arguments if argument is not type(None))
        return other(inner, value) if value is not None else first(inner)
    if origin is Literal:
        return next(argument for argument in arguments if argument != value)
    if kind is bool:
        return not value
    if kind in (int, float):
        return value + 1
    if origin is tuple:
        return (*value, first(arguments[0]))
    assert kind is str, f"teach this test to change a field of type {kind}"
    return f"{value}, changed"


def first(kind: Any) -> Any:
    """Some value of a field's type."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Literal else kind(7)


def changed(record: Record) -> list[tuple[str, Record]]:
    """The record with one field changed, for every field that is not a record itself."""
    hints = typing.get_type_hints(type(record))
    names = [f.name for f in dataclasses.fields(record) if not isinstance(getattr(record, f.name), Record)]
    return [(name, record.replace(**{name: other(hints[name], getattr(record, name))})) for name in names]


def run_specs() -> list[tuple[str, bool, RunSpec]]:
    """Every field of a run's spec, whether it belongs into the key, and the spec with that field changed."""
    own = [(name, name not in NOT_IN_KEY[RunSpec], typing.cast(RunSpec, spec)) for name, spec in changed(SPEC)]
    of_task = [
        (f"task.{name}", name not in NOT_IN_KEY[TaskSpec], SPEC.replace(task=task)) for name, task in changed(SPEC.task)
    ]
    return [*own, *of_task]


def test_every_field_is_tried() -> None:
    tried = {name for name, _, _ in run_specs()}
    fields = {f.name for f in dataclasses.fields(RunSpec)} - {"task"}
    assert tried == fields | {f"task.{f.name}" for f in dataclasses.fields(TaskSpec)}


@pytest.mark.parametrize(("name", "is_in_key", "spec"), run_specs(), ids=[name for name, _, _ in run_specs()])
def test_a_key_follows_every_field_that_changes_a_result(name: str, is_in_key: bool, spec: RunSpec) -> None:
    assert spec != SPEC
    assert (spec.key != SPEC.key) is is_in_key


def test_all_changes_have_keys_of_their_own() -> None:
    keys = [spec.key for _, is_in_key, spec in run_specs() if is_in_key]
    assert len({SPEC.key, *keys}) == len(keys) + 1


@pytest.mark.parametrize(("name", "identity"), changed(IDENTITY))
def test_a_folder_is_the_same_wherever_the_model_lies(name: str, identity: FolderIdentity) -> None:
    assert (identity.key == IDENTITY.key) is (name in NOT_IN_KEY[FolderIdentity])


def test_the_results_version_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = SPEC.key
    assert SPEC.replace().key == before
    monkeypatch.setattr(specs, "RESULTS_VERSION", RESULTS_VERSION + 1)
    assert SPEC.replace().key != before


def test_a_key_survives_the_way_through_json() -> None:
    assert RunSpec.from_json(json.loads(json.dumps(SPEC.to_json()))).key == SPEC.key


def test_keys_stay_what_they_are() -> None:
    # Runs stored by earlier versions are found by these.
    assert key_of({"b": [1, 0.5, None], "a": "é"}) == "b2a70fea54bc5ea5d6a4c76caf8b59f4"
    assert derived_seed(3, "order") == 1659353045


def test_canonical_json_is_compact_sorted_ascii() -> None:
    assert canonical_json({"b": [1, 2.5], "a": {"é": None}}) == '{"a":{"\\u00e9":null},"b":[1,2.5]}'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [float("-inf")]}])
def test_what_is_not_a_number_has_no_key(value: object) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        key_of(value)


@given(values)
def test_canonical_json_says_the_same_as_json(value: object) -> None:
    assert json.loads(canonical_json(value)) == json.loads(json.dumps(value))


@given(st.dictionaries(st.text(), values, min_size=2), st.randoms())
def test_the_order_of_fields_does_not_matter(value: dict[str, object], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert key_of(dict(items)) == key_of(value)


@given(values, values)
def test_keys_are_equal_where_the_json_is(one: object, another: object) -> None:
    assert (key_of(one) == key_of(another)) is (canonical_json(one) == canonical_json(another))
    assert len(key_of(one)) == 32
    assert int(key_of(one), 16) >= 0


def test_a_fingerprint_is_of_bytes_and_roles(tmp_path: Path) -> None:
    one, two, copy = (tmp_path / name for name in ("one.csv", "two.csv", "copy.csv"))
    one.write_text("text,label\n")
    copy.write_text("text,label\n")
    two.write_text("text,label\n\n")
    whole = fingerprint_of_files([("train", one), ("dev", two)])
    assert fingerprint_of_files([("train", copy), ("dev", two)]) == whole
    others = [
        fingerprint_of_files([("train", two), ("dev", one)]),
        fingerprint_of_files([("train", one)]),
        fingerprint_of_files([("train", one), ("dev", copy)]),
        fingerprint_of_files([("train", one), ("test", two)]),
    ]
    assert len({whole, *others}) == 5


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_seeds_differ_by_purpose_and_replicate(seed: int, another: int) -> None:
    drawn = {
        purpose: derived_seed(seed, purpose) for purpose in ("replicate head", "replicate order", "line_search head")
    }
    assert all(0 <= value < 2**31 for value in drawn.values())
    assert len(set(drawn.values())) == len(drawn)
    assert (derived_seed(seed, "head") == derived_seed(another, "head")) is (seed == another)
