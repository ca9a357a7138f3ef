"""The commands that do many runs: curve, find, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from frostline.cli import flags
from frostline.cli.app import app, console, end, print_json, settings_of
from frostline.cli.flags import flag
from frostline.errors import UsageError

if TYPE_CHECKING:
    from frostline.studies.estimate import Estimate
    from frostline.studies.results import Compared, Found, SizeStudy, Study


@app.command()
def curve(
    ctx: typer.Context,
    model: flags.Model,
    task: flags.TaskName,
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
    frozen: flags.Frozen = None,
    keep: Annotated[list[float] | None, flag("--keep")] = None,
    scale: flags.ScaleName = None,
    seeds: flags.Seeds = None,
    lrs: flags.Rates = None,
    lr: flags.Rate = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    max_length: flags.MaxLength = None,
    protocol: Annotated[Literal["paper", "tuned"] | None, flag("--protocol")] = None,
    probe: Annotated[bool, flag("--probe", said="fit a linear model to what each layer puts out, too")] = False,
    frozen_dropout: flags.FrozenDropout = False,
    no_cache: flags.NoCache = False,
    cache_dtype: flags.CacheDtype = None,
    cache_max_gb: flags.CacheMaxGb = None,
    varlen: flags.Varlen = False,
    threads: flags.Threads = None,
    workers: flags.Workers = None,
    device: flags.Device = None,
    rerun: flags.RerunName = None,
    track: flags.Track = None,
    train_sizes: Annotated[
        str | None, flag("--train-sizes", said="a curve for each of these numbers of training rows: 50,100,200")
    ] = None,
    equal: Annotated[
        Literal["epochs", "steps"] | None,
        flag("--equal", said="with --train-sizes, what is the same at every size: epochs (default) or steps"),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", said="only tell runs, minutes and bytes")] = False,
    config: flags.Config = None,
    as_json: flags.AsJson = False,
) -> None:
    """Line search, full model, every depth, several seeds; operating points."""
    settings = settings_of(ctx, locals())
    if train_sizes is not None:
        _show_grid(model, task, settings, dry_run=dry_run, as_json=as_json)
        return
    if equal is not None:
        raise UsageError("--equal is for --train-sizes; give those too")
    _show_curve(model, task, settings, dry_run=dry_run, as_json=as_json)


@app.command()
def find(
    ctx: typer.Context,
    model: flags.Model,
    task: flags.TaskName,
    keep: Annotated[float | None, flag("--keep", said="share of the full score to keep; by default 0.9")] = None,
    scale: flags.ScaleName = None,
    confidence: Annotated[
        float | None, flag("--confidence", said="how sure the answer must be; by default 0.95")
    ] = None,
    budget: Annotated[
        float | None, flag("--budget", said="most to spend, in full runs; by default half of the whole curve's cost")
    ] = None,
    save: Annotated[Path | None, flag("--save", said="new folder for the answer's model")] = None,
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
    frozen: flags.Frozen = None,
    seeds: flags.Seeds = None,
    lrs: flags.Rates = None,
    lr: flags.Rate = None,
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
    rerun: flags.RerunName = None,
    track: flags.Track = None,
    config: flags.Config = None,
    as_json: flags.AsJson = False,
) -> None:
    """The fewest layers that keep a share of the full score, with as few runs as the evidence needs."""
    settings = settings_of(ctx, locals())
    from frostline import api

    found = api.find(model, task, **settings)
    _show(found, found.runs.crashed, as_json=as_json)


@app.command()
def compare(
    ctx: typer.Context,
    model: flags.Model,
    task: flags.TaskName,
    strategies: flags.Strategies,
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
    seeds: flags.Seeds = None,
    lrs: flags.Rates = None,
    lr: flags.Rate = None,
    epochs: flags.Epochs = None,
    batch_size: flags.BatchSize = None,
    max_length: flags.MaxLength = None,
    protocol: Annotated[
        Literal["paper", "tuned"] | None,
        flag("--protocol", said="`tuned` (default): a rate for each strategy; `paper`: the full model's for all"),
    ] = None,
    frozen_dropout: flags.FrozenDropout = False,
    no_cache: flags.NoCache = False,
    cache_dtype: flags.CacheDtype = None,
    cache_max_gb: flags.CacheMaxGb = None,
    varlen: flags.Varlen = False,
    threads: flags.Threads = None,
    workers: flags.Workers = None,
    device: flags.Device = None,
    rerun: flags.RerunName = None,
    track: flags.Track = None,
    dry_run: Annotated[bool, flag("--dry-run", said="only tell runs, minutes and bytes")] = False,
    config: flags.Config = None,
    as_json: flags.AsJson = False,
) -> None:
    """Strategies under one protocol, a rate for each, several seeds: quality against cost."""
    settings = settings_of(ctx, locals())
    from frostline import api

    if dry_run:
        _show_estimate(api.dry_run_compare(model, task, **settings), as_json=as_json)
        return
    found = api.compare(model, task, **settings)
    _show(found, found.runs.crashed, as_json=as_json)


def _show_curve(model: str, task: str, settings: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from frostline import api

    if dry_run:
        _show_estimate(api.dry_run(model, task, **settings), as_json=as_json)
        return
    found = api.curve(model, task, **settings)
    _show(found, found.runs.crashed, as_json=as_json)


def _show_grid(model: str, task: str, settings: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from frostline import api

    if dry_run:
        raise UsageError("--dry-run is for one curve; leave --train-sizes out and give --max-train for each size")
    found = api.grid(model, task, **settings)
    _show(found, found.n_crashed, as_json=as_json)


def _show_estimate(estimate: Estimate, *, as_json: bool) -> None:
    if as_json:
        print_json(estimate.to_json())
    else:
        console().print(estimate.text, highlight=False, soft_wrap=True)


def _show(found: Study | Found | Compared | SizeStudy, n_crashed: int, *, as_json: bool) -> None:
    from frostline.report.terminal import print_chapters

    if as_json:
        print_json(found.to_json())
    else:
        print_chapters(console(), found.chapters)
    end(n_crashed)
