"""Keeps one kind up to date: lists it, then watches it from there, forever, whatever the API server does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from msgspec import Struct

from tightship.cluster import FORBIDDEN, NOT_SERVED
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.kube.listing import PAGE_SIZE, list_served, why_missing
from tightship.kube.resources import Resource, node_of
from tightship.kube.retrying import RetryPolicy, begin_anew
from tightship.kube.watching import Applied, Removed, WatchDriver, WatchEvent, watch_once
from tightship.objects import ApiObject, ObjectError, decode
from tightship.objects.api_errors import Forbidden, Gone, KubeError, NotFound

_log = logging.getLogger(__name__)


class Timing(Struct, frozen=True, kw_only=True):
    """Durations in seconds; the defaults suit a real cluster.

    A stream without an event or bookmark for *silence* is dead: the API server sends a bookmark every minute. The
    server ends a watch after one to two times *server_timeout*. After an error the reflector waits with jitter, from
    *first* up to *longest*. *recheck* lies between two tries of a kind that is forbidden or not served.
    """

    silence: float = 120.0
    server_timeout: float = 300.0
    first: float = 0.5
    longest: float = 30.0
    recheck: float = 600.0
    page_size: int = PAGE_SIZE
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = monotonic

    @property
    def retry(self) -> RetryPolicy:
        """How long to wait before each new connection."""
        return RetryPolicy(first=self.first, longest=self.longest, jitter=0.5, sleep=self.sleep)


class Sink(Protocol):
    """The receiver of a reflector, such as :class:`tightship.cluster.ClusterState`."""

    def replace(self, kind: str, things: Iterable[ApiObject], errors: Iterable[tuple[ObjectError, str]] = ()) -> None:
        """Take the result of a list: all objects of *kind*."""

    def upsert(self, kind: str, thing: ApiObject) -> None:
        """Take a new or changed object."""

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Record that an object is gone."""

    def mark_unreadable(self, error: ObjectError, node: str = "") -> None:
        """Record an unreadable object."""

    def mark_missing(self, kind: str, why: str) -> None:
        """Record that *kind* can't be read."""


class Reflector:
    """Feeds all objects of *resource* into *state*, and calls *changed* after each change.

    *synced* says whether the state holds a complete list. *withheld* is why an optional kind is unavailable, else
    empty. *failure* is the present error, ``None`` while all is well. *seen* is the time of the last list, event or
    bookmark by the clock of *timing*, ``None`` before the first.
    """

    def __init__(
        self,
        connection: Connection,
        resource: Resource,
        state: Sink,
        changed: Callable[[], None],
        timing: Timing,
    ) -> None:
        self.resource = resource
        self.seen: float | None = None
        self.synced = False
        self.withheld = ""
        self.failure: KubeError | None = None
        self._connection = connection
        self._state = state
        self._changed = changed
        self._timing = timing
        self._served = resource
        self._driver: WatchDriver | None = None
        # Whether an event came over the present connection.
        self._arrived = False

    @property
    def settled(self) -> bool:
        """Whether this kind is known, or known to be unavailable."""
        return self.synced or bool(self.withheld)

    async def run(self) -> None:
        """List and watch until cancelled."""
        # Wait even before a new list: every client of a restarted API server wants one.
        async for attempt in self._timing.retry.endlessly():
            with attempt:
                while not await self._connect(partial(begin_anew, attempt.retry_state)):
                    await self._timing.sleep(self._timing.recheck)

    async def _connect(self, anew: Callable[[], None]) -> bool:
        """List, unless a watch goes on from the last list, and watch over as many connections as end properly.

        *anew* is called when something worked. Return whether the kind can be read.
        """
        timing = self._timing
        try:
            if self._driver is None:
                version = await self._list()
                self._driver = WatchDriver(
                    self._served, version, server=self._connection.server, server_timeout=timing.server_timeout
                )
            while True:
                began, self._arrived = timing.clock(), False
                if not await watch_once(
                    self._connection, self._driver, timing.silence, self._apply, partial(self._heard, anew)
                ):
                    self._driver = None
                    break
                self.failure = None
                if not self._arrived and timing.clock() - began < 1:
                    break  # A proxy ends watches as soon as they are opened.
        except (Forbidden, NotFound) as error:
            self._driver = None
            return await self._refused(error)
        except KubeError as error:
            if not isinstance(error, Gone) or self._driver is None:
                self._failed(error)
            if isinstance(error, Gone):
                self._driver = None
        return True

    async def _list(self) -> str:
        self._served, listing = await list_served(self._connection, self.resource, page_size=self._timing.page_size)
        for problem, _ in listing.problems:
            _log.warning("unreadable object: %s", problem)
        self._state.replace(self.resource.kind, listing.things, listing.problems)
        if self.withheld:
            _log.info("%s can be read now", self.resource.qualified)
        self.synced, self.withheld, self.failure = True, "", None
        self._alive()
        return listing.resource_version

    def _heard(self, anew: Callable[[], None]) -> None:
        self.failure = None
        anew()
        self._alive()

    def _apply(self, event: WatchEvent) -> None:
        self._arrived, kind = True, self.resource.kind
        match event:
            case Applied(raw):
                try:
                    self._state.upsert(kind, decode(kind, raw))
                except ObjectError as error:
                    _log.warning("unreadable object: %s", error)
                    self._state.mark_unreadable(error, node_of(kind, raw))
            case Removed(namespace, name):
                self._state.delete(kind, namespace, name)
            case _:
                pass

    def _alive(self) -> None:
        self.seen = self._timing.clock()
        self._changed()

    async def _refused(self, error: Forbidden | NotFound) -> bool:
        if self.resource.required:
            self.synced = False
            self._failed(error)
            return True
        why = FORBIDDEN if isinstance(error, Forbidden) else await why_missing(self._connection, self.resource)
        if self.withheld != why:
            usual = self.resource.extension and why == NOT_SERVED
            level = logging.INFO if usual else logging.WARNING
            _log.log(level, "doing without %s: %s (%s)", self.resource.qualified, why, error)
        # The known objects would grow old unnoticed.
        self._state.replace(self.resource.kind, ())
        self._state.mark_missing(self.resource.kind, why)
        self.synced, self.withheld, self.failure = False, why, None
        self._changed()
        return False

    def _failed(self, error: KubeError) -> None:
        if self.failure is None:
            _log.warning("%s; trying again", error)
        else:
            _log.debug("%s; trying again", error)
        self.failure = error
        self._changed()
