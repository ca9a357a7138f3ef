"""Runs on a real Ray cluster on this machine against local runs: the same bits, node kills, and what Ray costs.

    python -m bench.cluster equality --max-train 96               # curve, find and compare on two nodes
    python -m bench.cluster kills --n-kills 10                    # a node is killed at random moments of a curve
    python -m bench.cluster overhead                              # one node with two workers against --on local

All on all-MiniLM-L6-v2 and the demo's sentences. `overhead` needs an idle machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.clusters import TwoNodes, two_nodes
from frostline.records.results import RunResult
from frostline.storage.runs import Store

COMMANDS = {
    "curve": ("--frozen", "3-6"),
    "find": ("--frozen", "3,6", "--keep", "0.9", "--lrs", "3e-5,1e-4"),
    "compare": ("--strategies", "full,freeze:3", "--lrs", "3e-5,1e-4"),
}


def run(command: str, out: Path, asked: argparse.Namespace, *where: str) -> float:
    """Seconds of a command; it must succeed."""
    settings = (
        "--seeds", str(asked.seeds), "--epochs", str(asked.epochs), "--max-train", str(asked.max_train),
        "--max-dev", str(asked.max_dev), "--max-length", "32", "--out", str(out), "--json",
    )  # fmt: skip
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "frostline", command, "all-MiniLM-L6-v2", "rotten-tomatoes", *COMMANDS[command],
         *settings, *where],
        check=True, stdout=subprocess.DEVNULL, stderr=asked.stderr,
    )  # fmt: skip
    return time.monotonic() - began


def results(out: Path) -> dict[str, RunResult]:
    """The runs of an output folder by key."""
    return {result.key: result for result in Store(out).results()}


def differing(one: Path, other: Path) -> tuple[int, list[str]]:
    """How many runs two folders have, and the keys of those that differ in any bit or are in one of them only."""
    first, second = results(one), results(other)
    wrong = first.keys() ^ second.keys()
    for key in first.keys() & second.keys():
        ours, theirs = first[key], second[key]
        losses = [[epoch.train_loss for epoch in run.epochs] for run in (ours, theirs)]
        if losses[0] != losses[1] or ours.metrics != theirs.metrics or ours.predictions != theirs.predictions:
            wrong |= {key}
    return len(first), sorted(wrong)


def equality(folder: Path, asked: argparse.Namespace) -> None:
    """The bits of curve, find and compare, on two nodes and here."""
    with two_nodes(folder / "cluster") as cluster, own_cache(cluster):
        for command in asked.commands:
            here, there = cluster.driver_root / f"{command}-local", cluster.driver_root / f"{command}-ray"
            seconds = run(command, here, asked, "--workers", "2")
            on_ray = run(command, there, asked, "--on", "ray", "--ray-address", cluster.address)
            n_runs, wrong = differing(here, there)
            print(f"{command}: {n_runs} runs, {len(wrong)} differ; {seconds:.0f} s here, {on_ray:.0f} s on Ray")
        print(f"driver paths that nodes opened: {len(cluster.opened())}")
        for cache, n_rows in cluster.prefix_rows().items():
            print(f"{Path(cache).name}: {n_rows} rows through layer 1 for prefix states")


def kills(folder: Path, asked: argparse.Namespace) -> None:
    """Curves on two nodes, one of which is killed at random moments, again and again."""
    rng = np.random.default_rng(asked.seed)
    with two_nodes(folder / "cluster", has_far=False) as cluster, own_cache(cluster):
        here = cluster.driver_root / "local"
        run("curve", here, asked, "--workers", "2")
        n_killed = n_curves = 0
        while n_killed < asked.n_kills:
            n_curves += 1
            there = cluster.driver_root / f"ray-{n_curves}"
            killed, said = _killed_in_a_curve(cluster, there, asked, rng, asked.n_kills - n_killed)
            n_killed += len(killed)
            n_runs, wrong = differing(here, there)
            moments = ", ".join(f"{moment:.1f}" for moment in killed)
            n_again = said.count("the run starts again")
            print(f"curve: {n_runs} runs, {len(wrong)} differ; killed {moments} s after a first run; {n_again} again")
        print(f"{n_killed} kills in {n_curves} curves; driver paths that nodes opened: {len(cluster.opened())}")


def _killed_in_a_curve(
    cluster: TwoNodes, out: Path, asked: argparse.Namespace, rng: np.random.Generator, most: int
) -> tuple[list[float], str]:
    """How long after the end of its first run each node was killed, and what the driver said."""
    log = out.with_suffix(".log")
    driver = threading.Thread(target=run, args=("curve", out, asked, "--on", "ray", "--ray-address", cluster.address))
    killed: list[float] = []
    with log.open("wb") as asked.stderr:
        driver.start()
        for name in (f"doomed-{number}" for number in range(most)):
            with cluster.added(name):
                while driver.is_alive() and f" on {name}" not in log.read_text():
                    driver.join(0.05)
                if not driver.is_alive():
                    break
                seconds = float(rng.uniform(0, asked.seconds_apart))
                driver.join(seconds)
            killed.append(seconds)
        driver.join()
    return killed, log.read_text()


def overhead(folder: Path, asked: argparse.Namespace) -> None:
    """The time of a curve with two workers: processes of this machine, and one node of a cluster, in turns."""
    with two_nodes(folder / "cluster", n_cpus=2, has_far=False) as cluster, own_cache(cluster):
        for number in range(asked.repeats):
            here, there = (cluster.driver_root / f"{place}-{number}" for place in ("local", "ray"))
            os.environ["FROSTLINE_CACHE"] = str(here.with_suffix(".cache"))
            seconds = run("curve", here, asked, "--workers", "2")
            on_ray = run("curve", there, asked, "--on", "ray", "--ray-address", cluster.address)
            cluster.clear("near")
            load = os.getloadavg()[0]
            print(f"{seconds:.1f} s here, {on_ray:.1f} s on Ray: {on_ray / seconds:.3f} times (load {load:.1f})")


@contextlib.contextmanager
def own_cache(cluster: TwoNodes) -> Iterator[None]:
    """The driver's cache lies below its folder too."""
    before = os.environ.get("FROSTLINE_CACHE")
    os.environ["FROSTLINE_CACHE"] = str(cluster.driver_root / "cache")
    try:
        yield
    finally:
        os.environ.pop("FROSTLINE_CACHE")
        if before is not None:
            os.environ["FROSTLINE_CACHE"] = before


def main() -> None:
    """Does one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("equality", "kills", "overhead"))
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS), choices=list(COMMANDS))
    parser.add_argument("--seeds", type=int, default=4, help="at least 4: find decides nothing with fewer")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max-train", type=int, default=256)
    parser.add_argument("--max-dev", type=int, default=128)
    parser.add_argument("--n-kills", type=int, default=10)
    parser.add_argument("--seconds-apart", type=float, default=15.0, help="most seconds that a node does runs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    asked.stderr = None if asked.verbose else subprocess.DEVNULL
    with tempfile.TemporaryDirectory() as folder:
        {"equality": equality, "kills": kills, "overhead": overhead}[asked.what](Path(folder), asked)


if __name__ == "__main__":
    main()
