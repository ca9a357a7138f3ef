"""Texts from a file or from memory, and the same rows with answers. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

from frostline.errors import UsageError
from frostline.tasks import read_columns, read_objects
from frostline.tasks.formats.values import typed_table

if TYPE_CHECKING:
    import datasets
    import pandas

Texts: TypeAlias = "str | Path | Sequence[str] | Sequence[tuple[str, str]] | datasets.Dataset"
Answer: TypeAlias = dict[str, Any]
"""The columns `prediction` and, for classes, `probability_<label>` of one row."""

_ALLOWED = "a file name, a list of texts, a list of pairs of texts, a pandas DataFrame or a datasets.Dataset"


class TextColumns(Protocol):
    """What a manifest knows about the columns of its texts."""

    @property
    def text(self) -> str | None:
        """Column with the text in training."""

    @property
    def text_pair(self) -> str | None:
        """Column with the second text of a pair in training."""


@final
@dataclass(frozen=True)
class Table:
    """The columns of some rows."""

    columns: Mapping[str, Sequence[object]]
    source: str
    """what messages call the data"""
    is_list: bool = False
    """a plain list of texts or of pairs, whose columns nobody named"""

    def texts(
        self, known: TextColumns | None, text: str | None, text_pair: str | None
    ) -> tuple[list[str], list[str] | None]:
        """The texts and, for pairs, the second texts; by the columns given, else by those that a manifest knows."""
        if self.is_list and known is not None:
            self._check_list(is_pair=known.text_pair is not None)
        text, text_pair = text_columns(self.columns, known, text, text_pair, self.source)
        pairs = None if text_pair is None else column_texts(self.columns, text_pair, self.source)
        return column_texts(self.columns, text, self.source), pairs

    def check_free(self, names: Sequence[str]) -> None:
        """Raises if one of these new columns is there already."""
        if taken := sorted(set(names) & set(self.columns)):
            raise UsageError(
                f"{self.source} has a column {' and '.join(taken)} already; rename it, or it would be lost"
            )

    def _check_list(self, *, is_pair: bool) -> None:
        """Raises if a list has single texts for a model of pairs, or pairs for a model of single texts."""
        has_pairs = "text_pair" in self.columns
        if has_pairs != is_pair:
            wanted, given = ("single texts", "pairs") if has_pairs else ("pairs of texts", "single texts")
            raise UsageError(f"the model reads {wanted}, but the list holds {given}")


Answering: TypeAlias = Callable[[Table], list[Answer]]
"""gives the new columns of each row"""


def answered(data: Any, answering: Answering) -> Any:
    """The rows with their answers: of a DataFrame a DataFrame with the same index, of anything else a list of dicts."""
    import datasets
    import pandas

    if isinstance(data, str | Path):
        return answered_file(Path(data), answering, as_json=True)
    if isinstance(data, pandas.DataFrame):
        answers = answering(Table(_columns_of_frame(data), "the DataFrame"))
        return data.assign(**{name: [answer[name] for answer in answers] for name in answers[0]})
    if isinstance(data, datasets.Dataset):
        rows = [dict(row) for row in data.with_format(None)]
        answers = answering(Table({name: [row[name] for row in rows] for name in data.column_names}, "the Dataset"))
    else:
        columns = _columns_of_texts(data)
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        answers = answering(Table(columns, "the list", is_list=True))
    return [row | answer for row, answer in zip(rows, answers, strict=True)]


def answered_file(file: Path, answering: Answering, *, as_json: bool) -> list[Answer]:
    """The rows of a file with their answers; values are text, but those of a JSON file keep their types `as_json`."""
    columns = read_columns(file)
    answers = answering(Table(columns, str(file)))
    if as_json:
        return [row | answer for row, answer in zip(read_objects(file), answers, strict=True)]
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) | answer for row, answer in zip(rows, answers, strict=True)]


def text_columns(
    columns: Mapping[str, object], known: TextColumns | None, text: str | None, text_pair: str | None, source: str
) -> tuple[str, str | None]:
    """The columns with the texts: those given, else those used in training, else `text`, else the only column."""
    is_pair = text_pair is not None or (known is not None and known.text_pair is not None)
    text = text or _first_of(columns, [known.text if known else None, "text"])
    if is_pair or known is None:
        text_pair = text_pair or _first_of(columns, [known.text_pair if known else None, "text_pair"])
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


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple | list) and len(item) == 2 and all(isinstance(text, str) for text in item)
