"""Checkpoints, paused runs, requests and the identity: damaged or misplaced files are reported and never used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from frostline.errors import DataError
from frostline.execution.events import Listener
from frostline.execution.executor import Job
from frostline.execution.sweep import Sweep, Wanted
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import PausedRun
from frostline.storage.runs import Store
from frostline.storage.sealed import seal_bytes, unseal_bytes
from storage.test_store import IDENTITY, RESULT
from synthetic import TASK, make_spec

SPEC = make_spec(2, 0)
HEAD = {"key": SPEC.key, "n_steps": 7, "epochs": [{"loss": 0.1}]}
CHECKPOINT = seal_bytes(HEAD, bytes(range(256)) * 9)
PAUSED = PausedRun(
    spec=SPEC, n_steps=7, metrics={"accuracy": 0.5}, score=0.5, noise=0.1, loss=0.7, seconds=1.0, checkpoint=CHECKPOINT
)
RESOLVED = ResolvedRequest(
    request=StudyRequest(model="toy-model", task=TASK), base=SPEC, n_layers=4, depths=(1, 2), is_cached=True
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "out", IDENTITY)


def checkpoint_file(store: Store) -> Path:
    return store.folder / "paused" / f"{SPEC.key}.checkpoint"


def flipped(content: bytes, place: int) -> bytes:
    """The content with one bit changed."""
    return content[: place // 8] + bytes([content[place // 8] ^ 1 << place % 8]) + content[place // 8 + 1 :]


def is_detected(content: bytes) -> bool:
    """Whether bytes are not taken for a sealed checkpoint."""
    try:
        unseal_bytes(content)
    except DataError:
        return True
    return False


def test_sealed_bytes_come_back() -> None:
    head, body = unseal_bytes(CHECKPOINT)
    assert (head, bytes(body)) == (HEAD, bytes(range(256)) * 9)
    assert bytes(unseal_bytes(seal_bytes({}, b""))[1]) == b""


def test_every_flipped_bit_in_sealed_bytes_is_noticed() -> None:
    assert all(is_detected(flipped(CHECKPOINT, place)) for place in range(8 * len(CHECKPOINT)))
    assert all(is_detected(CHECKPOINT[:length]) for length in range(len(CHECKPOINT)))
    assert is_detected(CHECKPOINT + b"\0")


class TestCheckpoints:
    def test_what_was_put_comes_back(self, store: Store) -> None:
        store.put_paused(PAUSED)
        assert store.checkpoint(SPEC.key) == CHECKPOINT
        assert store.get_paused(SPEC.key, 7) == PAUSED.replace(checkpoint=None)
        assert store.damaged == {}

    @pytest.mark.parametrize("content", [flipped(CHECKPOINT, 999), CHECKPOINT[:-1], b"", b"PK\x03\x04 an old one"])
    def test_a_damaged_one_is_not_used_and_named(self, store: Store, content: bytes) -> None:
        store.put_paused(PAUSED)
        path = checkpoint_file(store)
        path.write_bytes(content)
        assert store.checkpoint(SPEC.key) is None
        assert str(path) in store.damaged[path]

    def test_one_of_another_run_is_not_used_and_named(self, store: Store) -> None:
        store.put_paused(PAUSED)
        checkpoint_file(store).write_bytes(seal_bytes(HEAD | {"key": "a" * 32}, b""))
        assert store.checkpoint(SPEC.key) is None
        assert "it holds the run aaaa" in store.damaged[checkpoint_file(store)]

    def test_one_of_an_earlier_release_is_named_and_dropped_with_its_run(self, store: Store) -> None:
        old = checkpoint_file(store).with_suffix(".pt")
        old.parent.mkdir()
        old.write_bytes(b"PK\x03\x04")
        assert store.checkpoint(SPEC.key) is None
        assert "earlier release" in store.damaged[old]
        store.drop_checkpoint(SPEC.key)
        assert not old.exists()

    def test_the_pause_of_another_run_is_not_used(self, store: Store) -> None:
        store.put_paused(PAUSED.replace(n_steps=9))
        path = store.folder / "paused" / f"{SPEC.key}-9.json"
        path.rename(path.with_name(f"{SPEC.key}-7.json"))
        assert store.get_paused(SPEC.key, 7) is None
        assert "after 9 steps" in "".join(store.damaged.values())


class Messages(Listener):
    """Keeps messages."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def message(self, text: str) -> None:
        self.said.append(text)


