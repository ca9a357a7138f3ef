"""The demo: a curve on real weights and real sentences, and what it would have cost in a plain loop."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from frostline import api
from frostline.model.files.folders import DEMO_MODEL
from frostline.report import numbers
from frostline.report.terminal import print_chapters
from frostline.storage import atomic
from frostline.studies.requests.settings import CurveSettings
from frostline.studies.results import CurveResult

SETTINGS: CurveSettings = {
    "max_train": 768,
    "max_dev": 320,
    "epochs": 3,
    "lrs": (3e-5, 5e-5, 1e-4),
    "seeds": 3,
    "max_length": 64,
}
"""Small enough for a few minutes on two cores, large enough for the paper's shape."""


def run_demo(out: Path, *, workers: int | None) -> tuple[CurveResult, float]:
    """The demo's curve, and the seconds that its runs would take in a plain loop."""
    settings: CurveSettings = {**SETTINGS, "out": out}
    if workers is not None:
        settings["workers"] = workers
    curve, seconds = api.curve_and_plain_loop(DEMO_MODEL, "rotten-tomatoes", settings)
    atomic.write(out / "plain-loop.json", json.dumps({"seconds": seconds}) + "\n")
    return curve, seconds


def print_demo(console: Console, curve: CurveResult, plain_seconds: float, out: Path) -> None:
    """Prints the demo's curve, where its files are, and what it saved."""
    print_chapters(console, curve.chapters)
    files = ", ".join(str(out / name) for name in ("report.html", "curve.svg", "curve.json", "runs"))
    is_fresh = curve.runs.reused == 0
    ours = f"this took {numbers.duration(curve.cost.wall_seconds)}" if is_fresh else "most runs were in the store"
    console.print(f"Files to look at: {files}", highlight=False)
    console.print(
        "The same runs one by one in a plain training loop on all cores (frozen by requires_grad, dynamic padding) "
        f"would take about {numbers.duration(plain_seconds)}, extrapolated from a few timed steps; {ours}.",
        highlight=False,
    )
