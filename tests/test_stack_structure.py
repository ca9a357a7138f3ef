"""The parts of a model are found by structure, whatever they are called, and looking leaves no trace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    FunnelConfig,
    GPTNeoXConfig,
    LlamaConfig,
    ModernBertConfig,
    MPNetConfig,
    OPTConfig,
    PreTrainedConfig,
    PreTrainedModel,
    RobertaConfig,
    T5Config,
    XLMConfig,
    XLNetConfig,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from frostline.stack import NoDepthError, Stack
from frostline.stack.load import quiet
from frostline.testing import FAMILIES, Family, make_stack
from tiny import TEETH, Case, distance

N_LAYERS = 3


class BurrowConfig(PreTrainedConfig):  # type: ignore[misc]
    """What a library the code has never seen could bring along."""

    model_type = "burrow"

    def __init__(self, num_hidden_layers: int = N_LAYERS, num_labels: int = 2, **settings: Any) -> None:
        super().__init__(num_labels=num_labels, **settings)
        self.num_hidden_layers = num_hidden_layers
        self.hidden_size = 8


class Gallery(nn.Module):
    """A layer: looks at all real tokens, leans on a table that every layer reads, answers with a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.dig = nn.Linear(8, 8)
        self.settle = nn.LayerNorm(8)
        self.dust = nn.Dropout(0.5)

    def forward(self, soil: Tensor, real: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        seen = (soil * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
        dug = self.dust(torch.tanh(self.dig(soil + seen) + slope))
        return self.settle(soil + dug), seen


class Burrow(PreTrainedModel):  # type: ignore[misc]
    """Registered in the worst order: the final norm first, the shared table last, a second list beside the layers."""

    config_class = BurrowConfig
    base_model_prefix = "burrow"

    def __init__(self, config: BurrowConfig) -> None:
        super().__init__(config)
        self.roof = nn.LayerNorm(8)
        self.lookout = nn.Linear(8, config.num_labels)
        self.galleries = nn.ModuleList([Gallery() for _ in range(config.num_hidden_layers)])
        self.lamps = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
        self.mouth = nn.Embedding(20, 8)
        self.draught = nn.Dropout(0.5)
        self.slope = nn.Parameter(torch.randn(8))
        self.register_buffer("depth_marks", torch.arange(4))
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> SequenceClassifierOutput:
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        real = real[..., None].float()
        soil = self.draught(self.mouth(input_ids))
        for lamp in self.lamps:
            soil = lamp(soil)
        for gallery in self.galleries:
            soil, _ = gallery(soil, real, self.slope)
        soil = self.roof(soil)
        return SequenceClassifierOutput(logits=self.lookout((soil * real).sum(1) / real.sum(1)))


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


def _small(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": N_LAYERS, "num_attention_heads": 2,
        "intermediate_size": 16, "max_position_embeddings": 40, "pad_token_id": 0, **more,
    }  # fmt: skip


_SEQ2SEQ = {"vocab_size": 30, "d_model": 8, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
_BART = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}

OTHER_FAMILIES: dict[str, PreTrainedConfig] = {
    "distilbert": DistilBertConfig(vocab_size=30, dim=8, n_layers=N_LAYERS, n_heads=2, hidden_dim=16),
    "electra": ElectraConfig(**_small(embedding_size=4)),
    "mpnet": MPNetConfig(**_small()),
    "deberta-v2": DebertaV2Config(
        **_small(relative_attention=True, pos_att_type=["c2p", "p2c"], conv_kernel_size=3, position_buckets=8),
        norm_rel_ebd="layer_norm",
    ),
    "modernbert": ModernBertConfig(**_small(cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)),
    "xlnet": XLNetConfig(vocab_size=30, d_model=8, n_layer=N_LAYERS, n_head=2, d_inner=16),
    "opt": OPTConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=N_LAYERS, num_attention_heads=2, ffn_dim=16,
        max_position_embeddings=40, word_embed_proj_dim=8,
    ),
    "gpt-neox": GPTNeoXConfig(**_small()),
    "llama": LlamaConfig(**_small(num_key_value_heads=1)),
}  # fmt: skip

# What every layer reads, or stands between two of them, belongs to the prefix from n_frozen 0 on (TRAPS 9).
BELOW: dict[str, set[str]] = {
    "electra": {"electra.embeddings_project.weight", "electra.embeddings_project.bias"},
    "mpnet": {"mpnet.encoder.relative_attention_bias.weight"},
    "deberta-v2": {
        "deberta.encoder.rel_embeddings.weight", "deberta.encoder.LayerNorm.weight", "deberta.encoder.LayerNorm.bias",
        "deberta.encoder.conv.conv.weight", "deberta.encoder.conv.LayerNorm.weight",
    },
}  # fmt: skip
ABOVE: dict[str, set[str]] = {
    "distilbert": {"pre_classifier.weight", "pre_classifier.bias", "classifier.weight", "classifier.bias"},
    "modernbert": {
        "model.final_norm.weight", "head.dense.weight", "head.norm.weight", "classifier.weight", "classifier.bias",
    },
    "opt": {"model.decoder.final_layer_norm.weight", "model.decoder.final_layer_norm.bias", "score.weight"},
    "gpt-neox": {"gpt_neox.final_layer_norm.weight", "gpt_neox.final_layer_norm.bias", "score.weight"},
    "llama": {"model.norm.weight", "score.weight"},
}  # fmt: skip


def _model_of(config: PreTrainedConfig) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(config)
        for parameter in model.parameters():
            nn.init.normal_(parameter)
    return model.eval()


# The library's DeBERTa calls torch.jit.script on import.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", OTHER_FAMILIES)
@torch.no_grad()
def test_other_families_start_and_stop_anywhere(name: str) -> None:
    stack, inputs = Stack(_model_of(OTHER_FAMILIES[name])), _inputs()
    inputs["input_ids"][inputs["attention_mask"] == 0] = stack.model.config.pad_token_id
    whole = stack.model(**inputs).logits
    rows = 1 if name == "xlnet" else 0  # it works on (tokens, batch, width)
    for depth in range(N_LAYERS + 1):
        state = stack.state_at(depth, inputs)
        assert distance(stack.logits_from(depth, state, inputs), whole) < 1e-6
        assert distance(stack.logits_from(depth, state.roll(1, rows), inputs), whole) > TEETH
    assert set(stack.structure.below_parameters) >= BELOW.get(name, set())
    assert set(stack.structure.above_parameters) == ABOVE.get(name, set(stack.structure.above_parameters))


REFUSED: dict[str, PreTrainedConfig] = {
    "albert": AlbertConfig(**_small(embedding_size=4)),
    "t5": T5Config(**_SEQ2SEQ, d_kv=4, d_ff=16, num_layers=N_LAYERS, num_heads=2),
    "t5 uneven": T5Config(**_SEQ2SEQ, d_kv=4, d_ff=16, num_layers=N_LAYERS, num_decoder_layers=2, num_heads=2),
    "bart": BartConfig(**_SEQ2SEQ, **_BART, encoder_layers=N_LAYERS, decoder_layers=N_LAYERS),
    "bart uneven": BartConfig(**_SEQ2SEQ, **_BART, encoder_layers=N_LAYERS, decoder_layers=2),
    "xlm": XLMConfig(vocab_size=30, emb_dim=8, n_layers=N_LAYERS, n_heads=2),
    "funnel": FunnelConfig(vocab_size=30, d_model=8, n_head=2, d_head=4, d_inner=16, block_sizes=[2, 1]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_without_a_depth_is_refused_with_the_reason(name: str) -> None:
    stack = Stack(_model_of(REFUSED[name]))
    for ask in (lambda: stack.structure, lambda: stack.parameters_above(1), lambda: stack.state_at(1, _inputs())):
        with pytest.raises(NoDepthError, match=f"{type(stack.model).__name__} has no single stack of 3 layers") as seen:
            ask()
    assert "have no depth" in str(seen.value)
    assert "\n" not in str(seen.value)


@torch.no_grad()
def test_albert_still_answers_and_trains_as_a_whole() -> None:
    stack, inputs = Stack(_model_of(REFUSED["albert"])), _inputs()
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


@pytest.mark.parametrize("family", FAMILIES)
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


@pytest.mark.parametrize("family", FAMILIES)
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
