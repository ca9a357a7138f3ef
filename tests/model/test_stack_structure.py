"""The parts of a model are found by structure, whatever they are called, and looking leaves no trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AutoConfig,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    CanineConfig,
    FlaubertConfig,
    FunnelConfig,
    LongformerConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    T5Config,
    XLMConfig,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from burrow import N_LAYERS, Burrow, BurrowConfig, Gallery
from frostline.kinds import CLASSIFICATION
from frostline.model.added.pass_through import PassThrough
from frostline.model.load import load_model, quiet
from frostline.model.stack import NoDepthError, Stack
from frostline.model.structure import find_layers, probed_tokens
from frostline.testing.models import FAMILIES, Family, make_spec, make_stack, make_task, make_tokenizer
from frostline.training.run import Runner
from losses import losses_of
from tiny import BASIC, TEETH, Case, distance


def _burrow() -> Stack:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Burrow(BurrowConfig())
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    return Stack(model.eval())


def _inputs() -> dict[str, Tensor]:
    inputs = Case("roberta").batch().padded_inputs()
    return {name: inputs[name] for name in ("input_ids", "attention_mask")}


def test_a_model_never_seen_before_is_taken_apart() -> None:
    found = _burrow().structure
    assert found.layers_name == "galleries"
    assert set(found.above_parameters) == {"roof.weight", "roof.bias", "lookout.weight", "lookout.bias"}
    assert set(found.below_parameters) == {
        "slope", "mouth.weight", "lamps.0.weight", "lamps.0.bias", "lamps.1.weight", "lamps.1.bias",
    }  # fmt: skip
    assert [set(names) for names in found.layer_parameters] == [
        {f"galleries.{i}.{name}" for name in ("dig.weight", "dig.bias", "settle.weight", "settle.bias")}
        for i in range(N_LAYERS)
    ]
    assert set(found.below_modules) == {"mouth", "draught", "lamps", "lamps.0", "lamps.1"}
    assert found.output_length == 2
    assert _burrow().head_reads == "all"


@torch.no_grad()
def test_a_model_never_seen_before_starts_and_stops_anywhere() -> None:
    stack, inputs = _burrow(), _inputs()
    whole = stack.model(**inputs).logits
    for depth in range(N_LAYERS + 1):
        state = stack.state_at(depth, inputs)
        assert distance(stack.logits_from(depth, state, inputs), whole) < 1e-6
        assert distance(stack.logits_from(depth, state.flip(0), inputs), whole) > TEETH


@pytest.fixture
def _burrow_is_known() -> Iterator[None]:
    AutoConfig.register("burrow", BurrowConfig)
    AutoModelForSequenceClassification.register(BurrowConfig, Burrow)
    yield
    CONFIG_MAPPING._extra_content.pop("burrow")
    AutoModelForSequenceClassification._model_mapping._extra_content.pop(BurrowConfig)


@pytest.mark.usefixtures("_burrow_is_known")
@pytest.mark.parametrize("strategy", ["full", *(f"freeze:{depth}" for depth in range(N_LAYERS + 1))])
def test_a_model_never_seen_before_is_trained_from_its_folder(strategy: str, tmp_path: Path) -> None:
    with quiet():
        _burrow().model.save_pretrained(tmp_path / "burrow")
    make_tokenizer("roberta").save_pretrained(tmp_path / "burrow")
    spec = make_spec(tmp_path / "burrow", make_task(tmp_path / "task.csv"), strategy=strategy, learning_rate=1e-2)
    losses = []
    for is_cached in (False, strategy != "full"):
        result, stack = Runner().train(spec.replace(is_cached=is_cached))
        assert (result.n_layers, stack.structure.width) == (N_LAYERS, 8)
        losses.append(losses_of(result))
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert losses[0][1] < losses[0][0]


@pytest.mark.usefixtures("_burrow_is_known")
def test_a_head_that_no_bare_model_stands_below_is_drawn_alone(tmp_path: Path) -> None:
    stack = _burrow()
    assert stack.model.base_model is stack.model
    with quiet():
        stack.model.save_pretrained(tmp_path)
    saved = dict(stack.model.named_parameters())
    zero, one, again = (
        dict(
            load_model(
                str(tmp_path), head_seed=seed, head=CLASSIFICATION.head(("bad", "good")), pad_token_id=0
            ).named_parameters()
        )
        for seed in (0, 1, 0)
    )
    for name in saved:
        assert torch.equal(zero[name], again[name])
        assert torch.equal(zero[name], saved[name]) == (name not in stack.structure.above_parameters)
    assert not torch.equal(zero["lookout.weight"], one["lookout.weight"])


def test_a_pad_token_among_the_probed_ones_is_left_out() -> None:
    stack = make_stack("gpt2")
    for pad in (None, 3, 4, 5, 9):
        stack.model.config.pad_token_id = pad
        assert pad not in probed_tokens(stack.model, 8).tolist()
        assert len(set(probed_tokens(stack.model, 8).tolist())) == (2 if pad in (3, 4, 5) else 3)
        if pad is not None:  # without one the library's head takes no batch
            Stack(stack.model).check_depths()


class _Failing(Burrow):
    """Raises in its n-th pass."""

    error: BaseException
    passes_left = 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SequenceClassifierOutput:
        self.passes_left -= 1
        if self.passes_left < 0:
            raise self.error
        return super().forward(input_ids, attention_mask)


@pytest.mark.parametrize(
    ("error", "passes", "raised"),
    [
        (RuntimeError("no\nsuch\x1b token"), 0, NoDepthError),
        (RuntimeError("a slip of ours"), 1, RuntimeError),
        (torch.OutOfMemoryError("CUDA out of memory"), 0, torch.OutOfMemoryError),
    ],
)
def test_only_a_model_that_answers_no_row_is_said_to(
    error: BaseException, passes: int, raised: type[BaseException]
) -> None:
    model = _Failing(BurrowConfig())
    model.error, model.passes_left = error, passes
    with pytest.raises(raised) as seen:
        _ = Stack(model).structure
    assert type(seen.value) is raised
    assert raised is not NoDepthError or "it fails on a row of two tokens (no such token)" in str(seen.value)


def test_layers_in_no_list_are_not_said_to_share_their_weights() -> None:
    model = make_stack("bert").model
    model.bert.encoder.layer = nn.Sequential(*model.bert.encoder.layer)
    with pytest.raises(NoDepthError, match="it has no list of equal layers: they are of several classes"):
        _ = Stack(model).structure


class _Shallow(Burrow):
    """Never goes down to its galleries."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SequenceClassifierOutput:
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return SequenceClassifierOutput(logits=self.lookout((self.mouth(input_ids) * real[..., None]).sum(1)))


