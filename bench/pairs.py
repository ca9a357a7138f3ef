"""`find` against the whole curve, repeated from other master seeds, on nine pairs of model and task chosen beforehand.

    python -m bench.pairs run --shared ../shared --out runs/pairs [--only minilm-sst2 …]
    python -m bench.pairs table --out runs/pairs
    python -m bench.pairs page --out runs/pairs      # writes them into docs/find.md and the README

Under `tuned`: one search, and three curves from other master seeds, whose most frequent answer is the modal one. Under
`paper`: one search and one curve. Everything is resumable; a pair that is finished costs nothing.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from bench.readme import ROOT, replaced
from bench.tables import percent, show, table
from frostline.report.numbers import counted

MINILM, BGE = "all-MiniLM-L6-v2", "models/bge-small-en-v1.5"
MASTER_SEEDS = (1, 2, 3)
KEEP = 0.9
NO_MODE = "–"


@dataclass(frozen=True)
class Pair:
    """A model and a task."""

    name: str
    model: str
    task: str
    n_train: int = 1000


PAIRS = (
    Pair("minilm-sst2", MINILM, "sst2"),
    Pair("minilm-rotten-tomatoes", MINILM, "rotten-tomatoes"),
    Pair("minilm-mrpc", MINILM, "mrpc"),
    Pair("minilm-stsb", MINILM, "stsb"),
    Pair("minilm-qnli", MINILM, "qnli"),
    Pair("bge-sst2", BGE, "sst2"),
    Pair("bge-mrpc", BGE, "mrpc"),
    Pair("bge-rotten-tomatoes", BGE, "rotten-tomatoes"),
    Pair("minilm-cola", MINILM, "cola", 4000),
)


def run(pair: Pair, shared: Path, out: Path) -> None:
    """All commands of one pair; what is there already is not done again."""
    import frostline

    model = pair.model if pair.model == MINILM else str(shared / pair.model)
    data = {} if pair.task == "rotten-tomatoes" else {"data": str(shared / "glue")}
    settings: dict[str, Any] = data | {
        "max_train": pair.n_train,
        "max_dev": 800,
        "max_length": 64,
        "epochs": 3,
        "keep": KEEP,
    }

    def place(name: str) -> dict[str, Any]:
        return settings | {"out": out / pair.name / name}

    frostline.find(model, pair.task, protocol="tuned", **place("find-tuned"))
    for seed in MASTER_SEEDS:
        frostline.curve(model, pair.task, protocol="tuned", master_seed=seed, **place(f"curve-tuned-{seed}"))
    frostline.curve(model, pair.task, protocol="paper", **place("paper"))
    frostline.find(model, pair.task, protocol="paper", **place("paper"))


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What one pair gave."""

    pair: str
    model: str
    answer: int | None
    decision: str
    plausible: list[int | None]
    repeats: list[int | None]
    """the operating points of the repeated curves"""
    cost: float
    """work of the search as a share of the work of a curve, mean of the three, races included in both"""
    loss: float
    """by how much the answer's depth falls below the bar in the repeats, on average; 0 where it keeps the share"""
    paper_point: int | None
    """the operating point of the curve under `paper`"""
    paper_answer: int | None
    paper_decision: str
    paper_cost: float

    @property
    def mode(self) -> int | str | None:
        """The most frequent answer of the repeats; a dash if all differ."""
        answer, count = Counter(self.repeats).most_common(1)[0]
        return answer if count > 1 else NO_MODE

    @property
    def agrees(self) -> bool | None:
        """The answer is the mode, or the plausible set holds it; None without a mode."""
        return None if self.mode == NO_MODE else self.mode == self.answer or self.mode in self.plausible


def compared(pair: Pair, out: Path) -> Compared | None:
    """One pair; None before its runs are done."""
    names = ("find-tuned/find", *(f"curve-tuned-{seed}/curve" for seed in MASTER_SEEDS), "paper/curve", "paper/find")
    files = [out / pair.name / f"{name}.json" for name in names]
    if not all(file.is_file() for file in files):
        return None
    found, *curves, paper_curve, paper_found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    answer, paper_answer = found["answer"], paper_found["answer"]
    return Compared(
        pair=pair.name,
        model=pair.model,
        answer=answer["n_frozen"],
        decision=answer["decision"],
        plausible=answer["plausible"],
        repeats=[_point(curve)["n_frozen"] for curve in curves],
        cost=_work(found) / fmean(_work(curve) for curve in curves),
        loss=fmean(_loss(curve, answer["n_frozen"]) for curve in curves),
        paper_point=_point(paper_curve)["n_frozen"],
        paper_answer=paper_answer["n_frozen"],
        paper_decision=paper_answer["decision"],
        paper_cost=_work(paper_found) / _work(paper_curve),
    )


def _point(curve: dict[str, Any]) -> dict[str, Any]:
    return next(point for point in curve["operating_points"] if (point["keep"], point["scale"]) == (KEEP, "ratio"))


