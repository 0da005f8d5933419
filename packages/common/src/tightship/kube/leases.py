"""``coordination.k8s.io/v1`` Lease: read one, create one, replace one unless somebody else did so first.

A write keeps everything in the object that this module does not know: labels and annotations of others, owner
references, fields of newer servers. A replace sends the uid along with the resourceVersion; otherwise the API server
would create a deleted Lease again.

:class:`Elector` decides which replica leads: the holder renews a Lease, and others take a Lease that has not changed
for too long.

Three rules make two leaders at a time impossible as long as clocks run at about the same speed:

* The leader leads for *renew_deadline* from before it sent its last successful write.
* A candidate waits for *duration*, which is longer, from when it saw the record change, by its own clock. No time in
  the record is ever compared with a clock: wall clocks differ, and jump.
* Every write is a compare-and-swap on the version that was read.

The annotation :data:`STOP_ANNOTATION` on the Lease stops whoever leads by it: every write carries on what was read, so
a leader learns of the annotation before its next renewal, or leads no more. A watch only makes that sooner.

Each query computes leadership again, so a process that was stopped, or whose event loop was blocked, does not lead when
it wakes. A term that has run out never comes back: the replica then begins a new term with a greater epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
from msgspec import Struct

from tightship.kube.connection import Connection
from tightship.kube.host import monotonic, token, wall
from tightship.kube.pacing import RetryPolicy, begin_anew
from tightship.kube.reflector import Applied, WatchDriver, WatchEvent, watch_once
from tightship.kube.resources import Resource
from tightship.objects.api_errors import BadAnswer, Conflict, ConnectionFailed, KubeError, NotFound, problem_of
from tightship.objects.unreadable import UNREADABLE

_GROUP_VERSION = "coordination.k8s.io/v1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Raws = dict[str, msgspec.Raw]


class Lease(Struct, frozen=True, kw_only=True):
    """One Lease. *duration* is in seconds; *acquired* and *renewed* are MicroTimes as their author wrote them.

    A missing field is empty or 0. *raw* is the object as it was read, empty before the Lease is created.
    """

    namespace: str
    name: str
    resource_version: str = ""
    holder: str = ""
    duration: int = 0
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0
    annotations: Mapping[str, str] = {}
    raw: bytes = b""

    @property
    def exists(self) -> bool:
        """Whether the Lease was read from the server."""
        return bool(self.resource_version)


class _Meta(Struct):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    annotations: dict[str, str] | None = None


class _Spec(Struct):
    holder: str | None = msgspec.field(default=None, name="holderIdentity")
    duration: int | None = msgspec.field(default=None, name="leaseDurationSeconds")
    acquired: str | None = msgspec.field(default=None, name="acquireTime")
    renewed: str | None = msgspec.field(default=None, name="renewTime")
    transitions: int | None = msgspec.field(default=None, name="leaseTransitions")


class _Wire(Struct):
    metadata: _Meta
    spec: _Spec | None = None


_wire = msgspec.json.Decoder(_Wire)
_raws = msgspec.json.Decoder(_Raws)
_SPEC_FIELDS = {each.name: each.encode_name for each in msgspec.structs.fields(_Spec)}


def micro_time(microseconds: int) -> str:
    """Return *microseconds* since 1970 as a MicroTime: RFC 3339 in UTC with exactly six decimals."""
    return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def decode_lease(body: bytes) -> Lease:
    """Return the Lease in *body*. Raises :class:`msgspec.DecodeError` or :class:`UnicodeDecodeError`."""
    wire = _wire.decode(body)
    spec = wire.spec or _Spec()
    return Lease(
        namespace=wire.metadata.namespace,
        name=wire.metadata.name,
        resource_version=wire.metadata.resource_version,
        holder=spec.holder or "",
        duration=spec.duration or 0,
        acquired=spec.acquired or "",
        renewed=spec.renewed or "",
        transitions=spec.transitions or 0,
        annotations=wire.metadata.annotations or {},
        raw=body,
    )


def encode_lease(lease: Lease) -> bytes:
    """Return *lease* as JSON: the object as it was read, with the changed fields replaced."""
    base, document, metadata, spec = Lease(namespace=lease.namespace, name=lease.name), _Raws(), _Raws(), _Raws()
    if lease.raw:
        base = decode_lease(lease.raw)
        document = _raws.decode(lease.raw)
        metadata = _raws.decode(document["metadata"])
        spec = _raws.decode(document["spec"]) if _has_spec(document) else spec
    else:
        document |= {"apiVersion": _raw(_GROUP_VERSION), "kind": _raw("Lease")}
        metadata |= {"name": _raw(lease.name), "namespace": _raw(lease.namespace)}
    if lease.annotations != base.annotations:
        metadata["annotations"] = _raw(dict(lease.annotations))
    for field, key in _SPEC_FIELDS.items():
        value = getattr(lease, field)
        if value != getattr(base, field):
            spec[key] = _raw(value)
    return msgspec.json.encode({**document, "metadata": metadata, "spec": spec})


class LeaseStore:
    """The Lease *name* in *namespace*. Nothing is retried here; each call ends within its timeout.

    Every method takes a *timeout* in seconds for the whole call, including loading credentials, and raises
    :class:`~tightship.objects.api_errors.KubeError`. A write may have succeeded despite a
    ``ConnectionFailed`` or a 5xx, and even despite a 409, because the transport repeats
    a PUT whose idle connection broke.
    """

    def __init__(self, connection: Connection, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.resource = Resource(
            "Lease", "coordination.k8s.io", "v1", "leases", field_selector=f"metadata.name={name}", namespace=namespace
        )
        self._connection = connection
        self._collection = self.resource.path
        self._path = f"{self._collection}/{name}"

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    async def get(self, timeout: float) -> Lease:  # noqa: ASYNC109 - raises a typed error
        """Return the Lease as it is now, or a blank one to be written if it does not exist."""
        try:
            return await self._send("GET", self._path, None, timeout)
        except NotFound:
            return Lease(namespace=self.namespace, name=self.name)

    async def write(self, lease: Lease, timeout: float) -> Lease:  # noqa: ASYNC109
        """Store *lease* over the version that it was read from, or create it, and return it as stored.

        Raises ``Conflict`` if the version changed, the Lease is gone, or a Lease that
        was not read exists.
        """
        verb, path = ("PUT", self._path) if lease.exists else ("POST", self._collection)
        return await self._send(verb, path, encode_lease(lease), timeout)

    async def _send(self, verb: str, path: str, body: bytes | None, seconds: float) -> Lease:
        server = self._connection.server
        try:
            # The transport's timeout covers one exchange. A refused token makes two, with a run of a plugin in between.
            async with asyncio.timeout(seconds):
                answer = await self._connection.request(verb, path, body=body, timeout=seconds, retry=False)
        except TimeoutError as error:
            raise ConnectionFailed(verb, path, server, f"no answer in {seconds:.3g} s") from error
        try:
            return decode_lease(answer)
        except UNREADABLE as error:
            raise BadAnswer(verb, path, server, f"not a Lease: {error}") from error


class _List(Struct):
    items: list[msgspec.Raw] | None = None


async def held_leases(connection: Connection, name: str, now: float, namespace: str = "") -> list[Lease]:
    """Return the Leases called *name*, in all namespaces or in one, that have a holder at *now* (seconds since 1970).

    Raises :class:`~tightship.objects.api_errors.KubeError`.
    """
    where = f"namespaces/{namespace}/" if namespace else ""
    path = f"/apis/{_GROUP_VERSION}/{where}leases"
    body = await connection.request("GET", path, params={"fieldSelector": f"metadata.name={name}"})
    try:
        leases = [decode_lease(bytes(raw)) for raw in msgspec.json.decode(body, type=_List).items or []]
    except UNREADABLE as error:
        raise BadAnswer("GET", path, connection.server, f"not a list of Leases: {error}") from error
    return [each for each in leases if each.holder and _runs_out(each) > now]


def _runs_out(lease: Lease) -> float:
    """Return when a Lease expires by its own times; a Lease without times never expires."""
    try:
        return datetime.fromisoformat(lease.renewed).timestamp() + lease.duration
    except ValueError:
        return math.inf


def _has_spec(document: Mapping[str, msgspec.Raw]) -> bool:
    return bytes(document.get("spec", msgspec.Raw(b"null"))) != b"null"


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


_log = logging.getLogger(__name__)

WRITER_ANNOTATION = "tightship.dev/writer"
"""Tells an elector's writes from those of a predecessor or a twin with the same identity."""

