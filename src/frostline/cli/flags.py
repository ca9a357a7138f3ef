"""The flags of the command line, each described by the record's field it fills; and `--config`, a file of them.

Knows no command.
"""

from __future__ import annotations

import inspect
import types
import typing
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from frostline.records.requests import CurveSpec
from frostline.records.serial import field_docs
from frostline.records.specs import TaskSpec
from frostline.studies.requests.config_file import read_config

_DOCS = {**field_docs(CurveSpec), **field_docs(TaskSpec)}


def flag(*names: str, doc: str | None = None, said: str | None = None) -> Any:
    """An option whose help is the string under the record's field."""
    return typer.Option(*names, help=said or _DOCS[doc or names[0].lstrip("-").replace("-", "_")], show_default=False)


Model = Annotated[str, typer.Argument(metavar="MODEL", help=_DOCS["model"])]
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="a known task (see `frostline tasks`), a CSV, TSV, JSONL or Parquet file, a folder of them or one saved "
        "by `datasets`, or a Hub data set: owner/name, owner/name:config",
    ),
]
Data = Annotated[str | None, flag("--data")]
Dev = Annotated[str | None, flag("--dev")]
DevShare = Annotated[float | None, flag("--dev-share")]
TextColumn = Annotated[str | None, flag("--text")]
PairColumn = Annotated[str | None, flag("--text-pair")]
LabelColumn = Annotated[str | None, flag("--label")]
KindName = Annotated[str | None, flag("--kind")]
Metric = Annotated[str | None, flag("--metric")]
MaxTrain = Annotated[int | None, flag("--max-train")]
MaxDev = Annotated[int | None, flag("--max-dev")]
Out = Annotated[str | None, flag("--out", said="folder of the runs; by default runs/<model>-<task>")]
Frozen = Annotated[str | None, flag("--frozen")]
ScaleName = Annotated[Literal["ratio", "ratio_above_chance"] | None, flag("--scale")]
RerunName = Annotated[Literal["only-missing", "always", "never"] | None, flag("--rerun", said="which runs to do again")]
Strategies = Annotated[
    str,
    flag(
        "--strategies",
        said="what to compare, with commas: full, freeze:N, freeze:+N, layers:1-2+11, reinit:K, transfer:K, lora:R, "
        "lora:R@N, adapter:D, bitfit, norms, features, features:bilstm, gradual",
    ),
]
Seeds = Annotated[str | None, flag("--seeds")]
Rates = Annotated[str | None, flag("--lrs", doc="learning_rates")]
Rate = Annotated[float | None, flag("--lr", said="one learning rate, without a search")]
Epochs = Annotated[int | None, flag("--epochs")]
BatchSize = Annotated[int | None, flag("--batch-size")]
MaxLength = Annotated[int | None, flag("--max-length")]
FrozenDropout = Annotated[bool, flag("--frozen-dropout")]
NoCache = Annotated[bool, flag("--no-cache", said="compute what the frozen layers put out again in every step")]
CacheDtype = Annotated[Literal["fp32", "fp16", "bf16"] | None, flag("--cache-dtype")]
Track = Annotated[
    str | None, flag("--track", said="trackers to tell of each run: tensorboard, mlflow, wandb; several with commas")
]
CacheMaxGb = Annotated[float | None, flag("--cache-max-gb", said="most disk space for prefix states, all in all")]
Varlen = Annotated[bool, flag("--varlen")]
Threads = Annotated[int | None, flag("--threads")]
Workers = Annotated[int | None, flag("--workers", said="runs at a time; by default one a core")]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, flag("--device")]
AsJson = Annotated[bool, flag("--json", said="one JSON object on standard output")]


def _read_config(ctx: typer.Context, file: Path | None) -> Path | None:
    """Puts the settings of a file in the place of the command's defaults: what is given as a flag wins."""
    if file is not None:
        given = read_config(file, _kinds(ctx), ctx.info_name or "")
        ctx.default_map = {"as_json" if name == "json" else name: value for name, value in given.items()}
    return file


Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        callback=_read_config,
        is_eager=True,
        help="TOML, YAML or JSON file with settings by the flags' names, model and task too; flags win",
    ),
]


def overruled(ctx: typer.Context) -> set[str]:
    """Of two flags for one setting, that in the file, where the other stands on the command line."""
    pairs = (("lr", "lrs"), ("lrs", "lr"))
    return {other for one, other in pairs if (_source(ctx, one), _source(ctx, other)) == ("COMMANDLINE", "DEFAULT_MAP")}


def _kinds(ctx: typer.Context) -> dict[str, Any]:
    """The type of each setting of a command, by its flag's name."""
    assert ctx.command.callback is not None
    hints = typing.get_type_hints(inspect.unwrap(ctx.command.callback))
    kinds = {name: _plain(hint) for name, hint in hints.items() if name not in ("ctx", "config", "return")}
    kinds["json"] = kinds.pop("as_json")
    return kinds


def _plain(hint: Any) -> Any:
    """A type without `| None`; text for a path."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(one for one in typing.get_args(hint) if one is not types.NoneType)
    return str if hint is Path else hint


def _source(ctx: typer.Context, name: str) -> str | None:
    """Where a setting comes from."""
    source = ctx.get_parameter_source(name)
    return None if source is None else source.name
