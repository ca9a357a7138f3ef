"""A folder as a power loss may leave it, rebuilt from the recorded calls of a command.

What is promised after a power loss is what POSIX promises, and no more:
- The content of a file is on the disk once the file was synced. What was written since may be there, be missing, be
  zeros, or be there in part.
- A name in a folder is on the disk once the folder was synced. Names that were added, renamed or removed since may each
  be as before or as after. A rename is one step: it happened or it did not.
- Syncing a file says nothing about its name, and syncing a folder nothing about the content of its files.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.torture.shim import Call, Shim

SECTOR = 512
RUNS, SAVED = "out/runs/", "save/"


@dataclass(frozen=True)
class Loss:
    """What is lost of what was not synced: all content, or the names in one folder, or (neither given) at random."""

    all_content: bool = False
    folder: str | None = None

    @property
    def is_random(self) -> bool:
        """Whether chance decides."""
        return not self.all_content and self.folder is None


@dataclass(eq=False)
class File:
    """A file while calls are replayed."""

    synced: bytes = b""
    """its content when it was synced last"""
    current: bytes = b""
    """its content when it was copied last"""
    is_dirty: bool = True
    """whether something was written since it was synced"""


@dataclass(eq=False)
class Step:
    """One change of names: all of it happened, or nothing."""

    is_durable: bool = False


@dataclass(eq=False)
class Folder:
    """A folder while calls are replayed."""

    durable: dict[str, File | Folder] = field(default_factory=dict)
    current: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[tuple[Step, str, File | Folder | None]] = field(default_factory=list)
    """changes since it was synced: a name, and what it stands for; None: it was removed"""

    def change(self, step: Step, name: str, now: File | Folder | None) -> None:
        """Changes a name, on the disk only when it is synced."""
        self.pending.append((step, name, now))
        _set(self.current, name, now)

    def sync(self) -> None:
        """Makes its names durable."""
        for step, _, _ in self.pending:
            step.is_durable = True
        self.settle()

    def settle(self) -> None:
        """Applies the changes that became durable here or with another folder."""
        while self.pending and self.pending[0][0].is_durable:
            _, name, now = self.pending.pop(0)
            _set(self.durable, name, now)


def _set(names: dict[str, File | Folder], name: str, now: File | Folder | None) -> None:
    if now is None:
        names.pop(name, None)
    else:
        names[name] = now


class Disk:
    """A disk that calls are replayed on."""

    def __init__(self, base: Path, copies: Mapping[int, bytes]) -> None:
        self._base, self._copies = base, copies
        self.root = Folder()
        self._by_inode: dict[int, File | Folder] = {}
        self._named: list[str] = []
        """paths that appeared by a link or a rename so far, in order"""
        self.promised: list[str] = []
        """paths that the command reported as finished so far"""

    def replay(self, calls: Iterable[Call]) -> None:
        """Does calls."""
        for call in calls:
            if call.what in ("close", "sync", "seen"):
                self._follow(call)
            if call.what != "seen":
                getattr(self, f"_{call.what}")(call)

    def _follow(self, call: Call) -> None:
        """Renames a file that has another name by now: safetensors renames by a system call that no shim sees."""
        file = self._by_inode.get(call.number)
        if not isinstance(file, File) or not call.path:  # its name was removed while it is open
            return
        folder, name = self._place(call.path)
        if folder.current.get(name) is not file:
            step = Step()
            for old in [known for known, one in folder.current.items() if one is file]:
                folder.change(step, old, None)
            folder.change(step, name, file)

    def foresee(self, calls: Iterable[Call]) -> None:
        """Gives each file that is being written the content that it is about to get."""
        waiting = {inode: file for inode, file in self._by_inode.items() if isinstance(file, File) and file.is_dirty}
        for call in calls:
            if call.what == "create":  # the inode of a removed file is used again
                waiting.pop(call.number, None)
            elif call.snapshot and call.number in waiting:
                waiting.pop(call.number).current = self._copies[call.snapshot]

    def _said(self, call: Call) -> None:
        """A line like `[3/8] full seed 0: …` reports the run that was stored last; `saved …`, a saved model."""
        text = self._copies[call.snapshot].decode()
        runs = [name for name in self._named if name.startswith(RUNS) and is_visible(name)]
        self.promised += runs[len(runs) - len(re.findall(r"^\[ *\d+/\d+\] ", text, re.MULTILINE)) :]
        if re.search(r"^saved ", text, re.MULTILINE):
            self.promised += [name for name in self.files() if name.startswith(SAVED)]

    def files(self) -> list[str]:
        """Paths of the visible files, had there been no power loss."""
        return [name for name in _paths(self.root, "") if is_visible(name)]

    def _create(self, call: Call) -> None:
        self._add(call, File())

    def _mkdir(self, call: Call) -> None:
        if Path(call.path) == self._base:
            self._by_inode[call.number] = self.root
        else:
            self._add(call, Folder())

    def _dirty(self, call: Call) -> None:
        file = self._by_inode.get(call.number)
        if isinstance(file, File):
            file.is_dirty = True

    def _close(self, call: Call) -> None:
        file = self._by_inode.get(call.number)
        if isinstance(file, File) and call.snapshot:
            file.current = self._copies[call.snapshot]
            file.is_dirty |= file.current != file.synced

    def _sync(self, call: Call) -> None:
        found = self.root if Path(call.path) == self._base else self._by_inode.get(call.number)
        if isinstance(found, Folder):
            found.sync()
        elif isinstance(found, File):
            found.synced = found.current = self._copies[call.snapshot]
            found.is_dirty = False

    def _link(self, call: Call) -> None:
        folder, name = self._place(call.other)
        folder.change(Step(), name, self._by_inode[call.number])
        self._named.append(str(Path(call.other).relative_to(self._base)))

    def _rename(self, call: Call) -> None:
        step = Step()
        (source, old), (target, new) = self._place(call.path), self._place(call.other)
        moved = source.current[old]
        source.change(step, old, None)
        target.change(step, new, moved)
        self._named.append(str(Path(call.other).relative_to(self._base)))

    def _unlink(self, call: Call) -> None:
        folder, name = self._place(call.path)
        folder.change(Step(), name, None)

    def _add(self, call: Call, new: File | Folder) -> None:
        folder, name = self._place(call.path)
        folder.change(Step(), name, new)
        self._by_inode[call.number] = new

    def _place(self, path: str) -> tuple[Folder, str]:
        *above, name = Path(path).relative_to(self._base).parts
        folder = self.root
        for part in above:
            inner = folder.current[part]
            assert isinstance(inner, Folder), path
            folder = inner
        return folder, name


@dataclass(frozen=True)
class Recording:
    """The calls of a command that ended, with copies of its files."""

    base: Path
    calls: tuple[Call, ...]
    copies: Mapping[int, bytes]
    """by number: content of files, and what was said"""

    @classmethod
    def of(cls, shim: Shim, base: Path) -> Recording:
        """What a shim recorded."""
        copies = {int(path.name): path.read_bytes() for path in shim.snapshots.iterdir()}
        return cls(base, tuple(shim.calls()), copies)

    def disk_at(self, moment: int) -> Disk:
        """The disk after so many calls."""
        disk = Disk(self.base, self.copies)
        disk.replay(self.calls[:moment])
        disk.foresee(self.calls[moment:])
        return disk

    def without_syncs(self, is_dropped: Callable[[Call], bool]) -> Recording:
        """The same as if some syncs had never been made. The content of their files is known all the same."""
        calls = [
            dataclasses.replace(call, what="close") if call.what == "sync" and is_dropped(call) else call
            for call in self.calls
        ]
        return dataclasses.replace(self, calls=tuple(calls))


@dataclass(frozen=True)
class Left:
    """A file that a power loss left."""

    content: bytes
    is_whole: bool
    """whether it is all that was written"""


Tree = dict[str, Left | None]
"""files, and folders with None, by path"""


def is_visible(path: str) -> bool:
    """Whether a path has a name that readers look at. Locks and claims mean nothing after a power loss."""
    parts = Path(path).parts
    return not any(part.startswith(".") for part in parts) and parts[-1] != "lock" and "claims" not in parts


def _paths(folder: Folder, path: str) -> Iterator[str]:
    for name, inner in folder.current.items():
        here = f"{path}/{name}" if path else name
        if isinstance(inner, Folder):
            yield from _paths(inner, here)
        else:
            yield here


def folders_at_risk(disk: Disk) -> list[str]:
    """Folders with names that a power loss may take."""
    return [path for path, folder in _folders(disk.root, "") if folder.pending]


def _folders(folder: Folder, path: str) -> Iterator[tuple[str, Folder]]:
    yield path, folder
    for name, inner in folder.current.items():
        if isinstance(inner, Folder):
            yield from _folders(inner, f"{path}/{name}" if path else name)


def left_of(disk: Disk, loss: Loss, rng: random.Random) -> Tree:
    """What a power loss leaves."""
    return dict(_left(disk.root, "", loss, rng, {}))


def _left(
    folder: Folder, path: str, loss: Loss, rng: random.Random, chosen: dict[Step, bool]
) -> Iterator[tuple[str, Left | None]]:
    names = dict(folder.durable)
    share = rng.choice((0.0, 0.5, 1.0)) if loss.is_random else float(path != loss.folder)
    for step, name, now in folder.pending:
        if step.is_durable or chosen.setdefault(step, rng.random() < share):
            _set(names, name, now)
    for name, inner in names.items():
        here = f"{path}/{name}" if path else name
        if isinstance(inner, Folder):
            yield here, None
            yield from _left(inner, here, loss, rng, chosen)
        else:
            content = _content(inner, loss, rng)
            yield here, Left(content, is_whole=content == inner.current)


def _content(file: File, loss: Loss, rng: random.Random) -> bytes:
    written = file.current
    if not file.is_dirty:
        return file.synced
    if not loss.is_random:
        return bytes(len(written)) if loss.all_content else written
    sectors = [written[at : at + SECTOR] for at in range(0, len(written), SECTOR)]
    choices = (
        written,
        file.synced,
        b"",
        bytes(len(written)),
        written[: rng.randint(0, len(written))],
        b"".join(rng.choice((sector, bytes(len(sector)))) for sector in sectors),
    )
    return rng.choice(choices)


def write_tree(tree: Tree, base: Path) -> None:
    """Makes a folder of a tree."""
    base.mkdir()
    for path, left in tree.items():
        if left is None:
            (base / path).mkdir()
        else:
            (base / path).write_bytes(left.content)
