"""A server over HTTP: every endpoint answers as the tasks' own models do, and refuses what it must."""

from __future__ import annotations

import base64
import gc
import json
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frostline.errors import DataError, UsageError
from frostline.serving.engine import Engine
from frostline.serving.rows import Text
from frostline.serving.server import tasks
from frostline.serving.server.run import TaskServer
from frostline.serving.server.settings import ServerSettings
from frostline.serving.server.tasks import Served, Source, Tasks

from .served import Client, Toys, make_toys, received, serving
from .tasks import make_task, make_trunk

TEXTS = ("the film is good", "a dull plot and a poor film", "so", "was the plot not great and fine and so good")
TOKEN = "a-token-of-26-letters-or-so"


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Toys:
    return make_toys(tmp_path_factory.mktemp("toys"))


@pytest.fixture(scope="module")
def client(toys: Toys) -> Iterator[Client]:
    with serving(toys) as (started, _):
        yield started


def probs(answer: Any) -> np.ndarray[Any, Any]:
    return np.array([item["probs"] for item in answer["data"]])


@pytest.mark.parametrize("path", ["/v1/classify", "/classify"])
def test_classify_as_vllm_has_it(client: Client, toys: Toys, path: str) -> None:
    answer = client.post(path, {"model": "topic", "input": list(TEXTS)})
    assert answer.status == 200
    found = answer.json
    wanted = toys.probabilities("topic", *TEXTS)
    assert probs(found) == pytest.approx(wanted, abs=1e-5)
    assert [item["label"] for item in found["data"]] == [f"class {row.argmax()}" for row in wanted]
    assert [(item["index"], item["num_classes"]) for item in found["data"]] == [(n, 4) for n in range(4)]
    assert {"id", "object", "created", "model", "data", "usage", "bundle"} == set(found)
    assert (found["object"], found["model"]) == ("list", "topic")
    n_tokens = sum(len(text.split()) + 2 for text in TEXTS)
    assert found["usage"] == {"prompt_tokens": n_tokens, "total_tokens": n_tokens, "completion_tokens": 0}
    assert found["bundle"] == answer.headers["x-frostline-bundle"] == toys.tasks["topic"].bundle.hash


def test_other_tasks_would_have_given_other_answers(toys: Toys) -> None:
    one, other = toys.probabilities("sentiment", *TEXTS), toys.probabilities("biased", *TEXTS)
    assert np.abs(one - other).max() > 1e-2


def test_one_text_pairs_numbers_and_the_best_classes(client: Client, toys: Toys) -> None:
    single = client.post("/v1/classify", {"model": "sentiment", "input": TEXTS[0]}).json
    assert probs(single) == pytest.approx(toys.probabilities("sentiment", TEXTS[0]), abs=1e-5)
    pair = client.post("/v1/classify", {"model": "pairs", "input_pairs": [[TEXTS[0], TEXTS[1]]]}).json
    assert probs(pair) == pytest.approx(toys.probabilities("pairs", TEXTS[0], second=TEXTS[1]), abs=1e-5)
    stars = client.post("/v1/classify", {"model": "stars", "input": list(TEXTS)}).json
    wanted = toys.probabilities("stars", *TEXTS)[:, 0]
    assert [item["value"] for item in stars["data"]] == pytest.approx(list(wanted), abs=1e-5)
    assert all(set(item) == {"index", "value"} for item in stars["data"])
    (best,) = client.post("/v1/classify", {"model": "topic", "input": TEXTS[0], "top_k": 2}).json["data"]
    (row,) = toys.probabilities("topic", TEXTS[0])
    assert [one["label"] for one in best["top_k"]] == [f"class {n}" for n in np.argsort(-row)[:2]]
    assert [one["prob"] for one in best["top_k"]] == pytest.approx(sorted(row, reverse=True)[:2], abs=1e-5)
    assert (best["label"], best["num_classes"], "probs" in best) == (best["top_k"][0]["label"], 4, False)


