"""Made-up tables that are hard to read, written in every format."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

import pyarrow
from pyarrow import parquet


def columns(n_rows: int, seed: int) -> dict[str, list[str]]:
    """Texts with quotation marks, line ends and letters of several bytes; labels of three unequal classes; numbers."""
    draw = random.Random(seed)
    words = ("plain", 'a "quote"', "comma, tab\t", "two\nlines", "three\r\nmore", "é", "漢字", "🧊", " space ", "")
    return {
        "text": [" ".join(draw.choices(words, k=draw.randrange(9))) for _ in range(n_rows)],
        "text_pair": [f"{number} {draw.choice(words)}" for number in range(n_rows)],
        "label": [draw.choices(("yes", "no ", "perhaps"), (6, 3, 1))[0] for _ in range(n_rows)],
        "value": [str(draw.randrange(-400, 400) / 8) for _ in range(n_rows)],
    }


def write(path: Path, table: dict[str, list[str]]) -> None:
    """The table in the format of the file's ending."""
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table(table), path, row_group_size=170)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.writer(stream, "excel-tab" if path.suffix == ".tsv" else "excel")
            writer.writerows([list(table), *zip(*table.values(), strict=True)])
