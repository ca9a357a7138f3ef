"""The environment of a run: versions, hardware, frostline's command; and how environments of several runs differ.

Imports no library to ask its version. The command is stored with every result. The command line of a program that calls
frostline is not: it may hold passwords. So the command line of the process is never read here; the command line
interface says what it was given.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from email import message_from_string
from importlib import metadata
from pathlib import Path

from frostline.errors import UsageError
from frostline.records.results import Environment

_LIBRARIES = ("frostline", "torch", "transformers", "tokenizers", "safetensors", "numpy", "scipy")
_NAME = r"[\w.-]{0,40}(?:token|secret|passw|passphrase|pwd|credential|key|auth)[\w.-]{0,40}"
_SECRET_FLAG = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_HIDDEN = "***"
_SECRETS = (
    (re.compile(rf"({_NAME}\s*[=:])[^&]+", re.IGNORECASE), rf"\1{_HIDDEN}"),
    (re.compile(r"(\w://)[^/\s]+@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"\b(?:hf|gh[a-z]|sk)[_-]\w{20,}"), _HIDDEN),
)
"""values by name, users and passwords in URLs, tokens that look like tokens"""
_command: ContextVar[tuple[str, ...]] = ContextVar("command", default=())

_COMPARED_HARDWARE = ("system", "processor", "device_model", "products")
"""what may change the last bits of a number; device and threads are part of a run's key"""
_UNKNOWN = ("", "arm", "aarch64", "arm64", "i386", "x86_64")
"""what release 0.1 stored where it did not find the processor's name"""


def current_environment(device: str, **hardware: str) -> Environment:
    """The environment of this process now; `hardware` is what only its caller knows. What is empty is left out."""
    found = {**_hardware(), "device": device, **hardware}
    return Environment(
        versions=versions(),
        hardware={name: value for name, value in found.items() if value},
        command=own_command(),
        at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def own_command() -> tuple[str, ...]:
    """The frostline command that this process is doing, without secrets; empty if Python code called frostline."""
    return _command.get()


@contextmanager
def as_command(arguments: Sequence[str]) -> Iterator[None]:
    """Inside, `own_command` is `frostline` with these arguments."""
    before = _command.set(without_secrets(("frostline", *arguments)))
    try:
        yield
    finally:
        _command.reset(before)


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """A command line in which `***` stands for values that look secret."""
    shown: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        is_value = _SECRET_FLAG.fullmatch(before) and not word.startswith("--")
        shown.append(_HIDDEN if is_value else _hidden(word))
    return tuple(shown)


def _hidden(word: str) -> str:
    for pattern, shown in _SECRETS:
        word = pattern.sub(shown, word)
    return word


def n_cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Python and the libraries that compute, as they were when this process first asked."""
    return {"python": platform.python_version(), **_installed()}


def changed_packages() -> list[str]:
    """One line if other versions are installed now than when this process first asked for `versions`."""
    now = _installed()
    differing = [
        f"{name} was {version} and is {now[name] or 'not installed'}"
        for name, version in versions().items()
        if now.get(name, version) != version
    ]
    if not differing:
        return []
    return [
        f"packages were changed while runs were under way: {', '.join(differing)}; these runs may have used parts of "
        "both versions: run the command again with --rerun always"
    ]


def mixed_environments(environments: Iterable[Environment]) -> list[str]:
    """One line if runs were made with different versions or on different hardware; what is unknown does not count."""
    known = [_facts(environment) for environment in environments]
    clauses = []
    for name in dict.fromkeys(name for facts in known for name in facts):
        counts = Counter(facts[name] for facts in known if name in facts)
        if len(counts) > 1:
            (value, count), *others = counts.most_common()
            most = f"{'1 run was' if count == 1 else f'{count} runs were'} made with {_called(name)} {value}"
            clauses.append(", ".join([most, *(f"{n} with {_called(name)} {other}" for other, n in others)]))
    advice = "scores may differ for this reason alone; --rerun always does all runs here"
    return [f"{'; '.join(clauses)}: {advice}"] if clauses else []


def check_environments(stored: Iterable[Environment], here: Environment) -> None:
    """Raises if stored runs were made in another environment than this one, and names every difference."""
    ours = _facts(here)
    differing = Counter(
        (name, value)
        for facts in map(_facts, stored)
        for name, value in facts.items()
        if ours.get(name, value) != value
    )
    clauses = [
        f"{'1 stored run was' if count == 1 else f'{count} stored runs were'} made with {_called(name)} {value}, "
        f"here it is {ours[name]}"
        for (name, value), count in differing.items()
    ]
    if clauses:
        raise UsageError(
            f"--same-environment: {'; '.join(clauses)}. Use that environment again, do all runs again with --rerun "
            "always, or give another --out folder"
        )


@functools.cache
def processor() -> str:
    """The name of the processor; empty if the system does not say it."""
    if sys.platform == "darwin":  # not tested: no such machine at hand
        asked = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return processor_in(_fields("/proc/cpuinfo")) or platform.processor()


@functools.cache
def processor_vendor() -> str:
    """`GenuineIntel`, `AuthenticAMD`; empty if the system does not say it."""
    return _fields("/proc/cpuinfo").get("vendor_id", "")


def processor_in(cpuinfo: Mapping[str, str]) -> str:
    """The processor that the fields of /proc/cpuinfo describe. ARM has numbers in place of a name."""
    numbers = [cpuinfo[name] for name in ("CPU implementer", "CPU part") if name in cpuinfo]
    return cpuinfo.get("model name") or (f"ARM {' '.join(numbers)}" if numbers else "")


def _facts(environment: Environment) -> dict[str, str]:
    """What is known of an environment and may change a number, by name."""
    hardware = {name: environment.hardware.get(name, "") for name in _COMPARED_HARDWARE}
    if hardware["processor"] not in _UNKNOWN:
        hardware["products"] = hardware["products"] or "torch"  # not stored if it is torch's own choice
    return {name: value for name, value in (*environment.versions.items(), *hardware.items()) if value not in _UNKNOWN}


def _called(name: str) -> str:
    return {"device_model": "GPU", "products": "matrix products of"}.get(name, name)


def _installed() -> dict[str, str]:
    return {name: _version(name) for name in _LIBRARIES}


def _version(name: str) -> str:
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:  # while it is being replaced
        return ""
    text = package.read_text("METADATA")
    return _stated_version(text) if text else package.version


@functools.lru_cache
def _stated_version(metadata_text: str) -> str:
    """The version in a package's metadata. Parsing takes 5 ms, and every run asks for seven packages."""
    return str(message_from_string(metadata_text)["Version"])


@functools.cache
def _hardware() -> dict[str, str]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count()),
        "processor": processor(),
        "memory": _fields("/proc/meminfo").get("MemTotal", ""),
    }


def _fields(file: str) -> dict[str, str]:
    """The first value of each field of a file below /proc; none where the system has no such file."""
    path = Path(file)
    pairs = [line.partition(":") for line in path.read_text().splitlines()] if path.is_file() else []
    return {name.strip(): value.strip() for name, _, value in reversed(pairs)}
