"""Sentences about the weights of models: what they share, and what fine-tuning moved."""

from __future__ import annotations

from frostline.records.parameters import PartChange, Sharing, WeightChange
from frostline.report import numbers

_MOST_LAYERS = 3
"""layers that are named one by one"""


def depth(shared_layers: int | None) -> str:
    """How deep two models agree: `none`, `embeddings only`, `4`."""
    if shared_layers is None:
        return "none"
    return "embeddings only" if shared_layers == 0 else str(shared_layers)


def change(found: WeightChange) -> str:
    """What fine-tuning moved, in one sentence."""
    base, tuned = numbers.model_name(found.base), numbers.model_name(found.tuned)
    moved = [part for part in found.parts if part.n_changed]
    if not moved:
        return f"{tuned} is the same as {base}: all tensors agree to the bit."
    if found.n_layers is None:
        n_changed, n_all = (sum(getattr(p, name) for p in found.parts) for name in ("n_changed", "n_tensors"))
        return (
            f"{tuned} differs from {base} in {n_changed} of {n_all} tensors. The models have no single stack of "
            "layers, so there is no depth to share."
        )
    changed = f"Changed: {_parts(moved)}."
    if found.shared_layers is None:
        return f"{tuned} shares no layers with {base}: its embeddings differ. {changed}"
    same = "The embeddings"
    if found.shared_layers:
        same += f" and the lowest {found.shared_layers} of {found.n_layers} layers"
    return f"{same} of {tuned} are the same as in {base}, to the bit. {changed}"


def sharing(found: Sharing) -> str:
    """What models could share, in two sentences."""
    n_models = len(found.models)
    if found.n_layers is None:
        return f"The {n_models} models have no single stack of layers, so they cannot share one."
    if found.shared_layers is None:
        return f"The {n_models} models share nothing: their embeddings differ."
    what = "the embeddings" + (
        f" and the lowest {found.shared_layers} of {found.n_layers} layers" * bool(found.shared_layers)
    )
    saved = numbers.part(found.bytes_apart - found.bytes_shared, found.bytes_apart)
    return (
        f"The {n_models} models share {what}, to the bit. Stored once, they take {numbers.size(found.bytes_shared)} "
        f"instead of {numbers.size(found.bytes_apart)} ({saved} less). Computed once, a text for all of them passes "
        f"{found.compute_ratio:.2f} times fewer layers."
    )


def _parts(moved: list[PartChange]) -> str:
    """Names of parts, runs of layers together: `layers 5 to 6 and head`."""
    layers = [int(part.part.removeprefix("layer ")) for part in moved if part.part.startswith("layer ")]
    others = [part.part for part in moved if not part.part.startswith("layer ")]
    before = [name for name in others if name == "embeddings"]
    after = [name for name in others if name != "embeddings"]
    is_run = len(layers) > 1 and layers == list(range(layers[0], layers[-1] + 1))
    if is_run:
        named = [f"layers {layers[0]} to {layers[-1]}"]
    elif len(layers) > _MOST_LAYERS:
        named = [f"{len(layers)} layers, the lowest {layers[0]}"]
    else:
        named = [f"layer {number}" for number in layers]
    *first, last = [*before, *named, *after]
    return f"{', '.join(first)} and {last}" if first else last
