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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.cluster.pools import shown
from tightship.drain.answers import FATAL, GOING, EvictionAnswer
from tightship.drain.events import DrainEvent, EventKind
from tightship.draining.claims import Claim, exhausted, past_drains, remembering
from tightship.draining.drain_manager import Drainer, Order
from tightship.draining.drain_task import Tools
from tightship.draining.extensions import Guide, PodCosts
from tightship.draining.installations import Installations, lasts
from tightship.draining.ledger import Ledger
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.connection import Connection
from tightship.kube.reflector import list_all
from tightship.kube.resources import BY_KIND, resources
from tightship.nodes import annexes
from tightship.nodes.background import BackgroundSearch, MeasuredAdvice, PageAdvice
from tightship.nodes.controller import AnyController
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.nodes.node_writes import NodeWrites
from tightship.nodes.soft_taints import next_to_go
from tightship.nodes.status import Shown, Situation, nothing_yet, show
from tightship.objects import AUTOSCALER, CAPACITY_BUFFER, DEPLOYMENT, POD_TEMPLATE, ApiObject, Owner, Workload
from tightship.objects.api_errors import Forbidden, KubeError, one_line
from tightship.objects.drain_record import Begun, Ending, Finished, PastDrains, Phase
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import Evaluation, Evaluator, Facts, Judge, evaluate, paced
from tightship.planning.facts import added
from tightship.planning.plan import Plan, Removal
from tightship.planning.savings import saved, settled
from tightship.process.events import EventRecorder, ObjectRef
from tightship.process.http import Draw, Write
from tightship.process.logging import log
from tightship.process.loop import Runtime, in_thread
from tightship.process.serving import Configuration, Controller, Frame, serve
from tightship.process.settings.loading import SettingsError
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings
from tightship.rules.after_cordon import awaited, waiting_elsewhere
from tightship.rules.nodes import draining
from tightship.rules.rates import beside_drains, marks_of
from tightship.rules.waiting import learned

NOTED_WITHIN = 2.0
"""Most seconds for which a pass waits until drains whose nodes are gone are in the history, before it claims nodes."""


async def serve_nodes(
    controller: AnyController, runtime: Runtime, run: NodeProcessSettings, environment: Mapping[str, str]
) -> None:
    """Run *controller* until ``runtime.stop``: watch, lead or stand by, pass after pass, and shut down cleanly."""

    @asynccontextmanager
    async def make(frame: Frame[NodeSettings]) -> AsyncIterator[ConsolidationLoop]:
        # The first pass follows buffers, and their templates if there are any.
        judge = controller.judge(frame.live.current)
        restarts = judge.rules.eviction.restarts != "off"
        read = resources(autoscalers=judge.ahead.replicas > 0, buffers=False, restarts=restarts)
        async with ClusterCache(frame.connection, resources=read, crashed=frame.wake.set) as cache:
            loop = ConsolidationLoop(frame, run, controller, cache)
            tasks = loop.begin()
            try:
                yield loop
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    configuration = Configuration[NodeSettings](
        lambda data: controller.configured(data, environment),
        acting=controller.acts,
        lost=controller.switched_off if controller.needs_configuration else None,
    )
    await serve(runtime, run, controller.program, configuration, make)


TOGETHER = 20
"""Most claims that are one write."""


