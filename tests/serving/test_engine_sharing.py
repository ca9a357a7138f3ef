"""What tasks share: every unchanged weight is one tensor, and a layer of the trunk runs once for all of them."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from frostline.model.added import assembly
from frostline.serving.engine import Engine
from frostline.serving.rows import TokenRow
from frostline.serving.tail import Tail, load_tail
from frostline.serving.trunk import Trunk, load_trunk
from frostline.testing.models import Family
from tiny import TEETH

from .tasks import make_task, make_texts, make_trunk

TEXTS = make_texts(6)
SMALL = ("lora:2", "bitfit")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    folder = tmp_path_factory.mktemp("sharing")
    base = make_trunk(folder / "trunk")
    engine = Engine(load_trunk(str(base)))
    for seed, strategy in enumerate(("freeze:1", "freeze:2", "freeze:3", "features:bilstm", "features", *SMALL)):
        bundle = make_task(folder / strategy, base, strategy, seed=seed).bundle
        engine.add(load_tail(engine.trunk, bundle), strategy)
    return engine


def _tensors(tail: Tail) -> list[tuple[str, torch.Tensor]]:
    """All parameters and buffers of a tail's model, those of layers included."""
    return [named for module in _modules(tail) for named in assembly.named_tensors(module)]


def _own_weights(tail: Tail) -> list[torch.Tensor]:
    """The parameters in a tail's modules that are not the trunk's."""
    if tail.reader is not None:
        return list(tail.reader.parameters())
    own = {tensor.data_ptr() for tensor in tail.tensors.values()}
    return [tensor for _, tensor in _tensors(tail) if tensor.data_ptr() in own]


def _modules(tail: Tail) -> list[nn.Module]:
    assert tail.model is not None
    model = tail.model.stack.model
    layers = model.get_submodule(tail.trunk.structure.layers_name)  # type: ignore[union-attr]
    return [model, *(layer._stood_for[0] for layer in layers)]


@pytest.mark.parametrize("family", ["bert", "modernbert", "gpt2", "llama", "xlnet"])
def test_no_weight_is_in_memory_twice(family: Family, tmp_path: Path) -> None:
    base = make_trunk(tmp_path / "trunk", family)
    trunk = load_trunk(str(base))
    tail = load_tail(trunk, make_task(tmp_path / "task", base, "freeze:2").bundle)
    own = {tensor.data_ptr() for tensor in tail.tensors.values()}
    shared = {tensor.data_ptr() for tensor in trunk.tensors.values()}
    assert not own & shared
    held = {tensor.data_ptr() for _, tensor in _tensors(tail)}
    assert held <= own | shared
    assert held & shared, "the embeddings are the trunk's"
    # Only layer 3 and the head are its own.
    layer = trunk.structure.layer_parameters[2]  # type: ignore[union-attr]
    assert set(tail.tensors) == {*layer, *trunk.structure.above_parameters}  # type: ignore[union-attr]
    assert tail.n_bytes == sum(tensor.nbytes for tensor in tail.tensors.values())


def test_a_lora_update_shares_the_matrix_that_it_updates(engine: Engine) -> None:
    tail = engine.tails["lora:2"]
    shared = {tensor.data_ptr() for tensor in engine.trunk.tensors.values()}
    wrapped = [tensor for name, tensor in _tensors(tail) if ".base_layer." in name]
    assert len(wrapped) == 3 * 2 * 2, "weight and bias of query and value in every layer"
    assert all(tensor.data_ptr() in shared for tensor in wrapped)
    assert tail.n_bytes < engine.trunk.n_bytes / 2


def test_nothing_shared_is_mapped_from_a_file(engine: Engine) -> None:
    """A file that is overwritten while a server runs must not change an answer."""
    weights = Path(engine.trunk.name) / "model.safetensors"
    tails = dict(engine.tails)
    rows = engine.encode(TEXTS, tails)
    before = engine.outputs(rows, tails)
    content = weights.read_bytes()
    try:
        with weights.open("r+b") as stream:
            stream.write(bytes(len(content)))
        for tail in tails.values():
            path = tail.bundle.folder / "tail.safetensors"
            with path.open("r+b") as stream:
                stream.write(bytes(path.stat().st_size))
        after = engine.outputs(rows, tails)
    finally:
        weights.write_bytes(content)
    assert all(np.array_equal(before[name], after[name]) for name in tails)


