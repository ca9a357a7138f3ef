"""The weights in a model folder, seen as embeddings, layers and head, without building a model.

Headers are read first, then one piece of a tensor at a time, so a folder may be far larger than the memory. Torch is
not needed.

- The **layers** are found by structure: numbered names `PREFIX.0.…`, `PREFIX.1.…` with the same tensors under each
  number, as many as the configuration counts layers.
- The **head** is what the library is known to put above the layers (`_ABOVE`). Everything else lies **below**. A name
  that is not known counts as below, so an unknown family can look less shareable than it is, never more.
- Half precision is widened to fp32 before tensors are compared or hashed. That is exact, and it is what a loaded model
  computes with: a base stored in fp16 and its copy stored in fp32 are the same model.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError, UsageError, one_line
from frostline.model.files.folders import DEMO_MODEL, LAYER_COUNTS
from frostline.records.serial import read_json
from frostline.tasks import demo_model_folder

_ABOVE = frozenset(
    {
        "pooler", "classifier", "pre_classifier", "score", "lm_head", "cls", "qa_outputs", "head", "final_norm",
        "norm", "ln_f", "final_layer_norm", "project_out", "sequence_summary", "logits_proj", "lm_loss", "embed_out",
        "vocab_transform", "vocab_layer_norm", "vocab_projector", "discriminator_predictions", "decoder",
        "generator_predictions", "generator_lm_head", "lm_predictions", "mask_predictions",
        "frostline_reader",  # a head of our own: model/added/readers.py
    }
)  # fmt: skip
# Constants that some releases of transformers store and others do not. They are not weights.
_CONSTANTS = frozenset({"position_ids", "token_type_ids", "masked_bias", "inv_freq"})
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
    "BOOL": "?", "U16": "<u2", "U32": "<u4", "U64": "<u8",
}  # fmt: skip
_LEGACY = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""names in the first checkpoints of BERT, which the library still renames when it loads them"""
_MAX_HEADER = 100_000_000
_PIECE = 1 << 20
"""numbers that are read at a time"""
EMBEDDINGS, HEAD = "embeddings", "head"


def layer_name(number: int) -> str:
    """What the layer with this number, from 1, is called in a table."""
    return f"layer {number}"


class WeightTensor(abc.ABC):
    """A tensor whose numbers can be read a few at a time."""

    dtype: str
    """as safetensors writes it: F32, BF16, …"""
    shape: tuple[int, ...]
    n_bytes: int

    @property
    def is_number(self) -> bool:
        """Whether numpy can compute with it; packed 8-bit floats are only compared byte by byte."""
        return self.dtype in _DTYPES or self.dtype == "BF16"

    @abc.abstractmethod
    def pieces(self) -> Iterator[NDArray[Any]]:
        """Its numbers, flat, a few at a time; half precision comes as fp32, unknown formats as bytes."""

    @functools.cached_property
    def digest(self) -> str:
        """Equal for equal shapes and values."""
        wide = "F32" if self.dtype in ("F16", "BF16") else self.dtype
        found = hashlib.sha256(f"{wide}{list(self.shape)}".encode())
        for piece in self.pieces():
            found.update(piece.tobytes())
        return found.hexdigest()


@final
class HeldTensor(WeightTensor):
    """A tensor in memory."""

    def __init__(self, array: NDArray[Any]) -> None:
        names = {np.dtype(kind): name for name, kind in _DTYPES.items()}
        self.dtype, self.shape, self.n_bytes = names[array.dtype], array.shape, array.nbytes
        self._array = array

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Its numbers, flat, a few at a time."""
        flat = self._array.reshape(-1)
        for start in range(0, flat.size, _PIECE):
            yield _widened(flat[start : start + _PIECE], self.dtype)


@final
@dataclass(frozen=True)
class StoredTensor(WeightTensor):
    """A tensor in a file. Its numbers are read when they are asked for."""

    file: Path
    start: int
    n_bytes: int
    dtype: str
    shape: tuple[int, ...]

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Its numbers, flat, a few at a time; half precision comes as fp32, unknown formats as bytes."""
        kind = np.dtype("<u2" if self.dtype == "BF16" else _DTYPES.get(self.dtype, "u1"))
        with self.file.open("rb") as stream:
            stream.seek(self.start)
            left = self.n_bytes
            while left:
                content = stream.read(min(left, _PIECE * kind.itemsize))
                if not content:
                    raise DataError("is shorter than its header says; copy it again", path=self.file)
                left -= len(content)
                yield _widened(np.frombuffer(content, kind), self.dtype)


