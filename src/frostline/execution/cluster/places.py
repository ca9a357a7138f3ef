"""Where on the cluster runs are done: an actor per place, started where there is room, replaced when it dies.

One thread looks at the cluster twice a second. It asks new nodes for their versions, starts actors on nodes that have
room, and takes lost nodes out. It tells who waits for a place when one is ready.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from frostline.errors import one_line
from frostline.execution.cluster.nodes import (
    Node,
    Share,
    ask_versions,
    free_resources,
    living_nodes,
    no_room,
    refusal,
)
from frostline.execution.cluster.worker import Worker

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_BEFORE_NO_ROOM = 3.0
_SECONDS_BEFORE_SLOW = 60.0
_MOST_FAILED_STARTS = 3


@final
@dataclass(eq=False)
class Place:
    """One actor, which does one run at a time."""

    node: Node
    actor: Any
    introduced: Any
    """what the actor answers when it is ready, for `ray.get`"""
    folder: str | None = None
    """where its node keeps trees; None: it is not ready yet"""
    trees: set[str] = field(default_factory=set)
    """those that it has"""
    is_taken: bool = False
    asked_at: float = field(default_factory=time.monotonic)
    is_reported: bool = False
    """whether the user knows that it does not start"""

    @property
    def is_idle(self) -> bool:
        """Whether a run can be given to it."""
        return self.folder is not None and not self.is_taken


@final
@dataclass(frozen=True, kw_only=True)
class Hiring:
    """How actors are started."""

    share: Share
    most: int | None
    """places at most; None: as many as there is room for"""
    threads: int
    """of a run"""
    max_cache_bytes: int


@final
class Places:
    """The places of a cluster, kept up to date by a thread."""

    def __init__(self, ray: Any, hiring: Hiring, on_ready: Callable[[], None], say: Callable[[str], None]) -> None:
        self._ray, self._hiring, self._on_ready, self._say = ray, hiring, on_ready, say
        self.lock = threading.RLock()
        self.all: list[Place] = []
        self.no_room: str | None = None
        """why there is no place, once that has lasted for some seconds"""
        self.error: Exception | None = None
        """why nobody looks any more"""
        self._nodes: dict[str, Node] = {}
        self._asked: dict[str, Any] = {}
        self._accepted: set[str] = set()
        self._refused: set[str] = set()
        self._failed_starts: Counter[str] = Counter()
        self._without_since = time.monotonic()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._keep_up, daemon=True)

    def open(self) -> None:
        """Starts looking."""
        self._thread.start()

    def close(self) -> None:
        """Ends all actors."""
        self._is_closed.set()
        self._thread.join()
        for place in self.all:
            with contextlib.suppress(self._ray.exceptions.RayError):  # the cluster is gone, and the actor with it
                self._ray.kill(place.actor)
        self.all.clear()

    def lose(self, node: Node) -> None:
        """Gives up a node that cannot be reached."""
        with self.lock:
            if node.id in self._accepted:
                self._accepted.discard(node.id)
                self._say(f"node {node.name} is lost")
            self.all = [place for place in self.all if place.node.id != node.id]

    def replace(self, place: Place) -> None:
        """Ends the actor of a place and starts another one there."""
        with self.lock:
            self._ray.kill(place.actor)
            self._remove(place)
            if not self._is_closed.is_set() and place.node.id in self._accepted:
                self._start(place.node)

    def _remove(self, place: Place) -> None:
        if place in self.all:
            self.all.remove(place)

    def _keep_up(self) -> None:
        try:
            while not self._is_closed.is_set():
                with self.lock:
                    self._look()
                    self._welcome()
                    self._hire()
                    self._notice_room()
                    self._notice_slow_starts()
                self._is_closed.wait(_SECONDS_BETWEEN_LOOKS)
        except Exception as error:  # noqa: BLE001 - the caller of `outcome` gets it
            self.error = error

    def _look(self) -> None:
        """Asks new nodes for their versions, and forgets lost ones."""
        living = {node.id: node for node in living_nodes(self._ray)}
        for gone in self._nodes.keys() - living.keys():
            self._asked.pop(gone, None)
            self.lose(self._nodes[gone])
        for new in living.keys() - self._nodes.keys():
            self._asked[new] = ask_versions(self._ray, living[new])
        self._nodes = living
        for answered in self._ready(self._asked):
            reason = refusal(self._answer(self._asked.pop(answered)))
            if reason is None:
                self._accepted.add(answered)
            else:
                self._refuse(self._nodes[answered], reason)

    def _refuse(self, node: Node, reason: str) -> None:
        self._accepted.discard(node.id)
        self._refused.add(node.id)
        self._say(f"node {node.name} does no runs: {reason}")

    def _welcome(self) -> None:
        """Notes which actors are ready; a node where none starts is given up."""
        starting = {place: place.introduced for place in self.all if place.folder is None}
        for place in self._ready(starting):
            found = self._answer(place.introduced)
            if not isinstance(found, Exception):
                _, place.folder = found
                self._failed_starts[place.node.id] = 0
                continue
            self._remove(place)
            self._failed_starts[place.node.id] += 1
            if self._failed_starts[place.node.id] == _MOST_FAILED_STARTS:
                self._refuse(place.node, f"no worker starts there: {one_line(found)}")
        if any(place.is_idle for place in self.all):
            self._on_ready()

    def _hire(self) -> None:
        """Starts actors where there is room, turn by turn on the nodes."""
        free = free_resources()
        starting = Counter(place.node.id for place in self.all if place.folder is None)
        # What is free does not yet count actors that are being started.
        room = {
            node: self._hiring.share.fits(free.get(node, {})) - starting[node]
            for node in sorted(self._accepted & self._nodes.keys())
        }
        turns = sorted((turn, node) for node, n_places in room.items() for turn in range(n_places))
        most = self._hiring.most
        n_new = len(turns) if most is None else max(0, most - len(self.all))
        for _, node in itertools.islice(turns, n_new):
            self._start(self._nodes[node])

    def _start(self, node: Node) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = (
            self._ray.remote(Worker)
            .options(
                **self._hiring.share.options,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
                max_concurrency=2,  # a run, and the word that ends it
            )
            .remote(self._hiring.max_cache_bytes, self._hiring.threads)
        )
        self.all.append(Place(node, actor, actor.introduce.options(name="frostline worker").remote()))

    def _notice_room(self) -> None:
        """Says once that there is no place, and will be none soon."""
        free, now = free_resources(), time.monotonic()
        nodes = [node for node in self._nodes.values() if node.id not in self._refused]
        if self.all or any(self._hiring.share.fits(free.get(node.id, {})) for node in nodes):
            self._without_since, self.no_room = now, None
        elif now - self._without_since >= _SECONDS_BEFORE_NO_ROOM and self.no_room is None:
            self.no_room = no_room(self._hiring.share, nodes, free)
            self._say(f"{self.no_room}; waiting for room")

    def _notice_slow_starts(self) -> None:
        """Says once which actors do not start: another program may have been given the room that was free."""
        since = time.monotonic() - _SECONDS_BEFORE_SLOW
        slow = [p for p in self.all if p.folder is None and p.asked_at < since and not p.is_reported]
        for place in slow:
            place.is_reported = True
        if slow:
            names = ", ".join(sorted({place.node.name for place in slow}))
            why = "another program may have taken the room, or the node is slow"
            self._say(f"workers have not started for {_SECONDS_BEFORE_SLOW:.0f} s on {names}: {why}; waiting for them")

    def _ready(self, refs: Mapping[Any, Any]) -> list[Any]:
        """Which of these have an answer."""
        if not refs:
            return []
        done, _ = self._ray.wait(list(refs.values()), num_returns=len(refs), timeout=0)
        return [key for key, ref in refs.items() if ref in done]

    def _answer(self, ref: Any) -> Any:
        """What a node or an actor answers, or the exception in place of it."""
        try:
            return self._ray.get(ref)
        except Exception as error:  # noqa: BLE001 - whatever happened there, the node is named with it
            return error