class Recorder:
    """An executor that finishes every job at once and keeps what it was given."""

    n_free = 1

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def start(self, job: Job, _: Listener) -> None:
        self.jobs.append(job)

    def outcome(self, timeout: float | None = None) -> object:
        return RESULT.replace(spec=self.jobs[-1].spec)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_sweep_reports_a_damaged_checkpoint_and_starts_the_run_without_it(store: Store, is_damaged: bool) -> None:
    store.put_paused(PAUSED)
    if is_damaged:
        checkpoint_file(store).write_bytes(CHECKPOINT[:-1])
    executor, listener = Recorder(), Messages()
    with Sweep(store=store, executor=executor, listeners=(listener,)) as sweep:  # type: ignore[arg-type]
        assert len(list(sweep.do([Wanted(SPEC)]))) == 1
    assert executor.jobs[0].checkpoint == (None if is_damaged else CHECKPOINT)
    assert [checkpoint_file(store).name in text for text in listener.said] == [True] * is_damaged
    assert not checkpoint_file(store).exists()


class TestRequests:
    def test_what_was_put_comes_back_and_stays(self, store: Store) -> None:
        path = store.request_path("curve", "key")
        store.put_request(path, RESOLVED)
        store.put_request(path, RESOLVED.replace(n_layers=12))
        assert store.read_request(path, ResolvedRequest) == RESOLVED
        assert store.requests("curve", ResolvedRequest) == [RESOLVED]

    def test_every_flipped_bit_is_noticed_or_harmless(self, store: Store, rng: np.random.Generator) -> None:
        path = store.request_path("curve", "key")
        store.put_request(path, RESOLVED)
        content = path.read_bytes()
        n_noticed = 0
        for place in rng.choice(8 * len(content), size=1000, replace=False):
            path.write_bytes(flipped(content, int(place)))
            try:
                assert store.read_request(path, ResolvedRequest) == RESOLVED
            except DataError:
                n_noticed += 1
        assert n_noticed > 900

    def test_twin_a_plain_one_of_an_earlier_release_is_read_as_it_is(self, store: Store) -> None:
        path = store.request_path("curve", "key")
        path.parent.mkdir()
        path.write_text(json.dumps(RESOLVED.to_json()))
        assert store.read_request(path, ResolvedRequest) == RESOLVED
        path.write_text(json.dumps(RESOLVED.to_json()).replace('"n_layers": 4', '"n_layers": 5'))
        assert store.read_request(path, ResolvedRequest).n_layers == 5

    @pytest.mark.parametrize(
        "content", ["[" * 100_000, '{"checksum": "", "content": ' + "[" * 900 + "]" * 900 + "}", "NaN", "1" * 5000]
    )
    def test_anything_else_is_one_line(self, store: Store, content: str) -> None:
        path = store.request_path("curve", "key")
        path.parent.mkdir()
        path.write_text(content)
        with pytest.raises(DataError, match=r"not a resolved request.*move it away"):
            store.read_request(path, ResolvedRequest)


def test_every_flipped_bit_in_the_identity_is_noticed_or_harmless(store: Store) -> None:
    path = store.folder / "identity.json"
    content = path.read_bytes()
    n_noticed = 0
    for place in range(8 * len(content)):
        path.write_bytes(flipped(content, place))
        try:
            Store.open(store.folder, IDENTITY)
        except DataError:
            n_noticed += 1
    assert n_noticed > 8 * len(content) - 20
