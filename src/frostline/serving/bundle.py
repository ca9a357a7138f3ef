"""A bundle: what one task adds to a trunk, as a folder that is checked before it is used.

- `bundle.json` is the manifest. It says which trunk the task was trained on, and it seals the folder: it holds a
  checksum of itself and the SHA-256 of the other files.
- `config.json` is the configuration of the task's model.
- `tail.safetensors` holds the tensors that the task adds or replaces, by their names in the task's model, and all of
  its head. Everything else is the trunk's.
- `README.md` is for people.

**The trunk's identity** is a chain of hashes: the first is that of the embeddings, and each next one is that of a layer
together with the hash before it. Two models with the same hash at position N have the same embeddings and the same
lowest N layers, so their states after N layers are the same.

Reading and writing a manifest needs no torch.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from frostline.errors import DataError, UsageError
from frostline.model.weight_files import EMBEDDINGS, WeightFiles, layer_name
from frostline.records.keys import key_of
from frostline.records.serial import Record, read_json
from frostline.records.specs import BundleDtype as BundleDtype
from frostline.storage.findings import Finding
from frostline.storage.sealed import reading
from frostline.strategies import parse

FORMAT = 1
FILE_NAME, CONFIG, TAIL, CARD = "bundle.json", "config.json", "tail.safetensors", "README.md"
_SEALED = (CONFIG, TAIL)
_MOST_NAMED = 200
"""characters of a name or a path that a message shows"""


@dataclass(frozen=True, kw_only=True)
class TrunkIdentity(Record):
    """Which model a task was trained on."""

    name: str
    """what it was called when the bundle was made: a folder or a name on the Hub"""
    chain: tuple[str, ...]
    """one hash more than there are layers: of the embeddings, then of each layer together with the hash before it"""


@dataclass(frozen=True, kw_only=True)
class BundleManifest(Record):
    """What a bundle holds and how its task reads texts."""

    format: int
    """version of the layout of the folder"""
    name: str
    """the task; what it is called when it is served"""
    strategy: str
    """what was trained; of a model from elsewhere `freeze:N` or `full`, as far as its weights show it"""
    depth: int | None
    """lowest layers, embeddings included, that are the trunk's: they are computed once for all tasks. null: not even
    the embeddings are, so that only storage is shared"""
    n_layers: int
    """layers of the model; 0 if it has no single stack of layers"""
    trunk: TrunkIdentity
    """the model below"""
    tokenizer: str
    """hash of the tokenizer: `tokenizer_hash` in model/identity.py"""
    text: str | None
    """column with the text in training"""
    text_pair: str | None
    """column with the second text of a pair in training; null: the task reads single texts, or it is not known"""
    max_length: int
    """longest row in tokens; longer texts were cut"""
    pair_joiner: str | None
    """put between the texts of a pair; null if the tokenizer separates them"""
    label_names: tuple[str, ...]
    """classes in the order of their numbers; empty if labels are not classes"""
    kind: str
    """classification, regression, or the import path of another kind of task"""
    metric: str | None
    """the metric that is the score"""
    score: float | None
    """score on dev, as trained (fp32)"""
    label_scale: tuple[float, ...] | None
    """mean and spread: answers are the model's outputs times the spread plus the mean"""
    dtype: BundleDtype
    """number format of the tensors in the bundle; they are widened to fp32 when they are loaded"""
    score_in_dtype: float | None
    """score on the same dev rows with the tensors of the bundle; null for fp32, or if it was not measured"""
    run_key: str | None
    """key of the run that trained it; null if another tool did"""
    files: dict[str, str]
    """SHA-256 of the other files by name"""

    @property
    def final_score(self) -> float | None:
        """The score of what the bundle holds."""
        return self.score if self.dtype == "fp32" else self.score_in_dtype


@final
@dataclass(frozen=True)
class Bundle:
    """A bundle whose files are as they were written."""

    folder: Path
    manifest: BundleManifest

    @property
    def hash(self) -> str:
        """What identifies the bundle: its manifest's checksum, which covers the hashes of its files."""
        return key_of(self.manifest.to_json())

    @property
    def shares_compute(self) -> bool:
        """Whether its lowest layers need not be computed again where another task of the trunk computed them."""
        return bool(self.manifest.depth)


def is_bundle(folder: Path) -> bool:
    """Whether a folder is a bundle, whole or damaged."""
    return (folder / FILE_NAME).exists()


def open_bundle(folder: Path) -> Bundle:
    """The bundle in a folder; a DataError that names the file if one is missing, damaged or edited."""
    if not is_bundle(folder):
        what = "is not a folder" if not folder.is_dir() else f"is not a bundle: it has no {FILE_NAME}"
        raise DataError(f"{what}; `frostline train --bundle DIR` and `frostline bundle` make one", path=_short(folder))
    bundle = Bundle(folder, _read_manifest(folder / FILE_NAME))
    for path, fault in _file_faults(bundle):
        raise DataError(f"{fault}; make the bundle again, or copy it again", path=path)
    return bundle


Stamp = tuple[tuple[int, ...], ...]


def bundle_stamp(folder: Path) -> Stamp | None:
    """What changes whenever a file of a bundle is replaced or written to; None if one is missing."""
    try:
        found = [(folder / name).stat() for name in (FILE_NAME, *_SEALED)]
    except OSError:
        return None
    return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found)


