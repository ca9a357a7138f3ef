"""The engine answers as `predict` of each task's own model: every family, alone and next to other texts and tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import AlbertConfig, AlbertForSequenceClassification

from families import DISTINCT, matrix
from frostline.model.load import load_trained
from frostline.model.stack import Stack
from frostline.serving import engine as engine_module
from frostline.serving.bundles.folders import bundle_folder
from frostline.serving.engine import Engine
from frostline.serving.rows import Text
from frostline.serving.tail import Tail, load_tail
from frostline.serving.trunk import load_trunk
from frostline.testing.models import Family, make_tokenizer
from tiny import TEETH

from .tasks import ToyTask, make_task, make_texts, make_trunk, softmax

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

FAMILIES: tuple[Family, ...] = (
    "bert", "roberta", "distilbert", "electra", "mpnet", "deberta-v2", "xlnet", "modernbert", "gpt2", "opt", "llama",
    "qwen2",
)  # fmt: skip
CLOSE = 1e-5
TEXTS = [*make_texts(7), *make_texts(3, is_pair=True, seed=1), Text("")]
# A task that trains layers, one that reads the top of the trunk, one that shares no layer.
TASKS = {"freeze:1": 3, "freeze:3": 2, "full": 1}


@dataclasses.dataclass(frozen=True)
class Served:
    """An engine with tasks, and the models that they stand for."""

    engine: Engine
    toys: Mapping[str, ToyTask]

    def expected(self, name: str, texts: list[Text]) -> NDArray[np.float32]:
        return self.toys[name].expected(texts)

    def outputs(self, names: list[str], texts: list[Text]) -> dict[str, NDArray[np.float32]]:
        tails = {name: self.engine.tails[name] for name in names}
        return self.engine.outputs(self.engine.encode(texts, tails), tails)


def serve(folder: Path, family: Family, tasks: Mapping[str, int]) -> Served:
    base = make_trunk(folder / "trunk", family)
    engine, toys = Engine(load_trunk(str(base))), {}
    for seed, (strategy, n_outputs) in enumerate(tasks.items()):
        toys[strategy] = make_task(folder / f"task {seed}", base, strategy, n_outputs=n_outputs, seed=seed)
        engine.add(load_tail(engine.trunk, toys[strategy].bundle), strategy)
    return Served(engine, toys)


def assert_close(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.shape == expected.shape
    scale = max(1.0, float(np.abs(expected).max()))
    assert np.abs(found - expected).max() <= CLOSE * scale
    assert np.abs(softmax(found) - softmax(expected)).max() <= CLOSE * (scale if found.shape[1] == 1 else 1)


@pytest.mark.parametrize("family", matrix(FAMILIES, is_sample=lambda family: family in DISTINCT))
def test_every_family_answers_as_its_own_models(family: Family, tmp_path: Path) -> None:
    served = serve(tmp_path, family, TASKS)
    depths = {name: tail.depth for name, tail in served.engine.tails.items()}
    assert depths == {"freeze:1": 1, "freeze:3": 3, "full": None}
    expected = {name: served.expected(name, TEXTS) for name in TASKS}
    together = served.outputs(list(TASKS), TEXTS)
    for name in TASKS:
        assert_close(together[name], expected[name])
        assert_close(served.outputs([name], TEXTS)[name], expected[name])
        for place in (0, 8, 10):
            assert_close(served.outputs([name], [TEXTS[place]])[name], expected[name][place : place + 1])
    # Twin: from another depth, or with two texts swapped, the answers differ.
    tail = served.engine.tails["freeze:1"]
    wrong = {"x": dataclasses.replace(tail, depth=2)}
    moved = served.engine.outputs(served.engine.encode(TEXTS, wrong), wrong)["x"]
    assert np.abs(moved - expected["freeze:1"]).max() > TEETH
    assert np.abs(expected["freeze:1"] - np.roll(expected["freeze:1"], 1, axis=0)).max() > TEETH


STRATEGIES = {
    "lora:2@1": 2, "lora:2": 3, "adapter:4@2": 2, "adapter:4": 2, "bitfit": 2, "norms": 1, "layers:2": 2,
    "features": 3, "features:bilstm": 2, "freeze:0": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return serve(tmp_path_factory.mktemp("many"), "bert", STRATEGIES)


def test_every_strategy_answers_as_its_own_model(many: Served) -> None:
    together = many.outputs(list(STRATEGIES), TEXTS)
    for name in STRATEGIES:
        assert_close(together[name], many.expected(name, TEXTS))


def test_strategies_leave_the_trunk_where_they_changed_it(many: Served) -> None:
    depths = {name: tail.depth for name, tail in many.engine.tails.items()}
    assert depths == {
        "lora:2@1": 1, "lora:2": None, "adapter:4@2": 2, "adapter:4": None, "bitfit": None, "norms": None,
        "layers:2": 1, "features": 3, "features:bilstm": 3, "freeze:0": None,
    }  # fmt: skip
    assert many.engine.tails["features"].read_depths == (2,)
    assert many.engine.tails["features:bilstm"].read_depths == (1, 2, 3)


def test_tasks_may_ask_for_different_texts(many: Served) -> None:
    """Each task gets its own rows, some of them twice; what is asked for once is computed once."""
    asked = {"lora:2@1": TEXTS[:4], "features": [TEXTS[9], TEXTS[1], TEXTS[9]], "adapter:4@2": TEXTS[::-1]}
    tails = {name: many.engine.tails[name] for name in asked}
    rows = {name: many.engine.encode(texts, {name: tails[name]})[name] for name, texts in asked.items()}
    outputs = many.engine.outputs(rows, tails)
    for name, texts in asked.items():
        assert_close(outputs[name], many.expected(name, texts))


def test_one_task_may_appear_under_several_names(many: Served) -> None:
    """As in a micro-batch that holds requests from before and after a reload."""
    old, new = many.engine.tails["bitfit"], many.engine.tails["lora:2@1"]
    tails: dict[str, Tail] = {"task, old": old, "task, new": new}
    outputs = many.engine.outputs(many.engine.encode(TEXTS[:3], tails), tails)
    assert_close(outputs["task, old"], many.expected("bitfit", TEXTS[:3]))
    assert_close(outputs["task, new"], many.expected("lora:2@1", TEXTS[:3]))


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_any_number_of_texts_in_one_call(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(tmp_path, family, {"freeze:1": 2, "freeze:2": 2})
    texts = make_texts(40, seed=3)
    monkeypatch.setattr(engine_module, "_TOKENS_AT_ONCE", 30)  # many passes
    outputs = served.outputs(["freeze:1", "freeze:2"], texts)
    for name, found in outputs.items():
        assert_close(found, served.expected(name, texts))


def test_no_texts_give_no_answers(many: Served) -> None:
    assert many.outputs(["lora:2"], [])["lora:2"].shape == (0, 3)
    assert many.engine.outputs({}, {}) == {}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_half_precision_is_widened(dtype: str, many: Served, tmp_path: Path) -> None:
    toy = make_task(tmp_path / "half", many.toys["bitfit"].base, "freeze:2", dtype=dtype)  # type: ignore[arg-type]
    tail = load_tail(many.engine.trunk, toy.bundle)
    assert {str(tensor.dtype) for tensor in tail.tensors.values()} == {"torch.float32"}
    outputs = many.engine.outputs(many.engine.encode(TEXTS, {"x": tail}), {"x": tail})["x"]
    exact = toy.expected(TEXTS)
    assert 0 < np.abs(outputs - exact).max() < 1
    toy.stack.model.load_state_dict(dict(tail.tensors), strict=False)
    assert_close(outputs, toy.expected(TEXTS))


def test_rows_say_how_long_a_text_was(many: Served, tmp_path: Path) -> None:
    base = many.toys["bitfit"].base
    short = load_tail(many.engine.trunk, make_task(tmp_path / "short", base, "freeze:2", max_length=4).bundle)
    tails = {"long": many.engine.tails["bitfit"], "short": short}
    rows = many.engine.encode([Text("a good film and so on"), Text("bad")], tails)
    assert [(row.n_tokens, len(row.tokens), row.is_cut) for row in rows["short"]] == [(8, 4, True), (3, 3, False)]
    assert [(row.n_tokens, len(row.tokens), row.is_cut) for row in rows["long"]] == [(8, 8, False), (3, 3, False)]
    assert rows["short"][1] is rows["long"][1], "what nobody cuts is tokenised once"
    outputs = many.engine.outputs(rows, tails)
    assert_close(outputs["short"], many.engine.outputs({"short": rows["short"]}, {"short": short})["short"])


def test_a_model_without_a_single_stack_shares_only_storage(tmp_path: Path) -> None:
    """ALBERT's layers share their weights, so it cannot be cut at a depth."""
    base, tuned = tmp_path / "albert", tmp_path / "tuned"
    sizes = {"vocab_size": 20, "embedding_size": 4, "hidden_size": 8, "num_attention_heads": 2}
    config = AlbertConfig(**sizes, intermediate_size=16, num_hidden_layers=3, initializer_range=0.5)
    model = AlbertForSequenceClassification(config)
    model.albert.save_pretrained(base)
    with torch.no_grad():
        model.albert.encoder.embedding_hidden_mapping_in.bias += 1
    model.save_pretrained(tuned)
    for folder in (base, tuned):
        make_tokenizer("bert").save_pretrained(folder)
    bundle = bundle_folder(tuned, str(base), tmp_path / "bundle").bundle
    engine = Engine(load_trunk(str(base)))
    engine.add(load_tail(engine.trunk, bundle), "task")
    tail = engine.tails["task"]
    assert (tail.depth, tail.shares_compute) == (None, False)
    assert tail.n_bytes < engine.trunk.n_bytes
    toy = ToyTask(bundle, Stack(load_trained(tuned)), base)
    assert_close(engine.outputs(engine.encode(TEXTS, engine.tails), engine.tails)["task"], toy.expected(TEXTS))


@pytest.mark.parametrize("is_packed", [True, False])
@given(lengths=st.lists(st.integers(1, 3000), max_size=60))
@settings(max_examples=60, deadline=None)
def test_passes_take_every_row_once_and_few_tokens(is_packed: bool, lengths: list[int]) -> None:
    array = np.array(lengths, dtype=np.int64)
    passes = list(engine_module._passes(array, is_packed=is_packed))
    assert sorted(np.concatenate([[], *passes]).tolist()) == list(range(len(lengths)))
    for positions in passes:
        together = array[positions]
        n_tokens = together.sum() if is_packed else together.max() * len(together)
        assert len(together) == 1 or n_tokens <= engine_module._TOKENS_AT_ONCE
        assert list(together) == sorted(together)
