"""Measures look at the model of a run once it is trained and scored. There is one file per measure, and a table."""

from __future__ import annotations

from frostline.measures.measure import Arrays, Measure, RowBatch, RowSource, Subject
from frostline.measures.registry import parse

__all__ = ["Arrays", "Measure", "RowBatch", "RowSource", "Subject", "parse"]