def _tokens_by_layer(trunk: Trunk) -> Counter[int]:
    """How many tokens each layer of the trunk has computed, from now on."""
    seen: Counter[int] = Counter()
    layers = trunk.model.stack.model.get_submodule(trunk.structure.layers_name)  # type: ignore[union-attr]
    for number, layer in enumerate(layers, start=1):
        real = layer._stood_for[0]

        def note(_module: nn.Module, args: tuple[torch.Tensor, ...], number: int = number) -> None:
            seen[number] += args[0].shape[1]

        real.register_forward_pre_hook(note)
    return seen


def test_each_layer_of_the_trunk_runs_once_per_row_and_only_as_high_as_needed(engine: Engine) -> None:
    seen = _tokens_by_layer(engine.trunk)
    tails = {name: engine.tails[name] for name in ("freeze:1", "freeze:2", "features", "bitfit")}
    rows = engine.encode(TEXTS, {"freeze:1": tails["freeze:1"]})["freeze:1"]
    n_tokens = sum(len(row.tokens) for row in rows)
    same: dict[str, tuple[TokenRow, ...]] = dict.fromkeys(tails, (*rows, *rows))
    engine.outputs(same, tails)
    assert seen == {1: n_tokens, 2: n_tokens}, "the states of layer 2 are the highest that a task reads"
    seen.clear()
    engine.outputs({"freeze:1": rows[:4], "freeze:2": rows[3:]}, tails)
    assert seen == {1: n_tokens, 2: sum(len(row.tokens) for row in rows[3:])}
    seen.clear()
    engine.outputs({"bitfit": rows}, tails)
    assert not seen, "a task that shares no layer does not need the trunk"


def test_the_top_layer_computes_only_what_heads_read(engine: Engine) -> None:
    seen = _tokens_by_layer(engine.trunk)
    rows = engine.encode(TEXTS, {"x": engine.tails["freeze:3"]})["x"]
    n_tokens = sum(len(row.tokens) for row in rows)
    heads = {name: engine.tails[name] for name in ("freeze:1", "freeze:3")}
    narrow = engine.outputs({"freeze:1": rows[:2], "freeze:3": rows}, heads)["freeze:3"]
    assert seen == {1: n_tokens, 2: n_tokens, 3: len(rows)}
    seen.clear()
    all_ = {**heads, "features:bilstm": engine.tails["features:bilstm"]}
    wide = engine.outputs(dict.fromkeys(all_, rows), all_)["freeze:3"]
    assert seen == {1: n_tokens, 2: n_tokens, 3: n_tokens}, "an LSTM reads all tokens"
    assert np.abs(narrow - wide).max() < 1e-5
    assert np.abs(wide - np.roll(wide, 1, axis=0)).max() > TEETH
    some = engine.outputs({"freeze:3": rows, "again": rows[1::2]}, {**heads, "again": heads["freeze:3"]})
    assert np.abs(some["again"] - wide[1::2]).max() < 1e-5


def test_the_snapshot_of_tasks_never_changes(engine: Engine) -> None:
    before = engine.tails
    engine.add(before["bitfit"], "again")
    assert "again" in engine.tails
    assert "again" not in before
    engine.replace(before)
    assert dict(engine.tails) == dict(before)
    with pytest.raises(TypeError):
        before["x"] = before["bitfit"]  # type: ignore[index]


@pytest.mark.parametrize("strategy", ["freeze:2", "lora:2", "features"])
def test_a_dropped_task_leaves_no_weights_behind(strategy: str, engine: Engine, tmp_path: Path) -> None:
    """Its memory is free at once, not only when Python next looks for cycles."""
    bundle = make_task(tmp_path / "task", Path(engine.trunk.name), strategy).bundle
    gc.disable()
    try:
        engine.add(load_tail(engine.trunk, bundle), "short-lived")
        tails = {"short-lived": engine.tails["short-lived"]}
        engine.outputs(engine.encode(TEXTS, tails), tails)
        held = [weakref.ref(tensor) for tensor in _own_weights(tails["short-lived"])]
        assert len(held) > 1
        assert all(tensor() is not None for tensor in held)
        del tails
        engine.drop("short-lived")
        assert all(tensor() is None for tensor in held)
    finally:
        gc.enable()