def test_outputs_instead_of_probabilities(client: Client, toys: Toys) -> None:
    raw = toys.tasks["topic"].expected([Text(TEXTS[0])])
    found = client.post("/v1/classify", {"model": "topic", "input": TEXTS[0], "use_activation": False}).json
    assert probs(found) == pytest.approx(raw, abs=1e-5)
    by_tei = client.post("/predict", {"model": "topic", "inputs": TEXTS[0], "raw_scores": True}).json
    assert [one["score"] for one in by_tei] == pytest.approx(sorted(raw[0], reverse=True), abs=1e-5)


def test_many_tasks_from_one_pass(client: Client, toys: Toys) -> None:
    found = client.post("/v1/classify/combined", {"input": list(TEXTS), "tasks": "all"}).json
    assert set(found["results"]) == {"sentiment", "topic", "stars", "biased"}
    assert found["skipped"] == {"pairs": "it reads pairs"}
    for name in ("sentiment", "topic", "biased"):
        assert probs(found["results"][name]) == pytest.approx(toys.probabilities(name, *TEXTS), abs=1e-5)
        assert found["results"][name]["bundle"] == toys.tasks[name].bundle.hash
    places = {name: (result["depth"], result["shares"]) for name, result in found["results"].items()}
    assert places == {"sentiment": (2, "compute"), "topic": (1, "compute"), "stars": (2, "compute"),
                      "biased": (0, "storage")}  # fmt: skip
    assert found["usage"]["prompt_tokens"] == sum(len(text.split()) + 2 for text in TEXTS), "read once, not per task"
    some = client.post("/v1/classify/combined", {"input": TEXTS[0], "tasks": ["topic", "stars"]}).json
    assert list(some["results"]) == ["topic", "stars"]
    pairs = client.post("/v1/classify/combined", {"input_pairs": [TEXTS[:2]], "tasks": "all"}).json
    assert list(pairs["results"]) == ["pairs"]
    assert pairs["skipped"]["topic"] == "it reads texts"


def test_predict_as_tei_has_it(client: Client, toys: Toys) -> None:
    (row,) = toys.probabilities("topic", TEXTS[0])
    order = np.argsort(-row)
    answer = client.post("/predict", {"model": "topic", "inputs": TEXTS[0]})
    assert [one["label"] for one in answer.json] == [f"class {n}" for n in order]
    assert [one["score"] for one in answer.json] == pytest.approx(list(row[order]), abs=1e-5)
    assert answer.headers["x-frostline-bundle"] == toys.tasks["topic"].bundle.hash
    several = client.post("/predict", {"model": "topic", "inputs": [[text] for text in TEXTS]}).json
    assert len(several) == 4
    assert [one["score"] for one in several[0]] == pytest.approx([one["score"] for one in answer.json], abs=1e-5)
    pair = client.post("/predict", {"model": "pairs", "inputs": list(TEXTS[:2])}).json
    wanted = toys.probabilities("pairs", TEXTS[0], second=TEXTS[1])[0]
    assert [one["score"] for one in pair] == pytest.approx(sorted(wanted, reverse=True), abs=1e-5)
    (number,) = client.post("/predict", {"model": "stars", "inputs": TEXTS[0]}).json
    assert number["label"] == "value"
    assert number["score"] == pytest.approx(toys.probabilities("stars", TEXTS[0])[0, 0], abs=1e-5)


