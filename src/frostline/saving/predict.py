"""Predictions of a saved model for texts in a file or in memory."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError
from frostline.kinds import CLASSIFICATION, Kind, kind_named, kind_of_model
from frostline.model.files.folders import check_saved
from frostline.model.load import has_added, load_added, load_tokenizer, load_trained
from frostline.model.stack import Stack
from frostline.saving.answers import Answer, Table, Texts, answered, answered_file
from frostline.saving.manifest import Manifest, check_files, read_manifest
from frostline.strategies import parse
from frostline.tasks import Rows
from frostline.training import forward
from frostline.training.batches import encode
from frostline.training.forward import Forward
from frostline.training.prefix import Split

if TYPE_CHECKING:
    import pandas


@overload
def predict(
    folder: str | Path, data: Texts, *, text: str | None = None, text_pair: str | None = None
) -> list[Answer]: ...


# Our own mypy skips pandas and sees Any here; editors and users with pandas' types tell the two apart.
@overload
def predict(  # type: ignore[overload-cannot-match]
    folder: str | Path, data: pandas.DataFrame, *, text: str | None = None, text_pair: str | None = None
) -> pandas.DataFrame: ...


def predict(folder: str | Path, data: Any, *, text: str | None = None, text_pair: str | None = None) -> Any:
    """The rows with the columns `prediction` and, for classes, one `probability_<label>` per class.

    A DataFrame gives a DataFrame with the same index; anything else gives a list of dicts, one per row.

    Args:
        folder: a folder made by `train(save=…)` or `find(save=…)`, or a fine-tuned transformers model.
        data: a file (CSV, TSV, JSON lines, Parquet), a list of texts, a list of pairs of texts, a pandas DataFrame or a
            `datasets.Dataset`.
        text: column with the text; by default the one used in training, else `text`, else the only column.
        text_pair: column with the second text of a pair; by default the one used in training, else `text_pair`.
    """
    folder = Path(folder)
    check_saved(folder)  # before a large file is read
    return answered(data, lambda table: _answers(folder, table, text, text_pair))


def predict_file(
    folder: Path, file: Path, *, text: str | None = None, text_pair: str | None = None, as_json: bool = False
) -> list[Answer]:
    """The rows of a file with predictions, as `predict` gives them.

    The file's own values are text; with `as_json`, values of a JSON file keep their types.
    """
    check_saved(folder)  # before a large file is read
    return answered_file(file, lambda table: _answers(folder, table, text, text_pair), as_json=as_json)


def load_saved(folder: Path, manifest: Manifest | None) -> PreTrainedModel:
    """The model of a folder, if its files are as they were saved; added modules are added again as in training."""
    if manifest is not None:
        check_files(folder, manifest)
    kind = CLASSIFICATION if manifest is None or manifest.kind is None else kind_named(manifest.kind)
    if manifest is None or not has_added(folder):
        return load_trained(folder, kind)
    return load_added(folder, parse(manifest.strategy).add_modules, kind)


def _kind_of(model: PreTrainedModel, manifest: Manifest | None) -> Kind:
    """The kind of task that a model was trained for."""
    if manifest is not None and manifest.kind is not None:
        return kind_named(manifest.kind)
    return kind_of_model(model.config.problem_type, model.config.num_labels)


def _answers(folder: Path, table: Table, text: str | None, text_pair: str | None) -> list[Answer]:
    """The new columns of each row."""
    manifest = read_manifest(folder)
    texts, pairs = table.texts(manifest, text, text_pair)
    model = load_saved(folder, manifest)
    check_head(model.config, folder)
    names = [str(model.config.id2label[number]) for number in range(model.config.num_labels)]
    kind = _kind_of(model, manifest)
    table.check_free(kind.prediction_columns(names))
    rows = Rows(ids=np.arange(len(texts)), texts=texts, pairs=pairs, labels=np.zeros(len(texts), dtype=np.int64))
    outputs = _outputs(Stack(model), load_tokenizer(str(folder)), manifest, rows)
    mean, spread = (manifest and manifest.label_scale) or (0.0, 1.0)
    return [kind.prediction(values, names) for values in outputs.astype(np.float64) * spread + mean]


def check_head(config: PreTrainedConfig, folder: Path) -> None:
    """Raises unless the head gives one number, or chooses one of several classes with different names."""
    if config.problem_type == "multi_label_classification":
        what = "is a multi-label model (problem_type 'multi_label_classification'), which is not supported"
        raise DataError(f"{what}; use a model with one class or one number per row", path=folder)
    counts = Counter(str(name) for name in config.id2label.values())
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DataError(f"two of its classes are called {twice[0][:80]!r}; rename one in config.json", path=folder)


def _outputs(
    stack: Stack, tokenizer: PreTrainedTokenizerBase, manifest: Manifest | None, rows: Rows
) -> NDArray[np.float32]:
    limit = manifest.max_length if manifest else min(int(tokenizer.model_max_length), 512)
    joiner = manifest.pair_joiner if manifest else None
    return forward.predict(Forward(stack), Split(encode(rows, tokenizer, max_length=limit, pair_joiner=joiner)))
