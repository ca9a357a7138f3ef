"""Labelled text: the known tasks, a user's own files, and which of their rows train and are scored."""

from frostline.tasks.demo import demo_model_folder
from frostline.tasks.formats.files import read_columns, read_objects
from frostline.tasks.formats.memory import write_rows
from frostline.tasks.load import TaskOptions, known, load, metrics_of, parse, resolve
from frostline.tasks.split import hold_out
from frostline.tasks.task import Labels, Layout, Rows, Task, TaskData

__all__ = [
    "Labels",
    "Layout",
    "Rows",
    "Task",
    "TaskData",
    "TaskOptions",
    "demo_model_folder",
    "hold_out",
    "known",
    "load",
    "metrics_of",
    "parse",
    "read_columns",
    "read_objects",
    "resolve",
    "write_rows",
]
