"""Modules that we add to a model, or replace in it."""