def test_models_health_ready_metrics_openapi(client: Client, toys: Toys) -> None:
    found = {one["id"]: one for one in client.get("/v1/models").json["data"]}
    assert set(found) == set(toys.tasks)
    topic = found["topic"]
    assert (topic["depth"], topic["n_layers"], topic["labels"]) == (1, 3, [f"class {n}" for n in range(4)])
    assert topic["bundle"] == toys.tasks["topic"].bundle.hash
    assert topic["trunk"]["hash"] == toys.tasks["topic"].bundle.manifest.trunk.chain[-1]
    assert (found["pairs"]["score"], found["pairs"]["metric"], found["pairs"]["reads"]) == (0.875, "accuracy", "pairs")
    assert client.get("/health").json == {"status": "ok"}
    assert client.get("/ready").json["status"] == "ready"
    metrics = client.get("/metrics").body.decode()
    assert 'frostline_texts_total{task="topic"}' in metrics
    assert 'frostline_requests_total{route="/v1/classify",status="200"}' in metrics
    document = client.get("/openapi.json").json
    assert {"/v1/classify", "/classify", "/v1/classify/combined", "/predict", "/v1/models"} <= set(document["paths"])


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/classify", {"model": "topics", "input": "so"}, 404, "unknown task 'topics'; known: biased, pairs, "),
        ("/v1/classify", {"model": "", "input": "so"}, 404, "unknown task ''"),
        ("/v1/classify/combined", {"tasks": ["topic", "x"], "input": "so"}, 404, "unknown task 'x'"),
        ("/predict", {"model": "topics", "inputs": "so"}, 404, "Did you mean 'topic'?"),
        ("/v1/classify", {"input": "so"}, 422, "model is missing; this server has several tasks"),
        ("/predict", {"inputs": "so"}, 422, "model is missing"),
        ("/v1/classify", {"model": "pairs", "input": "so"}, 422, "the task pairs reads pairs of texts"),
        ("/v1/classify", {"model": "topic", "input_pairs": [["so", "so"]]}, 422, "the task topic reads single texts"),
        ("/v1/classify", {"model": "topic", "input": "so " * 31}, 422, "text 0 has 33 tokens; the task topic "),
        ("/predict", {"model": "topic", "inputs": "so " * 31}, 422, "most 32"),
        ("/v1/classify", b"{", 400, "not JSON"),
        ("/v1/classify", {"model": "topic", "input": ["so"] * 300}, 422, "300 texts are given; 1 to 256 are allowed"),
        ("/v1/nothing", {}, 404, "no such path"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_says_why(client: Client, path: str, body: Any, status: int, words: str) -> None:
    answer = client.post(path, body)
    assert answer.status == status
    assert words in answer.message
    assert answer.headers["content-type"] == "application/json"


def test_errors_have_the_shape_of_their_endpoint(client: Client) -> None:
    assert set(client.post("/predict", {"inputs": "so"}).json) == {"error", "error_type"}
    error = client.post("/v1/classify", {"input": "so"}).json["error"]
    assert (error["code"], error["type"]) == (422, "validation")


def test_a_long_text_is_cut_only_when_asked(client: Client, toys: Toys) -> None:
    long = "so good " * 40
    assert client.post("/v1/classify", {"model": "topic", "input": long}).status == 422
    cut = client.post("/v1/classify", {"model": "topic", "input": long, "truncate": True}).json
    assert probs(cut) == pytest.approx(toys.probabilities("topic", long), abs=1e-5)
    assert cut["usage"]["prompt_tokens"] == 32


def test_methods_and_types_that_are_not_taken(client: Client) -> None:
    assert client.get("/v1/classify").status == 405
    assert client.request("DELETE", "/health", None, {}).status == 405
    answer = client.post("/v1/classify", {"input": "so"}, Content_Type="text/plain")
    assert answer.status == 415
    assert "application/json" in answer.message


def test_one_task_needs_no_name(toys: Toys) -> None:
    with serving(toys, bundles=[f"mood={toys.folders[0]}"]) as (client, _):
        found = client.post("/v1/classify", {"input": TEXTS[0]}).json
        assert found["model"] == "mood"
        assert probs(found) == pytest.approx(toys.probabilities("sentiment", TEXTS[0]), abs=1e-5)
        assert client.post("/predict", {"inputs": TEXTS[0]}).status == 200
        assert client.post("/v1/classify", {"model": "sentiment", "input": "so"}).status == 404


def test_answers_stay_right_when_everybody_asks_at_once(client: Client, toys: Toys) -> None:
    names = ("sentiment", "topic", "biased")
    wanted = {name: toys.probabilities(name, *TEXTS) for name in names}

    def ask(number: int) -> float:
        name, text = names[number % 3], number % 4
        found = client.post("/v1/classify", {"model": name, "input": [TEXTS[text], TEXTS[0]]}).json
        return float(np.abs(probs(found) - wanted[name][[text, 0]]).max())

    with ThreadPoolExecutor(16) as pool:
        distances = list(pool.map(ask, range(96)))
    assert max(distances) < 1e-5


def test_bodies_have_a_limit_that_holds_while_reading(toys: Toys) -> None:
    with serving(toys, max_body_bytes=1000, max_texts=10) as (client, _):
        answer = client.post("/v1/classify", b" " * 2000)
        assert answer.status == 413
        assert "larger than 1,000 bytes" in answer.message
        head = b"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with client.socket() as made:  # without a length, and without an end
            made.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"3e8\r\n" + b" " * 1000 + b"\r\n")
            made.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
            assert made.recv(100).startswith(b"HTTP/1.1 413")
        with client.socket() as made:  # the client waits for a sign before it sends
            made.sendall(head + b"Content-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
            assert made.recv(100).startswith(b"HTTP/1.1 413")
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[int]]]:
    """Computing waits until the event is set; the list has the number of rows of every batch that was computed."""
    is_open, computed, plain = threading.Event(), [], Engine.outputs

    def slowly(self: Engine, rows: Any, tails: Any) -> Any:
        assert is_open.wait(20)
        computed.append(max(len(of_task) for of_task in rows.values()))
        return plain(self, rows, tails)

    is_open.set()
    monkeypatch.setattr(Engine, "outputs", slowly)
    yield is_open, computed
    is_open.set()


