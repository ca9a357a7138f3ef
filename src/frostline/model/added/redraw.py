"""Re-initialising weights as the library does for a new model."""

from __future__ import annotations

from collections.abc import Collection

import torch
from transformers import PreTrainedModel

from frostline.errors import FrostlineError, some


def redraw(model: PreTrainedModel, names: Collection[str], seed: int, *, is_pretrained: bool = True) -> None:
    """Re-initialises these parameters from `seed`; raises if a pretrained matrix among them does not change.

    The values come from a new model of the same class, because the library's own initialisation silently skips weights
    that were loaded (TRAPS 5).
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        drawn = dict(type(model)(model.config).named_parameters())
        parameters = dict(model.named_parameters())
        same = [name for name in names if drawn[name].ndim > 1 and torch.equal(drawn[name], parameters[name].cpu())]
        if same and is_pretrained:
            raise FrostlineError(f"re-initialised, but still the same: {some(sorted(same))}")
        for name in names:
            parameters[name].copy_(drawn[name])
