"""Inside the layers, on real models: depth curves, attention heads, change, subspaces, few examples, and scouts.

    python -m bench.inside run --shared ../shared --out runs/inside [--only minilm-sst2 …]
    python -m bench.inside table --out runs/inside
    python -m bench.inside scouted --out runs/inside      # writes what `frostline scout` knows of its own accuracy
    python -m bench.compact pack --out runs/inside --to bench/results/inside

Eight pairs: MiniLM-L6 and bge-small on SST-2, CoLA, MRPC and RTE; 1,000 training rows (CoLA 4,000), `paper`, three
seeds, all depths. On MiniLM with SST-2 and MRPC also the number of trained attention heads and the size of a subspace,
and on SST-2 and Rotten Tomatoes few examples per class. Everything is resumable; what is finished costs nothing. The
answers of each command are kept as JSON beside the runs.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.tables import percent, show
from frostline.analysis.inside.scout import BASELINES, RULES, Accuracy, MeasuredPair, Measurements, accuracy
from frostline.records.serial import Record

MINILM, BGE = "all-MiniLM-L6-v2", "models/bge-small-en-v1.5"
KEEP = 0.9
N_HEADS = (6, 12, 24, 48)
SUBSPACES = (100, 1_000, 10_000, 100_000)
PER_CLASS = (8, 16, 64)
N_SUBSETS = 10
TRAINING: dict[str, Any] = {"protocol": "paper", "epochs": 3, "seeds": 3}
FEW = "setfit,full,freeze:3,features"
SCOUTED = Path(__file__).parent.parent / "src" / "frostline" / "analysis" / "inside" / "scouted.json"


@dataclass(frozen=True)
class Pair:
    """A model and a task."""

    model: str
    task: str
    n_layers: int
    n_train: int = 1000
    has_axes: bool = False
    """attention heads and subspaces are measured too"""
    has_few: bool = False
    """few examples per class are measured too"""
    is_scouted: bool = True
    """depths, attention heads, change and scouts are measured"""

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{'minilm' if self.model == MINILM else 'bge'}-{self.task}"


PAIRS = (
    Pair(MINILM, "sst2", 6, has_axes=True, has_few=True),
    Pair(MINILM, "mrpc", 6, has_axes=True),
    Pair(MINILM, "rte", 6),
    Pair(MINILM, "cola", 6, 4000),
    Pair(BGE, "sst2", 12),
    Pair(BGE, "mrpc", 12),
    Pair(BGE, "rte", 12),
    Pair(BGE, "cola", 12, 4000),
    Pair(MINILM, "rotten-tomatoes", 6, has_few=True, is_scouted=False),
)


Command = Callable[[], Record]
Commands = Iterator[tuple[str, Command]]
"""Commands by the name of their answer."""


def run(pairs: Sequence[Pair], shared: Path, out: Path) -> None:
    """All commands of these pairs; finished runs are not done again. Every pair's depths come before anyone's axes."""
    for part in PARTS:
        for pair in pairs:
            for name, command in part(pair, shared, out / pair.name):
                print(f"{pair.name}: {name}", flush=True)
                _keep(out / pair.name / f"{name}.json", command())


def _depths(pair: Pair, shared: Path, out: Path) -> Commands:
    """What scouts are judged by, quick commands first."""
    import frostline

    if not pair.is_scouted:
        return
    model, rows = _given(pair, shared, out)
    yield "scout", lambda: frostline.scout(model, pair.task, epochs=3, **rows)
    yield "heads", lambda: frostline.heads(model, pair.task, **rows)
    training, depths = rows | TRAINING, f"0-{pair.n_layers}"
    yield "curve", lambda: frostline.curve(model, pair.task, frozen=depths, keep=KEEP, **training)
    yield "change", lambda: frostline.change(model, pair.task, **training)


def _axes(pair: Pair, shared: Path, out: Path) -> Commands:
    """The number of trained attention heads, and the size of a subspace."""
    import frostline

    if not pair.has_axes:
        return
    model, rows = _given(pair, shared, out)
    for axis, values in (("heads", N_HEADS), ("subspace", SUBSPACES)):
        own = rows | TRAINING | {"axis": axis, "axis_values": list(values), "keep": KEEP}
        yield f"curve-{axis}", functools.partial(frostline.curve, model, pair.task, **own)


def _few_examples(pair: Pair, shared: Path, out: Path) -> Commands:
    """SetFit and others with few examples per class."""
    import frostline

    if not pair.has_few:
        return
    model, rows = _given(pair, shared, out)
    own = rows | {"out": out / "few", "per_class": list(PER_CLASS), "seeds": N_SUBSETS, "strategies": FEW}
    del own["max_train"]
    yield "few", lambda: frostline.few(model, pair.task, **own)


PARTS = (_depths, _axes, _few_examples)


def _given(pair: Pair, shared: Path, out: Path) -> tuple[str, dict[str, Any]]:
    """The model as it is given to a command, and the settings of rows and output folder."""
    model = pair.model if pair.model == MINILM else str(shared / pair.model)
    data = {} if pair.task == "rotten-tomatoes" else {"data": str(shared / "glue")}
    return model, data | {"max_train": pair.n_train, "out": out / "inside"}


def _keep(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record.to_json(), indent=1) + "\n", encoding="utf-8")


def measured(out: Path, scale: str = "ratio_above_chance") -> list[MeasuredPair]:
    """The pairs whose depth curve and scores are there, with the depths that keep 90% on this scale.

    On MRPC a constant answer keeps 90% of the plain score. Above chance, curves that say nothing about depth are left
    out.
    """
    found = []
    for pair in PAIRS:
        files = [out / pair.name / f"{name}.json" for name in ("curve", "scout")]
        if not all(file.is_file() for file in files):
            continue
        curve, scout = (json.loads(file.read_text(encoding="utf-8")) for file in files)
        if scale != "ratio" and why_silent(curve):
            continue
        found.append(
            MeasuredPair(
                model=pair.model,
                task=pair.task,
                n_layers=curve["n_layers"],
                n_frozen=_operating(curve, scale)["n_frozen"] or 0,
                picks={one["name"]: one["named"] for one in scout["scores"]},
            )
        )
    return found


def why_silent(curve: dict[str, Any]) -> str:
    """Why a curve says nothing about depth; empty if it does."""
    full, point = curve["full"], _operating(curve, "ratio_above_chance")
    if 2 * full["n_failed"] >= len(full["scores"]) or point["trained_layers"] is None:
        return "learned nothing"
    is_any = len(point["plausible"]) == len(curve["points"]) + 1
    return "any depth is plausible" if is_any else ""


def write_scouted(out: Path, file: Path = SCOUTED) -> int:
    """Writes the measured pairs into the package; returns how many."""
    pairs = measured(out)
    command = "python -m bench.inside run; python -m bench.inside scouted"
    content = Measurements(command=command, pairs=tuple(pairs)).to_json()
    lines = ",\n".join("  " + json.dumps(pair) for pair in content["pairs"])
    written = f"\n{lines}\n " if lines else ""
    file.write_text(f'{{"command": {json.dumps(command)}, "pairs": [{written}]}}\n', encoding="utf-8")
    return len(pairs)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What one pair gave."""

    pair: str
    n_layers: int
    full: float
    chance: float
    operating: str
    """depth, and what is established, for 90% of the score"""
    above_chance: str
    """the same for 90% of the score above chance"""
    begins: str
    heads: str
    subspace: str
    picks: str


