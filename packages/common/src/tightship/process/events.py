"""Events in the cluster (events.k8s.io/v1), recorded without holding anything up.

An Event is a courtesy to whoever runs ``kubectl describe``. It must never delay or fail a decision, or flood the API
server. So recording only adds to a bounded queue, and an Event that can't be sent is counted and dropped.

The recorder needs ``create`` on ``events`` of the group ``events.k8s.io`` in the namespaces of the objects, and in
``default`` for objects without one. It leaves out an Event that repeats within the window. Counting up the first Event
instead would need ``patch``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.host import monotonic, token, wall
from tightship.kube.pacing import TokenBucket
from tightship.objects.api_errors import Conflict, KubeError
from tightship.objects.counting import counted

_log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

_CLUSTER_SCOPED = "default"
"""A namespace in which the API server accepts Events about objects without one; ``kube-system`` is the other."""

LONGEST_NOTE = 1024
"""Bytes; the API server refuses more."""

LONGEST_WORD = 128
"""Bytes of a reason, an action and a reporting instance; the API server refuses more."""

QUEUE_FULL, FAILED, INVALID, CLOSED = CAUSES = ("queue-full", "failed", "invalid", "closed")
"""Causes for dropping an Event."""

_LONGEST_STEM = 220
_REMEMBERED = 8192
_NOT_IN_A_NAME = re.compile(r"[^a-z0-9.-]+")
_QUALIFIED = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


class ObjectRef(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The object of an Event. *namespace* is empty for a cluster-scoped object such as a node."""

    kind: str
    name: str
    uid: str = ""
    namespace: str = ""
    api_version: str = "v1"


class Pace(Struct, frozen=True, kw_only=True):
    """The pace of Events. *window*, *timeout* and *flush* are in seconds.

    The same Event is sent once in *window*. At most *burst* Events are sent at once, *rate* a second in the long run,
    and *queue* may wait. *timeout* applies to each request; *flush* is the time for sending the rest at the end.
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


_Key = tuple[ObjectRef, str, str, str, str]


class _Waiting(Struct, frozen=True):
    key: _Key
    path: str
    body: bytes


class EventRecorder:
    """Records Events while the asynchronous context lasts. Use it on the event loop only.

    *controller* is a qualified name such as ``tightship.dev/node-compactor``, *instance* the name of the pod. Events
    about cluster-scoped objects go to the namespace ``default``. Raises :class:`ValueError` for a controller that the
    API server would refuse. The recorder calls *dropped* with the cause of each Event that it drops. A *silent*
    recorder, for a dry run, records nothing.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        controller: str,
        instance: str,
        dropped: Callable[[str], None],
        pace: Pace = Pace(),
        silent: bool = False,
    ) -> None:
        if not _QUALIFIED.fullmatch(controller):
            raise ValueError(
                f"reporting controller {controller!r}: must be a qualified name such as tightship.dev/name"
            )
        if not instance:
            raise ValueError("reporting instance: must not be empty")
        self._connection = connection
        self._controller = controller
        self._instance = cut(instance, LONGEST_WORD)
        self._pace = pace
        self._on_dropped = dropped
        self._silent = silent
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(pace.queue)
        self._said: OrderedDict[_Key, float] = OrderedDict()
        self._bucket = TokenBucket(pace.rate, pace.burst, sleep=pace.sleep, clock=pace.clock)
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    def record(self, regarding: ObjectRef, type: EventType, reason: str, note: str, action: str) -> None:  # noqa: A002 - as the API names it
        """Record an Event about *regarding* soon, without waiting or raising.

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
            return
        namespace = regarding.namespace or _CLUSTER_SCOPED
        event: dict[str, object] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": _unique_name(regarding.name), "namespace": namespace},
            "eventTime": self._pace.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": cut(action, LONGEST_WORD),
            "reason": cut(reason, LONGEST_WORD),
            "regarding": {"apiVersion": regarding.api_version, **msgspec.to_builtins(regarding)},
            "note": note,
            "type": type,
        }
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
            # The name is fixed, so a retry after a lost answer can't make a second Event.
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
        if self._failing:
            self._failing = False
            _log.info("Events are recorded again")

    def _failed(self, waiting: _Waiting, error: Exception) -> None:
        self._said.pop(waiting.key, None)  # so that the next occasion sends it again
        self._drop(FAILED)
        if self._failing:
            _log.debug("Event not recorded: %s", error)
        else:
            self._failing = True
            _log.warning("Events are not recorded until this ends: %s", error)

    def _drop(self, cause: str) -> None:
        try:
            self._on_dropped(cause)
        except Exception:
            _log.exception("counting a dropped Event failed")

    async def __aenter__(self) -> EventRecorder:
        self._task = asyncio.create_task(self._run(), name="event recorder")
        return self

    async def __aexit__(self, *_exit: object) -> None:
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
    """Return *text* in at most *longest* bytes of UTF-8; a text that was cut ends in an ellipsis."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= longest:
        return raw.decode()
    return raw[: longest - 3].decode("utf-8", "ignore") + "…"


def _unique_name(name: str) -> str:
    """Return an Event's name: its object, the time, and random digits, since several replicas may send at once."""
    stem = _NOT_IN_A_NAME.sub("-", name.lower())[:_LONGEST_STEM].strip(".-") or "object"
    return f"{stem}.{int(wall() * 1e9):x}{token(4)}"