def test_layers_that_are_never_called_are_told() -> None:
    with pytest.raises(NoDepthError, match="it answers without calling layer 1"):
        _ = Stack(_Shallow(BurrowConfig())).structure


class _Tired(Burrow):
    """Turns back before the last of its galleries."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SequenceClassifierOutput:
        last = self.galleries[-1]
        self.galleries[-1] = PassThrough(last, 2)
        try:
            return super().forward(input_ids, attention_mask)
        finally:
            self.galleries[-1] = last


def test_a_last_layer_that_is_never_called_is_told() -> None:
    stack = Stack(_Tired(BurrowConfig()))
    with pytest.raises(NoDepthError, match=f"it answers without calling layer {stack.n_layers}"):
        stack.check_depths()


# The library's DeBERTa calls torch.jit.script on import.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("family", FAMILIES)
def test_describing_a_model_runs_no_row_through_its_lowest_layer(family: Family) -> None:
    stack, n_calls = make_stack(family), [0, 0]
    layers = stack.model.get_submodule(find_layers(stack.model)[0])
    assert isinstance(layers, nn.ModuleList)
    for layer, handle in ((0, 0), (-1, 1)):
        layers[layer].register_forward_hook(lambda *_, handle=handle: n_calls.__setitem__(handle, n_calls[handle] + 1))
    stack.check_depths()
    _ = stack.head_reads
    assert n_calls[0] == 0 < n_calls[1]


class _Leaky(Gallery):
    """Depends on more than its state: on how often layers like it were called."""

    n_calls = 0

    def forward(self, soil: Tensor, real: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        settled, seen = super().forward(soil, real, slope)
        _Leaky.n_calls += 1
        return settled * (1 + _Leaky.n_calls), seen


def test_a_model_that_cannot_be_cut_is_noticed() -> None:
    stack = _burrow()
    stack.check_depths()
    stack.model.galleries = nn.ModuleList([_Leaky() for _ in range(N_LAYERS)])
    with pytest.raises(NoDepthError, match="gives another answer when cut after 1 layers and joined again"):
        stack.check_depths()


def _small(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": N_LAYERS, "num_attention_heads": 2,
        "intermediate_size": 16, "max_position_embeddings": 40, "pad_token_id": 0, **more,
    }  # fmt: skip


_SEQ2SEQ = {"vocab_size": 30, "d_model": 8, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
_FUNNEL = {"vocab_size": 30, "d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 16}
_BART = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}


def _model_of(config: PreTrainedConfig) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(config)
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    return model.eval()


REFUSED: dict[str, tuple[PreTrainedConfig, str]] = {
    "albert": (AlbertConfig(**_small(embedding_size=4)), "its 3 layers share their weights"),
    "t5": (T5Config(**_SEQ2SEQ, d_kv=4, d_ff=16, num_layers=N_LAYERS, num_heads=2), "two stacks"),
    "t5 uneven": (
        T5Config(**_SEQ2SEQ, d_kv=4, d_ff=16, num_layers=N_LAYERS, num_decoder_layers=2, num_heads=2),
        "two stacks",
    ),
    "bart": (BartConfig(**_SEQ2SEQ, **_BART, encoder_layers=N_LAYERS, decoder_layers=N_LAYERS), "two stacks"),
    "bart uneven": (BartConfig(**_SEQ2SEQ, **_BART, encoder_layers=N_LAYERS, decoder_layers=2), "two stacks"),
    "xlm": (XLMConfig(vocab_size=30, emb_dim=8, n_layers=N_LAYERS, n_heads=2), "parallel lists"),
    "flaubert": (FlaubertConfig(vocab_size=30, emb_dim=8, n_layers=N_LAYERS, n_heads=2), "parallel lists"),
    "funnel": (FunnelConfig(**_FUNNEL, block_sizes=[2, 1]), "nested"),
    "funnel of single layers": (FunnelConfig(**_FUNNEL, block_sizes=[1, 1, 1]), "nested"),
    "longformer": (LongformerConfig(**_small(attention_window=4)), "shape"),
    "canine": (CanineConfig(**_small(num_hash_buckets=8, num_hash_functions=2)), "two tokens"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_without_a_depth_is_refused_with_the_reason(name: str) -> None:
    config, reason = REFUSED[name]
    stack = Stack(_model_of(config))
    for ask in (lambda: stack.structure, lambda: stack.parameters_above(1), lambda: stack.state_at(1, _inputs())):
        with pytest.raises(NoDepthError, match=type(stack.model).__name__) as seen:
            ask()
        assert reason in str(seen.value)
        assert "use a model" in str(seen.value)
        assert "\n" not in str(seen.value)


def test_a_stack_that_was_cut_is_told_apart_from_a_shared_one() -> None:
    stack = make_stack("bert", n_layers=4)
    stack.model.bert.encoder.layer = stack.model.bert.encoder.layer[:2]
    with pytest.raises(NoDepthError, match="counts 4 layers, but no list has as many: correct config"):
        _ = stack.structure


@torch.no_grad()
def test_albert_still_answers_and_trains_as_a_whole() -> None:
    stack, inputs = Stack(_model_of(REFUSED["albert"][0])), _inputs()
    assert torch.equal(stack.logits(inputs), stack.model(**inputs).logits)
    stack.apply(stack.all_parameters)
    stack.train()
    assert all(module.training for module in stack.model.modules())


def _hooks(model: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def _trace(model: PreTrainedModel) -> dict[str, object]:
    """Everything probing could leave behind."""
    return {
        "modules": [(name, id(module), module.training) for name, module in model.named_modules()],
        "parameters": [(name, id(p), p.requires_grad, p.grad is None) for name, p in model.named_parameters()],
        "hooks": _hooks(model),
        "config": model.config.to_json_string(),
        "random": torch.get_rng_state().tolist(),
        "weights": [p.detach().tolist() for p in model.parameters()],
    }


@pytest.mark.parametrize("family", BASIC)
@pytest.mark.parametrize("is_training", [False, True])
def test_probing_leaves_no_trace(family: Family, is_training: bool) -> None:
    stack = make_stack(family)
    stack.apply(stack.parameters_above(1))
    stack.train() if is_training else stack.eval()
    assert (len({module.training for module in stack.model.modules()}) == 2) == is_training
    before = _trace(stack.model)
    fresh = Stack(stack.model)
    assert fresh.structure == stack.structure
    assert fresh.head_reads == ("last" if family == "gpt2" else "first")
    assert _trace(stack.model) == before


def test_twin_the_trace_would_show() -> None:
    stack = make_stack("bert")
    before = _trace(stack.model)
    stack.model.embeddings_seen = stack.model.register_forward_hook(lambda *_: None)
    assert _trace(stack.model)["hooks"] != before["hooks"]
    torch.rand(1)
    assert _trace(stack.model)["random"] != before["random"]
    stack.model.train()
    assert _trace(stack.model)["modules"] == before["modules"], "a new model is in training mode"
    stack.model.classifier.eval()
    assert _trace(stack.model)["modules"] != before["modules"]


@pytest.mark.parametrize("family", BASIC)
def test_probing_works_where_gradients_are_off(family: Family) -> None:
    with torch.no_grad():
        off = make_stack(family)
        found = off.structure, off.head_reads
    on = make_stack(family)
    assert found == (on.structure, on.head_reads)


@pytest.mark.parametrize("config", [BertConfig, RobertaConfig])
def test_the_structure_is_found_without_weights(config: type[PreTrainedConfig]) -> None:
    with quiet(), torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config(**_small()))
    stack = Stack(model)
    assert len(stack.structure.layer_parameters) == N_LAYERS
    assert len(stack.structure.above_parameters) == 4
