"""A configuration that may change while it is in use: the last good one stands, whatever is written over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Generic, TypeVar

from msgspec import Struct

from tightship.app.observability.logging import log
from tightship.app.settings.config_fallback import Notice, Standing, deleted, refused
from tightship.app.settings.sources import Absent, Content, Found, Source, Unusable
from tightship.core.api_errors import one_line

_log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_LOOK = 30.0
"""Seconds that the first look at a source may take."""

_PAUSE = 10.0
"""Seconds before a source that failed by a defect is tried again: more than once within the first look."""


class LiveConfigError(Exception):
    """There is no configuration to begin with. *problems* are whole lines, one for each thing that is wrong."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


class Report(Struct, frozen=True):
    """What has changed.

    *source* says where the configuration is. *valid* is whether what is there can be used, or nothing need be there;
    *notice* is why not, and what is in use instead, or that it was deleted. *changed* is whether another configuration
    is in use now, *absent* whether there is none.
    """

    source: str
    valid: bool
    notice: Notice | None
    changed: bool
    absent: bool


class _Verdict(Struct, Generic[T], frozen=True):
    """What becomes of the configuration: *current* is in use from now on."""

    current: T | None
    standing: Standing
    notice: Notice | None = None
    valid: bool = True


class LiveConfig(Generic[T]):
    """The configuration that *source* holds, read by *parse*, as long as the asynchronous context lasts.

    *parse* gets the texts by key, and raises an error with ``problems``, a list of lines, for what can't be used; any
    other error of it counts as one problem. *starting* (from environment and defaults) is in use until something good
    was found, and again when there is no such ConfigMap or file.

    Where a starting one acts, it must not take the place of what somebody wrote. Then *lost* is given: what it makes of
    the one in use, something that begins nothing new, is in use where a ConfigMap or file was there and is gone, and
    where there is one and none could be used yet.

    *report* is called once for each change, at first for the first look. *changed* is set then too where another
    configuration is in use; who waits for it clears it.
    """

    def __init__(
        self,
        source: Source,
        parse: Callable[[Mapping[str, str]], T],
        *,
        starting: T | None = None,
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
        self._standing = Standing.NOTHING if starting is None else Standing.STARTING
        self._notice: Notice | None = None
        self._last: Content | None = None
        self._there = False
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> T:
        """The configuration in use. Raises :class:`LiveConfigError` before there is one."""
        if self._current is None:
            raise LiveConfigError(self.problems or (f"{self._source.name}: not read yet",))
        return self._current

    @property
    def problems(self) -> tuple[str, ...]:
        """What people have to know, whole sentences: why it was refused, or that it was deleted, and what is in use."""
        return () if self._notice is None else self._notice.sentences

    @property
    def read(self) -> bool:
        """Whether the source has been looked at: before that nobody knows what it says, and nothing should be done."""
        return self._last is not None

    @property
    def trouble(self) -> str:
        """Why the source can't be looked at for the time being, empty while it can."""
        return self._source.trouble

    async def __aenter__(self) -> LiveConfig[T]:
        """Take the first look.

        Raises :class:`LiveConfigError` where neither that nor a starting value gives a configuration. With a starting
        value an API server that does not answer is waited for no longer than the first look may take: see :attr:`read`.
        """
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
        if self._current is None:
            await self._end()
            why = f"{self._source.name}: {self.trouble or 'not read in time'}"
            raise LiveConfigError(self.problems or (why,))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                # A defect of ours: the last good configuration stands for it as for anything else.
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
        if self._lost is not None and current is not None and standing is Standing.STARTING:
            current, standing = self._lost(current), Standing.OFF
        return _Verdict(current, standing, refused(standing, problems), valid=False)

    def _without(self) -> _Verdict[T]:
        current, source = self._current, self._source.name
        if not self._there:
            if self._starting is None:
                return _Verdict(None, Standing.NOTHING, Notice("", (f"{source}: does not exist",)), valid=False)
            return _Verdict(self._starting, Standing.STARTING)
        if self._lost is not None and current is not None:
            return _Verdict(self._lost(current), Standing.OFF, deleted(Standing.OFF, source), valid=False)
        if self._starting is None:
            return _Verdict(current, self._standing, deleted(self._standing, source), valid=False)
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


__all__ = ["LiveConfig", "LiveConfigError", "Report"]
