"""What a strategy is: a value that decides, for one model, what trains."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frostline.records import Plan

if TYPE_CHECKING:
    from frostline.stack import Stack


@dataclass(frozen=True)
class Strategy(abc.ABC):
    """An idea of what to train."""

    @abc.abstractmethod
    def plan(self, stack: Stack) -> Plan:
        """What it decides for this model; touches no weight."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """How it is written on the command line and in a spec."""
