"""Faults of pretrained models, each explained in one line.

A model folder is checked before the library opens it, the library's errors are translated, and the loaded weights are
checked. Code that comes with a model is never run.
"""

from __future__ import annotations

import contextlib
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import torch
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    StrictDataclassError,
)
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, FrostlineError, UsageError, one_line, some, suggestion
from frostline.model.added.vocabulary import word_embeddings
from frostline.model.files.folders import NO_CODE, alike, is_path
from frostline.model.stack import NoDepthError, Stack

_UNSAFE = (
    "pytorch_model.bin is not safe to load: it holds more than tensors, or is damaged. Nothing in it was run. Get the "
    "weights as model.safetensors, or, if you trust their author, convert them: import torch, safetensors.torch; "
    "safetensors.torch.save_file(torch.load('pytorch_model.bin', weights_only=False), 'model.safetensors')"
)

# Errors that the library raises for model files it does not expect.
_LIBRARY_ERRORS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ZeroDivisionError, ImportError,
    SafetensorError, StrictDataclassError,
)  # fmt: skip


@contextlib.contextmanager
def one_line_errors(name: str, part: str = "model") -> Iterator[None]:
    """Turns the library's errors about a model, or a part of it, into errors of one line."""
    try:
        yield
    except FrostlineError:
        raise
    except (pickle.UnpicklingError, struct.error, EOFError) as error:
        raise DataError(_UNSAFE, path=name) from error
    except _LIBRARY_ERRORS as error:
        reason = _reason(error)
        if _is_folder(name):
            raise DataError(f"no usable {part}: {reason}", path=name) from error
        raise UsageError(f"no usable {part} {name!r}: {_on_the_hub(name, error) or reason}") from error


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel) -> None:
    """Raises if the tokenizer has more tokens than the embedding matrix has rows."""
    words = word_embeddings(model)
    rows = len(tokenizer) if words is None else words.num_embeddings
    if len(tokenizer) > rows:
        raise UsageError(
            f"{tokenizer.name_or_path}: the tokenizer has {len(tokenizer)} tokens, the model embeddings for {rows}; "
            "they do not fit: save the model's own tokenizer with it"
        )


def check_tokenizer_files(folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises if a folder has no file of the tokenizer's own."""
    # Without these files the library silently makes a tokenizer of five special tokens (TRAPS 31).
    names = {"tokenizer.json", *tokenizer.vocab_files_names.values()}
    if not any((folder / name).is_file() for name in names):
        raise DataError(f"no tokenizer file (one of {', '.join(sorted(names))}); save the tokenizer there", path=folder)


def check_finite(name: str, model: PreTrainedModel) -> None:
    """Raises if a weight is NaN or infinite."""
    wrong = [weight for weight, tensor in model.named_parameters() if not torch.isfinite(tensor).all()]
    if wrong:
        raise DataError(f"its weights hold NaN or infinity, in {some(wrong)}; download the checkpoint again", path=name)


def check_trunk(name: str, stack: Stack, missing: set[str], mismatched: set[str]) -> None:
    """Raises if weights below the head were not in the checkpoint: the library silently initialises them at random."""
    trunk = _trunk(stack)
    absent, other = sorted(missing & trunk), sorted(mismatched & trunk)
    if absent or other:
        raise DataError(
            f"its weights do not fit its configuration: of {len(trunk)} tensors below the head {len(absent)} are "
            f"missing and {len(other)} have another shape, e.g. {(absent + other)[0]}; either the checkpoint is of "
            "another model, or the configuration was changed",
            path=name,
        )


def _trunk(stack: Stack) -> set[str]:
    """Names of the parameters below the head; without a depth to cut at, those of the bare model except its pooler."""
    try:
        found = stack.structure
    except NoDepthError:
        bare = stack.model.base_model
        own = {id(p) for p in bare.parameters()}
        pooler = getattr(bare, "pooler", None)
        own -= {id(p) for p in pooler.parameters()} if isinstance(pooler, torch.nn.Module) else set()
        return {parameter for parameter, p in stack.model.named_parameters() if id(p) in own}
    return {parameter for names in (*found.layer_parameters, found.below_parameters) for parameter in names}


def _reason(error: BaseException) -> str:
    if str(error).startswith("Unrecognized configuration class"):
        return "transformers cannot classify texts with this architecture; use a language model"
    kind = "" if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: "
    return f"{kind}{one_line(error)}"


def _on_the_hub(name: str, error: BaseException) -> str | None:
    """Why a model could not be loaded from the Hub; None if the library's own message is better."""
    causes = list(_causes(error))

    def is_due_to(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if isinstance(error, PermissionError):
        return None
    hint = suggestion(name, alike(name))
    if is_due_to(HFValidationError) or is_path(name):
        return f"there is no such folder.{hint}"
    if is_due_to(GatedRepoError):
        return f"it is gated: ask for access at https://huggingface.co/{name}, then log in with `hf auth login`"
    if is_due_to(RepositoryNotFoundError):
        return f"no such folder, and not on the Hub (or private: log in with `hf auth login`).{hint}"
    if is_due_to(LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError):
        return (
            f"no such folder, not downloaded before, and the Hub cannot be reached: go online or give a folder.{hint}"
        )
    if "trust_remote_code" in str(error):
        return f"it needs its own code; {NO_CODE}"
    return None


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except OSError:  # a folder without permission, or a name that is too long
        return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