@dataclass(frozen=True)
class WeightFiles:
    """The tensors of a model by name, and where its layers are."""

    name: str
    tensors: Mapping[str, WeightTensor]
    layers_name: str | None
    """what stands before a layer's number; None if there is no single stack of layers"""
    n_layers: int | None

    @property
    def n_bytes(self) -> int:
        """Size of all tensors."""
        return sum(tensor.n_bytes for tensor in self.tensors.values())

    def part_of(self, name: str) -> str:
        """The part of the model that a tensor belongs to."""
        parts = name.split(".")
        if self.layers_name is None:
            return HEAD if parts[0] in _ABOVE else EMBEDDINGS
        stack = self.layers_name.split(".")
        if parts[: len(stack)] == stack and parts[len(stack)].isdecimal():
            return layer_name(int(parts[len(stack)]) + 1)
        n_common = next((i for i, (a, b) in enumerate(zip(parts, stack, strict=False)) if a != b), len(stack))
        return HEAD if parts[min(n_common, len(parts) - 1)] in _ABOVE else EMBEDDINGS

    def without(self, lead: str) -> WeightFiles:
        """The same tensors, with a prefix removed from the names that begin with it."""
        stack = None if self.layers_name is None else self.layers_name.removeprefix(lead)
        tensors = {name.removeprefix(lead): tensor for name, tensor in self.tensors.items()}
        return WeightFiles(self.name, tensors, stack, self.n_layers)


def open_weights(name: str, revision: str | None = None) -> WeightFiles:
    """The weights of a model: a folder, the demo's model, or a name on the Hub."""
    folder = _folder_of(name, revision)
    config = _read_object(folder / "config.json")
    tensors = {
        _current_name(tensor): stored
        for file in _files(folder)
        for tensor, stored in read_header(file).items()
        if not is_constant(tensor, stored.shape)
    }
    # An encoder and a decoder are two stacks, also where only one of them has as many layers as the configuration says.
    layers_name, n_layers = (
        (None, None) if config.get("is_encoder_decoder") else _find_layers(tensors, _n_layers(config))
    )
    return WeightFiles(name, tensors, layers_name, n_layers)


def with_names_of(first: WeightFiles, second: WeightFiles) -> tuple[WeightFiles, WeightFiles]:
    """Both with names that can be compared: a model with a head puts a prefix such as `bert.` before its trunk."""
    one, other = first.layers_name, second.layers_name
    if one is None or other is None or one == other:
        return first, second
    if other.endswith(f".{one}"):
        return first, second.without(other.removesuffix(one))
    if one.endswith(f".{other}"):
        return first.without(one.removesuffix(other)), second
    raise UsageError(
        f"{first.name} and {second.name} are of different architectures: the layers of one are named {one}, those of "
        f"the other {other}; compare a model with its own base"
    )


