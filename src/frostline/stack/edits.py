"""Weights drawn anew, as the library initialises the model they belong to."""

from __future__ import annotations

from collections.abc import Collection

import torch
from transformers import PreTrainedModel

from frostline.errors import FrostlineError, some


def redraw(model: PreTrainedModel, names: Collection[str], seed: int) -> None:
    """Draws these parameters from `seed`; raises unless every matrix of them is another than before.

    From a new model of the same class: the library's own initialisation skips what was loaded (TRAPS 5).
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        drawn = dict(type(model)(model.config).named_parameters())
        parameters = dict(model.named_parameters())
        same = [name for name in names if drawn[name].ndim > 1 and torch.equal(drawn[name], parameters[name].cpu())]
        if same:
            raise FrostlineError(f"drawn anew, yet what it was: {some(sorted(same))}")
        for name in names:
            parameters[name].copy_(drawn[name])
