"""Peak private memory of a few steps of a strategy on a model of BERT-base's size, as a multiple of its weights.

    python -m bench.subspace_memory --strategies full,subspace:1000

Rows have a few tokens and batches one row, so that activations hardly count. The weights are random.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from pathlib import Path

import torch
from transformers import BertConfig, BertModel

from frostline.model.load import quiet
from frostline.records.specs import RunSpec
from frostline.testing.models import make_spec, make_task, make_tokenizer
from frostline.training.memory import MemoryMeter
from frostline.training.run import Runner

N_STEPS = 3


def measured(strategies: list[str], folder: Path) -> dict[str, object]:
    """The peak of each strategy in bytes, and divided by the size of the weights."""
    model, task = folder / "model", make_task(folder / "task.csv", n_rows=40)
    with quiet():
        BertModel(BertConfig()).save_pretrained(model)
    make_tokenizer("bert").save_pretrained(model)
    spec = make_spec(model, task, batch_size=1, layout="packed", learning_rate=1e-5)
    found: dict[str, object] = {"torch": torch.__version__, "steps": N_STEPS}
    for strategy in strategies:
        peak, weights = _peak(spec.replace(strategy=strategy))
        found[strategy] = {"peak_bytes": peak, "weight_bytes": weights, "times_weights": round(peak / weights, 2)}
    return found


def _peak(spec: RunSpec) -> tuple[int, int]:
    runner = Runner(max_cache_bytes=0)
    runner.preparer.prepare(spec)
    with MemoryMeter("cpu") as meter, runner.descending(spec) as (training, descent):
        for batch in itertools.islice(descent.batches(epoch=1), N_STEPS):
            descent.step(batch)
        weights = 4 * sum(p.numel() for p in training.forward.stack.model.parameters())
        peak = meter.peak_bytes
    assert peak is not None, "the system reports private memory"
    return peak, weights


def main() -> None:
    """Measures and prints JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", default="full,subspace:1000,subspace:100000")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(arguments.strategies.split(","), Path(folder)), indent=2))


if __name__ == "__main__":
    main()
