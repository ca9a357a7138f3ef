"""A Ray cluster on this machine, on loopback addresses alone, each node with a cache of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frostline.execution.cluster.connection import import_ray

ADDRESS = "127.0.0.2"
"""Ray replaces 127.0.0.1 by the machine's address on the network."""

# Every Python process of a node refuses to open what lies below the driver's folder. Workers count the rows that go
# through the lowest layer while prefix states are computed.
WATCH = """
import os, sys

root, log = os.environ["DRIVER_ROOT"], os.environ["WATCH_LOG"]

def note(line):
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, (line + "\\n").encode())
    os.close(handle)

def watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(root):
        note(f"opened {arguments[0]}")
        raise PermissionError(f"a path of the driver: {arguments[0]}")

sys.addaudithook(watch)

def count(module, args):
    is_lowest = type(module).__name__ == "BertLayer" and module.attention.self.layer_idx == 0
    frame = sys._getframe() if is_lowest else None
    while frame is not None:
        if frame.f_code.co_name == "_fill":
            note(f"rows {len(args[0])} {os.environ['FROSTLINE_CACHE']}")
        frame = frame.f_back

def begin():
    from torch.nn.modules.module import register_module_forward_pre_hook
    register_module_forward_pre_hook(count)

os.register_at_fork(after_in_child=lambda: begin() if "torch" in sys.modules else None)
"""


@dataclass
class TwoNodes:
    """A cluster with a node that the driver is on, and others."""

    cluster: Any
    folder: Path

    @property
    def driver_root(self) -> Path:
        """Everything of the driver lies below it."""
        return self.folder / "driver"

    @property
    def log(self) -> Path:
        """What the processes of all nodes noted."""
        return self.folder / "watch.log"

    @property
    def address(self) -> str:
        """As `--ray-address` takes it."""
        return str(self.cluster.address)

    def opened(self) -> list[str]:
        """The paths of the driver that a process of a node tried to open."""
        return [line for line in self._lines() if line.startswith("opened ")]

    def prefix_rows(self) -> dict[str, int]:
        """By cache: the rows that went through the lowest layer while prefix states were computed."""
        counted: dict[str, int] = {}
        for _, n_rows, cache in (line.split() for line in self._lines() if line.startswith("rows ")):
            counted[cache] = counted.get(cache, 0) + int(n_rows)
        return counted

    def _lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def cache(self, name: str) -> Path:
        """The cache of a node."""
        return self.folder / f"cache-{name}"

    def clear(self, name: str) -> None:
        """Empties the cache of a node."""
        shutil.rmtree(self.cache(name), ignore_errors=True)

    @contextlib.contextmanager
    def added(self, name: str, n_cpus: int = 1, **variables: str) -> Iterator[Callable[[], None]]:
        """One more node; gives what ends it at once, as a power failure does."""
        node = self.cluster.add_node(**self.arguments(name, **variables) | {"num_cpus": n_cpus})
        with contextlib.ExitStack() as at_the_end:
            at_the_end.callback(self.cluster.remove_node, node, allow_graceful=False)
            yield at_the_end.close

    def arguments(self, name: str, **variables: str) -> dict[str, Any]:
        """How a node is started."""
        own = {
            "FROSTLINE_CACHE": str(self.cache(name)),
            "DRIVER_ROOT": str(self.driver_root),
            "WATCH_LOG": str(self.log),
            "RAY_worker_niceness": "0",
            "PYTHONPATH": os.pathsep.join([str(self.folder / "site"), os.environ.get("PYTHONPATH", "")]),
        }
        return {
            "num_cpus": 1,
            "object_store_memory": 100_000_000,
            "node_name": name,
            "node_ip_address": ADDRESS,
            "env_vars": own | variables,
        }

    def worker_pids(self) -> set[int]:
        """Ids of the living processes that train, on all nodes."""
        parents = self._processes()
        return {pid for pid, parent in parents.items() if parent in parents}

    def _processes(self) -> dict[int, int]:
        """The fork servers of all nodes and their workers, each with its parent."""
        marked = f"FROSTLINE_CACHE={self.folder}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has just ended
                command = (folder / "cmdline").read_bytes()
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                is_ours = b"frostline.execution.worker" in command and marked in (folder / "environ").read_bytes()
                if is_ours and state != "Z":
                    found[int(folder.name)] = int(parent)
        return found


@contextlib.contextmanager
def two_nodes(folder: Path, *, n_cpus: int = 1, has_far: bool = True) -> Iterator[TwoNodes]:
    """A cluster of the nodes `near`, which the driver is on, and `far`; by default with one CPU each."""
    import_ray()
    from ray.cluster_utils import Cluster

    (folder / "site").mkdir(parents=True)
    (folder / "site" / "sitecustomize.py").write_text(WATCH)
    found = TwoNodes(Cluster(), folder)
    found.driver_root.mkdir()
    found.cluster.add_node(include_dashboard=False, **found.arguments("near") | {"num_cpus": n_cpus})
    try:
        if has_far:
            found.cluster.add_node(**found.arguments("far"))
        yield found
    finally:
        found.cluster.shutdown()
        deadline = time.monotonic() + 10
        while found._processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not found._processes(), "a worker outlived its cluster"
