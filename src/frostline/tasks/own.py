"""The task that a user's columns and labels make, whatever file they come from."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from frostline.errors import DataError, UsageError
from frostline.kinds import metrics
from frostline.records.specs import Kind, TaskSpec
from frostline.tasks.formats.columns import Table, as_number, labels_of, listed, missing_column
from frostline.tasks.formats.values import unsupported
from frostline.tasks.task import Task

_TEXTS = (("text", "text_pair"), ("sentence1", "sentence2"), ("text", None), ("sentence", None))
"""Columns taken for the texts where none is named, the first pair that is there."""
_FIRST_TEXTS = ("text", "sentence1", "sentence")
"""Columns taken for the first text where only the second is named."""
_LABEL = "label"
_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
_MISSING = ("nan", "na", "n/a", "null", "none")
"""What programs write for a number that is not there, in small letters."""
_SEVERAL = re.compile(r",|\d\s+\d", re.ASCII)


def settle_columns(spec: TaskSpec, header: Sequence[str], path: Path) -> tuple[TaskSpec, list[str]]:
    """The spec with its columns named, by the user or by convention, and what is wrong with them."""
    settled = spec.replace(label=spec.label or _LABEL, **_texts(spec, header))
    named = [name for name in (settled.text, settled.text_pair, settled.label) if name is not None]
    if settled.text is None:
        known = "text, sentence, text and text_pair, sentence1 and sentence2"
        fault = f"{path} has no column of a usual name ({known}); its columns: {listed(header)}. {_advice(header)}"
        named, faults = [settled.label or _LABEL], [fault]
    else:
        faults = []
    faults += [f"{path} has {missing_column(name, header)}" for name in named if name not in header]
    if len(set(named)) < len(named):
        faults.append(f"--text, --text-pair and --label must be different columns; given: {', '.join(named)}")
    return settled, faults


def describe(spec: TaskSpec, table: Table) -> Task:
    """The task that a spec with settled columns and its training rows make."""
    assert spec.text is not None
    assert spec.label is not None
    labels = labels_of(table, spec.label)
    declared = table.classes.get(spec.label)
    if spec.kind != "regression":
        _check_labels(labels, declared, table, spec.label)
    kind = spec.kind or ("classification" if declared else _kind_of(labels, table.path))
    if len(set(labels)) == 1:
        raise DataError(f"all labels (column {spec.label!r}) are {labels[0][:80]!r}; nothing to learn", path=table.path)
    names = (declared or _class_names(labels, table.path)) if kind == "classification" else None
    return Task(
        name=spec.name,
        title=str(spec.source),
        kind=kind,
        text=spec.text,
        text_pair=spec.text_pair,
        label=spec.label,
        label_names=names,
        metrics=metrics.names_for(kind, None if names is None else len(names)),
    )


def _check_labels(labels: Sequence[str], declared: Sequence[str] | None, table: Table, column: str) -> None:
    if declared is not None:
        if twice := [name for name, n_times in Counter(declared).items() if n_times > 1]:
            what = f"the column {column!r} declares two classes {twice[0][:80]!r} that differ by white space at most"
            raise DataError(f"{what}; rename one", path=table.path)
        return
    missing = [place for place, label in enumerate(labels) if label.lower() in _MISSING]
    # Among words, `none` is a class like any other; among numbers it is none of them.
    if 0 < len(missing) < len(labels) and all(
        as_number(label) is not None for label in set(labels) if label.lower() not in _MISSING
    ):
        what = f"the label (column {column!r}) is {labels[missing[0]]!r} among numbers, so it is missing"
        raise table.fault(missing[0], f"{what}; leave such rows out")
    several = next((place for place, label in enumerate(labels) if _SEVERAL.search(label)), None)
    if several is not None and all(label.startswith("[") and label.endswith("]") for label in labels):
        raise table.fault(several, f"column {column!r} {unsupported('a list')}")


def _advice(header: Sequence[str]) -> str:
    """What to do about a header without a text column."""
    separator = next((name for sign, name in _SEPARATORS.items() if len(header) == 1 and sign in header[0]), None)
    if separator is None:
        return "Give --text"
    return f"It looks separated by {separator}: save it with commas as .csv, or with tabs as .tsv"


def _texts(spec: TaskSpec, header: Sequence[str]) -> dict[str, str | None]:
    if spec.text is not None:
        return {"text": spec.text, "text_pair": spec.text_pair}
    if spec.text_pair is not None:
        first = next((name for name in _FIRST_TEXTS if name in header and name != spec.text_pair), None)
        return {"text": first, "text_pair": spec.text_pair}
    for text, pair in _TEXTS:
        if text in header and (pair is None or pair in header):
            return {"text": text, "text_pair": pair}
    return {"text": None, "text_pair": None}


def _kind_of(labels: Sequence[str], path: Path) -> Kind:
    values = [as_number(label) for label in labels]
    numbers = [value for value in values if value is not None]
    if len(numbers) == len(values) and not all(value.is_integer() for value in numbers):
        example = next(label for label, value in zip(labels, numbers, strict=True) if not value.is_integer())
        raise UsageError(
            f"the labels of {path} are numbers such as {example}; pass --kind regression to predict them, "
            f"or --kind classification to take each for a class"
        )
    return "classification"


def _class_names(labels: Sequence[str], path: Path) -> tuple[str, ...]:
    names = sorted(set(labels))
    if any(as_number(name) is None for name in names):
        return tuple(names)
    names.sort(key=Decimal)
    for name, other in itertools.pairwise(names):
        if Decimal(name) == Decimal(other):
            raise DataError(f"the labels {name!r} and {other!r} are one number; write it in one way", path=path)
    return tuple(names)