def check_bundle(folder: Path) -> list[Finding]:
    """What is wrong with the files of a bundle."""
    path = folder / FILE_NAME
    try:
        faults = list(_file_faults(Bundle(folder, _read_manifest(path))))
    except DataError as error:
        faults = [(path, str(error).removeprefix(f"{path}: "))]
    return [Finding(path=str(path), what="damaged", why=why) for path, why in faults]


def seal_bundle(folder: Path, manifest: BundleManifest) -> BundleManifest:
    """Writes the manifest of a folder whose other files are complete; returns it with their hashes."""
    sealed = manifest.replace(files={name: _sha256(folder / name) for name in _SEALED})
    content = sealed.to_json()
    text = json.dumps({**content, "checksum": key_of(content)}, indent=2, allow_nan=False)
    (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")
    return sealed


def trunk_chain(weights: WeightFiles) -> tuple[str, ...]:
    """The identity of a model's embeddings and layers, one hash more than it has layers.

    Heads are not part of it, nor is a prefix such as `bert.` that a model with a head puts before all names: a base
    and a checkpoint that was fine-tuned above layer N have the same first N + 1 hashes. A model without a single stack
    of layers has one hash, of everything below its head.
    """
    lead = _lead(weights)
    parts = [EMBEDDINGS, *(layer_name(number + 1) for number in range(weights.n_layers or 0))]
    digests: dict[str, dict[str, str]] = {part: {} for part in parts}
    for name, tensor in weights.tensors.items():
        if (part := weights.part_of(name)) in digests:
            digests[part][name[len(lead) :]] = tensor.digest
    hashes = itertools.accumulate(parts, lambda below, part: key_of([below, digests[part]]), initial="")
    return tuple(hashes)[1:]


def first_difference(chain: tuple[str, ...], other: tuple[str, ...]) -> str | None:
    """The lowest part in which two trunks differ, for a message; None if they are the same."""
    if len(chain) != len(other):
        return f"the number of layers ({len(other) - 1} and {len(chain) - 1})"
    differing = (place for place, (one, two) in enumerate(zip(chain, other, strict=True)) if one != two)
    place = next(differing, None)
    return None if place is None else EMBEDDINGS if place == 0 else layer_name(place)


def _lead(weights: WeightFiles) -> str:
    """What all names below the head begin with: `bert.`, or nothing."""
    below = [name.split(".") for name in weights.tensors if weights.part_of(name) == EMBEDDINGS]
    if weights.layers_name is not None:
        below.append(weights.layers_name.split("."))
    if not below:
        return ""
    shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*(name[:-1] for name in below), strict=False))
    return "".join(f"{parts[0]}." for parts in shared)


def _read_manifest(path: Path) -> BundleManifest:
    found = read_json(path)
    with reading("the manifest of a bundle", path):
        if not isinstance(found, dict) or "checksum" not in found:
            raise DataError("is not the manifest of a bundle", path=path)
        checksum = found.pop("checksum")
        if found.get("format", FORMAT) != FORMAT and checksum == key_of(found):
            what = f"has the format {found['format']!r:.20}; this release reads {FORMAT}"
            raise DataError(f"{what}: use the release of frostline that made the bundle, or a later one", path=path)
        if checksum != key_of(found):
            raise DataError("its checksum does not match its content; it was damaged or edited", path=path)
    try:
        manifest = BundleManifest.from_json(found)
        _check(manifest)
    except (DataError, UsageError) as error:
        raise DataError(f"is not the manifest of a bundle: {error}", path=path) from error
    return manifest


def _check(manifest: BundleManifest) -> None:
    """Raises unless a bundle can be used with this manifest."""
    scale = manifest.label_scale
    faults = {
        "n_layers": manifest.n_layers >= 0,
        "depth": manifest.depth is None or 0 <= manifest.depth <= manifest.n_layers,
        "trunk.chain": len(manifest.trunk.chain) == manifest.n_layers + 1,
        "max_length": manifest.max_length >= 1,
        "label_scale": scale is None or (len(scale) == 2 and all(map(math.isfinite, scale))),
        "files": manifest.files.keys() == set(_SEALED),
        "name": bool(manifest.name) and manifest.name.isprintable(),
        "label_names": len(set(manifest.label_names)) == len(manifest.label_names),
    }
    if wrong := [field for field, is_right in faults.items() if not is_right]:
        raise DataError(f"its {' and '.join(wrong)} cannot be right")
    parse(manifest.strategy)


def _file_faults(bundle: Bundle) -> Iterator[tuple[Path, str]]:
    """The files of a bundle that are not as they were written, and why."""
    for name, wanted in _in_order(bundle.manifest.files).items():
        path = bundle.folder / name
        if not path.is_file():
            yield path, "it is missing"
        elif _sha256(path) != wanted:
            yield path, "it is not as it was written; it was truncated, damaged or edited"


def _in_order(files: Mapping[str, str]) -> dict[str, str]:
    return {name: files[name] for name in _SEALED}


def _sha256(path: Path) -> str:
    with reading("a file of a bundle", path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _short(path: Path) -> str:
    shown = str(path)
    return shown if len(shown) <= _MOST_NAMED else f"{shown[:_MOST_NAMED]}…"


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a bundle's config.json."""
    found = read_json(folder / CONFIG)
    if not isinstance(found, dict):
        raise DataError("is not a JSON object", path=folder / CONFIG)
    return found
