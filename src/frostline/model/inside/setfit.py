"""SetFit (Tunstall 2022) through its own library: contrastive training of sentence embeddings, then a linear head.

The library trains a sentence-transformers copy of the model that starts from the stack's weights. Afterwards the stack
takes the trained weights over, and a reader does what the library does with the last layer's states: pool, normalise,
apply the linear head. So the result is predicted, saved and measured like that of any other strategy.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import random
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from frostline.errors import FrostlineError, MissingExtraError, UsageError
from frostline.model.added.readers import POOLINGS, READER, Reader, add_reader, pooled
from frostline.model.files.folders import located
from frostline.model.load import quiet
from frostline.model.structure import in_eval, probed_row
from frostline.records.specs import Pooling

if TYPE_CHECKING:
    from frostline.model.stack import Stack

SETFIT_PARAMETERS = (f"{READER}.linear.weight", f"{READER}.linear.bias")
_POOLINGS: dict[str, Pooling] = {"mean": "mean", "cls": "first", "lasttoken": "last"}
"""what sentence-transformers calls the poolings that a reader can do"""
_NEAR = 1e-4
"""largest difference between a state that the head reads and the library's, for the model to be the same"""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """What the library trains on."""

    model: str
    """Hub name or folder: its sentence-transformers files say how tokens are pooled"""
    revision: str | None
    texts: Sequence[str]
    labels: NDArray[np.int64]
    max_length: int
    n_iterations: int | None
    """pairs of each kind per row; None: all pairs"""
    seed: int


@dataclass(frozen=True)
class Contrasted:
    """What the library trained: the head as scikit-learn fitted it, and what it answers."""

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    classes: NDArray[np.int64]
    shares: NDArray[np.float64]
    """the library's own class probabilities for the training rows (rows, classes)"""
    pooling: Pooling
    is_normalised: bool
    n_steps: int


