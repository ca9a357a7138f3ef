"""The commands that train: find, curve, compare, train. Each passes its settings to the function of the same name in
`frostline.api` and prints what comes back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from frostline.cli.app import app
from frostline.cli.flags import AsJson, DryRun, Model, TaskName, console, end, flagged, print_json, say
from frostline.errors import UsageError
from frostline.studies.requests.inside_settings import ChangeSettings, HeadsSettings, ScoutSettings
from frostline.studies.requests.settings import FewSettings, FindSettings, SizesSettings, TrainSettings


@app.command()
@flagged(FindSettings)
def find(
    model: Model, task: TaskName, settings: dict[str, Any], dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Find the fewest layers that keep a share of the full score, with as few runs as the evidence needs."""
    _study("find", model, task, settings, dry_run=dry_run, as_json=as_json)


@app.command()
@flagged(SizesSettings)
def curve(
    model: Model, task: TaskName, settings: dict[str, Any], dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Train at every depth with several seeds, and show where each share of the full score is reached."""
    if "equal" in settings and "train_sizes" not in settings:
        raise UsageError("--equal is for --train-sizes; give those too")
    is_rates = settings.get("rates_at_depths", False)
    if is_rates and "train_sizes" in settings:
        raise UsageError("--rates-at-depths and --train-sizes are both given; give one of them")
    if not dry_run:
        settings.pop("rates_at_depths", None)
    name = "rates" if is_rates else "sizes" if "train_sizes" in settings else "curve"
    _study(name, model, task, settings, dry_run=dry_run, as_json=as_json)


@app.command()
@flagged(FewSettings, required=("strategies",))
def compare(
    model: Model, task: TaskName, settings: dict[str, Any], dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Compare strategies (freezing, LoRA, adapters, …) under one protocol: quality against cost."""
    if "steps" in settings and "per_class" not in settings:
        raise UsageError("--steps is for --per-class; give that too, or use --epochs")
    name = "few" if "per_class" in settings and not dry_run else "compare"
    _study(name, model, task, settings, dry_run=dry_run, as_json=as_json)


@app.command()
@flagged(HeadsSettings)
def heads(model: Model, task: TaskName, settings: dict[str, Any], as_json: AsJson = False) -> None:
    """Show which attention heads matter: importance of each, and the score when they are pruned. Nothing trains."""
    _study("heads", model, task, settings, dry_run=False, as_json=as_json)


@app.command()
@flagged(ChangeSettings)
def change(
    model: Model,
    task: Annotated[str, typer.Argument(metavar="TASK|TUNED", help="a task; or a folder fine-tuned from MODEL")],
    settings: dict[str, Any],
    rows_of: Annotated[
        str | None, typer.Argument(metavar="[TASK]", help="after TUNED: the task of the dev rows")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Show what fine-tuning changes: attention maps, states and weights, layer by layer; or of a given model."""
    if (Path(task) / "config.json").is_file():
        settings["tuned"], task = Path(task), rows_of or ""
    elif rows_of is not None:
        raise UsageError(f"{task} is not a model folder: it has no config.json; write `change MODEL TUNED TASK`")
    if dry_run and "tuned" in settings:
        raise UsageError("--dry-run is for runs; two given models are compared without any")
    _study("change", model, task or None, settings, dry_run=dry_run, as_json=as_json)


@app.command()
@flagged(ScoutSettings)
def scout(model: Model, task: TaskName, settings: dict[str, Any], as_json: AsJson = False) -> None:
    """Predict the depth before training, from one forward pass and a few gradients, and show how right it has been."""
    _study("scout", model, task, settings, dry_run=False, as_json=as_json)


@app.command()
@flagged(TrainSettings)
def train(model: Model, task: TaskName, settings: dict[str, Any], as_json: AsJson = False) -> None:
    """Train one model and save it: for `from_pretrained`, `pipeline` and `predict` (--save), or as a bundle."""
    from frostline import api

    result = api.train(model, task, **settings)
    if as_json:
        print_json(result.to_json())
        return
    score = f"{result.spec.task.metric} {result.score:.4f} on {result.n_dev} dev rows (chance {result.chance:.4f})"
    say(f"{_places(settings)}: {score}")


def _study(name: str, model: str, task: str | None, settings: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    from frostline import api
    from frostline.report.terminal import print_chapters

    if dry_run:
        command = "curve" if name in ("sizes", "rates") else name
        estimate = api.dry_run(model, task, command=command, **settings)  # type: ignore[arg-type]
        print_json(estimate.to_json()) if as_json else say(estimate.text)
        return
    result = getattr(api, name)(model, task, **settings)
    if as_json:
        print_json(result.to_json())
    else:
        print_chapters(console(), result.chapters)
        if _places(settings):
            say(f"Saved in {_places(settings)}: {result.answer_words}")
    end(result.n_crashed)


def _places(settings: dict[str, Any]) -> str:
    """The folders that a model was saved in."""
    return " and ".join(str(settings[name]) for name in ("save", "bundle") if settings.get(name))
