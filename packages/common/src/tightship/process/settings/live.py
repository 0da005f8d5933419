"""A configuration that may change while it is in use: the last good one stands, whatever is written over it.

The sources are one ConfigMap of the cluster, or mounted files. A source tells a sink its contents (:class:`Found`,
:class:`Absent` or :class:`Unusable`) after each look, and never ends by itself. :class:`LiveConfig` judges the
contents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.pacing import begin_anew
from tightship.kube.reflector import Applied, Removed, Timing, WatchDriver, WatchEvent, watch_once
from tightship.kube.resources import Resource
from tightship.objects.api_errors import BadAnswer, Forbidden, KubeError, one_line
from tightship.objects.unreadable import UNREADABLE
from tightship.process.logging import log


class Standing(Enum):
    """Which configuration is in use."""

    STARTING = "environment and defaults apply"
    LAST_GOOD = "the last good one applies"
    OFF = "nothing new begins"


class Notice(Struct, frozen=True):
    """A message about a configuration: *about* says what happened to it, *lines* say why, one cause each."""

    about: str
    lines: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """One whole sentence for each line, or a single one if there are no lines."""
        return tuple(f"{self.about}: {line}" for line in self.lines) or (self.about,)

    def __str__(self) -> str:
        """Return one sentence with everything."""
        return ": ".join(each for each in (self.about, "; ".join(self.lines)) if each)


def refused(standing: Standing, problems: tuple[str, ...]) -> Notice:
    """Return the notice that *problems* make a configuration unusable; *standing* names the one in use."""
    until = " until there is a good one" if standing is Standing.OFF else ""
    return Notice(f"The configuration was refused; {standing.value}{until}", problems)


def deleted(standing: Standing, source: str) -> Notice:
    """Return the notice that *source* is gone; *standing* names the configuration in use from then on."""
    return Notice(f"{source} was deleted; {standing.value} until it is back")


def missing(standing: Standing, source: str) -> Notice:
    """Return the notice that there has been no *source* yet; *standing* names the configuration in use until then."""
    return Notice(f"{source} does not exist; {standing.value} until it does")


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

    async def _watch(self, resource_version: str, sink: Sink, alive: Callable[[], None]) -> None:
        """Follow one connection to its end."""
        timing, server = self._timing, self._connection.server
        driver = WatchDriver(self._resource, resource_version, server=server, server_timeout=timing.server_timeout)
        tell = partial(self._tell, sink)
        await watch_once(self._connection, driver, timing.silence, tell, alive)

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


T = TypeVar("T")

FIRST_LOOK = 30.0
"""Seconds for the first look at a source."""

_PAUSE = 10.0
"""Seconds before a retry after a defect in a source: short enough for several within the first look."""


class Report(Struct, frozen=True):
    """A change.

    *source* names the place of the configuration. *valid* says that the place holds a usable configuration, or need not
    hold any. *notice* says why not and which configuration is in use instead, or that somebody deleted it. *changed*
    says that another configuration is in use now, *absent* that there is none.
    """

    source: str
    valid: bool
    notice: Notice | None
    changed: bool
    absent: bool


class _Verdict(Struct, Generic[T], frozen=True):
    """The result of one look: *current* is in use from now on."""

    current: T
    standing: Standing
    notice: Notice | None = None
    valid: bool = True


class LiveConfig(Generic[T]):
    """The configuration that *source* holds and *parse* reads, while the asynchronous context lasts.

    *parse* gets the texts by key. For an unusable configuration, *parse* raises an error with ``problems``, a list of
    lines; any other error counts as one problem. *starting* (from environment and defaults) is in use until the first
    usable configuration, and again when the ConfigMap or file does not exist.

    If a *starting* configuration acts, it must not apply by itself. Pass *lost* then: it turns the configuration in use
    into one that begins nothing new. The result is in use while there is no ConfigMap or file, and while there is one
    that was never usable.

    The configuration calls *report* once for each change, the first look included, and sets *changed* whenever another
    configuration is in use. The waiter clears *changed*.
    """

    def __init__(
        self,
        source: LiveSource,
        parse: Callable[[Mapping[str, str]], T],
        *,
        starting: T,
        lost: Callable[[T], T] | None = None,
        report: Callable[[Report], None] | None = None,
        changed: asyncio.Event | None = None,
        first_look: float = FIRST_LOOK,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.changed = changed or asyncio.Event()
        self.valid = True
        self._source = source
        self._parse = parse
        self._starting = starting
        self._lost = lost
        self._report = report
        self._first_look = first_look
        self._sleep = sleep
        self._current = starting
        self._standing = Standing.STARTING
        self._notice: Notice | None = None
        self._last: Content | None = None
        self._there = False
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> T:
        """The configuration in use."""
        return self._current

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences for people: why a configuration was refused, or that it was deleted, and which one is in use."""
        return () if self._notice is None else self._notice.sentences

    @property
    def read(self) -> bool:
        """Whether anybody has looked at the source. Until then nobody knows what it says, so nothing should be done."""
        return self._last is not None

    @property
    def trouble(self) -> str:
        """Why the source is unreachable at present, empty while it is reachable."""
        return self._source.trouble

    async def __aenter__(self) -> LiveConfig[T]:
        """Take the first look, but wait no longer than its time for an API server that does not answer."""
        self._task = asyncio.create_task(self._follow(), name=f"configuration from {self._source.name}")
        try:
            async with asyncio.timeout(self._first_look):
                await self._looked.wait()
        except TimeoutError:
            _log.warning(
                "%s was not read in %g s: %s", self._source.name, self._first_look, self.trouble or "no answer"
            )
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            try:
                await self._source.run(self._take)
            except Exception:
                # A defect of ours. As after any other failure, the last good configuration stays in use.
                _log.exception("following %s failed; trying again", self._source.name)
            await self._sleep(_PAUSE)

    def _take(self, content: Content) -> None:
        if content == self._last:
            return
        first, self._last = self._last is None, content
        self._there = self._there or isinstance(content, Found)
        verdict = self._judge(content)
        changed = verdict.current != self._current
        same = not changed and verdict.notice == self._notice
        self._current, self._standing = verdict.current, verdict.standing
        self._notice, self.valid = verdict.notice, verdict.valid
        self._looked.set()
        if same and not first:
            return
        self._say(Report(self._source.name, self.valid, self._notice, changed, isinstance(content, Absent)), first)

    def _judge(self, content: Content) -> _Verdict[T]:
        match content:
            case Found(data):
                try:
                    return _Verdict(self._parse(data), Standing.LAST_GOOD)
                except Exception as error:  # a defect of the parser must not cost the last good one
                    return self._refused(_problems(error))
            case Unusable(problems):
                return self._refused(problems)
            case _:
                return self._without()

    def _refused(self, problems: tuple[str, ...]) -> _Verdict[T]:
        current, standing = self._current, self._standing
        if self._lost is not None and standing is Standing.STARTING:
            current, standing = self._lost(current), Standing.OFF
        return _Verdict(current, standing, refused(standing, problems), valid=False)

    def _without(self) -> _Verdict[T]:
        source = self._source.name
        if self._lost is not None:
            notice = (deleted if self._there else missing)(Standing.OFF, source)
            return _Verdict(self._lost(self._current), Standing.OFF, notice, valid=not self._there)
        if not self._there:
            return _Verdict(self._starting, Standing.STARTING)
        return _Verdict(self._starting, Standing.STARTING, deleted(Standing.STARTING, source))

    def _say(self, report: Report, first: bool) -> None:
        if report.notice is not None:
            for each in report.notice.sentences:
                log(_log, logging.WARNING if report.valid else logging.ERROR, each, source=report.source)
        elif report.absent:
            _log.info("%s does not exist; the starting configuration applies", report.source)
        elif report.changed or not first:
            _log.info("configuration read from %s", report.source)
        if report.changed:
            self.changed.set()
        if self._report is not None:
            try:
                self._report(report)
            except Exception:
                _log.exception("reporting a configuration failed")


def _problems(error: Exception) -> tuple[str, ...]:
    listed = getattr(error, "problems", None)
    if isinstance(listed, list | tuple) and listed:
        return tuple(str(each) for each in listed)
    return (one_line(error),)
