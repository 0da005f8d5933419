"""The loop of a controller of nodes: repair, judge, show, write notes, steer, claim. The controller itself decides.

One pass follows another, and the drains that a pass starts run beside the loop (:mod:`tightship.drain`). A failed pass
keeps what it has done: every write is complete in itself, and the next pass starts from the cluster again.

While the controller is switched off, a pass only judges and shows. A leader then claims nothing, writes no notes,
removes its soft taints, and lets the drains under way finish: otherwise nobody would answer for their nodes. Replicas
that find remains of a controller of the same name do the same.

A dry run begins nothing, but leaves no node cordoned that its own installation cordoned while it was live. It acquires
the Lease, gives such nodes back, and releases the Lease. So does a leader that stops for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Generic, TypeVar

from tightship.app.observability.logging import log
from tightship.app.runtime.http import Draw
from tightship.app.runtime.loop import a_few_at_a_time, in_thread
from tightship.app.runtime.serving import Frame
from tightship.app.settings.process import NodeProcessSettings
from tightship.app.settings.sections import NodeKeys
from tightship.core.api_errors import Conflict, Forbidden, KubeError, NotFound, one_line
from tightship.core.drain_record import Finished
from tightship.core.objects import AUTOSCALER, CAPACITY_BUFFER, POD_TEMPLATE, ApiObject
from tightship.core.reasons import Reason
from tightship.drain_io.drain_manager import Drainer
from tightship.drain_io.history import DrainHistory, PastDrains
from tightship.drain_io.writing import LiveNode, patch_node, read_node
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.host import wall
from tightship.kube.listing import list_all
from tightship.kube.resources import BY_KIND
from tightship.nodes.controller import NodeController, OwnMetrics
from tightship.nodes.decision import Decision, NodeNote
from tightship.nodes.health import brake
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.nodes.regret import learned, regretted
from tightship.nodes.soft_taints import candidate_patch, tainted
from tightship.nodes.status import Situation, nothing_yet, show
from tightship.nodes.succession import Succession
from tightship.planning.cluster import Snapshot
from tightship.planning.nodes import draining

ASKED_AT_THE_END = 3.0
"""Seconds for the API server to say, on shutdown, whether another replica comes."""

WRITES_AT_ONCE = 8
"""Concurrent writes of notes and soft taints."""

S = TypeVar("S", bound=NodeKeys)
D = TypeVar("D", bound=Decision)


class ConsolidationLoop(Generic[S, D]):
    """Runs passes over one cluster in a *frame*; see :class:`tightship.app.runtime.serving.Controller`."""

    def __init__(
        self,
        frame: Frame[S],
        run: NodeProcessSettings,
        controller: NodeController[S, D],
        *,
        cache: ClusterCache,
        drainer: Drainer,
        history: DrainHistory,
        metrics: ConsolidationMetrics,
        own: OwnMetrics[D],
        parting: asyncio.Event,
        clock: Callable[[], float] = wall,
    ) -> None:
        self._frame = frame
        self._run = run
        self._controller = controller
        self._name = frame.program.name
        self._log = frame.logger
        self._cache = cache
        self._drainer = drainer
        self._history = history
        self._metrics = metrics
        self._own = own
        self._parting = parting
        self._clock = clock
        self._failures = 0
        self._unfinished = False
        self._synced = False
        self._elsewhere: Sequence[tuple[str, str]] = ()
        self._ledger = f"{run.claims_namespace}/{run.claims_lease}"
        self._succession = Succession(run.namespace, run.identity.rpartition("_")[0])
        # Nodes that a dry run has to give back.
        self._left: Sequence[str] = ()
        self._off = False
        # Nodes on which a soft taint was put from here: the cache may lag behind our own writes.
        self._steered: set[str] = set()
        self._last: D | None = None
        self._settings: S | None = None
        self._shown = nothing_yet(self._name, controller.kind)

    @property
    def unfinished(self) -> bool:
        """Whether a drain or a soft taint of this controller is, or may be, left for somebody to end."""
        return self._unfinished

    def status(self) -> bytes:
        """Return the last pass as JSON."""
        return self._shown.json

    def page(self) -> Draw:
        """Return what draws the same as a page for people."""
        return self._shown.page

    def waits_for(self) -> Sequence[str]:
        """Return why no pass can run yet. Raises :class:`~tightship.kube.cache.CacheCrashed`."""
        self._synced = self._cache.has_synced or self._synced
        if self._synced:
            # What a pass begins to follow besides is waited for in the pass: it makes no ready replica unready.
            return ()
        waiting = sorted(kind for kind, stats in self._cache.stats().items() if not stats.synced)
        return (f"not synced: {', '.join(waiting)}",)

    async def once(self) -> None:
        """Run one pass. Raises :class:`~tightship.core.api_errors.KubeError` if the API server refuses or is away."""
        try:
            await self._pass()
        except KubeError:
            self._failures += 1
            raise
        self._failures = 0

    async def _pass(self) -> None:
        frame = self._frame
        await self._follow_demand()
        self._find_left()
        leading, dry_run = frame.leading(), frame.run.dry_run
        if leading:
            # From here on there may be something to end, whatever becomes of this pass.
            self._unfinished = True
            self._succession.look(self._cache.snapshot())
            others = not (frame.switched_off() or dry_run)
            await self._drainer.adopt(self._cache.snapshot(), others=others, ledger=not dry_run)
        self._warn_of_other_claims(self._drainer.elsewhere if leading else ())
        driven = self._drainer.driving
        snapshot, settings, now, failures = self._cache.snapshot(), frame.live.current, self._clock(), self._failures
        history = await self._learn(snapshot, settings, now) if leading and not dry_run else PastDrains()
        finished = history.finished
        decision = await in_thread(self._decide, snapshot, settings, now, history, failures)
        if settings is not self._settings:
            # A drain that waits goes by the times that hold now.
            self._drainer.wake()
        self._settings = settings
        off = frame.switched_off()
        self._say(decision, off)
        self._last = decision
        self._metrics.update(decision.facts, decision.plan.holding(decision.held), snapshot, now, decision.unhealthy)
        self._own.update(decision)
        self._shown = await in_thread(
            show, decision, self._situation(off, finished), self._controller.remarks(decision)
        )
        if leading and self._may_begin():
            await self._write_notes(decision)
            await self._steer(decision)
            if _all_in_drain(driven, snapshot):
                await self._claim(decision)
            else:
                # A drain has just ended, and what was read of the history may not know it: pauses start from there.
                frame.wake.set()
        elif leading:
            await self._untaint(snapshot)
        if dry_run:
            self._find_left()
            if self._run.release and not frame.finishing.is_set():
                log(self._log, logging.INFO, "this controller holds no node any more", controller=self._name)
                frame.runtime.end()
        else:
            self._unfinished = await self._left_to_end() if frame.switched_off() else leading

    def _warn_of_other_claims(self, elsewhere: Sequence[tuple[str, str]]) -> None:
        before, self._elsewhere = self._elsewhere, elsewhere
        self._metrics.claimed_elsewhere(len(self._elsewhere))
        for node, controller in self._elsewhere:
            if (node, controller) not in before:
                what = "another controller keeps its claims in another Lease, so the two share no budget"
                log(self._log, logging.WARNING, what, node=node, controller=controller, lease=self._ledger)

    def _find_left(self) -> None:
        """Have a dry run end the drains that its own installation left, if there are any."""
        if not self._frame.run.dry_run:
            return
        snapshot, before = self._cache.snapshot(), self._left
        self._left = self._drainer.held(snapshot)
        for name in self._left:
            if name not in before:
                what = "finishing: this controller gives back a node that it cordoned for a drain"
                log(self._log, logging.WARNING, what, node=name, dry_run=True, lease=self._run.lease_name)
        # A soft taint does not say whose it is, but beside a drain of ours it is ours.
        ours = self._run.release or self._frame.finishing.is_set()
        if self._left or (ours and self._soft(snapshot)):
            self._frame.finishing.set()
        else:
            self._frame.finishing.clear()
        self._unfinished = self._frame.finishing.is_set()

    async def _follow_demand(self) -> None:
        """Read the demand without pods that the settings ask for; templates only if there may be buffers."""
        cache, ahead = self._cache, self._controller.ahead(self._frame.live.current)
        timeout = self._frame.run.request_timeout
        await cache.follow(BY_KIND[AUTOSCALER], wanted=ahead.replicas > 0, timeout=timeout)
        await cache.follow(BY_KIND[CAPACITY_BUFFER], wanted=ahead.buffers, timeout=timeout)
        templates = ahead.buffers and CAPACITY_BUFFER not in cache.missing
        await cache.follow(BY_KIND[POD_TEMPLATE], wanted=templates, timeout=timeout)

    async def _learn(self, snapshot: Snapshot, settings: S, now: float) -> PastDrains:
        """Return the history, with the results of its drains."""
        of = self._controller.pool_of
        nodes = [(float(view.node.created), of(view.node, settings), name) for name, view in snapshot.nodes.items()]

        def learn(known: PastDrains) -> PastDrains:
            return learned(known, nodes, settings, now)

        if self._frame.run.dry_run:
            return learn(await self._history.all())
        return await self._history.change(learn, now)

    def _decide(self, snapshot: Snapshot, settings: S, now: float, history: PastDrains, failures: int) -> D:
        unhealthy = brake(snapshot, history.finished, settings, now, failures)
        regrets = regretted(history, settings, now)
        return self._controller.decide(
            snapshot, settings, now, finished=history.finished, regrets=regrets, unhealthy=unhealthy
        )

    def _may_begin(self) -> bool:
        return self._frame.leading() and self._frame.acting()

    async def _left_to_end(self) -> bool:
        """Return whether drains or soft taints of this controller's name exist anywhere. Nothing new may begin."""
        snapshot = self._cache.snapshot()
        try:
            return bool(self._soft(snapshot)) or await self._drainer.unfinished(snapshot)
        except KubeError as error:
            if self._frame.leading():
                raise
            log(self._log, logging.DEBUG, "claims can't be read", error=one_line(error))
            return False

    def _situation(self, off: bool, finished: Sequence[Finished]) -> Situation:
        return Situation(
            generator=self._frame.program,
            kind=self._controller.kind,
            cluster=self._frame.connection.identity,
            leader=self._frame.elector.holder,
            dry_run=self._frame.run.dry_run,
            switched_off=off,
            finishing=tuple(self._left),
            hindrance="" if self._frame.elector.failure is None else one_line(self._frame.elector.failure),
            finished=finished,
            problems=(*self._frame.live.problems, *map(self._elsewhere_words, self._elsewhere)),
        )

    def _elsewhere_words(self, each: tuple[str, str]) -> str:
        node, controller = each
        return (
            f"{controller} drains node {node} without a claim in Lease {self._ledger}: {controller} keeps its claims "
            "elsewhere (CLAIMS_LEASE_NAMESPACE), so the two share no budget."
        )

    async def _write_notes(self, decision: D) -> None:
        async def write(note: NodeNote) -> None:
            judged = decision.snapshot.nodes[note.node].node
            # A node that has changed since it was judged is judged again in the next pass.
            await patch_node(self._frame.connection, LiveNode(judged, judged.resource_version, ()), note.patch)

        await self._each([(note.node, partial(write, note)) for note in decision.notes], self._may_begin)

    async def _steer(self, decision: D) -> None:
        steering = decision.steering
        self._steered.intersection_update(decision.snapshot.nodes)
        todo = [(name, True) for name in steering.add] + [(name, False) for name in steering.remove]
        await self._each([(name, partial(self._taint, name, on)) for name, on in todo], self._may_begin)

    def _soft(self, snapshot: Snapshot) -> list[str]:
        return sorted(self._steered.union(tainted(snapshot, self._name)))

    async def _untaint(self, snapshot: Snapshot) -> None:
        names = self._soft(snapshot)
        await self._each([(name, partial(self._taint, name, on=False)) for name in names], self._frame.leading)

    async def _taint(self, name: str, on: bool) -> None:
        live = await read_node(self._frame.connection, name)
        patch = candidate_patch(live, on, self._name) if live is not None else None
        if on and patch is not None:
            self._steered.add(name)
        if live is not None and patch is not None:
            await patch_node(self._frame.connection, live, patch)
        if not on:
            self._steered.discard(name)

    async def _each(
        self, writes: Sequence[tuple[str, Callable[[], Awaitable[None]]]], allowed: Callable[[], bool]
    ) -> None:
        """Do all *writes*, a few at a time, while *allowed*; the next pass does those that come too late."""

        async def one(todo: tuple[str, Callable[[], Awaitable[None]]]) -> None:
            name, write = todo
            if not allowed():
                return
            try:
                await write()
            except (Conflict, NotFound) as error:
                log(self._log, logging.DEBUG, "node changed meanwhile", node=name, error=one_line(error))

        await a_few_at_a_time(one, writes, WRITES_AT_ONCE)

    async def _claim(self, decision: D) -> None:
        """Claim the plan's nodes in order until a budget refuses."""
        for removal in decision.plan.removals:
            if not self._may_begin():
                return
            name = removal.node
            if name in decision.held:
                continue
            fact = decision.facts[name]
            refusal = await self._drainer.claim(
                fact.view.node, pool=fact.pool, plan_hash=decision.plan.hash, allows=partial(decision.room, name)
            )
            self._metrics.claimed(refusal)
            if refusal is None:
                ratio = round(fact.utilization.ratio("cpu"), 3)
                log(self._log, logging.INFO, "claimed", node=name, pool=fact.pool, ratio=ratio)
                continue
            log(self._log, logging.INFO, "not claimed", node=name, reason=refusal.reason, detail=refusal.detail)
            if refusal.reason is Reason.BUDGET_EXHAUSTED:
                return

    def _say(self, decision: D, off: bool) -> None:
        """Log one line for the pass, and one for each node whose removal is newly planned or held."""
        if off != self._off:
            self._log.info("switched off: no new drain begins" if off else "switched on")
        self._off = off
        last = self._last
        removals = decision.plan.removals
        log(
            self._log,
            logging.INFO,
            "judged",
            dry_run=self._frame.run.dry_run,
            leader=self._frame.leading(),
            nodes=len(decision.facts),
            planned=len(removals),
            evictions=decision.plan.evictions,
            held=len(decision.held),
            next=removals[0].node if removals else "",
        )
        before = {} if last is None else {each.node: last.held.get(each.node) for each in last.plan.removals}
        for removal in removals:
            held = decision.held.get(removal.node)
            known = before.get(removal.node, False)
            if known is False or (known is None) != (held is None):
                log(
                    self._log,
                    logging.INFO,
                    "would remove" if held is None else "held back",
                    node=removal.node,
                    pods=len(removal.moves),
                    reason=held.reason if held is not None else "",
                    detail=held.detail if held is not None else "",
                )

    async def stop(self) -> None:
        """Finish or park the drains, and remove the soft taints, because nobody keeps those up to date.

        If no other replica comes, give the nodes back instead.
        """
        if self._drainer.driving and not await self._succeeded():
            held = ", ".join(sorted(self._drainer.driving))
            log(self._log, logging.WARNING, "stopped for good: nodes in drain are given back", nodes=held)
            self._frame.finishing.set()
        self._parting.set()
        for node, why in (await self._drainer.stop(self._frame.run.stop_timeout)).items():
            log(self._log, logging.WARNING, "drain not parked in time", node=node, detail=why)
        if not self._frame.leading():
            return
        try:
            await self._untaint(self._cache.snapshot())
        except CacheCrashed:
            return  # nobody knows which nodes have one; the next leader will
        except KubeError as error:
            level = logging.ERROR if isinstance(error, Forbidden) else logging.WARNING
            log(self._log, level, "soft taints left on nodes", error=one_line(error))

    async def _succeeded(self) -> bool:
        """Ask the API server whether another replica comes: SIGTERM may arrive before the watch shows its cause."""
        try:
            snapshot = self._cache.snapshot()
        except CacheCrashed:
            return True  # nobody knows
        sets: Sequence[ApiObject] | None = None
        try:
            async with asyncio.timeout(ASKED_AT_THE_END):
                here = BY_KIND["ReplicaSet"].within(namespace=self._run.namespace)
                sets = (await list_all(self._frame.connection, here)).things
        except (KubeError, TimeoutError) as error:
            log(
                self._log,
                logging.DEBUG,
                "ReplicaSets can't be read, those known count",
                error=one_line(error),
            )
        return self._succession.expected(snapshot, sets)


def _all_in_drain(names: Collection[str], snapshot: Snapshot) -> bool:
    return all(name in snapshot.nodes and draining(snapshot.nodes[name].node) for name in names)


__all__ = ["ConsolidationLoop"]
