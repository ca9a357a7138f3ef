"""A fine-tuned model as it was saved, with its own head, for measures that look at it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel

from frostline.errors import DataError, some
from frostline.kinds import Kind
from frostline.model.load import load_trained

_UNNAMED = re.compile(r"LABEL_[0-9]+")
"""what the library calls a class that nobody named"""


def load_as_saved(name: str, kind: Kind, label_names: Sequence[str], pad_token_id: int | None) -> PreTrainedModel:
    """The model with the head that it was saved with; a DataError if its classes are not those of the task."""
    model = load_trained(Path(name), kind)
    names = [str(model.config.id2label[number]) for number in range(model.config.num_labels)]
    is_named = not all(_UNNAMED.fullmatch(name) for name in names)
    if len(names) != (len(label_names) or kind.n_outputs) or (label_names and is_named and names != list(label_names)):
        wanted = f"the classes {some(list(label_names))}" if label_names else "numbers"
        raise DataError(
            f"its head gives {some(names)}; the task has {wanted}: give a model that was fine-tuned on this task",
            path=name,
        )
    if getattr(model.config, "pad_token_id", None) is None:  # a decoder's head refuses batches without one
        model.config.pad_token_id = pad_token_id
    return model
