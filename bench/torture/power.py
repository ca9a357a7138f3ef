"""Power loss at random moments: is anything damaged used, and is all there that was reported as finished?

    python -m bench.torture.power --moments 200
    python -m bench.torture.power --syncs       # which syncs could be left out without anybody noticing?

The calls of a command are recorded. At a moment, its folder is rebuilt as a power loss may leave it (replay.py):
- every file with its final name is whole (`flaws`),
- every run that was reported is there, and a model that was reported as saved; after the end, every file,
- the same command ends with the same numbers.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.torture.commands import Case, Commands, Numbers, numbers_of, toy_commands
from bench.torture.faults import resumed
from bench.torture.replay import Disk, Loss, Recording, Tree, folders_at_risk, is_visible, left_of, write_tree
from bench.torture.shim import Call


def recorded(commands: Commands, case: Case) -> tuple[Recording, Numbers]:
    """A command that nothing disturbed, with all its calls."""
    base = commands.folder / f"recorded-{case.name}"
    shutil.rmtree(base, ignore_errors=True)
    commands.shim.record(base)
    ended = commands.run(case, base)
    commands.shim.stop()
    if ended.code or ended.fault:
        raise RuntimeError(f"{case.name} fails undisturbed: {ended.fault or ended.stderr}")
    recording = Recording.of(commands.shim, base)
    _check_complete(recording)
    return recording, numbers_of(case, base, ended.stdout)


def _check_complete(recording: Recording) -> None:
    """Raises unless the replay of all calls gives the folder that the command left."""
    nothing = Loss(folder="no folder is lost")
    left = left_of(recording.disk_at(len(recording.calls)), nothing, random.Random(0))
    found = {path: one.content for path, one in left.items() if one is not None}
    files = [path for path in recording.base.rglob("*") if path.is_file()]
    there = {str(path.relative_to(recording.base)): path.read_bytes() for path in files}
    if found != there:
        different = sorted(path for path in found.keys() | there.keys() if found.get(path) != there.get(path))
        raise RuntimeError(f"calls were missed, on {different}")


def flaws(disk: Disk, tree: Tree, *, is_over: bool) -> Iterator[str]:
    """What is wrong with what a power loss left."""
    for path, left in tree.items():
        if left is not None and is_visible(path) and not left.is_whole:
            yield f"damaged: {kind_of(path)}"
    for path in disk.files() if is_over else disk.promised:
        if tree.get(path) is None:
            yield f"lost: {kind_of(path)}"


def kind_of(path: str) -> str:
    """A path without keys and random names."""
    path = re.sub(r"[0-9a-f]{32}", "KEY", path)
    path = re.sub(r"/\.(\w[^/]*)\.[0-9a-f]{16}$", r"/\1", path)
    path = re.sub(r"\.frostline-[0-9a-f]{16}", ".TEMPORARY", path)
    path = re.sub(r"(unfinished-|/)\d+(?=/|$)", r"\1N", path)
    return re.sub(r"/\.[a-z0-9_]{8}(?=/|$)", "/.TEMPORARY", path)


def all_flaws(recording: Recording) -> Iterator[str]:
    """Yields the flaws at every moment, whatever is lost: all content, or the names in any one folder."""
    n_calls, rng = len(recording.calls), random.Random(0)
    for moment, call in enumerate(recording.calls, start=1):
        if call.what in ("dirty", "create", "close", "seen") and moment < n_calls:
            continue
        disk = recording.disk_at(moment)
        for folder in (None, *folders_at_risk(disk)):
            tree = left_of(disk, Loss(all_content=folder is None, folder=folder), rng)
            lost = "" if folder is None else f" with the names in {kind_of(folder) or 'the folder above'}"
            yield from (f"{flaw}{lost}" for flaw in flaws(disk, tree, is_over=moment == n_calls))


def unneeded_syncs(recording: Recording) -> list[str]:
    """Kinds of files and folders whose sync could be left out, and no flaw would appear."""
    syncs = {kind_of(_within(recording, call)) for call in recording.calls if call.what == "sync"}
    known = set(all_flaws(recording))
    return [kind for kind in sorted(syncs) if all(flaw in known for flaw in all_flaws(_without(recording, kind)))]


def _without(recording: Recording, kind: str) -> Recording:
    return recording.without_syncs(lambda call: kind_of(_within(recording, call)) == kind)


def _within(recording: Recording, call: Call) -> str:
    return str(Path(call.path).relative_to(recording.base)) if call.path else ""


def lose_power(
    commands: Commands, case: Case, recording: Recording, wanted: Numbers, moment: int, rng: random.Random
) -> list[str]:
    """What is wrong after a power loss at a moment, and with the same command after it."""
    disk = recording.disk_at(moment)
    tree = left_of(disk, Loss(), rng)
    base = commands.folder / "after-power-loss"
    shutil.rmtree(base, ignore_errors=True)
    write_tree(tree, base)
    is_over = moment == len(recording.calls)
    return [*flaws(disk, tree, is_over=is_over), *resumed(commands, case, base, wanted)]


def moments(recording: Recording, n_moments: int, rng: random.Random) -> Sequence[int]:
    """Random moments, and the end of the command."""
    return [*sorted(rng.choices(range(1, len(recording.calls)), k=n_moments - 1)), len(recording.calls)]


def main() -> None:
    """Prints each moment with a problem, and a count; exit code 1 if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=200, help="for each command")
    parser.add_argument("--cases", default="curve-2,train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--syncs", action="store_true", help="look for syncs that nothing needs")
    arguments = parser.parse_args()
    n_bad = 0
    with toy_commands() as commands:
        for name in arguments.cases.split(","):
            case = commands.case(name)
            recording, wanted = recorded(commands, case)
            for flaw in sorted(set(all_flaws(recording))):
                n_bad += 1
                print(f"PROBLEM {name}: {flaw}", flush=True)
            if arguments.syncs:
                for kind in unneeded_syncs(recording):
                    n_bad += 1
                    print(f"PROBLEM {name}: no flaw appears without the sync of {kind}", flush=True)
                continue
            n_bad += _losses(commands, case, recording, wanted, arguments)
    sys.exit(n_bad > 0)


def _losses(
    commands: Commands, case: Case, recording: Recording, wanted: Numbers, arguments: argparse.Namespace
) -> int:
    rng = random.Random(arguments.seed)
    n_bad = 0
    for moment in moments(recording, arguments.moments, rng):
        if problems := lose_power(commands, case, recording, wanted, moment, rng):
            n_bad += 1
            print(f"PROBLEM {case.name} after call {moment}: {'; '.join(problems)}", flush=True)
    print(f"{case.name}: {len(recording.calls)} calls, {arguments.moments} power losses, {n_bad} with problems")
    return n_bad


if __name__ == "__main__":
    main()
