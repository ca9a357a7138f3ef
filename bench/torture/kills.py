"""Kills at random moments: does a command that is started again end with the same numbers?

    python -m bench.torture.kills --kills 1000

SIGKILL to the driver, a worker, the process that forks workers, or all of them, or to whoever writes to a pipe, in the
middle of a job or an answer. A command that ended is started again, and killed again, several times; then it is left in
peace.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.torture.commands import Case, Commands, Numbers, ended, kill_group, toy_commands
from bench.torture.faults import resumed, undisturbed
from bench.torture.shim import KILL
from commands import children
from forked_commands import Command

VICTIMS = ("driver", "worker", "fork server", "all", "pipe")
ENDINGS = (0, 5, KILL)
"""exit codes of a command with a killed process: it was over, a run crashed, or it was killed itself"""


def kill_once(commands: Commands, case: Case, base: Path, victim: str, rng: random.Random, seconds: float) -> str:
    """Starts a command and kills a process of it at a random moment; what is wrong with how it ended."""
    n_writes = rng.randint(2, 31)  # the first is not the command's: it tells us its process id
    if victim == "pipe":
        commands.shim.kill_in_pipe(n_writes)
    command = commands.start(case, base)
    if victim != "pipe":
        _wait(command, rng.uniform(0, seconds))
        _kill(command, victim, rng)
    how = ended(command)
    commands.shim.stop()
    if how.code in ENDINGS and not (how.was_stuck or how.has_orphans or "Traceback" in how.stderr):
        return ""
    last = "\n    ".join(how.stderr.splitlines()[-80 if how.was_stuck else -6 :])
    return f"{victim} killed: {how.fault or f'exit code {how.code}'}:\n    {last}"


def _wait(command: Command, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


def _kill(command: Command, victim: str, rng: random.Random) -> None:
    if victim == "all":
        kill_group(command.pid)
        return
    servers = [pid for pid, _ in children(command.pid)]
    workers = [pid for server in servers for pid, _ in children(server)]
    among = {"driver": [command.pid], "fork server": servers, "worker": workers}[victim]
    if among and command.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(among), signal.SIGKILL)


def killed_and_resumed(
    commands: Commands, case: Case, wanted: Numbers, victims: Sequence[str], rng: random.Random, seconds: float
) -> list[str]:
    """Kills one command after the other on one folder, then leaves one in peace; what is wrong."""
    base = commands.folder / "killed"
    shutil.rmtree(base, ignore_errors=True)
    problems = [kill_once(commands, case, base, victim, rng, seconds) for victim in victims]
    return [problem for problem in problems if problem] + list(resumed(commands, case, base, wanted))


def main() -> None:
    """Prints each command with a problem, and a count; exit code 1 if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--per-command", type=int, default=5, help="kills before a command is left in peace")
    parser.add_argument("--cases", default="curve-2,find-2,curve,find")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    tally: Counter[str] = Counter()
    n_bad = 0
    with toy_commands() as commands:
        cases = [commands.case(name) for name in arguments.cases.split(",")]
        known = {case: _timed(commands, case) for case in cases}
        while sum(tally.values()) < arguments.kills:
            case = cases[sum(tally.values()) // arguments.per_command % len(cases)]
            victims = rng.choices(VICTIMS, k=arguments.per_command)
            wanted, seconds = known[case]
            problems = killed_and_resumed(commands, case, wanted, victims, rng, seconds)
            tally.update(victims)
            n_bad += bool(problems)
            if problems:
                print(f"PROBLEM {case.name} {victims}: {'; '.join(problems)}", flush=True)
            if sum(tally.values()) % 100 == 0:
                print(f"{sum(tally.values())} kills so far, {n_bad} commands with problems", flush=True)
    words = ", ".join(f"{count} {victim}" for victim, count in tally.items())
    print(f"{sum(tally.values())} kills ({words}), {n_bad} commands with problems")
    sys.exit(n_bad > 0)


def _timed(commands: Commands, case: Case) -> tuple[Numbers, float]:
    began = time.monotonic()
    wanted, _ = undisturbed(commands, case)
    return wanted, time.monotonic() - began


if __name__ == "__main__":
    main()
