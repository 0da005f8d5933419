"""Keeps the ConfigMap of landings as the book of landings is: one write at a time, shared by all who wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping

from tightship.draining.landing_map import LandingMap
from tightship.kube.host import monotonic
from tightship.objects.api_errors import KubeError, problem_of
from tightship.objects.backoff import doubled

_log = logging.getLogger(__name__)

LONGEST = 5.0
"""Most seconds that a drain waits before a round of evictions."""

_FIRST, _LAST = 1.0, 30.0
_NEVER = -1e9


class Publisher:
    """Writes *data*, what the book says, into *landing_map*."""

    def __init__(self, landing_map: LandingMap, data: Callable[[], Mapping[str, str]]) -> None:
        self.map = landing_map
        self.updated = _NEVER
        """When the policy last learned something new (monotonic seconds)."""
        self._data = data
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._again = _NEVER

    @property
    def differs(self) -> bool:
        """Whether the ConfigMap says something else than the book, as far as this object knows."""
        return self.map.data != self._data()

    async def reread(self, judge: Callable[[str | None], None]) -> None:
        """Read the ConfigMap, have *judge* see its policy, and make it say what the book says then.

        Raises :class:`~tightship.objects.api_errors.KubeError` and :class:`TimeoutError`.
        """
        async with asyncio.timeout(LONGEST), self._lock:
            await self.map.read()
            judge(self.map.policy)
            await self._write()

    async def publish(self) -> None:
        """Make the ConfigMap say what the book says. Whoever waits for the lock finds the work of others done.

        Raises as :meth:`reread` does, except that the caller limits the time.
        """
        async with self._lock:
            await self._write()

    def publish_later(self) -> None:
        """Publish in the background, unless that is under way or has just failed."""
        if monotonic() >= self._again:
            self._begin(self.publish())

    def retract(self) -> None:
        """Empty the ConfigMap in the background, but only if nobody has written since: a new leader may have."""
        self._begin(self._retract())

    async def stop(self) -> None:
        """End what runs in the background."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write(self) -> None:
        wanted, known = self._data(), self.map.data
        if wanted == known:
            return
        new = known is None or any(known.get(owner) != nodes for owner, nodes in wanted.items())
        await self.map.write(wanted)
        if new:
            self.updated = monotonic()

    async def _retract(self) -> None:
        async with self._lock:
            await self.map.write({}, unseen=False)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        if self._task is not None and not self._task.done():
            work.close()
            return
        self._task = asyncio.create_task(self._done(work), name="write landings")

    async def _done(self, work: Coroutine[object, object, None]) -> None:
        try:
            async with asyncio.timeout(LONGEST):
                await work
        except (KubeError, TimeoutError) as error:
            self._again = monotonic() + doubled(_FIRST, _LAST, self._failures)
            self._failures += 1
            _log.debug("%s not written: %s", self.map, problem_of(error))
        else:
            self._failures = 0


__all__ = ["LONGEST", "Publisher"]
