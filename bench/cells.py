"""Runs the cells of a simulation in processes and keeps every finished one, so that a killed run continues.

A cell is one world with everything that its outcome depends on. Its outcome is a dataclass.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.worlds import WORLDS, World

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Cell:
    """A world, and how it is simulated."""

    world: str
    n_seeds: int
    number: int
    """of simulated curves or searches"""
    seed: int
    """of the random numbers"""

    @property
    def simulated(self) -> World:
        """The world with this name."""
        return next(world for world in WORLDS if world.name == self.world)

    @property
    def expense(self) -> float:
        """Grows with the time that the cell takes."""
        world = self.simulated
        return len(world.depths) * (world.n_rows + 3000) * self.n_seeds * (1 + bool(world.failing))


def parser(description: str | None, what: str) -> argparse.ArgumentParser:
    """The flags that all simulations have; `what` names the things that are simulated."""
    found = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument(f"--{what}", dest="number", type=int, default=2000, help=f"{what} per world")
    found.add_argument("--seed", type=int, required=True, help="of the random numbers")
    found.add_argument("--world", nargs="*", default=[world.name for world in WORLDS], help="only these worlds")
    found.add_argument("--workers", type=int, default=2)
    found.add_argument("--json", type=Path, help="a file of finished cells, one per line; these are not repeated")
    return found


def run(
    simulate: Callable[[Cell], Row], asked: argparse.Namespace, n_seeds: Sequence[int], row: Callable[..., Row]
) -> list[Row]:
    """The outcomes of all cells, in the order of the worlds; finished ones are read from the file."""
    cells = [Cell(world, n, asked.number, asked.seed) for world in asked.world for n in n_seeds]
    done = finished(asked.json, row)
    missing = sorted((cell for cell in cells if cell not in done), key=lambda cell: -cell.expense)
    # A worker that is started afresh reads these before it loads the linear algebra: one thread per worker.
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    with ProcessPoolExecutor(asked.workers, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(simulate, cell): cell for cell in missing}
        for future in as_completed(futures):
            cell = futures[future]
            done[cell] = future.result()
            keep(asked.json, cell, done[cell])
    return [done[cell] for cell in cells]


def keep(path: Path | None, cell: Cell, found: DataclassInstance) -> None:
    """Print what was found in a cell, and append it to the file."""
    line = json.dumps({"cell": dataclasses.asdict(cell), "found": dataclasses.asdict(found)})
    print(line, file=sys.stderr, flush=True)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def finished(path: Path | None, row: Callable[..., Row]) -> dict[Cell, Row]:
    """The outcomes in a file of finished cells; none if there is no file."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {Cell(**line["cell"]): row(**line["found"]) for line in lines}


def print_missed(missed: Sequence[str]) -> None:
    """Says which worlds miss the line that they must reach, two standard errors allowed."""
    print(f"\nBeyond their line by more than two standard errors: {', '.join(missed) or 'none'}")
