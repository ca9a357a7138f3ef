"""The pretrained model with a head that is fitted in closed form, as a run: what is measured without any training."""

from __future__ import annotations

from collections.abc import Sequence

from frostline.records.requests import ResolvedRequest
from frostline.records.specs import RunSpec
from frostline.strategies import Features
from frostline.studies.planning.axis import spec_at


def fitted_spec(resolved: ResolvedRequest, measures: Sequence[str] = ()) -> RunSpec:
    """A run that fits a linear head to the mean states of the top layer, then measures the model with it.

    All layers lie below that head, so gradients reach every one of them.
    """
    kind = resolved.base.task.kind
    assert kind is not None, "the task of a resolved request is resolved"
    strategy = Features(None, (resolved.n_layers, "mean")).resolved(resolved.n_layers, kind)
    return spec_at(resolved, strategy).replace(measures=tuple(measures))
