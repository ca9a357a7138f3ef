"""What a strategy decided for one model, before any weight is touched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from frostline.records.serial import Record
from frostline.records.specs import Fit


@dataclass(frozen=True, kw_only=True)
class Phase(Record):
    """A stretch of training with one set of trained parameters; the epochs are shared evenly between phases."""

    _removed: ClassVar[frozenset[str]] = frozenset({"epochs"})

    cached_layers: int | None
    """the state after this many layers (0: after the embeddings) never changes in this phase; None: nothing holds"""
    trained: tuple[str, ...]
    """names of the parameters that train, in the model's order"""


@dataclass(frozen=True, kw_only=True)
class Plan(Record):
    """What a strategy decided for one model, before any weight is touched."""

    n_frozen: int | None
    """layers frozen from the bottom, embeddings included; None where nothing or no depth is frozen"""
    edits: tuple[str, ...] = ()
    """names of the weights that are re-initialised before training"""
    added: tuple[str, ...] = ()
    """names of the modules that are put in"""
    phases: tuple[Phase, ...]
    """stretches of training, in order"""
    fit: Fit = "gradient"
    """trained by the loop, fitted in one go, trained on pairs of rows by setfit, or left as it was saved"""

    @classmethod
    def one_phase(
        cls,
        *,
        trained: tuple[str, ...],
        n_frozen: int | None = None,
        cached_layers: int | None = None,
        edits: tuple[str, ...] = (),
        added: tuple[str, ...] = (),
        fit: Fit = "gradient",
    ) -> Plan:
        """A plan that trains one set of parameters from the first step to the last."""
        phase = Phase(cached_layers=cached_layers, trained=trained)
        return cls(n_frozen=n_frozen, edits=edits, added=added, phases=(phase,), fit=fit)

    def phase_at(self, epoch: int, n_epochs: int) -> Phase:
        """The phase of an epoch, counted from 1: the last of them is in the last phase."""
        return self.phases[math.ceil(epoch * len(self.phases) / n_epochs) - 1]

    def trained(self, n_epochs: int) -> frozenset[str]:
        """Names of the parameters that train in any of a run's epochs."""
        phases = {self.phase_at(epoch, n_epochs) for epoch in range(1, n_epochs + 1)}
        return frozenset(name for phase in phases for name in phase.trained)
