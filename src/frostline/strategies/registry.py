"""The table of strategies: a new one is one module here and one row in the table. `parse` reads them from text."""

from __future__ import annotations

import re

from frostline.errors import UsageError, suggestion
from frostline.strategies.adapter import Adapter
from frostline.strategies.bitfit import BitFit
from frostline.strategies.features import Features
from frostline.strategies.freeze import Freeze
from frostline.strategies.full import Full
from frostline.strategies.gradual import Gradual
from frostline.strategies.heads import Heads
from frostline.strategies.layers import Layers
from frostline.strategies.lora import Lora
from frostline.strategies.norms import Norms
from frostline.strategies.reinit import Reinit
from frostline.strategies.saved import Saved
from frostline.strategies.setfit import SetFit
from frostline.strategies.strategy import Strategy, UnreadableError
from frostline.strategies.sublayers import Attention, FeedForward
from frostline.strategies.subspace import Subspace
from frostline.strategies.transfer import Transfer

_KNOWN: dict[str, type[Strategy]] = {
    "full": Full,
    "freeze": Freeze,
    "layers": Layers,
    "attention": Attention,
    "ffn": FeedForward,
    "reinit": Reinit,
    "transfer": Transfer,
    "lora": Lora,
    "adapter": Adapter,
    "bitfit": BitFit,
    "norms": Norms,
    "heads": Heads,
    "features": Features,
    "gradual": Gradual,
    "subspace": Subspace,
    "setfit": SetFit,
    "saved": Saved,
}
"""Strategy classes by the name before the colon or the @."""


def forms() -> str:
    """All forms in which strategies can be written, for messages."""
    return "; ".join(kind.forms for kind in _KNOWN.values())


def parse(text: str) -> Strategy:
    """The strategy that this text names; raises a UsageError that lists the allowed forms."""
    # A colon only separates; an @, which says where, is part of the argument: attention@3 reads "@3".
    name = re.split("[:@]", text.strip(), maxsplit=1)[0]
    rest = text.strip()[len(name) :]
    kind = _KNOWN.get(name)
    if kind is None:
        raise UsageError(f"unknown strategy {text!r}; known: {forms()}.{suggestion(name, _KNOWN)}")
    try:
        if rest == ":":
            raise UnreadableError("has nothing after the colon")
        return kind.read(rest.removeprefix(":"))
    except UnreadableError as error:
        raise UsageError(f"strategy {text!r} {error}; write {kind.forms}. Did you mean {kind.example!r}?") from error