def _folder_of(name: str, revision: str | None) -> Path:
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        raise UsageError(f"{name} is a file; give the folder that holds the model")
    if name == DEMO_MODEL:
        return demo_model_folder()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(
            snapshot_download(
                name, revision=revision, allow_patterns=["config.json", "*.safetensors", "*.safetensors.index.json"]
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UsageError(f"there is no model folder {name}, and none on the Hub: {one_line(error)}") from error


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    for name in ("model.safetensors", "frostline.safetensors"):  # the second: a model with added modules
        if (folder / name).is_file():
            return [folder / name]
    if index.is_file():
        weight_map = _read_object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
            raise DataError("has no weight_map; copy the model again", path=index)
        names = sorted(set(weight_map.values()))
        if missing := [file for file in names if Path(file).name != file or not (folder / file).is_file()]:
            raise DataError(f"names the file {missing[0]!r}, which is not in the folder; copy it there", path=index)
        return [folder / file for file in names]
    raise DataError(
        "has no model.safetensors and no model.safetensors.index.json; save the model with transformers: "
        "model.save_pretrained(DIR)",
        path=folder,
    )


def _read_object(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict):
        raise DataError("is not a JSON object", path=path)
    return content


def read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors of a safetensors file by name."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= min(size - 8, _MAX_HEADER):
            raise DataError("is truncated, or is not a safetensors file; copy it again", path=file)
        header = stream.read(length)
    try:
        entries = json.loads(header)
        found = {name: _entry(file, 8 + length, one) for name, one in entries.items() if name != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"has a header that is not that of safetensors ({one_line(error)})", path=file) from error
    if any(tensor.start + tensor.n_bytes > size for tensor in found.values()):
        raise DataError("is truncated; copy it again", path=file)
    return found


def _entry(file: Path, data: int, entry: dict[str, Any]) -> StoredTensor:
    start, end = entry["data_offsets"]
    shape, dtype = tuple(int(size) for size in entry["shape"]), str(entry["dtype"])
    if not 0 <= start <= end:
        raise ValueError(f"data_offsets are {start}, {end}")
    itemsize = 2 if dtype == "BF16" else np.dtype(_DTYPES[dtype]).itemsize if dtype in _DTYPES else None
    if itemsize is not None and math.prod(shape) * itemsize != end - start:
        raise ValueError(f"shape {list(shape)} does not fit {end - start} bytes")
    return StoredTensor(file, data + start, end - start, dtype, shape)


def is_constant(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is a constant of the library and not a weight."""
    # GPT-2 and GPT-NeoX once stored their causal masks, (1, 1, n, n), as `attn.bias` and `attention.bias`.
    is_mask = len(shape) == 4 and name.endswith(("attn.bias", "attention.bias"))
    return name.rpartition(".")[2] in _CONSTANTS or is_mask


def _current_name(name: str) -> str:
    """The name that a tensor has in a loaded model."""
    old = next((ending for ending in _LEGACY if name.endswith(ending)), None)
    return name if old is None else name.removesuffix(old) + _LEGACY[old]


def _n_layers(config: Mapping[str, Any]) -> int | None:
    return next((config[name] for name in LAYER_COUNTS if isinstance(config.get(name), int)), None)


def _find_layers(tensors: Mapping[str, StoredTensor], counted: int | None) -> tuple[str | None, int | None]:
    """What stands before a layer's number, and how many layers there are; None twice without a single stack."""
    members: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in tensors:
        parts = name.split(".")
        for place, part in enumerate(parts):
            if part.isdecimal():
                members[".".join(parts[:place])][int(part)].add(".".join(parts[place + 1 :]))
                break  # a list inside a layer is not the stack
    fitting = [
        prefix
        for prefix, by_number in members.items()
        if sorted(by_number) == list(range(len(by_number)))
        and len(by_number) == (counted or len(by_number))
        and _are_alike(list(by_number.values()))
    ]
    return (fitting[0], len(members[fitting[0]])) if len(fitting) == 1 else (None, None)


def _are_alike(members: list[set[str]]) -> bool:
    """Whether all layers have the same tensors; ModernBERT's first layer lacks one."""
    union = set().union(*members)
    return all(2 * len(names) > len(union) for names in members)


def _widened(numbers: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype == "BF16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers.astype(np.float32) if dtype == "F16" else numbers
