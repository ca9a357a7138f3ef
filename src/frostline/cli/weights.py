"""The commands about weights on disk: verify, share. They build no model and need no torch."""

from __future__ import annotations

from typing import Annotated

import typer

from frostline.cli.app import app
from frostline.cli.flags import AsJson, console, option, print_json
from frostline.errors import DataError, check_between

_MODEL_HELP = "a model folder with safetensors, the demo's model, or a name on the Hub"


@app.command()
def verify(
    base: Annotated[str, typer.Argument(metavar="BASE", help=_MODEL_HELP)],
    tuned: Annotated[str, typer.Argument(metavar="TUNED", help="a model that was fine-tuned from it")],
    frozen: Annotated[
        int | None, option("fail with exit code 3 unless the lowest N layers are unchanged", "--frozen")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what fine-tuning moved, layer by layer: did it really freeze?"""
    from frostline.report.terminal import print_weight_change
    from frostline.report.wording import weight_words
    from frostline.serving.share import verify as compared

    found = compared(base, tuned)
    if as_json:
        print_json(found.to_json())
    else:
        print_weight_change(console(), found, n_tensors=20)
    if frozen is not None:
        check_between("frozen", frozen, 0, found.n_layers or 0)
        if found.shared_layers is None or found.shared_layers < frozen:
            raise DataError(
                f"the lowest {frozen} layers are not all unchanged. {weight_words.change(found)}", path=tuned
            )


@app.command()
def share(
    models: Annotated[list[str], typer.Argument(metavar="MODEL …", help=_MODEL_HELP)],
    as_json: AsJson = False,
) -> None:
    """Show how deep models agree to the bit, and what sharing that part saves in memory and compute."""
    from frostline.report.terminal import print_sharing
    from frostline.serving.share import share as compared

    found = compared(models)
    if as_json:
        print_json(found.to_json())
    else:
        print_sharing(console(), found)
