"""A model object from Python, written as a folder: worker processes load models by name."""

from __future__ import annotations

import tempfile
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, UsageError
from frostline.model.load import load_tokenizer, quiet
from frostline.records.keys import fingerprint_of_files
from frostline.saving.save import weight_errors_as_os_errors
from frostline.storage import atomic


def write_pretrained(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, folder: Path) -> Path:
    """Writes a model object with its tokenizer into a subfolder, and returns the subfolder.

    The subfolder is named by a hash of its files: the same weights are found again, and others never replace them.
    """
    tokenizer = tokenizer or _tokenizer_of(model)
    folder.mkdir(parents=True, exist_ok=True)
    with weight_errors_as_os_errors(), quiet(), tempfile.TemporaryDirectory(prefix=".", dir=folder) as name:
        model.save_pretrained(name)
        tokenizer.save_pretrained(name)
        written = sorted(Path(name).iterdir())
        kept = folder / fingerprint_of_files((path.name, path) for path in written)
        if not kept.is_dir():
            with atomic.new_folder(kept) as unfinished:
                for path in written:
                    path.rename(unfinished / path.name)
    return kept


def _tokenizer_of(model: PreTrainedModel) -> PreTrainedTokenizerBase:
    advice = "pass tokenizer=… with it"
    if not model.name_or_path:
        raise UsageError(f"the {type(model).__name__} was not loaded by name, so its tokenizer is not known; {advice}")
    try:
        return load_tokenizer(model.name_or_path)
    except (UsageError, DataError) as error:
        raise UsageError(f"no tokenizer for the {type(model).__name__}: {error}; {advice}") from error
