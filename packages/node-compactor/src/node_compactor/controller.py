"""The compactor's loop: mend, judge, mark, steer, claim. What is decided is :mod:`node_compactor.deciding`'s.

One pass after another; the drains it starts go on beside it (:mod:`tightship.drain`). A pass that fails leaves what it
had done: every write is complete in itself, and the next pass starts from the cluster again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from node_compactor.budgets import room
from node_compactor.deciding import Decision, decide
from node_compactor.marking import MarkWrite
from node_compactor.metrics import CompactorMetrics
from node_compactor.settings import CompactorSettings
from node_compactor.status import nothing_yet, show
from node_compactor.steering import candidate_patch, tainted
from tightship.cluster import Snapshot
from tightship.drain.drainer import Drainer
from tightship.drain.history import DrainHistory
from tightship.drain.writing import LiveNode, patch_node, read_node
from tightship.drain_record import Finished
from tightship.kube.cache import ClusterCache
from tightship.kube.connection import Connection
from tightship.kube.errors import Conflict, Forbidden, KubeError, NotFound, one_line
from tightship.observability.logging import log
from tightship.reasons import Reason
from tightship.runtime.loop import in_thread

_log = logging.getLogger("node_compactor")

WRITES_AT_ONCE = 8
"""Marks and soft taints written at a time."""


class Compactor:
    """Runs passes over one cluster. *dry_run* makes no request that changes anything."""

    def __init__(
        self,
        *,
        connection: Connection,
        cache: ClusterCache,
        drainer: Drainer,
        history: DrainHistory,
        metrics: CompactorMetrics,
        settings: Callable[[], CompactorSettings],
        leading: Callable[[], bool],
        holder: Callable[[], str],
        dry_run: bool,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connection = connection
        self._cache = cache
        self._drainer = drainer
        self._history = history
        self._metrics = metrics
        self._settings = settings
        self._leading = leading
        self._holder = holder
        self._dry_run = dry_run
        self._clock = clock
        self._failures = 0
        self.decision: Decision | None = None
        self.shown = nothing_yet()
        """The last pass, for ``/status`` and the page."""

    async def once(self) -> None:
        """Make one pass. Raises :class:`~tightship.kube.errors.KubeError` when the API server refuses or is away."""
        try:
            await self._pass()
        except KubeError:
            self._failures += 1
            raise
        self._failures = 0

    async def _pass(self) -> None:
        acting = self._leading() and not self._dry_run
        if acting:
            await self._drainer.adopt(self._cache.snapshot())
        finished: Sequence[Finished] = await self._history.read() if acting else ()
        snapshot, settings, now, failures = self._cache.snapshot(), self._settings(), self._clock(), self._failures
        decision = await in_thread(decide, snapshot, settings, now, finished=finished, api_failures=failures)
        self._say(decision)
        self.decision = decision
        self._metrics.update(decision.facts, decision.shown, snapshot, now, decision.unhealthy)
        self.shown = await in_thread(
            show, decision, leader=self._holder(), dry_run=self._dry_run, cluster=self._connection.identity
        )
        if not acting:
            return
        await self._write_marks(decision.mark_writes, snapshot)
        await self._steer(decision)
        await self._claim(decision)

    async def _write_marks(self, writes: Sequence[MarkWrite], snapshot: Snapshot) -> None:
        async def write(mark: MarkWrite) -> None:
            judged = snapshot.nodes[mark.node].node
            # A node that has changed since it was judged is judged again in the next pass.
            await patch_node(self._connection, LiveNode(judged, judged.resource_version, ()), mark.patch)

        await self._each([(mark.node, partial(write, mark)) for mark in writes])

    async def _steer(self, decision: Decision) -> None:
        async def taint(name: str, on: bool) -> None:
            live = await read_node(self._connection, name)
            if live is None:
                return
            patch = candidate_patch(live, on)
            if patch is not None:
                await patch_node(self._connection, live, patch)

        steering = decision.steering
        todo = [(name, True) for name in steering.add] + [(name, False) for name in steering.remove]
        await self._each([(name, partial(taint, name, on)) for name, on in todo])

    async def _each(self, writes: Sequence[tuple[str, Callable[[], Awaitable[None]]]]) -> None:
        """Do all *writes*, a few at a time; one that comes too late is left to the next pass."""
        slots = asyncio.Semaphore(WRITES_AT_ONCE)

        async def one(name: str, write: Callable[[], Awaitable[None]]) -> None:
            async with slots:
                if not self._leading():
                    return
                try:
                    await write()
                except (Conflict, NotFound) as error:
                    log(_log, logging.DEBUG, "node changed meanwhile", node=name, error=one_line(error))

        results = await asyncio.gather(*(one(name, write) for name, write in writes), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _claim(self, decision: Decision) -> None:
        """Claim the plan's nodes in its order until a budget says no."""
        for removal in decision.plan.removals:
            if not self._leading():
                return
            name = removal.node
            if name in decision.held:
                continue
            fact = decision.facts[name]

            allows = partial(room, name, decision.facts, decision.settings)
            refusal = await self._drainer.claim(
                fact.view.node, pool=fact.pool, plan_hash=decision.plan_hash, allows=allows
            )
            self._metrics.claimed(refusal)
            if refusal is None:
                log(_log, logging.INFO, "claimed", node=name, pool=fact.pool, ratio=round(fact.cpu_ratio, 3))
                continue
            log(_log, logging.INFO, "not claimed", node=name, reason=refusal.reason, detail=refusal.detail)
            if refusal.reason is Reason.BUDGET_EXHAUSTED:
                return

    def _say(self, decision: Decision) -> None:
        """One line a pass, and one for each node whose removal is newly planned or held."""
        last = self.decision
        removals = decision.plan.removals
        log(
            _log,
            logging.INFO,
            "judged",
            dry_run=self._dry_run,
            leader=self._leading(),
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
                    _log,
                    logging.INFO,
                    "would remove" if held is None else "held back",
                    node=removal.node,
                    pods=len(removal.moves),
                    reason=held.reason if held is not None else "",
                    detail=held.detail if held is not None else "",
                )

    async def release(self) -> None:
        """Take off the soft taints, as far as the API server answers: nobody keeps them up to date any more."""
        snapshot = self._cache.snapshot()
        names = tainted(snapshot)

        async def clear(name: str) -> None:
            live = await read_node(self._connection, name)
            patch = candidate_patch(live, on=False) if live is not None else None
            if live is not None and patch is not None:
                await patch_node(self._connection, live, patch)

        try:
            await self._each([(name, partial(clear, name)) for name in names])
        except KubeError as error:
            level = logging.ERROR if isinstance(error, Forbidden) else logging.WARNING
            log(_log, level, "soft taints left on nodes", error=one_line(error))
