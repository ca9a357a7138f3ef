"""Every byte counts: one bit of a stored file is flipped. Is it detected or harmless, and never another number?

    python -m bench.torture.flips --flips 1000 --commands 20

Two ways to read what was flipped. `--flips` places of each kind are read by the function that commands read it with:
it must refuse, or give what was stored. `--commands` more places are met by a whole command: it must end with the same
numbers, or with one line and a documented exit code.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.torture.commands import Case, Commands, Numbers, numbers_of, toy_commands
from commands import numbers
from frostline.errors import FrostlineError
from frostline.records.results import PausedRun, RunResult
from frostline.records.serial import Record
from frostline.saving.predict import predict
from frostline.storage.prefix_cache import Cache
from frostline.storage.runs import FolderIdentity, Store
from frostline.studies.registry import STUDIES
from frostline.training.run import Runner

TEXTS = ("a good film", "the plot was so dull", "not bad and not great")
PAUSED_AT = 3


@dataclass(frozen=True)
class Kind:
    """A kind of stored file: which files, and how a command reads one."""

    name: str
    files: tuple[str, ...]
    """patterns below the folder"""
    read: Callable[[Stored, Path], object]
    """what the file holds; None or a FrostlineError if it is refused"""
    case: str = "curve"
    """the command that meets it"""


@dataclass(frozen=True)
class Stored:
    """A folder with every kind of stored file."""

    base: Path
    identity: FolderIdentity
    paused: RunResult
    """the run that was paused, at its end"""

    @property
    def n_rows(self) -> tuple[int, int]:
        """How many rows the splits have."""
        return self.paused.n_train, self.paused.n_dev

    @property
    def store(self) -> Store:
        """Opened again, as by a command."""
        return Store.open(self.base / "out", self.identity)


def _key(path: Path) -> str:
    found = re.search(r"[0-9a-f]{32}", path.name)
    assert found, path
    return found[0]


def _run(stored: Stored, path: Path) -> object:
    result = stored.store.get(_key(path))
    return None if result is None else numbers(result)


def _requests(stored: Stored, _: Path) -> list[Record]:
    return [request for study in STUDIES for request in study.stored(stored.store)]


def _identity(stored: Stored, _: Path) -> object:
    return stored.store.folder


def _paused(stored: Stored, _: Path) -> object:
    return stored.store.get_paused(stored.paused.key, PAUSED_AT)


def _checkpoint(stored: Stored, _: Path) -> object:
    content = stored.store.checkpoint(stored.paused.key)
    if content is None:
        return None
    result = Runner(0).advance(stored.paused.spec, checkpoint=content)
    assert isinstance(result, RunResult)
    return numbers(result)


def _states(stored: Stored, path: Path) -> object:
    """Arrays with other rows are refused by who asked for them."""
    shelf = next(one for one in Cache(path.parents[3]).shelves() if one.folder == path.parents[1])
    found = shelf.open(int(path.parent.name))
    if found is None or len(found[1]) not in stored.n_rows or (found[1] != range(len(found[1]))).any():
        return None
    return found[0].shape, str(found[0].dtype), found[0].tobytes()


def _predictions(stored: Stored, _: Path) -> object:
    return predict(stored.base / "save", list(TEXTS))


KINDS = (
    Kind("run", ("out/runs/*",), _run),
    Kind("request", ("out/specs/curve-*",), _requests),
    Kind("identity", ("out/identity.json",), _identity),
    Kind("paused run", ("out/paused/*.json",), _paused),
    Kind("checkpoint", ("out/paused/*.pt", "out/paused/*.checkpoint"), _checkpoint),
    Kind("cache states", ("cache/prefix/*/*/states.npy",), _states),
    Kind("cache rows", ("cache/prefix/*/*/rows.npy",), _states),
    Kind("cache entry", ("cache/prefix/*/*/entry.json",), _states),
    Kind("manifest", ("save/frostline.json",), _predictions, ""),
    Kind("saved weights", ("save/*.safetensors",), _predictions, ""),
    Kind("saved settings", ("save/*config*.json", "save/tokenizer.json"), _predictions, ""),
)


def make_stored(commands: Commands) -> tuple[Stored, Numbers]:
    """A folder with every kind of file, and the numbers of its curve."""
    base, trained = commands.folder / "stored", commands.folder / "trained"
    curve = commands.case("curve")
    outputs = [commands.run(commands.case("train"), trained), commands.run(curve, base)]
    if any(ended.code for ended in outputs):
        raise RuntimeError("\n".join(ended.stderr for ended in outputs))
    (trained / "save").rename(base / "save")
    wanted = numbers_of(curve, base, outputs[-1].stdout)
    spec = next(result.spec for result in _results(base) if result.spec.strategy == "full")
    whole = Runner(0).run(spec)
    paused = Runner(0).advance(spec, until=PAUSED_AT)
    assert isinstance(paused, PausedRun)
    stored = Stored(base, _identity_of(base), whole)
    stored.store.put_paused(paused)
    return stored, wanted


def _results(base: Path) -> list[RunResult]:
    return Store.open(base / "out", _identity_of(base)).results()


def _identity_of(base: Path) -> FolderIdentity:
    import json

    return FolderIdentity.from_json(json.loads((base / "out" / "identity.json").read_text())["content"])


@contextlib.contextmanager
def flipped(path: Path, rng: random.Random) -> Iterator[str]:
    """One bit of a file is flipped; afterwards the file is as before. Gives the place."""
    content = path.read_bytes()
    place, bit = rng.randrange(len(content)), rng.randrange(8)
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    path.write_bytes(bytes(changed))
    try:
        yield f"bit {bit} of byte {place} of {path.name}"
    finally:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def files_of(kind: Kind, base: Path) -> list[Path]:
    """The files of a kind, in a fixed order."""
    return [path for pattern in kind.files for path in sorted(base.glob(pattern))]


def flip(kind: Kind, stored: Stored, wanted: dict[Path, Any], rng: random.Random) -> tuple[str, str]:
    """What came of one flipped bit that a reader met: detected, harmless, or a problem; and the place."""
    path = rng.choice(list(wanted))
    with flipped(path, rng) as place:
        try:
            found = kind.read(stored, path)
        except FrostlineError:
            return "detected", place
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a traceback; a panic of Rust is no Exception
            return f"PROBLEM {type(error).__name__}: {str(error)[:100]}", place
    if found is None:
        return "detected", place
    return "harmless" if found == wanted[path] else "PROBLEM other content", place


def flip_for_command(
    commands: Commands, kind: Kind, stored: Stored, wanted: Numbers, rng: random.Random
) -> tuple[str, str]:
    """What came of one flipped bit that a whole command met, and the place."""
    case: Case = commands.case(kind.case)
    base = commands.folder / "flipped"
    shutil.rmtree(base, ignore_errors=True)
    shutil.copytree(stored.base, base)
    if kind.name.startswith("cache"):  # so that there is something to read it for
        for path in (base / "out" / "runs").iterdir():
            path.unlink()
    with flipped(rng.choice(files_of(kind, base)), rng) as place:
        ended = commands.run(case, base)
        if ended.fault:
            return f"PROBLEM {ended.fault}: {ended.stderr.splitlines()[-1:]}", place
        if ended.code:
            return f"exit {ended.code}", place
        difference = numbers_of(case, base, ended.stdout).difference(wanted)
    return f"PROBLEM {difference}" if difference else "same numbers", place


def main() -> None:
    """Prints a table, and each place with a problem; exit code 1 if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=1000, help="places of each kind, read by a function")
    parser.add_argument("--commands", type=int, default=20, help="places of each kind, met by a command")
    parser.add_argument("--kinds", default=",".join(kind.name for kind in KINDS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    has_problems = False
    with toy_commands() as commands:
        stored, wanted = make_stored(commands)
        for kind in KINDS:
            if kind.name in arguments.kinds.split(","):
                has_problems |= _of_kind(commands, kind, stored, wanted, arguments)
    sys.exit(has_problems)


def _of_kind(commands: Commands, kind: Kind, stored: Stored, wanted: Numbers, arguments: argparse.Namespace) -> bool:
    rng = random.Random(f"{arguments.seed} {kind.name}")
    contents = {path: kind.read(stored, path) for path in files_of(kind, stored.base)}
    found = [flip(kind, stored, contents, rng) for _ in range(arguments.flips)]
    n_commands = arguments.commands if kind.case else 0
    found += [flip_for_command(commands, kind, stored, wanted, rng) for _ in range(n_commands)]
    table = Counter(how.split(":")[0] for how, _ in found)
    print(f"{kind.name}: {', '.join(f'{n} {how}' for how, n in sorted(table.items()))}", flush=True)
    problems = {how: place for how, place in found if how.startswith("PROBLEM")}
    for how, place in problems.items():
        print(f"    {how} ({place})", flush=True)
    return bool(problems)


if __name__ == "__main__":
    main()
