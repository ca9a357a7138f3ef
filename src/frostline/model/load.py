"""Loading pretrained models and tokenizers from the Hub or a folder, and fingerprinting them.

Models are loaded with the library's own calls, in fp32, without remote code and without log messages.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import hf_hub_download
from numpy.typing import NDArray
from safetensors.torch import load_model as fill_model
from safetensors.torch import save_model
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import CONFIG_NAME
from transformers.utils import logging as library_logging

from frostline.errors import DataError, UsageError, some
from frostline.kinds import CLASSIFICATION, Head, Kind, imported
from frostline.model.added.redraw import redraw
from frostline.model.added.vocabulary import first_position
from frostline.model.faults import (
    check_finite,
    check_tokenizer,
    check_tokenizer_files,
    check_trunk,
    one_line_errors,
)
from frostline.model.files.folders import check_folder, check_weight_files, located
from frostline.model.identity import Identity, Loaded, changed, fingerprint
from frostline.model.layouts.probe import FoundLayout, known_layout, n_pair_heads
from frostline.model.stack import NoDepthError, Stack

_ADDED_WEIGHTS = "frostline.safetensors"

_OWN_HEAD = Head(CLASSIFICATION.head_class, {})
"""The head that the model's own configuration describes; a fingerprint is computed with it."""

_LEAST_TOKENS = 3
"""The shortest useful row: one token between two special ones."""


@dataclass(frozen=True)
class Pretrained:
    """What is known about a pretrained model before any run."""

    name: str
    revision: str | None
    """the commit of a model from the Hub; later loads ask for it, because a branch can move"""
    fingerprint: str
    n_parameters: int
    n_layers: int
    width: int
    """size of the state per token; 0 if the model cannot be cut at a depth"""
    no_depth: NoDepthError | None
    """why the model cannot be cut at a depth; None if it can"""
    epochs: int
    """the paper's number of epochs for this family"""
    max_tokens: int
    """tokens in the longest row that the model accepts"""
    pair_joiner: str | None
    """put between the texts of a pair if the tokenizer has no separator"""
    layout: FoundLayout
    """how batches are computed on a CPU"""
    n_pair_heads: int
    """attention heads of a layer that keep numbers for each pair of tokens"""
    tokenizer: PreTrainedTokenizerBase

    def check_depth(self) -> None:
        """Raises, with the reason, if the model cannot be cut at a depth."""
        if self.no_depth is not None:
            raise self.no_depth


def describe(name: str) -> Pretrained:
    """Loads a model once, checks it and describes it; raises a DataError if its files are faulty."""
    load_config(name)
    revision = _commit_of(name)
    loaded, tokenizer, found = _load_with_own_head(name, revision)
    model, missing, mismatched = loaded.model, loaded.missing, loaded.mismatched
    check_tokenizer(tokenizer, model)
    check_finite(name, model)
    stack = Stack(_padding_with(model, tokenizer.pad_token_id))
    check_trunk(name, stack, missing, mismatched)
    no_depth = _no_depth(stack)
    with quiet():
        layout = FoundLayout("padded") if no_depth else known_layout(stack, found)
    return Pretrained(
        name=name,
        revision=revision,
        fingerprint=found,
        n_parameters=stack.count(stack.all_parameters),
        n_layers=stack.n_layers,
        width=0 if no_depth else stack.structure.width,
        no_depth=no_depth,
        epochs=10 if model.config.model_type == "roberta" else 3,
        max_tokens=max_tokens(model, tokenizer),
        # Without a separator the tokenizer would join the two texts of a pair without any mark between them.
        pair_joiner=None if tokenizer.sep_token else "\n",
        layout=layout,
        n_pair_heads=n_pair_heads(model.config, layout),
        tokenizer=tokenizer,
    )


@functools.lru_cache(maxsize=8)  # a run reads it for every load; it is of the expected fingerprint or not there
def identify(name: str, revision: str | None, expected: str) -> Identity:
    """What later loads of a model are compared with; raises a DataError if it has another fingerprint than expected."""
    loaded, tokenizer, found = _load_with_own_head(name, revision)
    if found != expected:
        raise changed(name, f"its fingerprint is {found[:8]}, not {expected[:8]}")
    return Identity.of(loaded, tokenizer)


