"""The loop of a controller of nodes: repair, judge, show, write notes, steer, claim. The controller itself decides.

One pass follows another, and the drains that a pass starts run beside the loop (:mod:`tightship.drain`). A failed pass
keeps its writes: every write is complete in itself, and the next pass starts from the cluster again.

While the controller is switched off, a pass only judges and shows. A leader then claims nothing, writes no notes,
removes its soft taints, labels and deletion costs, and lets the drains under way finish, because nobody else would.
Replicas that find remains of a controller of the same name do the same.

A dry run begins nothing, but leaves no node cordoned that its own installation cordoned while it was live. It acquires
the Lease, gives such nodes back, and releases the Lease. So does a leader that stops for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec

from tightship.documents.document import SettingsView
from tightship.draining.drain_manager import Drainer
from tightship.draining.history import past_drains, remembering
from tightship.draining.installations import Installations
from tightship.draining.ledger import Ledger
from tightship.draining.pilot import Pilot
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.host import wall
from tightship.kube.resources import BY_KIND
from tightship.nodes.annexes import SEARCH
from tightship.nodes.as_if import Unmanaged
from tightship.nodes.background_search import BackgroundSearch
from tightship.nodes.claiming import claim_in_order
from tightship.nodes.controller import ClaimJudge, NodeController, OwnMetrics
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.nodes.node_prices import NodePrices
from tightship.nodes.node_writes import NodeWrites
from tightship.nodes.page_advice import MeasuredAdvice, PageAdvice
from tightship.nodes.pass_log import PassLog
from tightship.nodes.soft_taints import next_to_go
from tightship.nodes.status import Shown, Situation, nothing_yet, show
from tightship.nodes.succession import Succession, another_comes
from tightship.objects import AUTOSCALER, CAPACITY_BUFFER, POD_TEMPLATE
from tightship.objects.api_errors import Forbidden, KubeError, one_line
from tightship.objects.drain_record import Finished, PastDrains
from tightship.objects.reasons import Refusal
from tightship.planning.evaluate import Evaluation, Evaluator, ExplainedGates, paced
from tightship.planning.facts import added
from tightship.planning.savings import saved, settled
from tightship.process.http import Draw
from tightship.process.logging import log
from tightship.process.loop import in_thread
from tightship.process.serving import Frame
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings
from tightship.rules.additions import learned
from tightship.rules.nodes import draining

S = TypeVar("S", bound=NodeSettings)
G = TypeVar("G", bound=ExplainedGates)

NOTED_WITHIN = 2.0
"""Most seconds for which a pass waits until drains whose nodes are gone are in the history, before it claims nodes."""


class ConsolidationLoop(Generic[S, G]):
    """Runs passes over one cluster in a *frame*; see :class:`tightship.process.serving.Controller`."""

    def __init__(
        self,
        frame: Frame[S],
        run: NodeProcessSettings,
        controller: NodeController[S, G],
        *,
        cache: ClusterCache,
        drainer: Drainer,
        ledger: Ledger,
        installations: Installations,
        pilot: Pilot,
        metrics: ConsolidationMetrics,
        own: OwnMetrics[G],
        parting: asyncio.Event,
        prices: NodePrices[S],
        clock: Callable[[], float] = wall,
    ) -> None:
        self._frame = frame
        self._run = run
        self._controller = controller
        self._name = frame.program.name
        self._log = frame.logger
        self._cache = cache
        self._drainer = drainer
        self._ledger = ledger
        self._installations = installations
        self._pilot = pilot
        self._metrics = metrics
        self._own = own
        self._parting = parting
        self._prices = prices
        self._clock = clock
        self._failures = 0
        self._unfinished = False
        self._synced = False
        self._pass_log = PassLog(frame.logger, f"{run.claims_namespace}/{run.claims_lease}")
        self._writes = NodeWrites(frame.connection, lambda: installations.beside, frame.logger)
        self._succession = Succession(run.namespace, run.identity.rpartition("_")[0], by_hand=not run.in_pod)
        self._left: Sequence[str] = ()
        self._judge: tuple[S, bool, ClaimJudge[G]] | None = None
        self._dry_run: tuple[S, S] | None = None
        self._as_if = Unmanaged(controller.judge)
        self._evaluate: Evaluator[G] = Evaluator()
        self._search: BackgroundSearch[G] = BackgroundSearch(
            frame.wake, may=self._may_search, clock=clock, logger=frame.logger
        )
        self._cluster = run.cluster_name or frame.connection.cluster
        self._advice = PageAdvice(clock, frame.logger)
        self._shown = nothing_yet(self._name, controller.kind, self._cluster)
        self._drawn: tuple[Shown, MeasuredAdvice | None, Draw] = self._shown, None, self._shown.page

    @property
    def unfinished(self) -> bool:
        """Whether a drain, soft taint or deletion cost of this controller is left, or may be, for somebody to end."""
        return self._unfinished

    def status(self) -> bytes:
        """Return the last pass as JSON."""
        return self._shown.json

    def page(self) -> Draw:
        """Return a function that draws the last pass for people, with the advice that was measured last."""
        measured = self._advice.asked()
        if self._drawn[0] is not self._shown or self._drawn[1] is not measured:
            self._drawn = self._shown, measured, partial(self._shown.page, measured)
        return self._drawn[2]

    def waits_for(self) -> Sequence[str]:
        """Return why no pass can run yet. Raises :class:`~tightship.kube.cache.CacheCrashed`."""
        self._synced = self._cache.has_synced or self._synced
        if self._synced:
            # The pass itself waits for kinds that it begins to follow, so no ready replica becomes unready.
            return ()
        waiting = sorted(kind for kind, stats in self._cache.stats().items() if not stats.synced)
        return (f"not synced: {', '.join(waiting)}",)

    async def once(self) -> None:
        """Run one pass. Raises :class:`~tightship.objects.api_errors.KubeError` if the API server refuses or fails."""
        try:
            await self._pass()
        except KubeError:
            self._failures += 1
            raise
        self._failures = 0

    async def _pass(self) -> None:
        frame = self._frame
        await self._prices.refresh(frame.live.current)
        settings, judge = self._judging()
        await self._follow_demand(judge)
        self._find_left()
        leading, dry_run = frame.leading(), frame.run.dry_run
        if leading:
            # From here on there may be something to end, even if this pass fails.
            self._unfinished = True
            await self._pilot.look()
            settings, judge = self._judging()
            self._succession.look(self._cache.snapshot())
            if not dry_run:
                pools = self._controller.pools(settings) if self._may_begin() else {}
                await self._installations.look(pools, settings.pool_labels)
            others = not (frame.switched_off() or dry_run)
            await self._drainer.adopt(self._cache.snapshot(), others=others, ledger=not dry_run)
        elsewhere = self._drainer.elsewhere if leading else ()
        self._pass_log.claimed_elsewhere(elsewhere)
        self._metrics.claimed_elsewhere(len(elsewhere))
        driven = self._drainer.driving
        snapshot, now, beside = self._cache.snapshot(), self._clock(), self._installations.beside
        history = past_drains(await self._ledger.recent()) if leading and not dry_run else PastDrains()
        search = self._controller.search(settings)
        with self._search.paused():
            evaluation = await in_thread(
                partial(self._evaluate, snapshot, judge, now, self._search.horizon(search), improve=SEARCH),
                history=history,
                api_failures=self._failures,
                landings=self._drainer.landings(snapshot),
                beside=beside,
            )
        self._search.judged(evaluation, judge, search)
        if leading and not dry_run and evaluation.history != history:
            await self._remember(evaluation, judge)
        off = frame.switched_off()
        if leading and self._may_begin():
            evaluation = self._writes.waiting(evaluation, settings, self._pauses)
        self._pass_log.beside(beside, evaluation.facts)
        self._metrics.beside(beside)
        self._pass_log.judged(evaluation, off=off, leader=frame.leading(), dry_run=dry_run)
        plan = evaluation.plan.holding(evaluation.held)
        self._metrics.update(evaluation.facts, plan, evaluation.snapshot, now, evaluation.unhealthy)
        self._metrics.saved(saved(evaluation.history, now))
        self._own.update(evaluation)
        as_if = await self._as_if.plan(evaluation, settings)
        situation = self._situation(off, history.finished, self._controller.describe(settings))
        self._shown = await in_thread(
            show, evaluation, situation, self._controller.remarks(evaluation, settings), as_if
        )
        if self._controller.tunable is not None:
            self._advice.judged(evaluation, self._controller.tunable(settings))
        if leading and self._may_begin():
            await self._writes.notes(snapshot, self._controller.notes(evaluation, settings), self._may_begin)
            await self._steer(evaluation, settings)
            await self._claim(evaluation, judge, history, driven)
        elif leading:
            await self._writes.clear(snapshot, frame.leading)
        if dry_run:
            self._find_left()
            if self._run.release and not frame.finishing.is_set():
                log(self._log, logging.INFO, "this controller holds no node any more", controller=self._name)
                frame.runtime.end()
        else:
            self._unfinished = await self._left_to_end() if frame.switched_off() else leading

    def _find_left(self) -> None:
        """Let a dry run end the drains that its own installation left."""
        if not self._run.gives_back:
            return
        snapshot, before = self._cache.snapshot(), self._left
        self._left = self._drainer.held(snapshot)
        for name in self._left:
            if name not in before:
                what = "finishing: this controller gives back a node that it cordoned for a drain"
                log(self._log, logging.WARNING, what, node=name, dry_run=True, lease=self._run.lease_name)
        # A soft taint or a deletion cost names no installation, but beside a drain of ours it is ours too.
        ours = self._run.release or self._frame.finishing.is_set()
        # A label names the installation.
        mine = self._installations.beside.mark
        labelled = any(view.node.leaving == mine for view in snapshot.nodes.values())
        left = ours and (self._writes.left(snapshot) or self._pilot.stray)
        self._unfinished = bool(self._left or labelled or left)
        if self._unfinished:
            self._frame.finishing.set()
        else:
            self._frame.finishing.clear()

    def _current(self) -> S:
        """Return the settings to judge by; the same ones while configuration and prices stay."""
        current = self._prices.applied(self._frame.live.current)
        if not self._frame.run.dry_run:
            return current
        if self._dry_run is None or self._dry_run[0] is not current:
            judged, note = self._controller.for_dry_run(current)
            self._dry_run = current, judged
            self._pass_log.noted(note)
        return self._dry_run[1]

    def _judging(self) -> tuple[S, ClaimJudge[G]]:
        """Return the current settings and their judge; the judge stays the same while the settings do."""
        settings, led = self._current(), self._pilot.available
        if self._judge is None or self._judge[0] is not settings or self._judge[1] is not led:
            judge = self._controller.judge(settings.led if led else settings)
            self._judge = (settings, led, judge)
            # A waiting drain uses the times of the new settings.
            self._drainer.wake()
        return settings, self._judge[2]

    async def _follow_demand(self, judge: ClaimJudge[G]) -> None:
        """Read the demand without pods that the settings ask for; read templates only if there may be buffers."""
        cache, ahead, timeout = self._cache, judge.ahead, self._frame.run.request_timeout
        await cache.follow(BY_KIND[AUTOSCALER], wanted=ahead.replicas > 0, timeout=timeout)
        await cache.follow(BY_KIND[CAPACITY_BUFFER], wanted=ahead.buffers, timeout=timeout)
        templates = ahead.buffers and CAPACITY_BUFFER not in cache.missing
        await cache.follow(BY_KIND[POD_TEMPLATE], wanted=templates, timeout=timeout)

    async def _remember(self, evaluation: Evaluation[G], judge: ClaimJudge[G]) -> None:
        """Write the results of recent drains for all controllers and the next leader."""
        nodes, now = added(evaluation.facts), evaluation.now

        def latest(known: PastDrains) -> PastDrains:
            return settled(learned(known, nodes, judge.pace, now), nodes, now)

        await self._ledger.change(remembering(latest))

    async def _claim(
        self, evaluation: Evaluation[G], judge: ClaimJudge[G], history: PastDrains, driven: Collection[str]
    ) -> None:
        """Claim nodes of the plan. Pauses count from drains that have ended since it was made, too.

        *driven* are the nodes whose drains were driven before the snapshot was taken, *history* is what the plan knew.
        """
        if self._search.claims_wait():
            log(self._log, logging.INFO, "no claim before the first search has ended")
            return
        nodes = evaluation.snapshot.nodes
        shown = all(draining(nodes[name].node) for name in driven if name in nodes)
        if not shown or not await self._drainer.noted(NOTED_WITHIN):
            # The snapshot is older than a claim, or a drain is about to end.
            self._frame.wake.set()
            return
        latest = past_drains(await self._ledger.recent())
        if latest.finished != history.finished:
            held = paced(evaluation, judge, latest, self._clock(), self._failures).held
            evaluation = msgspec.structs.replace(evaluation, held={**evaluation.held, **held})
        await claim_in_order(evaluation, judge, self._drainer, self._metrics, self._log, self._may_begin)

    async def _steer(self, evaluation: Evaluation[G], settings: S) -> None:
        missed = self._pilot.missed
        missed.order = next_to_go(evaluation.snapshot, evaluation.plan, len(evaluation.snapshot.nodes))
        label, spared, early = self._pilot.labels, missed.held(), self._search.claims_wait()
        await self._writes.steer(evaluation, settings, self._may_begin, label=label, spared=spared, early=early)

    def _pauses(self, node: str) -> Refusal | None:
        return self._drainer.pauses(node) or self._pilot.missed.refusal(node)

    def _may_begin(self) -> bool:
        return self._frame.leading() and self._frame.acting()

    def _may_search(self) -> bool:
        """Whether a search may run: its thread asks too. A dry run shows what would be found."""
        stopping, dry_run = self._frame.runtime.stop.is_set(), self._frame.run.dry_run
        return not stopping and (self._may_begin() or (dry_run and not self._frame.switched_off()))

    async def _left_to_end(self) -> bool:
        """Return whether any drain, soft taint, label or cost bears this controller's name. Nothing new may begin."""
        snapshot = self._cache.snapshot()
        try:
            left = self._writes.left(snapshot) or self._pilot.unfinished
            return left or await self._drainer.unfinished(snapshot)
        except KubeError as error:
            if self._frame.leading():
                raise
            log(self._log, logging.DEBUG, "claims can't be read", error=one_line(error))
            return False

    def _situation(self, off: bool, finished: Sequence[Finished], settings: SettingsView) -> Situation:
        writing = (*self._pilot.problems, *self._writes.problems, *self._pass_log.told(self._drainer.problems))
        return Situation(
            generator=self._frame.program,
            settings=settings,
            kind=self._controller.kind,
            cluster=self._cluster,
            leader=self._frame.elector.holder,
            dry_run=self._frame.run.dry_run,
            switched_off=off,
            finishing=tuple(self._left),
            hindrance="" if self._frame.elector.failure is None else one_line(self._frame.elector.failure),
            finished=finished,
            landings=self._pilot.figures(),
            installations=self._installations.beside.others(),
            problems=(*self._frame.live.problems, *self._prices.problems, *self._pass_log.problems(), *writing),
            search=self._search.state(self._controller.search(self._frame.live.current)),
        )

    async def stop(self) -> None:
        """Finish or park the drains, and remove soft taints, labels and costs, which nobody would keep up to date.

        If no other replica comes, give the nodes back instead.
        """
        self._search.stop()
        self._advice.stop()
        if self._drainer.driving and not await another_comes(self._succession, self._cache, self._frame.connection):
            held = ", ".join(sorted(self._drainer.driving))
            log(self._log, logging.WARNING, "stopped for good: nodes in drain are given back", nodes=held)
            self._frame.finishing.set()
        await self._pilot.close()
        self._parting.set()
        for node, why in (await self._drainer.stop(self._frame.run.stop_timeout)).items():
            log(self._log, logging.WARNING, "drain not parked in time", node=node, detail=why)
        if not self._frame.leading():
            return
        if self._frame.finishing.is_set():
            await self._installations.leave()
        try:
            await self._writes.clear(self._cache.snapshot(), self._frame.leading)
        except CacheCrashed:
            return  # nobody knows which nodes have one; the next leader will
        except KubeError as error:
            level = logging.ERROR if isinstance(error, Forbidden) else logging.WARNING
            log(self._log, level, "soft taints, labels or deletion costs left", error=one_line(error))
