"""How fast is a whole curve, against `transformers.Trainer` and a bare torch loop? Side by side, in one run.

    python -m bench.speed --data ../shared/glue --out runs/bench-speed

The same runs (SST-2, all-MiniLM-L6-v2, rates and seeds × (full + 4 depths)) in several ways:
(a) Trainer as an informed user writes it: dynamic padding, all cores, dev scored once at the end of a run;
(b) Trainer as run_glue.py sets it: every row padded to 128 tokens;
(c) `frostline curve`, the whole command with imports, cold cache.
The time of the others is extrapolated from timed steps of each kind of run; the bare loop stands beside (a) so that
nobody doubts it. Nothing else may run on the machine. Prints tables, ratios first, and writes everything, each sample
included, to `<out>/speed.json`. Exit code 1 where ours does not score as well as Trainer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from bench import growth, scores
from bench.compared import Found, Samples, compare, product_name
from bench.machine import CUBE, Shape, feed_forward
from bench.memory import peak_of_run
from bench.others import WAYS, sampled_steps, timed
from bench.ours import whole_command
from bench.processes import Together
from bench.speed_table import tables
from bench.workload import FULL, KINDS, MODEL, REAL, TASK, TINY, Asked, say
from frostline import tasks
from frostline.model.load import load_config
from frostline.records.environment import current_environment, n_cores
from frostline.storage import atomic

_N_PRODUCTS = 50
_HALF = growth.HALF


def main() -> None:
    """Measures, prints how they compare."""
    arguments = _arguments()
    asked = Asked(
        data=arguments.data,
        sizes=TINY if arguments.tiny else REAL,
        n_steps=arguments.steps,
        repetitions=arguments.repetitions,
    )
    bench = Bench(asked, arguments.out, has_whole=arguments.only != "small")
    found = bench.measured(has_scores=not arguments.no_scores)
    print(json.dumps(found, indent=2, allow_nan=False) if arguments.json else tables(found))
    sys.exit(not scores.all_as_good(found.get("scores", {})))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed against Trainer, side by side.")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-speed"))
    parser.add_argument("--only", choices=["small"], help="leave out the large curve")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each kind of run and repetition")
    parser.add_argument("--no-scores", action="store_true", help="do not train Trainer to compare scores")
    parser.add_argument("--tiny", action="store_true", help="a few rows: does it work? Its figures mean nothing")
    parser.add_argument("--json", action="store_true", help="print the JSON instead of tables")
    return parser.parse_args()


class Bench:
    """Measures everything in turn; what is there is written to `<out>/speed.json` after each part."""

    def __init__(self, asked: Asked, out: Path, *, has_whole: bool) -> None:
        self._asked = asked
        self._out = out
        self._has_whole = has_whole
        work = asked.sizes.whole
        self._rows: dict[str, Any] = {"data": asked.data, "max_train": work.n_train, "max_dev": asked.sizes.max_dev}
        self._data = tasks.load(tasks.parse(TASK, **self._rows))
        self._samples: Samples = {
            "steps": {way: {kind: [] for kind in KINDS} for way in WAYS},
            "dev": {way: [] for way in WAYS},
            "paces": {kind: [] for kind in KINDS},
            "products": [],
            "small": [],
            "n_cores": n_cores(),
        }

    def measured(self, *, has_scores: bool) -> Found:
        """All of it."""
        with (
            tempfile.TemporaryDirectory() as cache,
            Together("bench.steps", {"task": TASK, **self._rows}, cache) as all_,
        ):
            for repetition in range(self._asked.repetitions):
                self._others(repetition)
                self._ours(repetition, all_)
                self._keep()
                if repetition == 0 and self._has_whole:
                    self._samples["whole"] = [self._command("whole")]
                    self._samples["race"] = [self._command("race", "--line-search", "race")]
        self._samples["one_worker"] = self._command("small", "--workers", "1")
        self._samples["memory"] = self._memory()
        self._samples["growth"] = self._growth()
        self._keep()
        if has_scores:
            self._samples["scores"] = scores.measured(self._asked, self._out)
        return self._keep()

    def _others(self, repetition: int) -> None:
        torch.set_num_threads(n_cores())
        for kind in KINDS:
            for way in WAYS:
                n_steps = sampled_steps(way, self._asked.n_steps)
                found = timed(way, self._data, kind, n_steps, seed=repetition)
                self._samples["steps"][way][kind].append(found.step_seconds)
                self._samples["dev"][way].append(found.dev_seconds)
                say(f"{way}, {kind}: {1000 * found.step_seconds:.1f} ms a step, dev in {found.dev_seconds:.2f} s")

    def _ours(self, repetition: int, together: Together) -> None:
        seconds = self._asked.sizes.stretch_seconds
        for kind in KINDS:
            enough = {"n_times": self._asked.n_steps, "seconds": seconds}
            answers = together.do({"kind": kind, "seed": repetition, **enough})
            self._samples["paces"][kind].append(answers)
            say(f"frostline, {kind}: {[round(1000 * a['seconds'] / a['times'], 2) for a in answers]} ms a step")
        n_tokens = round(self._samples["paces"][FULL][-1][0]["tokens"])
        products = {}
        for product in (CUBE, feed_forward(Shape.of(load_config(MODEL)), n_tokens)):
            answers = together.do({"product": product, "n_times": _N_PRODUCTS, "seconds": seconds / 3})
            products[product_name(product)] = answers
        self._samples["products"].append(products)
        self._samples["small"].append(self._command("small"))

    def _command(self, name: str, *extra: str) -> dict[str, Any]:
        sizes = self._asked.sizes
        work = sizes.small if name == "small" else sizes.whole
        found = whole_command(self._asked, work, self._out / name, *extra)
        say(f"frostline curve, {' '.join([name, *extra])}: {found['seconds']:.1f} s")
        return found

    def _memory(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for way in ("trainer", "frostline"):
            asked = [(FULL, self._asked.sizes.whole.n_train)]
            asked += [(_HALF, n_rows) for n_rows in self._asked.sizes.memory_rows]
            found[way] = []
            for kind, n_rows in asked:
                peak = peak_of_run(self._asked, way, kind, n_rows)
                found[way].append({"kind": kind, "n_train": n_rows, **peak})
                say(f"memory, {way}, {kind}, {n_rows} rows: {peak['peak_bytes'] / 1e6:.0f} MB")
        commands = {name: self._samples[name][0]["peak_bytes"] for name in ("whole", "small") if name in self._samples}
        return {**found, "all_processes_bytes": commands}

    def _growth(self) -> dict[str, Any]:
        say("growth with rows and length")
        return {"rows": growth.by_rows(self._asked), "length": growth.by_length(self._asked)}

    def _keep(self) -> Found:
        found = {
            **compare(self._asked, self._samples),
            "asked": {
                "is_tiny": self._asked.sizes is TINY,
                "repetitions": self._asked.repetitions,
                "whole": self._asked.sizes.whole.text,
                "race": self._asked.sizes.whole.text,
                "small": self._asked.sizes.small.text,
                "scored": self._asked.sizes.scored.text,
                "ways": WAYS,
                "steps": {way: sampled_steps(way, self._asked.n_steps) for way in WAYS},
            },
            "samples": self._samples,
            "circumstances": current_environment("cpu").to_json(),
        }
        self._out.mkdir(parents=True, exist_ok=True)
        atomic.write(self._out / "speed.json", json.dumps(found, indent=2, allow_nan=False) + "\n")
        return found


if __name__ == "__main__":
    main()