def load_model(
    name: str,
    *,
    head_seed: int,
    head: Head,
    pad_token_id: int | None,
    revision: str | None = None,
    identity: Identity | None = None,
) -> PreTrainedModel:
    """The pretrained model with a new head for the task, drawn from `head_seed`; the one with `identity`, if given."""
    loaded = load_checkpoint(name, revision, head_seed=head_seed, head=head)
    model, head_tensors = loaded.model, _head(loaded.model)
    if identity is not None:
        identity.check_model(loaded, head_tensors, head.config)
    if not (loaded.missing | loaded.mismatched) & head_tensors:
        _draw_head(model, head_seed)
    return _padding_with(model, pad_token_id)


def load_trained(folder: Path, kind: Kind = CLASSIFICATION) -> PreTrainedModel:
    """A fine-tuned model with the head it was saved with; a DataError if it has none: the library would draw one."""
    load_config(str(folder))
    loaded = load_checkpoint(str(folder), head_seed=0, head=Head(kind.head_class, {}))
    model = loaded.model
    drawn = sorted((loaded.missing | loaded.mismatched) & {name for name, _ in model.named_parameters()})
    if drawn:
        raise DataError(
            f"not a fine-tuned model: it lacks {some(drawn)}; `frostline train --save` and `find --save` make one",
            path=folder,
        )
    return model


def has_added(folder: Path) -> bool:
    """Whether a folder holds a model with added modules, which transformers cannot load."""
    return (folder / _ADDED_WEIGHTS).is_file()


def save_added(stack: Stack, folder: Path) -> None:
    """Saves a model with added modules.

    The weights get another file name, because transformers would silently load the model without the added modules.
    """
    stack.model.config.save_pretrained(folder)
    save_model(stack.model, str(folder / _ADDED_WEIGHTS))


def load_added(folder: Path, add_modules: Callable[[Stack], None], kind: Kind = CLASSIFICATION) -> PreTrainedModel:
    """The model that `save_added` wrote; `add_modules` adds the modules to an empty one."""
    config = load_config(str(folder))
    with torch.random.fork_rng(devices=[]), quiet(), one_line_errors(str(folder)):
        stack = Stack(imported(kind.head_class).from_config(config))
        add_modules(stack)
        fill_model(stack.model, folder / _ADDED_WEIGHTS)
    stack.eval()
    return stack.model


def count_trained(name: str, head: Head, depths: Iterable[int]) -> dict[int | None, int]:
    """How many parameters train at each depth, with this head; None: how many there are."""
    stack = Stack(load_model(name, head_seed=0, head=head, pad_token_id=None))
    counts: dict[int | None, int] = {None: stack.count(stack.all_parameters)}
    return counts | {depth: stack.count(stack.parameters_above(depth)) for depth in depths}


def load_config(name: str) -> PreTrainedConfig:
    """The model's configuration."""
    with quiet(), one_line_errors(name):
        if Path(name).is_file():
            raise UsageError(f"no usable model {name!r}: it is a file; give the folder that holds the model")
        if Path(name).is_dir():
            check_folder(Path(name))
        config = AutoConfig.from_pretrained(located(name), trust_remote_code=False)
    assert isinstance(config, PreTrainedConfig)
    return config


