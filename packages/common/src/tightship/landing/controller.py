"""Leads the replacements of evicted pods to the nodes that the plan chose (``steering: hints``).

Before a drain evicts pods, :meth:`LandingController.expect` enters their controllers and targets into the ConfigMap of
landings. The chart's admission policy reads that. It gives new pods of these controllers a preferred node affinity to
the targets, and has them keep off all nodes that carry the label :data:`~tightship.objects.node.LEAVING`. The scheduler
has the last word.

A drain waits at most :data:`LONGEST` seconds for that, and never fails because of it: at worst the pods go without a
target, and the next plan starts from where they landed. No pod waits either: :class:`MissedLandings` helps those that
find no node.

Labels go from nodes that leave where a led pod finds no node, so that no pod ever waits for a plan. The admission
policy keeps a replacement off the nodes that leave. When kube-scheduler calls such a pod Unschedulable, the label goes
from the last nodes of the plan that would take the pod. If none would, or the pod still waits after :data:`ALL`
seconds, every label of this installation goes: the rules known here may be wrong, and Cluster Autoscaler makes the
template of a group from a node, with its labels (``createSanitizedNode`` in simulator/node_info_utils.go). For a group
without nodes it keeps the last template for ten years (``--node-info-cache-expire-time``), so after :data:`ANEW`
seconds the pod is evicted: its controller makes another one, which the policy leaves alone by then.

All that is known of a pod comes from its object, so a new leader goes on where the last one has ended.

The chart makes the ConfigMap of landings beside the policy that reads it, and notes the policy in
:data:`POLICY_ANNOTATION`. So the controller knows whether there is a policy, and which, without a right to read
policies. The controller owns ``data``: by the uid of a controller of pods, the nodes where its next pods should land.
Every write is one merge patch against the version that was read, and removes what others have put in.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster.installations import Beside
from tightship.draining.extensions import Guide, Landed, LandingFigures
from tightship.draining.installations import Installations
from tightship.draining.writing import LiveNode, NodePatch, patch_node, read_node, send_away
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.kube.pacing import RetryPolicy
from tightship.landing.expected import Landings, led, room_for, wanted_targets
from tightship.objects import Node, Pod
from tightship.objects.api_errors import BadAnswer, Conflict, Forbidden, KubeError, NotFound, NotSent, problem_of
from tightship.objects.counting import counted, some
from tightship.objects.drain_record import FIELD_MANAGER
from tightship.objects.node import LEAVING
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import doubled
from tightship.objects.unreadable import UNREADABLE
from tightship.process.loop import in_thread
from tightship.process.serving import Frame
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings

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
    """Writes *data*, what is expected, into *landing_map*."""

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
        """Whether the ConfigMap says something else than what is expected, as far as this object knows."""
        return self.map.data != self._data()

    async def reread(self, judge: Callable[[str | None], None]) -> None:
        """Read the ConfigMap, have *judge* see its policy, and make it say what is expected then.

        Raises :class:`~tightship.objects.api_errors.KubeError` and :class:`TimeoutError`.
        """
        async with asyncio.timeout(LONGEST), self._lock:
            await self.map.read()
            judge(self.map.policy)
            await self._write()

    async def publish(self) -> None:
        """Make the ConfigMap say what is expected. Whoever waits for the lock finds the work of others done.

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


ALL, ANEW = 3.0, 8.0
"""Seconds for which a led pod has been Unschedulable when all labels go, and when it is made anew."""

HELD = 60.0
"""Seconds for which a node stays that has lost its label to let a pod in."""

_AGAIN = 1.5
_AT_ONCE = 16

Room = Callable[[Callable[[], list[str] | None]], Awaitable[list[str] | None]]
"""Runs a search for room, perhaps in a thread."""


class _Miss(Struct):
    """A led pod, Unschedulable since *since*; *again* is when to take labels off next, *anew* when to evict it."""

    pod: Pod
    since: float
    again: float
    anew: float