def _post_later(client: Client, n_requests: int, pool: ThreadPoolExecutor) -> list[Any]:
    body = {"model": "topic", "input": "so good"}
    return [pool.submit(client.post, "/v1/classify", body) for _ in range(n_requests)]


def _until(condition: Any) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_requests_that_wait_too_long_end_with_504_and_are_not_computed(
    toys: Toys, gated: tuple[threading.Event, list[int]]
) -> None:
    is_open, computed = gated
    with serving(toys, deadline_seconds=0.4, n_threads=1) as (client, _), ThreadPoolExecutor(8) as pool:
        computed.clear()
        is_open.clear()
        answers = [one.result() for one in _post_later(client, 6, pool)]
        assert {answer.status for answer in answers} == {504}
        assert "not answered within 0.4 seconds" in answers[0].message
        is_open.set()
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200
        # The first batch was under way when its deadline passed. Of the others nothing was computed.
        assert sum(computed) <= 1 + 6 - 1
        assert computed[-1] == 1
        first_batch = computed[0]
        assert sum(computed) == first_batch + 1


def test_a_full_queue_answers_429_at_once(toys: Toys, gated: tuple[threading.Event, list[int]]) -> None:
    is_open, _ = gated
    with serving(toys, max_queued=3, n_threads=1) as (client, server), ThreadPoolExecutor(16) as pool:
        is_open.clear()
        waiting = _post_later(client, 1, pool)
        _until(lambda: server.parts.service._queue._n_computing == 1)
        waiting += _post_later(client, 3, pool)
        _until(lambda: len(server.parts.service._queue) == 3)
        refused = client.post("/v1/classify", {"model": "topic", "input": "so"})
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert client.post("/predict", {"model": "topic", "inputs": "so"}).json["error_type"] == "overloaded"
        assert client.get("/health").status == 200
        is_open.set()
        assert [one.result().status for one in waiting] == [200] * 4
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200


def test_a_client_that_leaves_costs_nothing(toys: Toys, gated: tuple[threading.Event, list[int]]) -> None:
    is_open, computed = gated
    body = json.dumps({"model": "topic", "input": ["so good"] * 50}).encode()
    head = f"POST /v1/classify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    with serving(toys, n_threads=1) as (client, server), ThreadPoolExecutor(4) as pool:
        queue = server.parts.service._queue
        computed.clear()
        is_open.clear()
        blocking = _post_later(client, 1, pool)
        _until(lambda: queue._n_computing == 1)
        with client.socket() as made:
            made.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)
            _until(lambda: len(queue) == 50)
        _until(lambda: queue._lines[0][0].is_over)
        is_open.set()
        assert blocking[0].result().status == 200
        assert client.post("/v1/classify", {"model": "topic", "input": "so"}).status == 200
        assert computed == [1, 1], "the fifty rows were never computed"
        metrics = client.get("/metrics").body.decode()
        assert 'frostline_requests_total{route="/v1/classify",status="499"} 1.0' in metrics


