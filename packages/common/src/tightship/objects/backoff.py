"""Waits that grow: the one formula of everything that tries again."""

from __future__ import annotations

import random
from collections.abc import Callable


def doubled(first: float, longest: float, times: int) -> float:
    """Return *first* seconds, doubled *times* times, and at most *longest*."""
    return min(longest, first * 2.0 ** min(times, 32))


class Backoff:
    """Waits that double up to a limit, each shortened at random by up to a half."""

    def __init__(self, first: float, longest: float, spread: Callable[[], float] = random.random) -> None:
        self._first = first
        self._longest = longest
        self._spread = spread
        self._tries = 0

    def next(self) -> float:
        """Return the seconds to wait now."""
        wait = doubled(self._first, self._longest, self._tries)
        self._tries += 1
        return wait * (1 - self._spread() / 2)

    def reset(self) -> None:
        """Start again: something worked."""
        self._tries = 0
