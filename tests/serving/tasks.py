"""Tiny tasks over tiny trunks: bundles without training, and the models they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from frostline.kinds import CLASSIFICATION, REGRESSION
from frostline.model.added.readers import LinearReader
from frostline.model.identity import tokenizer_hash
from frostline.model.load import load_model, load_tokenizer
from frostline.model.stack import Stack
from frostline.model.weight_files import WeightFiles
from frostline.records.specs import BundleDtype
from frostline.serving.bundle import Bundle
from frostline.serving.bundles.making import Facts, TaskModel, held_tensors, write_bundle
from frostline.serving.rows import Text
from frostline.strategies import parse
from frostline.tasks import Rows
from frostline.testing.models import Family, make_model, make_rows
from frostline.training import forward
from frostline.training.batches import encode
from frostline.training.forward import Forward
from frostline.training.prefix import Split

N_LAYERS = 3
MAX_LENGTH = 32


@dataclass(frozen=True)
class ToyTask:
    """A bundle, and the model that it gives together with its trunk."""

    bundle: Bundle
    stack: Stack
    base: Path

    def expected(self, texts: Sequence[Text]) -> NDArray[np.float32]:
        """The raw outputs that `frostline predict` computes with the task's own model, (texts, outputs)."""
        manifest, tokenizer = self.bundle.manifest, load_tokenizer(str(self.base))
        outputs = np.zeros((len(texts), self.stack.model.config.num_labels), dtype=np.float32)
        for is_pair in (False, True):
            places = [place for place, text in enumerate(texts) if (text.second is not None) == is_pair]
            if places:
                some = [texts[place] for place in places]
                numbers = np.arange(len(some))
                pairs = [str(text.second) for text in some] if is_pair else None
                rows = Rows(ids=numbers, texts=[text.first for text in some], pairs=pairs, labels=numbers)
                encoded = encode(rows, tokenizer, max_length=manifest.max_length, pair_joiner=manifest.pair_joiner)
                outputs[places] = forward.predict(Forward(self.stack), Split(encoded))
        return outputs


def make_trunk(folder: Path, family: Family = "bert", *, n_layers: int = N_LAYERS, seed: int = 0) -> Path:
    """A model folder that tasks share."""
    return make_model(folder, family, n_layers=n_layers, seed=seed)


def make_task(
    folder: Path,
    base: Path,
    strategy: str,
    *,
    n_outputs: int = 2,
    seed: int = 0,
    max_length: int = MAX_LENGTH,
    dtype: BundleDtype = "fp32",
) -> ToyTask:
    """A task whose trained parameters are moved at random, as if it had been trained."""
    kind = REGRESSION if n_outputs == 1 else CLASSIFICATION
    names = tuple(f"class {number}" for number in range(n_outputs)) if kind.has_classes else ()
    tokenizer = load_tokenizer(str(base))
    stack = Stack(
        load_model(str(base), head_seed=seed, head=kind.head(names), pad_token_id=int(tokenizer.pad_token_id))
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        _move(stack, strategy)
    stack.eval()
    facts = Facts(
        name=folder.name,
        strategy=strategy,
        tokenizer=tokenizer_hash(load_tokenizer(str(base))),
        text="text",
        text_pair=None,
        max_length=max_length,
        pair_joiner=None if tokenizer.sep_token else "\n",
        label_names=names,
        kind=kind.name,
        metric=None,
        score=None,
        label_scale=None,
        run_key=None,
    )
    structure = stack.structure
    model = TaskModel(
        weights=WeightFiles(strategy, held_tensors(stack.model), structure.layers_name, stack.n_layers),
        head=frozenset(structure.above_parameters),
        config=stack.model.config,
        facts=facts,
        base=str(base),
    )
    return ToyTask(write_bundle(model, folder, dtype).bundle, stack, base)


def _move(stack: Stack, strategy: str) -> None:
    plan = parse(strategy).plan(stack)
    if plan.added:
        parse(strategy).add_modules(stack)
    parameters = dict(stack.model.named_parameters())
    for phase in plan.phases:
        for name in phase.trained:
            # A recurrent network is chaotic with weights as wide as these, and no two ways to compute it agree.
            scale = 0.02 if "lstm" in name else 0.3
            parameters[name] += scale * torch.randn_like(parameters[name])
    reader = stack.reader
    if isinstance(reader, LinearReader):
        reader.chosen.copy_(torch.tensor([2, 0]))  # the mean token after layer 2


def make_texts(n_texts: int = 9, *, is_pair: bool = False, seed: int = 0) -> list[Text]:
    """Texts of different lengths."""
    rows = make_rows(n_rows=n_texts, is_pair=is_pair, seed=seed)
    if rows.pairs is None:
        return [Text(first) for first in rows.texts]
    return [Text(first, second) for first, second in zip(rows.texts, rows.pairs, strict=True)]


def softmax(outputs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities of classes; a single output stays as it is."""
    if outputs.shape[1] == 1:
        return outputs.astype(np.float64)
    shifted = np.exp(outputs.astype(np.float64) - outputs.max(1, keepdims=True))
    return np.asarray(shifted / shifted.sum(1, keepdims=True))
