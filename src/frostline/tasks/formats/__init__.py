"""Readers: one per file format, data sets of the Hub, and objects in memory."""
