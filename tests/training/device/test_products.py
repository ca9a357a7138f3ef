"""Products by oneDNN: the numbers of torch's own, in any memory order, only where they pay, and gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from frostline.errors import FrostlineError
from frostline.records.specs import Layout
from frostline.testing.models import Family, make_model, make_spec, make_task
from frostline.training.device import products
from frostline.training.device.products import is_faster, onednn_products, product, rounded_up
from frostline.training.prefix import Split
from frostline.training.run import Runner
from tiny import BASIC, STEPS, TEETH, Case, step_losses

CLOSE = 1e-5
N_STEPS = 50


@pytest.fixture(autouse=True)
def _begun() -> None:
    """The first products, by which the library is checked, are done: tests count their own."""
    products._begin()


def _matrix(n_rows: int, n_columns: int, order: str) -> Tensor:
    """Random numbers: row by row, column by column, or with gaps, as a slice of a larger matrix has them."""
    numbers = torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(n_rows + n_columns))
    if order == "columns":
        return numbers.t().contiguous().t()
    if order == "slice":
        wide = torch.zeros(n_rows, n_columns + 5)
        wide[:, 2:-3] = numbers
        return wide[:, 2:-3]
    return numbers


def _error(found: Tensor, wanted: Tensor) -> float:
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())


ORDERS = ("rows", "columns", "slice")


@pytest.mark.parametrize("other_order", ORDERS)
@pytest.mark.parametrize("order", ORDERS)
@given(st.tuples(*[st.integers(1, 150)] * 3), st.booleans())
def test_products_are_those_of_double_precision(
    order: str, other_order: str, sizes: tuple[int, int, int], has_bias: bool
) -> None:
    n_rows, n_inner, n_columns = sizes
    left, right = _matrix(n_rows, n_inner, order), _matrix(n_inner, n_columns, other_order)
    bias = torch.randn(n_columns) if has_bias else None
    wanted = left.double() @ right.double() + (0.0 if bias is None else bias.double())
    assert _error(product(left, right, bias), wanted) < CLOSE


def test_twin_another_memory_order_shows() -> None:
    left, right = _matrix(48, 48, "rows"), _matrix(48, 48, "rows")
    assert _error(product(left, right.t()), left.double() @ right.double()) > TEETH


@given(st.integers(1, 10_000))
def test_rounding_up_costs_an_eighth_and_gives_eight_sizes_an_octave(number: int) -> None:
    assert 0 <= rounded_up(number) - number < max(8, number / 8)
    assert rounded_up(rounded_up(number)) == rounded_up(number)


def test_few_shapes_are_left() -> None:
    assert len({rounded_up(number) for number in range(256, 512)}) <= 9


def _gradients(linear: nn.Linear, inputs: Tensor) -> list[Tensor]:
    inputs = inputs.clone().requires_grad_()
    outputs = linear(inputs)
    outputs.square().sum().backward()
    gradients = [tensor.grad for tensor in (inputs, linear.weight, linear.bias)]
    linear.zero_grad()
    return [outputs.detach(), *(gradient for gradient in gradients if gradient is not None)]


@pytest.mark.parametrize("shape", [(131, 96), (1, 131, 96), (7, 19, 96)])
def test_a_layer_and_its_gradients(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    linear, inputs = nn.Linear(96, 160), torch.randn(shape)
    wanted, calls = _gradients(linear, inputs), _counted(monkeypatch)
    with onednn_products():
        found = _gradients(linear, inputs)
    assert len(calls) == 3
    assert max(map(_error, found, wanted)) < CLOSE


def _counted(monkeypatch: pytest.MonkeyPatch, change: Callable[[Tensor], Tensor] = lambda found: found) -> list[int]:
    """A list with one entry for each product by oneDNN from here on; their results go through `change`."""
    calls = list[int]()

    def counted(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
        calls.append(left.shape[0])
        return change(product(left, right, bias))

    monkeypatch.setattr(products, "product", counted)
    return calls


def _small(n_rows: int = 4) -> tuple[Tensor, Tensor]:
    return torch.randn(n_rows, 300), torch.randn(300, 300)


OTHERS: dict[str, Callable[[], Tensor]] = {
    "few rows": lambda: torch.mm(*_small()),
    "double precision": lambda: torch.mm(torch.randn(99, 99).double(), torch.randn(99, 99).double()),
    "half of the sum": lambda: torch.addmm(torch.ones(300), *_small(64), beta=0.5),
    "a matrix added": lambda: torch.addmm(torch.ones(64, 300), *_small(64)),
    "one number added": lambda: torch.addmm(torch.ones(1), *_small(64)),
    "integers": lambda: torch.mm(torch.ones(99, 99, dtype=torch.int64), torch.ones(99, 99, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_keep_every_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    wanted = OTHERS[name]()
    calls = _counted(monkeypatch)
    torch.manual_seed(0)
    with onednn_products():
        assert torch.equal(OTHERS[name](), wanted)
    assert not calls


@pytest.mark.parametrize("sizes", [((99, 98), (99, 98)), ((99,), (99, 98))])
def test_shapes_that_do_not_fit_are_refused_as_before(sizes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    left, right = map(torch.ones, sizes)
    with onednn_products(), pytest.raises((RuntimeError, ValueError, IndexError)):
        torch.mm(left, right)


def test_afterwards_products_are_torchs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = torch.randn(99, 99), torch.randn(99, 99)
    wanted, calls = left @ right, _counted(monkeypatch)
    with onednn_products():
        with onednn_products():
            left @ right
        left @ right
    assert len(calls) == 2
    assert torch.equal(left @ right, wanted)
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("vendor", "instructions", "wanted"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("AuthenticAMD", "AVX2", False),
        ("GenuineIntel", "AVX512", False),
        ("", "AVX512", False),
        ("", "DEFAULT", False),
    ],
)
def test_the_kind_of_processor_decides(vendor: str, instructions: str, wanted: bool) -> None:
    assert is_faster(vendor, instructions) is wanted


def test_wrong_products_are_noticed_before_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    products._begin.cache_clear()
    _counted(monkeypatch, lambda found: found + 1e-3)
    with pytest.raises(FrostlineError, match=r"wrong by 0\.001"), onednn_products():
        pass


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    products._begin.cache_clear()
    with onednn_products():
        pass
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert "ONEDNN_PRIMITIVE_CACHE_CAPACITY" not in os.environ


def _losses(case: Case, layout: Layout) -> NDArray[np.float64]:
    stack, encoded = case.stack(dropout=0.0), case.encoded(80)
    if layout == "packed":
        stack.allow_packing()
    torch.manual_seed(0)
    spec = STEPS.replace(strategy="full", learning_rate=1e-3, layout=layout, epochs=5, is_cached=False)
    losses = step_losses(stack, 0, spec, Split(encoded))
    assert len(losses) == N_STEPS
    return losses


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("family", BASIC)
def test_fifty_losses_are_the_same(family: Family, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    # Tiny models have small matrices: here they are multiplied by oneDNN too.
    monkeypatch.setattr(products, "_FEWEST_OPERATIONS", 1)
    monkeypatch.setattr(products, "_SHORTEST_SIDE", 1)
    case = Case(family)
    wanted, calls = _losses(case, layout), _counted(monkeypatch)
    with onednn_products():
        found, again = _losses(case, layout), _losses(case, layout)
    assert len(calls) > 10 * N_STEPS
    assert np.abs(found - wanted).max() < CLOSE
    assert np.array_equal(found, again)
    with onednn_products(), monkeypatch.context() as patch:  # a twin: products that are a little too large
        _counted(patch, lambda product: product * 1.01)
        assert np.abs(_losses(case, layout) - wanted).max() > 10 * CLOSE


@pytest.mark.parametrize("is_used", [True, False])
def test_a_run_uses_them_where_the_processor_asks_for_it(
    is_used: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(products, "is_used", lambda: is_used)
    monkeypatch.setattr(products, "_FEWEST_OPERATIONS", 1)
    monkeypatch.setattr(products, "_SHORTEST_SIDE", 1)
    calls = _counted(monkeypatch)
    model, task = make_model(tmp_path / "model", "bert"), make_task(tmp_path / "task.csv")
    Runner().run(make_spec(model, task, strategy="freeze:1", epochs=1))
    assert bool(calls) is is_used
