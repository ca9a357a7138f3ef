"""Predictions of a saved model for texts in a file or in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, UsageError
from frostline.kinds import CLASSIFICATION, Kind, kind_named, kind_of_model
from frostline.model.load import has_added, load_added, load_tokenizer, load_trained
from frostline.model.stack import Stack
from frostline.saving.manifest import Manifest, check_files, read_manifest
from frostline.strategies import parse
from frostline.tasks import Rows, read_columns, read_objects
from frostline.tasks.formats.values import typed_table
from frostline.training import forward
from frostline.training.batches import encode
from frostline.training.forward import Forward
from frostline.training.prefix import Split

if TYPE_CHECKING:
    import datasets
    import pandas

Texts: TypeAlias = "str | Path | Sequence[str] | Sequence[tuple[str, str]] | datasets.Dataset"
Answer: TypeAlias = dict[str, Any]
"""A row with the columns `prediction` and, for classes, `probability_<label>`."""

_ALLOWED = "a file name, a list of texts, a list of pairs of texts, a pandas DataFrame or a datasets.Dataset"


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
    import datasets
    import pandas

    folder = Path(folder)
    if isinstance(data, str | Path):
        return predict_file(folder, Path(data), text=text, text_pair=text_pair, as_json=True)
    if isinstance(data, pandas.DataFrame):
        answers = _answers(folder, _columns_of_frame(data), "the DataFrame", text, text_pair)
        return data.assign(**{name: [answer[name] for answer in answers] for name in answers[0]})
    if isinstance(data, datasets.Dataset):
        rows = [dict(row) for row in data.with_format(None)]
        columns = {name: [row[name] for row in rows] for name in data.column_names}
        answers = _answers(folder, columns, "the Dataset", text, text_pair)
    else:
        columns = _columns_of_texts(data)
        _check_folder(folder)
        _check_list(columns, read_manifest(folder))
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        answers = _answers(folder, columns, "the list", text, text_pair)
    return [row | answer for row, answer in zip(rows, answers, strict=True)]


def predict_file(
    folder: Path, file: Path, *, text: str | None = None, text_pair: str | None = None, as_json: bool = False
) -> list[Answer]:
    """The rows of a file with predictions, as `predict` gives them.

    The file's own values are text; with `as_json`, values of a JSON file keep their types.
    """
    _check_folder(folder)  # before a large file is read
    columns = read_columns(file)
    answers = _answers(folder, columns, str(file), text, text_pair)
    if as_json:
        return [row | answer for row, answer in zip(read_objects(file), answers, strict=True)]
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) | answer for row, answer in zip(rows, answers, strict=True)]


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


def _answers(
    folder: Path, columns: Mapping[str, Sequence[object]], source: str, text: str | None, text_pair: str | None
) -> list[Answer]:
    """The new columns of each row. `source` is the name of the data in messages."""
    _check_folder(folder)
    manifest = read_manifest(folder)
    text, text_pair = text_columns(columns, manifest, text, text_pair, source)
    texts = column_texts(columns, text, source)
    pairs = None if text_pair is None else column_texts(columns, text_pair, source)
    model = load_saved(folder, manifest)
    check_head(model.config, folder)
    names = [str(model.config.id2label[number]) for number in range(model.config.num_labels)]
    kind = _kind_of(model, manifest)
    if taken := set(kind.prediction_columns(names)) & set(columns):
        raise UsageError(f"{source} has a column {' and '.join(sorted(taken))} already; rename it, or it would be lost")
    rows = Rows(ids=np.arange(len(texts)), texts=texts, pairs=pairs, labels=np.zeros(len(texts), dtype=np.int64))
    outputs = _outputs(Stack(model), load_tokenizer(str(folder)), manifest, rows)
    mean, spread = (manifest and manifest.label_scale) or (0.0, 1.0)
    return [kind.prediction(values, names) for values in outputs.astype(np.float64) * spread + mean]


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"there is no model folder {folder}; `train` and `find` make one with --save {folder}")


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


def text_columns(
    columns: Mapping[str, object], manifest: Manifest | None, text: str | None, text_pair: str | None, source: str
) -> tuple[str, str | None]:
    """The columns with the texts: those given, else those used in training, else `text`, else the only column."""
    is_pair = text_pair is not None or (manifest is not None and manifest.text_pair is not None)
    text = text or _first_of(columns, [manifest.text if manifest else None, "text"])
    if is_pair or manifest is None:
        text_pair = text_pair or _first_of(columns, [manifest.text_pair if manifest else None, "text_pair"])
    if text is None and len(columns) == 1:
        text = next(iter(columns))
    if is_pair and text is not None and text_pair is None:
        raise UsageError(f"the model reads pairs of texts; name the second text's column in {source} by --text-pair")
    missing = [repr(name) for name in (text, text_pair) if name is not None and name not in columns]
    if text is None or missing:
        what = f"no column {' or '.join(missing)}" if missing else "no text column with a known name"
        raise UsageError(f"{source} has {what}; its columns: {', '.join(columns)}. Give --text (and --text-pair)")
    return text, text_pair


def _first_of(columns: Mapping[str, object], names: list[str | None]) -> str | None:
    return next((name for name in names if name in columns), None)


def column_texts(columns: Mapping[str, Sequence[object]], name: str, source: str) -> list[str]:
    """A column as texts, converted as if it were read from a file: a missing value is an empty text."""
    return typed_table(Path(source), {name: columns[name]}, any_value=True).columns[name]


def _columns_of_frame(frame: pandas.DataFrame) -> dict[str, Sequence[object]]:
    if not frame.columns.is_unique:
        raise UsageError("two columns of the DataFrame have the same name; rename one")
    # Missing values are None: pandas has several kinds of its own.
    return {str(name): frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in frame.columns}


def _columns_of_texts(data: object) -> dict[str, list[str]]:
    """Texts as a column `text`; pairs of texts as columns `text` and `text_pair`."""
    if isinstance(data, Sequence) and data:
        if all(isinstance(item, str) for item in data):
            return {"text": list(data)}
        if all(_is_pair(item) for item in data):
            return {"text": [first for first, _ in data], "text_pair": [second for _, second in data]}
    what = "an empty list" if isinstance(data, list) and not data else f"a {type(data).__name__}"
    raise UsageError(f"cannot predict from {what}; give {_ALLOWED}")


def _check_list(columns: Mapping[str, object], manifest: Manifest | None) -> None:
    """Raises if a list has single texts for a model of pairs, or pairs for a model of single texts."""
    has_pairs = "text_pair" in columns
    if manifest is not None and has_pairs != (manifest.text_pair is not None):
        wanted, given = ("single texts", "pairs") if has_pairs else ("pairs of texts", "single texts")
        raise UsageError(f"the model reads {wanted}, but the list holds {given}")


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(text, str) for text in item)
