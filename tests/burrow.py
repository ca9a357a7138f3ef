"""A model class that transformers does not know, with unusual names: its parts can only be found by structure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

N_LAYERS = 3


class BurrowConfig(PreTrainedConfig):  # type: ignore[misc]
    """What a library the code has never seen could bring along."""

    model_type = "burrow"

    def __init__(self, n_galleries: int = N_LAYERS, num_labels: int = 2, **settings: Any) -> None:
        super().__init__(num_labels=num_labels, **settings)
        self.n_galleries = n_galleries


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
        self.galleries = nn.ModuleList([Gallery() for _ in range(config.n_galleries)])
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
