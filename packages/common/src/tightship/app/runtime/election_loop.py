"""Runs for the Lease only as long as it has a use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tightship.app.runtime.loop import any_of
from tightship.kube.election import Elector

LOOK = 1.0
"""Seconds between two checks whether the Lease is wanted."""


class Campaign:
    """Has *elector* run for the Lease while it is *wanted*, and release it when it no longer is.

    *wanted* is called on the event loop, again and again. It must stay true until nothing writes any more: as soon as
    it is false anybody may take the Lease.
    """

    def __init__(self, elector: Elector, wanted: Callable[[], bool]) -> None:
        self._elector = elector
        self._wanted = wanted

    async def run(self, stop: asyncio.Event) -> None:
        """Continue until *stop*, then release the Lease. Raises the election's errors."""
        while not stop.is_set():
            if self._wanted():
                await self._term(stop)
            else:
                await any_of(stop, timeout=LOOK)

    async def _term(self, stop: asyncio.Event) -> None:
        resign = asyncio.Event()
        election = asyncio.create_task(self._elector.run(resign), name="election")
        try:
            while self._wanted() and not stop.is_set() and not election.done():
                await any_of(stop, timeout=LOOK)
            resign.set()
            await election
        finally:
            election.cancel()
            await asyncio.gather(election, return_exceptions=True)
