"""A kind of task: one value that holds everything in which tasks differ.

Classification and regression are two such values. The rest of frostline asks the kind (how are labels read, which
metrics are there, what is the loss) and never compares kinds, so a new kind is a new value and no change elsewhere. It
may be defined in any module: `kinds.registry` finds it by its import path.

Objects of torch and transformers are given as import paths (`"torch.nn.functional:cross_entropy"`), because this
package is imported by commands that must start without torch. `training` and `model` resolve them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import check_choice
from frostline.kinds.labels import Labels
from frostline.kinds.metrics import Array, Metric
from frostline.stats import is_above

_MOST_CLASSES = 2048
"""up to this many classes, a table of all pairs of classes is small"""


@final
@dataclass(frozen=True)
class Head:
    """The head that a model gets for one task."""

    model_class: str
    """import path of the transformers class that has such a head"""
    config: Mapping[str, Any]
    """fields of the model's configuration: outputs, class names, problem type"""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """A kind of task. Arrays: labels (rows,), a model's raw outputs (rows, outputs)."""

    name: str
    """what people call it"""

    # Labels
    class_names: Callable[[Sequence[str]], tuple[str, ...]] | None
    """the classes that written labels name, in order; raises LabelError. None: labels are not classes"""
    encode: Callable[[Sequence[str], Sequence[str]], Labels]
    """written labels, and the classes as the file writes them → the labels; raises LabelError"""
    decode: Callable[[Any, Sequence[str]], str]
    """one label, and the class names → the label as people read it"""
    warnings: Callable[[Labels, Labels, Sequence[str], Sequence[str]], Iterable[str]]
    """training labels, dev labels, class names, metrics (the score first) → what users should know about the labels"""
    order: Callable[[Labels, np.random.Generator], NDArray[np.int64]]
    """a random order of the rows in which every beginning is a fair sample; samples and splits are cut from it"""
    units: Callable[[Labels], NDArray[np.int64]]
    """for each label the number of the unit that it belongs to, counted from 0, ascending. Intervals for new data
    resample whole units: for most kinds each row is one unit, for tokens a unit would be a sentence"""

    # Scores
    metrics: Mapping[str, Metric]
    """metrics by name; the first is the score unless the user chooses another"""
    check_labels: Callable[[Metric, Array], None]
    """raises UsageError if a metric cannot score these labels"""
    check_outputs: Callable[[Metric, Array, Array], None]
    """raises UsageError if outputs do not fit the labels"""
    constants: Callable[[Labels], Array]
    """the constant answers to these labels among which the best one is"""
    mean_loss: Callable[[Labels, Array], float]
    """the loss that training minimises, for labels and outputs of all rows"""
    torch_loss: str
    """import path of the same loss for torch: (logits, labels) → a scalar"""

    # Model
    head_class: str
    """import path of the transformers class with a head for this kind"""
    problem_type: str
    """what transformers calls the kind in a model's configuration"""
    n_outputs: int | None
    """outputs of the head; None: one per class"""
    fit: Literal["logreg", "ridge"]
    """closed-form fit that the strategy `features` uses"""
    fit_strengths: tuple[float, ...]
    """penalties to choose from: C of logreg, alpha of ridge, for features of unit variance"""
    prediction: Callable[[Array, Sequence[str]], dict[str, str | float]]
    """outputs of one row, and the class names → the columns that `predict` adds to the row"""

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes: two rows with different labels then contradict each other."""
        return self.class_names is not None

    def metric(self, name: str) -> Metric:
        """The metric of that name; a UsageError lists the known ones."""
        return self.metrics[check_choice("metric", name, self.metrics)]

    def metric_names(self, n_classes: int | None) -> tuple[str, ...]:
        """The metrics that own data is measured by, the score first; `n_classes` is None without classes."""
        return tuple(name for name, metric in self.metrics.items() if n_classes == 2 or not metric.is_binary)

    def answers(self, metric_name: str, labels: Array, outputs: Array) -> Array:
        """The answers (rows,) that a metric scores; a UsageError if shapes do not fit or a number is not finite."""
        metric = self.metric(metric_name)
        self.check_labels(metric, labels)
        self.check_outputs(metric, labels, outputs)
        return metric.answers(outputs)

    def score(self, metric_name: str, labels: Array, outputs: Array) -> float:
        """The score of raw outputs; a UsageError if shapes do not fit or a number is not finite."""
        return self.metric(metric_name).of(labels, self.answers(metric_name, labels, outputs))

    def chance(self, metric_name: str, labels: Array) -> float:
        """The best score without reading a text: of a constant answer, or of guessing classes by their shares."""
        metric = self.metric(metric_name)
        constant = metric.of(labels, np.full(len(labels), self.best_constant(metric_name, labels)))
        if metric.of_tables is None:
            return constant
        counts = np.bincount(labels, minlength=2)
        if len(counts) > _MOST_CLASSES and metric.of_guessing is not None:
            guessed = metric.of_guessing(counts)
        else:
            guessed = float(metric.of_tables(np.outer(counts, counts / len(labels))))
        return guessed if is_above(guessed, constant) else constant

    def best_constant(self, metric_name: str, labels: Array) -> Any:
        """The constant answer with the best score on these labels."""
        metric = self.metric(metric_name)
        self.check_labels(metric, labels)
        return max(self.constants(labels), key=lambda one: metric.of(labels, np.full(len(labels), one)))

    def constant_outputs(self, answer: Any, n_rows: int, n_classes: int) -> NDArray[np.float32]:
        """The raw outputs of a model that gives every row the same answer; `n_classes` is 0 without classes."""
        if not self.has_classes:
            return np.full((n_rows, self.n_outputs or 1), answer, dtype=np.float32)
        outputs = np.zeros((n_rows, n_classes), dtype=np.float32)
        outputs[:, int(answer)] = 1
        return outputs

    def head(self, label_names: Sequence[str]) -> Head:
        """The head for a task with these classes (none: the kind has a fixed number of outputs)."""
        config: dict[str, Any] = {"num_labels": self.n_outputs, "problem_type": self.problem_type}
        if label_names:
            del config["num_labels"]  # transformers counts the names
            config["id2label"] = dict(enumerate(label_names))
            config["label2id"] = {label: number for number, label in enumerate(label_names)}
        return Head(self.head_class, config)

    def prediction_columns(self, label_names: Sequence[str]) -> tuple[str, ...]:
        """The columns that `predict` adds; `label_names` has one name per output of the model."""
        return tuple(self.prediction(np.zeros(len(label_names)), label_names))


def each_row(labels: Labels) -> NDArray[np.int64]:
    """Units for kinds whose rows are independent: every row is one."""
    return np.arange(len(labels))


def imported(path: str) -> Any:
    """The object at an import path `package.module:name`."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
