"""The training losses of a run that did not diverge."""

from __future__ import annotations

from frostline.records.results import RunResult


def losses_of(result: RunResult) -> list[float]:
    """One loss for each epoch."""
    found = [epoch.train_loss for epoch in result.epochs if epoch.train_loss is not None]
    assert len(found) == len(result.epochs), "the run diverged"
    return found
