"""How often to ask: one policy of trying again, as a value, for everything that does, and a bucket of tokens.

tenacity carries the policy out.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable

from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, retry_if_result

from tightship.kube.host import monotonic
from tightship.objects.api_errors import ConnectionFailed, TooManyRequests, Unavailable
from tightship.objects.times import doubled


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How to try again: *attempts* in all, with waits that double from *first* to *longest* seconds.

    Each wait is shortened at random by up to *jitter* of it, by *spread*, which returns a number from 0 to 1. A
    ``Retry-After`` is honoured up to *longest_retry_after* seconds. No attempt begins *give_up* seconds after the
    first. *sleep* waits.
    """

    attempts: float = 5
    first: float = 0.25
    longest: float = 10.0
    jitter: float = 1.0
    longest_retry_after: float = 60.0
    give_up: float = math.inf
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    spread: Callable[[], float] = random.random

    def seconds(self, failures: int) -> float:
        """Return how long to wait after *failures* in a row, of which there is one at least."""
        return doubled(self.first, self.longest, failures - 1) * (1 - self.jitter * self.spread())

    def retrying(self, again: Callable[[BaseException], bool]) -> AsyncRetrying:
        """Return what calls a function until it returns, or raises an error that *again* says no to, or the last."""
        began = monotonic()

        def ends(state: RetryCallState) -> bool:
            next_at = monotonic() - began + state.upcoming_sleep
            return state.attempt_number >= self.attempts or next_at >= self.give_up

        retry = retry_if_exception(again)
        return AsyncRetrying(stop=ends, wait=self._wait, retry=retry, sleep=self.sleep, reraise=True)

    def endlessly(self) -> AsyncRetrying:
        """Return what attempts something over and over, however an attempt ends, until one raises."""
        retry = retry_if_result(lambda _: True)
        return AsyncRetrying(wait=self._wait, retry=retry, sleep=self.sleep, reraise=True)

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = getattr(error, "retry_after", None)
        if isinstance(asked, float):
            # Clients that the server sent away together must not come back together.
            return min(asked, self.longest_retry_after) + self.first * self.spread()
        return self.seconds(state.attempt_number)


def begin_anew(state: RetryCallState) -> None:
    """Let the next wait be the shortest again: something worked."""
    state.attempt_number = 1


def transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    return isinstance(error, ConnectionFailed | TooManyRequests | Unavailable)


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
