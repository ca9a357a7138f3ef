"""The demo: the main job on real weights and real sentences, and what it would have cost in a plain loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from frostline import api
from frostline.model.load import DEMO_MODEL
from frostline.report import numbers
from frostline.report.terminal import print_chapters
from frostline.storage import atomic
from frostline.studies.estimate import plain_loop_seconds
from frostline.studies.requests.resolve import open_curve
from frostline.studies.requests.settings import make_request
from frostline.studies.results import Study

SETTINGS: dict[str, Any] = {
    "max_train": 768,
    "max_dev": 320,
    "epochs": 3,
    "lrs": (3e-5, 5e-5, 1e-4),
    "seeds": 3,
    "max_length": 64,
}
"""Small enough for a few minutes on two cores, large enough for the paper's shape."""


def demo_curve(out: Path, *, workers: int | None) -> Study:
    """The demo's curve."""
    return api.curve(DEMO_MODEL, "rotten-tomatoes", out=out, workers=workers, **SETTINGS)


def print_demo(console: Console, curve: Study, out: Path) -> None:
    """Shows the demo's curve, and says where to look and what it saved."""
    print_chapters(console, curve.chapters)
    console.print(f"To look at: {out / 'report.html'}, {out / 'curve.svg'}, {out / 'curve.json'}, {out / 'runs'}")
    request, options = make_request(DEMO_MODEL, "rotten-tomatoes", {**SETTINGS, "out": out})
    plain = plain_loop_seconds(open_curve(request, out, max_cache_bytes=options.max_cache_bytes))
    atomic.write(out / "plain-loop.json", json.dumps({"seconds": plain}) + "\n")
    is_fresh = curve.runs.reused == 0
    ours = f"this took {numbers.duration(curve.cost.wall_seconds)}" if is_fresh else "most of it was in the store"
    console.print(
        f"The same runs one by one in a plain training loop on all cores (frozen by requires_grad, dynamic padding): "
        f"about {numbers.duration(plain)}, from a few timed steps of each; {ours}.",
        highlight=False,
    )
