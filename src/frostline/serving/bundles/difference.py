"""What a fine-tuned model has that its base has not, and how deep the two agree.

Found by comparing tensors to the bit, never by trusting what a strategy promised. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import final

from frostline.errors import UsageError
from frostline.model.weight_files import EMBEDDINGS, HEAD, WeightFiles, WeightTensor, layer_name, with_names_of


@final
@dataclass(frozen=True)
class Difference:
    """The tensors that a bundle holds."""

    tensors: Mapping[str, WeightTensor]
    """what differs from the base or is not in it, and the whole head, by their names in the fine-tuned model"""
    depth: int | None
    """lowest layers that agree, embeddings included; None if the embeddings differ, or there is no stack of layers"""


def difference(base: WeightFiles, tuned: WeightFiles, head: Set[str] = frozenset()) -> Difference:
    """What a bundle over `base` must hold to give back `tuned`.

    The head is always held whole, also where it is the base's: the trunk's identity does not cover heads.

    Args:
        base: the trunk.
        tuned: the weights of the task's model.
        head: names in `tuned` that are known to lie above the layers, beside those that their names show.
    """
    if base.n_layers and tuned.n_layers and base.n_layers != tuned.n_layers:
        raise UsageError(
            f"{tuned.name} has {tuned.n_layers} layers and {base.name} has {base.n_layers}; give the model that it was "
            "fine-tuned from"
        )
    below, above = with_names_of(base, tuned)
    kept: dict[str, WeightTensor] = {}
    changed: set[str] = set()
    for (name, tensor), common in zip(tuned.tensors.items(), _names(tuned, above), strict=True):
        part = HEAD if name in head else tuned.part_of(name)
        is_same = _agree(below.tensors.get(base_name(common)), tensor)
        if part == HEAD or not is_same:
            kept[name] = tensor
        if part != HEAD and not is_same:
            changed.add(part)
    return Difference(kept, _depth(below, changed))


def base_name(name: str) -> str:
    """The name of a weight before peft wrapped its module."""
    return name.replace(".base_layer.", ".")


def _names(tuned: WeightFiles, renamed: WeightFiles) -> list[str]:
    """The names of tensors as the base has them, in the order of `tuned`."""
    if len(renamed.tensors) != len(tuned.tensors):
        raise UsageError(f"{tuned.name} has two tensors that differ only in the prefix of their names")
    return list(renamed.tensors)


def _agree(one: WeightTensor | None, other: WeightTensor) -> bool:
    return one is not None and one.shape == other.shape and one.digest == other.digest


def _depth(base: WeightFiles, changed: Set[str]) -> int | None:
    if base.n_layers is None or EMBEDDINGS in changed:
        return None
    return next((n for n in range(base.n_layers) if layer_name(n + 1) in changed), base.n_layers)
