"""A token bucket: how fast something may happen in the long run, and how much of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tightship.kube.host import monotonic

_LEAST = 0.001
"""Least seconds of a wait, so that a remainder from rounding does not cause endless short waits."""


class TokenBucket:
    """Holds up to *burst* tokens and gains *rate* tokens a second. All tasks of one loop may share it."""

    def __init__(
        self,
        rate: float,
        burst: float,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._sleep = sleep
        self._clock = clock
        self._tokens = self._burst
        self._filled = clock()

    def change(self, rate: float, burst: float) -> None:
        """Change both limits."""
        self._fill()
        self._rate, self._burst = rate, float(burst)
        self._tokens = min(self._tokens, self._burst)

    async def take(self) -> None:
        """Wait until there is a token, and take it."""
        while True:
            self._fill()
            if self._tokens >= 1:
                self._tokens -= 1
                return
            await self._sleep(max(_LEAST, (1 - self._tokens) / self._rate))

    def _fill(self) -> None:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