def load_tokenizer(name: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The model's tokenizer with a pad token. Decoders often have none and get the end token."""
    with quiet(), one_line_errors(name, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(located(name), revision=revision, trust_remote_code=False)
        if Path(name).is_dir():
            check_tokenizer_files(Path(name), tokenizer)
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    if tokenizer.pad_token is None:
        # Any token will do: the mask says what is padding.
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token or tokenizer.convert_ids_to_tokens(0)
    return tokenizer


def unknown_share(tokenizer: PreTrainedTokenizerBase, tokens: NDArray[np.signedinteger[Any]]) -> float:
    """Share of the tokens that are unknown to the tokenizer; special tokens around a text do not count."""
    unknown = tokenizer.unk_token_id
    # GPT-2 has a token for every byte.
    if unknown is None or unknown in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        return 0.0
    frame = [token for token in tokenizer.all_special_ids if token != unknown]
    n_of_text = int((~np.isin(tokens, frame)).sum())
    return float((tokens == unknown).sum()) / max(1, n_of_text)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Inside this context, the libraries show no progress bars, load reports or retries."""
    level, had_bars = library_logging.get_verbosity(), library_logging.is_progress_bar_enabled()
    hub = logging.getLogger("huggingface_hub")
    hub_level = hub.level
    library_logging.set_verbosity_error()
    library_logging.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # For a .bin file that is refused anyway.
            warnings.filterwarnings("ignore", message="Detected pickle protocol")
            yield
    finally:
        hub.setLevel(hub_level)
        library_logging.set_verbosity(level)
        if had_bars:
            library_logging.enable_progress_bar()


def _commit_of(name: str) -> str | None:
    """The commit that the name of a model on the Hub stands for now; None for a folder."""
    if Path(located(name)).is_dir():
        return None
    with quiet(), one_line_errors(name):
        return Path(hf_hub_download(name, CONFIG_NAME)).parent.name  # …/snapshots/<commit>/config.json


def _load_with_own_head(name: str, revision: str | None) -> tuple[Loaded, PreTrainedTokenizerBase, str]:
    """The model with the head that its configuration describes, its tokenizer, and the fingerprint of both."""
    with quiet(), one_line_errors(name):
        before, _ = PreTrainedConfig.get_config_dict(located(name), revision=revision)
    tokenizer = load_tokenizer(name, revision)
    loaded = load_checkpoint(name, revision, head_seed=0)
    raw_config, _ = PreTrainedConfig.get_config_dict(located(name), revision=revision)
    if raw_config != before:  # the library read the file in between
        raise DataError(f"the model {name} was changed while it was loaded; run the command again")
    return loaded, tokenizer, fingerprint(loaded, raw_config, tokenizer)


def load_checkpoint(name: str, revision: str | None = None, *, head_seed: int, head: Head = _OWN_HEAD) -> Loaded:
    """The model with weights from the checkpoint; those that it does not have are drawn from `head_seed`."""
    with torch.random.fork_rng(devices=[]), quiet(), one_line_errors(name):
        if Path(name).is_dir():
            check_weight_files(Path(name))
        torch.manual_seed(head_seed)
        model, info = imported(head.model_class).from_pretrained(
            located(name),
            revision=revision or "main",
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **head.config,
        )
    assert isinstance(model, PreTrainedModel)
    for module in model.modules():
        if hasattr(module, "layerdrop"):
            module.layerdrop = 0.0  # OPT skips whole layers at random, but frozen layers must be deterministic
    missing, mismatched = {str(key) for key in info["missing_keys"]}, {str(item[0]) for item in info["mismatched_keys"]}
    return Loaded(name, model, missing, mismatched)


def _draw_head(model: PreTrainedModel, head_seed: int) -> None:
    """Re-initialises the head: with the head of the checkpoint, all seeds would start from the same one."""
    with quiet():
        redraw(model, _head(model), head_seed, is_pretrained=False)


def _head(model: PreTrainedModel) -> set[str]:
    """Names of the parameters outside the bare model; if the class has no bare model, those above the layers."""
    if model.base_model is not model:
        bare = {id(p) for p in model.base_model.parameters()}
        return {name for name, p in model.named_parameters() if id(p) not in bare}
    try:
        return set(Stack(model).structure.above_parameters)
    except NoDepthError:  # its head cannot be separated from the rest
        return set()


def _padding_with(model: PreTrainedModel, pad_token_id: int | None) -> PreTrainedModel:
    """The model with its pad token set: a decoder's head refuses batches without one."""
    if getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = pad_token_id
    return model


def _no_depth(stack: Stack) -> NoDepthError | None:
    try:
        stack.check_depths()
    except NoDepthError as error:
        return error
    return None


def max_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens in the longest row that a model and its tokenizer accept."""
    limit = tokenizer.model_max_length
    if not isinstance(limit, int | float) or not limit >= _LEAST_TOKENS:
        raise DataError(
            f"model_max_length of its tokenizer is {limit!r}; it must be at least {_LEAST_TOKENS}: correct "
            "tokenizer_config.json",
            path=tokenizer.name_or_path,
        )
    limit = int(limit)
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is None or positions <= 0:  # XLNet has no limit, which it writes as -1
        return limit
    return min(limit, int(positions) - first_position(model))