STOP_ANNOTATION = "tightship.dev/stop"
"""Says on the Lease that whoever leads begins nothing, unless its value is ``false``."""

_WATCH = RetryPolicy(first=0.5, longest=60.0, jitter=0.5)
_SILENCE, _WATCH_LASTS = 120.0, 300.0


class LeaseTiming(Struct, frozen=True, kw_only=True):
    """Seconds; the defaults are those of client-go.

    A candidate waits *duration* for a sign of life of the holder. A leader leads for *renew_deadline* from the start of
    its last successful write. *retry_period* lies between two tries. Raises :class:`ValueError` unless
    duration > renew_deadline > retry_period > 0.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not math.inf > self.duration > self.renew_deadline > self.retry_period > 0:
            raise ValueError(
                "lease timing must be duration > renew_deadline > retry_period > 0 seconds, not "
                f"duration {self.duration:g}, renew_deadline {self.renew_deadline:g}, "
                f"retry_period {self.retry_period:g}"
            )

    @property
    def request_timeout(self) -> float:
        """The timeout of one request: after a request that hangs, two more fit before the deadline."""
        return self.renew_deadline / 3


class Elector:
    """One replica's part in the election of a leader, by the Lease *name* in *namespace*.

    *identity* becomes the holder. It should be unique to the process: a process that starts with the identity of the
    present holder can't know that its predecessor is dead, and waits like anyone else. *clock* must never go back, nor
    stand still while this process is stopped. The elector calls *on_change* on the event loop with the new state,
    alternately true and false; an exception in *on_change* ends :meth:`run`. It calls *on_stop* after each change of
    :attr:`stopped`.

    The default clock, CLOCK_MONOTONIC, runs while a process is stopped, but not while the whole machine is suspended: a
    leader on a machine that slept believes that it leads for the rest of its deadline.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming = LeaseTiming(),
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = wall,
        spread: Callable[[], float] = random.random,
        on_change: Callable[[bool], None] | None = None,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        if not identity:
            raise ValueError("an elector needs an identity: an empty holder means that a Lease is free")
        self.identity = identity
        self._connection = connection
        self._store = LeaseStore(connection, namespace, name)
        self._timing = timing
        self._clock = clock
        self._wall_clock = wall_clock
        self._spread = spread
        self._on_change = on_change
        self._on_stop = on_stop
        # Set to look at the Lease at once.
        self._look = asyncio.Event()
        self._writer = token(32)
        # When the term ends, by the clock.
        self._until: float | None = None
        self._epoch = 0
        self._highest = 0
        self._stamped = 0
        self._wrote = False
        # The Lease as last seen, and when it was first seen like this.
        self._seen: Lease | None = None
        self._seen_at = -math.inf
        # Whether the version in _seen is the present one, as far as this replica knows.
        self._current = False
        self._announced = False
        self._running = False
        self._failure: KubeError | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads at this moment. True only while :meth:`run` runs. Thread-safe."""
        return self.remaining > 0

    @property
    def remaining(self) -> float:
        """Seconds for which leadership is certain without another answer; 0 for a replica that does not lead."""
        until = self._until
        return 0.0 if until is None else max(0.0, until - self._clock())

    @property
    def epoch(self) -> int:
        """``leaseTransitions`` of the present term, else of the last one; 0 before the first. Never used twice."""
        return self._epoch

    @property
    def holder(self) -> str:
        """The holder of the Lease as last read or written; empty if the Lease was free or has not been read."""
        return self._seen.holder if self._seen else ""

    @property
    def stopped(self) -> str | None:
        """What :data:`STOP_ANNOTATION` said when the Lease was last seen; ``None`` if it stopped nobody."""
        return _stop(self._seen)

    @property
    def failure(self) -> KubeError | None:
        """The error of the last try, ``None`` while all is well."""
        return self._failure

    async def run(self, stop: asyncio.Event) -> None:
        """Acquire and renew the Lease until *stop* is set, then release it so that another replica can lead at once.

        Errors of the API server are logged once and retried; they never end this method. Leadership ends before the
        Lease is released, so stop writing before you set *stop*. If this method is cancelled, the Lease runs out
        instead.
        """
        if self._running:
            raise RuntimeError("this elector runs already")
        self._running = True
        campaign = asyncio.create_task(self._campaign(), name=f"election of {self._store}")
        stopped = asyncio.create_task(stop.wait())
        watch = asyncio.create_task(self._watch(), name=f"watch of {self._store}")
        try:
            await asyncio.wait((campaign, stopped), return_when=asyncio.FIRST_COMPLETED)
            self._end(logging.INFO)
            campaign.cancel()
            await asyncio.wait((campaign,))
            if not campaign.cancelled():
                campaign.result()
            await self._release()
        finally:
            self._end()
            for task in (campaign, stopped, watch):
                task.cancel()
            await asyncio.gather(campaign, stopped, watch, return_exceptions=True)
            self._running = False

    async def _campaign(self) -> None:
        while True:
            self._look.clear()
            try:
                wait = await self._step()
            except KubeError as error:
                self._failed(error)
                wait = self._timing.retry_period * (0.5 + self._spread() / 2)
            else:
                self._succeeded()
            self._announce()
            # No longer than the term, so that the end of the term is announced at once.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait, self.remaining) if self.is_leader else wait):
                    await self._look.wait()
            self._announce()

    async def _watch(self) -> None:
        """Have the campaign look at once when somebody stops or starts the controller. It would notice by itself."""
        server = self._connection.server

        def take(event: WatchEvent) -> None:
            with contextlib.suppress(*UNREADABLE):
                if isinstance(event, Applied) and _stop(decode_lease(bytes(event.raw))) != self.stopped:
                    self._look.set()

        async for attempt in _WATCH.endlessly():
            # Without a version a watch begins with the Lease as it is.
            driver = WatchDriver(self._store.resource, "", server=server, server_timeout=_WATCH_LASTS)
            with attempt, contextlib.suppress(KubeError):
                await watch_once(self._connection, driver, _SILENCE, take, partial(begin_anew, attempt.retry_state))

    async def _step(self) -> float:
        """Renew, acquire, or look; return the seconds until the next step."""
        period = self._timing.retry_period
        if self.is_leader and self._current and await self._renew():
            return period
        lease = await self._read()
        if self.is_leader:
            # After a conflict or a lost answer, go on only from a record of this very term.
            if self._is_ours(lease) and lease.transitions == self._epoch:
                await self._renew()
                return period
            self._end()
        if self._is_free(lease):
            await self._acquire(lease)
            return period
        # Candidates that failed together must not come back together.
        return period * (0.75 + self._spread() / 2)

    async def _read(self) -> Lease:
        lease = await self._store.get(self._budget())
        if lease.exists:  # after a deletion the holder may not know yet, so the last record still counts
            self._observe(lease)
        self._current = lease.exists
        return lease

    async def _renew(self) -> bool:
        """Write the record again; return false after a conflict. A term that ran out meanwhile is not extended."""
        seen = self._seen
        assert seen is not None
        self._current = False
        started = self._clock()
        try:
            stored = await self._store.write(msgspec.structs.replace(seen, renewed=self._stamp()), self._budget())
        except Conflict:
            return False
        self._observe(stored)
        self._current = True
        if self.is_leader:
            self._until = started + self._timing.renew_deadline
        return True

    async def _acquire(self, lease: Lease) -> None:
        """Begin a new term, always with a new epoch: a write whose answer got lost may have used the previous one."""
        self._announce()
        epoch = max(self._highest, lease.transitions) + 1
        stamp = self._stamp()
        # Who deletes the Lease does not start the controller by that.
        stop = {STOP_ANNOTATION: self.stopped} if self.stopped is not None and not lease.exists else {}
        wanted = msgspec.structs.replace(
            lease,
            holder=self.identity,
            duration=math.ceil(self._timing.duration),
            acquired=stamp,
            renewed=stamp,
            transitions=epoch,
            annotations={**stop, **lease.annotations, WRITER_ANNOTATION: self._writer},
        )
        self._current = False
        self._wrote = True
        started = self._clock()
        try:
            stored = await self._store.write(wanted, self._budget())
        except Conflict:
            return  # another replica was faster; the next look shows who
        self._observe(stored)
        self._current = True
        self._epoch = epoch
        self._until = started + self._timing.renew_deadline

    async def _release(self) -> None:
        """Mark the Lease as free if it is still ours. Give up after the time of one request."""
        if not self._wrote:
            return
        try:
            async with asyncio.timeout(self._timing.request_timeout):
                for _ in range(3):
                    lease = self._seen if self._current else await self._read()
                    if lease is None or not self._is_ours(lease):
                        return
                    stamp = self._stamp()
                    # A Lease must have a duration above zero: 1, as client-go writes.
                    freed = msgspec.structs.replace(lease, holder="", duration=1, acquired=stamp, renewed=stamp)
                    self._current = False
                    with contextlib.suppress(Conflict):
                        self._observe(await self._store.write(freed, self._timing.request_timeout))
                        _log.info("%s is given up", self._store)
                        return
        except (KubeError, TimeoutError) as error:
            _log.warning("%s could not be given up, others wait until it runs out: %s", self._store, problem_of(error))

    def _observe(self, lease: Lease) -> None:
        """Record the Lease. The clock is read after the answer, because the holder's term began before that."""
        self._highest = max(self._highest, lease.transitions)
        if self._seen is None or _record(lease) != _record(self._seen):
            self._seen_at = self._clock()
        if lease.holder != self.holder:
            _log.info("%s is held by %s", self._store, lease.holder or "nobody")
        before, self._seen = self.stopped, lease
        if self._on_stop is not None and self.stopped != before:
            self._on_stop()

    def _is_ours(self, lease: Lease) -> bool:
        return lease.holder == self.identity and lease.annotations.get(WRITER_ANNOTATION) == self._writer

    def _is_free(self, lease: Lease) -> bool:
        judged = lease if lease.exists else self._seen
        if judged is None or not judged.holder or self._is_ours(judged):
            return True
        # The holder may have other settings, so the longer of the two durations counts.
        return self._clock() >= self._seen_at + max(self._timing.duration, judged.duration)

    def _budget(self) -> float:
        """Return the timeout of the next request in seconds: no longer than the term, so that we notice its end."""
        longest = self._timing.request_timeout
        return min(longest, self.remaining) if self.is_leader else longest

    def _stamp(self) -> str:
        # Never the same twice, even if the wall clock was set back: others must see a renewal as a change.
        self._stamped = max(int(self._wall_clock() * 1_000_000), self._stamped + 1)
        return micro_time(self._stamped)

    def _end(self, level: int = logging.WARNING) -> None:
        self._until = None
        self._announce(level)

    def _announce(self, level: int = logging.WARNING) -> None:
        leads = self.is_leader
        if leads == self._announced:
            return
        self._announced = leads
        if leads:
            _log.info("%s leads by %s, epoch %d", self.identity, self._store, self._epoch)
        else:
            _log.log(level, "%s leads no longer by %s, epoch %d", self.identity, self._store, self._epoch)
        if self._on_change is not None:
            self._on_change(leads)

    def _failed(self, error: KubeError) -> None:
        _log.log(logging.DEBUG if self._failure else logging.WARNING, "%s; trying again", error)
        self._failure = error

    def _succeeded(self) -> None:
        if self._failure is not None:
            _log.info("%s can be reached again", self._store)
        self._failure = None


def _record(lease: Lease) -> tuple[object, ...]:
    """Return the fields that only the holder changes; somebody else's label is no sign of life."""
    writer = lease.annotations.get(WRITER_ANNOTATION)
    return lease.holder, lease.duration, lease.acquired, lease.renewed, lease.transitions, writer


def _stop(lease: Lease | None) -> str | None:
    word = "false" if lease is None else lease.annotations.get(STOP_ANNOTATION, "false")
    return None if word == "false" else word
