"""The time that all replicas of all controllers use: the API server's, whatever their own clocks show.

Every answer has a ``Date``, to the second. The server's clock showed that date at some time between request and answer.
Our clock is corrected only if it lies outside of that interval by more than a little.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from tightship.kube.host import monotonic, wall

TOLERATED = 2.0
"""Seconds by which our clock may differ from the server's: a host with synchronized time is never corrected."""


class ServerClock:
    """Seconds since 1970 by the API server's clock; by our own clock until the server has answered."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def now(self) -> float:
        """Return the time."""
        return wall() + self._ahead

    def heard(self, date: str | None, sent: float) -> None:
        """Record an answer dated *date* to a request sent at *sent* by the monotonic clock."""
        try:
            stamp = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        now = wall()
        asked = now - (monotonic() - sent)
        # A replica that was stopped between the two learns little, and unlearns nothing.
        self._ahead = min(max(self._ahead, stamp - now - TOLERATED), stamp + 1 - asked + TOLERATED)


__all__ = ["ServerClock"]
