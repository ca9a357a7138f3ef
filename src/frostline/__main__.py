"""`python -m frostline`."""

from frostline.cli import entry

entry()
