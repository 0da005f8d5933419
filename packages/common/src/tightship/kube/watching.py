"""The logic of a watch, without any I/O: requests to make, lines to take, the version to continue from.

:class:`LineSplitter` turns chunks into lines, :class:`WatchDriver` lines into events. The loop that holds the stream is
in :mod:`tightship.kube.reflector`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeAlias

import msgspec
from msgspec import Struct

from tightship.core.api_errors import BadAnswer, Gone, api_error
from tightship.kube.resources import Resource

LONGEST_LINE = 64 << 20
"""Bytes after which a line without an end is no watch event; an object in etcd stays below 2 MB."""


class Applied(Struct, frozen=True):
    """An object was added or changed: its JSON."""

    raw: msgspec.Raw


class Removed(Struct, frozen=True):
    """An object is gone, or no longer matches the field selector."""

    namespace: str
    name: str


class Bookmark(Struct, frozen=True):
    """No event up to a newer version."""


class Expired(Struct, frozen=True):
    """The version to continue from is too old: list again."""


WatchEvent: TypeAlias = Applied | Removed | Bookmark | Expired


class WatchRequest(Struct, frozen=True):
    """The next GET of a watch."""

    path: str
    params: dict[str, str]


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
    """Lines of a byte stream that may be split anywhere. Linear in the bytes, however long a line is."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._longest = longest

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that *chunk* completes, without empty ones. Raises :class:`ValueError`
        beyond the longest.
        """
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
    """One watch across any number of connections: *resource_version* is where the next one continues."""

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

    def request(self) -> WatchRequest:
        """Return the request that continues from the present version.

        The server ends it after one to two times the server timeout: watches that begin together must not end together.
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.resource_version,
            "timeoutSeconds": str(int(self._server_timeout * (1 + self._spread()))),
        }
        params |= self.resource.selectors
        return WatchRequest(self.resource.path, params)

    def take(self, line: bytes) -> WatchEvent:
        """Return what one line says, and keep its version.

        Raises :class:`~tightship.core.api_errors.ApiError` for an ``ERROR`` event other than 410, and
        :class:`~tightship.core.api_errors.BadAnswer` for a line that is not an event.
        """
        try:
            event = _lines.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._bad(f"not an event: {error}") from error
        if event.type == "ERROR":
            told = api_error(0, event.object, verb="WATCH", path=self.resource.path, server=self._server)
            if isinstance(told, Gone):
                return Expired()
            raise told
        try:
            meta = _objects.decode(event.object).metadata
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Malformed to its core: the version stays, the object goes on to be counted as unreadable.
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
