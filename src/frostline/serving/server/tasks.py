"""The tasks that a server answers: one snapshot at a time, replaced whole.

A request takes the snapshot once and keeps it to its end, so no answer mixes an old bundle with a new one. Reloading
reads and tries every bundle before anything changes. A bundle that fails stays as it was.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from frostline.errors import DataError, FrostlineError, UsageError
from frostline.kinds import KINDS, Kind
from frostline.serving.bundle import Bundle, BundleManifest, Stamp, bundle_stamp, open_bundle
from frostline.serving.rows import Limits, Text
from frostline.serving.server.refusals import invalid, unknown_task
from frostline.serving.tail import Tail, load_tail
from frostline.serving.trunk import Trunk

Reads = Literal["texts", "pairs", "both"]
Probe = Callable[["Served", Text], NDArray[np.float32]]
"""the outputs (classes,) of a task for a text"""

_PROBED = "The ground froze early this year."
_MOST_NUMBERS = 500_000
"""in an answer, which is then about 10 MB"""


@final
@dataclass(frozen=True, eq=False)
class Served:
    """A task under the name that clients use."""

    name: str
    tail: Tail
    n_layers: int
    """layers of the trunk"""
    loaded_at: int = dataclasses.field(default_factory=lambda: int(time.time()))
    """in seconds since 1970"""

    @property
    def manifest(self) -> BundleManifest:
        """What the bundle says about the task."""
        return self.tail.bundle.manifest

    @functools.cached_property
    def hash(self) -> str:
        """The bundle's hash, which is in every answer."""
        return self.tail.bundle.hash

    @functools.cached_property
    def key(self) -> str:
        """What tells it from every other task in a batch, one of the same name in another snapshot included."""
        return f"{self.name} {id(self)}"

    @functools.cached_property
    def kind(self) -> Kind:
        """The kind of task."""
        return KINDS[self.manifest.kind]

    @functools.cached_property
    def limits(self) -> Limits:
        """How it joins and cuts texts."""
        return self.tail.limits

    @property
    def depth(self) -> int:
        """The layer after which it leaves the trunk; 0 if it computes everything itself."""
        return (self.tail.depth or 0) if self.tail.shares_compute else 0

    @functools.cached_property
    def reads(self) -> Reads:
        """Single texts or pairs; both if the bundle does not say: another tool trained the task."""
        if self.manifest.text_pair is not None:
            return "pairs"
        return "texts" if self.manifest.text is not None or self.manifest.run_key is not None else "both"

    def can_read(self, text: Text) -> bool:
        """Whether the task was trained on texts like this: single ones, or pairs."""
        return self.reads == "both" or (self.reads == "pairs") == (text.second is not None)

    def answers(self, outputs: Sequence[NDArray[np.float32]]) -> NDArray[np.float64]:
        """Raw outputs on the scale of the labels, (texts, classes)."""
        mean, spread = self.manifest.label_scale or (0.0, 1.0)
        return np.stack(outputs).astype(np.float64) * spread + mean


Snapshot = Mapping[str, Served]


def chosen(snapshot: Snapshot, names: Sequence[str] | None, texts: Sequence[Text]) -> Snapshot:
    """The tasks with these names. A Refusal if there is no such task (404), or one reads other texts (422)."""
    for name in names or ():
        if name not in snapshot:
            raise unknown_task(name, snapshot)
    found = {name: snapshot[name] for name in names or snapshot}
    for name, task in found.items():
        if not all(task.can_read(text) for text in texts):
            raise invalid(f"the task {name} reads {_READ[task.reads]}")
    return found


def check_size(tasks: Snapshot, n_texts: int, top_k: int | None) -> None:
    """Raises a Refusal (422) if an answer would hold too many numbers: classes of all tasks for all texts."""
    n_numbers = n_texts * sum(min(len(task.manifest.label_names), top_k or _MOST_NUMBERS) for task in tasks.values())
    if n_numbers > _MOST_NUMBERS:
        what = f"the answer would hold {n_numbers:,} probabilities; {_MOST_NUMBERS:,} are allowed"
        raise invalid(f"{what}: send fewer texts, or ask for the best classes only by top_k")


_READ = {"texts": "single texts, not pairs", "pairs": "pairs of texts, not single ones", "both": "any texts"}


