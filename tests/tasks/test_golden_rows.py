"""The rows of a file are those that release 0.1 chose: stored results belong to them.

`tests/data/golden_rows.json` was written by `python tests/tasks/test_golden_rows.py` before files were read in pieces.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frostline import tasks
from frostline.tasks import content
from frostline.tasks.formats import text
from tables import columns, write

GOLDEN = Path(__file__).parents[1] / "data" / "golden_rows.json"
SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"max_train": 30},
    {"max_train": 30, "max_dev": 9},
    {"max_train": 10_000, "dev_share": 0.25},
)


def cases(folder: Path) -> Iterator[tuple[str, tasks.TaskData]]:
    """What is loaded, by a name, for every combination of format, kind, dev file and limits."""
    for suffix in SUFFIXES:
        train, dev = folder / f"train{suffix}", folder / f"held{suffix}"
        write(train, columns(300, seed=1))
        write(dev, columns(80, seed=2))
        for kind, label in (("classification", "label"), ("regression", "value")):
            for own_dev in (None, str(dev)):
                for limits in LIMITS:
                    name = f"{suffix} {kind} {'cut' if own_dev is None else 'file'} {json.dumps(limits)}"
                    spec = tasks.parse(str(train), kind=kind, label=label, dev=own_dev, **limits)
                    yield name, tasks.load(spec)


def described(data: tasks.TaskData) -> dict[str, str]:
    """Everything that a run depends on, in short."""
    written: list[Any] = [data.label_names, data.warnings]
    for rows in (data.train, data.dev):
        written.append([rows.ids.tolist(), rows.texts, rows.pairs, rows.labels.tolist(), str(rows.labels.dtype)])
    content = json.dumps(written).encode()
    return {"fingerprint": data.fingerprint, "rows": hashlib.sha256(content).hexdigest()[:16]}


def found_in(folder: Path) -> dict[str, dict[str, str]]:
    return {name: described(data) for name, data in cases(folder)}


def golden(found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """The stored descriptions; other versions of pyarrow write other bytes, so Parquet has no stored fingerprint."""
    stored: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text())
    return {
        name: one | {"fingerprint": found[name]["fingerprint"]} if name.startswith(".parquet") else one
        for name, one in stored.items()
    }


@pytest.mark.parametrize("piece", [None, 997])
def test_rows_labels_warnings_and_fingerprints_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int | None
) -> None:
    if piece is not None:  # the files are large: only a few bytes are in memory, and pieces end anywhere
        monkeypatch.setattr(content, "KEPT", piece)
        monkeypatch.setattr(content, "PIECE", piece)
        monkeypatch.setattr(text, "PIECE", piece)
    found = found_in(tmp_path)
    assert found == golden(found)


def test_the_description_has_teeth(tmp_path: Path) -> None:
    write(tmp_path / "own.csv", columns(100, seed=3))
    one, other = (described(tasks.load(tasks.parse(str(tmp_path / "own.csv"), max_dev=n))) for n in (5, 6))
    assert one["fingerprint"] == other["fingerprint"]
    assert one["rows"] != other["rows"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        GOLDEN.write_text(json.dumps(found_in(Path(scratch)), indent=1) + "\n")
    sys.exit()
