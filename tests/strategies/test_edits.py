"""`reinit:K` and `transfer:K` draw exactly the weights anew that they say, and those are really new (TRAPS 5)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from families import matrix
from frostline.errors import FrostlineError
from frostline.model.added.redraw import redraw
from frostline.records.specs import RunSpec
from frostline.strategies import parse
from frostline.testing.models import FAMILIES, Family, make_stack
from frostline.testing.strategies import N_LAYERS, make_tiny_spec
from frostline.training.prepare import load_stack
from frostline.training.run import Runner

# The library's DeBERTa calls torch.jit.script on import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tiny models are."""
    return tmp_path_factory.mktemp("edits")


def _spec(strategy: str, family: Family, folder: Path) -> RunSpec:
    place = folder / family
    place.mkdir(exist_ok=True)
    return make_tiny_spec(strategy, family, place)


def _weights(spec: RunSpec) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Those of the model as it is loaded, and as the run begins."""
    runner = Runner(max_cache_bytes=0)
    loaded = load_stack(spec, runner.preparer.prepare(spec))
    begun, _ = runner.begin(spec)
    return dict(loaded.model.named_parameters()), dict(begun.model.named_parameters())


@pytest.mark.parametrize(
    ("strategy", "family"),
    matrix(("reinit:2", "transfer:1"), ("bert", "roberta", "xlnet", "gpt2", "llama", "distilbert", "deberta-v2")),
)
def test_exactly_the_named_weights_are_new(strategy: str, family: Family, folder: Path) -> None:
    spec = _spec(strategy, family, folder)
    before, after = _weights(spec)
    stack, plan = Runner(max_cache_bytes=0).begin(spec)
    n_kept = {"reinit:2": N_LAYERS - 2, "transfer:1": 1}[strategy]
    in_layers = {name for names in stack.structure.layer_parameters[n_kept:] for name in names}
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed <= set(plan.edits), "nothing else"
    matrices = {name for name in plan.edits if before[name].ndim > 1}
    assert matrices <= changed, "every matrix"
    assert in_layers <= set(plan.edits), "all of those layers"
    below = {name for names in stack.structure.layer_parameters[:n_kept] for name in names}
    assert not set(plan.edits) & (below | set(stack.structure.below_parameters)), "nothing below"
    # Norms and biases are as the library starts them; tiny pretrained models have none so.
    ones = [name for name in plan.edits if before[name].ndim == 1 and "norm" in name.lower() and "weight" in name]
    assert all(torch.equal(after[name], torch.ones_like(after[name])) for name in ones)


def test_what_is_new_above_the_layers(folder: Path) -> None:
    """BERT's pooler is pretrained; RoBERTa's head is random anyway; a final norm is transferred or not."""
    edits = {
        (family, name): set(parse(name).plan(make_stack(family, n_layers=N_LAYERS)).edits)
        for family in ("bert", "roberta", "gpt2")
        for name in ("reinit:0", f"transfer:{N_LAYERS}")
    }
    assert edits["bert", "reinit:0"] == {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    assert edits["bert", "transfer:4"] == edits["bert", "reinit:0"]
    assert edits["roberta", "reinit:0"] == set()
    assert edits["gpt2", "reinit:0"] == set()
    assert edits["gpt2", "transfer:4"] == {"transformer.ln_f.weight", "transformer.ln_f.bias"}
    head = {name for name in _weights(_spec("full", "bert", folder))[0] if name.startswith("classifier")}
    spec = _spec("reinit:1", "bert", folder)
    before, after = _weights(spec)
    assert all(torch.equal(before[name], after[name]) for name in head), "the new head is that of the full run"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_drawn_anew(family: Family) -> None:
    stack = make_stack(family, n_layers=N_LAYERS)
    plan = parse("transfer:1").plan(stack)
    kept = stack.digest(plan.edits)
    before = stack.digest(())
    redraw(stack.model, plan.edits, seed=1)
    assert stack.digest(()) != before
    assert stack.digest(plan.edits) == kept, "nothing else"


def test_the_seed_of_the_head_draws_them(folder: Path) -> None:
    specs = [_spec("reinit:2", "bert", folder).replace(seed=seed) for seed in (0, 0, 1)]
    one, same, other = (_weights(spec)[1] for spec in specs)
    name = "bert.encoder.layer.3.output.dense.weight"
    assert torch.equal(one[name], same[name])
    assert not torch.equal(one[name], other[name])


def test_the_librarys_own_way_changes_nothing(folder: Path) -> None:
    """The trap that this is written around: `apply(_init_weights)` skips what was loaded."""
    spec = _spec("full", "bert", folder)
    stack = load_stack(spec, Runner(max_cache_bytes=0).preparer.prepare(spec))
    before = stack.digest(())
    stack.model.get_submodule("bert.encoder.layer.3").apply(stack.model._init_weights)
    assert stack.digest(()) == before


def test_a_draw_that_changes_nothing_is_an_error() -> None:
    stack = make_stack("bert", n_layers=2)
    names = ["bert.encoder.layer.1.output.dense.weight"]
    redraw(stack.model, names, seed=3)
    with pytest.raises(FrostlineError, match="re-initialised, but still the same"):
        redraw(stack.model, names, seed=3)
