"""The environment of this process: versions, hardware, command line. Imports no library to ask its version."""

from __future__ import annotations

import functools
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from frostline.records.results import Environment

_LIBRARIES = ("frostline", "torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy")


def current_environment(device: str, command: tuple[str, ...] | None = None) -> Environment:
    """The environment of this process now."""
    return Environment(
        versions=versions(),
        hardware={**_hardware(), "device": device},
        command=tuple(sys.argv) if command is None else command,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def n_cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and the libraries that compute."""
    installed = {name: metadata.version(name) for name in _LIBRARIES}
    return {"python": platform.python_version(), **installed}


@functools.cache
def _hardware() -> dict[str, str]:
    found = {"system": f"{platform.system()} {platform.machine()}", "cores": str(os.cpu_count())}
    found["processor"] = _line("/proc/cpuinfo", "model name") or platform.processor()
    found["memory"] = _line("/proc/meminfo", "MemTotal")
    return found


def _line(file: str, name: str) -> str:
    path = Path(file)
    lines = path.read_text().splitlines() if path.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
