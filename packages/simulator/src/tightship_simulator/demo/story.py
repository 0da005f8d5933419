"""What happens to the cluster from outside in one night: traffic that falls and rises, and an hour of failure. Pure.

The night goes from nine in the evening to half past seven. At a quarter to midnight the gateway fails: a tenth of the
traffic reaches the pods, and Prometheus, which is behind the same gateway, is away.
"""

from __future__ import annotations

import math

from msgspec import Struct

BEGIN, END = 21.0, 31.5
"""Hours since midnight of the first day."""
FALLEN, RISING, RISEN = 25.5, 28.0, 30.0
LOW = 0.32
FAILURE = (23.75, 25.0)
"""When the gateway fails, and when it is back."""
REACHES = 0.1
"""Share of the traffic that reaches the pods meanwhile."""
MOST = 0.5
"""Seconds that may pass between two looks at a night."""


class Night(Struct, frozen=True):
    """A night that passes in *seconds*."""

    seconds: float

    def hour(self, elapsed: float) -> float:
        """Return the hour (24 and more after midnight) *elapsed* seconds after the beginning."""
        return BEGIN + (END - BEGIN) * min(1.0, max(0.0, elapsed / self.seconds))


class Passing:
    """A night as it passes: of the time between two looks at it no more than :data:`MOST` seconds count.

    So a machine that stands still for a while, or that is closed, goes on in the story where it was. While it is
    *standing* no time counts at all.
    """

    def __init__(self, night: Night) -> None:
        self.standing = False
        self._night = night
        self._passed = 0.0
        self._last: float | None = None

    def hour(self, now: float) -> float:
        """Return the hour at *now*, in seconds of any clock that never goes back; the first look is the beginning."""
        if self._last is not None and not self.standing:
            self._passed += min(now - self._last, MOST)
        self._last = now
        return self._night.hour(self._passed)


def demand(hour: float) -> float:
    """Return the traffic that people make, as a share of that at nine in the evening."""
    if hour < FALLEN:
        return LOW + (1 - LOW) * _ease((FALLEN - hour) / (FALLEN - BEGIN))
    return LOW + (1 - LOW) * _ease((hour - RISING) / (RISEN - RISING))


def fails(hour: float) -> bool:
    """Whether the gateway is down."""
    return FAILURE[0] <= hour < FAILURE[1]


def delivered(hour: float) -> float:
    """Return the share of the evening's traffic that reaches the pods."""
    return demand(hour) * (REACHES if fails(hour) else 1.0)


def clock(hour: float) -> str:
    """Return the hour as a clock shows it."""
    minutes = int(hour * 60 + 1e-6)
    return f"{minutes // 60 % 24:02d}:{minutes % 60:02d}"


def _ease(share: float) -> float:
    return (1 - math.cos(math.pi * min(1.0, max(0.0, share)))) / 2


__all__ = [
    "BEGIN",
    "END",
    "FAILURE",
    "FALLEN",
    "MOST",
    "RISEN",
    "RISING",
    "Night",
    "Passing",
    "clock",
    "delivered",
    "demand",
    "fails",
]
