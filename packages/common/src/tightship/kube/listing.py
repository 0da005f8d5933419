"""Lists in pages, decoded object by object, so that an unreadable object costs only itself.

While one page is decoded, the next pages are on their way. Objects are first cut out of the page as raw JSON: decoding
whole pages as typed lists would save 1 of 16 microseconds a pod (measured), and would need a second way for a page with
a malformed object.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from tightship.cluster import NOT_SERVED
from tightship.kube.connection import Connection
from tightship.kube.resources import Resource
from tightship.objects import ObjectError, decode
from tightship.objects.api_errors import BadAnswer, Gone, KubeError, NotFound
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


class _PodSpec(Struct):
    node: str = msgspec.field(default="", name="nodeName")


class _PodPlace(Struct):
    spec: _PodSpec


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
_places = msgspec.json.Decoder(_PodPlace)


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


def node_of(kind: str, raw: bytes | msgspec.Raw) -> str:
    """Return the node of an unreadable pod, empty if that is unreadable too."""
    if kind != "Pod":
        return ""
    try:
        return _places.decode(raw).spec.node
    except UNREADABLE:
        return ""
