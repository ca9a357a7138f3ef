from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import pkgutil
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

import frostline
from frostline.errors import DataError
from frostline.records.arrays import StoredArray
from frostline.records.depth import FULL
from frostline.records.results import EpochRecord, RunResult
from frostline.records.serial import Record, field_docs, key_fields
from frostline.records.specs import TaskSpec
from frostline.report.chapter import Chapter
from synthetic import make_result

NOT_NUMBERS: tuple[object, ...] = ("1", True, None, [1], {})


def record_classes() -> list[type[Record]]:
    """Every record of the package."""
    for module in pkgutil.walk_packages(frostline.__path__, "frostline."):
        if not module.name.endswith(("__main__", ".worker")):
            importlib.import_module(module.name)

    def below(kind: type[Record]) -> Iterator[type[Record]]:
        for inner in kind.__subclasses__():
            yield inner
            yield from below(inner)

    # Chapters are written and never read.
    ours = {
        kind for kind in below(Record) if kind.__module__.startswith("frostline.") and not issubclass(kind, Chapter)
    }
    return sorted(ours, key=lambda k: k.__name__)


RECORDS = record_classes()


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is StoredArray:
        whole = arrays.arrays(dtype="<f4", shape=arrays.array_shapes(max_dims=2, max_side=2)).map(StoredArray.of)
        return st.one_of(whole, whole.map(lambda array: array.reference))
    if isinstance(kind, type) and issubclass(kind, Record):
        hints = typing.get_type_hints(kind)
        stored = [f for f in dataclasses.fields(kind) if f.metadata.get("is_stored", True)]
        return st.builds(kind, **{f.name: of_type(hints[f.name]) for f in stored})
    if origin in (types.UnionType, typing.Union):
        if Literal[FULL] in arguments:  # null is read as the full model
            arguments = tuple(argument for argument in arguments if argument is not type(None))
        return st.one_of(*(st.none() if argument is type(None) else of_type(argument) for argument in arguments))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(of_type(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), of_type(arguments[1]), max_size=2)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(max_size=5),
        bool: st.booleans(),
        int: st.integers(),
        float: st.floats(allow_nan=False, allow_infinity=False),
    }
    return plain[kind]


def wrong_for(kind: Any) -> tuple[object, ...]:
    """JSON values that are not of a field's type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner = next(argument for argument in arguments if argument is not type(None))
        return tuple(value for value in wrong_for(inner) if value is not None)
    if origin is Literal:
        return ("no such choice", None, 1)
    if origin is tuple:
        return ("text", None, {"a": 1}, 3)
    if origin is dict or (isinstance(kind, type) and issubclass(kind, Record)):
        return ("text", None, [], 3)
    if kind is float:
        return NOT_NUMBERS
    return {str: (1, None, ["a"]), bool: (0, "true", None), int: (*NOT_NUMBERS, 1.5)}[kind]


def through_json(record: Record) -> Any:
    return json.loads(json.dumps(record.to_json(), allow_nan=False))


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_record_comes_back_from_json(kind: type[Record]) -> None:
    @settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(of_type(kind))
    def comes_back(record: Record) -> None:
        again = kind.from_json(through_json(record))
        assert again == record
        assert again.to_json() == record.to_json()

    comes_back()


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_every_field_has_a_string_under_it(kind: type[Record]) -> None:
    own = [name for name in inspect.get_annotations(kind) if name in {f.name for f in dataclasses.fields(kind)}]
    docs = field_docs(typing.cast(Any, kind))
    assert [name for name in own if not docs.get(name, "").strip()] == []
    assert set(docs) <= set(own)


def test_field_docs_see_a_missing_string() -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(EpochRecord)))
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    assert len(strings) == len(field_docs(EpochRecord)) + 1  # and the class's own

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Bare(Record):
        said: int
        """a string"""
        unsaid: int

    assert dict(field_docs(Bare)) == {"said": "a string"}


RESULT = through_json(make_result(2, 0, 0.75).without_arrays())


def fields_of(kind: type[Record], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every field of a record and of the records in it, by its path in JSON."""
    hints = typing.get_type_hints(kind)
    for f in dataclasses.fields(kind):
        if not f.metadata.get("is_stored", True):
            continue
        name, hint = f.metadata.get("json_name", f.name), hints[f.name]
        yield (*path, name), hint
        if isinstance(hint, type) and issubclass(hint, Record):
            yield from fields_of(hint, (*path, name))


