"""Keeps one kind up to date: lists it, then watches it from there, forever, whatever the API server does.

A list comes in pages, decoded object by object, so that an unreadable object costs only itself. While one page is
decoded, the next pages are on their way. Objects are first cut out of the page as raw JSON: decoding whole pages as
typed lists would save 1 of 16 microseconds a pod (measured), and would need a second way for a page with a malformed
object.

Of a watch, :class:`LineSplitter` turns chunks into lines, :class:`WatchDriver` turns lines into events, and
:func:`watch_once` holds the stream.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from tightship.cluster import FORBIDDEN, NOT_SERVED
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.kube.pacing import RetryPolicy, begin_anew
from tightship.kube.resources import Resource, node_of
from tightship.objects import ApiObject, ObjectError, decode
from tightship.objects.api_errors import BadAnswer, Forbidden, Gone, KubeError, NotFound, api_error
from tightship.objects.unreadable import UNREADABLE

_log = logging.getLogger(__name__)

PAGE_SIZE = 500
"""Objects in a page, as in client-go and kubectl."""

PAGE_TIMEOUT = 60.0
"""Seconds for one page."""

_BATCH = 100
"""Objects decoded before other tasks get their turn: about 2 ms."""

_PAGES_AHEAD = 3
"""Pages under way at once. Each takes memory here and on the server."""

_LONGEST_META = 8192
"""Bytes of a list in which to look for the continue token, which precedes the items."""

_TOKEN = re.compile(rb'"continue"\s*:\s*"([A-Za-z0-9_=+/.~-]+)"')

_PAGED_TRIES = 2
"""Tries in pages, after which a list that always expires is requested in one piece, as client-go does."""

Problem = tuple[ObjectError, str]
"""An unreadable object, and the node of an unreadable pod (empty if unknown)."""


class _ListMeta(Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str = msgspec.field(default="", name="continue")


class _Page(Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


Decode = Callable[[str, msgspec.Raw], Any]
"""Makes of an object of a kind what a list holds of it. May raise :class:`~tightship.objects.ObjectError`."""


class ObjectList(Struct):
    """All objects of one kind at *resource_version*: *things* are what a :data:`Decode` has made of them."""

    things: list[Any]
    problems: list[Problem]
    resource_version: str


class _Version(Struct):
    version: str = ""


class _Group(Struct):
    versions: tuple[_Version, ...] = ()


class _Named(Struct):
    name: str = ""


class _Served(Struct):
    resources: tuple[_Named, ...] = ()


_groups = msgspec.json.Decoder(_Group)
_served = msgspec.json.Decoder(_Served)
_pages = msgspec.json.Decoder(_Page)


async def list_all(
    connection: Connection,
    resource: Resource,
    *,
    page_size: int = PAGE_SIZE,
    progress: Callable[[str, int], None] | None = None,
    decode: Decode = decode,
) -> ObjectList:
    """Return everything of *resource*, in all namespaces.

    *progress* gets the kind and the number of objects read so far, after each page. If the continue token expires on
    the way (410), the list starts again. Raises what :meth:`Connection.request` raises, and
    :class:`~tightship.objects.api_errors.BadAnswer`.
    """
    for _ in range(_PAGED_TRIES):
        try:
            return await _list_once(connection, resource, page_size, progress, decode)
        except Gone:
            _log.info("the list of %s expired on the way; beginning anew", resource.name)
    return await _list_once(connection, resource, 0, progress, decode)


async def list_served(
    connection: Connection,
    resource: Resource,
    *,
    page_size: int = PAGE_SIZE,
    progress: Callable[[str, int], None] | None = None,
    decode: Decode = decode,
) -> tuple[Resource, ObjectList]:
    """Return everything of *resource* in the first version that the server serves, and *resource* in that version.

    Raises what :func:`list_all` raises; :class:`~tightship.objects.api_errors.NotFound` if no version is served.
    """
    *better, last = resource.versions
    for each in better:
        try:
            return each, await list_all(connection, each, page_size=page_size, progress=progress, decode=decode)
        except NotFound:
            continue
    return last, await list_all(connection, last, page_size=page_size, progress=progress, decode=decode)


async def why_missing(connection: Connection, resource: Resource) -> str:
    """Return why the server has no *resource*: it serves none, or only in versions that are not known here."""
    known = {each.version for each in resource.versions}
    group = f"/apis/{resource.group}"
    found: list[str] = []
    if resource.extension and resource.group:
        # Who may not ask, or gets no such answer, knows no more than before.
        with suppress(KubeError, *UNREADABLE):
            for each in _groups.decode(await connection.request("GET", group)).versions:
                if each.version not in known:
                    served = _served.decode(await connection.request("GET", f"{group}/{each.version}")).resources
                    found += [each.version] * any(one.name == resource.name for one in served)
    return f"served only as {' and '.join(found)}, which Tightship does not know" if found else NOT_SERVED


async def _list_once(
    connection: Connection,
    resource: Resource,
    limit: int,
    progress: Callable[[str, int], None] | None,
    decode: Decode,
) -> ObjectList:
    listing = ObjectList([], [], "")
    bodies = _Bodies(connection, resource, limit)
    try:
        while True:
            page = _decoded(await bodies.next(), connection, resource)
            token = page.metadata.next_page
            bodies.follow(token)
            await _take(listing, resource.kind, page.items or [], decode)
            # Every page has the version of the first.
            listing.resource_version = page.metadata.resource_version
            del page
            if progress is not None:
                progress(resource.kind, len(listing.things) + len(listing.problems))
            if not token:
                return listing
    finally:
        bodies.cancel()


class _Bodies:
    """The bodies of the pages in order, with a few requests under way at once.

    The continue token precedes the items, so the next page is requested as soon as the first bytes of this page arrive.
    The server then encodes one page while another is on the wire and a third is decoded.
    """

    def __init__(self, connection: Connection, resource: Resource, limit: int) -> None:
        self._connection = connection
        self._resource = resource
        self._limit = limit
        self._coming: deque[asyncio.Task[bytes]] = deque()
        self._token = ""  # of the first page not requested yet, empty if unknown
        self._start("")

    async def next(self) -> bytes:
        """Return the next body; call :meth:`follow` for the page before it first."""
        body = await self._coming[0]
        self._coming.popleft()
        return body

    def follow(self, token: str) -> None:
        """Record the continue token of the page just decoded, empty for the last page."""
        if not self._coming and token:
            self._start(token)
        elif self._token and len(self._coming) < _PAGES_AHEAD:
            self._start(self._token)

    def cancel(self) -> None:
        """Abandon the requests under way."""
        for task in self._coming:
            task.cancel()

    def _start(self, token: str) -> None:
        self._token = ""
        params = {"limit": str(self._limit)} if self._limit else {}
        params |= self._resource.selectors
        if token:
            params["continue"] = token
        begun = False

        def on_head(head: bytes) -> None:
            nonlocal begun
            # A retried request calls again, and must not start the next page twice.
            if not begun and (following := _token_in(head)):
                begun = True
                self._token = following
                if len(self._coming) < _PAGES_AHEAD:
                    self._start(following)

        request = self._connection.request(
            "GET", self._resource.path, params=params, timeout=PAGE_TIMEOUT, on_head=on_head
        )
        self._coming.append(asyncio.create_task(request))


def _token_in(head: bytes) -> str:
    """Return the continue token in the first bytes of a list, empty if they hold none."""
    meta, found, _ = head[:_LONGEST_META].partition(b'"items"')
    match = _TOKEN.search(meta) if found else None
    return match[1].decode() if match else ""


def _decoded(body: bytes, connection: Connection, resource: Resource) -> _Page:
    try:
        return _pages.decode(body)
    except UNREADABLE as error:
        raise BadAnswer("GET", resource.path, connection.server, f"not a list: {error}") from error


async def _take(listing: ObjectList, kind: str, items: list[msgspec.Raw], decode: Decode) -> None:
    for start in range(0, len(items), _BATCH):
        # Requests leave and answers arrive between batches.
        await asyncio.sleep(0)
        for raw in items[start : start + _BATCH]:
            try:
                listing.things.append(decode(kind, raw))
            except ObjectError as error:
                listing.problems.append((error, node_of(kind, raw)))


LONGEST_LINE = 64 << 20
"""Bytes after which a line can't be a watch event; an object in etcd stays below 2 MB."""


