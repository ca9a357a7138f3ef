"""One plain function a command; what needs torch is imported inside.

Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from frostline.cli import flags
from frostline.cli.app import app, console, end, print_json, settings_of
from frostline.cli.flags import flag
from frostline.storage import atomic


@app.command()
def train(
    ctx: typer.Context,
    model: flags.Model,
    task: flags.TaskName,
    save: Annotated[Path, flag("--save", said="new folder for the model")],
    frozen: Annotated[str | None, flag("--frozen", said="how many layers to freeze, or `full`")] = None,
    strategy: Annotated[str | None, flag("--strategy", said="instead of --frozen, any other: e.g. `lora:8`")] = None,
    data: flags.Data = None,
    dev: flags.Dev = None,
    dev_share: flags.DevShare = None,
    text: flags.TextColumn = None,
    text_pair: flags.PairColumn = None,
    label: flags.LabelColumn = None,
    kind: flags.KindName = None,
    metric: flags.Metric = None,
    max_train: flags.MaxTrain = None,
    max_dev: flags.MaxDev = None,
    out: flags.Out = None,
    seeds: Annotated[str | None, flag("--seeds", said="the seed, e.g. `3,`; by default 0")] = None,
    lrs: flags.Rates = None,
    lr: Annotated[float | None, flag("--lr", said="learning rate; by default what the line search chooses")] = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    max_length: flags.MaxLength = None,
    frozen_dropout: flags.FrozenDropout = False,
    no_cache: flags.NoCache = False,
    cache_dtype: flags.CacheDtype = None,
    cache_max_gb: flags.CacheMaxGb = None,
    varlen: flags.Varlen = False,
    threads: flags.Threads = None,
    workers: flags.Workers = None,
    device: flags.Device = None,
    config: flags.Config = None,
    as_json: flags.AsJson = False,
) -> None:
    """One model, as a folder that `from_pretrained`, `pipeline` and `frostline predict` open."""
    settings = settings_of(ctx, locals())
    from frostline import api

    result = api.train(model, task, **settings)
    if as_json:
        print_json(result.to_json())
    else:
        score = f"{result.spec.task.metric} {result.score:.4f} on {result.n_dev} dev rows (chance {result.chance:.4f})"
        for line in (f"{save}: {score}", *(f"take care: {warning}" for warning in result.warnings)):
            console().print(line, highlight=False, markup=False, soft_wrap=True)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a folder that `frostline train --save` made")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, TSV, JSONL or Parquet with the texts")],
    text: flags.TextColumn = None,
    text_pair: flags.PairColumn = None,
    format: Annotated[Literal["csv", "jsonl"], flag("--format", said="csv or jsonl")] = "csv",  # noqa: A002
    to: Annotated[Path | None, flag("--to", said="write there instead of standard output")] = None,
) -> None:
    """The file's columns, then `prediction` and one `probability_<label>` a class."""
    from frostline.saving.save import predict_file

    rows = list(predict_file(folder, file, text=text, text_pair=text_pair, as_json=format == "jsonl"))
    written = _rows(rows, format)
    if to is None:
        sys.stdout.write(written)
    else:
        atomic.write(to, written)


@app.command()
def layers(model: flags.Model, as_json: flags.AsJson = False) -> None:
    """The parameter table, and what each depth trains. The four models of the paper need no download."""
    from frostline.model.census import census
    from frostline.report.terminal import print_layers

    found = census(model)
    if as_json:
        print_json(found.to_json())
    else:
        print_layers(console(), found)


@app.command()
def tasks(as_json: flags.AsJson = False) -> None:
    """What is known, with metrics and columns."""
    from frostline import tasks as known_tasks
    from frostline.report.terminal import print_tasks

    found = known_tasks.known()
    if as_json:
        print_json([task.to_json() for task in found])
    else:
        print_tasks(console(), [(task.name, task.kind, task.metrics, task.columns) for task in found])


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="OUT", help="out folders of `curve` and `find`")],
    format: Annotated[  # noqa: A002
        str | None, flag("--format", said="files to write instead, e.g. `html,md,latex,csv,svg,png,pdf`")
    ] = None,
    to: Annotated[Path | None, flag("--to", said="folder of the files; by default the first OUT")] = None,
    as_json: flags.AsJson = False,
) -> None:
    """What out folders hold, each request apart: on the terminal, or as files `report.<ending>`."""
    from frostline.report.terminal import print_chapters
    from frostline.studies.stored import chapters

    found = [chapter for folder in folders for chapter in chapters(folder)]
    if format is not None:
        from frostline.report.formats.files import write_reports

        for path in write_reports(found, [name.strip() for name in format.split(",")], to or folders[0]):
            console().print(str(path), highlight=False, markup=False, soft_wrap=True)
    elif as_json:
        print_json({"chapters": [chapter.to_json() for chapter in found]})
    else:
        print_chapters(console(), found)


caches = typer.Typer(help="What frozen layers put out, kept on disk: $FROSTLINE_CACHE, else ~/.cache/frostline.")
app.add_typer(caches, name="cache")


@caches.command("ls")
def cache_ls(as_json: flags.AsJson = False) -> None:
    """What is kept, and how large it is."""
    from frostline.report.terminal import print_cache
    from frostline.storage.prefix_cache import Cache, default_folder

    cache = Cache(default_folder())
    entries = cache.entries()
    if as_json:
        print_json({"folder": str(cache.folder), "entries": [entry.to_json() for entry in entries]})
    else:
        print_cache(console(), str(cache.folder), entries)


@caches.command("rm")
def cache_rm(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="a model or task; without it, everything")
    ] = None,
) -> None:
    """Removes what is kept of a model or task, or everything; it is computed again when it is needed."""
    from frostline.report import text
    from frostline.storage.prefix_cache import Cache, default_folder

    n_bytes = Cache(default_folder()).remove(name)
    console().print(f"{text.size(n_bytes)} removed", highlight=False)


@app.command()
def demo(
    out: Annotated[Path, flag("--out", said="folder of the runs")] = Path("runs/demo"),
    workers: flags.Workers = None,
    as_json: flags.AsJson = False,
) -> None:
    """The main job on real weights and real sentences: all-MiniLM-L6-v2, Rotten Tomatoes."""
    from frostline.cli.demo import demo_curve, print_demo

    found = demo_curve(out, workers=workers)
    if as_json:
        print_json(found.to_json())
    else:
        print_demo(console(), found, out)
    end(found.runs.crashed)


def _rows(rows: Sequence[dict[str, str | float]], layout: str) -> str:
    if layout == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
