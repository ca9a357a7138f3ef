"""Every I/O call fails once: does the command end well, and does the same command then give the same numbers?

    python -m bench.torture.faults                      # every call of every command
    python -m bench.torture.faults --every 7 --cases curve,train

The n-th call on a file of the output folder, the cache or the saved model fails with ENOSPC, EIO or EINTR, or the
process is killed in the middle of it, or the disk is full from there on. The command must end with the same numbers, or
with one line and a documented exit code; the same command, left in peace, must end with the same numbers.
"""

from __future__ import annotations

import argparse
import errno
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.torture.commands import Case, Commands, Ended, Numbers, numbers_of, saved_files, toy_commands, wrong_files
from bench.torture.shim import KILL

FAULTS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EINTR": errno.EINTR, "KILL": KILL, "FULL": errno.ENOSPC}
"""what happens to a call; FULL: the disk is full from there on"""


@dataclass(frozen=True)
class Injection:
    """One call of one command that fails."""

    case: Case
    at: int
    fault: str

    def __str__(self) -> str:
        return f"{self.case.name} {self.at} {self.fault}"


@dataclass(frozen=True)
class Outcome:
    """What came of an injection."""

    injection: Injection
    call: str
    """the call that failed"""
    how: str
    """how the disturbed command ended"""
    problems: tuple[str, ...]
    stderr: str

    def __str__(self) -> str:
        return f"{self.injection} ({self.call}): {self.how}{''.join(f'; {problem}' for problem in self.problems)}"


def undisturbed(commands: Commands, case: Case) -> tuple[Numbers, int]:
    """The numbers of a command that nothing disturbed, and how many calls it made."""
    base = _fresh(commands, case.name)
    commands.shim.fail(base, 0, 0)
    ended = commands.run(case, base)
    commands.shim.stop()
    if ended.code or ended.fault:
        raise RuntimeError(f"{case.name} fails undisturbed: {ended.fault or ended.stderr}")
    return numbers_of(case, base, ended.stdout), commands.shim.count


def inject(commands: Commands, injection: Injection, wanted: Numbers) -> Outcome:
    """Disturbs a command, then runs it in peace."""
    case, base = injection.case, _fresh(commands, "disturbed")
    is_lasting = injection.fault == "FULL"
    commands.shim.fail(base, injection.at, FAULTS[injection.fault], is_lasting=is_lasting)
    first = commands.run(case, base)
    commands.shim.stop()
    calls = [f"{call.what} {Path(call.path).relative_to(base)}" for call in commands.shim.calls()]
    failed = calls[injection.at - 1] if injection.at <= len(calls) else "no such call this time"
    problems = [*_problems(case, base, first, wanted, is_killed=injection.fault == "KILL")]
    problems += resumed(commands, case, base, wanted)
    how = "same numbers" if not (first.code or problems) else f"exit {first.code}"
    return Outcome(injection, failed, how, tuple(problems), first.stderr)


def resumed(commands: Commands, case: Case, base: Path, wanted: Numbers) -> Iterator[str]:
    """What is wrong with the same command, left in peace. A saved model must be whole; it is saved again."""
    if case.saves and (base / "save").exists():
        if (found := saved_files(base)) != wanted.saved:
            yield f"the saved model is not whole: {sorted(found)}"
        shutil.rmtree(base / "save")
    ended = commands.run(case, base)
    if ended.code:
        yield f"resumed: exit code {ended.code}: {ended.stderr.strip().splitlines()[-1:]}"
        return
    yield from (f"resumed: {problem}" for problem in _problems(case, base, ended, wanted, is_killed=False))
    yield from (f"resumed: check finds {finding}" for finding in wrong_files(base))


def _problems(case: Case, base: Path, ended: Ended, wanted: Numbers, *, is_killed: bool) -> Iterator[str]:
    is_excused = is_killed and ended.code == KILL
    if ended.fault and not is_excused:
        yield ended.fault
    if ended.code:
        return
    try:
        found = numbers_of(case, base, ended.stdout)
    except (AssertionError, ValueError) as error:
        yield f"what it left cannot be read: {error!r}"
        return
    if difference := found.difference(wanted):
        yield difference


def _fresh(commands: Commands, name: str) -> Path:
    base = commands.folder / name
    shutil.rmtree(base, ignore_errors=True)
    return base


def injections(case: Case, n_calls: int, every: int, rng: random.Random) -> list[Injection]:
    """Every call, or every so many, each with a fault drawn at random."""
    faults = [*FAULTS]
    return [Injection(case, at, rng.choice(faults)) for at in range(rng.randint(1, every), n_calls + 1, every)]


def main() -> None:
    """Prints each injection with a problem, and a table; exit code 1 if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1, help="try every so many calls")
    parser.add_argument("--cases", default="curve,curve-2,find,find-2,train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs=2, metavar=("N", "FAULT"), help="one injection")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with toy_commands() as commands:
        names = arguments.cases.split(",")
        found = [outcome for name in names for outcome in _case(commands, commands.case(name), arguments, rng)]
    sys.exit(any(outcome.problems for outcome in found))


def _case(commands: Commands, case: Case, arguments: argparse.Namespace, rng: random.Random) -> list[Outcome]:
    wanted, n_calls = undisturbed(commands, case)
    tried: Iterable[Injection] = injections(case, n_calls, arguments.every, rng)
    if arguments.only:
        tried = [Injection(case, int(arguments.only[0]), arguments.only[1])]
    outcomes = []
    began = time.monotonic()
    for injection in tried:
        outcomes.append(outcome := inject(commands, injection, wanted))
        if outcome.problems or arguments.only:
            print(f"PROBLEM {outcome}\n{_indented(outcome.stderr)}" if outcome.problems else outcome, flush=True)
        if len(outcomes) % 100 == 0:
            print(f"{case.name}: {len(outcomes)} of {n_calls} calls so far", flush=True)
    table = Counter(outcome.how if not outcome.problems else "problem" for outcome in outcomes)
    words = ", ".join(f"{count} {how}" for how, count in sorted(table.items()))
    print(
        f"{case.name}: {n_calls} calls, {len(outcomes)} tried in {time.monotonic() - began:.0f} s: {words}", flush=True
    )
    return outcomes


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-8:])


if __name__ == "__main__":
    main()
