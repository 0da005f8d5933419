"""The ConfigMap of landings, which the chart's admission policy reads.

The chart makes the ConfigMap beside the policy, and notes the policy in :data:`POLICY_ANNOTATION`. So the controller
knows whether there is a policy, and which, without a right to read policies. The controller owns ``data``: by the uid
of a controller of pods, the nodes where its next pods should land. Every write is one merge patch against the version
that was read, and removes what others have put in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.kube.retrying import RetryPolicy
from tightship.objects.api_errors import BadAnswer, Conflict, KubeError, NotFound, problem_of
from tightship.objects.backoff import doubled
from tightship.objects.drain_record import FIELD_MANAGER
from tightship.objects.unreadable import UNREADABLE

POLICY_ANNOTATION = "tightship.dev/landing-policy"

POLICY_VERSION = "2"
"""The version of the policy that this controller can work with: the first one kept no pod off nodes that leave."""

REQUEST_TIMEOUT = 4.0
"""Seconds for each request: somebody waits."""

_TRIES = 4


class _Meta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Wire(Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] | None = None


class LandingMap:
    """The ConfigMap *name* in *namespace*. One task at a time may call the methods."""

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self._connection = connection
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        self._what = f"ConfigMap {namespace}/{name}"
        self._version = ""
        self.data: Mapping[str, str] | None = None
        """The data as last read or written, ``None`` while nobody knows."""
        self.policy: str | None = None
        """The policy as last read, such as ``hints/2``; empty if none is noted, ``None`` if there is no ConfigMap."""

    def __str__(self) -> str:
        return self._what

    async def read(self) -> None:
        """Read the ConfigMap. A missing one is no error. Raises :class:`~tightship.objects.api_errors.KubeError`."""
        # Drains look at the policy meanwhile: what was last known of it holds until the answer comes.
        self.data = None
        try:
            raw = await self._connection.request("GET", self._path, timeout=REQUEST_TIMEOUT, retry=False)
        except NotFound:
            self.data, self.policy = {}, None
            return
        self._take("GET", raw)

    async def write(self, data: Mapping[str, str], *, unseen: bool = True) -> None:
        """Make *data* the ConfigMap's whole data. A missing ConfigMap stays missing.

        With *unseen* false, the write only succeeds if nobody has written since this object last did. Raises
        :class:`~tightship.objects.api_errors.KubeError`, the last conflict included.
        """
        if not unseen and self.data is None:
            return
        policy = RetryPolicy(attempts=_TRIES if unseen else 1, first=0.0)
        await policy.retrying(lambda error: isinstance(error, Conflict))(self._write, data)

    async def _write(self, data: Mapping[str, str]) -> None:
        if self.data is None:
            await self.read()
        before, version = self.data or {}, self._version
        if self.policy is None or before == data:
            return
        gone = dict.fromkeys(key for key in before if key not in data)
        body = {"metadata": {"resourceVersion": version}, "data": {**gone, **data}}
        # Nobody knows what is there until the answer comes.
        self.data = None
        try:
            raw = await self._connection.request(
                "PATCH",
                self._path,
                params={"fieldManager": FIELD_MANAGER},
                body=msgspec.json.encode(body),
                content_type="application/merge-patch+json",
                timeout=REQUEST_TIMEOUT,
            )
        except NotFound:
            self.data, self.policy = {}, None
        else:
            self._take("PATCH", raw)

    def _take(self, verb: str, raw: bytes) -> None:
        try:
            wire = msgspec.json.decode(raw, type=_Wire)
        except UNREADABLE as error:
            raise BadAnswer(verb, self._path, self._connection.server, f"not a ConfigMap: {error}") from error
        self._version, self.data = wire.metadata.resource_version, wire.data or {}
        self.policy = (wire.metadata.annotations or {}).get(POLICY_ANNOTATION, "")


def policy_problem(policy: str | None, mode: str, what: str) -> str:
    """Return why steering by *mode* does not work with *policy*, noted on *what*; nothing if it does."""
    if policy is None:
        return (
            f"{what} does not exist: the chart makes it with the admission policy, on Kubernetes 1.36 and newer, if "
            f"its config says steering: {mode}"
        )
    if not policy:
        return f"{what} has no annotation {POLICY_ANNOTATION}, which the chart writes with the admission policy"
    if policy == f"{mode}/{POLICY_VERSION}":
        return ""
    found = f"{what} says that the admission policy is {policy[:60]!r}, not {mode}/{POLICY_VERSION}"
    return f"{found}: upgrade the chart's release with steering: {mode}"


_log = logging.getLogger(__name__)

LONGEST = 5.0
"""Most seconds that a drain waits before a round of evictions."""

_FIRST, _LAST = 1.0, 30.0
_NEVER = -1e9


class Publisher:
    """Writes *data*, what the book says, into *landing_map*."""

    def __init__(self, landing_map: LandingMap, data: Callable[[], Mapping[str, str]]) -> None:
        self.map = landing_map
        self.updated = _NEVER
        """When the policy last learned something new (monotonic seconds)."""
        self._data = data
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._again = _NEVER

    @property
    def differs(self) -> bool:
        """Whether the ConfigMap says something else than the book, as far as this object knows."""
        return self.map.data != self._data()

    async def reread(self, judge: Callable[[str | None], None]) -> None:
        """Read the ConfigMap, have *judge* see its policy, and make it say what the book says then.

        Raises :class:`~tightship.objects.api_errors.KubeError` and :class:`TimeoutError`.
        """
        async with asyncio.timeout(LONGEST), self._lock:
            await self.map.read()
            judge(self.map.policy)
            await self._write()

    async def publish(self) -> None:
        """Make the ConfigMap say what the book says. Whoever waits for the lock finds the work of others done.

        Raises as :meth:`reread` does, except that the caller limits the time.
        """
        async with self._lock:
            await self._write()

    def publish_later(self) -> None:
        """Publish in the background, unless that is under way or has just failed."""
        if monotonic() >= self._again:
            self._begin(self.publish())

    def retract(self) -> None:
        """Empty the ConfigMap in the background, but only if nobody has written since: a new leader may have."""
        self._begin(self._retract())

    async def stop(self) -> None:
        """End what runs in the background."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write(self) -> None:
        wanted, known = self._data(), self.map.data
        if wanted == known:
            return
        new = known is None or any(known.get(owner) != nodes for owner, nodes in wanted.items())
        await self.map.write(wanted)
        if new:
            self.updated = monotonic()

    async def _retract(self) -> None:
        async with self._lock:
            await self.map.write({}, unseen=False)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        if self._task is not None and not self._task.done():
            work.close()
            return
        self._task = asyncio.create_task(self._done(work), name="write landings")

    async def _done(self, work: Coroutine[object, object, None]) -> None:
        try:
            async with asyncio.timeout(LONGEST):
                await work
        except (KubeError, TimeoutError) as error:
            self._again = monotonic() + doubled(_FIRST, _LAST, self._failures)
            self._failures += 1
            _log.debug("%s not written: %s", self.map, problem_of(error))
        else:
            self._failures = 0
