"""One drain, driven from wherever its node stands to its end: look, ask the machine, do one step, repeat.

The node's annotation holds everything that a successor needs. A drive keeps only what it has seen itself: the answers
to evictions, since when nothing has moved, since when the node has not been Ready, the last verdict on places, what
it evicted, and which pods came back. A successor does not know what was evicted before it
(the history then says so), sees the rest anew, and at worst waits once more.

The machine is asked about the node in the cache, or, while that is older than our last write, as that write left it. No
request is needed for this: a write goes over the version that was judged, and meets a conflict if there is another. But
before it evicts a pod, changes taints or cordon, or ends, the drive reads the node from the server and asks again. The
step ``Look`` asks for the pods from the server too; their answer counts for the next step only.

Leases do not fence. A record that names another holder or a later epoch ends this drive, and a patch on its way then
meets another version.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.drain.answers import GOING, EvictionAnswer
from tightship.drain.assessment import Assessment, Returning, Try, tried
from tightship.drain.events import DrainEvent, EventKind, EventSink
from tightship.drain.machine import (
    DrainRules,
    Evict,
    Findings,
    Look,
    NodeChange,
    Over,
    Restart,
    Step,
    Wait,
    Write,
    advance,
)
from tightship.draining.extensions import Guide
from tightship.draining.writing import (
    LiveNode,
    NodePatch,
    patch_node,
    read_deployment,
    read_node,
    record_patch,
    restart_deployment,
    send_away,
)
from tightship.kube.cache import ClusterCache
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.kube.reflector import list_all
from tightship.kube.resources import BY_KIND
from tightship.objects import Node, Pod
from tightship.objects.api_errors import Conflict, KubeError, one_line
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Ending, Phase, owner_mark
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import doubled
from tightship.planning.demand import ReservedDemand
from tightship.planning.plan.model import Placement
from tightship.rules.evictability import EvictionRules
from tightship.rules.nodes import drain_record, opt_outs
from tightship.rules.rates import marks_of, newcomers, stable_at, workload_of

SHORTEST_PAUSE = 0.2
"""Least seconds between two looks, because a busy cluster changes all the time."""

RESTING_PAUSE = 3.0
"""Least seconds between two looks while nothing but time lets the next pod go: workloads rest for minutes."""

REJUDGE = 15.0
"""Seconds between two searches for places for the pods left."""

PATIENCE = 5.0
"""Most seconds for which an eviction waits for others of its workload whose replacements are led elsewhere."""

LAG = 1.0
"""Seconds after a write in which the cache may not have seen it."""

TROUBLE_FIRST, TROUBLE_LAST = 0.5, 15.0
"""Seconds to wait after a failed request or a conflict, doubled from the first to the last."""


NodeRefusals = Callable[[Snapshot, Node], Sequence[Refusal]]
"""Returns what keeps a node of a snapshot as a whole now."""


class DrainSettings(Struct, frozen=True, kw_only=True):
    """The settings of drains. They may change while drains run.

    *ahead* is the demand without pods for which to keep room. *node_refusals* is called before a claim and before each
    eviction, since something that keeps a node may appear during its drain.
    """

    rules: DrainRules = DrainRules()
    eviction: EvictionRules = EvictionRules()
    placement: Placement = "likely"
    ahead: ReservedDemand = ReservedDemand()
    node_refusals: NodeRefusals = lambda snapshot, node: opt_outs(snapshot.at(node), pools=snapshot.node_pools)


class Tools(Struct, frozen=True, kw_only=True):
    """The tools of a drain. Every request that changes something is preceded by a call of *leading*.

    While *releasing* is true, drains give their nodes back, whatever their phase. A *guide* is told before pods are
    evicted; *landings* are the nodes where all drains want pods to land, by uid.
    """

    connection: Connection
    cache: ClusterCache
    tell: EventSink
    leading: Callable[[], bool]
    stopping: Callable[[], bool]
    releasing: Callable[[], bool] = lambda: False
    settings: Callable[[], DrainSettings]
    clock: Callable[[], float]
    in_thread: Callable[[Callable[[], list[Refusal]]], Awaitable[list[Refusal]]]
    guide: Guide = Guide()
    landings: Callable[[], Mapping[str, str]] = dict

    def sight(self) -> Snapshot:
        """Return the cluster as the cache has it, with the landings that drains under way want."""
        snapshot, landings = self.cache.snapshot(), self.landings()
        return msgspec.structs.replace(snapshot, landings=landings) if landings else snapshot

    def beginning(self) -> bool:
        """Whether a claim or an eviction may still leave."""
        return self.leading() and not self.releasing()

    async def patch(self, live: LiveNode, patch: NodePatch, *, claim: bool = False) -> LiveNode:
        """Write *patch* on *live* while this replica leads; see :func:`~tightship.draining.writing.patch_node`."""
        return await patch_node(self.connection, live, patch, only_if=self.beginning if claim else self.leading)


async def collected(repair: Awaitable[None], troubles: list[KubeError]) -> None:
    """Await *repair*, and add its error to *troubles*: the other repairs go on."""
    try:
        await repair
    except Conflict:
        pass  # somebody else was quicker: the next loop sees the result
    except KubeError as error:
        troubles.append(error)


class Guided:
    """Tells *guide* of the evictions of a drain that wants its pods on *targets*, by their uids."""

    def __init__(self, guide: Guide, targets: Mapping[str, str]) -> None:
        self.targets = targets
        self._guide = guide
        self._announced: set[str] = set()
        # When each pod was first about to be evicted.
        self._asked: dict[str, float] = {}

    async def ready(self, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        """Have the guide expect the replacements of *pods*, which are about to be evicted.

        Return those that may be evicted at once: others wait for :data:`PATIENCE` at most. ``None`` means that this
        took a while, so the drain must first see whether it still wants to evict them.
        """
        if not self._guide.available:
            return pods
        waiting = [pod for pod in pods if pod.uid in self.targets and pod.uid not in self._announced]
        if waiting and not any(pod.uid in self._announced for pod in pods):
            now, moves = monotonic(), [(pod, self.targets[pod.uid]) for pod in waiting]
            later = self._guide.later(
                [move for move in moves if now < self._asked.setdefault(move[0].uid, now) + PATIENCE]
            )
            if first := [move for move in moves if move[0].uid not in later]:
                self._announced |= {pod.uid for pod, _ in first}
                await self._guide.expect(first)
                return None
        return [pod for pod in pods if pod not in waiting]

    def answered(self, pod: Pod, answer: EvictionAnswer) -> None:
        """Tell the guide the answer to the eviction of *pod*. One without an answer may have been granted."""
        self._announced.discard(pod.uid)
        self._guide.answered(pod.uid, going=answer in GOING or answer is EvictionAnswer.NO_ANSWER)

    def drop(self) -> None:
        """Tell the guide that the pods that it expects the replacements of are not evicted."""
        while self._announced:
            self._guide.answered(self._announced.pop(), going=False)


class _Looked(Struct, frozen=True):
    """The result of one look at the server, valid for one step."""

    pods: tuple[Pod, ...]
    rest: tuple[Refusal, ...]


class Drive:
    """Drives the drain that *record*, just written on *node*, describes. :attr:`wake` ends a wait early.

    *targets* are the nodes that the plan chose, by the uid of the pod; a drain taken over has none. *emptied* is called
    once all pods have gone. Pods that were bound between a plan and its cordon may be of a workload that other drains
    evict pods of: *hits*, which all drains of a manager share, say when each workload was last evicted from, and
    *enters* whether pods of workloads may go that are not yet :attr:`entered` in the claim.
    """

    def __init__(
        self,
        tools: Tools,
        node: Node,
        record: DrainRecord,
        targets: Mapping[str, str] = {},
        emptied: Callable[[Drive], Awaitable[None]] = lambda _: asyncio.sleep(0),
        *,
        enters: Callable[[Sequence[Pod]], Awaitable[bool]],
        hits: dict[str, float],
    ) -> None:
        self.wake = asyncio.Event()
        self.guided = Guided(tools.guide, targets)
        self._tools = tools
        self._emptied = emptied
        self._enters = enters
        self.entered = set[str]()
        """The workloads in the drain's claim, by their marks, as far as this drive knows."""
        self._name = node.name
        self._uid = node.uid
        self._op = record.op
        self._term = (record.holder, record.epoch)
        self._tries: dict[str, Try] = {}
        self._progress = tools.clock()
        self._not_ready_since: float | None = None
        self._rejudged: float | None = None
        self._rest: tuple[Refusal, ...] | None = None
        self._resting = False
        # The present phase, when this drive first saw it, and the latest deadline that it can have.
        self._met = (record.phase, 0.0, 0.0)
        self._returning = Returning(_began(record))
        self._last = node
        self._wrote = monotonic()
        self._record: DrainRecord | None = record
        # Nobody knows what an earlier drive of this drain has evicted.
        self._displaced: set[str] | None = set() if record.phase is Phase.CLAIMED else None
        self._evicted = set[str]()
        self._hits = hits
        self._inherits = record.phase is not Phase.CLAIMED
        self.marks = Counter[str]()  # what other controllers may not know of evictions

    @property
    def displaced(self) -> frozenset[str] | None:
        """The controllers of the pods that the drain has evicted, ``None`` if somebody else began the drain."""
        return None if self._displaced is None else frozenset(self._displaced)

    @property
    def evicted(self) -> int | None:
        """How many pods the drain has evicted, ``None`` if somebody else began the drain."""
        return None if self._displaced is None else len(self._evicted)

    @property
    def reason(self) -> str:
        """The reason in the node's record, as this drive last saw it."""
        return self._record.reason if self._record is not None else ""

    @property
    def lost(self) -> bool:
        """Whether the node had no record when this drive last read it."""
        return self._record is None

    @property
    def backoff(self) -> float:
        """For how many seconds the node's record now keeps it from another drain."""
        until = self._record.next_try if self._record is not None else None
        return 0.0 if until is None else until - self._tools.clock()

    async def run(self) -> Ending:
        """Continue until the drain is over for this drive. Only cancellation and bugs propagate."""
        failures = 0
        looked: _Looked | None = None
        doubted = False
        while self._tools.leading():
            revision = self._tools.cache.revision
            self.wake.clear()
            asked, doubted = doubted, False
            try:
                step, live = await self._decide(looked, ask=asked)
                before, looked = looked, None
                if not isinstance(step, Evict):
                    self.guided.drop()
                match step:
                    case Look():
                        if live is not None:
                            looked = await self._look(live.node)
                        continue
                    case Evict() | Restart():
                        doubted = await self._act(step, live, sure=asked)
                        looked = before if doubted else None
                    case Write():
                        if live is not None and self._tools.leading():
                            await self._write(live, step)
                    case Over(ending=ending):
                        self._tools.tell(DrainEvent(EventKind.ENDED, self._last, self._record, ending=ending))
                        return ending
                    case Wait(until=until):
                        await self._pause(revision, until)
                failures = 0
            except KubeError as error:
                looked = None
                self.guided.drop()
                doubted = isinstance(error, Conflict) and not asked
                if not doubted:
                    await self._pause_after_trouble(error, failures)
                    failures += 1
        return Ending.PARKED

    async def _decide(self, looked: _Looked | None, *, ask: bool) -> tuple[Step, LiveNode | None]:
        """Return the next step and the node that it was judged by; with *ask*, as the server has it now."""
        snapshot = self._tools.sight()
        view = snapshot.nodes.get(self._name)
        node = view.node if view is not None and view.node.uid == self._uid else None
        if node is not None and not self._current(node) and monotonic() < self._wrote + LAG:
            node = self._last
        if node is not None and not ask and self._current(node):
            step = await self._ask(snapshot, node, looked)
            if not isinstance(step, Write | Over) or (isinstance(step, Write) and step.change is NodeChange.NOTHING):
                return step, LiveNode(node, node.resource_version, ())
        live = await read_node(self._tools.connection, self._name)
        if live is not None and live.node.uid != self._uid:
            live = None
        if live is not None:
            self._last, self._record = live.node, drain_record(live.node)
        return await self._ask(snapshot, live.node if live is not None else None, looked), live

    async def _ask(self, snapshot: Snapshot, node: Node | None, looked: _Looked | None) -> Step:
        now = self._tools.clock()
        settings = self._tools.settings()
        if node is None:
            return advance(self._op, self._record, Findings(node=None), settings.rules, now)
        record = drain_record(node)
        if record is not None and record.op == self._op and (record.holder, record.epoch) != self._term:
            return Over(Ending.PARKED)
        if record is not None:
            record = self._believed(record, settings.rules, now)
        pods = looked.pods if looked is not None else None
        sight = Assessment(snapshot, self._name, now, settings.rules, settings.eviction, node=node, pods=pods)
        rest: Sequence[Refusal] | None = looked.rest if looked is not None else None
        if rest is None and record is not None and record.phase is Phase.EVICTING and record.op == self._op:
            rest = await self._judged(sight, settings, now)
        pause, least = settings.rules.rest, settings.rules.min_stable_time
        if self._inherits:  # nobody knows whose pods the former leader has just evicted
            self._hits.update(dict.fromkeys(map(workload_of, sight.sorted.evict), now))
            self._inherits = False
        left = {workload_of(pod) for pod in sight.left(self._tries)} if pause else set[str]()
        hit = {name: self._hits[name] for name in left & self._hits.keys()}
        young = newcomers(snapshot, now) if least and hit else {}
        rests = {name: max(at + pause, stable_at(young.get(name, ()), at, least)) for name, at in hit.items()}
        resting = any(until > now for until in rests.values())
        back = self._returning.refuses(sight.left(self._tries), snapshot)
        node_refusals = settings.node_refusals(snapshot, node) if record is not None and record.owns_node else ()
        self._not_ready_since = None if node.ready else (self._not_ready_since or now)
        seen = sight.findings(
            record,
            self._tries,
            fresh=looked is not None,
            rest=rest,
            back=back,
            node_refusals=node_refusals,
            progress=self._progress,
            not_ready_since=self._not_ready_since,
            stopping=self._tools.stopping(),
            releasing=self._tools.releasing(),
            met=self._met[1],
            rests=rests,
            # Pods that don't become Ready don't move the deadline, so the node is given back.
            rests_until=max((at + pause for at in hit.values()), default=0.0),
        )
        if seen.awaits or seen.leaving or seen.rolling or resting or not node.ready:
            self._progress = now
        self._resting = resting and not (seen.next or seen.awaits or seen.leaving or seen.rolling)
        if self._displaced is not None:
            self._displaced |= {owner_mark(pod.owner.uid) for pod in seen.rolling if pod.owner is not None}
        self._evicted |= {pod.uid for pod in seen.rolling}
        return advance(self._op, record, seen, settings.rules, now)

    def _believed(self, record: DrainRecord, rules: DrainRules, now: float) -> DrainRecord:
        """Return *record* with every time limited to what is possible: its writer may have had another clock.

        No phase began after this drive first saw the record, and no deadline can be later than one set at that moment.
        """
        if self._met[0] is not record.phase or not self._met[1]:
            longest = rules.node_timeout + rules.await_timeout
            if rules.rest:  # a claim allows pauses of as long as a drain may take
                longest += max(rules.node_timeout, rules.rest)
            if record.phase is Phase.CLAIMED:
                longest = rules.settle + rules.after_cordon_timeout
            self._met = (record.phase, now, now + longest)
        _, met, latest = self._met
        since = {phase: min(at, met) for phase, at in record.since.items()}
        deadline = record.deadline
        if deadline is not None and record.phase in {Phase.CLAIMED, Phase.EVICTING}:
            deadline = min(deadline, latest)
        if deadline == record.deadline and since == record.since:
            return record
        return msgspec.structs.replace(record, since=since, deadline=deadline)

    async def _judged(self, sight: Assessment, settings: DrainSettings, now: float) -> Sequence[Refusal] | None:
        """Search places for the rest every :data:`REJUDGE` seconds while pods are left, at first after a takeover.

        In between the last verdict holds.
        """
        if not sight.left(self._tries):
            return None
        if self._rejudged is None or now >= self._rejudged + REJUDGE:
            self._rejudged = now
            self._rest = tuple(await self._tools.in_thread(partial(sight.rest, settings.placement, settings.ahead)))
        return self._rest

    def _current(self, node: Node) -> bool:
        """Whether *node* carries the annotation that this drive last read or wrote on the server."""
        return node.annotations.get(DRAIN_ANNOTATION) == self._last.annotations.get(DRAIN_ANNOTATION)

    async def _look(self, node: Node) -> _Looked:
        tools, settings = self._tools, self._tools.settings()
        here = msgspec.structs.replace(BY_KIND["Pod"], field_selector=f"spec.nodeName={self._name}")
        listing = await list_all(tools.connection, here)
        pods = tuple(thing for thing in listing.things if isinstance(thing, Pod))
        now = tools.clock()
        sight = Assessment(tools.sight(), self._name, now, settings.rules, settings.eviction, node=node, pods=pods)
        rest = await tools.in_thread(partial(sight.rest, settings.placement, settings.ahead))
        broken = [
            Refusal(Reason.POD_UNREADABLE, f"{error.namespace}/{error.name}", error.problem)
            for error, _ in listing.problems
        ]
        self._rejudged, self._rest = now, tuple(sorted([*rest, *broken]))
        return _Looked(pods, self._rest)

    async def _act(self, step: Evict | Restart, live: LiveNode | None, *, sure: bool) -> bool:
        """Evict or restart. Return true if this first needs a *sure* look."""
        if isinstance(step, Evict):
            return await self._evict(step.pods, sure=sure)
        if sure and live is not None:
            await self._restart(live, step.deployments)
        return not sure

    async def _evict(self, pods: Sequence[Pod], *, sure: bool) -> bool:
        """Evict *pods* once their replacements are expected. Return true if this first needs a *sure* look."""
        ready = await self.guided.ready(pods)
        if ready is None:
            return False
        if not ready:
            await asyncio.sleep(SHORTEST_PAUSE)
            return False
        if not sure or not await self._entering(ready):
            return not sure
        tools, rules = self._tools, self._tools.settings().rules

        async def one(pod: Pod) -> None:
            workload, hits = workload_of(pod), self._hits
            before = hits.get(workload)
            if before is not None and tools.clock() < before + rules.rest:
                return  # another drain was quicker
            if workload:
                hits[workload] = tools.clock()
            result = await send_away(tools.connection, pod, past_budgets=rules.past_budgets, only_if=tools.beginning)
            granted = result is not None and (result.answer in GOING or result.answer is EvictionAnswer.NO_ANSWER)
            if not granted:
                hits.pop(workload, None)
                hits.update({} if before is None else {workload: before})
            if result is None:
                return
            now = self._tools.clock()
            self.guided.answered(pod, result.answer)
            self._tries[pod.uid] = tried(self._tries.get(pod.uid), result, now)
            if result.answer in GOING or result.answer is EvictionAnswer.GONE:
                self._progress = now
            if granted:
                self._returning.evicted(pod)
                self._count(pod, now)
                if self._displaced is not None and pod.owner is not None:
                    self._displaced.add(owner_mark(pod.owner.uid))
            self._tools.tell(
                DrainEvent(
                    EventKind.EVICTION, self._last, self._record, pod=pod, answer=result.answer, text=result.text
                )
            )

        await asyncio.gather(*(one(pod) for pod in ready))
        return False

    async def _entering(self, pods: Sequence[Pod]) -> bool:
        """Return whether the claim has the workloads of *pods*; enter them otherwise, or let them rest once more."""
        late = marks_of(pods).keys() - self.entered
        if not late or not self._tools.settings().rules.rest:
            return True
        if await self._enters(pods):
            self.entered |= late
        else:
            self._hits.update(dict.fromkeys(filter(None, map(workload_of, pods)), self._tools.clock()))
        return False

    async def _restart(self, live: LiveNode, deployments: Sequence[str]) -> None:
        """Restart *deployments*, none of them a second time; the record of *live* tells of each before its write."""
        tools = self._tools
        for key in deployments:
            record = drain_record(live.node)
            found = await read_deployment(tools.connection, key)
            if record is None or found is None or found[0].restarted_at == record.restart_time:
                continue
            deployment, version = found
            noted = record.restarts.get(key)
            if noted is None and deployment.settled and tools.beginning():
                noted = deployment.generation
                record = msgspec.structs.replace(record, restarts={**record.restarts, key: noted})
                live = await tools.patch(live, record_patch(live, record, NodeChange.NOTHING))
                self._last, self._record, self._wrote = live.node, record, monotonic()
            if noted == deployment.generation:
                await restart_deployment(tools.connection, key, version, record.restart_time, only_if=tools.beginning)
                tools.tell(DrainEvent(EventKind.RESTART, live.node, record, text=key))

    def _count(self, pod: Pod, now: float) -> None:
        """Count the eviction of *pod*, which the server granted or may have granted."""
        if workload := workload_of(pod):
            self.marks[owner_mark(workload)] += pod.uid not in self._evicted
            self._hits[workload] = now
        self._evicted.add(pod.uid)

    async def _write(self, live: LiveNode, step: Write) -> None:
        before = drain_record(live.node)
        after = await self._tools.patch(live, record_patch(live, step.record, step.change))
        self._last, self._record, self._wrote = after.node, step.record, monotonic()
        phase = before.phase if before is not None else None
        if step.because is not None or step.record is None or step.record.phase is not phase:
            event = DrainEvent(EventKind.PHASE, self._last, self._record, before=phase, because=step.because)
            self._tools.tell(event)
        if step.record is not None and step.record.phase is Phase.DRAINED and phase is not Phase.DRAINED:
            await self._emptied(self)

    async def _pause(self, revision: int, until: float) -> None:
        await asyncio.sleep(SHORTEST_PAUSE)
        if self._resting and (calm := min(RESTING_PAUSE, until - self._tools.clock())) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(calm):
                    await self.wake.wait()
        left = until - self._tools.clock()
        if left <= 0 or self.wake.is_set():
            return
        changed = asyncio.ensure_future(self._tools.cache.changed(revision, left))
        woken = asyncio.ensure_future(self.wake.wait())
        try:
            await asyncio.wait((changed, woken), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            woken.cancel()
            await asyncio.gather(changed, woken, return_exceptions=True)

    async def _pause_after_trouble(self, error: KubeError, failures: int) -> None:
        if not isinstance(error, Conflict):
            text = one_line(error)
            self._tools.tell(DrainEvent(EventKind.TROUBLE, self._last, self._record, text=text))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(doubled(TROUBLE_FIRST, TROUBLE_LAST, failures)):
                await self.wake.wait()


def _began(record: DrainRecord) -> float | None:
    """Return when an earlier drive began the evictions of this drain: pods created since then got past the cordon."""
    if record.phase is Phase.CLAIMED:
        return None
    return min((at for at in map(record.entered, (Phase.EVICTING, Phase.DRAINED)) if at is not None), default=None)
