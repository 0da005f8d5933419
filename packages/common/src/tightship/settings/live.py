"""A configuration that may change while it is in use: the last good one stands, whatever is written over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Generic, TypeVar

from msgspec import Struct

from tightship.kube.errors import one_line
from tightship.settings.sources import Absent, Content, Found, Source, Unusable

_log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_LOOK = 30.0
"""Seconds that the first look at a source may take."""

_PAUSE = 30.0


class LiveConfigError(Exception):
    """There is no configuration to begin with. *problems* are whole lines, one for each thing that is wrong."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


class Report(Struct, frozen=True):
    """What has changed.

    *source* says where the configuration is, *valid* whether what is there can be used, *problems* why not. *changed*
    is whether another configuration is in use now, *absent* whether there is none, so that the starting one is.
    """

    source: str
    valid: bool
    problems: tuple[str, ...]
    changed: bool
    absent: bool


class LiveConfig(Generic[T]):
    """The configuration that *source* holds, read by *parse*, as long as the asynchronous context lasts.

    *parse* gets the texts by key, and raises an error with ``problems``, a list of lines, for what can't be used; any
    other error of it counts as one problem. *starting* (from file, environment and defaults) is in use until something
    good was found, and again when there is no such ConfigMap or file. *report* is called once for each change, at first
    for the first look. *changed* is set then too where another configuration is in use; who waits for it clears it.
    """

    def __init__(
        self,
        source: Source,
        parse: Callable[[Mapping[str, str]], T],
        *,
        starting: T | None = None,
        report: Callable[[Report], None] | None = None,
        changed: asyncio.Event | None = None,
        first_look: float = FIRST_LOOK,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.changed = changed or asyncio.Event()
        self.valid = True
        self.problems: tuple[str, ...] = ()
        self._source = source
        self._parse = parse
        self._starting = starting
        self._report = report
        self._first_look = first_look
        self._sleep = sleep
        self._current = starting
        self._last: Content | None = None
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def current(self) -> T:
        """The configuration in use. Raises :class:`LiveConfigError` before there is one."""
        if self._current is None:
            raise LiveConfigError(self.problems or (f"{self._source.name}: not read yet",))
        return self._current

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
        current, problems = self._judge(content)
        changed = current is not None and current != self._current
        if changed:
            self._current = current
        same = not changed and problems == self.problems
        self.valid, self.problems = not problems, problems
        self._looked.set()
        if same and not first:
            return
        self._say(Report(self._source.name, self.valid, problems, changed, isinstance(content, Absent)), first)

    def _judge(self, content: Content) -> tuple[T | None, tuple[str, ...]]:
        """Return the configuration that *content* asks for, ``None`` for the one in use, and what is wrong."""
        match content:
            case Found(data):
                try:
                    return self._parse(data), ()
                except Exception as error:  # a defect of the parser must not cost the last good one
                    return None, _problems(error)
            case Unusable(problems):
                return None, problems
            case _:
                missing = (f"{self._source.name}: does not exist",)
                return self._starting, (() if self._starting is not None else missing)

    def _say(self, report: Report, first: bool) -> None:
        if not report.valid:
            starting = self._current is self._starting
            stands = "nothing" if self._current is None else "the starting one" if starting else "the last good one"
            _log.error("bad configuration in %s; %s stands: %s", report.source, stands, "; ".join(report.problems))
        elif report.absent:
            _log.info("%s does not exist; the starting configuration stands", report.source)
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
