"""One watch: requests to make, lines to take, the version to continue from.

:class:`LineSplitter` turns chunks into lines, :class:`WatchDriver` turns lines into events, and :func:`watch_once`
holds the stream.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.resources import Resource
from tightship.objects.api_errors import BadAnswer, Gone, api_error
from tightship.objects.unreadable import UNREADABLE

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
