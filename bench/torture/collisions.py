"""Whole commands at the same time on one output folder, with a cache that is too small: do all give the same numbers?

python -m bench.torture.collisions --rounds 10
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.torture.commands import Case, Commands, Ended, Numbers, ended, numbers_of, toy_commands
from bench.torture.faults import undisturbed

TINY_CACHE = ("--cache-max-gb", "0.00002")
"""20 kB: the states of both splits at one depth fit, those of a second one do not"""


def collide(
    commands: Commands, case: Case, wanted: Numbers, n_commands: int, rng: random.Random, seconds: float = 0.0
) -> list[str]:
    """Runs a command several times at once, started within some seconds; what is wrong."""
    base = commands.folder / "collided"
    shutil.rmtree(base, ignore_errors=True)
    tight = dataclasses.replace(case, words=(*case.words, *TINY_CACHE))
    found: list[Ended] = []
    threads = []
    for _ in range(n_commands):
        command = commands.start(tight, base)
        threads.append(threading.Thread(target=lambda command=command: found.append(ended(command))))
        threads[-1].start()
        time.sleep(rng.uniform(0, seconds / n_commands))
    for thread in threads:
        thread.join()
    return [problem for one in found for problem in _problems(one, tight, base, wanted)]


def _problems(one: Ended, case: Case, base: Path, wanted: Numbers) -> Sequence[str]:
    if one.code or one.fault:
        return [f"{one.fault or f'exit code {one.code}'}: {one.stderr.splitlines()[-3:]}"]
    difference = numbers_of(case, base, one.stdout).difference(wanted)
    return [difference] if difference else []


def main() -> None:
    """Prints each round with a problem, and a count; exit code 1 if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10, help="for each command and number of commands")
    parser.add_argument("--cases", default="depths,find")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    n_bad = n_rounds = 0
    with toy_commands() as commands:
        for name in arguments.cases.split(","):
            case = commands.case(name)
            began = time.monotonic()
            wanted, _ = undisturbed(commands, case)
            seconds = time.monotonic() - began
            for number in range(arguments.rounds):
                for n_commands in (2, 4):
                    n_rounds += 1
                    problems = collide(commands, case, wanted, n_commands, rng, seconds * (number % 2))
                    n_bad += bool(problems)
                    if problems:
                        print(f"PROBLEM {n_commands} times {name}: {'; '.join(problems)}", flush=True)
    print(f"{n_rounds} collisions of two and four commands, {n_bad} with problems")
    sys.exit(n_bad > 0)


if __name__ == "__main__":
    main()
