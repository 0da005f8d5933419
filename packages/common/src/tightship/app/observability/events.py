"""Events in the cluster (events.k8s.io/v1), recorded without holding anything up.

An Event is a courtesy to whoever runs ``kubectl describe``: it must never delay a decision, fail one, or flood the API
server. So recording only puts it in a bounded queue, and what can't be told is counted and dropped.

Needs ``create`` on ``events`` of the group ``events.k8s.io``, in the namespaces of the objects, and in ``default`` for
objects that have none. An Event said again within the window is left out, not counted up: that would need ``patch``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal

import msgspec
from msgspec import Struct

from tightship.core.api_errors import Conflict, KubeError
from tightship.core.counting import counted
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic, token, wall
from tightship.kube.rate_limit import TokenBucket

_log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

CLUSTER_SCOPED_NAMESPACES = ("default", "kube-system")
"""Where the API server takes Events about objects without a namespace."""

LONGEST_NOTE = 1024
"""Bytes; the API server refuses more."""

LONGEST_WORD = 128
"""Bytes of a reason, an action and a reporting instance; the API server refuses more."""

QUEUE_FULL, FAILED, INVALID, CLOSED = "queue-full", "failed", "invalid", "closed"
"""Causes for which an Event is dropped."""

_LONGEST_STEM = 220
_REMEMBERED = 8192
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9.-]+")
_QUALIFIED = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


class ObjectRef(Struct, frozen=True):
    """What an Event is about. *namespace* is empty for a cluster-scoped object such as a node."""

    kind: str
    name: str
    uid: str = ""
    namespace: str = ""
    api_version: str = "v1"


class Pace(Struct, frozen=True, kw_only=True):
    """How much is told. *window*, *timeout* and *flush* are in seconds.

    The same Event is told once in *window*; *burst* at once, and *rate* a second in the long run; *queue* may wait.
    *timeout* is of each request; *flush* is what the end of the context may take for what still waits.
    """

    window: float = 600.0
    burst: int = 25
    rate: float = 5.0
    queue: int = 1000
    timeout: float = 10.0
    flush: float = 5.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = monotonic
    now: Callable[[], datetime] = lambda: datetime.fromtimestamp(wall(), UTC)


class EventCounts(Struct):
    """What became of Events since the start. *suppressed* were said already within the window."""

    sent: int = 0
    suppressed: int = 0
    dropped: int = 0


class _Meta(Struct):
    name: str
    namespace: str


class _Regarding(Struct, rename="camel", omit_defaults=True):
    api_version: str
    kind: str
    name: str
    uid: str = ""
    namespace: str = ""


class _Event(Struct, rename="camel", frozen=True):
    api_version: str
    kind: str
    metadata: _Meta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: _Regarding
    note: str
    type: str


_Key = tuple[ObjectRef, str, str, str, str]


class _Waiting(Struct, frozen=True):
    key: _Key
    path: str
    body: bytes


class EventRecorder:
    """Records Events while the asynchronous context lasts; to be used from the event loop's thread.

    *controller* is a qualified name such as ``tightship.dev/node-compactor``, *instance* the name of the pod,
    *namespace* where Events about cluster-scoped objects go. Raises :class:`ValueError` for a controller or a namespace
    that the API server would refuse. *dropped* is told the cause of each Event that was dropped. One that is *silent*
    records nothing: for a dry run.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        controller: str,
        instance: str,
        namespace: str = "default",
        pace: Pace = Pace(),
        dropped: Callable[[str], None] | None = None,
        silent: bool = False,
    ) -> None:
        if not _QUALIFIED.fullmatch(controller):
            raise ValueError(
                f"reporting controller {controller!r}: must be a qualified name such as tightship.dev/name"
            )
        if not instance:
            raise ValueError("reporting instance: must not be empty")
        if namespace not in CLUSTER_SCOPED_NAMESPACES:
            allowed = ", ".join(CLUSTER_SCOPED_NAMESPACES)
            raise ValueError(f"namespace {namespace!r} for Events about cluster-scoped objects: allowed are {allowed}")
        self.counts = EventCounts()
        self._connection = connection
        self._controller = controller
        self._instance = cut(instance, LONGEST_WORD)
        self._namespace = namespace
        self._pace = pace
        self._on_dropped = dropped
        self._silent = silent
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(pace.queue)
        self._said: OrderedDict[_Key, float] = OrderedDict()
        self._bucket = TokenBucket(pace.rate, pace.burst, sleep=pace.sleep, clock=pace.clock)
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    def record(self, regarding: ObjectRef, type: EventType, reason: str, note: str, action: str) -> None:  # noqa: A002 - as the API names it
        """Record an Event about *regarding*, soon. Neither waits nor raises.

        *reason* and *action* are words such as ``Drained`` and ``Drain``; *note* is a sentence.
        """
        if self._silent:
            return
        try:
            self._record(regarding, type, reason, note, action)
        except Exception:
            _log.exception("an Event about %r with the reason %r can't be made", regarding, reason)
            self._drop(INVALID)

    def _record(self, regarding: ObjectRef, type: EventType, reason: str, note: str, action: str) -> None:  # noqa: A002
        if self._task is None or self._task.done():
            self._drop(CLOSED)
            return
        if type not in ("Normal", "Warning") or not (reason and action and regarding.kind and regarding.name):
            raise ValueError("type must be Normal or Warning; kind, name, reason and action must not be empty")
        note = cut(note, LONGEST_NOTE)
        key = (regarding, type, reason, note, action)
        if self._said_lately(key):
            self.counts.suppressed += 1
            return
        namespace = regarding.namespace or self._namespace
        event = _Event(
            api_version="events.k8s.io/v1",
            kind="Event",
            metadata=_Meta(_unique_name(regarding.name), namespace),
            event_time=self._pace.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            reporting_controller=self._controller,
            reporting_instance=self._instance,
            action=cut(action, LONGEST_WORD),
            reason=cut(reason, LONGEST_WORD),
            regarding=_Regarding(
                regarding.api_version, regarding.kind, regarding.name, regarding.uid, regarding.namespace
            ),
            note=note,
            type=type,
        )
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        try:
            self._queue.put_nowait(_Waiting(key, path, msgspec.json.encode(event)))
        except asyncio.QueueFull:
            self._drop(QUEUE_FULL)
        else:
            self._remember(key)

    def _said_lately(self, key: _Key) -> bool:
        said = self._said.get(key)
        return said is not None and self._pace.clock() - said < self._pace.window

    def _remember(self, key: _Key) -> None:
        self._said[key] = self._pace.clock()
        self._said.move_to_end(key)
        if len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)

    async def _run(self) -> None:
        while True:
            waiting = await self._queue.get()
            try:
                await self._bucket.take()
                await self._send(waiting)
            finally:
                self._queue.task_done()

    async def _send(self, waiting: _Waiting) -> None:
        try:
            # Its name is fixed, so a repetition whose first answer was lost can't make a second one.
            await self._connection.request(
                "POST", waiting.path, body=waiting.body, timeout=self._pace.timeout, retry=True
            )
        except Conflict:
            self._sent()
        except KubeError as error:
            self._failed(waiting, error)
        except Exception as error:
            _log.exception("sending an Event failed unexpectedly")
            self._failed(waiting, error)
        else:
            self._sent()

    def _sent(self) -> None:
        self.counts.sent += 1
        if self._failing:
            self._failing = False
            _log.info("Events are recorded again")

    def _failed(self, waiting: _Waiting, error: Exception) -> None:
        self._said.pop(waiting.key, None)  # it may be said again as soon as there is another occasion
        self._drop(FAILED)
        if self._failing:
            _log.debug("Event not recorded: %s", error)
        else:
            self._failing = True
            _log.warning("Events are not recorded until this ends: %s", error)

    def _drop(self, cause: str) -> None:
        self.counts.dropped += 1
        if self._on_dropped is None:
            return
        try:
            self._on_dropped(cause)
        except Exception:
            _log.exception("counting a dropped Event failed")

    async def __aenter__(self) -> EventRecorder:
        self._task = asyncio.create_task(self._run(), name="event recorder")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        if task is None:
            return
        flushed = asyncio.create_task(self._queue.join())
        try:
            await asyncio.wait((flushed, task), timeout=self._pace.flush, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unsent = self._queue.qsize()
            if not flushed.done():
                unsent += 1  # the one under way
            for each in (flushed, task):
                each.cancel()
            await asyncio.gather(flushed, task, return_exceptions=True)
            for _ in range(unsent):
                self._drop(CLOSED)
            if unsent:
                _log.warning("%s not recorded before the end", counted(unsent, "Event was", "Events were"))


def cut(text: str, longest: int) -> str:
    """Return *text* in at most *longest* bytes of UTF-8, an ellipsis at its end where something was cut off."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= longest:
        return raw.decode()
    return raw[: longest - 3].decode("utf-8", "ignore") + "…"


def _unique_name(name: str) -> str:
    """Return an Event's name: that of its object, the time, and chance, for several replicas may tell at once."""
    stem = _NOT_IN_A_NAME.sub("-", name.lower())[:_LONGEST_STEM].strip(".-") or "object"
    return f"{stem}.{int(wall() * 1e9):x}{token(4)}"


__all__ = ["EventCounts", "EventRecorder", "EventType", "ObjectRef", "Pace"]
