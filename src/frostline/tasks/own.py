"""The task that a user's columns and labels make, whatever file they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from frostline.errors import DataError, UsageError, listed
from frostline.kinds import CLASSIFICATION, REGRESSION, Kind, LabelError, kind_named
from frostline.kinds.labels import as_number
from frostline.records.specs import TaskSpec
from frostline.tasks.formats.columns import Table, labels_of, missing_column
from frostline.tasks.task import Task

_TEXTS = (("text", "text_pair"), ("sentence1", "sentence2"), ("text", None), ("sentence", None))
"""Columns used for the texts if none is named: the first pair that the file has."""
_FIRST_TEXTS = ("text", "sentence1", "sentence")
"""Columns used for the first text if only the second is named."""
_LABEL = "label"
_SEPARATORS = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}


def resolve_columns(spec: TaskSpec, header: Sequence[str], path: Path) -> tuple[TaskSpec, list[str]]:
    """The spec with its columns named, by the user or by convention, and what is wrong with them."""
    resolved = spec.replace(label=spec.label or _LABEL, **_texts(spec, header))
    named = [name for name in (resolved.text, resolved.text_pair, resolved.label) if name is not None]
    if resolved.text is None:
        known = "text, sentence, text and text_pair, sentence1 and sentence2"
        fault = f"{path} has no column with a usual name ({known}); its columns: {listed(header)}. {_advice(header)}"
        named, faults = [resolved.label or _LABEL], [fault]
    else:
        faults = []
    faults += [f"{path} has {missing_column(name, header)}" for name in named if name not in header]
    if len(set(named)) < len(named):
        faults.append(f"--text, --text-pair and --label must be different columns; given: {', '.join(named)}")
    return resolved, faults


def describe(spec: TaskSpec, table: Table) -> Task:
    """The task that a spec with resolved columns and its training rows make."""
    assert spec.text is not None
    assert spec.label is not None
    labels, declared = labels_of(table, spec.label), table.classes.get(spec.label)
    kind_name = spec.kind or (CLASSIFICATION.name if declared else _default_kind(labels, table.path))
    kind = kind_named(kind_name)
    names = _class_names(kind, labels, declared, table, spec.label)
    if len(set(labels)) == 1:
        raise DataError(f"all labels (column {spec.label!r}) are {labels[0][:80]!r}; nothing to learn", path=table.path)
    return Task(
        name=spec.name,
        title=str(spec.source),
        kind=kind_name,
        text=spec.text,
        text_pair=spec.text_pair,
        label=spec.label,
        label_names=names,
        metrics=kind.metric_names(None if names is None else len(names)),
    )


def _class_names(
    kind: Kind, labels: Sequence[str], declared: tuple[str, ...] | None, table: Table, column: str
) -> tuple[str, ...] | None:
    """The classes that the file declares, or else those that occur; None if labels are not classes."""
    if kind.class_names is None:
        return None
    if declared is not None:
        _check_declared(declared, table, column)
        return declared
    try:
        return kind.class_names(labels)
    except LabelError as error:
        raise table.label_fault(error) from error


def _check_declared(declared: Sequence[str], table: Table, column: str) -> None:
    if twice := [name for name, n_times in Counter(declared).items() if n_times > 1]:
        what = f"the column {column!r} declares two classes {twice[0][:80]!r} that differ at most in white space"
        raise DataError(f"{what}; rename one", path=table.path)


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


def _default_kind(labels: Sequence[str], path: Path) -> str:
    """Classification, unless labels look like measured numbers: then only the user knows what is meant."""
    values = {label: as_number(label) for label in dict.fromkeys(labels)}
    broken = [label for label, value in values.items() if value is not None and not value.is_integer()]
    if broken and None not in values.values():
        raise UsageError(
            f"the labels of {path} are numbers such as {broken[0]}; pass --kind {REGRESSION.name} to predict them, "
            f"or --kind {CLASSIFICATION.name} to make each number a class"
        )
    return CLASSIFICATION.name