class EmbeddingReader(Reader):
    """A linear function of a sentence embedding: the last layer's states, pooled and, if asked, of length 1."""

    def __init__(self, width: int, n_outputs: int, n_layers: int) -> None:
        super().__init__()
        self._n_layers = n_layers
        self.linear = nn.Linear(width, n_outputs)
        self.chosen: Tensor
        self.register_buffer("chosen", torch.zeros(2, dtype=torch.int64))

    def choose(self, pooling: Pooling, weight: NDArray[Any], bias: NDArray[Any], *, is_normalised: bool) -> None:
        """Takes over what the library trained."""
        self.chosen.copy_(torch.tensor([POOLINGS.index(pooling), int(is_normalised)]))
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(weight))
            self.linear.bias.copy_(torch.from_numpy(bias))

    @property
    def depths(self) -> tuple[int, ...]:
        """The last layer."""
        return (self._n_layers,)

    def forward(self, states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """(batch, classes)"""
        (state,) = states
        place, is_normalised = self.chosen.tolist()
        embedding = pooled(state, mask)[place]
        output: Tensor = self.linear(functional.normalize(embedding, dim=-1) if is_normalised else embedding)
        return output


def check_setfit() -> None:
    """Raises if setfit is not installed, and says how to install it."""
    if importlib.util.find_spec("setfit") is None:  # importing it takes seconds
        raise MissingExtraError("setfit, which the strategy of that name needs,", "setfit")


def import_setfit() -> None:
    """Imports the library, which takes seconds and sets the level of its own log: both are over before it is used."""
    with _silenced():
        import setfit  # noqa: F401


def check_trunk(stack: Stack) -> None:
    """Raises a UsageError unless a sentence embedding is read from the last layer's states.

    A decoder's final norm, for example, stands between the two; its sentence embeddings are of normed states.
    """
    model, row = stack.model, probed_row(stack.model)
    with torch.no_grad(), in_eval(model):
        state = stack.state_at(stack.n_layers, {"input_ids": row})
        output = model.base_model(input_ids=row) if model.base_model is not model else None
    read = getattr(output, "last_hidden_state", None)
    if not isinstance(read, Tensor) or read.shape != state.shape or not torch.allclose(read, state, atol=_NEAR):
        raise UsageError(
            f"setfit needs a model whose sentence embeddings are its last layer's states; {type(model).__name__} "
            "changes them before they are pooled: use an encoder such as all-MiniLM-L6-v2, BERT, RoBERTa or MPNet"
        )


def add_embedding_reader(stack: Stack) -> None:
    """Adds a reader of sentence embeddings that is not fitted yet."""
    add_reader(stack, EmbeddingReader(stack.structure.width, stack.model.config.num_labels, stack.n_layers))


def train_setfit(stack: Stack, contrast: Contrast) -> Contrasted:
    """Trains with the library and leaves the trained weights in the stack; its reader is not set yet."""
    import_setfit()
    with _silenced(), _without_bars(), _seeds_kept(), _on_device(stack.device), tempfile.TemporaryDirectory() as folder:
        from setfit import SetFitModel, Trainer, TrainingArguments
        from sklearn.linear_model import LogisticRegression

        body = _body(stack, contrast)
        pooling, is_normalised = _steps_of(body)
        model = SetFitModel(model_body=body, model_head=LogisticRegression())
        settings = TrainingArguments(
            output_dir=folder,
            num_iterations=contrast.n_iterations,
            seed=contrast.seed,
            report_to="none",
            show_progress_bar=False,
            logging_strategy="no",
            save_strategy="no",
        )
        trainer = Trainer(model=model, args=settings, train_dataset=_dataset(contrast))
        _remove_printers(trainer)
        trainer.train()
        shares = model.predict_proba(list(contrast.texts), as_numpy=True, show_progress_bar=False)
        _take_over(stack, body)
        head = model.model_head
        return Contrasted(
            weight=head.coef_,
            bias=head.intercept_,
            classes=head.classes_,
            shares=np.asarray(shares, dtype=np.float64),
            pooling=pooling,
            is_normalised=is_normalised,
            n_steps=int(trainer.st_trainer.state.global_step),
        )


def _body(stack: Stack, contrast: Contrast) -> Any:
    """The model as sentence-transformers sees it, with the stack's weights."""
    from sentence_transformers import SentenceTransformer

    body = SentenceTransformer(
        located(contrast.model),
        revision=contrast.revision,
        device=str(stack.device),
        trust_remote_code=False,
        model_kwargs={"dtype": torch.float32},
    )
    body.max_seq_length = contrast.max_length
    # Its own load of the files is not trusted to be the model that was checked.
    missing, unexpected = body[0].auto_model.load_state_dict(stack.model.base_model.state_dict(), strict=False)
    unknown = [name for name in (*missing, *unexpected) if "pooler" not in name]
    if unknown:
        raise FrostlineError(f"sentence-transformers loads other weights than transformers: {unknown[:3]}")
    return body


def _steps_of(body: Any) -> tuple[Pooling, bool]:
    """How a sentence embedding is made of the last layer's states; a UsageError where a reader cannot do the same."""
    names = [type(module).__name__ for module in body]
    mode = getattr(body[1], "pooling_mode", None) if len(names) > 1 else None
    if names[1:] not in (["Pooling"], ["Pooling", "Normalize"]) or mode not in _POOLINGS:
        made = ", ".join(names[1:]) if mode in (*_POOLINGS, None) else f"{mode} pooling"
        raise UsageError(
            f"setfit needs mean, cls or lasttoken pooling, with or without Normalize; this model's sentence embeddings "
            f"are made by {made or 'nothing'}"
        )
    return _POOLINGS[mode], "Normalize" in names


def _dataset(contrast: Contrast) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({"text": list(contrast.texts), "label": contrast.labels.tolist()})


def _remove_printers(trainer: Any) -> None:
    """Leaves out what prints to the screen, and the model card, which asks the Hub."""
    from transformers import PrinterCallback, ProgressCallback

    for callback in list(trainer.st_trainer.callback_handler.callbacks):
        if isinstance(callback, PrinterCallback | ProgressCallback) or "ModelCard" in type(callback).__name__:
            trainer.remove_callback(callback)


def _take_over(stack: Stack, body: Any) -> None:
    """Copies the trained weights into the stack's model."""
    trained = body[0].auto_model.state_dict()
    with torch.no_grad():
        for name, parameter in stack.model.base_model.named_parameters():
            if name in trained:
                parameter.data = trained[name].to(parameter.device, copy=True)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Inside this context, the libraries neither log nor warn: their messages are about their own versions."""
    names = ("setfit", "sentence_transformers", "datasets", "accelerate")
    loggers = [logging.getLogger(name) for name in names]
    levels = [one.level for one in loggers]
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for one in loggers:
                one.setLevel(logging.ERROR)
            yield
        finally:
            for one, level in zip(loggers, levels, strict=True):
                one.setLevel(level)


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Inside this context, datasets shows no progress bars."""
    import datasets

    had_bars = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def _seeds_kept() -> Iterator[None]:
    """The library seeds the generators of Python and numpy for the whole process; afterwards they are as before."""
    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - to restore it
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: NPY002


@contextlib.contextmanager
def _on_device(device: torch.device) -> Iterator[None]:
    """On a machine with a GPU the library would train there whatever device is asked for."""
    name = "ACCELERATE_USE_CPU"
    before = os.environ.get(name)
    if device.type == "cpu":
        os.environ[name] = "true"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
