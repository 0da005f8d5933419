"""The time by which all replicas of all controllers go: the API server's, whatever their own clocks show.

Every answer has a ``Date``, to the second. Between asking and hearing lies an interval in which the server's clock was
there; only a clock of ours that is outside of it, by more than a little, is corrected.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from tightship.host import monotonic, wall

TOLERATED = 2.0
"""Seconds by which our clock may differ from the server's: a host that keeps its time is never corrected."""


class ServerClock:
    """Seconds since 1970 as the API server has them; as our own clock has them until it has answered."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the time."""
        return wall() + self._ahead

    def heard(self, date: str | None, sent: float) -> None:
        """Take note of an answer dated *date* to a request that was sent at *sent* by the monotonic clock."""
        try:
            stamp = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        now = wall()
        asked = now - (monotonic() - sent)
        # A replica that was stopped between the two learns little, and unlearns nothing.
        self._ahead = min(max(self._ahead, stamp - now - TOLERATED), stamp + 1 - asked + TOLERATED)


__all__ = ["ServerClock"]
