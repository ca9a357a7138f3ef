"""What bodies ask for: vLLM and text-embeddings-inference read the same list differently, and wrong bodies say why."""

from __future__ import annotations

import json
from typing import Any

import pytest

from frostline.serving.rows import Text
from frostline.serving.server.refusals import Refusal
from frostline.serving.server.settings import ServerSettings
from frostline.serving.server.shapes import Asked, ClassifyBody, CombinedBody, PredictBody, parse

SETTINGS = ServerSettings(max_texts=4, max_characters=100)


def asked(kind: Any, body: Any) -> Asked:
    return parse(kind, body if isinstance(body, bytes) else json.dumps(body).encode(), SETTINGS)


def refused(kind: Any, body: Any) -> Refusal:
    with pytest.raises(Refusal) as found:
        asked(kind, body)
    return found.value


def test_the_same_list_is_two_texts_for_vllm_and_a_pair_for_tei() -> None:
    assert asked(ClassifyBody, {"input": ["a", "b"]}).texts == (Text("a"), Text("b"))
    assert asked(CombinedBody, {"input": ["a", "b"]}).texts == (Text("a"), Text("b"))
    assert asked(PredictBody, {"inputs": ["a", "b"]}).texts == (Text("a", "b"),)


@pytest.mark.parametrize(
    ("inputs", "texts", "is_single"),
    [
        ("a", (Text("a"),), True),
        (["a"], (Text("a"),), True),
        (["a", "b"], (Text("a", "b"),), True),
        ([["a"]], (Text("a"),), False),
        ([["a"], ["b"]], (Text("a"), Text("b")), False),
        ([["a", "b"], ["c"]], (Text("a", "b"), Text("c")), False),
    ],
)
def test_inputs_of_tei(inputs: Any, texts: tuple[Text, ...], is_single: bool) -> None:
    found = asked(PredictBody, {"inputs": inputs})
    assert (found.texts, found.is_single) == (texts, is_single)


def test_pairs_tasks_and_options() -> None:
    assert asked(ClassifyBody, {"input_pairs": [["a", "b"], ["c", "d"]]}).texts == (Text("a", "b"), Text("c", "d"))
    assert asked(CombinedBody, {"input": "a", "tasks": ["x", "y", "x"]}).tasks == ("x", "y")
    assert asked(CombinedBody, {"input": "a", "tasks": "all"}).tasks is None
    assert asked(ClassifyBody, {"input": "a"}).tasks is None
    assert asked(ClassifyBody, {"input": "a", "model": "x", "top_k": 2}) == Asked(("x",), (Text("a"),), top_k=2)
    assert asked(ClassifyBody, {"input": "a", "truncate_prompt_tokens": -1}).truncate
    assert asked(ClassifyBody, {"input": "a", "use_activation": False}).is_raw
    assert asked(PredictBody, {"inputs": "a", "raw_scores": True, "truncate": True}) == Asked(
        None, (Text("a"),), truncate=True, is_raw=True, is_single=True
    )


def test_nothing_is_cut_unless_asked() -> None:
    assert not asked(ClassifyBody, {"input": "a"}).truncate
    assert not asked(PredictBody, {"inputs": "a", "truncate": None}).truncate


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"nothing", b'{"input": "a"} x', b'{"input": "\xff"}', b'{"input": "a\x00b"}',
        b'{"input": "\\ud800"}', b'{"input": NaN}', b'{"input": Infinity}', b"[" * 100_000,
        b'{"input": ' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"top_k": ' + b"9" * 100_000 + b"}",
    ],
    ids=range(12),
)  # fmt: skip
def test_what_is_not_json_is_refused(body: bytes) -> None:
    refusal = refused(ClassifyBody, body)
    assert refusal.status in (400, 422)
    assert len(refusal.message) < 300


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "JSON object"),
        ({}, "input"),
        ({"input": 3}, "input is not valid; give a text or a list of texts"),
        ({"input": ["a", 3]}, "input is not valid"),
        ({"input": [["a"]]}, "input is not valid"),
        ({"input": None}, "give one of input"),
        ({"input": "a", "input_pairs": [["a", "b"]]}, "give one of input"),
        ({"input_pairs": [["a"]]}, "input_pairs is not valid"),
        ({"input_pairs": [["a", "b", "c"]]}, "input_pairs is not valid"),
        ({"input_pairs": "ab"}, "input_pairs is not valid"),
        ({"input": "a", "truncate": "yes"}, "truncate is not valid; give true or false"),
        ({"input": "a", "truncate": 1}, "truncate is not valid"),
        ({"input": "a", "truncate_prompt_tokens": 7}, "truncate_prompt_tokens is not valid; give -1"),
        ({"input": "a", "top_k": 0}, "top_k is not valid; give a whole number from 1"),
        ({"input": "a", "top_k": 1.0}, "top_k is not valid"),
        ({"input": "a", "top_k": True}, "top_k is not valid"),
        ({"input": "a", "model": 1}, "model is not valid"),
        ({"input": "a", "truncat": True}, "unknown field 'truncat'; known: input, "),
        ({"input": "a", "truncat": True}, "Did you mean 'truncate'?"),
        ({"input": []}, "0 texts are given; 1 to 4 are allowed"),
        ({"input": ["a"] * 5}, "5 texts are given; 1 to 4 are allowed"),
        ({"input": ["a", "b" * 101]}, "text 1 has 101 characters; 100 are allowed"),
        ({"input_pairs": [["a", "b" * 101]]}, "text 0 has 101 characters"),
        ({"input": "a\0b"}, "NUL"),
    ],
)
def test_wrong_bodies_say_what_is_allowed(body: Any, words: str) -> None:
    refusal = refused(ClassifyBody, body)
    assert refusal.status == 422
    assert words in refusal.message


def test_wrong_bodies_of_the_other_endpoints() -> None:
    assert (
        "tasks is not valid; give a list of task names" in refused(CombinedBody, {"input": "a", "tasks": "x"}).message
    )
    assert "tasks is not valid" in refused(CombinedBody, {"input": "a", "tasks": []}).message
    assert "inputs is missing" in refused(PredictBody, {}).message
    assert 'several texts are [["a"], ["b"]]' in refused(PredictBody, {"inputs": ["a", "b", "c"]}).message
    assert "0 texts" in refused(PredictBody, {"inputs": []}).message
    assert refused(PredictBody, {"inputs": [[]]}).status == 422
    assert refused(PredictBody, {"inputs": ["a", ["b"]]}).status == 422


def test_messages_show_nothing_of_a_text() -> None:
    secret = "my secret sentence"
    for body in ({"input": [secret, 1]}, {"input": secret + "\0"}, {"input": secret * 10}, {"input_pairs": [[secret]]}):
        assert "secret" not in refused(ClassifyBody, body).message
    assert "secret" not in refused(ClassifyBody, b'{"input": "my secret sentence').message


def test_a_body_full_of_mistakes_is_refused_at_once() -> None:
    # One error per item or field would take seconds and hundreds of megabytes.
    for body in ({"input": [1] * 300_000}, {str(n): n for n in range(100_000)}, {"input_pairs": [1] * 300_000}):
        assert refused(ClassifyBody, body).status == 422
