"""Peak private memory of a run, Trainer's or ours, in a process of its own; and of a command with all its processes."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.processes import Answer, answer_of, answering
from bench.steps import specs_of, started
from bench.trainer import frozen_model, make_trainer, tokenised
from bench.workload import MODEL, TASK, Asked
from frostline import tasks
from frostline.model.load import load_tokenizer
from frostline.records.environment import n_cores
from frostline.training.forward import predict
from frostline.training.memory import MemoryMeter, private_bytes, release_memory
from frostline.training.run import Runner

_SECONDS_BETWEEN_LOOKS = 0.1


class PeakOfTree:
    """Within its `with` block, notes the peak of private memory of a process and all that it started, together."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.bytes = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_SECONDS_BETWEEN_LOOKS):
            self.bytes = max(self.bytes, sum(_private_bytes(pid) for pid in _tree(self._pid)))


def _tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        found += [descendant for child in children for descendant in _tree(int(child))]
    return found


def _private_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it ended meanwhile
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def peak_of_run(asked: Asked, way: str, kind: str, n_train: int) -> Answer:
    """Peak private memory of a process that does a run's steps and scores dev, and its level after imports."""
    question = {
        "way": way,
        "data": asked.data,
        "kind": kind,
        "n_train": n_train,
        "max_dev": asked.sizes.max_dev,
        "n_steps": asked.sizes.memory_steps,
    }
    threads = None if way == "frostline" else n_cores()
    with tempfile.TemporaryDirectory() as cache:
        return answer_of("bench.memory", question, cache=cache, threads=threads)


def _ours(data: str, kind: str, n_train: int, max_dev: int | None, n_steps: int) -> None:
    spec = specs_of(TASK, data=data, max_train=n_train, max_dev=max_dev)[kind]
    with started(Runner(), spec) as steps:
        for _ in range(n_steps):
            steps.step()
        predict(steps.training.forward, steps.training.dev)


def _trainer(data: str, kind: str, n_train: int, max_dev: int | None, n_steps: int) -> None:
    rows = tasks.load(tasks.parse(TASK, data=data, max_train=n_train, max_dev=max_dev))
    tokenizer = load_tokenizer(MODEL)
    model = frozen_model(kind, rows, tokenizer, head_seed=0)
    train, dev = (tokenised(part, tokenizer) for part in (rows.train, rows.dev))
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(model, train, tokenizer, folder, max_steps=n_steps, learning_rate=3e-5)
        trainer.train()
        trainer.predict(dev)


def main() -> None:
    """Does a run and answers with its memory."""
    question = json.loads(sys.argv[1])
    work = {"frostline": _ours, "trainer": _trainer}[question.pop("way")]
    with answering() as answer:
        release_memory()
        level = private_bytes()
        with MemoryMeter("cpu") as meter:
            work(**question)
            above = meter.peak_bytes
        if level is None or above is None:
            raise SystemExit("the system does not tell private memory")
        answer({"peak_bytes": level + above, "above_imports_bytes": above})


if __name__ == "__main__":
    main()
