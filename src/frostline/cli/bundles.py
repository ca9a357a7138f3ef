"""The command `bundle`: make a bundle of a fine-tuned model, or merge one with its base again.

`frostline bundle MODEL_DIR …` is short for `frostline bundle make MODEL_DIR …`. A folder whose name is that of a
sub-command is written with a path: `./merge`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from frostline.cli.app import app
from frostline.cli.flags import AsJson, option, print_json, say
from frostline.errors import UsageError
from frostline.records.serial import field_docs
from frostline.records.specs import BundleDtype, TaskSpec

_TASK = field_docs(TaskSpec)
_BASE = "the model that was fine-tuned: a folder with safetensors, the demo's model, or a name on the Hub"


class _MakeByDefault(TyperGroup):
    """Runs `make` where no sub-command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, with the name of a sub-command first."""
        if args and args[0] not in (*self.commands, "--help", "-h"):
            args = ["make", *args]
        return super().parse_args(ctx, args)


bundles = typer.Typer(
    cls=_MakeByDefault,
    help="Make a bundle of a fine-tuned model: only what its task adds to its base. `make` may be left out.",
)
app.add_typer(bundles, name="bundle")


@bundles.command("make")
def bundle_make(
    folder: Annotated[Path, typer.Argument(metavar="MODEL_DIR", help="a fine-tuned transformers folder, of any tool")],
    base: Annotated[str, option(_BASE, "--base")],
    save: Annotated[Path, option("new folder for the bundle", "--save")],
    name: Annotated[str | None, option("the task's name when it is served", "--name", default="MODEL_DIR's")] = None,
    dtype: Annotated[
        BundleDtype, option("number format; fp16 and bf16 take half the space", "--dtype", default="fp32")
    ] = "fp32",
    dev: Annotated[Path | None, option("labelled rows, to measure the score", "--dev", default="none")] = None,
    text: Annotated[str | None, option(_TASK["text"], "--text", default="found by name")] = None,
    text_pair: Annotated[str | None, option(_TASK["text_pair"], "--text-pair")] = None,
    label: Annotated[str, option(_TASK["label"], "--label", default="label")] = "label",
    metric: Annotated[str | None, option(_TASK["metric"], "--metric", default="the kind's first")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a bundle of any fine-tuned model, by finding how deep it agrees with its base."""
    if dev is None and any(given is not None for given in (text, text_pair, metric)):
        raise UsageError("--text, --text-pair and --metric are for the rows of --dev; give those too")
    from frostline.serving.bundles.cards import sharing, size
    from frostline.serving.bundles.folders import DevRows, bundle_folder

    rows = None if dev is None else DevRows(file=dev, text=text, text_pair=text_pair, label=label, metric=metric)
    made = bundle_folder(folder, base, save, name=name, dtype=dtype, dev=rows)
    if as_json:
        print_json({"folder": str(save), "hash": made.bundle.hash, **made.bundle.manifest.to_json()})
        return
    say(f"{save}: {size(made.bundle)}. {sharing(made.bundle.manifest)}")
    for warning in made.warnings:
        say(f"warning: {warning}")


@bundles.command("merge")
def bundle_merge(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="a bundle")],
    base: Annotated[str, option(_BASE, "--base")],
    save: Annotated[Path, option("new folder for the model", "--save")],
) -> None:
    """Give an ordinary model folder back, for `from_pretrained`, `pipeline` and `predict`."""
    from frostline.serving.bundles.merging import merge_bundle

    say(f"{merge_bundle(folder, base, save)}: merged from {folder} and {base}")
