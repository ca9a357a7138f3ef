"""Every architecture people fine-tune: taken apart, run from any depth, cached, trained; with twins that break it."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from families import ABOVE, BELOW, DECODERS, DISTINCT, LAYERS, matrix, sampled
from frostline.model.stack import Stack
from frostline.records.specs import RunSpec
from frostline.tasks import Rows
from frostline.testing.models import FAMILIES, Family, make_model, make_spec, make_task, make_tokenizer, pad_token_of
from frostline.training.batches import Batch, Encoded, encode, make_batch
from frostline.training.forward import Forward
from frostline.training.prefix import Split, compute_states
from frostline.training.run import Runner
from losses import losses_of
from tiny import PACKED, STEPS, TEETH, Case, distance, step_losses

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

N_LAYERS = 3
DEPTHS = range(N_LAYERS + 1)
CLOSE, CLOSE_SINGLE = 1e-5, 1e-3
"""Computed in double precision; in single, where wide weights blow up what is rounded off."""

KINDS = {
    "texts": Case("bert", n_outputs=3),
    "pairs": Case("bert", is_pair=True, n_outputs=3),
    "values": Case("bert", n_outputs=1),
}


def _case(family: Family, kind: str) -> Case:
    model = KINDS[kind]
    return Case(family, is_pair=model.is_pair, n_outputs=model.n_outputs)


@pytest.mark.parametrize("family", FAMILIES)
def test_exactly_the_layers_above_the_cut_and_the_head_train(family: Family) -> None:
    stack = Case(family).stack(n_layers=N_LAYERS)
    everything = {name for name, _ in stack.model.named_parameters()}
    in_layers = [{name for name in everything if name.startswith(f"{LAYERS[family]}.{i}.")} for i in range(N_LAYERS)]
    assert all(in_layers)
    assert set().union(*in_layers, BELOW[family], ABOVE[family]) == everything
    assert set(stack.structure.below_parameters) == BELOW[family]
    for depth in DEPTHS:
        stack.apply(stack.parameters_above(depth))
        trained = {name for name, p in stack.model.named_parameters() if p.requires_grad}
        assert trained == ABOVE[family].union(*in_layers[depth:])


def _alone(stack: Stack, encoded: Encoded) -> Tensor:
    """What the plain model answers to each row by itself: no padding, no batch, nothing of ours."""
    rows = [make_batch(encoded, np.array([row])).padded_inputs() for row in range(len(encoded))]
    return torch.cat([stack.model(**inputs).logits for inputs in rows]).float()


@pytest.mark.parametrize(("family", "kind"), matrix(FAMILIES, tuple(KINDS)))
@torch.no_grad()
def test_prefix_tail_and_head_equal_the_whole_at_every_depth(family: Family, kind: str) -> None:
    case = _case(family, kind)
    stack, encoded, batch = case.stack(n_layers=N_LAYERS), case.encoded(), case.batch()
    stack.check_depths()
    whole = _alone(stack, encoded)
    assert float(whole.std()) > 0.1
    for depth in DEPTHS:
        kept = Split(encoded, compute_states(stack, encoded, depth))
        assert distance(Forward(stack, depth).logits(batch, kept), whole) < CLOSE_SINGLE
    stack.model.double()
    whole = _alone(stack, encoded)
    for depth in (None, *DEPTHS):
        assert distance(Forward(stack, depth).logits(batch, Split(encoded)), whole) < CLOSE


@pytest.fixture(scope="module")
def stacks() -> dict[Family, Stack]:
    found = {family: Case(family).stack(n_layers=N_LAYERS) for family in FAMILIES}
    for stack in found.values():
        stack.model.double()
    return found


def _padded_and_answer(stack: Stack, family: Family) -> tuple[Batch, dict[str, Tensor], Tensor]:
    batch = Case(family).batch()
    inputs = batch.padded_inputs()
    return batch, inputs, stack.logits(inputs)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_twins_hidden_token_swapped_rows_and_nudged_weight(family: Family, stacks: dict[Family, Stack]) -> None:
    stack = stacks[family]
    batch, inputs, answer = _padded_and_answer(stack, family)
    for depth in DEPTHS:
        state = stack.state_at(depth, inputs)
        assert distance(stack.logits_from(depth, state, inputs), answer) < 1e-5
        assert distance(stack.logits_from(depth, state.roll(1, 0), inputs), answer) > TEETH
        assert distance(stack.logits_from(depth, state.roll(1, 1), inputs), answer) > TEETH
        if depth == N_LAYERS:
            continue
        # A causal model never sees padding on the right: hide each row's second token instead of dropping the mask.
        hidden = inputs["attention_mask"].clone()
        hidden[:, 1] = 0
        assert distance(stack.logits_from(depth, state, {**inputs, "attention_mask": hidden}), answer) > TEETH
    weight = next(p for name, p in stack.model.named_parameters() if name.startswith(LAYERS[family]) and p.ndim == 2)
    before = stack.state_at(1, inputs)
    weight += 0.5
    nudged = stack.state_at(1, inputs)
    weight -= 0.5
    assert float((nudged - before)[batch.mask].abs().max()) > TEETH


@pytest.mark.parametrize("family", sampled(DISTINCT))
def test_cached_and_uncached_training_agree_with_dropout_above_the_cut(family: Family) -> None:
    case = Case(family)
    encoded = case.encoded(16)
    for depth in (1, N_LAYERS):
        losses = []
        for is_cached in (False, True):
            stack = case.stack(n_layers=N_LAYERS)
            states = compute_states(stack, encoded, depth) if is_cached else None
            losses.append(step_losses(stack, depth, _spec_of_steps(is_cached), Split(encoded, states)))
        assert np.abs(losses[0] - losses[1]).max() < 1e-5


@pytest.mark.parametrize("family", ["xlnet", "opt", "deberta-v3"])
def test_twin_a_prefix_in_training_mode_shows(family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of XLNet's dropout, one module for embeddings and output; of OPT's, a function."""
    case = Case(family)
    encoded = case.encoded(16)
    right = step_losses(case.stack(n_layers=N_LAYERS), 1, _spec_of_steps(False), Split(encoded))

    def in_training(self: Stack, depth: int, inputs: dict[str, Tensor]) -> Tensor:
        self.model.train()
        with torch.no_grad():
            return self.state_at(depth, inputs)

    monkeypatch.setattr(Stack, "frozen_state_at", in_training)
    wrong = step_losses(case.stack(n_layers=N_LAYERS), 1, _spec_of_steps(False), Split(encoded))
    assert np.abs(right - wrong).max() > TEETH


