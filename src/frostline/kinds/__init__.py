"""Kinds of task as values: how labels are read, what is measured, what the model needs."""

from frostline.kinds.classification import CLASSIFICATION
from frostline.kinds.kind import Head, Kind, imported
from frostline.kinds.labels import LabelError, Labels
from frostline.kinds.metrics import Metric
from frostline.kinds.registry import KINDS, kind_named, kind_of, kind_of_model, metrics_for
from frostline.kinds.regression import REGRESSION

__all__ = [
    "CLASSIFICATION",
    "KINDS",
    "REGRESSION",
    "Head",
    "Kind",
    "LabelError",
    "Labels",
    "Metric",
    "imported",
    "kind_named",
    "kind_of",
    "kind_of_model",
    "metrics_for",
]
