"""Numeric arrays as part of records: values in memory or in a file, known by a digest."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError
from frostline.records.serial import Record, checked, json_name, not_stored

DIGEST_DIGITS = 32
"""hexadecimal digits of a digest"""
_DIGEST = re.compile(f"[0-9a-f]{{{DIGEST_DIGITS}}}")
_DTYPE = re.compile(r"[<|][biuf][1248]")


@dataclass(frozen=True, kw_only=True)
class StoredArray(Record):
    """A numeric array whose values are in memory or in a file. Two are equal if type, shape and bytes are.

    Its JSON holds the values in base64. A `reference` has no values and its JSON only the digest. Whoever keeps the
    values puts them in again with `backed_by`.
    """

    dtype: str
    """numpy's name of the element type, e.g. `<f4`"""
    shape: tuple[int, ...]
    """its shape"""
    digest: str = json_name("array")
    """key of the array, and of the `.npy` file that holds it"""
    read: Callable[[], NDArray[Any]] | None = not_stored(None, is_compared=False)
    """gives the values; None: this is a reference"""

    @classmethod
    def of(cls, array: NDArray[Any]) -> StoredArray:
        """The array, which must not be changed afterwards."""
        flat = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest = hashlib.sha256(npy_header(flat.dtype.str, flat.shape))
        digest.update(flat.reshape(-1).view(np.uint8).data)
        name = digest.hexdigest()[:DIGEST_DIGITS]
        return cls(dtype=flat.dtype.str, shape=flat.shape, digest=name).backed_by(lambda: flat)

    def backed_by(self, read: Callable[[], NDArray[Any]]) -> StoredArray:
        """The same array with its values."""
        return self.replace(read=read)

    @property
    def reference(self) -> StoredArray:
        """The same array without its values."""
        return self.replace(read=None)

    @property
    def n_bytes(self) -> int:
        """Size of its values."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def array(self) -> NDArray[Any]:
        """The values, to the bit; they cannot be changed."""
        assert self.read is not None, "a reference has no values"
        values = self.read().view()
        values.flags.writeable = False
        return values

    def raw(self) -> memoryview:
        """The bytes of the values, row by row, without a copy."""
        return self.array().reshape(-1).view(np.uint8).data

    def from_bytes(self, content: bytes | memoryview) -> StoredArray:
        """The same array with its values from their bytes."""
        values = np.frombuffer(content, dtype=self.dtype).reshape(self.shape)
        return self.backed_by(lambda: values)

    def to_json(self) -> dict[str, Any]:
        """The array as JSON data."""
        if self.read is None:
            return super().to_json()
        encoded = base64.b64encode(self.raw()).decode()
        return {"dtype": self.dtype, "shape": list(self.shape), "base64": encoded}

    @classmethod
    def _from_json_at(cls, value: object, place: str) -> Record:
        is_inline = isinstance(value, dict) and "base64" in value
        found: Any = _InlineArray.from_json(value) if is_inline else super()._from_json_at(value, place)
        checked(_DTYPE.fullmatch(found.dtype), found.dtype, "a type of numbers", f"{place}.dtype")
        checked(min(found.shape, default=0) >= 0, list(found.shape), "a shape", f"{place}.shape")
        if not is_inline:
            checked(_DIGEST.fullmatch(found.digest), found.digest, "a digest", f"{place}.array")
            return typing.cast(Record, found)
        try:
            return cls.of(np.frombuffer(base64.b64decode(found.base64), dtype=found.dtype).reshape(found.shape))
        except ValueError as error:
            raise DataError(f"{place}: {error}") from error


@dataclass(frozen=True, kw_only=True)
class _InlineArray(Record):
    """An array as JSON with its values."""

    dtype: str
    """numpy's name of the element type"""
    shape: tuple[int, ...]
    """its shape"""
    base64: str
    """its bytes, row by row"""


def npy_header(dtype: str, shape: Sequence[int]) -> bytes:
    """What stands before the values in a `.npy` file. numpy's own header differs from version to version."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("ascii")
