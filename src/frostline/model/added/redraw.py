"""Weights drawn anew, as the library initialises the model they belong to."""

from __future__ import annotations

from collections.abc import Collection

import torch
from transformers import PreTrainedModel

from frostline.errors import FrostlineError, some


def redraw(model: PreTrainedModel, names: Collection[str], seed: int, *, is_pretrained: bool = True) -> None:
    """Draws these parameters from `seed`; raises where a pretrained matrix among them is what it was.

    From a new model of the same class: the library's own initialisation skips what was loaded (TRAPS 5).
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        drawn = dict(type(model)(model.config).named_parameters())
        parameters = dict(model.named_parameters())
        same = [name for name in names if drawn[name].ndim > 1 and torch.equal(drawn[name], parameters[name].cpu())]
        if same and is_pretrained:
            raise FrostlineError(f"drawn anew, yet what it was: {some(sorted(same))}")
        for name in names:
            parameters[name].copy_(drawn[name])
