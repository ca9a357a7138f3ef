"""The commands that train nothing themselves: predict, report, layers, tasks, cache; and the demo.

What needs torch is imported inside. Results go to standard output, progress to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from frostline.cli.app import app
from frostline.cli.checks import end_check
from frostline.cli.flags import AsJson, Model, console, end, option, print_json
from frostline.errors import UsageError, printable
from frostline.model.files.folders import check_model_files, check_saved
from frostline.records.requests import RunOptions
from frostline.records.serial import field_docs
from frostline.records.specs import TaskSpec
from frostline.storage import atomic

_TASK, _OPTIONS = field_docs(TaskSpec), field_docs(RunOptions)


@app.command()
def predict(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR", help="a folder that `train --save` or `find --save` made, or one or more bundles"
        ),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV, TSV, JSONL or Parquet with the texts")],
    text: Annotated[str | None, option(_TASK["text"], "--text", default="as in training")] = None,
    text_pair: Annotated[str | None, option(_TASK["text_pair"], "--text-pair", default="as in training")] = None,
    trunk: Annotated[
        str | None, option("the model that bundles were made for", "--trunk", default="what the bundles name")
    ] = None,
    format: Annotated[Literal["csv", "jsonl"], option("csv or jsonl", "--format", default="csv")] = "csv",  # noqa: A002
    to: Annotated[Path | None, option("new file to write", "--to", default="standard output")] = None,
    overwrite: Annotated[bool, option("let --to replace a file that exists", "--overwrite", default="off")] = False,
) -> None:
    """Predict with a saved model: the file's columns, then `prediction` and one `probability_<label>` per class.

    With several bundles, columns per task: `<task>_prediction`, …; layers that they share are computed once.
    """
    if to is not None and to.exists() and not overwrite:
        raise UsageError(f"--to {to} exists already; give another name, or add --overwrite to replace it")
    if len(folders) == 1:
        check_saved(folders[0])
    from frostline.tasks.formats.files import check_path

    check_path(file)
    from frostline.serving.predicting import predict_file  # with torch

    rows = predict_file(folders, file, text=text, text_pair=text_pair, trunk=trunk, as_json=format == "jsonl")
    written = _rows(rows, format)
    if to is None:
        sys.stdout.write(printable(written) if sys.stdout.isatty() else written)
    else:
        atomic.write(to, written)


@app.command()
def layers(model: Model, as_json: AsJson = False) -> None:
    """Show where a model's parameters are and how many each depth trains. The paper's models need no download."""
    check_model_files(model, needs_weights=False)
    from frostline.model.census import census
    from frostline.report.terminal import print_layers

    found = census(model)
    if as_json:
        print_json(found.to_json())
    else:
        print_layers(console(), found)


@app.command()
def tasks(as_json: AsJson = False) -> None:
    """List the known tasks with their metrics and columns."""
    from frostline import tasks as known_tasks
    from frostline.report.terminal import print_tasks

    found = known_tasks.known()
    if as_json:
        print_json([task.to_json() for task in found])
    else:
        print_tasks(console(), [(task.name, task.kind, task.metrics, task.columns) for task in found])


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="OUT", help="output folders of any study")],
    format: Annotated[  # noqa: A002
        str | None, option("files to write instead, e.g. `html,md,latex,csv,svg,png,pdf`", "--format")
    ] = None,
    to: Annotated[Path | None, option("folder of the files; by default the first OUT", "--to")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what output folders hold, on the terminal or as files `report.<ending>`."""
    from frostline.report.terminal import print_chapters
    from frostline.studies.registry import chapters

    found = [chapter for folder in folders for chapter in chapters(folder)]
    if format is not None:
        from frostline.report.formats.registry import write_reports

        for path in write_reports(found, [name.strip() for name in format.split(",")], to or folders[0]):
            console().print(str(path), highlight=False, markup=False, soft_wrap=True)
    elif as_json:
        print_json({"chapters": [chapter.to_json() for chapter in found]})
    else:
        print_chapters(console(), found)


@app.command()
def check(
    folder: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="an output folder, a model that `train --save` saved, or a bundle"),
    ],
    repair: Annotated[
        bool, option("move damaged files aside; remove what nothing refers to or a killed process left", "--repair")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify every stored file of an output folder, a saved model or a bundle. Exit code 3 if anything is wrong."""
    from frostline.cli.checks import end_check
    from frostline.report.numbers import counted
    from frostline.saving.manifest import FILE_NAME, check_saved
    from frostline.serving.bundle import check_bundle, is_bundle
    from frostline.storage.check import check_folder, is_output_folder

    if is_output_folder(folder):
        found = check_folder(folder, repair=repair)
        files, findings, warnings = counted(found.n_files, "file"), found.findings, found.warnings
    elif (folder / FILE_NAME).exists():
        files, findings, warnings = "all files", check_saved(folder), []
    elif is_bundle(folder):
        files, findings, warnings = "all files", check_bundle(folder), []
    else:
        raise UsageError(f"{folder} is neither a frostline output folder nor a model or bundle that frostline saved")
    end_check(str(folder), files, findings, warnings, as_json=as_json)


caches = typer.Typer(
    help="Cached prefix states on disk: $FROSTLINE_CACHE, else $XDG_CACHE_HOME/frostline, else ~/.cache/frostline."
)
app.add_typer(caches, name="cache")


@caches.command("ls")
def cache_ls(as_json: AsJson = False) -> None:
    """List cached prefix states and their sizes."""
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
    """Remove cached states of a model or task, or all; they are computed again when needed."""
    from frostline.report import numbers
    from frostline.storage.prefix_cache import Cache, default_folder

    n_bytes = Cache(default_folder()).remove(name)
    console().print(f"{numbers.size(n_bytes)} removed", highlight=False)


@caches.command("check")
def cache_check(
    repair: Annotated[
        bool, option("remove what is damaged or left over; it is computed again when needed", "--repair", default="off")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read every cached array and list what is damaged, foreign or left over by a killed process."""
    from frostline.report import numbers
    from frostline.storage.prefix_cache import Cache, default_folder

    cache = Cache(default_folder())
    n_arrays = sum(len(shelf.depths()) for shelf in cache.shelves())
    end_check(str(cache.folder), numbers.counted(n_arrays, "array"), cache.check(repair=repair), as_json=as_json)


@app.command()
def demo(
    out: Annotated[Path, option("folder of the runs", "--out")] = Path("runs/demo"),
    workers: Annotated[int | None, option(_OPTIONS["n_workers"], "--workers", default="one per core")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a curve on real weights and sentences: all-MiniLM-L6-v2 on Rotten Tomatoes."""
    from frostline.cli.demo import print_demo, run_demo

    curve, plain_seconds = run_demo(out, workers=workers)
    if as_json:
        print_json(curve.to_json())
    else:
        print_demo(console(), curve, plain_seconds, out)
    end(curve.runs.crashed)


def _rows(rows: Sequence[dict[str, str | float]], layout: str) -> str:
    if layout == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    from frostline.report.formats.spreadsheet import as_csv

    return as_csv(list(rows[0]), rows)
