"""Over a whole curve every row goes through the lowest layer once, counted in every process from start to end."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from commands import Toy, frostline

# Imported at the start of the process that forks the workers, as Python would.
HOOK = """
import os
from torch.nn.modules.module import register_module_forward_pre_hook

rows = os.open(os.environ["ROWS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def count(module, args):
    if type(module).__name__ == "BertLayer" and module.attention.self.layer_idx == 0:
        os.write(rows, f"{os.getpid()} {len(args[0])}\\n".encode())

hook = register_module_forward_pre_hook(count)
"""


@dataclass(frozen=True)
class Counted:
    """Curves of one model and task, with a count of the rows that went through the lowest layer."""

    folder: Path
    curve: tuple[str, ...]

    def rows(self, *settings: str) -> tuple[int, int]:
        """Rows through the lowest layer while a command ran, and in how many processes."""
        (self.folder / "site").mkdir(exist_ok=True)
        (self.folder / "site" / "sitecustomize.py").write_text(HOOK)
        counted = self.folder / "rows"
        counted.write_text("")
        environment = {
            "PYTHONPATH": os.pathsep.join([str(self.folder / "site"), *sys.path]),
            "ROWS": str(counted),
            "FROSTLINE_CACHE": str(self.folder / "cache"),
        }
        with mock.patch.dict(os.environ, environment):
            here: dict[str, Any] = {}
            exec(HOOK, here)  # this process, which runs the command; its workers import the same
            done = frostline(*self.curve, *settings, out=self.folder / "out")
        here["hook"].remove()
        os.close(here["rows"])
        assert done.code == 0, done.stderr
        lines = [line.split() for line in counted.read_text().splitlines()]
        return sum(int(rows) for _, rows in lines), len({pid for pid, _ in lines})


def test_every_row_once_for_all_depths_seeds_and_rates(toy: Toy, tmp_path: Path) -> None:
    curve = ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), "--epochs", "1", "--workers", "2")
    counted = Counted(tmp_path, curve)
    searched, other = ("--lrs", "1e-3,3e-3", "--seeds", "2"), ("--lr", "7e-4", "--seeds", "3")
    # The runs of the full model and with nothing but the embeddings frozen go through every layer: done before.
    assert counted.rows("--frozen", "0", *searched)[1] >= 2, "both workers, or the count would prove little"
    assert counted.rows("--frozen", "1-3", *searched)[0] == 72 + 24
    assert counted.rows("--frozen", "0", *other)[0] > 0
    assert counted.rows("--frozen", "1-3", *other)[0] == 0, "another rate and another seed"


def test_twin_without_states_every_run_takes_the_rows_through(toy: Toy, tmp_path: Path) -> None:
    curve = ("curve", str(toy.model), str(toy.train), "--dev", str(toy.dev), "--lr", "1e-3", "--seeds", "2")
    counted = Counted(tmp_path, (*curve, "--epochs", "1", "--no-cache"))
    counted.rows("--frozen", "0")
    n_batches = 5 + 1 + 1  # packed, each a row by itself: of training, of dev, of the training score
    assert counted.rows("--frozen", "1-3") == (3 * 2 * n_batches, 2)


@pytest.mark.thorough
@pytest.mark.real
def test_every_row_once_on_real_weights(tmp_path: Path) -> None:
    curve = ("curve", "all-MiniLM-L6-v2", "rotten-tomatoes", "--max-train", "32", "--max-dev", "16", "--lr", "5e-5")
    counted = Counted(tmp_path, (*curve, "--seeds", "2", "--epochs", "1", "--max-length", "16"))
    counted.rows("--frozen", "0")
    assert counted.rows("--frozen", "3-6")[0] == 32 + 16