class MissedLandings:
    """The led pods that wait for a node. *beside* tells which labels are ours; times are monotonic seconds.

    A pod is evicted only while *evicting* says so.
    """

    def __init__(
        self,
        connection: Connection,
        cache: ClusterCache,
        *,
        beside: Callable[[], Beside],
        leading: Callable[[], bool],
        evicting: Callable[[], bool],
        in_thread: Room,
    ) -> None:
        self._may_evict = evicting
        self._connection = connection
        self._cache = cache
        self._beside = beside
        self._leading = leading
        self._in_thread = in_thread
        self._misses: dict[str, _Miss] = {}
        self._held: dict[str, tuple[float, str]] = {}
        self._freeing: asyncio.Task[None] | None = None
        self._evicting: set[asyncio.Task[object]] = set()
        self.order: Sequence[str] = ()
        """The nodes that the plan removes, in its order."""

    @property
    def waiting(self) -> bool:
        """Whether a led pod has no node."""
        return bool(self._misses)

    @property
    def owners(self) -> frozenset[str]:
        """The uids of the controllers whose next pods must not be led."""
        pods = (each.pod for each in self._misses.values())
        return frozenset(pod.owner.uid for pod in pods if pod.owner is not None)

    def held(self) -> frozenset[str]:
        """The nodes that stay for a while, because a pod needed them."""
        now = monotonic()
        return frozenset(name for name, (until, _) in self._held.items() if now < until)

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* of the plan is not drained now, if a pod that was led found no node."""
        if self._misses:
            pods = sorted(each.pod.key for each in self._misses.values())
            return Refusal(Reason.LANDING_MISSED, node, f"replacements of evicted pods wait for a node: {some(pods)}")
        until, pod = self._held.get(node, (0.0, ""))
        if monotonic() >= until:
            return None
        return Refusal(Reason.LANDING_MISSED, node, f"pod {pod} found no node among those that stay")

    def see(self, pods: Iterable[Pod], now: float) -> None:
        """Note which of *pods*, all without a node, were led and find none; help those whose turn it is."""
        there = {each.uid: each for each in pods if each.unschedulable and each.deletion is None and led(each)}
        for uid in self._misses.keys() - there.keys():
            del self._misses[uid]
        for uid, pod in there.items():
            self._misses.setdefault(uid, _Miss(pod, now, now, now + ANEW)).pod = pod
        for each in self._misses.values():
            if now >= each.anew and self._may_evict():
                each.anew = now + ANEW
                _log.warning("pod %s is made anew: it has had no node for %.0f s", each.pod.key, now - each.since)
                evict = send_away(self._connection, each.pod, past_budgets=False, only_if=self._may_evict)
                task = asyncio.create_task(evict, name=f"eviction of {each.pod.key}")
                self._evicting.add(task)
                task.add_done_callback(self._evicting.discard)
        due = [each for each in self._misses.values() if now >= each.again]
        # Admission may take half a minute over each label: the eviction does not wait for that.
        if due and (self._freeing is None or self._freeing.done()):
            self._freeing = asyncio.create_task(self._help(due, now), name="missed landings")

    def forget(self) -> None:
        """Forget everything: this replica leads no more."""
        self._misses.clear()
        self._held.clear()

    async def stop(self) -> None:
        """End the requests under way."""
        tasks = [*self._evicting, *([self._freeing] if self._freeing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _help(self, due: Sequence[_Miss], now: float) -> None:
        for each in due:
            each.again = now + _AGAIN
        try:
            await self._free(due, now)
        except CacheCrashed:
            return
        except (KubeError, TimeoutError) as error:
            _log.warning("labels of nodes that leave are still there: %s", problem_of(error))

    async def _free(self, due: Sequence[_Miss], now: float) -> None:
        snapshot, beside = self._cache.snapshot(), self._beside()
        place = {name: number for number, name in enumerate(self.order)}
        ours = [name for name, view in snapshot.nodes.items() if beside.ours(view.node.leaving or "")]
        ours.sort(key=lambda name: place.get(name, len(place)))
        if not ours:
            return
        pods = [each.pod for each in due]
        names: Sequence[str] | None = None
        if all(now < each.since + ALL for each in due):
            names = await self._in_thread(lambda: room_for(snapshot, pods, ours))
        waiting = some([each.key for each in pods])
        what = ", ".join(names) if names is not None else f"all {counted(len(ours), 'node')} that leave"
        _log.warning("no node for %s among those that stay: label %s goes from %s", waiting, LEAVING, what)
        for name in names or ():
            self._held[name] = (monotonic() + HELD, pods[0].key)
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> None:
            async with places:
                await self._unlabel(snapshot.nodes[name].node, beside)

        await asyncio.gather(*(one(name) for name in (ours if names is None else names)))

    async def _unlabel(self, node: Node, beside: Beside) -> None:
        patch = NodePatch(labels={LEAVING: None})
        try:
            judged = LiveNode(node, node.resource_version, ())
            await patch_node(self._connection, judged, patch, only_if=self._leading)
        except Conflict:
            live = await read_node(self._connection, node.name)
            if live is not None and beside.ours(live.node.leaving or ""):
                await patch_node(self._connection, live, patch, only_if=self._leading)
        except (NotFound, NotSent):
            pass


HINTS = "hints"
"""The mode of steering that needs the admission policy."""

INFORMED = 0.5
"""Seconds after a write until the policy goes by it: with one API server of Kubernetes 1.37 it took at most 0.05 s."""

STOPPING = 2.5
"""Most seconds for the last write of a replica that stops: the whole process has a grace."""

_SETTLE = 1.0
_BUSY, _PAUSE, _IDLE, _IDLE_WITHOUT = 0.25, 0.05, 1.0, 5.0


class LandingController(Guide):
    """Leads replacements by way of *landing_map*, and counts where they land. :meth:`run` has to run meanwhile.

    *missed* helps those that find no node. *steering* is the setting's word. *acting* says that drains may be begun,
    *leading* that anything may be changed; all three are asked again and again.
    """

    def __init__(
        self,
        cache: ClusterCache,
        landing_map: LandingMap,
        missed: MissedLandings,
        *,
        steering: Callable[[], str],
        acting: Callable[[], bool],
        leading: Callable[[], bool],
        count: Callable[[Landed], None] = lambda _: None,
    ) -> None:
        self._missed = missed
        self._cache = cache
        self._map = landing_map
        self._steering = steering
        self._acting = acting
        self._leading = leading
        self._count = count
        self._expected = Landings()
        self._landed = dict.fromkeys(Landed, 0)
        self._publisher = Publisher(landing_map, self._data)
        self._wake = asyncio.Event()
        # Whether there is a policy to work with; "unknown" once the ConfigMap could not be read.
        self._active = self._unknown = False
        self._led = self._used = self._closed = False
        # Whether the ConfigMap is known to be empty, or out of reach.
        self._tidy = False
        # When to look where pods landed.
        self._look_at = -1e9
        self._problem = ""

    @property
    def available(self) -> bool:
        """Whether evicted pods are led now."""
        return self._active and not self._closed and self._leading() and self._wanted

    @property
    def labels(self) -> bool | None:
        """Whether nodes that leave carry the label now; ``None`` if those that do should keep it for a while."""
        if self.available:
            return None if self._missed.waiting else True
        return None if self._unknown and self._wanted else False

    @property
    def problems(self) -> tuple[str, ...]:
        """Return whole sentences about what is wrong."""
        return (f"Soft taints steer alone: {self._problem}.",) if self._problem else ()

    def figures(self) -> LandingFigures | None:
        """Return the state to show, ``None`` unless the settings ask for one."""
        if self._steering() != HINTS:
            return None
        counts = {result.value: number for result, number in self._landed.items()}
        return LandingFigures(mode=HINTS, problem=self._problem, expected=len(self._expected), **counts)

    @property
    def stray(self) -> bool:
        """Whether a dry run whose installation gives back what it left may have entries in the ConfigMap to remove."""
        return self._steering() == HINTS and not self._tidy

    @property
    def unfinished(self) -> bool:
        """Whether this replica has entries left in the ConfigMap that it keeps trying to remove."""
        return self._used and self._publisher.differs

    def targets(self) -> Mapping[str, str]:
        """Return where pods should land, by uid: pods in eviction, and replacements on their way."""
        return self._expected.targets() if self.available else {}

    def held(self) -> frozenset[str]:
        """Return the nodes that stay for a while, because a pod needed them."""
        return self._missed.held()

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* of the plan is not drained now, if a pod that was led found no node."""
        return self._missed.refusal(node)

    async def look(self) -> None:
        """Find out whether there is a policy to work with, as every pass of a leader begins. Never raises.

        A new leader first empties the ConfigMap.
        """
        if self._closed or not self._leading():
            return
        if not self._led:
            self._led = True
            self._forget()
        wanted = self._wanted
        if not (self._used or self._steering() == HINTS):
            self._say("")
            return
        problem = ""

        def judge(policy: str | None) -> None:
            nonlocal problem
            problem = policy_problem(policy, HINTS, str(self._map)) if wanted else ""
            self._activate(wanted and not problem)

        self._unknown = False
        try:
            await self._publisher.reread(judge)
        except (KubeError, TimeoutError) as error:
            problem = f"{self._map} can't be read or written: {problem_of(error)}"
            self._activate(False)
            self._tidy = isinstance(error, Forbidden)
            self._unknown = not self._tidy
        else:
            self._used = self._active
            self._tidy = not self._active
        self._say(problem if wanted else "")

    def later(self, moves: Sequence[tuple[Pod, str]]) -> Collection[str]:
        """Return the uids of the pods of *moves* (pod, target) that have to wait for replacements led elsewhere."""
        snapshot = self._cache.snapshot()
        return self._expected.later(wanted_targets(moves, snapshot), snapshot, monotonic())

    async def expect(self, moves: Sequence[tuple[Pod, str]]) -> None:
        """Prepare for the evictions of *moves* (pod, target): tell the policy. Never raises, and takes at most
        :data:`LONGEST` seconds.
        """
        if not moves or not self.available:
            return
        snapshot = self._cache.snapshot()
        asked_for = wanted_targets(moves, snapshot)
        if not asked_for:
            return
        self._expected.expect(asked_for, snapshot, monotonic())
        self._wake.set()
        try:
            async with asyncio.timeout(LONGEST):
                await self._publisher.publish()
                await asyncio.sleep(max(0.0, self._publisher.updated + INFORMED - monotonic()))
            failed = "" if self._map.policy else f"{self._map} does not exist any more"
        except (KubeError, TimeoutError) as error:
            failed = problem_of(error)
        if failed:
            self._expected.withdraw(pod.uid for pod, _ in asked_for)
            _log.warning("%d pods are evicted without a target: %s", len(asked_for), failed)

    def answered(self, pod: str, *, going: bool) -> None:
        """Note whether the eviction of *pod* (a uid) was granted, or may have been."""
        self._expected.answered(pod, going=going, now=monotonic())
        self._wake.set()

    async def run(self) -> None:
        """Help pods, count and tidy up, until cancelled or until the cache breaks off."""
        try:
            while True:
                revision = self._cache.revision
                self._wake.clear()
                busy = True
                try:
                    busy = self._tick(monotonic())
                except CacheCrashed:
                    return
                except Exception:
                    _log.exception("leading pods failed, and is tried again")
                await self._rest(revision, busy=busy)
        finally:
            await self._publisher.stop()
            await self._missed.stop()

    async def close(self) -> None:
        """Expect nothing any more, and empty the ConfigMap: this replica stops. Drains may still evict."""
        used, self._closed = self._used, True
        self._forget()
        if not used or not self._leading():
            return
        try:
            async with asyncio.timeout(STOPPING):
                await self._publisher.publish()
        except (KubeError, TimeoutError) as error:
            _log.warning("entries left in %s: %s", self._map, problem_of(error))

    @property
    def _wanted(self) -> bool:
        return self._steering() == HINTS and self._acting()

    def _data(self) -> Mapping[str, str]:
        spared = self._missed.owners
        return {owner: nodes for owner, nodes in self._expected.data().items() if owner not in spared}

    def _activate(self, active: bool) -> None:
        if active != self._active:
            self._forget()
        self._active = active
        if active:
            self._used = True

    def _forget(self) -> None:
        """Drop all expectations."""
        self._expected.clear()
        self._active = False
        self._wake.set()

    def _say(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("soft taints steer alone: %s", problem)
        elif self._problem and not problem:
            _log.info("evicted pods are led again")
        self._problem = problem

    def _tick(self, now: float) -> bool:
        """Do what is due; return whether more will be due soon."""
        leading = self._leading()
        if self._led and not leading:
            self._forget()
            self._missed.forget()
            self._publisher.retract()
            self._led = self._used = self._unknown = False
        if self._active and not self.available:
            self._forget()
        self._expected.expire(now)
        if leading and self._led:
            self._missed.order = self.order
            self._missed.see(self._cache.unscheduled(), now)
        if self._expected.open and now >= self._look_at:
            self._look_at = now + _SETTLE
            for result in self._expected.look(self._cache.snapshot(), now):
                self._landed[result] += 1
                self._count(result)
        if leading and self._used and self._publisher.differs:
            self._publisher.publish_later()
        elif self._used and not self._active and not self._closed:
            self._used = False
        return self._expected.open or self._missed.waiting

    async def _rest(self, revision: int, *, busy: bool) -> None:
        if busy:
            await asyncio.sleep(_PAUSE)
            if not self._wake.is_set():
                await self._cache.changed(revision, _BUSY)
            return
        idle = _IDLE if self._used or self._steering() == HINTS else _IDLE_WITHOUT
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(idle):
                await self._wake.wait()


def landing_guide(
    frame: Frame[NodeSettings],
    run: NodeProcessSettings,
    cache: ClusterCache,
    installations: Installations,
    count: Callable[[Landed], None],
) -> Guide:
    """Return what leads pods in the process of *frame*; *count* is called for each replacement that has landed."""
    connection, live = frame.connection, frame.live
    missed = MissedLandings(
        connection,
        cache,
        beside=lambda: installations.beside,
        leading=frame.leading,
        evicting=lambda: frame.leading() and not frame.stopped,
        in_thread=in_thread,
    )
    return LandingController(
        cache,
        LandingMap(connection, run.namespace, run.landings),
        missed,
        steering=lambda: live.current.steering,
        acting=frame.acting,
        leading=frame.leading,
        count=count,
    )
