"""The settings of a server: where it listens, and its limits."""

from __future__ import annotations

import math
from dataclasses import dataclass

from frostline.errors import UsageError
from frostline.records.serial import Record


@dataclass(frozen=True, kw_only=True)
class ServerSettings(Record):
    """Where a server listens, and what it allows a request."""

    host: str = "127.0.0.1"
    """address to listen on; any but a loopback address needs --token-file"""
    port: int = 8000
    """port to listen on; 0 takes a free one"""
    n_threads: int = 1
    """threads that compute, each with one core"""
    batch_tokens: int = 1024
    """maximum number of tokens per batch"""
    wait_seconds: float = 0.005
    """longest time that a text waits for others to be computed with"""
    deadline_seconds: float = 2.0
    """a request that is not answered by then ends with 504"""
    max_queued: int = 2048
    """texts that may wait; a request that finds no room ends with 429"""
    max_body_bytes: int = 2**20
    """largest body of a request"""
    max_texts: int = 256
    """maximum number of texts, or pairs of texts, in a request"""
    max_characters: int = 100_000
    """longest text, in characters"""
    read_seconds: float = 10.0
    """seconds after which a client that is idle, or still sending its request, is disconnected"""
    max_connections: int = 1000
    """connections at a time; further ones end with 429"""

    def check(self) -> None:
        """Raises a UsageError that names every setting with a value that cannot be used."""
        faults = [
            f"{name} is {value}; it must be a number above 0"
            for name, value in vars(self).items()
            if name not in ("host", "port") and not (math.isfinite(value) and value > 0)
        ]
        if not 0 <= self.port <= 65535:
            faults.append(f"port is {self.port}; it must lie between 0 and 65535")
        if faults:
            raise UsageError.together(faults)
