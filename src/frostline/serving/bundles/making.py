"""Makes a bundle: of the model that a run trained, or, with `folders.py`, of any fine-tuned model.

What both have in common is here. Weights are compared with the base, what differs is written, and the score of a bundle
in half precision is measured with the model that the bundle and its base give.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import nn
from transformers import PreTrainedConfig

from frostline.errors import printable, some
from frostline.kinds import kind_named
from frostline.model.identity import other_layers, tokenizer_hash
from frostline.model.inside.slices import merged_state
from frostline.model.load import load_config
from frostline.model.stack import NoDepthError, Stack
from frostline.model.weight_files import HeldTensor, WeightFiles, WeightTensor, is_constant, open_weights
from frostline.records.results import RunResult
from frostline.records.specs import BundleDtype
from frostline.report import numbers
from frostline.saving.save import new_model_folder
from frostline.serving.bundle import (
    CARD,
    FORMAT,
    TAIL,
    Bundle,
    BundleManifest,
    TrunkIdentity,
    open_bundle,
    seal_bundle,
    trunk_chain,
)
from frostline.serving.bundles.cards import bundle_card
from frostline.serving.bundles.difference import Difference, difference
from frostline.serving.bundles.merging import assembled
from frostline.serving.bundles.tensor_files import write_tensors
from frostline.studies.requests.resolve import Inputs
from frostline.training import forward
from frostline.training.batches import Encoded
from frostline.training.forward import Forward
from frostline.training.prefix import Split


@final
@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a manifest says about a task, whatever its trunk is. The fields are those of `BundleManifest`."""

    name: str
    strategy: str | None
    """None: `freeze:N` or `full`, as the weights show it"""
    tokenizer: str
    text: str | None
    text_pair: str | None
    max_length: int
    pair_joiner: str | None
    label_names: tuple[str, ...]
    kind: str
    metric: str | None
    score: float | None
    label_scale: tuple[float, ...] | None
    run_key: str | None


@final
@dataclass(frozen=True, kw_only=True)
class TaskModel:
    """A fine-tuned model that becomes a bundle."""

    weights: WeightFiles
    head: Set[str] = frozenset()
    """names that are known to lie above the layers"""
    config: PreTrainedConfig
    facts: Facts
    base: str
    """the model that it was fine-tuned from"""
    base_revision: str | None = None
    dev: Encoded | None = None
    """rows on which a bundle in half precision is scored"""


@final
@dataclass(frozen=True)
class Made:
    """A bundle that was written."""

    bundle: Bundle
    warnings: tuple[str, ...]
    """why it shares less than one might expect"""


def bundle_run(result: RunResult, stack: Stack, inputs: Inputs, folder: Path, dtype: BundleDtype = "fp32") -> Made:
    """Writes the bundle of a run's model, whose added modules are not merged yet; the model stays as it is."""
    spec, task = result.spec, result.spec.task
    assert task.kind is not None, "the task of a run is resolved"
    facts = Facts(
        name=task.name,
        strategy=spec.strategy,
        tokenizer=tokenizer_hash(inputs.pretrained.tokenizer),
        text=task.text,
        text_pair=task.text_pair,
        max_length=spec.max_length,
        pair_joiner=spec.pair_joiner,
        label_names=result.label_names,
        kind=task.kind,
        metric=task.metric,
        score=result.score,
        label_scale=result.label_scale,
        run_key=result.key,
    )
    weights, head = _in_memory(stack, spec.strategy)
    model = TaskModel(
        weights=weights,
        head=head,
        config=stack.model.config,
        facts=facts,
        base=spec.model,
        base_revision=spec.model_revision,
        dev=inputs.dev,
    )
    return write_bundle(model, folder, dtype, flag="--bundle")


def write_bundle(model: TaskModel, folder: Path, dtype: BundleDtype = "fp32", *, flag: str = "--save") -> Made:
    """Writes the bundle of a model; the folder appears when it is complete."""
    base = open_weights(model.base, model.base_revision)
    found, warnings = _compared(model, base)
    manifest = _manifest(model, base, found, dtype)
    with new_model_folder(folder, flag) as unfinished:
        model.config.save_pretrained(unfinished)
        write_tensors(unfinished / TAIL, found.tensors, dtype)
        bundle = Bundle(unfinished, seal_bundle(unfinished, manifest))
        if dtype != "fp32" and model.dev is not None:
            score = score_of(assembled(bundle, model.base), model.facts, model.dev)
            bundle = Bundle(unfinished, seal_bundle(unfinished, bundle.manifest.replace(score_in_dtype=score)))
        (unfinished / CARD).write_text(bundle_card(bundle), encoding="utf-8")
        open_bundle(unfinished)  # what cannot be opened must not look like a bundle
    return Made(Bundle(folder, bundle.manifest), tuple(warnings))


def score_of(stack: Stack, facts: Facts, dev: Encoded) -> float:
    """The score of a model on labelled rows, by the task's metric."""
    assert facts.metric is not None, "rows to score come with a metric"
    outputs = forward.predict(Forward(stack), Split(dev))
    mean, spread = facts.label_scale or (0.0, 1.0)
    return kind_named(facts.kind).score(facts.metric, dev.labels, outputs * spread + mean)


def _compared(model: TaskModel, base: WeightFiles) -> tuple[Difference, list[str]]:
    """What the bundle holds, and why it shares less than its weights would allow."""
    found = difference(base, model.weights, model.head)
    fields = other_layers(load_config(model.base), model.config)
    if not fields or found.depth is None:
        return found, []
    why = f"the configurations of {model.weights.name} and {model.base} differ in {some(fields)}, so no layer is shared"
    return dataclasses.replace(found, depth=None), [why]


def _manifest(model: TaskModel, base: WeightFiles, found: Difference, dtype: BundleDtype) -> BundleManifest:
    seen = "full" if found.depth is None else f"freeze:{found.depth}"
    known = {"name": numbers.one_line(model.facts.name) or "task", "strategy": model.facts.strategy or seen}
    return BundleManifest(
        **dataclasses.asdict(model.facts) | known,
        format=FORMAT,
        depth=found.depth,
        n_layers=base.n_layers or 0,
        trunk=TrunkIdentity(name=printable(model.base), chain=trunk_chain(base)),
        dtype=dtype,
        score_in_dtype=None,
        files={},
    )


def _in_memory(stack: Stack, strategy: str) -> tuple[WeightFiles, Set[str]]:
    """The weights of a model in memory, and the names of those above its layers."""
    tensors = held_tensors(stack.model)
    try:
        structure = stack.structure
    except NoDepthError:  # `full` trains such models too
        return WeightFiles(strategy, tensors, None, None), frozenset()
    return WeightFiles(strategy, tensors, structure.layers_name, stack.n_layers), frozenset(structure.above_parameters)


def held_tensors(model: nn.Module) -> dict[str, WeightTensor]:
    """The parameters and stored buffers of a model by name; a tied tensor appears once.

    A weight that is put together from trained slices is there as the model computes with it.
    """
    first: dict[int, str] = {}
    states = merged_state(model)
    for name, tensor in states.items():
        first.setdefault(id(tensor), name)
    return {
        name: HeldTensor(states[name].detach().cpu().contiguous().numpy())
        for name in first.values()
        if not is_constant(name, tuple(states[name].shape))
    }
