"""Sources of configuration that may change: one ConfigMap of the cluster, or mounted files.

A source tells a sink its contents (:class:`Found`, :class:`Absent` or :class:`Unusable`) after each look, and never
ends by itself. :mod:`tightship.process.settings.live` judges the contents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.reflector import Timing
from tightship.kube.resources import Resource
from tightship.kube.retrying import begin_anew
from tightship.kube.watching import Applied, Removed, WatchDriver, WatchEvent, watch_once
from tightship.objects.api_errors import BadAnswer, Forbidden, KubeError, one_line
from tightship.objects.unreadable import UNREADABLE

_log = logging.getLogger(__name__)

POLL = 10.0
"""Seconds between two looks at mounted files; the kubelet itself takes up to a minute to change them."""


class Found(Struct, frozen=True):
    """Configuration as texts by key, as in a ConfigMap's ``data``; a file's key is its name."""

    data: Mapping[str, str]


class Absent(Struct, frozen=True):
    """The ConfigMap or file does not exist."""


class Unusable(Struct, frozen=True):
    """There may be configuration, but it is unreadable as texts. *problems* are whole lines."""

    problems: tuple[str, ...]


Content: TypeAlias = Found | Absent | Unusable
Sink: TypeAlias = Callable[[Content], None]


class LiveSource(Protocol):
    """A source to look at repeatedly. *name* is for people; *trouble* is empty while all is well."""

    name: str
    trouble: str

    async def run(self, sink: Sink) -> None:
        """Tell *sink* the contents at first and after each change (perhaps more often), until cancelled."""


class _Meta(Struct):
    name: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _ConfigMap(Struct):
    metadata: _Meta
    data: dict[str, str] | None = None


class _List(Struct):
    metadata: _Meta
    items: list[_ConfigMap] | None = None


_lists = msgspec.json.Decoder(_List)
_objects = msgspec.json.Decoder(_ConfigMap)


class ConfigMapSource:
    """One ConfigMap, listed and watched by its name.

    Needs ``list`` and ``watch`` on ``configmaps`` in the namespace; a Role can limit both to the name with
    ``resourceNames``. Each connection begins with a list of that one object, which also recovers from every interrupted
    watch (410, a silent stream, a restarted API server).
    """

    def __init__(self, connection: Connection, namespace: str, name: str, *, timing: Timing = Timing()) -> None:
        self.name = f"ConfigMap {namespace}/{name}"
        self.trouble = ""
        self._connection = connection
        self._object = name
        self._resource = Resource(
            "ConfigMap", "", "v1", "configmaps", field_selector=f"metadata.name={name}", namespace=namespace
        )
        self._timing = timing

    async def run(self, sink: Sink) -> None:
        """List and watch until cancelled."""
        # Wait even after a proper end: all clients of a restarted API server come back together.
        async for attempt in self._timing.retry.endlessly():
            with attempt:
                try:
                    await self._watch(await self._list(sink), sink, partial(begin_anew, attempt.retry_state))
                except KubeError as error:
                    self._failed(error)
                    if isinstance(error, Forbidden):
                        # Unreadable configuration is no outage: only a person can fix the permissions.
                        sink(Unusable((f"{self.name} can't be read: {error.message or 'forbidden'}",)))

    async def _list(self, sink: Sink) -> str:
        resource = self._resource
        body = await self._connection.request("GET", resource.path, params=resource.selectors)
        try:
            found = _lists.decode(body)
        except UNREADABLE as error:
            raise BadAnswer("GET", resource.path, self._connection.server, f"not a list: {error}") from error
        held = next((each for each in found.items or () if each.metadata.name == self._object), None)
        sink(Absent() if held is None else Found(held.data or {}))
        self._well()
        return found.metadata.resource_version

    async def _watch(self, resource_version: str, sink: Sink, heard: Callable[[], None]) -> None:
        """Follow one connection to its end."""
        timing, server = self._timing, self._connection.server
        driver = WatchDriver(self._resource, resource_version, server=server, server_timeout=timing.server_timeout)
        tell = partial(self._tell, sink)
        await watch_once(self._connection, driver, timing.silence, tell, heard)

    def _tell(self, sink: Sink, event: WatchEvent) -> None:
        match event:
            case Applied(raw):
                try:
                    held = _objects.decode(raw)
                except UNREADABLE as error:
                    sink(Unusable((f"{self.name} can't be read: {error}",)))
                    return
                if held.metadata.name == self._object:
                    sink(Found(held.data or {}))
            case Removed(_, name) if name == self._object:
                sink(Absent())
            case _:
                pass

    def _well(self) -> None:
        if self.trouble:
            _log.info("%s can be read again", self.name)
        self.trouble = ""

    def _failed(self, error: KubeError) -> None:
        _log.log(logging.DEBUG if self.trouble else logging.WARNING, "%s; trying again", error)
        self.trouble = one_line(error)


class FileSource:
    """A file, or a folder of files, read every :data:`POLL` seconds.

    The kubelet swaps the ``..data`` link of a mounted ConfigMap as a whole. The source reads the files through that
    link, so that they are all of one version. It skips hidden files. A file that existed counts as absent only after
    two looks without it: many editors remove a file before they replace it.
    """

    def __init__(self, path: Path, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.name = f"file {path}"
        self.trouble = ""
        self._path = path
        self._sleep = sleep

    async def run(self, sink: Sink) -> None:
        """Read until cancelled."""
        last: Content | None = None
        while True:
            content = await asyncio.to_thread(self._read)
            if not isinstance(content, Absent) or last is None or isinstance(last, Absent):
                sink(content)
            last = content
            await self._sleep(POLL)

    def _read(self) -> Content:
        try:
            data = {each.name: each.read_text(encoding="utf-8-sig") for each in self._files()}
        except FileNotFoundError:
            return Absent()
        except UnicodeDecodeError:
            return self._unusable("is not UTF-8 text")
        except OSError as error:
            return self._unusable(error.strerror or str(error))
        self.trouble = ""
        return Found(data)

    def _files(self) -> list[Path]:
        if not self._path.is_dir():
            return [self._path]
        version = self._path / "..data"
        root = version.resolve() if version.exists() else self._path
        return sorted(each for each in root.iterdir() if each.is_file() and not each.name.startswith("."))

    def _unusable(self, problem: str) -> Unusable:
        self.trouble = f"{self._path}: {problem}"
        return Unusable((self.trouble,))
