"""A model object from Python, written as a folder: worker processes load models by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, UsageError
from frostline.model.load import load_tokenizer, quiet
from frostline.records.keys import fingerprint_of_files
from frostline.saving.save import rust_errors_as_os_errors
from frostline.storage import atomic


def write_pretrained(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, folder: Path) -> Path:
    """Writes a model object with its tokenizer into a subfolder, and returns the subfolder.

    The subfolder is named by a hash of its files: the same weights are found again, and others never replace them.
    """
    tokenizer = tokenizer or _tokenizer_of(model)
    with rust_errors_as_os_errors(), quiet(), atomic.private_folder(folder) as private:
        model.save_pretrained(private)
        tokenizer.save_pretrained(private)
        names = sorted(path.name for path in private.iterdir())
        kept = folder / _fingerprint(private, names)
        if kept.is_dir() and not _is_whole(kept, names):
            atomic.remove_folder(kept)
        if not kept.is_dir():
            with atomic.new_folder(kept) as unfinished:
                for name in names:
                    (private / name).rename(unfinished / name)
    return kept


def _is_whole(folder: Path, names: Sequence[str]) -> bool:
    """Whether a subfolder holds the files that its name stands for."""
    return all((folder / name).is_file() for name in names) and _fingerprint(folder, names) == folder.name


def _fingerprint(folder: Path, names: Sequence[str]) -> str:
    return fingerprint_of_files((name, folder / name) for name in names)


def _tokenizer_of(model: PreTrainedModel) -> PreTrainedTokenizerBase:
    advice = "pass tokenizer=… with it"
    if not model.name_or_path:
        raise UsageError(f"the {type(model).__name__} was not loaded by name, so its tokenizer is not known; {advice}")
    try:
        return load_tokenizer(model.name_or_path)
    except (UsageError, DataError) as error:
        raise UsageError(f"no tokenizer for the {type(model).__name__}: {error}; {advice}") from error
