"""A set of layers is planned exactly, and as a depth where it is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.errors import UsageError
from frostline.strategies import Freeze, Layers
from frostline.testing.models import make_stack

N_LAYERS = 5
STACK = make_stack(n_layers=N_LAYERS)


@given(st.sets(st.integers(1, N_LAYERS), min_size=1))
def test_the_layers_and_the_head_train_and_nothing_else(layers: set[int]) -> None:
    plan = Layers(frozenset(layers)).plan(STACK)
    (phase,) = plan.phases
    found = STACK.structure
    wanted = {name for number in layers for name in found.layer_parameters[number - 1]}
    assert set(phase.trained) == wanted | set(found.above_parameters)
    assert list(phase.trained) == [name for name in STACK.all_parameters if name in phase.trained]
    assert phase.cached_layers == min(layers) - 1
    depth = N_LAYERS - len(layers)
    if layers == set(range(depth + 1, N_LAYERS + 1)):
        assert plan == Freeze(depth).plan(STACK)
    else:
        assert plan.n_frozen is None


@given(st.sets(st.integers(-2, N_LAYERS + 3), min_size=1).filter(lambda layers: not layers <= {1, 2, 3, 4, 5}))
def test_layers_that_are_not_there_are_named(layers: set[int]) -> None:
    missing = sorted(layers - {1, 2, 3, 4, 5})
    named = ", ".join(map(str, missing))
    said = rf"no layer {named}; .* numbered 1 to 5: write layers:.*\. Did you mean 'layers:[1-5+]+'\?$"
    with pytest.raises(UsageError, match=said):
        Layers(frozenset(layers)).plan(STACK)


def test_no_layer_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="to train only the head, freeze all 5 layers"):
        Layers(frozenset()).plan(STACK)
