"""How long a report over 9 tasks × 4 models × 8 depths × 5 seeds takes, and how large it is. The results are made up.

    python -m bench.large_report [--out DIR]

The stores are written first (1,800 runs with the predictions of 872 dev rows each); then the whole command is timed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from frostline.records.arrays import StoredArray
from frostline.records.environment import current_environment
from frostline.records.keys import key_of
from frostline.records.plans import Plan
from frostline.records.requests import ResolvedRequest, StudyRequest
from frostline.records.results import Cost, EpochRecord, Predictions, RunResult
from frostline.records.specs import RunSpec, TaskSpec
from frostline.storage.runs import FolderIdentity, Store
from frostline.strategies import Freeze, parse
from frostline.studies.planning.protocols import depth_programme, flat
from frostline.studies.study import Results

TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
MODELS = ("bert-base-uncased", "bert-large-uncased", "roberta-base", "roberta-large")
N_LAYERS = 12
DEPTHS = tuple(range(5, 13))
N_DEV = 872
FULL = 0.85


def write_stores(folder: Path) -> Iterator[Path]:
    """An out folder for each task and model."""
    rng = np.random.default_rng(1911)
    labels = StoredArray.of(np.arange(N_DEV) % 2)
    rows = StoredArray.of(np.arange(N_DEV))
    for task in TASKS:
        for model in MODELS:
            out = folder / f"{model}-{task}"
            _write_store(out, _resolved(task, model), rows, labels, rng)
            yield out


def _resolved(task: str, model: str) -> ResolvedRequest:
    spec = TaskSpec(name=task, source=None, data=None, dev=None, kind="classification", metric="accuracy")
    base = RunSpec(
        model=model, model_fingerprint=model, task=spec, data_fingerprint=task, strategy="full",
        learning_rate=1e-5, epochs=3, seed=0, is_cached=False,
    )  # fmt: skip
    asked = StudyRequest(model=model, task=spec, frozen=DEPTHS)
    return ResolvedRequest(request=asked, base=base, n_layers=N_LAYERS, depths=DEPTHS, is_cached=True)


def _write_store(
    out: Path, resolved: ResolvedRequest, rows: StoredArray, labels: StoredArray, rng: np.random.Generator
) -> None:
    base = resolved.base
    identity = FolderIdentity(
        model=base.model, model_fingerprint=base.model, task=base.task.name, data_fingerprint=base.task.name
    )
    store = Store.open(out, identity)
    store.put_request(store.request_path("curve", key_of(resolved.to_json())), resolved)
    programme, results = depth_programme(resolved), Results()
    for wanted in programme.searching(results):
        results.add(_result(wanted.spec, rows, labels, rng))
    for result in results.finished.values():
        store.put(result)
    for spec in flat(programme.replicates(programme.rates(results))):
        store.put(_result(spec, rows, labels, rng))


def _result(spec: RunSpec, rows: StoredArray, labels: StoredArray, rng: np.random.Generator) -> RunResult:
    strategy = parse(spec.strategy)
    n_frozen = strategy.n_frozen if isinstance(strategy, Freeze) else None
    wanted = FULL * (1 - 0.4 * ((n_frozen or 0) / N_LAYERS) ** 6) + rng.normal(0, 0.008)
    truth = labels.array()
    answers = np.where(rng.random(N_DEV) < wanted, truth, 1 - truth)
    score = float(np.mean(answers == truth))
    outputs = StoredArray.of(
        np.eye(2, dtype=np.float32)[answers] + rng.normal(0, 0.1, (N_DEV, 2)).astype(np.float32) / 4
    )
    epochs = tuple(
        EpochRecord(epoch=e, train_loss=0.7 / e, metrics={"accuracy": score - 0.02 * (3 - e)}, learning_rate=0.0,
                    n_steps=100, seconds=3.0)
        for e in (1, 2, 3)
    )  # fmt: skip
    trained = 110_000_000 if n_frozen is None else 7_000_000 * (N_LAYERS - n_frozen) + 600_000
    cost = Cost(
        seconds=9.0, prefix_seconds=1.0, peak_bytes=4 * trained, cache_bytes=0, trained_parameters=trained,
        total_parameters=110_000_000,
    )  # fmt: skip
    return RunResult(
        spec=spec,
        plan=Plan.one_phase(n_frozen=n_frozen, cached_layers=n_frozen, trained=("head.weight",)),
        epochs=epochs,
        score=score,
        metrics={"accuracy": score},
        chance=0.5,
        train_score=min(1.0, score + 0.1),
        predictions=Predictions(rows=rows, labels=labels, outputs=outputs),
        label_names=("bad", "good"),
        n_train=4000,
        n_dev=N_DEV,
        n_layers=N_LAYERS,
        cost=cost,
        warnings=(),
        environment=current_environment("cpu"),
    )


def main() -> None:
    """Prints seconds and bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.out or Path(temporary)
        outs = [str(out) for out in write_stores(folder)]
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "frostline", "report", *outs, "--format", "html", "--to", str(folder)], check=True
        )
        seconds = time.perf_counter() - began
        n_bytes = (folder / "report.html").stat().st_size
    print(f"{len(outs)} curves, {50 * len(outs)} runs: {seconds:.1f} s, {n_bytes / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