def _spec_of_steps(is_cached: bool) -> RunSpec:
    return STEPS.replace(batch_size=4, is_cached=is_cached)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_tokenizers_padding_side_changes_nothing(family: Family, side: str, stacks: dict[Family, Stack]) -> None:
    stack = stacks[family]
    case = Case(family, is_pair=True, side="left" if side == "left" else "right")
    encoded, batch = case.encoded(), case.batch()
    assert distance(Forward(stack).logits(batch, Split(encoded)), _alone(stack, encoded)) < CLOSE


@pytest.mark.parametrize("family", DECODERS)
@torch.no_grad()
def test_a_decoder_reads_the_last_real_token_though_it_is_the_pad_token(
    family: Family, stacks: dict[Family, Stack]
) -> None:
    stack, tokenizer = stacks[family], make_tokenizer(family)
    pad_token_of(tokenizer)
    end = tokenizer.eos_token
    texts = [f"the film is good {end}", "bad", f"so dull {end} {end}", ""]
    rows = Rows(ids=np.arange(4), texts=texts, pairs=None, labels=np.zeros(4, dtype=np.int64))
    encoded = encode(rows, tokenizer, max_length=16, pair_joiner=None)
    assert encoded.tokens[encoded.offsets[1] - 1] == tokenizer.pad_token_id
    batch = make_batch(encoded, np.arange(4))
    found = Forward(stack).logits(batch, Split(encoded))
    # By the mask; alone and with another pad token the library's head finds the same one.
    stack.model.config.pad_token_id, kept = 1, stack.model.config.pad_token_id
    try:
        assert distance(found, _alone(stack, encoded)) < CLOSE
    finally:
        stack.model.config.pad_token_id = kept
    assert distance(stack.model(**batch.padded_inputs()).logits.float(), found) > TEETH, (
        "the library reads one token earlier"
    )


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("families")
    make_task(folder / "texts.csv", n_rows=24)
    make_task(folder / "pairs.csv", n_rows=24, is_pair=True)
    make_task(folder / "values.csv", n_rows=24, kind="regression")
    return folder


SWEEP: tuple[tuple[str, str], ...] = (
    ("texts", "full"),
    *(("texts", f"freeze:{depth}") for depth in DEPTHS),
    ("pairs", "full"),
    ("pairs", "freeze:2"),
    ("values", "full"),
    ("values", "freeze:1"),
)


@pytest.mark.parametrize("family", sampled(("bert", "xlnet")))
def test_a_depth_sweep_from_a_folder(family: Family, folder: Path, runner: Runner) -> None:
    model = make_model(folder / family, family, n_layers=N_LAYERS, initializer_range=0.3)
    for task, strategy in SWEEP:
        kind: str = "regression" if task == "values" else "classification"
        layout = "packed" if family in PACKED else "mixed"
        spec = make_spec(model, folder / f"{task}.csv", kind=kind, strategy=strategy, epochs=1, layout=layout)
        spec = spec.replace(is_cached=strategy not in ("full", "freeze:0"))
        result, stack = runner.train(spec)
        assert spec.pair_joiner == ("\n" if task == "pairs" and family in DECODERS else None)
        assert result.train_score is not None
        assert np.isfinite([result.score, result.train_score, *losses_of(result)]).all()
        outputs = result.predictions.outputs.array()
        assert outputs.shape == (result.n_dev, 1 if kind == "regression" else 2)
        wanted = stack.all_parameters if strategy == "full" else stack.parameters_above(int(strategy[-1]))
        assert result.plan.phases[0].trained == wanted


def test_the_matrix_is_the_list_of_the_documentation() -> None:
    assert len(FAMILIES) == len(set(FAMILIES)) == 16
    assert LAYERS.keys() == BELOW.keys() == ABOVE.keys() == set(FAMILIES)
    kinds = {family: type(Case(family).stack().model) for family in FAMILIES}
    for one, other in itertools.combinations(FAMILIES, 2):
        assert kinds[one] is not kinds[other] or {one, other} == {"deberta-v2", "deberta-v3"}
