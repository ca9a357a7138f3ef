"""Tiny models, and suites that hold strategies and executors to their contracts."""
