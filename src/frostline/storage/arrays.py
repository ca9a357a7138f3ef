"""The arrays of an output folder: `arrays/<digest>.npy`, one file per array, so equal arrays are stored once.

All runs of a folder have the same dev rows and labels. The digest is the SHA-256 of the whole file, cut to 128 bits.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError
from frostline.records.arrays import DIGEST_DIGITS, StoredArray, npy_header
from frostline.storage import atomic
from frostline.storage.sealed import reading

_MOST_IN_MEMORY = 2**18
"""bytes; smaller arrays are kept in memory, because an open file for each of a thousand runs would be too many"""


def array_path(folder: Path, digest: str) -> Path:
    """Where an output folder keeps an array."""
    return folder / "arrays" / f"{digest}.npy"


def put_array(folder: Path, array: StoredArray) -> StoredArray:
    """Stores an array unless it is there; returns it with its values in the file. A damaged file is moved aside."""
    path = array_path(folder, array.digest)
    if path.exists():
        try:
            return get_array(folder, array)
        except DataError:
            atomic.move_aside(path, folder / "damaged")
    atomic.write_new(path, [npy_header(array.dtype, array.shape), array.raw()])
    return array.backed_by(_reader(path, array)) if array.n_bytes > _MOST_IN_MEMORY else array


def get_array(folder: Path, array: StoredArray) -> StoredArray:
    """An array with its values in the file; a DataError if that is missing or damaged."""
    path = array_path(folder, array.digest)
    check_array(path)
    with reading("an array", path), path.open("rb") as stream:
        header = npy_header(array.dtype, array.shape)
        if stream.read(len(header)) != header or path.stat().st_size != len(header) + array.n_bytes:
            raise DataError(f"it is not an array of type {array.dtype} and shape {list(array.shape)}", path=path)
        if array.n_bytes <= _MOST_IN_MEMORY:
            return array.from_bytes(stream.read(array.n_bytes))
    return array.backed_by(_reader(path, array))


def check_array(path: Path) -> None:
    """Raises a DataError unless a file holds the array that its name says."""
    with reading("an array", path), path.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest()[:DIGEST_DIGITS] != path.stem:
            raise DataError("its checksum does not match its content; it was damaged or edited", path=path)


def _reader(path: Path, array: StoredArray) -> functools.partial[NDArray[np.generic]]:
    return functools.partial(_mapped, path, array.dtype, array.shape)


def _mapped(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    mapped = np.memmap(path, dtype, "r", offset=len(npy_header(dtype, shape)), shape=shape)
    return mapped.view(np.ndarray)
