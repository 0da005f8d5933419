"""Running for the Lease only as long as there is something to do with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tightship.kube.election import Elector
from tightship.runtime.loop import any_of

LOOK = 1.0
"""Seconds between two looks at whether the Lease is wanted."""


class Campaign:
    """Has *elector* run for the Lease while it is *wanted*, and give it up when it no longer is.

    *wanted* is asked on the event loop, again and again. It must stay true until nothing that writes goes on any more:
    as soon as it is false the Lease is anybody's.
    """

    def __init__(self, elector: Elector, wanted: Callable[[], bool]) -> None:
        self._elector = elector
        self._wanted = wanted

    async def run(self, stop: asyncio.Event) -> None:
        """Go on until *stop*, then give the Lease up. Raises what the election raises."""
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


__all__ = ["LOOK", "Campaign"]
