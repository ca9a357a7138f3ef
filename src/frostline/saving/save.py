"""A trained model as an ordinary transformers folder, and predictions from one.

Beside what `from_pretrained` and `pipeline` read, the folder holds `frostline.json`: the columns and limits it was
trained with, so that `predict` needs no flags.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, UsageError
from frostline.kinds import CLASSIFICATION, Kind, kind_named, kind_of_model
from frostline.model.load import has_added, load_added, load_tokenizer, load_trained, quiet, save_added
from frostline.model.stack import Stack
from frostline.records.keys import fingerprint_of_files
from frostline.records.results import RunResult
from frostline.records.serial import Record, added_later
from frostline.storage import atomic
from frostline.strategies import parse
from frostline.tasks import Rows, read_columns, read_objects
from frostline.training.batches import encode
from frostline.training.evaluate import predict
from frostline.training.forward import Forward
from frostline.training.prefix import Split

_MANIFEST = "frostline.json"

_CARD = """\
---
base_model: {{ base }}
library_name: {{ "transformers" if is_plain else "frostline" }}
pipeline_tag: text-classification
tags: [frostline]
---
# {{ base }} on {{ r.spec.task.name }}

Fine-tuned with frostline {{ r.circumstances.versions.frostline }}: \
`{{ r.spec.strategy }}` trained {{ "{:,}".format(r.cost.trained_parameters) }} of \
{{ "{:,}".format(r.cost.total_parameters) }} parameters on {{ r.n_train }} rows ({{ r.spec.epochs }} epochs, \
batch {{ r.spec.batch_size }}, rate {{ "%g" | format(r.spec.learning_rate) }}, seed {{ r.spec.seed }}).
{% if not is_plain %}
It has parts that its transformers class knows nothing of: `frostline predict` opens it, `from_pretrained` does not.
{% endif %}\

| metric | dev ({{ r.n_dev }} rows) |
|---|---:|
{% for name, value in r.metrics.items() -%}
| {{ name }} | {{ "%.4f" | format(value) }} |
{% endfor %}
One seed's score: for an interval see `frostline curve`. Best constant prediction: {{ "%.4f" | format(r.chance) }} \
({{ r.spec.task.metric }}).
"""


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """What a saved model was trained with."""

    text: str | None
    """column with the text"""
    text_pair: str | None
    """column with the second text"""
    max_length: int
    """tokens a row at most"""
    pair_joiner: str | None
    """what stood between the texts of a pair"""
    label_names: tuple[str, ...]
    """classes in the order of their numbers; empty if labels are not classes"""
    score: float
    """dev score of this very model"""
    run_key: str
    """the run it came out of"""
    strategy: str = added_later("full")
    """what was trained"""
    kind: str | None = added_later(None)
    """the kind of task; None: it follows from the model's configuration"""


