"""Modules and functions that frostline adds to a model or replaces in it."""
