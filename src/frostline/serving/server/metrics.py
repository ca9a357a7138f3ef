"""What a server counts and times, for Prometheus. Labels are names of routes and tasks, never what a client wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = tuple(2.0**power for power in range(12))


@final
class Metrics:
    """The numbers of one server, in a registry of its own: several servers may live in one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "frostline_requests", "Requests by route and status.", ("route", "status"), registry=self._registry
        )
        self.request_seconds = Histogram(
            "frostline_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.texts = Counter("frostline_texts", "Texts answered by task.", ("task",), registry=self._registry)
        self.tokens = Counter("frostline_tokens", "Tokens of answered texts.", registry=self._registry)
        self.batch_rows = Histogram(
            "frostline_batch_rows", "Rows computed together.", buckets=_SIZES, registry=self._registry
        )
        self.batch_seconds = Histogram(
            "frostline_batch_seconds", "Time to compute a batch.", buckets=_SECONDS, registry=self._registry
        )
        self.reloads = Counter("frostline_reloads", "Reloads by outcome.", ("outcome",), registry=self._registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a number that is looked up whenever somebody asks."""
        Gauge(f"frostline_{name}", text, registry=self._registry).set_function(value)

    def as_text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self._registry)
