"""What the pooled states of all layers take beside one plain forward pass over the same rows.

    python -m bench.features [--rows 1000] [--repetitions 5]

One thread, interleaved, medians. The plain pass is what scores a dev set: the whole model, short rows first, padded to
the longest of a batch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from bench.workload import MODEL
from frostline import tasks
from frostline.model.load import load_model, load_tokenizer
from frostline.model.stack import Stack
from frostline.storage.prefix_cache import Origin
from frostline.training.batches import encode
from frostline.training.forward import Forward, predict
from frostline.training.pooled import pooled_states
from frostline.training.prefix import Prefixes, Split


def main() -> None:
    """Prints both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(MODEL)
    data = tasks.load(tasks.resolve(tasks.parse("rotten-tomatoes", max_train=given.rows)))
    encoded = encode(data.train, tokenizer, max_length=128, pair_joiner=None)
    stack = Stack(load_model(MODEL, head_seed=0, head=data.head, pad_token_id=tokenizer.pad_token_id))
    stack.eval()
    origin = Origin(
        model=MODEL, model_fingerprint="m", task="bench", split="train", layout="padded", device="cpu", dtype="fp32"
    )
    ways: dict[str, Callable[[], object]] = {
        "a plain forward pass": lambda: predict(Forward(stack), Split(encoded)),
        "pooled states of all layers": lambda: pooled_states(Prefixes(0), encoded, origin, lambda: stack),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.repetitions + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}  # the first warms up
    plain, pooled = medians.values()
    for name, median in medians.items():
        print(f"{name}: {median:.2f} s")
    print(f"ratio: {pooled / plain:.2f}")


if __name__ == "__main__":
    main()
