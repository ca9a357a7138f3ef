"""Mutates stored files and files of others, and checks that each command ends in one line or is not harmed.

    python -m bench.fuzz --mutations 10000 --seed 0

Files: finished runs, resolved requests, the folder's identity, the answer of a search, cache entries, manifests and
`config.json` of saved models, config files. Half of the mutations change bytes, half change the parsed value, so that
checks behind the parser are reached too; sealed records get a right checksum again.

Commands run in this process. A mutation is a fault if a command ends in a traceback, in an exit code that README does
not list, with more or less than one line on standard error, or after more than a minute of the processor.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from frostline.cli import main as frostline
from frostline.cli.app import app
from frostline.errors import UNPRINTABLE
from frostline.records.keys import key_of
from frostline.storage.prefix_cache import default_folder
from frostline.testing.models import make_model, make_task

CODES = {0, 2, 3, 4, 5}
SECONDS = 60
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, 10**4999, 0.5, -0.0, 1e308, 1e-308, float("nan"),
    float("inf"), "", " ", "0", "x" * 10_000, "\x1b[31m\u202e", "\ud800", "../../etc/passwd", [], {}, [[]],
    [1, "a", None], {"": None}, {"a": {"b": []}},
)  # fmt: skip
PIECES = (
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\x1b[2J", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"null",
    b"NaN", b"1e999", b"-", b"9" * 5000, b"\\ud800", b"[" * 3000, b'{"a":' * 3000, b"&a [*a, *a]", b"*x",
    b"!!python/name:os",
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A kind of file, and a command that reads it."""

    name: str
    paths: tuple[Path, ...]
    command: tuple[str, ...]
    weight: int
    """how many of the mutations, against the others"""


@dataclass
class Fault:
    """A mutation that was not handled."""

    target: str
    file: bytes
    said: str


class TooSlow(BaseException):  # not an Exception: no handler may take it for one of the command
    """A command did not end in time."""


def make_targets(folder: Path) -> list[Target]:
    """Files of each kind, from real commands on a tiny model."""
    model = make_model(folder / "model", n_layers=2)
    rows = make_task(folder / "rows.csv", n_rows=24)
    out, saved, config = folder / "out", folder / "saved", folder / "config"
    asked = (str(model), str(rows), "--dev-share", "0.5", "--epochs", "1", "--workers", "1", "--out", str(out))
    for command in (
        ("curve", *asked, "--lr", "1e-2", "--seeds", "2"),
        ("find", *asked, "--lrs", "1e-2", "--seeds", "4"),
        ("train", *asked, "--lr", "1e-2", "--frozen", "1", "--save", str(saved)),
    ):
        code, said = run(command)
        assert code == 0, said
    entries = sorted(default_folder().rglob("*.json"))
    assert entries, "prefix states are cached"
    config.mkdir()
    text = (out / "curve.yaml").read_text().replace(str(model), str(folder / "no-such-model"))
    (config / "curve.yaml").write_text(text)
    (config / "curve.json").write_text(json.dumps({"model": str(folder / "none"), "task": str(rows), "seeds": [0, 1]}))
    (config / "curve.toml").write_text(f'model = "{folder / "none"}"\ntask = "{rows}"\nseeds = [0, 1]\nlr = 1e-5\n')
    report = ("report", str(out), "--json")
    return [
        Target("run", tuple(sorted((out / "runs").glob("*.json"))), report, 4),
        Target("request", tuple(sorted((out / "specs").glob("*.json"))), report, 3),
        Target("search", (out / "find.json",), report, 1),
        Target("identity", (out / "identity.json",), ("curve", *asked, "--rerun", "never", "--lr", "1e-2"), 1),
        Target("cache entry", tuple(entries), ("cache", "ls"), 4),
        Target("manifest", (saved / "frostline.json",), ("predict", str(saved), str(rows)), 2),
        Target("config.json", (saved / "config.json",), ("layers", str(saved), "--json"), 4),
        Target("config.json, loaded", (saved / "config.json",), ("predict", str(saved), str(rows)), 2),
        *(Target(f"--config {path.suffix}", (path,), ("curve", "--config", str(path)), 2) for path in config.iterdir()),
    ]


def run(command: tuple[str, ...]) -> tuple[int, str]:
    """The exit code of a command, and what it said on standard error."""
    said, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
        code = frostline(list(command))
    return code, told.getvalue()


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Ends what takes too long."""

    def ring(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of the processor: the machine may be busy
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three changes, of bytes or of the value that it holds."""
    change: Callable[[bytes, random.Random], bytes] = rng.choice((with_other_bytes, with_another_value))
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = change(content, rng)
    return content


