"""The prices that a server such as OpenCost knows, asked again and again for a running controller."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from tightship.process.logging import log
from tightship.process.loop import in_thread
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.sections import NodeSettings

REFRESH = 240.0
"""Seconds for which an answer is new enough: less than the usual time between two passes."""

AGAIN = 60.0
"""Seconds after a failure before the next question."""

S = TypeVar("S", bound=NodeSettings)


class NodePrices(Generic[S]):
    """Adds a server's prices to settings. A server that does not answer leaves the last prices in use."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._log = logger
        self._clock = clock
        self._ask: Callable[[], Mapping[str, int]] | None = None
        self._nodes: Mapping[str, int] = {}
        self._next = 0.0
        self._last: tuple[S, S] | None = None
        self.problems: tuple[str, ...] = ()
        """Why the prices may be old, or missing; empty if the server has answered."""

    async def refresh(self, settings: S) -> None:
        """Ask the server that the price list of *settings* names, if its last answer is too old."""
        ask = settings.prices.ask
        if ask != self._ask:
            self._ask, self._nodes, self._next, self._last, self.problems = ask, {}, 0.0, None, ()
        if self._ask is None or self._clock() < self._next:
            return
        try:
            nodes = await in_thread(self._ask)
        except SettingsError as error:
            self._next = self._clock() + AGAIN
            if not self.problems:
                log(self._log, logging.WARNING, "no new prices from OpenCost", error=str(error))
            kept = "the last prices stay in use" if self._nodes else "its nodes have other prices, or none"
            self.problems = (f"{error}: {kept}",)
            return
        self._next, self.problems = self._clock() + REFRESH, ()
        if nodes != self._nodes:
            self._nodes, self._last = nodes, None

    def applied(self, settings: S) -> S:
        """Return *settings* with the prices; the same ones while neither changes."""
        if not self._nodes:
            return settings
        if self._last is None or self._last[0] is not settings:
            self._last = settings, settings.priced(self._nodes)
        return self._last[1]