class Applied(Struct, frozen=True):
    """An object was added or changed; *raw* is its JSON."""

    raw: msgspec.Raw


class Removed(Struct, frozen=True):
    """An object is gone, or no longer matches the field selector."""

    namespace: str
    name: str


class Bookmark(Struct, frozen=True):
    """Nothing has happened up to a newer version."""


class Expired(Struct, frozen=True):
    """The version to continue from is too old, so list again."""


WatchEvent: TypeAlias = Applied | Removed | Bookmark | Expired


class _Line(Struct):
    type: str
    object: msgspec.Raw = msgspec.Raw()


class _Meta(Struct):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Object(Struct):
    metadata: _Meta


_lines = msgspec.json.Decoder(_Line)
_objects = msgspec.json.Decoder(_Object)


class LineSplitter:
    """Splits a byte stream into lines, wherever its chunks end. Takes linear time, however long a line is."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._longest = longest

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that *chunk* completes, except empty ones. Raises :class:`ValueError` if one is too long."""
        head, *rest = chunk.split(b"\n")
        self._parts.append(head)
        self._size += len(head)
        if self._size > self._longest:
            raise ValueError(f"a line of more than {self._longest} bytes")
        if not rest:
            return []
        lines = [b"".join(self._parts), *rest[:-1]]
        self._parts = [rest[-1]]
        self._size = len(rest[-1])
        return [line for line in lines if line.strip()]


