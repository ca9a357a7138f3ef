"""A connection to a Ray cluster: a given one, the one this process is part of, or one started on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from frostline.errors import MissingExtraError, UsageError, one_line

_SECONDS_TO_CONNECT = 4.0
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""is set in a process that `ray job submit` started: it has a configuration of its own"""
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""how a client of HTTP/2, which Ray speaks, begins; the server answers with a frame of type 4, its settings"""


def import_ray() -> Any:
    """The library; raises a MissingExtraError if it is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray") from error
    return ray


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The library, connected to a cluster; what was started here is ended afterwards.

    Args:
        address: of the cluster, as host:port; None: as `$RAY_ADDRESS` says, or else a cluster on this machine alone. A
            process that is connected already stays so.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS")
    if address not in (None, "", "auto", "local"):
        assert address is not None
        check_address(address)
    with _unheard():
        with _own_signals():
            _init(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


def check_address(address: str) -> None:
    """Raises a UsageError unless something at the address answers like a Ray cluster."""
    host, _, port = address.rpartition(":")
    if address.startswith("ray://") or not host or not port.isdecimal():
        raise UsageError(
            f"the Ray address {address!r} is not host:port, for example 10.0.0.1:6379; without a node on this machine, "
            "send the command to the cluster with `ray job submit`"
        )
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):  # it would not answer an unencrypted greeting
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS_TO_CONNECT) as connection:
            connection.settimeout(_SECONDS_TO_CONNECT)
            connection.sendall(_HELLO)
            answer = connection.recv(4)
    except (OSError, OverflowError) as error:
        raise UsageError(f"no Ray cluster answers at {address} ({one_line(error)}); {_ADVICE}") from error
    if answer[3:] != b"\x04":
        raise UsageError(f"what answers at {address} is not a Ray cluster; {_ADVICE}")


_ADVICE = "give the address that `ray start --head` printed, usually with port 6379, not the dashboard's 8265"


def _init(ray: Any, address: str | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if _JOB not in os.environ:
        quiet["job_config"] = ray.job_config.JobConfig()
        quiet["job_config"]._py_driver_sys_path = _NoPaths()
    if address in (None, "", "local"):
        os.environ.setdefault("RAY_worker_niceness", "0")  # or other programs would be served first: Ray's own is 15
        # Any other address of this machine would be open to the network; Ray replaces 127.0.0.1 by one.
        place = {"_node_ip_address": "127.0.0.2"} if sys.platform == "linux" else {}
        ray.init(address="local", include_dashboard=False, **place, **quiet)
        return
    try:
        ray.init(address=address, **quiet)
    except Exception as error:  # of many kinds; all mean that there is no connection
        raise UsageError(f"no connection to the Ray cluster at {address}: {one_line(error)}") from error


class _NoPaths(list[str]):
    """Takes nothing: Ray would have all workers look for modules in the driver's current folder."""

    def extend(self, paths: Iterable[str]) -> None:
        """Does nothing."""


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Keeps what the nodes report from standard output, which belongs to the command; their logs have it too."""
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Keeps this process's way to end; the library would replace it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
