"""How fast are steps of models at real sizes, against a bare torch loop and Trainer? Side by side, in one run.

    python -m bench.shapes --data ../shared/glue --out runs/bench-shapes

Models with the sizes of BERT-base, DeBERTa-v3-small and MPNet-base and random weights: a step takes as long as with
trained ones. All have the vocabulary of the demo's tokenizer; DeBERTa-v3's own is four times as large, which would slow
down the others' full steps more than ours. Batches of 16, on SST-2's sentences and on RTE's pairs cut at 128 tokens.
The bare loop and Trainer pad each batch to its longest row and use all cores. Ours is the effective time: one process
per core with one thread, frozen layers cached. Ways take turns, and medians are reported.

Nothing else may run on the machine. Prints a table and writes every sample to `<out>/shapes.json`. Exit code 1 where a
line is not reached.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel

from bench.compared import effective_seconds
from bench.others import timed
from bench.processes import Together
from bench.tables import table
from bench.workload import FULL, MODEL, say
from frostline import tasks
from frostline.model.load import load_tokenizer, quiet
from frostline.records.environment import current_environment, n_cores
from frostline.storage import atomic

Found = dict[str, Any]

_TOKENS = 30522
_N_TRAIN = 2000
_OTHERS = ("bare", "trainer")

SHAPES: dict[str, dict[str, Any]] = {
    "BERT-base": {"model_type": "bert"},
    "DeBERTa-v3-small": {
        "model_type": "deberta-v2",
        "num_hidden_layers": 6,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "relative_attention": True,
        "position_buckets": 256,
        "max_relative_positions": -1,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "MPNet-base": {"model_type": "mpnet"},
}
"""Configurations by the name of the model whose size they have."""


@dataclass(frozen=True)
class Work:
    """Steps of one shape on one task, and how many times faster than the bare loop each kind must be."""

    shape: str
    task: str
    lines: Mapping[str, float]

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.shape}, {'SST-2' if self.task == 'sst2' else 'RTE pairs cut at 128'}"


WORKS = (
    Work("BERT-base", "sst2", {FULL: 3.5, "freeze:6": 5.0}),
    Work("BERT-base", "rte", {FULL: 2.0, "freeze:6": 3.0}),
    Work("DeBERTa-v3-small", "sst2", {FULL: 2.0, "freeze:3": 3.0}),
    Work("MPNet-base", "sst2", {FULL: 2.0, "freeze:6": 3.0}),
)


def main() -> None:
    """Measures, prints a table."""
    parser = argparse.ArgumentParser(description="Steps at real sizes, side by side with other ways.")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--out", type=Path, default=Path("runs/bench-shapes"))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="timed steps of each kind, way and repetition")
    parser.add_argument("--only", type=int, action="append", choices=range(len(WORKS)), help="only this work")
    asked = parser.parse_args()
    found: Found = {
        "works": [],
        "environment": current_environment("cpu").to_json(),
        "repetitions": asked.repetitions,
        "steps": asked.steps,
        "n_cores": n_cores(),
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    for work in WORKS if asked.only is None else [WORKS[number] for number in asked.only]:
        with tempfile.TemporaryDirectory() as folder:
            found["works"].append(_measured(work, asked.data, asked.repetitions, asked.steps, Path(folder)))
        atomic.write(asked.out / "shapes.json", json.dumps(found, indent=2, allow_nan=False) + "\n")
    print(shapes_table(found))
    sys.exit(not all(row["is_reached"] for row in rows_of(found)))


def _measured(work: Work, data: str, repetitions: int, n_steps: int, folder: Path) -> Found:
    """Seconds of each step by kind and way, one number per repetition."""
    model = str(_made(work.shape, folder / "model"))
    rows: dict[str, Any] = {"data": data, "max_train": _N_TRAIN, "max_dev": 64}
    loaded = tasks.load(tasks.parse(work.task, **rows))
    seconds: dict[str, dict[str, list[float]]] = {
        kind: {way: [] for way in (*_OTHERS, "frostline")} for kind in work.lines
    }
    question = {"task": work.task, "model": model, "max_length": 128, **rows}
    with Together("bench.steps", question, str(folder / "cache")) as ours:
        for repetition in range(repetitions):
            for kind, by_way in seconds.items():
                torch.set_num_threads(n_cores())
                for way in _OTHERS:
                    step = timed(way, loaded, kind, n_steps, seed=repetition, model_name=model)
                    by_way[way].append(step.step_seconds)
                answers = ours.do({"kind": kind, "seed": repetition, "n_times": n_steps, "seconds": 3.0})
                by_way["frostline"].append(effective_seconds(answers))
                shown = ", ".join(f"{way} {1000 * values[-1]:.0f}" for way, values in by_way.items())
                say(f"{work.text}, {kind}, ms per step: {shown}")
    return {"work": work.text, "lines": dict(work.lines), "seconds": seconds}


def _made(shape: str, folder: Path) -> Path:
    """A model of this shape with random weights, and the demo's tokenizer."""
    torch.manual_seed(0)
    with quiet():
        config = AutoConfig.for_model(**SHAPES[shape], vocab_size=_TOKENS)
        AutoModel.from_config(config).save_pretrained(folder)
    load_tokenizer(MODEL).save_pretrained(folder)
    return folder


def rows_of(found: Found) -> list[Found]:
    """A row for each kind of step: medians, ratios, and whether the line is reached."""
    rows = []
    for work in found["works"]:
        for kind, by_way in work["seconds"].items():
            medians = {way: statistics.median(values) for way, values in by_way.items()}
            ratios = {
                way: statistics.median(
                    theirs / ours for theirs, ours in zip(by_way[way], by_way["frostline"], strict=True)
                )
                for way in _OTHERS
            }
            line = work["lines"][kind]
            rows.append(
                {"work": work["work"], "kind": kind, "medians": medians, "ratios": ratios, "line": line}
                | {"is_reached": ratios["bare"] >= line}
            )
    return rows


def shapes_table(found: Found) -> str:
    """What was found, as Markdown."""
    return table(
        rows_of(found),
        {
            "steps of": lambda row: row["work"],
            "": lambda row: "full" if row["kind"] == FULL else f"{row['kind'].removeprefix('freeze:')} frozen",
            "Trainer": lambda row: f"{1000 * row['medians']['trainer']:.0f} ms",
            "bare loop": lambda row: f"{1000 * row['medians']['bare']:.0f} ms",
            "frostline": lambda row: f"{1000 * row['medians']['frostline']:.0f} ms",
            "× Trainer": lambda row: f"{row['ratios']['trainer']:.1f}",
            "× bare loop": lambda row: f"{row['ratios']['bare']:.1f} (line {row['line']:g})",
            "reached": lambda row: "yes" if row["is_reached"] else "NO",
        },
    )


if __name__ == "__main__":
    main()
