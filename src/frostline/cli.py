"""The command line: one plain function a command; what needs torch is imported inside.

Results go to standard output, progress to standard error. Every error that frostline can explain is one line.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from frostline import atomic
from frostline.analysis import Curve
from frostline.errors import EXIT_BUG, EXIT_CRASHED_RUNS, EXIT_INTERRUPTED, EXIT_USAGE, FrostlineError
from frostline.records import CurveSpec, TaskSpec
from frostline.serial import field_docs

app = typer.Typer(
    name="frostline",
    help="How many of the last layers of a pretrained transformer need fine-tuning, and what training fewer costs.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_DOCS = {**field_docs(CurveSpec), **field_docs(TaskSpec)}


def _flag(*names: str, doc: str | None = None, said: str | None = None) -> Any:
    """An option whose help is the string under the record's field."""
    return typer.Option(*names, help=said or _DOCS[doc or names[0].lstrip("-").replace("-", "_")], show_default=False)


Model = Annotated[str, typer.Argument(metavar="MODEL", help=_DOCS["model"])]
TaskName = Annotated[
    str,
    typer.Argument(metavar="TASK", help="a known task (see `frostline tasks`), or a CSV or TSV file or folder"),
]
Data = Annotated[str | None, _flag("--data")]
Dev = Annotated[str | None, _flag("--dev")]
DevShare = Annotated[float | None, _flag("--dev-share")]
TextColumn = Annotated[str | None, _flag("--text")]
PairColumn = Annotated[str | None, _flag("--text-pair")]
LabelColumn = Annotated[str | None, _flag("--label")]
KindName = Annotated[str | None, _flag("--kind")]
Metric = Annotated[str | None, _flag("--metric")]
MaxTrain = Annotated[int | None, _flag("--max-train")]
MaxDev = Annotated[int | None, _flag("--max-dev")]
Out = Annotated[Path | None, _flag("--out", said="folder of the runs; by default runs/<model>-<task>")]
Seeds = Annotated[str | None, _flag("--seeds")]
Rates = Annotated[str | None, _flag("--lrs", doc="learning_rates")]
Rate = Annotated[float | None, _flag("--lr", said="one learning rate, without a search")]
Epochs = Annotated[int | None, _flag("--epochs")]
BatchSize = Annotated[int | None, _flag("--batch-size")]
MaxLength = Annotated[int | None, _flag("--max-length")]
FrozenDropout = Annotated[bool, _flag("--frozen-dropout")]
NoCache = Annotated[bool, _flag("--no-cache", said="compute what the frozen layers put out again in every step")]
CacheMaxGb = Annotated[float | None, _flag("--cache-max-gb", said="most memory for kept prefix states, a process")]
Threads = Annotated[int | None, _flag("--threads")]
Workers = Annotated[int | None, _flag("--workers", said="runs at a time; by default one a core")]
Device = Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, _flag("--device")]
AsJson = Annotated[bool, _flag("--json", said="one JSON object on standard output")]


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


@app.command()
def curve(
    model: Model,
    task: TaskName,
    data: Data = None,
    dev: Dev = None,
    dev_share: DevShare = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    kind: KindName = None,
    metric: Metric = None,
    max_train: MaxTrain = None,
    max_dev: MaxDev = None,
    out: Out = None,
    frozen: Annotated[str | None, _flag("--frozen")] = None,
    keep: Annotated[list[float] | None, _flag("--keep")] = None,
    scale: Annotated[Literal["ratio", "ratio_above_chance"] | None, _flag("--scale")] = None,
    seeds: Seeds = None,
    lrs: Rates = None,
    lr: Rate = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    max_length: MaxLength = None,
    protocol: Annotated[Literal["paper", "tuned"] | None, _flag("--protocol")] = None,
    frozen_dropout: FrozenDropout = False,
    no_cache: NoCache = False,
    cache_max_gb: CacheMaxGb = None,
    threads: Threads = None,
    workers: Workers = None,
    device: Device = None,
    rerun: Annotated[
        Literal["only-missing", "always", "never"] | None, _flag("--rerun", said="which runs to do again")
    ] = None,
    dry_run: Annotated[bool, _flag("--dry-run", said="only tell runs, minutes and bytes")] = False,
    as_json: AsJson = False,
) -> None:
    """Line search, full model, every depth, several seeds; operating points."""
    settings = _settings(locals())
    _show_curve(model, task, settings, dry_run=dry_run, as_json=as_json)


