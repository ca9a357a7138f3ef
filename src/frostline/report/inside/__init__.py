"""Chapters of the studies of the inside of the layers."""
