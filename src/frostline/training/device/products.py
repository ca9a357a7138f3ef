"""Matrix products by oneDNN, on processors for which torch's own choice is slow.

On x86, torch multiplies fp32 matrices with Intel's MKL. MKL uses AVX-512 on Intel's processors only; on all others it
uses AVX2, which is half as wide. oneDNN is part of torch too, and uses whatever the processor has: on an AMD EPYC with
512-bit units, its products are 2.2 times as fast.

torch calls oneDNN for fp32 only in compiled models. So while a run computes, the two operations that every linear layer
and its gradients end in, `mm` and `addmm`, get another implementation. Everything else stays as it is.

oneDNN compiles code for each shape of matrices, and each takes half a megabyte. The number of tokens in a batch hardly
ever repeats. So it is rounded up, by an eighth at most, with rows of zeros, and few shapes are kept at a time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.library import Library

from frostline.errors import FrostlineError
from frostline.records.environment import processor_vendor

_FEWEST_OPERATIONS = 2**19
_SHORTEST_SIDE = 16
"""Below these, a call from Python takes longer than it saves."""
_KEPT_SHAPES = 64
"""A step needs about a dozen shapes; they take 35 MB."""
_CACHE_SIZES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
"""environment variables of torch and oneDNN, read when the first product is computed"""
_LIMIT = 1e-4


def is_faster(vendor: str, instructions: str) -> bool:
    """Whether oneDNN's products are faster than MKL's on such a processor.

    It is decided by the kind of processor, not by timing: the same spec must give the same bits in each process.
    """
    return instructions == "AVX512" and vendor not in ("", "GenuineIntel")


@functools.cache
def is_used() -> bool:
    """Whether products are computed by oneDNN in this process."""
    if not is_faster(processor_vendor(), torch.backends.cpu.get_cpu_capability()):
        return False
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@contextlib.contextmanager
def quick_products() -> Iterator[None]:
    """Inside, products of fp32 matrices on the processor are computed by the library that is faster there."""
    if not is_used():
        yield
        return
    with onednn_products():
        yield


@contextlib.contextmanager
def onednn_products() -> Iterator[None]:
    """Inside, large products of fp32 matrices on the processor are computed by oneDNN."""
    _begin()
    with torch.library._scoped_library("aten", "IMPL") as library:
        _override(library)
        yield


def _override(library: Library) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that it was overridden, which is the purpose
        library.impl("mm", _mm, "CPU", allow_override=True)
        library.impl("addmm", _addmm, "CPU", allow_override=True)


def _mm(left: Tensor, right: Tensor) -> Tensor:
    if _is_large(left, right):
        return product(left, right)
    # The operations that write into given memory are not overridden.
    return torch.ops.aten.mm.out(left, right, out=_empty(left, right))  # type: ignore[no-any-return]


def _addmm(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if beta == alpha == 1 and bias.dim() == 1 and bias.shape[0] == right.shape[1] and _is_large(left, right):
        return product(left, right, bias)
    output = _empty(left, right)
    return torch.ops.aten.addmm.out(bias, left, right, beta=beta, alpha=alpha, out=output)  # type: ignore[no-any-return]


def _empty(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty((left.shape[0], right.shape[1]))


def _is_large(left: Tensor, right: Tensor) -> bool:
    (n_rows, n_inner), n_columns = left.shape, right.shape[1]
    return (
        left.dtype == right.dtype == torch.float32
        and n_inner == right.shape[0]
        and min(n_rows, n_inner, n_columns) >= _SHORTEST_SIDE
        and n_rows * n_inner * n_columns >= _FEWEST_OPERATIONS
    )


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Left @ right + bias by oneDNN, for fp32 matrices in any memory order.

    In a forward pass and in the gradient of its input, the tokens are the rows of `left`. In the gradient of weights
    they are the inner dimension. The columns are never tokens, and are left as they are.
    """
    n_rows, n_inner = left.shape
    rows, inner = rounded_up(n_rows), rounded_up(n_inner)
    left, right = _with_zeros(left, rows, inner), _with_zeros(right, inner, right.shape[1])
    found: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")
    return found[:n_rows]


def rounded_up(number: int) -> int:
    """The next multiple of 8, and of an eighth of the power of two below: an eighth more at most, from 64 on.

    >>> [rounded_up(number) for number in (3, 100, 128, 129, 384, 385, 1536)]
    [8, 104, 128, 144, 384, 416, 1536]
    """
    step = max(8, 1 << max(0, number.bit_length() - 4))
    return -(-number // step) * step


def _with_zeros(matrix: Tensor, n_rows: int, n_columns: int) -> Tensor:
    """The matrix with zeros at its end, in the same memory order; itself if it has that shape."""
    if matrix.shape == (n_rows, n_columns):
        return matrix
    if matrix.stride(0) == 1 and matrix.stride(1) != 1:
        return _with_zeros(matrix.t(), n_columns, n_rows).t()
    has_rows, has_columns = matrix.shape
    padded = matrix.new_empty((n_rows, n_columns))
    padded[:has_rows, :has_columns] = matrix
    padded[has_rows:] = 0
    padded[:has_rows, has_columns:] = 0
    return padded


@functools.cache
def _begin() -> None:
    """Limits what oneDNN keeps, and compares its products with torch's: the operation is not a public one."""
    before = {name: os.environ.get(name) for name in _CACHE_SIZES}
    os.environ.update({name: value or str(_KEPT_SHAPES) for name, value in before.items()})
    try:
        generator = torch.Generator().manual_seed(0)
        left, right, bias = (torch.randn(size, generator=generator) for size in ((72, 40), (40, 56), (56,)))
        for one in (left, left.t().contiguous().t()):
            for other in (right, right.t().contiguous().t()):
                wrong = (product(one, other, bias) - (bias.double() + one.double() @ other.double())).abs().max()
                if not wrong < _LIMIT:
                    raise FrostlineError(f"matrix products of oneDNN are wrong by {wrong:.2g} on this processor")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
