"""The manifest of a saved model, `frostline.json`: columns and limits of its training, so `predict` needs no flags."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from frostline.errors import DataError
from frostline.records.results import RunResult
from frostline.records.serial import Record, added_later

_FILE_NAME = "frostline.json"


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """How a saved model was trained."""

    text: str | None
    """column with the text"""
    text_pair: str | None
    """column with the second text of a pair"""
    max_length: int
    """longest row in tokens"""
    pair_joiner: str | None
    """put between the texts of a pair; None if the tokenizer separates them"""
    label_names: tuple[str, ...]
    """classes in the order of their numbers; empty if labels are not classes"""
    score: float
    """score of this model on dev"""
    run_key: str
    """key of the run that trained it"""
    strategy: str = added_later("full")
    """what was trained"""
    kind: str | None = added_later(None)
    """the kind of task; None: it follows from the model's configuration"""
    label_scale: tuple[float, ...] | None = added_later(None)
    """mean and spread: predictions are the model's outputs times the spread plus the mean"""


def write_manifest(result: RunResult, folder: Path) -> None:
    """Writes the manifest of a run's model into its folder."""
    text = json.dumps(_manifest(result).to_json(), indent=2, allow_nan=False)
    (folder / _FILE_NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a saved model; None if frostline did not save it."""
    path = folder / _FILE_NAME
    if not path.is_file():
        return None
    try:
        return Manifest.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"is not a frostline manifest: {error}", path=path) from error


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
        strategy=spec.strategy,
        kind=spec.task.kind,
        label_scale=result.label_scale,
    )
