"""What a server takes: which bundles, at its start and on reload, and whose requests."""

from __future__ import annotations

import base64
import gc
import logging
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from frostline.errors import DataError, UsageError
from frostline.serving.bundle import Bundle, open_bundle
from frostline.serving.server import tasks
from frostline.serving.server.run import TaskServer
from frostline.serving.server.settings import ServerSettings
from frostline.serving.server.tasks import Served, Source, Tasks
from frostline.serving.trunk import load_trunk

from .served import Client, Toys, serving, wait_until
from .tasks import make_task, make_trunk

TOKEN = "a-token-of-26-letters-or-so"


def test_bundles_that_do_not_fit_are_refused_by_name_at_start(toys: Toys, tmp_path: Path) -> None:
    other = make_task(tmp_path / "foreign", make_trunk(tmp_path / "other", seed=9), "freeze:2")
    damaged = make_task(tmp_path / "damaged", toys.trunk, "freeze:2").bundle.folder / "tail.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    given = [*toys.folders, str(other.bundle.folder), str(damaged.parent), str(tmp_path / "none"), toys.folders[0]]
    with pytest.raises(DataError) as refused:
        TaskServer(str(toys.trunk), given, ServerSettings(port=0))
    said = str(refused.value)
    for words in ("foreign", "another trunk", "tail.safetensors", "none", "two bundles are called 'sentiment'"):
        assert words in said


def test_a_port_in_use_is_refused(toys: Toys, client: Client) -> None:
    with pytest.raises(UsageError, match="cannot be used: Address already in use"):
        TaskServer("no such trunk", toys.folders[:1], ServerSettings(port=client.place[1]))


