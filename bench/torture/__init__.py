"""Frostline disturbed on purpose: failing calls, power losses, flipped bits, kills, commands that collide.

Each module is a bench with a `main`; `tests/torture` runs a sample of each. `shim` has the library that makes calls
fail, `commands` the commands that are disturbed, and what counts as the same numbers.
"""
