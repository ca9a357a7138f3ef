"""Writes the stored outcomes of `bench.finding` and `bench.coverage` into docs/find.md and the README.

    python -m bench.simulations

Text between `<!-- name -->` and `<!-- /name -->` is replaced. Cells that are not in `bench/results/simulations` are
left out, and the text says how many there are.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from bench import cells, coverage, finding
from bench.cells import Cell
from bench.coverage import Coverage
from bench.finding import Found
from bench.readme import ROOT, replaced
from bench.tables import percent, table
from bench.worlds import WORLDS

STORED = ROOT / "bench" / "results" / "simulations"
Row = TypeVar("Row", Found, Coverage)


def stored(file: Path, row: Callable[..., Row]) -> tuple[Cell, list[Row]]:
    """One of the stored cells, for what all have in common, and their outcomes in the order of the worlds."""
    found = cells.finished(file, row)
    places = [world.name for world in WORLDS]
    ordered = sorted(found, key=lambda cell: (places.index(cell.world), cell.n_seeds))
    return ordered[0], [found[cell] for cell in ordered]


def searches_section(cell: Cell, rows: Sequence[Found]) -> str:
    """What docs/find.md says about simulated searches."""
    wrong, held = max(rows, key=attrgetter("wrong")), min(rows, key=attrgetter("plausible"))
    missed = [one.world for one in rows if one.is_wrong_too_often]
    said = (
        f'Of all searches, at most {percent(wrong.wrong)} decide wrongly ("{wrong.world}"). Worlds with more than 5%, '
        f"two standard errors allowed: {', '.join(missed) or 'none'}. `find` decides {_decided(rows)}. It calls the "
        "others open: neighbouring depths differ by less than five seeds can show. Its estimate is then mostly, not "
        "always, the true depth: over all searches, the answer is exactly the true depth in "
        f"{_range(rows, 'exact')}. The plausible set holds the true depth in at least {percent(held.plausible)} "
        f'("{held.world}"). The median cost is {_range(rows, "cost")} of the whole curve.'
    )
    command = f"python -m bench.finding --searches {cell.number} --seed {cell.seed}"
    return _section(command, rows, table(rows, finding.COLUMNS), said)


def searches_claim(cell: Cell, rows: Sequence[Found]) -> str:
    """What the README says about simulated searches."""
    worst = max(rows, key=attrgetter("wrong"))
    return (
        f'{_worlds(rows)}, {cell.number:,} searches each: worst {percent(worst.wrong)} ("{worst.world}"). It decides '
        f"{_decided(rows)}, and leaves the others open; its answer is exactly the true depth in "
        f"{_range(rows, 'exact')}. Median cost {_range(rows, 'cost')} of the curve"
    )


def intervals_section(cell: Cell, rows: Sequence[Coverage]) -> str:
    """What docs/find.md says about intervals, plausible sets and verdicts."""
    missed = [_named(one) for one in rows if one.holds_too_seldom]
    three, five = ([one for one in rows if one.n_seeds == n] for n in coverage.N_SEEDS)
    said = (
        f"Worst cases: {_worst_cases(rows)}. Below 94% (85% with skewed or bimodal noise), two standard errors "
        f"allowed: {'; '.join(missed) or 'none'}. Over seeds alone, intervals contain the truth in "
        f"{_worst(rows, 'seeds_alone', min)}. With examples, intervals are {_wider(three)} as wide with three seeds, "
        f"and {_wider(five)} with five."
    )
    command = f"python -m bench.coverage --curves {cell.number} --seed {cell.seed}"
    return _section(command, rows, table(rows, coverage.COLUMNS), said)


def intervals_claim(cell: Cell, rows: Sequence[Coverage]) -> str:
    """What the README says about them."""
    return (
        f"{_worlds(rows)} of crossed seeds and dev rows, three and five seeds, {cell.number:,} curves each; accuracy, "
        f"F1, MCC and Pearson. Worst cases: {_worst_cases(rows)}. If runs fail, an interval needs two other runs of "
        f"each model; without them it is missing (null), in up to {_worst(rows, 'null', max)}"
    )


def _section(command: str, rows: Sequence[Row], shown: str, said: str) -> str:
    return f"\n`{command}` ({_worlds(rows)}):\n\n{shown}\n\n{textwrap.fill(said, 125, break_on_hyphens=False)}\n"


def _worst_cases(rows: Sequence[Coverage]) -> str:
    worst = {name: min(rows, key=attrgetter(name)) for name in ("difference", "ratio", "above_chance")}
    name = min(worst, key=lambda one: getattr(worst[one], one))
    return (
        f"intervals against the full model contain the truth in {_worst(rows, name, min)}, the 95% set of depths in "
        f"{_worst(rows, 'depth', min)}, and {_worst(rows, 'wrong', max)} of the curves have a wrong verdict"
    )


def _worst(rows: Sequence[Coverage], name: str, worse: Callable[..., Coverage]) -> str:
    one = worse(rows, key=attrgetter(name))
    return f"{percent(getattr(one, name))} ({_named(one)})"


def _named(one: Coverage) -> str:
    return f'"{one.world}", {one.n_seeds} seeds'


def _wider(rows: Sequence[Coverage]) -> str:
    ratios = [one.width / one.width_alone for one in rows]
    return f"{min(ratios):.2f} to {max(ratios):.2f} times"


def _decided(rows: Sequence[Found]) -> str:
    """How often easy and ordinary worlds are decided."""
    said = {
        "far from the bar": "where every depth is at least 8 points from the bar",
        "flat": "of flat curves",
        "base": "of smooth ones",
    }
    shares = {one.world: percent(one.decided) for one in rows}
    return ", ".join(f"{shares[world]} {words}" for world, words in said.items() if world in shares)


def _range(rows: Sequence[Row], name: str) -> str:
    low, high = (choose(rows, key=attrgetter(name)) for choose in (min, max))
    return f'{percent(getattr(low, name))} ("{low.world}") to {percent(getattr(high, name))}'


def _worlds(rows: Sequence[Row]) -> str:
    n_worlds = len({one.world for one in rows})
    return (
        f"{n_worlds} simulated worlds" if n_worlds == len(WORLDS) else f"{n_worlds} of {len(WORLDS)} simulated worlds"
    )


def filled(readme: str, page: str, *, folder: Path = STORED) -> tuple[str, str]:
    """The README and docs/find.md with the stored outcomes."""
    searches, intervals = stored(folder / "finding.jsonl", Found), stored(folder / "coverage.jsonl", Coverage)
    readme = replaced(readme, "searches", searches_claim(*searches))
    readme = replaced(readme, "intervals", intervals_claim(*intervals))
    page = replaced(page, "finding", searches_section(*searches))
    return readme, replaced(page, "coverage", intervals_section(*intervals))


def main() -> None:
    """Rewrite README.md and docs/find.md."""
    paths = ROOT / "README.md", ROOT / "docs" / "find.md"
    for path, text in zip(paths, filled(*(path.read_text(encoding="utf-8") for path in paths)), strict=True):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
