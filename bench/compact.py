"""Finished runs as small files that can be committed: row numbers and outputs, no texts and no labels.

    python -m bench.compact pack --out runs/pairs --to bench/results/pairs
    python -m bench.compact unpack --from bench/results/pairs --out runs/pairs --shared ../shared

`unpack` reads the labels from the data, so that a fresh clone with the data goes on where the runs ended.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frostline import tasks
from frostline.records.arrays import StoredArray
from frostline.records.results import RunResult
from frostline.records.specs import TaskSpec
from frostline.storage.runs import FolderIdentity, Store


def pack(folder: Path, file: Path) -> int:
    """Writes the runs of an output folder into one file; returns how many."""
    results = sorted(Store(folder).results(), key=lambda result: result.key)
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(file, "wb", mtime=0) as stream:
        for result in results:
            stream.write((json.dumps(_without_labels(result), separators=(",", ":")) + "\n").encode())
    return len(results)


def unpack(file: Path, folder: Path, shared: Path) -> int:
    """Puts the runs of a file into an output folder; returns how many."""
    data: dict[TaskSpec, tasks.TaskData] = {}
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        lines = [json.loads(line) for line in stream]
    store: Store | None = None
    for line in lines:
        spec = line["spec"]
        spec["task"]["data"] = str(shared / "glue") if spec["task"]["data"] else None
        spec["model"] = str(shared / "models" / Path(spec["model"]).name) if "/" in spec["model"] else spec["model"]
        task = TaskSpec.from_json(spec["task"])
        if task not in data:
            data[task] = tasks.load(task)
        result = _with_labels(line, data[task])
        store = store or Store.open(folder, _identity(result))
        store.put(result)
    return len(lines)


def _without_labels(result: RunResult) -> dict[str, Any]:
    content = result.to_json()
    del content["predictions"]["labels"]
    content["circumstances"]["command"] = []
    return content


def _with_labels(content: dict[str, Any], data: tasks.TaskData) -> RunResult:
    rows = StoredArray.from_json(content["predictions"]["rows"]).array()
    split = data.train if content["spec"]["role"] == "tuning" else data.dev
    content["predictions"]["labels"] = StoredArray.of(_labels(split, rows)).to_json()
    return RunResult.from_json(content)


def _labels(split: tasks.Rows, rows: NDArray[Any]) -> NDArray[Any]:
    places = {int(row): place for place, row in enumerate(split.ids)}
    labels: NDArray[Any] = split.labels[np.array([places[int(row)] for row in rows])]
    return labels


def _identity(result: RunResult) -> FolderIdentity:
    spec = result.spec
    return FolderIdentity(
        model=spec.model,
        model_fingerprint=spec.model_fingerprint,
        task=spec.task.name,
        data_fingerprint=spec.data_fingerprint,
    )


def main() -> None:
    """Packs or unpacks every output folder of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pack", "unpack"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--to", "--from", dest="files", type=Path, required=True)
    parser.add_argument("--shared", type=Path, default=Path("../shared"))
    asked = parser.parse_args()
    if asked.what == "pack":
        for runs in sorted(asked.out.glob("*/*/runs")):
            place = runs.parent.relative_to(asked.out)
            print(place, pack(runs.parent, asked.files / place.parent / f"{place.name}.jsonl.gz"))
    else:
        for file in sorted(asked.files.glob("*/*.jsonl.gz")):
            place = file.relative_to(asked.files).parent / file.name.removesuffix(".jsonl.gz")
            print(place, unpack(file, asked.out / place, asked.shared))


if __name__ == "__main__":
    main()
