"""Whether a loop still runs, for the liveness probe."""

from __future__ import annotations

from collections.abc import Callable

from tightship.kube.host import monotonic


class Heartbeat:
    """The sign of life of one loop. The loop counts as hung once a beat is *deadline* seconds late.

    A loop announces how long it will wait, so the deadline covers only its work, however long its interval is. Only the
    loop itself can miss the deadline: an outage of the API server is no reason to restart.
    """

    def __init__(self, name: str, deadline: float, *, clock: Callable[[], float] = monotonic) -> None:
        self.name = name
        self.deadline = deadline
        self._clock = clock
        self._last = clock()
        self._due = self._last

    def beat(self, quiet: float = 0.0) -> None:
        """Report that the loop lives, and that the next beat may be *quiet* seconds away."""
        self._last = self._clock()
        self._due = self._last + quiet

    @property
    def age(self) -> float:
        """Seconds since the last beat, or since the start."""
        return self._clock() - self._last

    @property
    def late(self) -> float:
        """Seconds by which the next beat is late; negative before it is due."""
        return self._clock() - self._due

    @property
    def alive(self) -> bool:
        """Whether the loop is within its deadline."""
        return self.late <= self.deadline

    def __str__(self) -> str:
        due = f"{self.late:.0f} s late" if self.late > 0 else f"due in {-self.late:.0f} s"
        return f"{self.name}: last beat {self.age:.0f} s ago, {due}, may be {self.deadline:.0f} s late"