def test_a_request_that_fails_fails_alone(
    toys: Toys, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plain, hidden = Engine.outputs, "a se" + "cret text"

    def fragile(self: Engine, rows: Any, tails: Any) -> Any:
        if any(len(row.tokens) == 7 for of_task in rows.values() for row in of_task):
            raise ValueError(hidden)
        return plain(self, rows, tails)

    with serving(toys, n_threads=1, wait_seconds=0.2) as (client, _), ThreadPoolExecutor(8) as pool:
        monkeypatch.setattr(Engine, "outputs", fragile)
        sent = [pool.submit(client.post, "/classify", {"model": "topic", "input": "so " * n}) for n in (3, 4, 5, 6, 7)]
        assert [one.result().status for one in sent] == [200, 200, 500, 200, 200]
        assert "its log says more" in sent[2].result().message
        assert client.get("/health").status == 200
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


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


def test_an_answer_has_a_limit_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_MOST_NUMBERS", 10)
    assert client.post("/classify", {"model": "topic", "input": ["so"] * 2}).status == 200
    refused = client.post("/classify", {"model": "topic", "input": ["so"] * 3})
    assert refused.status == 422
    assert "would hold 12 probabilities; 10 are allowed" in refused.message
    assert client.post("/classify", {"model": "topic", "input": ["so"] * 3, "top_k": 3}).status == 200


def test_a_server_whose_threads_ended_is_not_healthy(toys: Toys) -> None:
    with serving(toys) as (client, server):
        assert client.get("/health").status == 200
        server.parts.service._queue.close()
        _until(lambda: client.get("/health").status == 503)


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
        _until(lambda: server.parts.tasks.current["a"].hash != hashes[0])
        found = client.post("/v1/classify", {"model": "a", "input": "so"}).json
        assert found["bundle"] == server.parts.tasks.current["a"].hash
        assert server.parts.tasks.current["topic"] is kept
        _until(lambda: gc.collect() >= 0 and old() is None)


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
        _until(lambda: ask() == hashes[1])
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
        _until(lambda: "the tokens stay as they were" in caplog.text)
        assert "the task sentiment stays as it was" in caplog.text
        assert "is for the task 'topic' now" in caplog.text
        assert client.post("/classify", {"input": "so"}, Authorization=f"Bearer {TOKEN}").json["model"] == "sentiment"
        tokens.write_text("a-second-token-of-30-letters")
        server.reload()
        _until(lambda: client.get("/metrics", Authorization="Bearer a-second-token-of-30-letters").status == 200)
        assert client.get("/metrics", Authorization=f"Bearer {TOKEN}").status == 401


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


def test_slow_and_silent_clients_are_disconnected(toys: Toys) -> None:
    head = (
        b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    )
    with serving(toys, read_seconds=0.5) as (client, _):
        for sent in (b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"):
            assert client.raw(sent) == b"", "a head that never ends"
        assert client.raw(head + b'{"inp').startswith(b"HTTP/1.1 408")
        with client.socket() as made:  # one byte now and then does not help
            made.sendall(head)
            started = time.monotonic()
            try:
                while time.monotonic() < started + 5:
                    made.sendall(b" ")
                    time.sleep(0.05)
            except OSError:
                pass
            assert time.monotonic() < started + 3
        with client.socket() as made:  # idle after an answer
            made.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in received(made)
        assert client.get("/health").status == 200


def test_there_are_no_more_connections_than_allowed(toys: Toys) -> None:
    with serving(toys, max_connections=3, read_seconds=1.0) as (client, _):
        with client.socket() as one, client.socket() as two, client.socket() as three:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in one.recv(1000)
            assert client.raw(b"").startswith(b"HTTP/1.1 503")
            assert two.fileno() != three.fileno()
        _until(lambda: client.get("/health").status == 200)


def test_answers_carry_headers_that_keep_browsers_safe(client: Client) -> None:
    for path in ("/health", "/", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.get("/").headers["content-security-policy"] != policy, "each page has its own nonce"
