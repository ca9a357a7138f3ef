"""Writes the numbers of a stored demo into the README and docs/report.md, and draws the pictures of the docs.

    make readme            (python -m bench.readme runs/demo runs/demo-tuned)

Text between `<!-- name -->` and `<!-- /name -->` is replaced. The README gets the answer, the same question under
`tuned`, the times and the beginning of what the demo prints; docs/report.md gets everything that it prints.
`docs/demo.svg` is drawn again, and so is `docs/report.png` if Chromium is installed. `--only-protocols` writes nothing
that holds a time, for runs on a machine that did other things too.

The second folder holds the demo's rows and seeds under `tuned`. Runs that are missing there are done first.
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

import frostline
from frostline.analysis import Curve, Point
from frostline.cli.demo import SETTINGS
from frostline.model.files.folders import DEMO_MODEL
from frostline.records.depth import FULL, Depth
from frostline.report import numbers
from frostline.report.charts.curve import write_svg
from frostline.report.curve_chapter import CurveChapter
from frostline.report.terminal import print_chapters
from frostline.report.wording import axis_words, curve_words
from frostline.studies.requests.settings import CurveSettings

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT = 1200, 1000


def filled(readme: str, curve: Curve, tuned: Curve, plain_seconds: float) -> str:
    """The README with the numbers of a demo's curve, and of the same rows and seeds under `tuned`."""
    answer = curve_words.answer(curve).rstrip(".")
    half, head = _at(curve, curve.n_layers // 2), _at(curve, curve.n_layers)
    parts = {
        "answer": answer[0].lower() + answer[1:],
        "time": f"The demo's {curve.runs.done} runs took {numbers.duration(curve.cost.wall_seconds)} on two cores; the "
        "same runs one by one in a plain training loop would have taken about "
        f"{numbers.duration(plain_seconds)} (from a few timed steps of each).",
        "shape": f"{half.n_frozen} of {curve.n_layers} frozen keep {_kept(half)} of the full score; the head alone "
        f"{_kept(head)}",
        "printed": _block(beginning(printed(curve), curve)),
    }
    for name, said in parts.items():
        readme = replaced(readme, name, said)
    return with_protocols(readme, curve, tuned)


def with_protocols(readme: str, paper: Curve, tuned: Curve) -> str:
    """The README with the table of what both protocols say about the same rows and seeds."""
    heads = ("protocol", "learning rate", "full score", "operating point, trained", "keeps", "established, trained")
    rows = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for name, curve in (("`paper`", paper), ("`tuned`", tuned)):
        asked = curve.operating_points[0]
        point = curve_words.point_at(curve, asked.n_frozen)
        kept = numbers.DASH if point is None else _kept(point)
        sure = FULL if asked.established is None else asked.established.n_frozen
        scored = numbers.score(curve.full.mean)
        cells = (name, _rates(curve), scored, _trained(curve, asked.n_frozen), kept, _trained(curve, sure))
        rows.append(f"| {' | '.join(cells)} |")
    return replaced(readme, "protocols", "\n" + "\n".join(rows) + "\n")


def _rates(curve: Curve) -> str:
    """The rates of the full model and of each depth; once if they are all the same."""
    rates = {axis_words.value(point.n_frozen): point.learning_rate for point in (curve.full, *curve.points)}
    if len(set(rates.values())) == 1:
        return f"{numbers.learning_rate(curve.learning_rate)} everywhere"
    return ", ".join(f"{depth}: {numbers.learning_rate(rate)}" for depth, rate in rates.items())


def _trained(curve: Curve, n_frozen: Depth) -> str:
    """What the depth trains, in words; FULL: no depth was found."""
    point = curve_words.point_at(curve, n_frozen)
    return "no depth" if point is None else axis_words.what_trains(point.trained_layers, curve.n_layers)


def filled_report_page(page: str, curve: Curve) -> str:
    """docs/report.md with everything that the demo prints."""
    return replaced(page, "printed", _block(printed(curve)))


def printed(curve: Curve) -> str:
    """What a terminal of 80 columns shows of a curve."""
    console = Console(file=io.StringIO(), width=80)
    print_chapters(console, [CurveChapter(curve=curve)])
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().strip("\n").splitlines())


def beginning(page: str, curve: Curve) -> str:
    """The printed page up to its second table: the answer, the scores and the chart."""
    second = CurveChapter(curve=curve).tables[1].title
    return page.partition(f"\n{second}\n")[0].rstrip("\n") + "\n"


def _block(said: str) -> str:
    return f"\n```text\n{said}```\n"


def replaced(page: str, name: str, said: str) -> str:
    """The page with one of its places filled."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"the page should have one place between {begin} and {end}")
    before, rest = page.split(begin)
    return before + begin + said + end + rest.split(end)[1]


def _at(curve: Curve, n_frozen: int) -> Point:
    point = curve_words.point_at(curve, n_frozen)
    assert point is not None, "the demo trains at this depth"
    return point


def _kept(point: Point) -> str:
    return f"{numbers.share(point.ratio)} {numbers.share_interval(curve_words.share_interval(point, 'ratio'))}"


def tuned_curve(out: Path) -> Curve:
    """The demo's rows and seeds under `tuned`; the rates are those of the protocol."""
    settings: CurveSettings = {**SETTINGS, "protocol": "tuned", "out": out}
    del settings["lrs"]
    return frostline.curve(DEMO_MODEL, "rotten-tomatoes", **settings)


def picture(page: Path, path: Path) -> None:
    """Write the top of a page as PNG, if Chromium is installed."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("Chromium is not installed: docs/report.png is not drawn again")
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
    """Rewrite README.md, docs/report.md and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path, help="output folder of `frostline demo`")
    parser.add_argument("tuned", type=Path, help="output folder of the same rows and seeds under `tuned`")
    parser.add_argument("--only-protocols", action="store_true", help="leave everything that holds a time as it is")
    asked = parser.parse_args()
    demo, readme = asked.demo, ROOT / "README.md"
    curve = Curve.from_json(json.loads((demo / "curve.json").read_text(encoding="utf-8")))
    tuned, before = tuned_curve(asked.tuned), readme.read_text(encoding="utf-8")
    if asked.only_protocols:
        readme.write_text(with_protocols(before, curve, tuned), encoding="utf-8")
        return
    plain_seconds = json.loads((demo / "plain-loop.json").read_text(encoding="utf-8"))["seconds"]
    readme.write_text(filled(before, curve, tuned, plain_seconds), encoding="utf-8")
    page = ROOT / "docs" / "report.md"
    page.write_text(filled_report_page(page.read_text(encoding="utf-8"), curve), encoding="utf-8")
    write_svg(curve, ROOT / "docs" / "demo.svg")
    picture(demo / "report.html", ROOT / "docs" / "report.png")


if __name__ == "__main__":
    main()
