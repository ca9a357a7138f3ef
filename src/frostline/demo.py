"""The demo: the main job on real weights and real sentences, and what it would have cost in a plain loop."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from frostline import api
from frostline.analysis import Curve
from frostline.estimate import plain_loop_seconds
from frostline.report import text
from frostline.report.terminal import print_curve
from frostline.resolve import open_curve
from frostline.stack.load import DEMO_MODEL

SETTINGS: dict[str, Any] = {
    "max_train": 768,
    "max_dev": 320,
    "epochs": 3,
    "lrs": (3e-5, 5e-5, 1e-4),
    "seeds": 3,
    "max_length": 64,
}
"""Small enough for a few minutes on two cores, large enough for the paper's shape."""


def run_demo(console: Console, out: Path, *, workers: int | None, as_json: bool) -> Curve:
    """The demo's curve; shows it, and says where to look and what it saved."""
    settings = {**SETTINGS, "out": out, "workers": workers}
    study = api.curve(DEMO_MODEL, "rotten-tomatoes", **settings)
    if as_json:
        sys.stdout.write(json.dumps(study.to_json(), indent=2, allow_nan=False) + "\n")
        return study
    print_curve(console, study)
    console.print(f"To look at: {out / 'curve.svg'}, {out / 'curve.md'}, {out / 'curve.json'}, {out / 'runs'}")
    _say_what_it_saved(console, settings, study.cost.wall_seconds, is_fresh=study.runs.reused == 0)
    return study


def _say_what_it_saved(console: Console, settings: dict[str, Any], wall_seconds: float, *, is_fresh: bool) -> None:
    request, options = api.make_request(DEMO_MODEL, "rotten-tomatoes", settings)
    plain = plain_loop_seconds(open_curve(request, options.out, max_cache_bytes=options.max_cache_bytes))
    ours = f"this took {text.duration(wall_seconds)}" if is_fresh else "most of it was in the store"
    console.print(
        f"The same runs one by one in a plain training loop on all cores (frozen by requires_grad, dynamic padding): "
        f"about {text.duration(plain)}, from a few timed steps of each; {ours}.",
        highlight=False,
    )