@app.command()
def train(
    model: Model,
    task: TaskName,
    frozen: Annotated[str, _flag("--frozen", said="how many layers to freeze, or `full`")],
    save: Annotated[Path, _flag("--save", said="new folder for the model")],
    data: Data = None,
    dev: Dev = None,
    dev_share: DevShare = None,
    text: TextColumn = None,
    text_pair: PairColumn = None,
    label: LabelColumn = None,
    kind: KindName = None,
    metric: Metric = None,
    max_train: MaxTrain = None,
    max_dev: MaxDev = None,
    out: Out = None,
    seeds: Annotated[str | None, _flag("--seeds", said="the seed, e.g. `3,`; by default 0")] = None,
    lrs: Rates = None,
    lr: Annotated[float | None, _flag("--lr", said="learning rate; by default what the line search chooses")] = None,
    epochs: Epochs = None,
    batch_size: BatchSize = None,
    max_length: MaxLength = None,
    frozen_dropout: FrozenDropout = False,
    no_cache: NoCache = False,
    cache_max_gb: CacheMaxGb = None,
    threads: Threads = None,
    workers: Workers = None,
    device: Device = None,
    as_json: AsJson = False,
) -> None:
    """One model, as a folder that `from_pretrained`, `pipeline` and `frostline predict` open."""
    settings = _settings(locals())
    from frostline import api

    result = api.train(model, task, frozen=frozen, save=save, **settings)
    if as_json:
        _print_json(result.to_json())
    else:
        score = f"{result.spec.task.metric} {result.score:.4f} on {result.n_dev} dev rows (chance {result.chance:.4f})"
        _console().print(f"{save}: {score}", highlight=False, soft_wrap=True)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a folder that `frostline train --save` made")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV or TSV with the texts")],
    text: TextColumn = None,
    text_pair: PairColumn = None,
    format: Annotated[Literal["csv", "jsonl"], _flag("--format", said="csv or jsonl")] = "csv",  # noqa: A002
    to: Annotated[Path | None, _flag("--to", said="write there instead of standard output")] = None,
) -> None:
    """The file's columns, then `prediction` and one `probability_<label>` a class."""
    from frostline.export import predict_file

    rows = list(predict_file(folder, file, text=text, text_pair=text_pair))
    written = _rows(rows, format)
    if to is None:
        sys.stdout.write(written)
    else:
        atomic.write(to, written)


@app.command()
def layers(model: Model, as_json: AsJson = False) -> None:
    """The parameter table, and what each depth trains. The four models of the paper need no download."""
    from frostline.report.terminal import print_layers
    from frostline.stack.census import census

    found = census(model)
    if as_json:
        _print_json(found.to_json())
    else:
        print_layers(_console(), found)


@app.command()
def tasks(as_json: AsJson = False) -> None:
    """What is known, with metrics and columns."""
    from frostline import tasks as known_tasks
    from frostline.report.terminal import print_tasks

    found = known_tasks.known()
    if as_json:
        _print_json([task.to_json() for task in found])
    else:
        print_tasks(_console(), [(task.name, task.kind, task.metrics, task.columns) for task in found])


@app.command()
def demo(
    out: Annotated[Path, _flag("--out", said="folder of the runs")] = Path("runs/demo"),
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """The main job on real weights and real sentences: all-MiniLM-L6-v2, Rotten Tomatoes."""
    from frostline.demo import demo_curve, print_demo

    found = demo_curve(out, workers=workers)
    if as_json:
        _print_json(found.to_json())
    else:
        print_demo(_console(), found, out)
    _end(found)


def _show_curve(model: str, task: str, settings: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from frostline import api
    from frostline.report.terminal import print_curve

    if dry_run:
        estimate = api.dry_run(model, task, **settings)
        if as_json:
            _print_json(estimate.to_json())
        else:
            _console().print(estimate.text, highlight=False, soft_wrap=True)
        return
    found = api.curve(model, task, **settings)
    if as_json:
        _print_json(found.to_json())
    else:
        print_curve(_console(), found)
    _end(found)


def _end(curve: Curve) -> None:
    """Tells by the exit code that runs crashed."""
    if curve.runs.crashed:
        raise typer.Exit(EXIT_CRASHED_RUNS)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, by the names Python users know."""
    apart = {"model", "task", "dry_run", "as_json", "no_cache", "frozen_dropout", "save"}
    settings = {name: value for name, value in given.items() if name not in apart and value is not None}
    if given.get("no_cache"):
        settings["cache"] = False
    if given.get("frozen_dropout"):
        settings["frozen_dropout"] = True
    if "save" in given:
        settings.pop("frozen", None)
    return settings


def _console() -> Console:
    return Console()


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def _rows(rows: Sequence[dict[str, str | float]], layout: str) -> str:
    if layout == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def _dashed(arguments: Iterable[str]) -> list[str]:
    """Flags with `-` for `_`: both are the same to us."""
    fixed = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        fixed.append(name.replace("_", "-") + equals + value if name.startswith("--") else argument)
    return fixed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=_dashed(given) or ["--help"], prog_name="frostline", standalone_mode=False)
    except FrostlineError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(error.format_message(), EXIT_USAGE)
    except Exception:  # noqa: BLE001 - the outer frame
        traceback.print_exc()
        return _fail("this is a fault of frostline; please report it with the lines above", EXIT_BUG)
    if code == EXIT_INTERRUPTED:  # what typer makes of Ctrl-C
        return _fail("interrupted; finished runs are kept, the same command goes on from there", code)
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"frostline: {' '.join(message.split())}\n")
    return code


def entry() -> None:
    """What the `frostline` script calls."""
    sys.exit(main())