def save_model(result: RunResult, stack: Stack, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Writes the model, its tokenizer, its card and its manifest; the folder appears when it is whole."""
    check_new_folder(folder)
    with atomic.explained(f"--save {folder}"), _io_errors(), atomic.new_folder(folder) as unfinished:
        with quiet():
            if parse(result.spec.strategy).take_out(stack):
                stack.model.save_pretrained(unfinished)
            else:
                save_added(stack, unfinished)
        tokenizer.model_max_length = result.spec.max_length  # what `pipeline(..., truncation=True)` cuts at
        tokenizer.save_pretrained(unfinished)
        manifest = json.dumps(_manifest(result).to_json(), indent=2, allow_nan=False)
        (unfinished / _MANIFEST).write_text(manifest + "\n", encoding="utf-8")
        (unfinished / "README.md").write_text(_card(result, is_plain=not has_added(unfinished)), encoding="utf-8")
        check_new_folder(folder)  # one that was filled meanwhile is not this model
    return folder


@contextlib.contextmanager
def _io_errors() -> Iterator[None]:
    """What the weights' writer raises where it cannot write, as Python does."""
    try:
        yield
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def write_pretrained(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, folder: Path) -> Path:
    """The folder, below this one, that holds a model object with its tokenizer; made unless it is there.

    It is named by its files, so that the same weights are found again and others never take their place.
    """
    tokenizer = tokenizer or _tokenizer_of(model)
    folder.mkdir(parents=True, exist_ok=True)
    with _io_errors(), quiet(), tempfile.TemporaryDirectory(prefix=".", dir=folder) as name:
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
    advice = "pass tokenizer=… beside it"
    if not model.name_or_path:
        raise UsageError(
            f"the {type(model).__name__} was not loaded by a name, so its tokenizer is not known; {advice}"
        )
    try:
        return load_tokenizer(model.name_or_path)
    except (UsageError, DataError) as error:
        raise UsageError(f"no tokenizer for the {type(model).__name__}: {error}; {advice}") from error


def check_new_folder(folder: Path) -> None:
    """Raises if there is something at the path that saving would overwrite, or no folder can be made there."""
    with atomic.explained(f"--save {folder}"):
        if folder.is_symlink() and not folder.exists():
            raise UsageError(f"--save {folder} is a link to nothing; give a new or empty folder")
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"--save {folder} is there already; give a new or empty folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as private:
            (Path(private) / folder.name).mkdir()


def predict_file(
    folder: Path, file: Path, *, text: str | None = None, text_pair: str | None = None, as_json: bool = False
) -> Iterator[dict[str, Any]]:
    """The file's rows with the prediction columns of the kind of task: `prediction`, `probability_<label>`, ….

    The values are text; with `as_json`, those of a JSON file are as they are there.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no model folder {folder}; `frostline train … --save {folder}` makes one")
    manifest = read_manifest(folder)
    columns = read_columns(file)
    texts, pairs = _texts(columns, manifest, text, text_pair, file)
    model = load_saved(folder, manifest)
    _check_head(model, folder)
    names = [str(model.config.id2label[number]) for number in range(model.config.num_labels)]
    kind = _kind_of(model, manifest)
    if taken := set(kind.prediction_columns(names)) & set(columns):
        raise UsageError(f"{file} has a column {' and '.join(sorted(taken))} already; rename it, or it would be lost")
    rows = Rows(ids=np.arange(len(texts)), texts=texts, pairs=pairs, labels=np.zeros(len(texts), dtype=np.int64))
    outputs = _outputs(Stack(model), load_tokenizer(str(folder)), manifest, rows)
    given = read_objects(file) if as_json else [{name: columns[name][row] for name in columns} for row in rows.ids]
    for answer, values in zip(given, outputs.astype(np.float64), strict=True):
        yield answer | kind.prediction(values, names)


def load_saved(folder: Path, manifest: Manifest | None) -> PreTrainedModel:
    """The model of a folder; one with parts that its class knows nothing of is put together as it was trained."""
    kind = CLASSIFICATION if manifest is None or manifest.kind is None else kind_named(manifest.kind)
    if manifest is None or not has_added(folder):
        return load_trained(folder, kind)
    return load_added(folder, parse(manifest.strategy).put_in, kind)


def _kind_of(model: PreTrainedModel, manifest: Manifest | None) -> Kind:
    """The kind of task that a model was trained for."""
    if manifest is not None and manifest.kind is not None:
        return kind_named(manifest.kind)
    return kind_of_model(model.config.problem_type, model.config.num_labels)


def _check_head(model: PreTrainedModel, folder: Path) -> None:
    """Raises where the head does not choose one of several classes, each with a name of its own."""
    if model.config.problem_type == "multi_label_classification":
        what = "is a multi-label model (problem_type 'multi_label_classification'), which is not supported"
        raise DataError(f"{what}; give one with one class or one number a row", path=folder)
    names = [str(name) for name in model.config.id2label.values()]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(f"two of its classes are called {twice[0][:80]!r}; rename one in config.json", path=folder)


def _outputs(
    stack: Stack, tokenizer: PreTrainedTokenizerBase, manifest: Manifest | None, rows: Rows
) -> NDArray[np.float32]:
    limit = manifest.max_length if manifest else min(int(tokenizer.model_max_length), 512)
    joiner = manifest.pair_joiner if manifest else None
    return predict(Forward(stack), Split(encode(rows, tokenizer, max_length=limit, pair_joiner=joiner)))


def _texts(
    columns: dict[str, list[str]], manifest: Manifest | None, text: str | None, text_pair: str | None, file: Path
) -> tuple[list[str], list[str] | None]:
    """The texts: of the columns named, else of those used in training, else of `text`, else of the only column."""
    is_pair = text_pair is not None or (manifest is not None and manifest.text_pair is not None)
    text = text or _first_of(columns, [manifest.text if manifest else None, "text"])
    if is_pair or manifest is None:
        text_pair = text_pair or _first_of(columns, [manifest.text_pair if manifest else None, "text_pair"])
    if text is None and len(columns) == 1:
        text = next(iter(columns))
    if is_pair and text is not None and text_pair is None:
        raise UsageError(f"the model reads pairs; name the second text's column in {file} by --text-pair")
    missing = [repr(name) for name in (text, text_pair) if name is not None and name not in columns]
    if text is None or missing:
        what = f"no column {' or '.join(missing)}" if missing else "no text column of a known name"
        raise UsageError(f"{file} has {what}; its columns: {', '.join(columns)}. Give --text (and --text-pair)")
    return columns[text], None if text_pair is None else columns[text_pair]


def _first_of(columns: dict[str, list[str]], names: list[str | None]) -> str | None:
    return next((name for name in names if name in columns), None)


def _manifest(result: RunResult) -> Manifest:
    spec = result.spec
    return Manifest(
        text=spec.task.text,
        text_pair=spec.task.text_pair,
        max_length=spec.max_length,
        pair_joiner=spec.pair_joiner,
        label_names=result.label_names,
        score=result.score,
        run_key=result.key,
        strategy=result.spec.strategy,
        kind=spec.task.kind,
    )


def read_manifest(folder: Path) -> Manifest | None:
    """What the model in a folder was trained with; None where we did not save it."""
    path = folder / _MANIFEST
    if not path.is_file():
        return None
    try:
        return Manifest.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"is not a frostline manifest: {error}", path=path) from error


def _card(result: RunResult, *, is_plain: bool) -> str:
    model = Path(result.spec.model)
    # Markdown, not HTML: what is escaped here would be shown as it is.
    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)
    base = model.name if model.is_dir() else result.spec.model
    return environment.from_string(_CARD).render(r=result, base=base, is_plain=is_plain)
