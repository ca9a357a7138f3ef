"""Scores of layers before training: gradients against plain autograd, row by row; states against their definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch.nn import functional

from frostline.analysis.inside.scout import RULES
from frostline.errors import FrostlineError
from frostline.measures import scout as measured
from frostline.measures.measure import RowSource
from frostline.measures.separation import variability
from frostline.model.added.readers import LinearReader
from frostline.model.stack import Stack
from frostline.records.specs import RunSpec
from frostline.studies.inside import scout as study
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.batches import Encoded, make_batch
from frostline.training.prepare import seed_for
from frostline.training.run import Runner

N_LAYERS = 2
FAMILIES: tuple[Family, ...] = ("bert", "roberta", "modernbert", "gpt2", "llama")
Found = dict[str, NDArray[np.float64]]


def fitted(tmp_path: Path, family: Family, kind: str = "classification") -> tuple[Found, Stack, RunSpec, Encoded]:
    """What the measure finds, the model with its fitted head, and the rows that it trained on."""
    model = make_model(tmp_path / "model", family, n_layers=N_LAYERS, initializer_range=0.3)
    fit = "logreg" if kind == "classification" else "ridge"
    task = make_task(tmp_path / "task.csv", n_rows=28, kind=kind)
    spec = make_spec(model, task, kind=kind, strategy=f"features:{fit}@{N_LAYERS}.mean", learning_rate=0.0)
    runner = Runner(max_cache_bytes=0)
    result, stack = runner.train(spec.replace(measures=("scout",)))
    found = result.measurement("scout")
    assert found is not None
    return found, stack, spec, runner.preparer.prepare(spec).train.encoded


def row_gradients(stack: Stack, encoded: Encoded, rows: NDArray[np.int64]) -> list[list[NDArray[np.float64]]]:
    """The gradient of the mean loss of some rows, each computed alone and without padding: by layer, flat."""
    reader = stack.reader
    assert isinstance(reader, LinearReader)
    parameters = dict(stack.model.named_parameters())
    layers = [[parameters[name] for name in names] for names in stack.structure.layer_parameters]
    losses = []
    for row in rows:
        batch = make_batch(encoded, np.array([row]))
        state = stack.state_at(N_LAYERS, batch.padded_inputs())[0].mean(0)
        output = reader.linear(state)[None]
        is_value = output.shape[1] == 1
        loss = functional.mse_loss(output[0], batch.labels.float()) if is_value else None
        losses.append(functional.cross_entropy(output, batch.labels) if loss is None else loss)
    flat = [weight for layer in layers for weight in layer]
    found = iter(torch.autograd.grad(torch.stack(losses).mean(), flat, allow_unused=True, materialize_grads=True))
    return [[next(found).double().numpy().ravel() for _ in layer] for layer in layers]


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_scores_follow_their_definitions(family: Family, tmp_path: Path) -> None:
    found, stack, spec, encoded = fitted(tmp_path, family)
    stack.apply(tuple(name for names in stack.structure.layer_parameters for name in names))
    n_rows = len(encoded)
    examples = [row_gradients(stack, encoded, np.array([row])) for row in range(n_rows)]
    by_layer = [np.stack([np.concatenate(one[layer]) for one in examples]) for layer in range(N_LAYERS)]
    fisher = [np.square(g).mean(0).sum() for g in by_layer]
    np.testing.assert_allclose(found["fisher"], fisher, rtol=1e-3)
    noise = [(np.square(g.mean(0)) / (g.var(0) + 1e-20)).mean() for g in by_layer]
    np.testing.assert_allclose(found["signal_to_noise"], noise, rtol=2e-2)
    order = np.random.default_rng(seed_for(spec, "measures")).permutation(np.arange(n_rows))
    parts = [row_gradients(stack, encoded, part) for part in np.array_split(order, measured.N_BATCHES)]
    parameters = dict(stack.model.named_parameters())
    for layer, names in enumerate(stack.structure.layer_parameters):
        norm = np.linalg.norm(np.concatenate([parameters[name].detach().numpy().ravel() for name in names]))
        relative = [np.linalg.norm(np.concatenate(part[layer])) / norm for part in parts]
        assert found["gradient_norm"][layer] == pytest.approx(np.mean(relative), rel=1e-3)
    # Twins: one example read again and again; the variance over a dimension of the weight instead of over examples.
    again = [n_rows * np.square(examples[0][layer][0]).sum() / n_rows for layer in range(N_LAYERS)]
    assert np.abs(np.array(again) / fisher - 1).min() > 0.05
    over_weights = [np.square(g.mean(0)).mean() / g.mean(0).var() for g in by_layer]
    assert np.abs(np.array(over_weights) / noise - 1).min() > 0.05


def test_values_are_scored_too(tmp_path: Path) -> None:
    found, *_ = fitted(tmp_path, "bert", "regression")
    assert found.keys() == {rule.name for rule in RULES} - {"probe"}
    for rule in RULES:
        if rule.name != "probe":
            assert found[rule.name].shape == (N_LAYERS + rule.is_by_depth,)


def test_variability_leaves_the_first_token_out(tmp_path: Path) -> None:
    found, stack, _, encoded = fitted(tmp_path, "bert")
    depth, inputs = 1, [make_batch(encoded, np.array([row])).padded_inputs() for row in range(len(encoded))]
    states = [stack.frozen_state_at(depth, one)[0].double().numpy() for one in inputs]
    wanted = variability(np.stack([state[1:].mean(0) for state in states]), np.asarray(encoded.labels))
    assert found["variability"][depth] == pytest.approx(wanted, rel=1e-3)
    whole = variability(np.stack([state.mean(0) for state in states]), np.asarray(encoded.labels))
    assert abs(whole / wanted - 1) > 0.01, "the test sees the first token"


def dead_feature(tmp_path: Path) -> Path:
    """A model whose last norm all but removes one feature, as that of all-MiniLM-L6-v2 does."""
    model = make_model(tmp_path / "model", n_layers=N_LAYERS, initializer_range=0.3)
    weights = load_file(model / "model.safetensors")
    for part, value in (("weight", 1e-33), ("bias", 0.0)):
        weights[f"encoder.layer.{N_LAYERS - 1}.output.LayerNorm.{part}"][3] = value
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    return model


def test_a_feature_that_hardly_varies_does_not_blow_up_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_task(tmp_path / "task.csv", n_rows=48)
    strategy = f"features:logreg@{N_LAYERS}.mean"
    spec = make_spec(dead_feature(tmp_path), task, strategy=strategy, learning_rate=0.0, measures=("scout",))
    found = Runner(max_cache_bytes=0).run(spec).measurement("scout")
    assert found is not None
    assert found["gradient_norm"].max() < 1e3
    monkeypatch.setattr(measured, "DEAD", 0.0)
    with pytest.raises(FrostlineError, match="not finite"):
        Runner(max_cache_bytes=0).run(spec)


def test_only_a_fit_of_features_can_be_scouted(tmp_path: Path) -> None:
    model, task = make_model(tmp_path / "model"), make_task(tmp_path / "task.csv")
    spec = make_spec(model, task, epochs=1, measures=("scout",))
    with pytest.raises(ValueError, match="only a fit of `features`"):
        Runner(max_cache_bytes=0).run(spec)


def test_the_costs_count_the_rows_that_the_measure_reads() -> None:
    wanted = {"gradient_norm": measured.N_BATCHES * measured.BATCH_SIZE}
    wanted |= {"signal_to_noise": measured.NOISE_ROWS, "fisher": measured.FISHER_ROWS}
    assert wanted == study.GRADIENT_ROWS
    assert measured.ROWS == study.ROWS


def test_a_part_of_the_rows_of_a_sorted_file_is_a_random_part() -> None:
    nothing: Any = None
    rows = RowSource(labels=np.repeat([0, 1], 500), lengths=nothing, batch=nothing, cut=nothing, pooled=None)
    places = measured.shuffled(rows, "scout examples", measured.FISHER_ROWS, 0)
    assert sorted(places) == rows.sample("scout examples", measured.FISHER_ROWS).tolist()
    assert 0.35 < rows.labels[places[: measured.NOISE_ROWS]].mean() < 0.65
    in_order = rows.sample("scout examples", measured.FISHER_ROWS)
    assert rows.labels[in_order[: measured.NOISE_ROWS]].mean() < 0.3, "the twin"
