"""Predictions of several bundles for texts in a file or in memory: one pass over the texts, columns per task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from frostline.errors import DataError, UsageError
from frostline.saving import predict as saved
from frostline.saving.answers import Answer, Table, Texts, answered, answered_file
from frostline.serving.bundle import Bundle, is_bundle, open_bundle
from frostline.serving.engine import Engine
from frostline.serving.rows import Text
from frostline.serving.tail import Tail, load_tail
from frostline.serving.trunk import load_trunk

if TYPE_CHECKING:
    import pandas

Folders = str | Path | Sequence[str | Path]


@overload
def predict(
    folder: Folders,
    data: Texts,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    trunk: str | Path | None = None,
) -> list[Answer]: ...


# Our own mypy skips pandas and sees Any here; editors and users with pandas' types tell the two apart.
@overload
def predict(  # type: ignore[overload-cannot-match]
    folder: Folders,
    data: pandas.DataFrame,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    trunk: str | Path | None = None,
) -> pandas.DataFrame: ...


def predict(
    folder: Folders,
    data: Any,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    trunk: str | Path | None = None,
) -> Any:
    """The rows with the columns `prediction` and, for classes, one `probability_<label>` per class.

    A DataFrame gives a DataFrame with the same index; anything else gives a list of dicts, one per row. With several
    bundles, each text goes once through the layers that tasks share, and columns begin with the task's name:
    `mood_prediction`.

    Args:
        folder: a folder made by `train(save=…)` or `find(save=…)`, a fine-tuned transformers model, or one or several
            bundles over the same model.
        data: a file (CSV, TSV, JSON lines, Parquet), a list of texts, a list of pairs of texts, a pandas DataFrame or a
            `datasets.Dataset`.
        text: column with the text; by default the one used in training, else `text`, else the only column.
        text_pair: column with the second text of a pair; by default the one used in training, else `text_pair`.
        trunk: the model that the bundles were made for; by default the one that they name.
    """
    folders = [Path(one) for one in ([folder] if isinstance(folder, str | Path) else folder)]
    if _is_one_model(folders, trunk):
        return saved.predict(folders[0], data, text=text, text_pair=text_pair)
    bundles = opened(folders)
    return answered(data, lambda table: _answers(bundles, _name(trunk), table, text, text_pair))


def predict_file(
    folders: Sequence[Path],
    file: Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    trunk: str | None = None,
    as_json: bool = False,
) -> list[Answer]:
    """The rows of a file with predictions, as `predict` gives them.

    The file's own values are text; with `as_json`, values of a JSON file keep their types.
    """
    if _is_one_model(folders, trunk):
        return saved.predict_file(folders[0], file, text=text, text_pair=text_pair, as_json=as_json)
    bundles = opened(folders)
    return answered_file(file, lambda table: _answers(bundles, trunk, table, text, text_pair), as_json=as_json)


def _is_one_model(folders: Sequence[Path], trunk: object) -> bool:
    """Whether an ordinary model folder is asked, and not bundles."""
    if len(folders) == 1 and not is_bundle(folders[0]):
        if trunk is not None:
            raise UsageError(f"trunk is for bundles; {folders[0]} is not a bundle")
        return True
    if others := [folder for folder in folders if not is_bundle(folder)]:
        raise UsageError(f"several folders are given, so each must be a bundle; {others[0]} is not")
    if not folders:
        raise UsageError("no folder is given; give a model or bundles")
    return False


def opened(folders: Sequence[Path]) -> dict[str, Bundle]:
    """Bundles by the names of their tasks; where two tasks have the same name, by the names of their folders."""
    bundles = [open_bundle(folder) for folder in folders]
    counts = Counter(bundle.manifest.name for bundle in bundles)
    names = [one.manifest.name if counts[one.manifest.name] == 1 else one.folder.resolve().name for one in bundles]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"two bundles are called {twice[0]!r}; rename one of their folders")
    return dict(zip(names, bundles, strict=True))


def _name(trunk: str | Path | None) -> str | None:
    return None if trunk is None else str(trunk)


def _answers(
    bundles: Mapping[str, Bundle], trunk: str | None, table: Table, text: str | None, text_pair: str | None
) -> list[Answer]:
    """The new columns of each row."""
    texts = {name: _texts(bundle, table, text, text_pair) for name, bundle in bundles.items()}
    engine = Engine(load_trunk(trunk or _trunk_of(bundles)))
    tails = {name: load_tail(engine.trunk, bundle) for name, bundle in bundles.items()}
    prefixes = {name: f"{name}_" if len(bundles) > 1 else "" for name in bundles}
    table.check_free([f"{prefixes[name]}{column}" for name, tail in tails.items() for column in _columns(tail)])
    rows = {name: engine.encode(texts[name], {name: tail})[name] for name, tail in tails.items()}
    outputs = engine.outputs(rows, tails)
    answers: list[Answer] = [{} for _ in next(iter(texts.values()))]
    for name, tail in tails.items():
        for answer, columns in zip(answers, _predictions(tail, outputs[name]), strict=True):
            answer.update({f"{prefixes[name]}{column}": value for column, value in columns.items()})
    return answers


def _texts(bundle: Bundle, table: Table, text: str | None, text_pair: str | None) -> list[Text]:
    manifest = bundle.manifest
    # A model from elsewhere: nobody knows what its columns were called, or whether it reads pairs.
    known = None if manifest.run_key is None and manifest.text is None else manifest
    texts, pairs = table.texts(known, text, text_pair)
    if pairs is None:
        return [Text(one) for one in texts]
    return [Text(first, second) for first, second in zip(texts, pairs, strict=True)]


def _trunk_of(bundles: Mapping[str, Bundle]) -> str:
    names = {bundle.manifest.trunk.name for bundle in bundles.values()}
    if len(names) > 1:
        raise UsageError(f"the bundles name different trunks: {', '.join(sorted(names))}; give --trunk")
    return names.pop()


def _labels(tail: Tail) -> tuple[str, ...]:
    """One name per output."""
    return tail.bundle.manifest.label_names or tuple(f"LABEL_{number}" for number in range(tail.n_outputs))


def _columns(tail: Tail) -> tuple[str, ...]:
    return tail.kind.prediction_columns(_labels(tail))


def _predictions(tail: Tail, outputs: Any) -> list[dict[str, str | float]]:
    if not np.isfinite(outputs).all():
        raise DataError("its outputs are not finite; train it again", path=tail.bundle.folder)
    mean, spread = tail.bundle.manifest.label_scale or (0.0, 1.0)
    return [tail.kind.prediction(values, _labels(tail)) for values in outputs.astype(np.float64) * spread + mean]
