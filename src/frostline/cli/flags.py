"""Settings as flags of the command line, and `--config`, a file of them.

A command is a plain function of model, task and settings. `flagged` gives it the signature that typer reads: one
parameter for each setting that its class in `studies/requests/settings.py` declares. Knows no command.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from frostline.errors import EXIT_CRASHED_RUNS
from frostline.records.requests import StudyRequest
from frostline.records.serial import field_docs
from frostline.studies.requests.config_file import read_config
from frostline.studies.requests.setting import Setting, settings_of

Model = Annotated[str, typer.Argument(metavar="MODEL", help=field_docs(StudyRequest)["model"])]
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="a known task (see `frostline tasks`), a CSV, TSV, JSONL or Parquet file, a folder of files or one saved "
        "by `datasets`, or a Hub data set: owner/name or owner/name:config",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="print one JSON object", rich_help_panel="Output", show_default="off"),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="estimate runs, time and disk use, then exit",
        rich_help_panel="Output",
        show_default="off",
    ),
]

Command = Callable[..., None]


def option(text: str, *names: str, default: str | None = None) -> Any:
    """A flag that belongs to one command only."""
    return typer.Option(*names, help=text, show_default=default or False)


def flagged(declared: Any, *, required: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Gives a command the flags that a class declares; they arrive in its parameter `settings`, by name.

    Args:
        declared: a class of `studies/requests/settings.py`.
        required: names of settings that must be given.
    """
    known = {name: one for name, one in settings_of(declared).items() if not one.is_python_only}

    def decorate(command: Command) -> Command:
        own = list(inspect.signature(command, eval_str=True).parameters.values())
        arguments = [one for one in own if one.name in ("model", "task")]
        switches = [one for one in own if one.name not in ("model", "task", "settings")]
        flags = [_parameter(one, is_required=one.name in required) for one in known.values()]

        def call(ctx: typer.Context, **given: Any) -> None:
            apart = {name: given.pop(name) for name in [one.name for one in (*arguments, *switches)]}
            given.pop("config")
            command(**apart, settings=_given(ctx, known, given))

        signature = [_CONTEXT, *arguments, *flags, *switches, _config_parameter(known)]
        keyword_only = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in signature]
        vars(call)["__signature__"] = inspect.Signature(keyword_only)
        call.__annotations__ = {one.name: one.annotation for one in keyword_only}
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        return call

    return decorate


_OTHERS = {"model": str, "task": str, "json": bool, "dry_run": bool}
"""what a config file may hold beside settings"""
_CONTEXT = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def _parameter(setting: Setting, *, is_required: bool) -> inspect.Parameter:
    is_switch = setting.type is bool
    default = ("off" if setting.is_negated else setting.default) or False
    info = typer.Option(
        setting.flag, help=setting.help, rich_help_panel=setting.panel, show_default=False if is_required else default
    )
    kind = setting.type if is_switch or is_required else setting.type | None
    nothing: Any = inspect.Parameter.empty if is_required else False if is_switch else None
    return inspect.Parameter(
        _parameter_name(setting), inspect.Parameter.KEYWORD_ONLY, default=nothing, annotation=Annotated[kind, info]
    )


def _parameter_name(setting: Setting) -> str:
    return setting.flag[2:].replace("-", "_")


def _config_parameter(known: Mapping[str, Setting]) -> inspect.Parameter:
    """`--config`: the settings of a file take the place of the command's defaults, and flags win."""
    by_flag = {_parameter_name(one): one for one in known.values()}
    others = {name: Setting.plain(name, kind) for name, kind in _OTHERS.items()}

    def read(ctx: typer.Context, file: Path | None) -> Path | None:
        if file is not None:
            given = read_config(file, by_flag | others, ctx.info_name or "")
            ctx.default_map = {"as_json" if name == "json" else name: value for name, value in given.items()}
        return file

    info = typer.Option(
        "--config",
        callback=read,
        is_eager=True,
        rich_help_panel="Output",
        show_default="none",
        help="TOML, YAML or JSON file with settings by flag name, model and task too; flags win over it",
    )
    annotation = Annotated[Path | None, info]
    return inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _given(ctx: typer.Context, known: Mapping[str, Setting], values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given, by the names that Python users know."""
    given = {}
    for name, setting in known.items():
        value = values[_parameter_name(setting)]
        if value is None or value is False or name in _overruled(ctx):
            continue
        given[name] = False if setting.is_negated else value
    return given


def _overruled(ctx: typer.Context) -> set[str]:
    """Of `lr` and `lrs`, the one in the config file where the other is on the command line."""
    pairs = (("lr", "lrs"), ("lrs", "lr"))
    return {other for one, other in pairs if (_source(ctx, one), _source(ctx, other)) == ("COMMANDLINE", "DEFAULT_MAP")}


def _source(ctx: typer.Context, name: str) -> str | None:
    source = ctx.get_parameter_source(name)
    return None if source is None else source.name


def console() -> Console:
    """Where results are printed."""
    from frostline.report.terminal import Screen  # `--help` needs none of what it imports

    return Screen()


def say(line: str) -> None:
    """One line on standard output, as it is."""
    console().print(line, highlight=False, markup=False, soft_wrap=True)


def print_json(value: object) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def end(n_crashed: int) -> None:
    """Ends with the exit code for crashed runs, if there are any."""
    if n_crashed:
        raise typer.Exit(EXIT_CRASHED_RUNS)
