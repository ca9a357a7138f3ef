"""Makes a bundle of any fine-tuned transformers folder with safetensors, whatever tool trained it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from frostline.errors import DataError, UsageError, some
from frostline.kinds import Kind, Labels, kind_named, kind_of_model
from frostline.kinds.labels import LabelError
from frostline.model.identity import tokenizer_hash
from frostline.model.load import has_added, load_config, load_tokenizer, max_tokens
from frostline.model.stack import Stack
from frostline.model.weight_files import WeightFiles, is_constant, open_weights
from frostline.records.specs import BundleDtype
from frostline.saving.answers import Table, column_texts
from frostline.saving.folder import check_new_folder
from frostline.saving.manifest import Manifest, check_files, read_manifest
from frostline.saving.predict import check_head, load_saved
from frostline.serving.bundles.making import Facts, Made, TaskModel, score_of, write_bundle
from frostline.serving.bundles.merging import bare_model
from frostline.tasks import Rows, read_columns
from frostline.training.batches import encode

_MOST_TOKENS = 512
"""longest row of a model from elsewhere, as `predict` cuts it"""
_HEADS = "ForSequenceClassification"


@final
@dataclass(frozen=True, kw_only=True)
class DevRows:
    """Labelled rows to score a model on, and their columns."""

    file: Path
    text: str | None = None
    text_pair: str | None = None
    label: str = "label"
    metric: str | None = None
    """None: the first of the task's kind"""


def bundle_folder(
    folder: Path,
    base: str,
    save: Path,
    *,
    name: str | None = None,
    dtype: BundleDtype = "fp32",
    dev: DevRows | None = None,
) -> Made:
    """Writes the bundle of a fine-tuned model; how deep it agrees with its base is found from the weights.

    Args:
        folder: the fine-tuned model.
        base: the model that it was fine-tuned from: a folder or a name on the Hub.
        save: new folder for the bundle.
        name: the task's name when it is served; by default the folder's.
        dtype: number format of the bundle.
        dev: rows on which the model is scored, as it is and in `dtype`.
    """
    check_new_folder(save)
    if not folder.is_dir():
        raise UsageError(f"there is no model folder {folder}")
    manifest = read_manifest(folder)
    if manifest is not None:
        check_files(folder, manifest)
    config = load_config(str(folder))
    check_head(config, folder)
    kind = kind_named(manifest.kind) if manifest and manifest.kind else _kind_of(config, folder)
    tokenizer = _tokenizer(folder, base)
    weights, bare = _weights(folder, config, kind)
    limit = manifest.max_length if manifest else min(max_tokens(bare, tokenizer), _MOST_TOKENS)
    facts = Facts(
        name=name or folder.resolve().name,
        # Only added modules cannot be found by comparing weights: added LoRA updates were merged when they were saved.
        strategy=manifest.strategy if manifest and has_added(folder) else None,
        tokenizer=tokenizer_hash(tokenizer),
        text=manifest.text if manifest else dev and dev.text,
        text_pair=manifest.text_pair if manifest else dev and dev.text_pair,
        max_length=limit,
        pair_joiner=manifest.pair_joiner if manifest else None if tokenizer.sep_token else "\n",
        label_names=_label_names(config) if kind.has_classes else (),
        kind=(manifest and manifest.kind) or kind.name,
        metric=None,
        score=manifest.score if manifest else None,
        label_scale=manifest.label_scale if manifest else None,
        run_key=manifest.run_key if manifest else None,
    )
    model = TaskModel(weights=weights, config=config, facts=facts, base=base)
    return write_bundle(model if dev is None else _scored(model, dev, folder, tokenizer), save, dtype)


def _kind_of(config: PreTrainedConfig, folder: Path) -> Kind:
    """The kind of task of a model without a manifest; a DataError if it has no head for whole texts."""
    if (named := config.architectures) and not any(name.endswith(_HEADS) for name in named):
        raise DataError(f"it is a {named[0]}; bundles are made of models for whole texts (…{_HEADS})", path=folder)
    return kind_of_model(config.problem_type, config.num_labels)


