"""Settings of the commands that look inside the layers. Their names are in panels of `settings.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypedDict

from frostline.records.specs import Protocol
from frostline.studies.requests.settings import (
    DataSettings,
    Flag,
    MachineSettings,
    OutputSettings,
    PruningSettings,
    ReadingSettings,
    StudySettings,
    SweepSettings,
)


class ComparedSettings(TypedDict, total=False):
    """What is compared with the pretrained model, on which rows."""

    frozen: Annotated[
        str | int | Sequence[int],
        Flag(help="depths to train beside the full model", default="half of the layers", type=str, items=int),
    ]
    protocol: Protocol
    rows: Annotated[int, Flag(help="maximum number of dev rows to compare on", default="1000")]
    tuned: Annotated[
        str | Path | None,
        Flag(help="compare this fine-tuned folder with MODEL; nothing trains", default="none", type=Path),
    ]
    seeds: Annotated[str | int | Sequence[int], Flag(default="3", type=str, items=int)]


class ScoredSettings(TypedDict, total=False):
    """Which rows are scored before training."""

    rows: Annotated[int, Flag(help="maximum number of training rows to score", default="1000")]
    epochs: Annotated[
        int,
        Flag(
            help="passes over the training rows of the full run that costs are compared with", default="3, RoBERTa 10"
        ),
    ]


class ChangeSettings(DataSettings, StudySettings, ComparedSettings, total=False):
    """Settings of `frostline.change`."""


class ScoutSettings(
    DataSettings, ScoredSettings, ReadingSettings, MachineSettings, OutputSettings, SweepSettings, total=False
):
    """Settings of `frostline.scout`."""


class HeadsSettings(
    DataSettings, PruningSettings, ReadingSettings, MachineSettings, OutputSettings, SweepSettings, total=False
):
    """Settings of `frostline.heads`."""
