"""A server over HTTP: every endpoint answers as the tasks' own models do, and says why it refuses."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from frostline.serving.rows import Text

from .served import Client, Toys, serving

TEXTS = ("the film is good", "a dull plot and a poor film", "so", "was the plot not great and fine and so good")


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


def test_the_examples_of_the_docs_page_work(client: Client) -> None:
    page = html.unescape(client.get("/docs").body.decode())
    examples = re.findall(
        r"<pre>curl http://127\.0\.0\.1:\d+(/\S*) -H 'Content-Type: application/json' -d '(.*)'</pre>", page
    )
    assert {path for path, _ in examples} == {"/v1/classify", "/classify", "/v1/classify/combined", "/predict"}
    for path, body in examples:
        assert client.post(path, body.encode()).status == 200, body
    assert "<code>input_pairs</code>" in page


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


def test_answers_carry_headers_that_keep_browsers_safe(client: Client) -> None:
    for path in ("/health", "/", "/nothing"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert client.get("/").headers["content-security-policy"] != policy, "each page has its own nonce"
