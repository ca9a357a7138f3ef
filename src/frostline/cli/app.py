"""The app that commands register with. Its help lists the main commands first."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_ORDER = ("demo", "find", "curve", "compare", "train", "predict", "report")
"""the main commands; the others follow"""


class _MainFirst(TyperGroup):
    """Lists the main commands first."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


app = typer.Typer(
    name="frostline",
    cls=_MainFirst,
    help="How many of the last layers of a pretrained transformer need fine-tuning, and what training fewer costs.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        sys.stdout.write(f"frostline {metadata.version('frostline')}\n")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    """Options of all commands."""
