"""Chapters → files, each in the format of its ending."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from frostline import atomic
from frostline.analysis import Chapter, Curve, told_apart
from frostline.errors import check_choice
from frostline.report.charts import svg
from frostline.report.html import page
from frostline.report.latex import latex
from frostline.report.markdown import markdown
from frostline.report.panels import view_chart
from frostline.report.spreadsheet import spreadsheet

FORMATS = {"html": ".html", "md": ".md", "latex": ".tex", "csv": ".csv", "svg": ".svg", "png": ".png", "pdf": ".pdf"}
"""By the name a user gives: the ending of the file."""
_PNG_SCALE = 2.0


def write_curve(curve: Curve, folder: Path | str, name: str = "curve") -> tuple[Path, ...]:
    """The paths of `<name>.json`, `.md` and `.svg`, written into the folder.

    All three are rendered before the first is replaced: a curve that one of them cannot show changes none.
    """
    chapters = [Chapter(curve=curve)]
    rendered = {f"{name}{ending}": _RENDERED[ending](chapters) for ending in (".json", ".md", ".svg")}
    return tuple(atomic.write(Path(folder) / file, content) for file, content in rendered.items())


def write_report(chapters: Sequence[Chapter], path: Path | str) -> Path:
    """The path, with the chapters written to it in the format of its ending."""
    ending = check_choice("report ending", Path(path).suffix.lower(), _RENDERED)
    return atomic.write(Path(path), _RENDERED[ending](chapters))


def write_reports(chapters: Sequence[Chapter], formats: Sequence[str], folder: Path) -> list[Path]:
    """The paths of `report.<ending>` in the folder, one a format."""
    known = [check_choice("format", name, FORMATS) for name in dict.fromkeys(formats)]
    return [write_report(chapters, folder / f"report{FORMATS[name]}") for name in known]


def _json(chapters: Sequence[Chapter]) -> str:
    """Of one, its curve; of several, all that is known of each."""
    content = chapters[0].curve.to_json() if len(chapters) == 1 else [chapter.to_json() for chapter in chapters]
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _curves(chapters: Sequence[Chapter]) -> list[Curve]:
    return [chapter.curve for chapter in told_apart(chapters)]


def _markdown(chapters: Sequence[Chapter]) -> str:
    return "\n".join(markdown(curve) for curve in _curves(chapters))


def _svg(chapters: Sequence[Chapter]) -> str:
    """Of one curve, its chart; of several, the paper's figure: differences from the full model."""
    curves = _curves(chapters)
    if len(curves) == 1:
        return svg(curves[0])
    import vl_convert

    chart = view_chart(curves, "difference") or view_chart(curves, "score")
    assert chart is not None, "scores can always be drawn"
    return str(vl_convert.vegalite_to_svg(chart.to_dict()))


def _png(chapters: Sequence[Chapter]) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_png(_svg(chapters), scale=_PNG_SCALE))


def _pdf(chapters: Sequence[Chapter]) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_pdf(_svg(chapters)))


_RENDERED: dict[str, Callable[[Sequence[Chapter]], str | bytes]] = {
    ".html": page,
    ".md": _markdown,
    ".tex": lambda chapters: latex(_curves(chapters)),
    ".csv": lambda chapters: spreadsheet(_curves(chapters)),
    ".svg": _svg,
    ".png": _png,
    ".pdf": _pdf,
    ".json": _json,
}