def test_a_reload_frees_what_it_replaces_and_keeps_what_did_not_change(toys: Toys, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    make_task(folder, toys.trunk, "freeze:1", seed=1)
    with serving(toys, bundles=[str(folder), toys.folders[1]]) as (client, server):
        before = dict(server.parts.tasks.current)
        old, kept = weakref.ref(before["a"].tail), before.pop("topic")
        hashes = [before.pop("a").hash]
        folder.rename(tmp_path / "aside")
        make_task(folder, toys.trunk, "freeze:1", seed=2)
        server.reload()
        wait_until(lambda: server.parts.tasks.current["a"].hash != hashes[0])
        found = client.post("/v1/classify", {"model": "a", "input": "so"}).json
        assert found["bundle"] == server.parts.tasks.current["a"].hash
        assert server.parts.tasks.current["topic"] is kept
        wait_until(lambda: gc.collect() >= 0 and old() is None)


def test_a_reload_reads_only_files_that_were_touched(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [make_task(tmp_path / name, toys.trunk, "freeze:1").bundle.folder for name in ("a", "b")]
    read: list[Path] = []

    def noting(folder: Path) -> Bundle:
        read.append(folder)
        return open_bundle(folder)

    monkeypatch.setattr(tasks, "open_bundle", noting)
    trunk = load_trunk(str(toys.trunk))
    served = Tasks(trunk, [Source(folder) for folder in folders], lambda *_: np.zeros(2, dtype=np.float32))
    before = dict(served.current)
    read.clear()
    assert (served.reload(), read) == ([], [])
    tail = folders[1] / "tail.safetensors"
    whole = tail.read_bytes()
    tail.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))  # of the same size
    for _ in range(2):  # until it is repaired
        (fault,) = served.reload()
        assert "tail.safetensors" in fault
    tail.write_bytes(whole)
    assert (served.reload(), served.reload()) == ([], [])
    assert read == [folders[1]] * 3
    assert dict(served.current) == before


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_request_sees_all_old_or_all_new_bundles(
    toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """A reload that replaced one task after the other would be seen."""
    sets = [[make_task(tmp_path / turn / name, toys.trunk, "freeze:2", seed=seed) for name in ("a", "b")]
            for turn, seed in (("old", 1), ("new", 2))]  # fmt: skip
    if is_broken:
        plain = Tasks._load

        def publishing(self: Tasks, source: Source, before: Served | None) -> Served:
            task = plain(self, source, before)
            if before is not None:
                self.current = {**self.current, task.name: task}
                time.sleep(0.3)
            return task

        monkeypatch.setattr(Tasks, "_load", publishing)
    live = tmp_path / "live"
    live.symlink_to(tmp_path / "old")
    seen = set()
    with serving(toys, bundles=[str(live / "a"), str(live / "b")]) as (client, server):

        def ask() -> tuple[str, ...]:
            results = client.post("/v1/classify/combined", {"input": "so", "tasks": "all"}).json["results"]
            seen.add(tuple(results[name]["bundle"] for name in ("a", "b")))
            return max(seen, key=lambda pair: pair == hashes[1])

        hashes = [tuple(task.bundle.hash for task in of_set) for of_set in sets]
        ask()
        live.unlink()
        live.symlink_to(tmp_path / "new")
        server.reload()
        wait_until(lambda: ask() == hashes[1])
    assert (seen == set(hashes)) is not is_broken


def test_a_reload_refuses_other_tasks_and_files_without_tokens(
    toys: Toys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, tokens = tmp_path / "live", tmp_path / "tokens"
    folder.symlink_to(toys.folders[0])
    tokens.write_text(TOKEN)
    with serving(toys, bundles=[str(folder)], token_file=tokens) as (client, server):
        folder.unlink()
        folder.symlink_to(toys.folders[1])
        tokens.write_text("")
        server.reload()
        wait_until(lambda: "the tokens stay as they were" in caplog.text)
        assert "the task sentiment stays as it was" in caplog.text
        assert "is for the task 'topic' now" in caplog.text
        assert client.post("/classify", {"input": "so"}, Authorization=f"Bearer {TOKEN}").json["model"] == "sentiment"
        tokens.write_text("a-second-token-of-30-letters")
        server.reload()
        wait_until(lambda: client.get("/metrics", Authorization="Bearer a-second-token-of-30-letters").status == 200)
        assert client.get("/metrics", Authorization=f"Bearer {TOKEN}").status == 401


def test_tokens_are_needed_everywhere_but_for_health(toys: Toys, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n{TOKEN}\n\nanother-token-of-26-letters\n")
    body = {"model": "topic", "input": "so"}
    with serving(toys, token_file=file) as (client, _):
        for path in ("/", "/docs", "/openapi.json", "/metrics", "/v1/models", "/nothing"):
            refused = client.get(path)
            assert refused.status == 401, path
            assert refused.headers["www-authenticate"].split()[0] == ("Basic" if path in ("/", "/docs") else "Bearer")
        for path in ("/v1/classify", "/classify", "/v1/classify/combined", "/predict"):
            assert client.post(path, body).status == 401, path
        assert client.get("/health").status == client.get("/ready").status == 200
        wrong = ("Bearer ", "Bearer x", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", TOKEN, f"Digest {TOKEN}",
                 "Basic !!", "Basic é", f"Basic {base64.b64encode(TOKEN.encode()).decode()}")  # fmt: skip
        for given in wrong:
            assert client.post("/classify", body, Authorization=given).status == 401, given
        basic = base64.b64encode(f"me:{TOKEN}".encode()).decode()
        for given in (f"Bearer {TOKEN}", f"bearer {TOKEN}", "Bearer another-token-of-26-letters", f"Basic {basic}"):
            assert client.post("/classify", body, Authorization=given).status == 200, given
        assert client.get("/nothing", Authorization=f"Bearer {TOKEN}").status == 404
        assert client.get("/v1/models", Authorization=f"Bearer {TOKEN}", Host="example.org").status == 200


def test_without_a_token_only_this_machine_is_served(toys: Toys, client: Client) -> None:
    with pytest.raises(UsageError, match=r"--host 0.0.0.0 can be reached by others; give --token-file"):
        TaskServer(str(toys.trunk), toys.folders, ServerSettings(host="0.0.0.0", port=0))
    with pytest.raises(UsageError, match="is not an address"):
        TaskServer(str(toys.trunk), toys.folders, ServerSettings(host="no such host", port=0))
    for host in ("localhost", "127.0.0.1:80", "LOCALHOST:1", "[::1]:80", "127.9.9.9"):
        assert client.get("/v1/models", Host=host).status == 200, host
    for host in ("example.org", "127.0.0.1.example.org", "10.0.0.1", "", "[", "localhost.example.org"):
        assert client.get("/v1/models", Host=host).status == 403, host


@pytest.mark.parametrize(
    "content", ["", "\n# only a comment\n", "short\n", "a token with spaces in it\n", "\0" * 30, "é" * 30]
)
def test_token_files_without_a_usable_token_are_refused(toys: Toys, tmp_path: Path, content: str) -> None:
    file = tmp_path / "tokens"
    file.write_text(content)
    with pytest.raises(DataError, match="tokens"):
        TaskServer(str(toys.trunk), toys.folders, ServerSettings(port=0), file)
    with pytest.raises(DataError, match="cannot be read"):
        TaskServer(str(toys.trunk), toys.folders, ServerSettings(port=0), tmp_path / "none")


def test_no_text_is_logged(toys: Toys, caplog: pytest.LogCaptureFixture) -> None:
    secret = "my secret sentence"
    with caplog.at_level(logging.DEBUG, logger="frostline.server"), serving(toys) as (client, _):
        assert client.post("/classify", {"model": "topic", "input": secret}).status == 200
        for body in ({"model": secret, "input": secret}, {"input": [secret, 3]}, {secret: 1}, secret.encode()):
            assert 400 <= client.post("/v1/classify", body).status < 500
        assert client.get("/my%20secret%20sentence?secret=secret").status == 404
    lines = [record.getMessage() for record in caplog.records if record.name == "frostline.server"]
    assert any(line.startswith("POST /classify 200") for line in lines)
    assert any(line.startswith("GET other 404") for line in lines)
    assert "secret" not in "".join(lines)
