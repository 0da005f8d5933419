"""A configuration that may change while it is in use: the last good one stands, whatever is written over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from msgspec import Struct

from tightship.objects.api_errors import one_line
from tightship.process.logging import log
from tightship.process.settings.config_fallback import Notice, Standing, deleted, missing, refused
from tightship.process.settings.sources import Absent, Content, Found, LiveSource, Unusable

_log = logging.getLogger(__name__)

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
    told = getattr(error, "problems", None)
    if isinstance(told, list | tuple) and told:
        return tuple(str(each) for each in told)
    return (one_line(error),)
