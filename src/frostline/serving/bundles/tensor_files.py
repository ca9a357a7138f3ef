"""Writes tensors into a safetensors file, a piece at a time, in fp32 or in half precision.

Rounding to half precision moves numbers. A number that the format cannot hold is refused, never written as infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError, UsageError
from frostline.model.weight_files import WeightTensor
from frostline.records.specs import BundleDtype

_FLOATS = ("F64", "F32", "F16", "BF16")
_WRITTEN: Mapping[BundleDtype, tuple[str, int]] = {"fp32": ("F32", 4), "fp16": ("F16", 2), "bf16": ("BF16", 2)}
"""what safetensors calls a format, and its bytes per number"""


def write_tensors(path: Path, tensors: Mapping[str, WeightTensor], dtype: BundleDtype) -> None:
    """Writes a safetensors file. Floating-point numbers get the format `dtype`; others stay as they are.

    Raises a DataError for numbers that cannot be read or are not finite, a UsageError for those too large for `dtype`.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        written, n_bytes = _layout(name, tensor, dtype)
        header[name] = {"dtype": written, "shape": list(tensor.shape), "data_offsets": [end, end + n_bytes]}
        end += n_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned, as the library writes them
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name, tensor in tensors.items():
            for piece in _rounded(name, tensor, dtype):
                stream.write(piece.tobytes())


def _layout(name: str, tensor: WeightTensor, dtype: BundleDtype) -> tuple[str, int]:
    """The format of a tensor in the file, and its size."""
    if not tensor.is_number:
        raise DataError(
            f"{name} has the number format {tensor.dtype}; bundles are made of models in fp32, fp16 or bf16"
        )
    if tensor.dtype not in _FLOATS:
        return tensor.dtype, tensor.n_bytes
    written, n_bytes = _WRITTEN[dtype]
    return written, n_bytes * math.prod(tensor.shape)


def _rounded(name: str, tensor: WeightTensor, dtype: BundleDtype) -> Iterator[NDArray[Any]]:
    for piece in tensor.pieces():
        if tensor.dtype not in _FLOATS:
            yield piece
            continue
        if not np.isfinite(piece).all():
            raise DataError(f"{name} holds NaN or infinity; train the model again")
        kept = _in_format(piece, dtype)
        if not np.isfinite(widened(kept) if dtype == "bf16" else kept).all():
            raise UsageError(f"{name} holds numbers that are too large for {dtype}; use bf16 or fp32")
        yield kept


def _in_format(piece: NDArray[Any], dtype: BundleDtype) -> NDArray[Any]:
    """Finite numbers in a format; those that are too large for it become infinite."""
    with np.errstate(over="ignore"):
        if dtype == "fp16":
            return piece.astype(np.float16)
        return as_bf16(piece.astype(np.float32)) if dtype == "bf16" else piece.astype(np.float32)


def as_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 of finite numbers, ties to even; numpy has no such type."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The numbers that bits of bfloat16 stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
