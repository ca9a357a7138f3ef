"""Dropout that draws four numbers at a time: the library's takes a twelfth of a step on a CPU, most of it drawing.

The rate is exact to 1/65536, and what is kept is scaled by the very rate it is kept at.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

_LEVELS = 2**16


def drop(values: Tensor, rate: float) -> Tensor:
    """The values, each set to 0 with probability `rate`, the others scaled so that the mean stays."""
    n_levels = round(rate * _LEVELS)
    if n_levels == 0:
        return values
    if n_levels == _LEVELS:
        return values * 0.0
    drawn = torch.empty((values.numel() + 3) // 4, dtype=torch.int64, device=values.device).random_(-(2**63), None)
    levels = drawn.view(torch.int16)[: values.numel()].view(values.shape)
    # Compared straight into numbers: by way of booleans it takes five times as long.
    kept = torch.ge(levels, n_levels - _LEVELS // 2, out=torch.empty_like(values, requires_grad=False))
    return values * kept.mul_(_LEVELS / (_LEVELS - n_levels))


@final
class QuickDropout(nn.Dropout):
    """`nn.Dropout` by `drop`."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the library's name
        """The input, in training with some of it dropped."""
        return drop(input, self.p) if self.training else input


def quicken(model: nn.Module) -> None:
    """Puts a QuickDropout in the place of every `nn.Dropout`; what a model is saved as does not change."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                quick = QuickDropout(child.p)
                quick.train(child.training)
                setattr(module, name, quick)
