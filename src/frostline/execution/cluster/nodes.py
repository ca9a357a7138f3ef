"""The nodes of a cluster: how many runs have room on each, and whether their versions are those of the driver."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from frostline.errors import one_line
from frostline.records.environment import versions

_SECONDS_TO_ANSWER = 2.0
_COMPARED = ("python", "frostline", "torch", "transformers")


@final
@dataclass(frozen=True, kw_only=True)
class Share:
    """What a run takes of a node."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0
    """bytes"""

    @property
    def resources(self) -> dict[str, float]:
        """By Ray's names, without what is not needed."""
        asked = {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory)}
        return {name: amount for name, amount in asked.items() if amount}

    @property
    def options(self) -> dict[str, Any]:
        """As Ray takes it for an actor."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus} | ({"memory": self.memory} if self.memory else {})

    @property
    def text(self) -> str:
        """`1 CPU and 4 GB of memory`."""
        return _described(self.resources)

    def fits(self, room: Mapping[str, float]) -> int:
        """How many such runs fit into these resources."""
        counts = [int((room.get(name, 0.0) + 1e-6) // amount) for name, amount in self.resources.items()]
        return min(counts, default=0)


@final
@dataclass(frozen=True)
class Node:
    """A living node."""

    id: str
    name: str
    """for people: the node's own, else the host's; with the beginning of the id where two have the same"""
    total: Mapping[str, float]
    """its resources"""
    address: tuple[str, int] = ("", 0)

    @property
    def answers(self) -> bool:
        """Whether it can be reached now; the cluster takes many seconds to notice that a node is lost."""
        try:
            socket.create_connection(self.address, timeout=_SECONDS_TO_ANSWER).close()
        except OSError:
            return False
        return True


def living_nodes(ray: Any) -> list[Node]:
    """The nodes that are alive now."""
    found = [node for node in ray.nodes() if node["Alive"]]
    plain = [_name(node) for node in found]
    return [
        Node(
            node["NodeID"],
            name if plain.count(name) == 1 else f"{name} ({node['NodeID'][:6]})",
            node["Resources"],
            (node["NodeManagerAddress"], node["NodeManagerPort"]),
        )
        for node, name in zip(found, plain, strict=True)
    ]


def free_resources() -> dict[str, dict[str, float]]:
    """What nobody uses now, by the id of the node."""
    from ray._private.state import available_resources_per_node

    found: dict[str, dict[str, float]] = available_resources_per_node()
    return found


def own_versions() -> dict[str, str]:
    """The versions of this process that must be the same everywhere."""
    found = versions()
    return {name: found[name] for name in _COMPARED}


def ask_versions(ray: Any, node: Node) -> Any:
    """Asks a node for its versions; the answer is in what this returns, for `ray.get`."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node.id, soft=False)
    asked = ray.remote(own_versions).options(num_cpus=0, scheduling_strategy=there, name="frostline versions")
    return asked.remote()


def refusal(found: Mapping[str, str] | Exception) -> str | None:
    """Why a node with these versions, or without an answer, does no runs; None if it may."""
    if isinstance(found, Exception):
        reason = one_line(found)
        absent = "No module named 'frostline" in reason
        return "this version of frostline is not installed there" if absent else f"it gave no versions: {reason}"
    ours = own_versions()
    differing = [f"{name} {found.get(name) or 'not there'}, here {ours[name]}" for name in _COMPARED
                 if found.get(name) != ours[name]]  # fmt: skip
    return ", ".join(differing) or None


def no_room(share: Share, nodes: Sequence[Node], free: Mapping[str, Mapping[str, float]]) -> str:
    """Why no run has a place on these nodes."""
    if any(share.fits(node.total) for node in nodes):
        what, of = "the cluster has no room for a run", {node.name: free.get(node.id, {}) for node in nodes}
    else:
        what, of = "no node is large enough for a run", {node.name: node.total for node in nodes}
    found = [f"{name} has {_described({n: room.get(n, 0.0) for n in share.resources})}" for name, room in of.items()]
    return f"{what}, which takes {share.text}; {', '.join(found[:5]) or 'there is no node'}"


def _described(resources: Mapping[str, float]) -> str:
    """`1 CPU and 4 GB of memory`."""
    units = {"CPU": (1, "CPU"), "GPU": (1, "GPU"), "memory": (2**30, "GB of memory")}
    return " and ".join(f"{round(amount / units[name][0], 2):g} {units[name][1]}" for name, amount in resources.items())


def _name(node: Mapping[str, Any]) -> str:
    own = node["NodeName"]
    return str(own if own and own != node["NodeManagerAddress"] else node["NodeManagerHostname"])
