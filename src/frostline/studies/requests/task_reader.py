"""Reads the tasks of one call, each once. Needs no model: faults of the data are found before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from frostline import tasks
from frostline.records.specs import TaskSpec
from frostline.tasks import TaskData


@final
@dataclass(frozen=True)
class TaskReader:
    """The tasks that were read so far."""

    _resolved: dict[TaskSpec, TaskSpec] = field(default_factory=dict)
    _data: dict[TaskSpec, TaskData] = field(default_factory=dict)

    def resolve(self, task: TaskSpec) -> TaskSpec:
        """The task with columns, kind and metric filled in; its rows come from the same read: a file may be large."""
        if task not in self._resolved:
            opened = tasks.open_task(task)
            self._data[opened.spec] = opened.load()
            self._resolved[task] = opened.spec
        return self._resolved[task]

    def load(self, task: TaskSpec) -> TaskData:
        """The rows of a resolved task."""
        if task not in self._data:
            self._data[task] = tasks.load(task)
        return self._data[task]
