"""Strategies decide what to train. There is one file per strategy, and a table of them in `registry.py`."""

from __future__ import annotations

from frostline.strategies.adapter import Adapter
from frostline.strategies.bitfit import BitFit
from frostline.strategies.features import BiLstm, Features
from frostline.strategies.freeze import Freeze, FreezeRest
from frostline.strategies.full import Full
from frostline.strategies.gradual import Gradual
from frostline.strategies.heads import Heads, RankedHeads
from frostline.strategies.layers import Layers
from frostline.strategies.lora import Lora
from frostline.strategies.norms import Norms
from frostline.strategies.registry import forms, parse
from frostline.strategies.reinit import Reinit
from frostline.strategies.saved import Saved
from frostline.strategies.setfit import SetFit
from frostline.strategies.strategy import Strategy
from frostline.strategies.sublayers import Attention, FeedForward
from frostline.strategies.subspace import Subspace
from frostline.strategies.transfer import Transfer

__all__ = [
    "Adapter",
    "Attention",
    "BiLstm",
    "BitFit",
    "Features",
    "FeedForward",
    "Freeze",
    "FreezeRest",
    "Full",
    "Gradual",
    "Heads",
    "Layers",
    "Lora",
    "Norms",
    "RankedHeads",
    "Reinit",
    "Saved",
    "SetFit",
    "Strategy",
    "Subspace",
    "Transfer",
    "forms",
    "parse",
]
