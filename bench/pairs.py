"""`find` against the whole curve, repeated from other master seeds, on nine pairs of model and task chosen beforehand.

    python -m bench.pairs run --shared ../shared --out runs/pairs [--only minilm-sst2 …]
    python -m bench.pairs table --out runs/pairs

Under `tuned`: one search, and three curves from other master seeds, whose most frequent answer is the modal one. Under
`paper`: one search and one curve. Everything is resumable; a pair that is finished costs nothing.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.tables import percent, show

MINILM, BGE = "all-MiniLM-L6-v2", "models/bge-small-en-v1.5"
MASTER_SEEDS = (1, 2, 3)
KEEP = 0.9


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
    answer: int | None
    decision: str
    plausible: list[int | None]
    repeats: list[int | None]
    """the operating points of the repeated curves"""
    cost: float
    """of the search, as a share of the whole curve"""
    loss: float | None
    """by how much the answer's depth falls below the bar in the repeats, on average; 0 if it keeps the share"""

    @property
    def mode(self) -> int | str | None:
        """The most frequent answer of the repeats; a dash if all differ."""
        answer, count = Counter(self.repeats).most_common(1)[0]
        return answer if count > 1 else "–"

    @property
    def agrees(self) -> bool | None:
        """The answer is the mode, or the plausible set holds it; None without a mode."""
        return None if self.mode == "–" else self.mode == self.answer or self.mode in self.plausible


def compared(pair: Pair, out: Path) -> Compared | None:
    """One pair; None before its runs are done."""
    files = [out / pair.name / "find-tuned" / "find.json"]
    files += [out / pair.name / f"curve-tuned-{seed}" / "curve.json" for seed in MASTER_SEEDS]
    if not all(file.is_file() for file in files):
        return None
    found, *curves = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    answer = found["answer"]
    return Compared(
        pair=pair.name,
        answer=answer["n_frozen"],
        decision=answer["decision"],
        plausible=answer["plausible"],
        repeats=[_point(curve)["n_frozen"] for curve in curves],
        cost=found["runs_spent"] / found["runs_of_full_curve"],
        loss=sum(_loss(curve, answer["n_frozen"]) for curve in curves) / len(curves),
    )


def _point(curve: dict[str, Any]) -> dict[str, Any]:
    return next(point for point in curve["operating_points"] if (point["keep"], point["scale"]) == (KEEP, "ratio"))


def _loss(curve: dict[str, Any], n_frozen: int | None) -> float:
    if n_frozen is None:
        return 0.0
    own: float = next(point["mean"] for point in curve["points"] if point["n_frozen"] == n_frozen)
    full: float = curve["full"]["mean"]
    return max(0.0, KEEP * full - own)


CELLS: dict[str, Callable[[Compared], str]] = {
    "pair": lambda one: one.pair,
    "find": lambda one: f"{_said(one.answer)}, {one.decision}",
    "plausible": lambda one: ", ".join(_said(depth) for depth in one.plausible),
    "three curves": lambda one: ", ".join(_said(depth) for depth in one.repeats),
    "mode": lambda one: _said(one.mode),
    "agrees": lambda one: {True: "yes", False: "no", None: "no mode"}[one.agrees],
    "cost": lambda one: percent(one.cost),
    "loss": lambda one: f"{one.loss:.3f}",
}


def _said(depth: int | str | None) -> str:
    return "full" if depth is None else str(depth)


def main() -> None:
    """Runs pairs, or prints what they gave."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table"])
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
    show(found, CELLS, as_json=asked.json)


if __name__ == "__main__":
    main()
