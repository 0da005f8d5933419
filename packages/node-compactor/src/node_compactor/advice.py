"""The changes of the compactor's settings that advice may name."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from node_compactor.judge import CompactorJudge
from node_compactor.settings import EVERY_OTHER_POOL, CompactorSettings, PoolSettings
from tightship.cluster.pools import shown
from tightship.objects.reasons import Reason
from tightship.planning.changes import Change
from tightship.planning.evaluate import Evaluation, Facts
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Plan
from tightship.process.settings.changes import SettingChanges

NO_LIMIT = 1.01
"""A limit that lets every node go whose requests are not above what is allocatable."""

HIGHEST_LIMIT = 1.99

EXAMPLE = PoolSettings(enabled=True, limit=0.75, required_count=1)
"""A pool as plans without a configuration have it."""

_ROOM = frozenset({Reason.NO_PLACE_AFTER_PLAN, Reason.NO_PLACE_TOGETHER})
"""Refusals that a plan in another order may not have."""


class CompactorChanges(SettingChanges):
    """See :class:`tightship.process.settings.changes.SettingChanges`."""

    settings: CompactorSettings

    def __init__(self, settings: CompactorSettings, given: Collection[str] = ()) -> None:
        super().__init__(settings, CompactorJudge, given)

    def own(self, reason: Reason, fact: NodeFacts, evaluation: Evaluation) -> Change | None:
        """Return the change of a pool's gate, or of the strategy."""
        pools = self.settings.pools
        if reason in _ROOM:
            return self._strategy(evaluation)
        if reason is Reason.POOL_NOT_CONFIGURED and fact.pool:
            return self._pool(reason, fact.pool, lambda _: EXAMPLE)
        entry = fact.pool if fact.pool in pools else EVERY_OTHER_POOL
        own = pools.get(entry)
        if own is None:
            return None
        if reason is Reason.POOL_DISABLED:
            return self._pool(
                reason, entry, lambda old: old.model_copy(update={"enabled": True}) if old.limit else EXAMPLE
            )
        if reason in (Reason.NOT_UNDERUTILIZED, Reason.FILLED_BY_PLAN):
            return self._limit(entry, own, evaluation)
        if reason is Reason.REQUIRED_COUNT_NOT_REACHED:
            fewer = 1 if own.required_count > 1 else 0
            return self._gate(reason, entry, "required_count", fewer, "--required-count")
        if reason is Reason.POOL_MIN_SIZE:
            return self._minimum(entry, evaluation.facts, 0)
        return None

    def _gate(self, reason: Reason, entry: str, field: str, value: float, flag: str, **more: Any) -> Change:
        # A flag sets every pool, so it is the same only where there is one entry.
        alone = set(self.settings.pools) == {entry}
        flags = (f"{flag} {value:g}",) if alone else ()
        return self._pool(reason, entry, lambda old: old.model_copy(update={field: value}), flags=flags, **more)

    def _pool(self, reason: Reason, entry: str, change: Callable[[PoolSettings], PoolSettings], **more: Any) -> Change:
        def tune(settings: CompactorSettings) -> CompactorSettings:
            new = change(settings.pools.get(entry, EXAMPLE))
            return settings.model_copy(update={"pools": {**settings.pools, entry: new}})

        every = "every pool" if set(self.settings.pools) == {EVERY_OTHER_POOL} else "every other pool"
        return Change(reason, every if entry == EVERY_OTHER_POOL else f"pool {shown(entry)}", tune=tune, **more)

    def _limit(self, entry: str, own: PoolSettings, evaluation: Evaluation) -> Change | None:
        facts = {name: fact for name, fact in evaluation.facts.items() if self._entry(fact) == entry}
        ratios = [fact.cpu_ratio for fact in facts.values() if math.isfinite(fact.cpu_ratio)]
        widest = min(HIGHEST_LIMIT, max([NO_LIMIT, *map(_above, ratios)]))

        def lower(least: float, limit: float) -> list[float]:
            # A plan that chooses places does not tell what a node had received before it went, so this is a guess.
            tried = (least, math.floor((least + limit) * 50) / 100)
            return sorted({each for each in tried if own.limit < each < limit})

        def change(limit: float) -> Change:
            return self._gate(
                Reason.NOT_UNDERUTILIZED,
                entry,
                "limit",
                limit,
                "--limit",
                tighter=lambda plan: [change(each) for each in lower(_above(_highest(plan, facts)), limit)],
                only=lambda fact: change(limit if _above(fact.cpu_ratio) <= own.limit else _above(fact.cpu_ratio)),
            )

        return change(widest) if widest > own.limit else None

    def _minimum(self, entry: str, facts: Facts, least: int) -> Change:
        def tighter(plan: Plan) -> Sequence[Change]:
            left: dict[str, int] = {}
            gone = {removal.node for removal in plan.removals}
            for name, fact in facts.items():
                if self._entry(fact) == entry:
                    left[fact.pool] = left.get(fact.pool, 0) + (name not in gone and not fact.draining)
            return (self._minimum(entry, facts, min(left.values(), default=0)),)

        return self._gate(Reason.POOL_MIN_SIZE, entry, "minimum_nodes", least, "--min-nodes", tighter=tighter)

    def _strategy(self, evaluation: Evaluation) -> Change | None:
        settings = self.settings
        priced = any(fact.price is not None for fact in evaluation.facts.values())
        better = "lowest-cost" if priced else "fewest-nodes"
        if any(pool.strategy for pool in settings.pools.values()) or settings.strategy in (better, "lowest-cost"):
            return None
        # One change against both refusals: the same thing is behind them.
        return self.setting(Reason.NO_PLACE_AFTER_PLAN, "strategy", better, flag=f"--strategy {better}")

    def _entry(self, fact: NodeFacts) -> str:
        return fact.pool if fact.pool in self.settings.pools else EVERY_OTHER_POOL


def _above(ratio: float) -> float:
    """Return the next hundredth: the limit is exclusive."""
    return math.floor(ratio * 100 + 1) / 100 if math.isfinite(ratio) else math.inf


def _highest(plan: Plan, facts: Facts) -> float:
    """Return the highest CPU ratio that one of *facts* had when *plan* removed its node."""
    received: dict[str, int] = {}
    highest = 0.0
    for removal in plan.removals:
        fact = facts.get(removal.node)
        if fact is not None:
            more = received.get(removal.node, 0) / max(1, fact.view.node.allocatable.get("cpu", 0))
            highest = max(highest, fact.cpu_ratio + more)
        for move in removal.moves:
            received[move.target] = received.get(move.target, 0) + move.pod.requests.get("cpu", 0)
    return highest
