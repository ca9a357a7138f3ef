"""Writes the README's numbers and the docs' pictures from a stored demo.

    make readme            (python -m bench.readme runs/demo)

What stands between `<!-- name -->` and `<!-- /name -->` in the README is replaced; `docs/demo.svg` and, where Chromium
is installed, `docs/report.png` are drawn anew.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from rich.console import Console

from frostline.analysis import Curve, Point
from frostline.report import numbers
from frostline.report.charts.curve import write_svg
from frostline.report.curve_chapter import CurveChapter
from frostline.report.terminal import print_chapters
from frostline.report.wording import curve_words

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT = 1200, 1000


def filled(readme: str, curve: Curve, plain_seconds: float) -> str:
    """The README with the numbers of a demo's curve."""
    answer = curve_words.answer(curve).rstrip(".")
    half, head = _at(curve, curve.n_layers // 2), _at(curve, curve.n_layers)
    parts = {
        "answer": answer[0].lower() + answer[1:],
        "time": f"The demo's {curve.runs.done} runs took {numbers.duration(curve.cost.wall_seconds)} on two cores; the "
        "same runs one by one in a plain training loop would have taken about "
        f"{numbers.duration(plain_seconds)} (from a few timed steps of each).",
        "shape": f"{half.n_frozen} of {curve.n_layers} frozen keep {_kept(half)} of the full score; the head alone "
        f"{_kept(head)}",
        "printed": f"\n```text\n{_printed(curve)}```\n",
    }
    for name, said in parts.items():
        readme = _replaced(readme, name, said)
    return readme


def _replaced(readme: str, name: str, said: str) -> str:
    """The README with one of its places filled."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if readme.count(begin) != 1 or readme.count(end) != 1:
        raise SystemExit(f"the README should have one place between {begin} and {end}")
    before, rest = readme.split(begin)
    return before + begin + said + end + rest.split(end)[1]


def _at(curve: Curve, n_frozen: int) -> Point:
    point = curve_words.point_at(curve, n_frozen)
    assert point is not None, "the demo trains at this depth"
    return point


def _kept(point: Point) -> str:
    return f"{numbers.share(point.ratio)} {numbers.share_interval(point.ratio_ci)}"


def _printed(curve: Curve) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_chapters(console, [CurveChapter(curve=curve)])
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().strip("\n").splitlines())


def picture(page: Path, path: Path) -> None:
    """The top of a page as PNG, if Chromium is here."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium: docs/report.png stays as it is")
        return
    with tempfile.TemporaryDirectory() as profile:
        flags = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --hide-scrollbars"
        size = f"--window-size={WIDTH},{HEIGHT}"
        command = [
            chromium,
            *flags.split(),
            f"--user-data-dir={profile}",
            size,
            f"--screenshot={path}",
            page.absolute().as_uri(),
        ]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def main() -> None:
    """Rewrites README.md and docs/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="out folder of `frostline demo`")
    demo = parser.parse_args().demo
    curve = Curve.from_json(json.loads((demo / "curve.json").read_text(encoding="utf-8")))
    plain_seconds = json.loads((demo / "plain-loop.json").read_text(encoding="utf-8"))["seconds"]
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text(encoding="utf-8"), curve, plain_seconds), encoding="utf-8")
    write_svg(curve, ROOT / "docs" / "demo.svg")
    picture(demo / "report.html", ROOT / "docs" / "report.png")


if __name__ == "__main__":
    main()
