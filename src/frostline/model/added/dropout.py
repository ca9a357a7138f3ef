"""Dropout with fast random numbers: one 64-bit number decides about four values.

On a CPU, the library's dropout takes about a twelfth of a training step, mostly for random numbers. Here the rate is
rounded to a multiple of 1/65536, and kept values are scaled by exactly that rounded rate, so the mean is preserved.
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from torch import Tensor, nn

_LEVELS = 2**16
_N_MIXING = 12
"""Numbers to discard after seeding numpy's generator, until its state is well mixed."""
_MANY = 4096
"""From this many numbers on, numpy's generator is used."""
_bits = np.random.SFC64(0)


def drop(values: Tensor, rate: float) -> Tensor:
    """The values, each set to 0 with probability `rate`, the others scaled so that the mean stays."""
    n_levels = round(rate * _LEVELS)
    if n_levels == 0:
        return values
    if n_levels == _LEVELS:
        return values * 0.0
    levels = _drawn((values.numel() + 3) // 4, values.device).view(torch.int16)[: values.numel()].view(values.shape)
    # The comparison writes numbers directly: through a boolean tensor it takes five times as long.
    kept = torch.ge(levels, n_levels - _LEVELS // 2, out=torch.empty_like(values, requires_grad=False))
    return values * kept.mul_(_LEVELS / (_LEVELS - n_levels))


def _drawn(number: int, device: torch.device) -> Tensor:
    """Random 64-bit numbers (number,).

    On a CPU, many numbers come from numpy's much faster generator. It is seeded in each call with three numbers from
    torch, so that the result depends on torch's seed only.
    """
    is_by_numpy = device.type == "cpu" and number >= _MANY
    drawn = torch.empty(3 if is_by_numpy else number, dtype=torch.int64, device=device).random_(-(2**63), None)
    if not is_by_numpy:
        return drawn
    state = _bits.state
    state["state"]["state"] = np.append(drawn.numpy().view(np.uint64), np.uint64(1))
    _bits.state = state
    return torch.from_numpy(_bits.random_raw(_N_MIXING + number)[_N_MIXING:].view(np.int64))


@final
class QuickDropout(nn.Dropout):
    """`nn.Dropout` that uses `drop`."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the library's name
        """The input; in training mode, with dropout."""
        return drop(input, self.p) if self.training else input


def quicken(model: nn.Module) -> None:
    """Replaces every `nn.Dropout` with a QuickDropout. A saved model is the same: dropout has no weights."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                quick = QuickDropout(child.p)
                quick.train(child.training)
                setattr(module, name, quick)
