"""Embedding matrices: finding that of words, cutting it for a while to the rows that a task uses, first positions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from frostline.model.structure import PROBED_TOKENS, answers_to_a_row, in_eval, probed_row


def word_embeddings(model: PreTrainedModel) -> nn.Embedding | None:
    """The table that tokens are looked up in; None if the model has no plain `nn.Embedding` for them."""
    try:
        words = model.get_input_embeddings()
    except NotImplementedError:  # a class that the library does not know: find the table that receives the tokens
        words = _table_given_the_tokens(model)
    return words if isinstance(words, nn.Embedding) else None


def first_position(model: PreTrainedModel) -> int:
    """The position number of a row's first token: the RoBERTa family counts from the padding token's number on."""
    words = word_embeddings(model)
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding) and module is not words]
    return max((table.padding_idx + 1 for table in tables if table.padding_idx is not None), default=0)


def _table_given_the_tokens(model: PreTrainedModel) -> nn.Embedding | None:
    row, seen = probed_row(model), list[nn.Embedding]()

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and torch.equal(args[0], row):
            seen.append(module)

    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    handles = [table.register_forward_pre_hook(note) for table in tables]
    try:
        with torch.no_grad(), in_eval(model):
            answers_to_a_row(model)
    finally:
        for handle in handles:
            handle.remove()
    return seen[0] if seen else None


@contextlib.contextmanager
def vocabulary_cut_to(model: PreTrainedModel, tokens: Tensor) -> Iterator[None]:
    """Inside this context, the embedding matrix has only the rows of these tokens; afterwards it is whole again.

    The row of a token that never occurs gets no gradient and, without weight decay, never changes. Leaving such rows
    out changes no result and saves the optimizer most of the matrix. A matrix that is tied to another stays whole.
    """
    embedding = word_embeddings(model)
    if embedding is None or _n_places(model, embedding.weight) > 1:
        yield
        return
    whole, padding = embedding.weight, embedding.padding_idx
    kept = _kept_rows(tokens.to(whole.device), padding)
    # -1 for all others: looking up a token that was not announced is an error.
    places = torch.full((len(whole),), -1, device=whole.device)
    places[kept] = torch.arange(len(kept), device=whole.device)
    embedding.weight = nn.Parameter(whole.detach()[kept], requires_grad=whole.requires_grad)
    embedding.padding_idx = None if padding is None else int(places[padding])
    handle = embedding.register_forward_pre_hook(lambda _module, args: (places[args[0]], *args[1:]))
    try:
        yield
    finally:
        handle.remove()
        with torch.no_grad():
            whole[kept] = embedding.weight
        embedding.weight, embedding.padding_idx = whole, padding


def _kept_rows(tokens: Tensor, padding: int | None) -> Tensor:
    """Sorted numbers of the tokens, of padding, and of the tokens with which models are probed."""
    kept = torch.cat([tokens.unique(), torch.arange(PROBED_TOKENS, device=tokens.device)])
    if padding is not None:
        kept = torch.cat([kept, kept.new_tensor([padding])])
    unique: Tensor = kept.unique()
    return unique


def _n_places(model: nn.Module, parameter: Tensor) -> int:
    return sum(p is parameter for module in model.modules() for p in module.parameters(recurse=False))
