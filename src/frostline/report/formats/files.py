"""Chapters → files, each in the format of its ending."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from frostline.analysis import Chapter, Comparison, ComparisonChapter, Curve
from frostline.errors import check_choice
from frostline.report.chapters import AnyChapter, comparisons_in, curves_in, in_order, told
from frostline.report.charts.picture import svg_of
from frostline.report.formats.html import page
from frostline.report.formats.latex import latex
from frostline.report.formats.markdown import comparison_markdown, markdown
from frostline.report.formats.spreadsheet import spreadsheet
from frostline.storage import atomic

FORMATS = {"html": ".html", "md": ".md", "latex": ".tex", "csv": ".csv", "svg": ".svg", "png": ".png", "pdf": ".pdf"}
"""By the name a user gives: the ending of the file."""
_PNG_SCALE = 2.0


def write_curve(curve: Curve, folder: Path | str, name: str = "curve") -> tuple[Path, ...]:
    """The paths of `<name>.json`, `.md` and `.svg`, written into the folder.

    All three are rendered before the first is replaced: a curve that one of them cannot show changes none.
    """
    return _write_three([Chapter(curve=curve)], Path(folder), name)


def write_comparison(comparison: Comparison, folder: Path | str, name: str = "compare") -> tuple[Path, ...]:
    """The paths of `<name>.json`, `.md` and `.svg`, written into the folder, or none of them, as for a curve."""
    return _write_three([ComparisonChapter(comparison=comparison)], Path(folder), name)


def write_report(chapters: Sequence[AnyChapter], path: Path | str) -> Path:
    """The path, with the chapters written to it in the format of its ending."""
    ending = check_choice("report ending", Path(path).suffix.lower(), _RENDERED)
    return atomic.write(Path(path), _RENDERED[ending](chapters))


def write_reports(chapters: Sequence[AnyChapter], formats: Sequence[str], folder: Path) -> list[Path]:
    """The paths of `report.<ending>` in the folder, one a format."""
    known = [check_choice("format", name, FORMATS) for name in dict.fromkeys(formats)]
    return [write_report(chapters, folder / f"report{FORMATS[name]}") for name in known]


def _write_three(chapters: Sequence[AnyChapter], folder: Path, name: str) -> tuple[Path, ...]:
    rendered = {f"{name}{ending}": _RENDERED[ending](chapters) for ending in (".json", ".md", ".svg")}
    return tuple(atomic.write(folder / file, content) for file, content in rendered.items())


def _json(chapters: Sequence[AnyChapter]) -> str:
    """Of one, its curve or comparison; of several, all that is known of each."""
    content = told(chapters[0]).to_json() if len(chapters) == 1 else [chapter.to_json() for chapter in chapters]
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _curves(chapters: Sequence[AnyChapter]) -> list[Curve]:
    return [chapter.curve for chapter in curves_in(chapters)]


def _comparisons(chapters: Sequence[AnyChapter]) -> list[Comparison]:
    return [chapter.comparison for chapter in comparisons_in(chapters)]


def _markdown(chapters: Sequence[AnyChapter]) -> str:
    return "\n".join(
        markdown(chapter.curve, chapter.probes)
        if isinstance(chapter, Chapter)
        else comparison_markdown(chapter.comparison)
        for chapter in in_order(chapters)
    )


def _latex(chapters: Sequence[AnyChapter]) -> str:
    return latex(_curves(chapters), _comparisons(chapters))


def _csv(chapters: Sequence[AnyChapter]) -> str:
    return spreadsheet(_curves(chapters), _comparisons(chapters))


def _svg(chapters: Sequence[AnyChapter]) -> str:
    return svg_of(_curves(chapters), _comparisons(chapters))


def _png(chapters: Sequence[AnyChapter]) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_png(_svg(chapters), scale=_PNG_SCALE))


def _pdf(chapters: Sequence[AnyChapter]) -> bytes:
    import vl_convert

    return bytes(vl_convert.svg_to_pdf(_svg(chapters)))


_RENDERED: dict[str, Callable[[Sequence[AnyChapter]], str | bytes]] = {
    ".html": page,
    ".md": _markdown,
    ".tex": _latex,
    ".csv": _csv,
    ".svg": _svg,
    ".png": _png,
    ".pdf": _pdf,
    ".json": _json,
}
