"""The command line: commands, and the frame that turns what they raise into a line and an exit code."""

from frostline.cli.main import entry, main

__all__ = ["entry", "main"]
