"""Kinds of task and their metrics."""
