"""Arrays of runs are files of their own: equal ones once, damaged ones never used, those of old folders still read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from frostline.errors import DataError
from frostline.records.arrays import StoredArray
from frostline.records.results import RunResult
from frostline.storage import arrays
from frostline.storage.runs import Store
from frostline.storage.sealed import seal
from storage.test_store import IDENTITY, RESULT, run_file
from synthetic import make_result

ARRAYS: list[NDArray[np.generic]] = [
    np.arange(6, dtype=np.float32).reshape(3, 2),
    np.arange(70_000, dtype=np.float64).reshape(-1, 7)[:, ::2],
    np.zeros((0, 5), dtype=np.int32),
    np.array([True, False]),
    np.arange(4, dtype=">i8"),
    np.array([np.nan, -0.0, np.inf]),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "out", IDENTITY)


def npy(store: Store, array: StoredArray) -> Path:
    return store.folder / "arrays" / f"{array.digest}.npy"


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_an_array_comes_back_to_the_bit_and_numpy_reads_its_file(array: NDArray[np.generic], tmp_path: Path) -> None:
    stored = StoredArray.of(array)
    for kept in (arrays.put_array(tmp_path, stored), arrays.get_array(tmp_path, stored.reference)):
        assert kept == stored
        assert kept.array().tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes()
        assert kept.array().shape == array.shape
        assert not kept.array().flags.writeable
    read = np.load(arrays.array_path(tmp_path, stored.digest), allow_pickle=False)
    assert (read.dtype.str, read.shape, read.tobytes()) == (stored.dtype, stored.shape, kept.array().tobytes())


def test_a_large_array_stays_in_its_file(tmp_path: Path) -> None:
    large, small = (arrays.put_array(tmp_path, StoredArray.of(np.arange(n))) for n in (100_000, 10))
    mapped = large.array()
    shutil.rmtree(tmp_path / "arrays")
    assert (mapped.sum(), small.array().sum()) == (4999950000, 45)
    with pytest.raises(FileNotFoundError):
        large.array()


def test_rows_and_labels_are_stored_once(store: Store) -> None:
    results = [make_result(2, seed, 0.75) for seed in range(5)]
    for result in results:
        store.put(result)
    outputs = {result.predictions.outputs.digest for result in results}
    assert len(outputs) == 5
    assert len(list((store.folder / "arrays").iterdir())) == 2 + 5
    assert b"base64" not in run_file(store).read_bytes()
    assert store.results() == sorted(results, key=lambda result: result.key)


def test_every_damage_of_an_array_makes_its_run_count_as_damaged(store: Store, rng: np.random.Generator) -> None:
    store.put(RESULT)
    path = npy(store, RESULT.predictions.outputs)
    content = path.read_bytes()
    assert store.get(RESULT.key) == RESULT
    for place in [0, 8 * len(content) - 1, *rng.integers(8 * len(content), size=100)]:
        changed = bytearray(content)
        changed[int(place) // 8] ^= 1 << int(place) % 8
        path.write_bytes(changed)
        assert store.get(RESULT.key) is None
    for other in (content[:-1], content + b"0", b""):
        path.write_bytes(other)
        assert store.get(RESULT.key) is None
    assert str(path) in store.damaged[run_file(store)]
    path.unlink()
    assert store.get(RESULT.key) is None


@pytest.mark.parametrize("replace", [True, False])
def test_a_damaged_array_is_moved_aside_when_its_run_is_put_again(store: Store, replace: bool) -> None:
    other = make_result(2, 1, 0.75)
    store.put(RESULT)
    store.put(other)
    path = npy(store, RESULT.predictions.labels)
    assert path == npy(store, other.predictions.labels)
    path.write_bytes(b"bad")
    assert store.results() == []
    store.put(RESULT, replace=replace)
    assert store.results() == sorted([RESULT, other], key=lambda result: result.key), "they share the array"
    aside = {file.read_bytes() for file in (store.folder / "damaged").iterdir()}
    assert b"bad" in aside


def test_an_array_of_another_shape_or_type_is_not_taken(store: Store) -> None:
    stored = arrays.put_array(store.folder, StoredArray.of(np.arange(6.0)))
    for changes in ({"shape": (2, 3)}, {"dtype": "<i8"}, {"shape": (5,)}):
        with pytest.raises(DataError, match="it is not an array of type"):
            arrays.get_array(store.folder, stored.reference.replace(**changes))


def test_a_run_of_an_earlier_release_holds_its_arrays_and_is_not_rewritten(store: Store) -> None:
    path = run_file(store)
    path.parent.mkdir()
    path.write_text(seal(RESULT))
    assert b"base64" in path.read_bytes()
    before = path.read_bytes()
    assert store.get(RESULT.key) == RESULT
    store.put(RESULT)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "changes", [{"array": "../../etc/passwd"}, {"array": "A" * 32}, {"dtype": "O"}, {"dtype": "<U9"}, {"shape": [-1]}]
)
def test_json_that_is_no_reference_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(DataError, match=rf"StoredArray\.{next(iter(changes))} is"):
        StoredArray.from_json(StoredArray.of(np.arange(3)).reference.to_json() | changes)


def test_json_for_users_holds_the_values(store: Store) -> None:
    stored = store.put(RESULT)
    content = json.loads(json.dumps(stored.to_json()))
    assert content["predictions"]["outputs"].keys() == {"dtype", "shape", "base64"}
    assert RunResult.from_json(content) == RESULT
    bad = content["predictions"]["outputs"] | {"shape": [3, 3]}
    with pytest.raises(DataError, match="cannot reshape"):
        StoredArray.from_json(bad)
