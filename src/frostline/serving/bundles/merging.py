"""From a bundle and its base to the task's model: in memory, or as an ordinary transformers folder.

The base is loaded as the library loads any model, in fp32, and the tensors of the bundle take their places in it. So a
bundle in fp32 gives back every bit of the model that was trained.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, one_line, some
from frostline.kinds import Head, Kind, imported, kind_named
from frostline.model.faults import one_line_errors
from frostline.model.identity import tokenizer_hash
from frostline.model.load import has_added, load_checkpoint, load_config, load_tokenizer, quiet
from frostline.model.stack import Stack
from frostline.model.weight_files import open_weights
from frostline.saving.folder import check_new_folder
from frostline.saving.manifest import Manifest, seal_manifest
from frostline.saving.save import new_model_folder, write_model, write_tokenizer
from frostline.serving.bundle import TAIL, Bundle, BundleManifest, first_difference, open_bundle, trunk_chain
from frostline.serving.bundles.cards import merged_card
from frostline.serving.bundles.difference import base_name
from frostline.strategies import parse


def merge_bundle(folder: Path, base: str, save: Path) -> Path:
    """Writes the model of a bundle as `train --save` would have; a DataError if `base` is not the bundle's base."""
    check_new_folder(save)
    bundle = open_bundle(folder)
    tokenizer = base_tokenizer(bundle, base)
    stack = assembled(bundle, base)
    manifest = bundle.manifest
    with new_model_folder(save) as unfinished:
        write_model(stack, manifest.strategy, unfinished)
        write_tokenizer(tokenizer, manifest.max_length, unfinished)
        if manifest.run_key is not None:
            seal_manifest(_manifest(manifest, manifest.run_key), unfinished)
        card = merged_card(bundle, is_plain=not has_added(unfinished))
        (unfinished / "README.md").write_text(card, encoding="utf-8")
    return save


def assembled(bundle: Bundle, base: str) -> Stack:
    """The model of a bundle over its base, in evaluation mode; added modules are in their places, not merged."""
    check_base(bundle, base)
    manifest, kind = bundle.manifest, kind_named(bundle.manifest.kind)
    config = load_config(str(bundle.folder))
    bare_model(kind, config, bundle.folder)
    loaded = load_checkpoint(base, head_seed=0, head=Head(kind.head_class, {"config": config}))
    stack, strategy, tensors = Stack(loaded.model), parse(manifest.strategy), _tensors(bundle)
    is_merged = tensors.keys() <= stack.model.state_dict().keys()
    if not is_merged and strategy.plan(stack).added:
        with torch.random.fork_rng(devices=[]):
            strategy.add_modules(stack)
    _fill(stack.model, bundle, tensors, absent=loaded.missing | loaded.mismatched)
    stack.eval()
    return stack


def bare_model(kind: Kind, config: PreTrainedConfig, folder: Path) -> PreTrainedModel:
    """The model that a configuration describes, without weights; a DataError that names the folder if there is none."""
    with quiet(), one_line_errors(str(folder)):
        config.to_json_string()  # one that cannot be written again would be noticed when half of a folder is written
        try:
            with torch.device("meta"):
                model = imported(kind.head_class).from_config(config)
        except AssertionError as error:  # torch's: a number out of range
            raise DataError(f"no usable configuration: {one_line(error)}", path=folder) from error
    assert isinstance(model, PreTrainedModel)
    return model


def check_base(bundle: Bundle, base: str) -> None:
    """Raises a DataError, with the lowest part that differs, unless `base` has the weights a bundle was made for."""
    trunk = bundle.manifest.trunk
    if (part := first_difference(trunk.chain, trunk_chain(open_weights(base)))) is not None:
        raise DataError(
            f"it was made for another base: {base} and {trunk.name} differ in {part}; give the model that was "
            "fine-tuned, in the same version",
            path=bundle.folder,
        )


def base_tokenizer(bundle: Bundle, base: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a bundle's base; a DataError if it is not the one that the task was trained with."""
    tokenizer = load_tokenizer(base)
    if tokenizer_hash(tokenizer) != bundle.manifest.tokenizer:
        raise DataError(
            f"it was trained with another tokenizer than that of {base}; give the model that was fine-tuned, in the "
            "same version",
            path=bundle.folder,
        )
    return tokenizer


def _tensors(bundle: Bundle) -> dict[str, Tensor]:
    """The tensors of a bundle, widened to fp32."""
    with one_line_errors(str(bundle.folder), "bundle"):
        stored = load_file(bundle.folder / TAIL)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in stored.items()}


def _fill(model: nn.Module, bundle: Bundle, tensors: dict[str, Tensor], *, absent: Set[str]) -> None:
    """Puts the tensors of a bundle into their places; every weight that the base does not have must be among them."""
    path = bundle.folder / TAIL
    with one_line_errors(str(bundle.folder), "bundle"):
        found = model.load_state_dict(tensors, strict=False)
    if found.unexpected_keys:
        raise DataError(f"it holds {some(sorted(found.unexpected_keys))}, which the model does not have", path=path)
    if left := sorted(absent - {base_name(name) for name in tensors}):
        raise DataError(f"it lacks {some(left)}, which the base does not have either", path=path)


def _manifest(manifest: BundleManifest, run_key: str) -> Manifest:
    """The manifest of the merged model, for `predict`."""
    score = manifest.final_score if manifest.final_score is not None else manifest.score
    return Manifest(
        text=manifest.text,
        text_pair=manifest.text_pair,
        max_length=manifest.max_length,
        pair_joiner=manifest.pair_joiner,
        label_names=manifest.label_names,
        score=0.0 if score is None else score,
        run_key=run_key,
        strategy=manifest.strategy,
        kind=manifest.kind,
        label_scale=manifest.label_scale,
    )
