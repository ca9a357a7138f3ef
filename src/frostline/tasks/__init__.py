"""Labelled text: known tasks, own data, and which rows train and which are scored."""

from frostline.tasks.demo import demo_model_folder
from frostline.tasks.formats.files import read_columns, read_objects
from frostline.tasks.formats.memory import write_rows
from frostline.tasks.load import OpenedTask, TaskOptions, known, load, metrics_of, open_task, parse, resolve
from frostline.tasks.split import balanced_order, hold_out, subset_order
from frostline.tasks.task import GlueFiles, Rows, Task, TaskData

__all__ = [
    "GlueFiles",
    "OpenedTask",
    "Rows",
    "Task",
    "TaskData",
    "TaskOptions",
    "balanced_order",
    "demo_model_folder",
    "hold_out",
    "known",
    "load",
    "metrics_of",
    "open_task",
    "parse",
    "read_columns",
    "read_objects",
    "resolve",
    "subset_order",
    "write_rows",
]