def _tokenizer(folder: Path, base: str) -> PreTrainedTokenizerBase:
    """The base's tokenizer; a DataError if the folder has another one, because a bundle holds none."""
    ours = load_tokenizer(base)
    if (folder / "tokenizer_config.json").is_file() or (folder / "tokenizer.json").is_file():
        own = load_tokenizer(str(folder))
        if tokenizer_hash(own) != tokenizer_hash(ours):
            what = f"its tokenizer is not that of {base}, and a bundle has the tokenizer of its base"
            raise DataError(
                f"{what}; serve this model on its own, or give the base that it was trained from", path=folder
            )
    return ours


def _weights(folder: Path, config: PreTrainedConfig, kind: Kind) -> tuple[WeightFiles, PreTrainedModel]:
    """The weights that the model's class uses, and the model without weights; a DataError if some are missing."""
    weights = open_weights(str(folder))
    bare = bare_model(kind, config, folder)
    if has_added(folder):  # frostline wrote it, with exactly the tensors of the model
        return weights, bare
    names = {name: id(one) for name, one in bare.state_dict(keep_vars=True).items() if not is_constant(name, one.shape)}
    weights = _as_loaded(weights, names.keys(), f"{bare.base_model_prefix}.")
    stored = {place for name, place in names.items() if name in weights.tensors}  # under any name, where it is tied
    if lacking := sorted(name for name, place in names.items() if place not in stored):
        raise DataError(f"not a fine-tuned model for texts: it lacks {some(lacking)}", path=folder)
    return weights, bare


def _as_loaded(weights: WeightFiles, names: Set[str], prefix: str) -> WeightFiles:
    """The tensors that the library loads, by their names in the model: it adds a missing prefix, and skips others."""
    lead = "" if any(name.startswith(prefix) for name in weights.tensors) else prefix
    renamed = {f"{lead}{name}" if f"{lead}{name}" in names else name: one for name, one in weights.tensors.items()}
    used = {name: tensor for name, tensor in renamed.items() if name in names}
    stack = None if weights.layers_name is None else f"{lead}{weights.layers_name}"
    return WeightFiles(weights.name, used, stack, weights.n_layers)


def _label_names(config: PreTrainedConfig) -> tuple[str, ...]:
    return tuple(str(config.id2label[number]) for number in range(config.num_labels))


def _scored(model: TaskModel, dev: DevRows, folder: Path, tokenizer: PreTrainedTokenizerBase) -> TaskModel:
    """The model with its score on the rows, and with the rows."""
    manifest = read_manifest(folder)
    facts = model.facts
    rows = _read_rows(dev, facts, manifest)
    metric = dev.metric or kind_named(facts.kind).metric_names(len(facts.label_names) or None)[0]
    encoded = encode(rows, tokenizer, max_length=facts.max_length, pair_joiner=facts.pair_joiner)
    facts = dataclasses.replace(facts, metric=metric)
    score = score_of(Stack(load_saved(folder, manifest)), facts, encoded)
    return dataclasses.replace(model, facts=dataclasses.replace(facts, score=score), dev=encoded)


def _read_rows(dev: DevRows, facts: Facts, manifest: Manifest | None) -> Rows:
    columns, source = read_columns(dev.file), str(dev.file)
    texts, pairs = Table(columns, source).texts(manifest, dev.text, dev.text_pair)
    if dev.label not in columns:
        raise UsageError(f"{source} has no column {dev.label!r}; its columns: {', '.join(columns)}. Give --label")
    labels = _labels(column_texts(columns, dev.label, source), facts, dev.file)
    return Rows(ids=np.arange(len(texts)), texts=texts, pairs=pairs, labels=labels)


def _labels(written: Sequence[str], facts: Facts, file: Path) -> Labels:
    """Labels as class names of the model, or as their numbers."""
    numbers = [str(number) for number in range(len(facts.label_names))]
    names = numbers if facts.label_names and set(written) <= set(numbers) else facts.label_names
    try:
        return kind_named(facts.kind).encode(written, names)
    except LabelError as error:
        raise DataError(str(error), path=file) from error
