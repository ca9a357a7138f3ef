"""The manifest of a saved model, `frostline.json`: columns and limits of its training, so `predict` needs no flags.

It also seals the folder. It holds a checksum of itself and the SHA-256 of the other files: neither safetensors nor JSON
would notice a flipped bit. Hashing reads 0.8 GB/s, so it adds 0.1 s to loading a model of 90 MB.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frostline.errors import DataError
from frostline.records.keys import key_of
from frostline.records.results import RunResult
from frostline.records.serial import Record, added_later
from frostline.storage.findings import Finding
from frostline.storage.sealed import reading

FILE_NAME = "frostline.json"
_NOT_SEALED = (FILE_NAME, "README.md")
"""files that say nothing about predictions"""
_MOST_BYTES = 2**26
"""the largest manifest that is read; one with 100,000 classes has about 2 MB"""


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
    files: dict[str, str] | None = added_later(None)
    """SHA-256 of weights, configuration and tokenizer, by file name; None: an earlier release saved the model"""


def write_manifest(result: RunResult, folder: Path) -> None:
    """Writes the manifest of a run's model into its folder, after all other files."""
    seal_manifest(_manifest(result), folder)


def seal_manifest(manifest: Manifest, folder: Path) -> None:
    """Writes a manifest into the folder of its model, with the hashes of all other files."""
    files = {path.name: _sha256(path) for path in sorted(folder.iterdir()) if path.name not in _NOT_SEALED}
    content = manifest.replace(files=files).to_json()
    text = json.dumps({**content, "checksum": key_of(content)}, indent=2, allow_nan=False)
    (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a saved model; None if frostline did not save it."""
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    with reading("a frostline manifest", path):
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES // 2**20} MiB")
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and "checksum" in found and found.pop("checksum") != key_of(found):
            what = "its checksum does not match its content; it was damaged or edited"
            raise DataError(f'{what}. If you edited it, remove "checksum" from it', path=path)
    return _checked(found, path)


def _checked(found: Any, path: Path) -> Manifest:
    """The manifest that JSON describes, if a model can be used with it."""
    try:
        manifest = Manifest.from_json(found)
    except DataError as error:
        raise DataError(f"not a frostline manifest: {error}", path=path) from error
    if manifest.label_scale is not None and len(manifest.label_scale) != 2:
        raise DataError(f"label_scale is {list(manifest.label_scale)[:5]}; it should be a mean and a spread", path=path)
    if manifest.max_length < 1:
        raise DataError(f"max_length is {manifest.max_length}; it should be at least 1", path=path)
    return manifest


def check_files(folder: Path, manifest: Manifest) -> None:
    """Raises a DataError that names the first file of a saved model that is not as it was saved."""
    for path, fault in file_faults(folder, manifest):
        advice = f'save the model again, or, if you changed it, remove "checksum" and "files" from {FILE_NAME}'
        raise DataError(f"{fault}; {advice}", path=path)


def file_faults(folder: Path, manifest: Manifest) -> Iterator[tuple[Path, str]]:
    """The files of a saved model that are not as they were saved, and why."""
    for name, wanted in (manifest.files or {}).items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            yield path, "it was saved with the model and is not there"
        elif _sha256(path) != wanted:
            yield path, "it is not as it was saved; it was damaged or edited"


def check_saved(folder: Path) -> list[Finding]:
    """What is wrong with the files of a saved model."""
    try:
        manifest = read_manifest(folder)
        faults = [] if manifest is None else list(file_faults(folder, manifest))
    except DataError as error:
        faults = [(folder / FILE_NAME, str(error).removeprefix(f"{folder / FILE_NAME}: "))]
    if not (folder / "config.json").is_file():
        faults.append((folder / "config.json", "it is missing"))
    return [Finding(path=str(path), what="damaged", why=why) for path, why in faults]


def _sha256(path: Path) -> str:
    with reading("a file of a saved model", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
