"""How late the event loop is. If it cannot keep up, requests wait in sockets, where no queue sees them."""

from __future__ import annotations

import asyncio
from typing import final

_SECONDS = 0.02
"""between two measurements"""
_KEPT = 0.8
"""weight of the last value: a single long step is forgotten in a few measurements"""


@final
class LoopLag:
    """Measures how much later than due a timer is called."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """how late things were done a moment ago"""

    def start(self) -> None:
        """Measures from now on, in the running event loop."""
        loop = asyncio.get_running_loop()
        loop.call_later(_SECONDS, self._measure, loop, loop.time() + _SECONDS)

    def _measure(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.seconds = max(loop.time() - due, _KEPT * self.seconds)
        loop.call_later(_SECONDS, self._measure, loop, loop.time() + _SECONDS)
