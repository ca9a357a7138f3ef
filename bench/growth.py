"""What a run of ours takes, alone on one thread, as rows and lengths grow."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from typing import Any

from bench.processes import Answer, answer_of, answering
from bench.steps import specs_of, started, timed_steps, warm
from bench.workload import FULL, TASK, Asked
from frostline.training.run import Runner

HALF = "freeze:3"
_PAIRS = "rte"


def by_rows(asked: Asked) -> dict[str, Answer]:
    """Seconds of the prefix and of training with half of the layers frozen, one epoch, by training rows."""
    return {
        str(n): _answer({"rows": n, "data": asked.data, "max_dev": asked.sizes.max_dev})
        for n in asked.sizes.growth_rows
    }


def by_length(asked: Asked) -> dict[str, dict[str, Answer]]:
    """Seconds and tokens of a step on sentence pairs, by the limit of tokens and the kind of run."""
    question = {"data": asked.data, "max_train": asked.sizes.length_rows, "max_dev": asked.sizes.max_dev}
    return {
        str(n): _answer(question | {"max_length": n, "n_steps": max(2, asked.n_steps // 4)})
        for n in asked.sizes.lengths
    }


def _answer(question: dict[str, Any]) -> Answer:
    with tempfile.TemporaryDirectory() as cache:
        return answer_of("bench.growth", question, cache=cache, threads=1)


def _run(data: str, rows: int, max_dev: int | None) -> Answer:
    cost = Runner().run(specs_of(TASK, data=data, max_train=rows, max_dev=max_dev, epochs=1)[HALF]).cost
    return {"prefix_seconds": cost.prefix_seconds, "train_seconds": cost.seconds, "cache_bytes": cost.cache_bytes}


def _steps(n_steps: int, **settings: Any) -> Answer:
    specs, runner = specs_of(_PAIRS, **settings), Runner()
    answer = {}
    for kind in (HALF, FULL):
        with started(runner, specs[kind]) as steps:
            took = timed_steps(warm(steps), n_steps)
            answer[kind] = {"step_seconds": statistics.fmean(took), "tokens": steps.tokens()}
    return answer


def main() -> None:
    """Answers one question."""
    question = json.loads(sys.argv[1])
    with answering() as answer:
        answer(_run(**question) if "rows" in question else _steps(**question))


if __name__ == "__main__":
    main()
