"""The trunk: the model below all tasks, loaded once. Tails use its tensors, and its states at their depths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from frostline.kinds import CLASSIFICATION, Head
from frostline.model.added.walking import ConcurrentStack
from frostline.model.faults import check_finite, check_tokenizer
from frostline.model.identity import tokenizer_hash
from frostline.model.layouts.probe import find_layout
from frostline.model.load import load_model, load_tokenizer, quiet
from frostline.model.stack import NoDepthError, Stack
from frostline.model.structure import Structure
from frostline.model.weight_files import open_weights
from frostline.serving.bundle import trunk_chain
from frostline.serving.rows import Texts
from frostline.training.memory import release_memory, use_one_heap


@final
@dataclass(frozen=True, eq=False)
class Trunk:
    """A pretrained model that many tasks share. Nothing in it changes after it was loaded."""

    name: str
    """the folder, or the name on the Hub"""
    model: ConcurrentStack
    texts: Texts
    """its tokenizer"""
    tokenizer: str
    """hash of the tokenizer"""
    pad_token_id: int
    chain: tuple[str, ...]
    """one hash more than there are layers; see `bundle.py`"""
    n_layers: int
    """0 if the model has no single stack of layers: then tasks share its weights, but nothing is computed for all"""
    structure: Structure | None
    """where its parts are; None if it cannot be cut at a depth"""
    tensors: Mapping[str, Tensor]
    """all that tails may use, by name: parameters and buffers below and in the layers"""

    @property
    def n_bytes(self) -> int:
        """Memory of the weights that tails may use."""
        return bytes_of(self.tensors)


def load_trunk(name: str) -> Trunk:
    """Loads a model and its tokenizer; half precision is widened to fp32.

    From then on, new threads of the process allocate from one heap. With a heap per thread, the memory of an engine
    with one task grew by 5% between its 1,000th and its 10,000th call (docs/log.md).

    Raises a DataError or a UsageError, in one line, if it cannot be used.
    """
    # First of all: the library loads weights in threads, and threads that start later would take over their heaps.
    use_one_heap()
    tokenizer = load_tokenizer(name)
    tokenizer_key = tokenizer_hash(tokenizer)  # its first call changes it
    pad_token_id = int(tokenizer.pad_token_id)
    model = load_model(name, head_seed=0, head=Head(CLASSIFICATION.head_class, {}), pad_token_id=pad_token_id)
    check_tokenizer(tokenizer, model)
    check_finite(name, model)
    stack = Stack(model)
    structure = _structure(stack)
    with quiet():
        is_packed = structure is not None and find_layout(stack).layout == "packed"
    _own_memory(model)
    tensors = _below_the_head(stack, structure)
    chain = trunk_chain(open_weights(name))
    release_memory()
    return Trunk(
        name=name,
        model=ConcurrentStack(stack, structure, is_packed=is_packed),
        texts=Texts(tokenizer),
        tokenizer=tokenizer_key,
        pad_token_id=pad_token_id,
        chain=chain,
        n_layers=len(chain) - 1,
        structure=structure,
        tensors=tensors,
    )


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    """Memory of these tensors; those that share it count once."""
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors.values()}.values())


def _own_memory(model: nn.Module) -> None:
    """Copies all parameters out of mapped files, and makes them fixed.

    A mapped file that is overwritten or cut while a server runs would change its answers or end its process. Ordinary
    memory also has larger pages, which makes a pass a little faster.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.requires_grad_(False)
            parameter.data = parameter.data.clone()


def _structure(stack: Stack) -> Structure | None:
    try:
        stack.check_depths()
    except NoDepthError:
        return None
    return stack.structure


def _below_the_head(stack: Stack, structure: Structure | None) -> dict[str, Tensor]:
    """Parameters and buffers below and in the layers. The head is new and belongs to no task."""
    model = stack.model
    if structure is not None:
        above = set(structure.above_parameters)
    else:
        bare = {id(parameter) for parameter in model.base_model.parameters()}
        above = {name for name, parameter in model.named_parameters() if id(parameter) not in bare}
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor for name, tensor in named if name not in above}