class WatchDriver:
    """One watch across any number of connections; the next one continues from *resource_version*."""

    def __init__(
        self,
        resource: Resource,
        resource_version: str,
        *,
        server: str = "",
        server_timeout: float = 300.0,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self.resource = resource
        self.resource_version = resource_version
        self._server = server
        self._server_timeout = server_timeout
        self._spread = spread

    def params(self) -> dict[str, str]:
        """Return the parameters of the GET that continues from the present version.

        The server ends it after one to two times the server timeout: watches that begin together must not end together.
        """
        return {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": str(int(self._server_timeout * (1 + self._spread()))),
            **self.resource.selectors,
        }

    def take(self, line: bytes) -> WatchEvent:
        """Return the event of one line, and keep its version.

        Raises :class:`~tightship.objects.api_errors.ApiError` for an ``ERROR`` event other than 410, and
        :class:`~tightship.objects.api_errors.BadAnswer` for a line that is not an event.
        """
        try:
            event = _lines.decode(line)
        except UNREADABLE as error:
            raise self._bad(f"not an event: {error}") from error
        if event.type == "ERROR":
            failure = api_error(0, event.object, verb="WATCH", path=self.resource.path, server=self._server)
            if isinstance(failure, Gone):
                return Expired()
            raise failure
        try:
            meta = _objects.decode(event.object).metadata
        except UNREADABLE:
            # The metadata is malformed: keep the version, and pass the object on, to be counted as unreadable.
            meta = _Meta()
        if meta.resource_version:
            self.resource_version = meta.resource_version
        match event.type:
            case "ADDED" | "MODIFIED":
                return Applied(event.object)
            case "DELETED":
                return Removed(meta.namespace, meta.name)
            case "BOOKMARK":
                return Bookmark()
            case _:
                raise self._bad(f"unknown event type {event.type!r}")

    def _bad(self, problem: str) -> BadAnswer:
        return BadAnswer("WATCH", self.resource.path, self._server, problem)


async def watch_once(
    connection: Connection,
    driver: WatchDriver,
    silence: float,
    take: Callable[[WatchEvent], None],
    alive: Callable[[], None],
) -> bool:
    """Give *take* the events of one connection, and call *alive* after those that arrived together.

    Return whether the next connection can continue where this one ended. A stream without a byte for *silence* seconds
    is broken. Raises what :meth:`Connection.stream` and :meth:`WatchDriver.take` raise.
    """
    splitter, path = LineSplitter(), driver.resource.path
    async with connection.stream(path, params=driver.params(), silence=silence) as chunks:
        async for chunk in chunks:
            try:
                lines = splitter.feed(chunk)
            except ValueError as error:
                raise BadAnswer("WATCH", path, connection.server, str(error)) from error
            for line in lines:
                event = driver.take(line)
                if isinstance(event, Expired):
                    return False
                take(event)
            if lines:
                alive()
    return True


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
                    self._connection, self._driver, timing.silence, self._apply, partial(self._on_answer, anew)
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

    def _on_answer(self, anew: Callable[[], None]) -> None:
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
