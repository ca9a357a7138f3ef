"""The command line's frame: the app that commands register with, and what they share."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from rich.console import Console

from frostline.cli import flags
from frostline.errors import EXIT_CRASHED_RUNS

app = typer.Typer(
    name="frostline",
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
    """What is common to all commands."""


def settings_of(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, by the names Python users know."""
    apart = {"ctx", "config", "model", "task", "dry_run", "as_json", "no_cache"}
    apart |= flags.overruled(ctx)
    given = {name: value for name, value in given.items() if value is not None and value is not False}  # a switch off
    settings = {name: value for name, value in given.items() if name not in apart}
    return settings | ({"cache": False} if given.get("no_cache") else {})


def console() -> Console:
    """Where results are printed."""
    return Console()


def print_json(value: object) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def end(n_crashed: int) -> None:
    """Tells by the exit code that runs crashed."""
    if n_crashed:
        raise typer.Exit(EXIT_CRASHED_RUNS)
