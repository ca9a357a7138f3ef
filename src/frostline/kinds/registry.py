"""The kinds that frostline brings, by name, and kinds of other packages, by import path.

Specs, requests and stored results hold the kind as a string, and every process looks it up here. So a kind defined
outside frostline works in worker processes too, if they can import its module.
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping

from frostline.errors import FrostlineError, UsageError, check_choice, one_line
from frostline.kinds.classification import CLASSIFICATION
from frostline.kinds.kind import Kind, imported
from frostline.kinds.metrics import Metric
from frostline.kinds.regression import REGRESSION
from frostline.records.specs import TaskSpec

KINDS: Mapping[str, Kind] = types.MappingProxyType({kind.name: kind for kind in (CLASSIFICATION, REGRESSION)})
"""Kinds by the name used in flags, tasks and JSON."""

_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


def kind_named(name: str) -> Kind:
    """The kind with a known name or at an import path `package.module:NAME`; a UsageError if there is none."""
    if not _IMPORT_PATH.fullmatch(name):
        return KINDS[check_choice("kind", name, KINDS)]
    try:
        found = imported(name)
    except (ImportError, AttributeError) as error:
        advice = "give package.module:NAME of an installed module, or add its folder to PYTHONPATH"
        raise UsageError(f"kind {name!r} cannot be imported ({one_line(error)}); {advice}") from error
    if not isinstance(found, Kind):
        raise UsageError(f"kind {name!r} is a {type(found).__name__}; it must be a frostline.kinds.Kind")
    return found


def kind_of(task: TaskSpec) -> Kind:
    """The kind of a resolved task."""
    if task.kind is None:
        raise FrostlineError(f"the task {task.name} has no kind, because it is not resolved")
    return kind_named(task.kind)


def kind_of_model(problem_type: str | None, n_outputs: int) -> Kind:
    """The kind that a fine-tuned model from elsewhere was trained for, as far as its configuration tells."""
    by_type = [kind for kind in KINDS.values() if kind.problem_type == problem_type]
    by_size = [kind for kind in KINDS.values() if kind.n_outputs == n_outputs]
    # A model with a single output cannot choose between classes, whatever its configuration says.
    return (by_size or by_type or [CLASSIFICATION])[0]


def metrics_for(kind: Kind | None) -> dict[str, Metric]:
    """All metrics that a task of this kind may ask for; None: the kind is not known yet."""
    kinds = KINDS.values() if kind is None else (*KINDS.values(), kind)
    return {name: metric for one in kinds for name, metric in one.metrics.items()}