RESULT_FIELDS = list(fields_of(RunResult))


LATER = {"model_revision",
    "probes", "diverged", "label_scale", "master_seed", "standardised", "max_steps", "subset_seed", "subset_of",
    "padded_because", "micro_batch_size", "micro_batch_because", "fit_seed", "is_balanced", "passes", "measures",
    "measured",
}  # fmt: skip
"""fields that came after the first release"""


def with_change(path: tuple[str, ...], value: object) -> Any:
    """The JSON of a result, one field changed."""
    content = json.loads(json.dumps(RESULT))
    holder = content
    for name in path[:-1]:
        holder = holder[name]
    if value is ...:
        holder.pop(path[-1], None)
    else:
        holder[path[-1]] = value
    return content


def test_the_unchanged_result_is_fine() -> None:
    assert RunResult.from_json(RESULT) == make_result(2, 0, 0.75)


@pytest.mark.parametrize(("path", "kind"), RESULT_FIELDS, ids=[".".join(path) for path, _ in RESULT_FIELDS])
def test_a_field_that_is_missing_or_of_another_type_is_named(path: tuple[str, ...], kind: Any) -> None:
    if path[-1] in LATER:  # came later: what was written before it is still read
        assert RunResult.from_json(with_change(path, ...)) is not None
    else:
        with pytest.raises(DataError, match=r"missing fields \['" + path[-1]):
            RunResult.from_json(with_change(path, ...))
    for wrong in wrong_for(kind):
        with pytest.raises(DataError, match=".".join(path)) as raised:
            RunResult.from_json(with_change(path, wrong))
        assert repr(wrong)[:20] in str(raised.value)


@pytest.mark.parametrize("path", [("surprise",), ("spec", "surprise"), ("spec", "task", "surprise")])
def test_an_unknown_field_is_named(path: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"missing fields \[\], unknown \['surprise'\]"):
        RunResult.from_json(with_change(path, 1))


@pytest.mark.parametrize("value", ["text", None, [], 3])
def test_what_is_no_object_is_no_record(value: object) -> None:
    with pytest.raises(DataError, match=r"TaskSpec is .*; it should be an object"):
        TaskSpec.from_json(value)


def test_a_wrong_item_of_a_list_is_named() -> None:
    epochs = [*RESULT["epochs"], {**RESULT["epochs"][0], "train_loss": "low"}]
    with pytest.raises(DataError, match=r"RunResult\.epochs\[\]\.train_loss is 'low'"):
        RunResult.from_json(with_change(("epochs",), epochs))


def test_a_whole_number_will_do_for_a_float() -> None:
    result = RunResult.from_json(with_change(("score",), 1))
    assert isinstance(result.score, float)
    assert result.score == 1.0


def test_records_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_result(2, 0, 0.75).score = 1.0  # type: ignore[misc]


def test_fields_out_of_the_key_are_left_out_at_every_depth() -> None:
    spec = make_result(2, 0, 0.75).spec
    kept = key_fields(spec)
    assert set(spec.to_json()) - set(kept) - LATER == {"model"}
    assert spec.replace(subset_of=7).key == spec.key, "where states are cached does not change a result"
    assert set(spec.task.to_json()) - set(kept["task"]) == {"source", "data", "dev"}


@given(
    arrays.arrays(
        dtype=st.sampled_from(["<f4", ">f4", "<f8", "<i8", ">i4", "|u1", "|b1"]),
        shape=arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
    )
)
def test_an_array_comes_back_to_the_bit(array: NDArray[Any]) -> None:
    for view in (array, array.T, array[::-1]):
        again = StoredArray.from_json(through_json(StoredArray.of(view))).array()
        assert again.shape == view.shape
        assert again.dtype == view.dtype.newbyteorder("<")
        assert again.tobytes() == np.ascontiguousarray(view).astype(again.dtype).tobytes()


def test_an_array_that_differs_in_one_bit_is_another() -> None:
    array = np.array([0.1, 0.2], dtype=np.float32)
    nudged = np.nextafter(array, np.float32(1))
    assert StoredArray.of(array) != StoredArray.of(nudged)
    assert StoredArray.of(np.array([0.0])) != StoredArray.of(np.array([-0.0]))