def _work(record: dict[str, Any]) -> float:
    """In full-run equivalents."""
    work: float = record["cost"]["full_runs"]
    return work


def _loss(curve: dict[str, Any], n_frozen: int | None) -> float:
    if n_frozen is None:
        return 0.0
    own: float = next(point["mean"] for point in curve["points"] if point["n_frozen"] == n_frozen)
    full: float = curve["full"]["mean"]
    return max(0.0, KEEP * full - own)


CELLS: dict[str, Callable[[Compared], str]] = {
    "pair": lambda one: one.pair,
    "`find`": lambda one: f"{_said(one.answer)}, {one.decision}",
    "plausible": lambda one: ", ".join(map(_said, one.plausible)),
    "three curves": lambda one: ", ".join(map(_said, one.repeats)),
    "mode": lambda one: _said(one.mode),
    "agrees": lambda one: {True: "yes", False: "NO", None: "no mode"}[one.agrees],
    "cost": lambda one: percent(one.cost),
    "loss": lambda one: f"{one.loss:.3f}",
    "`paper`: curve": lambda one: _said(one.paper_point),
    "`find`, `paper`": lambda one: f"{_said(one.paper_answer)}, {one.paper_decision}",
    "cost, `paper`": lambda one: percent(one.paper_cost),
}


def _said(depth: int | str | None) -> str:
    return "full" if depth is None else str(depth)


@dataclass(frozen=True)
class Line:
    """What the searches on one model must reach."""

    model: str
    title: str
    n_answers: int
    """depths, and the full model"""
    set_size: int
    """most depths in the median plausible set"""
    cost: float
    """most work of the median search, as a share of a curve"""


LINES = (Line(MINILM, "MiniLM-L6", 5, 3, 0.70), Line(BGE, "bge-small", 8, 5, 0.55))


def summary(rows: Sequence[Compared]) -> str:
    """What the finished pairs add up to, against the lines that were set before."""
    judged = [one for one in rows if one.agrees is not None]
    agreeing = sum(one.agrees is True for one in judged)
    exact = sum(one.answer == one.mode for one in judged)
    decided = sum(one.decision == "decided" for one in rows)
    unlike = ", ".join(one.pair for one in rows if one.agrees is None) or "none"
    worst = max(rows, key=lambda one: one.loss)
    said = [
        f"{len(rows)} of {len(PAIRS)} pairs are complete. `find` decided {decided} of them. Its answer is the mode, or",
        f"its plausible set holds it, in {agreeing} of {len(judged)} pairs with a mode (line: 8 of 9); it is exactly",
        f"the mode in {exact}. Pairs without a mode: {unlike}.",
        *(_against(line, own) for line in LINES if (own := [one for one in rows if one.model == line.model])),
        f"The largest loss from following an answer is {worst.loss:.3f} ({worst.pair}).",
    ]
    return textwrap.fill(" ".join(said), 130, break_long_words=False, break_on_hyphens=False)


def _against(line: Line, rows: Sequence[Compared]) -> str:
    size, cost = median(len(one.plausible) for one in rows), median(one.cost for one in rows)
    return (
        f"{line.title}, {counted(len(rows), 'pair')}: the median plausible set has {size:g} of {line.n_answers} "
        f"answers (line: {line.set_size}), the median cost is {percent(cost)} of a curve (line: {line.cost:.0%})."
    )


def claim(rows: Sequence[Compared]) -> str:
    """What the README says about the finished pairs."""
    judged = [one for one in rows if one.agrees is not None]
    agreeing, costs = sum(one.agrees is True for one in judged), [one.cost for one in rows]
    return (
        f"Real models and tasks, {len(rows)} of {len(PAIRS)} pairs done: its answer, or plausible set, has the depth "
        f"that three repeated curves name most often in {agreeing} of {len(judged)}. Cost: {percent(median(costs))} of "
        f"a curve's work in the median, {percent(max(costs))} at most"
    )


def write_pages(rows: Sequence[Compared]) -> None:
    """Writes the table and the summary into docs/find.md, and the claim into the README."""
    section = f"\n{table(rows, CELLS)}\n\n{summary(rows)}\n"
    for page, said in ((ROOT / "docs" / "find.md", section), (ROOT / "README.md", claim(rows))):
        page.write_text(replaced(page.read_text(encoding="utf-8"), "pairs", said), encoding="utf-8")


def main() -> None:
    """Runs pairs, prints what they gave, or writes it into the docs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "page"])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--out", type=Path, default=Path("runs/pairs"))
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    chosen = [pair for pair in PAIRS if not asked.only or pair.name in asked.only]
    if asked.what == "run":
        for pair in chosen:
            run(pair, asked.shared, asked.out)
        return
    found = [one for pair in chosen if (one := compared(pair, asked.out)) is not None]
    if asked.what == "page":
        write_pages(found)
        return
    show(found, CELLS, as_json=asked.json)
    if found and not asked.json:
        print(f"\n{summary(found)}")


if __name__ == "__main__":
    main()