def found(pair: Pair, out: Path) -> Found | None:
    """One pair; None before its curve is done."""
    answers = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in (out / pair.name).glob("*.json")}
    if "curve" not in answers:
        return None
    curve = answers["curve"]
    picks = answers["scout"]["scores"] if "scout" in answers else []
    return Found(
        pair=pair.name,
        n_layers=curve["n_layers"],
        full=curve["full"]["mean"],
        chance=curve["chance"],
        operating=_depth(curve, "ratio"),
        above_chance=why_silent(curve) or _depth(curve, "ratio_above_chance"),
        begins=_begins(answers.get("change")),
        heads=_value(answers.get("curve-heads")),
        subspace=_value(answers.get("curve-subspace")),
        picks=", ".join(f"{one['name']} {one['named']}" for one in picks),
    )


def _operating(curve: dict[str, Any], scale: str = "ratio") -> dict[str, Any]:
    points = curve["operating_points"]
    point: dict[str, Any] = next(one for one in points if (one["keep"], one["scale"]) == (KEEP, scale))
    return point


def _depth(curve: dict[str, Any], scale: str) -> str:
    """The operating depth on a scale, and the established one."""
    point = _operating(curve, scale)
    sure = point.get("established")
    return f"{_said(point['n_frozen'])} (established: {'none' if sure is None else _said(sure['n_frozen'])})"


def _begins(change: dict[str, Any] | None) -> str:
    if change is None:
        return "–"
    full = next((one for one in change["strategies"] if one["strategy"] == "full"), None)
    return "–" if full is None else ", ".join(f"{one['by']} {one['layer']}" for one in full["begins"])


def _value(curve: dict[str, Any] | None) -> str:
    """The operating value along another axis, and the smallest established one."""
    if curve is None:
        return "–"
    point = _operating(curve)
    sure = (point.get("established") or {}).get("value")
    return f"{point.get('value')} (kept: {sure})"


CELLS: dict[str, Callable[[Found], str]] = {
    "pair": lambda one: one.pair,
    "layers": lambda one: str(one.n_layers),
    "full": lambda one: f"{one.full:.3f}",
    "chance": lambda one: f"{one.chance:.3f}",
    "depth for 90%": lambda one: one.operating,
    "for 90% above chance": lambda one: one.above_chance,
    "change begins at layer": lambda one: one.begins,
    "attention heads": lambda one: one.heads,
    "subspace": lambda one: one.subspace,
    "scores name": lambda one: one.picks,
}
RIGHT: dict[str, Callable[[Accuracy], str]] = {
    "score": lambda one: BASELINES.get(one.name) or next(rule.title for rule in RULES if rule.name == one.name),
    "pairs": lambda one: str(one.n_pairs),
    "mean error, share of layers": lambda one: percent(one.mean_error),
    "gain over the typical answer": lambda one: f"{percent(one.gain)} {_interval(one)}",
    "rank correlation": lambda one: "–" if one.rank_correlation is None else f"{one.rank_correlation:.2f}",
}


def _interval(one: Accuracy) -> str:
    return "" if one.gain_ci is None else f"[{percent(one.gain_ci[0])}, {percent(one.gain_ci[1])}]"


def _said(depth: int | None) -> str:
    return "full" if depth is None else str(depth)


def main() -> None:
    """Runs pairs, prints what they gave, or writes what scouts know."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "scouted"])
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    parser.add_argument("--out", type=Path, default=Path("runs/inside"))
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    chosen = [pair for pair in PAIRS if not asked.only or pair.name in asked.only]
    if asked.what == "run":
        run(chosen, asked.shared, asked.out)
    elif asked.what == "scouted":
        print(f"{write_scouted(asked.out)} pairs in {SCOUTED}")
    else:
        show([one for pair in chosen if (one := found(pair, asked.out)) is not None], CELLS)
        for scale in ("ratio_above_chance", "ratio"):
            print(f"\nscores against depths by {scale}:")
            show(accuracy(measured(asked.out, scale)), RIGHT)


if __name__ == "__main__":
    main()