class ConsolidationLoop(Controller):
    """Runs passes of *controller* over one cluster, as *cache* has it, in a *frame*."""

    def __init__(
        self, frame: Frame[NodeSettings], run: NodeProcessSettings, controller: AnyController, cache: ClusterCache
    ) -> None:
        self._frame = frame
        self._run = run
        self._controller = controller
        self._name = controller.name
        self._log = frame.logger
        self._cache = cache
        self._clock = frame.connection.clock.now
        self._metrics = ConsolidationMetrics(frame.registry, controller.name)
        frame.metrics.watch_cache(cache.stats)
        self._own = controller.metrics(frame.registry)
        self._report = DrainReporter(frame.events)
        # Drains park once it is known whether another replica continues them, not at once.
        self._shutting_down = asyncio.Event()
        lease = f"{run.namespace}/{run.lease_name}"
        self._ledger = Ledger(frame.connection, namespace=run.claims_namespace, name=run.claims_lease)
        self._installations = Installations(
            self._ledger,
            controller=controller.name,
            lease=lease,
            lasts=lasts(run.lease_duration),
            leading=lambda: frame.leading() and not run.dry_run,
        )
        guide = annexes.GUIDE
        self._guide = Guide() if guide is None else guide(frame, run, cache, self._installations, self._metrics.landed)
        self._prices = NodePrices(frame.logger, self._clock)
        tools = Tools(
            connection=frame.connection,
            cache=cache,
            tell=self._tell,
            leading=frame.leading,
            stopping=self._shutting_down.is_set,
            releasing=lambda: run.dry_run or frame.finishing.is_set() or bool(frame.stopped),
            settings=lambda: controller.drain_settings(self._led(frame.live.current), self._clock),
            clock=self._clock,
            in_thread=in_thread,
            guide=self._guide,
            landings=lambda: self._drainer.landings(cache.snapshot()),
        )
        self._drainer = Drainer(
            tools,
            self._ledger,
            controller=controller.name,
            holder=run.identity,
            epoch=lambda: frame.elector.epoch,
            pool_of=lambda node: controller.pool_of(node, frame.live.current),
            price_of=lambda node: controller.price_of(node, self._prices.applied(frame.live.current)),
            lease=lease,
            installations=self._installations,
        )
        self._failures = 0
        self._unfinished = False
        self._synced = False
        self._pass_log = PassLog(frame.logger, f"{run.claims_namespace}/{run.claims_lease}")

        def beside() -> Beside:
            return self._installations.beside

        costs = PodCosts() if annexes.COSTS is None else annexes.COSTS(frame.connection, beside, frame.logger)
        self._writes = NodeWrites(frame.connection, beside, costs, frame.logger)
        self._succession = Succession(run.namespace, run.identity.rpartition("_")[0], by_hand=not run.in_pod)
        self._left: Sequence[str] = ()
        self._judge: tuple[NodeSettings, bool, Judge] | None = None
        self._dry_run: tuple[NodeSettings, NodeSettings] | None = None
        self._as_if = Unmanaged(controller.judge)
        self._evaluate = Evaluator()
        self._search = BackgroundSearch(frame.wake, may=self._may_search, clock=self._clock, logger=frame.logger)
        self._cluster = run.cluster_name or frame.connection.cluster
        self._advice = PageAdvice(self._clock, frame.logger)
        self._shown = nothing_yet(self._name, controller.kind, self._cluster)
        self._drawn: tuple[Shown, MeasuredAdvice | None, Draw] = self._shown, None, self._shown.page

    def begin(self) -> Sequence[asyncio.Task[None]]:
        """Start what runs beside the passes."""
        spawn = self._frame.runtime.spawn
        return [spawn(self._guide.run(), "landings"), spawn(self._installations.keep(), "sign of life")]

    def _tell(self, news: DrainEvent) -> None:
        self._report(news)
        self._metrics.news(news)
        self._own.news(news)

    def _led(self, settings: NodeSettings) -> NodeSettings:
        return settings.led if self._guide.available else settings

    @property
    def unfinished(self) -> bool:
        """Whether a drain, soft taint or deletion cost of this controller is left, or may be, for somebody to end."""
        return self._unfinished

    def status(self) -> Write:
        """Return a function that writes the last pass as JSON."""
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
            await self._guide.look()
            settings, judge = self._judging()
            self._succession.look(self._cache.snapshot())
            if not dry_run:
                pools = self._controller.pools(settings) if self._may_begin() else {}
                await self._installations.look(pools, settings.pool_labels)
            await self._drainer.adopt(self._cache.snapshot(), others=frame.acting(), ledger=not dry_run)
            if frame.stopped:
                self._drainer.wake()
        elsewhere = self._drainer.elsewhere if leading else ()
        self._pass_log.claimed_elsewhere(elsewhere)
        self._metrics.claimed_elsewhere(len(elsewhere))
        driven = self._drainer.driving
        snapshot, now, beside = self._cache.snapshot(), self._clock(), self._installations.beside
        history = past_drains(await self._ledger.recent()) if leading and not dry_run else PastDrains()
        search = self._searching(settings)
        with self._search.paused():
            evaluation = await in_thread(
                partial(self._evaluate, snapshot, judge, now, self._search.horizon(search), improve=annexes.SEARCH),
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
        situation = self._situation(off, history.finished, evaluation, settings)
        self._shown = show(evaluation, situation, as_if)
        self._advice.judged(evaluation, partial(self._controller.changes, settings))
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
        left = ours and (self._writes.left(snapshot) or self._guide.stray)
        self._unfinished = bool(self._left or labelled or left)
        if self._unfinished:
            self._frame.finishing.set()
        else:
            self._frame.finishing.clear()

    def _current(self) -> NodeSettings:
        """Return the settings to judge by; the same ones while configuration and prices stay."""
        current = self._prices.applied(self._frame.live.current)
        if not self._frame.run.dry_run:
            return current
        if self._dry_run is None or self._dry_run[0] is not current:
            judged, note = self._controller.for_dry_run(current)
            self._dry_run = current, judged
            self._pass_log.noted(note)
        return self._dry_run[1]

    def _judging(self) -> tuple[NodeSettings, Judge]:
        """Return the current settings and their judge; the judge stays the same while the settings do."""
        settings, led = self._current(), self._guide.available
        if self._judge is None or self._judge[0] is not settings or self._judge[1] is not led:
            judge = self._controller.judge(self._led(settings))
            self._judge = (settings, led, judge)
            # A waiting drain uses the times of the new settings.
            self._drainer.wake()
        return settings, self._judge[2]

    async def _follow_demand(self, judge: Judge) -> None:
        """Read the demand without pods that the settings ask for; read templates only if there may be buffers."""
        cache, ahead, timeout = self._cache, judge.ahead, self._frame.run.request_timeout
        await cache.follow(BY_KIND[AUTOSCALER], wanted=ahead.replicas > 0, timeout=timeout)
        restarts = judge.rules.eviction.restarts != "off"
        await cache.follow(BY_KIND[DEPLOYMENT], wanted=restarts, timeout=timeout)
        await cache.follow(BY_KIND[CAPACITY_BUFFER], wanted=ahead.buffers, timeout=timeout)
        templates = ahead.buffers and CAPACITY_BUFFER not in cache.missing
        await cache.follow(BY_KIND[POD_TEMPLATE], wanted=templates, timeout=timeout)

    async def _remember(self, evaluation: Evaluation, judge: Judge) -> None:
        """Write the results of recent drains for all controllers and the next leader."""
        nodes, now = added(evaluation.facts), evaluation.now

        def latest(known: PastDrains) -> PastDrains:
            return settled(learned(known, nodes, judge.pace, now), nodes, now)

        await self._ledger.change(remembering(latest))

    async def _claim(self, evaluation: Evaluation, judge: Judge, history: PastDrains, driven: Collection[str]) -> None:
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
        if (latest.finished, latest.begun) != (history.finished, history.begun):
            held = paced(evaluation, judge, latest, self._clock(), self._failures).held
            evaluation = msgspec.structs.replace(evaluation, held={**evaluation.held, **held})
        await self._claim_in_order(evaluation, judge)

    async def _claim_in_order(self, evaluation: Evaluation, judge: Judge) -> None:
        """Claim the plan's nodes until a budget refuses, or nothing may begin any more.

        A node where a drain wants a pod to land has to wait: otherwise the pod would move twice. Raises
        :class:`~tightship.objects.api_errors.KubeError`.
        """
        wanted, landings = evaluation.plan.targets, set(self._drainer.landings(evaluation.snapshot).values())
        waiting = [
            each for each in evaluation.plan.removals if each.node not in evaluation.held and each.node not in landings
        ]

        def order(removal: Removal) -> Order:
            fact = evaluation.facts[removal.node]

            def allows(claims: Sequence[Claim], begun: Begun) -> Refusal | None:
                claimed = {claim.node for claim in claims}
                begun = beside_drains(begun, evaluation.snapshot, claimed)
                begun = msgspec.structs.replace(begun, newcomers=evaluation.newcomers)
                ahead = {claim.node: claim.op for claim in claims if claim.waits} if fact.opens else {}
                refusal = judge.room(removal.node, evaluation.facts, claimed, begun)
                return refusal or waiting_elsewhere(evaluation.snapshot, ahead, removal.node)

            targets = {move.pod.uid: wanted[move.pod.uid] for move in removal.moves}
            view, evict, waits_for = fact.view, fact.evict, awaited(fact.opens)
            return Order(
                view.node, fact.pool, evaluation.plan.hash, allows, targets, len(evict), marks_of(evict), waits_for
            )

        for at in range(0, len(waiting), TOGETHER):
            if not self._may_begin():
                return
            orders = [order(removal) for removal in waiting[at : at + TOGETHER]]
            refusals = await self._drainer.claim(orders)
            for each, refusal in zip(orders, refusals, strict=False):
                name = each.node.name
                self._metrics.claimed(refusal)
                if refusal is None:
                    ratio = round(evaluation.facts[name].utilization.ratio("cpu"), 3)
                    log(self._log, logging.INFO, "claimed", node=name, pool=each.pool, ratio=ratio)
                else:
                    log(self._log, logging.INFO, "not claimed", node=name, reason=refusal.reason, detail=refusal.detail)
            if refusals and exhausted(refusals[-1]):
                return

    async def _steer(self, evaluation: Evaluation, settings: NodeSettings) -> None:
        self._guide.order = next_to_go(evaluation.snapshot, evaluation.plan, len(evaluation.snapshot.nodes))
        label, spared, early = self._guide.labels, self._guide.held(), self._search.claims_wait()
        await self._writes.steer(evaluation, settings, self._may_begin, label=label, spared=spared, early=early)

    def _pauses(self, node: str) -> Refusal | None:
        return self._drainer.pauses(node) or self._guide.refusal(node)

    def _searching(self, settings: NodeSettings) -> float:
        return self._controller.search(settings)

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
            await self._installations.look()  # what other installations leave is ours once they are gone
            left = self._writes.left(snapshot) or self._guide.unfinished
            return left or await self._drainer.unfinished(snapshot)
        except KubeError as error:
            if self._frame.leading():
                raise
            log(self._log, logging.DEBUG, "claims can't be read", error=one_line(error))
            return False

    def _situation(
        self, off: bool, finished: Sequence[Finished], evaluation: Evaluation, settings: NodeSettings
    ) -> Situation:
        writing = (*self._guide.problems, *self._writes.problems, *self._pass_log.logged(self._drainer.problems))
        return Situation(
            generator=self._frame.program,
            settings=self._controller.describe(settings, "live"),
            kind=self._controller.kind,
            cluster=self._cluster,
            leader=self._frame.elector.holder,
            dry_run=self._frame.run.dry_run,
            switched_off=off,
            finishing=tuple(self._left),
            hindrance="" if self._frame.elector.failure is None else one_line(self._frame.elector.failure),
            finished=finished,
            landings=self._guide.figures(),
            installations=self._installations.beside.others(),
            problems=(
                *self._frame.stopped,
                *self._frame.live.problems,
                *self._prices.problems,
                *self._pass_log.problems(),
                *writing,
            ),
            search=self._search.state(self._searching(self._frame.live.current)),
            figures=self._controller.figures(evaluation, settings),
            excess=self._controller.excess(evaluation, settings),
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
        await self._guide.close()
        self._shutting_down.set()
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


POOLS_SHOWN = 5
"""Most pools of another installation that a sentence names."""


class PassLog:
    """Logs passes to *logger*. *ledger* names the Lease of the claims."""

    def __init__(self, logger: logging.Logger, ledger: str) -> None:
        self._log = logger
        self._ledger = ledger
        self._off = False
        self._note = ""
        self._planned: Mapping[str, Refusal | None] = {}
        self._elsewhere: Sequence[tuple[str, str]] = ()
        self._others: Collection[str] = ()
        self._held: Mapping[str, Sequence[str]] = {}
        self._logged: Sequence[str] = ()

    def judged(self, evaluation: Evaluation, *, off: bool, leader: bool, dry_run: bool) -> None:
        """Log one line for the pass, and one for each node that is newly planned, newly held back, or released."""
        if off != self._off:
            self._log.info("switched off: no new drain begins" if off else "switched on")
        self._off = off
        plan, held = evaluation.plan, evaluation.held
        log(
            self._log,
            logging.INFO,
            "judged",
            dry_run=dry_run,
            leader=leader,
            nodes=len(evaluation.facts),
            planned=len(plan.removals),
            evictions=plan.evictions,
            pods=plan.pods,
            held=len(held),
            next=plan.removals[0].node if plan.removals else "",
        )
        for removal in plan.removals:
            name, why = removal.node, held.get(removal.node)
            if name in self._planned and (self._planned[name] is None) == (why is None):
                continue
            log(
                self._log,
                logging.INFO,
                "plans to remove" if why is None else "held back",
                node=name,
                pods=len(removal.moves),
                reason=why.reason if why is not None else "",
                detail=why.detail if why is not None else "",
            )
        self._planned = {each.node: held.get(each.node) for each in plan.removals}

    def noted(self, text: str) -> None:
        """Log a sentence about what is judged from now on, if there is any; :meth:`problems` has the sentence too."""
        self._note = text
        if text:
            self._log.info(text)

    def logged(self, sentences: Sequence[str]) -> Sequence[str]:
        """Warn of each of *sentences* when it first appears, and return them."""
        before, self._logged = self._logged, sentences
        for each in sentences:
            if each not in before:
                self._log.warning(each)
        return sentences

    def claimed_elsewhere(self, drains: Sequence[tuple[str, str]]) -> None:
        """Warn of each drain (node and controller) without a claim in our Lease when it first appears."""
        before, self._elsewhere = self._elsewhere, drains
        for node, controller in drains:
            if (node, controller) not in before:
                what = "another controller keeps its claims in another Lease, so the two share no budget"
                log(self._log, logging.WARNING, what, node=node, controller=controller, lease=self._ledger)

    def beside(self, beside: Beside, facts: Facts) -> None:
        """Log each other installation once when it first appears, and warn of pools that it holds when that begins."""
        others = {each.lease: each for each in beside.others()}
        for lease in others.keys() - set(self._others):
            what = "another installation of this controller is live, and what it drains and marks is left alone"
            log(self._log, logging.INFO, what, lease=lease, controller=beside.controller)
        self._others = others.keys()
        pools: dict[str, set[str]] = {}
        for fact in facts.values():
            holder = beside.holder(fact.view.node) if others else None
            if holder is not None:
                pools.setdefault(holder.lease, set()).add(shown(fact.pool))
        held = {lease: sorted(found) for lease, found in sorted(pools.items())}
        for lease, found in held.items():
            if found != self._held.get(lease):
                what = "another installation holds pools that are configured here too"
                log(self._log, logging.WARNING, what, lease=lease, pools=", ".join(found))
        self._held = held

    def problems(self) -> tuple[str, ...]:
        """Return the sentence about what is judged, and the same warnings as whole sentences."""
        note = (self._note,) if self._note else ()
        held = (
            f"The installation with Lease {lease} holds {_pools(found)}, which this one drains only once the other has "
            "given them up, or is gone."
            for lease, found in self._held.items()
        )
        elsewhere = (
            f"{controller} drains node {node} without a claim in Lease {self._ledger}: {controller} keeps its claims "
            "elsewhere (CLAIMS_LEASE_NAMESPACE), so the two share no budget."
            for node, controller in self._elsewhere
        )
        return (*note, *held, *elsewhere)


def _pools(names: Sequence[str]) -> str:
    more = len(names) - POOLS_SHOWN
    return f"the pools {', '.join(names[:POOLS_SHOWN])}" + (f" and {more} more" if more > 0 else "")


PRICES_EVERY = 240.0
"""Seconds for which a server's prices are new enough: less than the usual time between two passes."""

PRICES_AGAIN = 60.0
"""Seconds after a failure before the next question about prices."""


class NodePrices:
    """Adds the prices of a server such as OpenCost to settings; while it does not answer, the last ones stay in use."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        self._log = logger
        self._clock = clock
        self._ask: Callable[[], Mapping[str, int]] | None = None
        self._nodes: Mapping[str, int] = {}
        self._next = 0.0
        self._last: tuple[NodeSettings, NodeSettings] | None = None
        self.problems: tuple[str, ...] = ()
        """Why the prices may be old, or missing; empty if the server has answered."""

    async def refresh(self, settings: NodeSettings) -> None:
        """Ask the server that the price list of *settings* names, if its last answer is too old."""
        ask = settings.prices.ask
        if ask != self._ask:
            self._ask, self._nodes, self._next, self._last, self.problems = ask, {}, 0.0, None, ()
        if self._ask is None or self._clock() < self._next:
            return
        try:
            nodes = await in_thread(self._ask)
        except SettingsError as error:
            self._next = self._clock() + PRICES_AGAIN
            if not self.problems:
                log(self._log, logging.WARNING, "no new prices from OpenCost", error=str(error))
            kept = "the last prices stay in use" if self._nodes else "its nodes have other prices, or none"
            self.problems = (f"{error}: {kept}",)
            return
        self._next, self.problems = self._clock() + PRICES_EVERY, ()
        if nodes != self._nodes:
            self._nodes, self._last = nodes, None

    def applied(self, settings: NodeSettings) -> NodeSettings:
        """Return *settings* with the prices; the same ones while neither changes."""
        if not self._nodes:
            return settings
        if self._last is None or self._last[0] is not settings:
            self._last = settings, settings.priced(self._nodes)
        return self._last[1]


EVERY = 600.0
"""Seconds for which such a plan is new enough: it costs as much as a first pass."""


class Unmanaged:
    """The plan as if Karpenter did not consolidate, by the *judge* of settings."""

    def __init__(self, judge: Callable[[NodeSettings], Judge]) -> None:
        self._judge = judge
        self._plan: Plan | None = None
        self._settings: NodeSettings | None = None
        self._next = 0.0

    async def plan(self, evaluation: Evaluation, settings: NodeSettings) -> Plan | None:
        """Return the plan beside *evaluation* under *settings*, ``None`` if nothing is left to Karpenter."""
        if not evaluation.plan.refuses(Reason.KARPENTER_MANAGED):
            self._settings = None
            return None
        if self._settings is not settings or evaluation.now >= self._next:
            judge = self._judge(settings.without_rule(Reason.KARPENTER_MANAGED))
            found = await in_thread(evaluate, evaluation.snapshot, judge, evaluation.now)
            self._plan, self._settings, self._next = found.plan, settings, evaluation.now + EVERY
        return self._plan


ASKED_AT_THE_END = 3.0
"""Seconds for asking the API server, on shutdown, whether another replica comes."""

_KIND = "ReplicaSet"

_log = logging.getLogger(__name__)


class Succession:
    """Finds out from the Deployment of the pod *name* whether more pods come after it; nobody does after a process that
    a person has started *by_hand*. A successor continues; without one, the leader gives back its nodes.
    """

    def __init__(self, namespace: str, name: str, *, by_hand: bool = False) -> None:
        self.namespace = namespace
        self.by_hand = by_hand
        self._name = name
        self._set: Owner | None = None

    def look(self, snapshot: Snapshot) -> None:
        """Find the pod's ReplicaSet now, because the pod's own object may be gone at the end."""
        if self._set is not None:
            return
        for view in snapshot.nodes.values():
            for pod in view.pods:
                if pod.name == self._name and pod.namespace == self.namespace:
                    if pod.owner is not None and pod.owner.kind == _KIND:
                        self._set = pod.owner
                    return

    def expected(self, snapshot: Snapshot, listed: Iterable[ApiObject] | None = None) -> bool:
        """Return whether another pod exists, or will exist; *listed* are ReplicaSets newer than the snapshot's.

        True if nobody knows: in a pod of another cluster, or of another kind.
        """
        self.look(snapshot)
        if self._set is None or (listed is None and _KIND in snapshot.missing):
            return True
        sets = snapshot.workloads.get(_KIND, {})
        if listed is not None:
            sets = {f"{each.namespace}/{each.name}": each for each in listed if isinstance(each, Workload)}
        own = sets.get(f"{self.namespace}/{self._set.name}")
        if own is None or own.uid != self._set.uid:
            return False
        if own.owner is None:
            return own.replicas != 0
        # In a rollout the next pod belongs to another ReplicaSet of the same Deployment.
        return any(each.replicas != 0 for each in sets.values() if each.owner == own.owner)


async def another_comes(succession: Succession, cache: ClusterCache, connection: Connection) -> bool:
    """Ask the API server whether another replica comes: SIGTERM may arrive before the watch shows its cause."""
    if succession.by_hand:
        return False
    try:
        snapshot = cache.snapshot()
    except CacheCrashed:
        return True  # nobody knows
    sets: Sequence[ApiObject] | None = None
    try:
        async with asyncio.timeout(ASKED_AT_THE_END):
            here = BY_KIND[_KIND].within(namespace=succession.namespace)
            sets = (await list_all(connection, here)).things
    except (KubeError, TimeoutError) as error:
        log(_log, logging.DEBUG, "ReplicaSets can't be read, those known count", error=one_line(error))
    return succession.expected(snapshot, sets)


_drain_log = logging.getLogger("tightship.drain")

_PHASES = {
    Phase.CLAIMED: "NodeWaits",
    Phase.EVICTING: "NodeEvicting",
    Phase.DRAINED: "NodeDrained",
    Phase.RESTORING: "NodeRestoring",
    Phase.BACKOFF: "NodeRestored",
    Phase.YIELDED: "NodeYielded",
}


class DrainReporter:
    """Reports the events of drains: Events on the node and on evicted pods, and one log line each, in the same words.

    See :data:`tightship.drain.events.EventSink`.
    """

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def __call__(self, news: DrainEvent) -> None:
        """Report *news*."""
        match news.kind:
            case EventKind.CLAIMED:
                self._node(news, "NodeClaimed", "cordoned and tainted the node, which will be drained")
            case EventKind.TAKEN_OVER:
                at = f" in phase {news.before}" if news.before is not None else ""
                self._node(news, "DrainTakenOver", f"this controller continues the drain{at}")
            case EventKind.PHASE:
                self._phase(news)
            case EventKind.EVICTION:
                self._eviction(news)
            case EventKind.RESTART:
                self._node(news, "RestartedDeployment", f"restarted deployment {news.text}, whose pods leave the node")
            case EventKind.ENDED:
                ending = news.ending or Ending.NOT_OURS
                log(_drain_log, logging.INFO, "drain ended", node=news.node.name, op=_op(news), ending=ending.value)
            case EventKind.TROUBLE:
                log(
                    _drain_log,
                    logging.WARNING,
                    "drain: request failed, trying again",
                    node=news.node.name,
                    error=news.text,
                )

    def _phase(self, news: DrainEvent) -> None:
        phase = news.record.phase if news.record is not None else Phase.BACKOFF
        reason = news.because.reason.value if news.because is not None else _PHASES.get(phase, phase.value)
        note = f"{_PHASES.get(phase, phase.value)}"
        if news.because is not None:
            note += f": {news.because.subject}: {news.because.detail}"
        waits = phase is Phase.CLAIMED  # for what opens after the cordon
        self._node(news, reason, note, warning=news.because is not None and not waits)

    def _node(self, news: DrainEvent, reason: str, note: str, *, warning: bool = False) -> None:
        node = news.node
        phase = news.record.phase.value if news.record is not None else ""
        log(
            _drain_log,
            logging.WARNING if warning else logging.INFO,
            note,
            node=node.name,
            op=_op(news),
            phase=phase,
            reason=reason,
        )
        regarding = ObjectRef(kind="Node", name=node.name, uid=node.uid)
        self._events.record(regarding, "Warning" if warning else "Normal", reason, note, "Drain")

    def _eviction(self, news: DrainEvent) -> None:
        pod, answer = news.pod, news.answer
        if pod is None or answer is None:
            return
        going = answer in GOING or answer is EvictionAnswer.GONE
        level = logging.INFO if going else logging.WARNING if answer in FATAL else logging.DEBUG
        log(
            _drain_log,
            level,
            "eviction",
            node=news.node.name,
            pod=pod.key,
            op=_op(news),
            answer=answer.value,
            text=news.text,
        )
        regarding = ObjectRef(kind="Pod", name=pod.name, uid=pod.uid, namespace=pod.namespace)
        if answer is EvictionAnswer.ACCEPTED:
            note = f"evicted from node {news.node.name}, which is being drained"
            self._events.record(regarding, "Normal", "Evicted", note, "Evict")
        elif answer in FATAL:
            self._events.record(regarding, "Warning", FATAL[answer].value, f"can't be evicted: {news.text}", "Evict")


def _op(news: DrainEvent) -> str:
    return news.record.op if news.record is not None else ""
