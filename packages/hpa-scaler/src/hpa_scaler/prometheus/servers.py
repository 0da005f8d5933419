"""The name of the default server, and the circuit breaker for a failing server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tightship.kube.host import monotonic

DEFAULT = "default"
"""The server of HPAs that name none."""

CircuitState = Literal["closed", "open", "half-open"]


class Circuit:
    """The circuit breaker of one server: open after *failures* in a row, for *pause* seconds; then one try decides.

    A success at any time closes the circuit. Not thread-safe.
    """

    def __init__(self, failures: int, pause: float, clock: Callable[[], float] = monotonic) -> None:
        self._most = failures
        self._pause = pause
        self._clock = clock
        self._failures = 0
        self._opened: float | None = None
        self.why = ""
        """The last failure."""

    @property
    def state(self) -> CircuitState:
        """``half-open`` means that the pause is over and nothing is known yet."""
        if self._opened is None:
            return "closed"
        return "half-open" if self.left <= 0 else "open"

    @property
    def failing(self) -> bool:
        """Whether the last recorded result is a failure."""
        return self._failures > 0

    @property
    def left(self) -> float:
        """Seconds until the pause is over."""
        return 0.0 if self._opened is None else self._opened + self._pause - self._clock()

    def succeeded(self) -> None:
        """Record an answer of any content."""
        self._failures = 0
        self._opened = None
        self.why = ""

    def failed(self, why: str) -> None:
        """Record a failure, and *why*."""
        self._failures += 1
        self.why = why
        if self._failures >= self._most:
            self._opened = self._clock()
