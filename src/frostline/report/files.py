"""Curve → files, each in the format of its ending."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from frostline import atomic
from frostline.analysis import Curve
from frostline.errors import check_choice
from frostline.report.charts import svg
from frostline.report.markdown import markdown


def write_curve(curve: Curve, folder: Path | str, name: str = "curve") -> tuple[Path, ...]:
    """The paths of `<name>.json`, `.md` and `.svg`, written into the folder.

    All three are rendered before the first is replaced: a curve that one of them cannot show changes none.
    """
    rendered = {f"{name}{ending}": render(curve) for ending, render in _FORMATS.items()}
    return tuple(atomic.write(Path(folder) / file, content) for file, content in rendered.items())


def write_report(curve: Curve, path: Path | str) -> Path:
    """The path, with the curve written to it in the format of its ending: `.json`, `.md` or `.svg`."""
    ending = check_choice("report ending", Path(path).suffix.lower(), _FORMATS)
    return atomic.write(Path(path), _FORMATS[ending](curve))


def _json(curve: Curve) -> str:
    return json.dumps(curve.to_json(), indent=2, allow_nan=False) + "\n"


_FORMATS: dict[str, Callable[[Curve], str]] = {".json": _json, ".md": markdown, ".svg": svg}