def with_other_bytes(content: bytes, rng: random.Random) -> bytes:
    """The content with a slice flipped, replaced, repeated or cut off."""
    place = rng.randrange(len(content) + 1)
    end = min(len(content), place + rng.choice((0, 1, 1, 4, 40)))
    what = rng.randrange(4)
    if what == 0 and place < len(content):
        return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]
    if what == 1:
        return content[:place]
    if what == 2:
        return content[:end] + content[place:]
    return content[:place] + rng.choice(PIECES) + content[end:]


def with_another_value(content: bytes, rng: random.Random) -> bytes:
    """The JSON content with a value replaced, lost or under another name; sealed again if it was sealed."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return with_other_bytes(content, rng)
    is_sealed = isinstance(value, dict) and set(value) == {"checksum", "content"}
    whole = {"": value["content"] if is_sealed else value}
    parent, name = rng.choice(list(_places(whole)))
    what = rng.randrange(4)
    if what == 0 and parent is not whole:
        del parent[name]
    elif what == 1 and isinstance(parent, dict) and parent is not whole:
        parent[rng.choice(("", "x", f"{name}_", name.upper()))] = parent.pop(name)
    elif what == 2:
        parent[name] = rng.choice(list(_places(whole)))[0]
    else:
        parent[name] = rng.choice(ODD_VALUES)
    try:
        new = json.loads(json.dumps(whole[""]))
        return json.dumps({"checksum": key_of(new), "content": new} if is_sealed else new).encode()
    except (ValueError, RecursionError):  # it holds itself, or a NaN, or a number with too many digits
        return with_other_bytes(content, rng)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value, with each name or number inside it."""
    names = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for name in names:
        yield value, name
        yield from _places(value[name])


def outcome(target: Target, path: Path, content: bytes) -> tuple[str, Fault | None]:
    """How the command ends with this content, and the fault if there is one."""
    right = path.read_bytes()
    path.write_bytes(content)
    try:
        with alarm():
            code, said = run(target.command)
    except TooSlow:
        return "slow", Fault(target.name, content, f"not done after {SECONDS} seconds")
    except BaseException:  # noqa: BLE001 - whatever leaves the outer frame is a fault
        return "raised", Fault(target.name, content, traceback.format_exc())
    finally:
        path.write_bytes(right)
    *progress, last = said.splitlines() or [""]
    is_one_line = last.startswith("frostline: ") and not any(line.startswith("frostline: ") for line in progress)
    is_one_line = is_one_line and not UNPRINTABLE.search(last)
    is_right = code in CODES and "Traceback" not in said and (code in (0, 5) or is_one_line)
    return f"exit {code}", None if is_right else Fault(target.name, content, said)


def fuzz(targets: list[Target], n_mutations: int, seed: int) -> tuple[Counter[tuple[str, str]], list[Fault]]:
    """How often each kind of file ended how, and the faults."""
    rng = random.Random(seed)
    counts: Counter[tuple[str, str]] = Counter()
    faults = []
    for target in rng.choices(targets, [target.weight for target in targets], k=n_mutations):
        path = rng.choice(target.paths)
        how, fault = outcome(target, path, mutated(path.read_bytes(), rng))
        counts[target.name, how] += 1
        faults += [fault] if fault else []
    return counts, faults


def main() -> None:
    """Prints how the mutations ended, and writes the files of faults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=Path, default=Path("fuzz-faults"), help="folder for files that did harm")
    given = parser.parse_args()
    # The tree of commands is built for every call, which takes longer than most of the calls.
    vars(sys.modules["frostline.cli.main"])["app"] = typer.main.get_command(app)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FROSTLINE_CACHE"] = f"{folder}/cache"  # the user's own is not to be mutated
        counts, faults = fuzz(make_targets(Path(folder)), given.mutations, given.seed)
    for (name, how), number in sorted(counts.items()):
        print(f"{name:22} {how:8} {number:6}")
    print(f"{given.mutations} mutations, {len(faults)} faults, {time.monotonic() - began:.0f} s")
    for number, fault in enumerate(faults):
        given.faults.mkdir(exist_ok=True)
        (given.faults / f"{number}.bin").write_bytes(fault.file)
        (given.faults / f"{number}.txt").write_text(f"{fault.target}\n{fault.said}", errors="backslashreplace")


if __name__ == "__main__":
    main()