def only_task(snapshot: Snapshot) -> str:
    """The name of the only task; a Refusal (422) if there are several, because then a request names one."""
    if len(snapshot) != 1:
        raise invalid(f"model is missing; this server has several tasks: {', '.join(sorted(snapshot))}")
    return next(iter(snapshot))


def n_layer_passes(tasks: Iterable[Served]) -> int:
    """Layers that one row passes through for these tasks: shared ones count once."""
    served = list(tasks)
    return max(task.depth for task in served) + sum(task.n_layers - task.depth for task in served)


@final
@dataclass(frozen=True)
class Source:
    """A bundle's folder, and the name it gets; None: the name in the bundle."""

    folder: Path
    name: str | None = None

    @classmethod
    def parse(cls, given: str) -> Source:
        """`DIR`, or `NAME=DIR`."""
        name, equals, folder = given.partition("=")
        if not equals or Path(given).exists():
            return cls(Path(given))
        if not name or not folder or not name.isprintable():
            raise UsageError(f"{given!r} is not a bundle; give DIR or NAME=DIR")
        return cls(Path(folder), name)


@final
class Tasks:
    """The current snapshot, and how it is loaded again."""

    def __init__(self, trunk: Trunk, sources: Sequence[Source], probe: Probe) -> None:
        """Loads all bundles; raises one error that names everything that is wrong with any of them."""
        self._trunk, self._sources, self._probe = trunk, sources, probe
        self._stamps: dict[Source, Stamp | None] = {}  # of files that were read and found good
        loaded: dict[str, Served] = {}
        faults = []
        for source in sources:
            try:
                task = self._load(source, None)
                if task.name in loaded:
                    what = f"two bundles are called {task.name!r}"
                    raise UsageError(
                        f"{what}: {loaded[task.name].tail.bundle.folder} and {source.folder}; use NAME=DIR"
                    )
                loaded[task.name] = task
            except FrostlineError as error:
                faults.append(str(error))
        if faults:
            raise DataError("; ".join(faults))
        self._names = list(loaded)
        self.current: Snapshot = types.MappingProxyType(loaded)
        """the tasks that new requests use"""

    def reload(self) -> list[str]:
        """Loads bundles that changed, then replaces the snapshot; what was wrong with those that stay as they were."""
        loaded, faults = dict(self.current), []
        for name, source in zip(self._names, self._sources, strict=True):
            try:
                loaded[name] = self._load(source, loaded[name])
            except FrostlineError as error:
                faults.append(f"the task {name} stays as it was: {error}")
        self.current = types.MappingProxyType(loaded)
        return faults

    def _load(self, source: Source, before: Served | None) -> Served:
        """The task of a bundle, tried on one text; the same as before if the bundle is."""
        stamp = bundle_stamp(source.folder)
        if before is not None and stamp is not None and stamp == self._stamps.get(source):
            return before  # its files were not touched; to read and hash them all would take time from the requests
        task = self._read(source, before)
        self._stamps[source] = stamp
        return task

    def _read(self, source: Source, before: Served | None) -> Served:
        bundle = open_bundle(source.folder)
        name = source.name or bundle.manifest.name
        if before is not None and name != before.name:
            raise DataError(f"is for the task {name!r} now; start the server again to add it", path=source.folder)
        if before is not None and bundle.hash == before.hash:
            return before
        _check_kind(bundle)
        task = Served(name, load_tail(self._trunk, bundle), self._trunk.n_layers)
        self._try(task)
        return task

    def _try(self, task: Served) -> None:
        """Raises unless the task answers a text with one finite number per class."""
        text = Text(_PROBED, _PROBED if task.reads == "pairs" else None)
        outputs = self._probe(task, text)
        wanted = (len(task.manifest.label_names) if task.kind.has_classes else task.kind.n_outputs,)
        if outputs.shape != wanted:
            what = f"gives outputs of shape {outputs.shape}, not {wanted}"
            raise DataError(f"{what}; make the bundle again", path=task.tail.bundle.folder)
        if not np.isfinite(outputs).all():
            raise DataError("gives outputs that are not finite; train the task again", path=task.tail.bundle.folder)


def _check_kind(bundle: Bundle) -> None:
    """Raises for a kind that is an import path: a server runs no code that a bundle names."""
    if bundle.manifest.kind not in KINDS:
        what = f"is of the kind {bundle.manifest.kind!r:.80}, which the server does not import"
        raise DataError(f"{what}; it serves {' and '.join(KINDS)}", path=bundle.folder)
