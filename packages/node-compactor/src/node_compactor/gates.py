"""The compactor's gates for one node, open ones too, each with its numbers and what would open it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from node_compactor.policy import Marks, NodeFacts
from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.core.counting import counted
from tightship.core.durations import format_duration
from tightship.core.reasons import Reason
from tightship.planning.pools import shown
from tightship.report import GateCheck


class GateChecks:
    """Looks at the gates as they stand before the plan; *facts* are those of all nodes."""

    def __init__(
        self, settings: CompactorSettings, facts: Mapping[str, NodeFacts], now: float, marks: Marks = Marks()
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._now = now
        self._marks = marks

    def of(self, name: str) -> tuple[GateCheck, ...]:
        """Return the gates of node *name*; those of a pool that is not configured or enabled end with that."""
        fact = self._facts[name]
        pool = shown(fact.pool)
        if fact.settings is None:
            fix = f'add pool {pool} or "*" to nodePools'
            return (_closed("pool", Reason.POOL_NOT_CONFIGURED, f"pool {pool} is not configured", fix), self._age(fact))
        if not fact.settings.enabled:
            fix = f"set enabled: true for pool {pool}"
            return (_closed("pool", Reason.POOL_DISABLED, f"pool {pool} is not enabled", fix), self._age(fact))
        return (
            GateCheck("pool", Reason.POOL_DISABLED, True, f"pool {pool} is enabled"),
            self._utilization(fact, fact.settings),
            self._age(fact),
            *self._mark(fact),
            self._required(fact, fact.settings),
            *self._minimum(fact, fact.settings),
            *self._budgets(fact, fact.settings),
            *self._plan_size(),
        )

    def _utilization(self, fact: NodeFacts, settings: PoolSettings) -> GateCheck:
        ratio, limit = fact.cpu_ratio, settings.limit
        name, reason = "CPU ratio", Reason.NOT_UNDERUTILIZED
        if ratio < limit:
            return GateCheck(
                name, reason, True, f"CPU requests are {ratio:.3f} of allocatable, under the limit {limit:g}"
            )
        detail = f"CPU requests are {ratio:.3f} of allocatable, the limit is {limit:g}"
        if not math.isfinite(ratio):
            return _closed(name, reason, detail, "")
        # The limit is exclusive: the next hundredth above the ratio lets the node through.
        wanted = math.floor(ratio * 100 + 1) / 100
        return _closed(
            name, reason, detail, f"raise the limit of pool {shown(fact.pool)} to {wanted:.2f} (--limit {wanted:.2f})"
        )

    def _age(self, fact: NodeFacts) -> GateCheck:
        age, wanted = self._now - fact.view.node.created, self._settings.minimum_age
        detail = f"{format_duration(age)} old, {format_duration(wanted)} wanted"
        if age >= wanted:
            return GateCheck("age", Reason.TOO_YOUNG, True, detail)
        return _closed("age", Reason.TOO_YOUNG, detail, f"wait {format_duration(wanted - age)}, or set --min-age lower")

    def _mark(self, fact: NodeFacts) -> tuple[GateCheck, ...]:
        wanted = self._settings.marked_for
        if not wanted:
            return ()
        since = self._marks.since.get(fact.view.name)
        marked = 0.0 if since is None else max(0.0, self._now - since)
        detail = f"marked for {format_duration(marked)}, {format_duration(wanted)} wanted"
        if marked >= wanted:
            return (GateCheck("mark", Reason.NOT_MARKED_LONG_ENOUGH, True, detail),)
        fix = f"wait until the node has been underutilized for {format_duration(wanted)}, or set --marked-for lower"
        return (_closed("mark", Reason.NOT_MARKED_LONG_ENOUGH, detail, fix),)

    def _required(self, fact: NodeFacts, settings: PoolSettings) -> GateCheck:
        mates = self._mates(fact)
        have, draining = sum(1 for each in mates if each.underutilized), sum(1 for each in mates if each.draining)
        needed = settings.required_count + draining
        of = f"of the pool's {counted(len(mates), 'node')}"
        are = counted(have, f"{of} is", f"{of} are")
        detail = f"{are} underutilized, {counted(needed, 'is', 'are')} required"
        fix = f"lower the required count of pool {shown(fact.pool)} to {max(0, have - draining)} (--required-count)"
        reason = Reason.REQUIRED_COUNT_NOT_REACHED
        # As the plan grows, fewer are left: then the plan's own refusal takes the place of this check.
        return GateCheck("required count", reason, have >= needed, detail, fix)

    def _minimum(self, fact: NodeFacts, settings: PoolSettings) -> tuple[GateCheck, ...]:
        if not settings.minimum_nodes:
            return ()
        mates = self._mates(fact)
        keeps = len(mates) - sum(1 for each in mates if each.draining) - 1
        detail = f"the pool would keep {counted(keeps, 'node')}, its minimum is {settings.minimum_nodes}"
        fix = f"lower the minimum of pool {shown(fact.pool)} (--min-nodes)"
        return (GateCheck("minimum size", Reason.POOL_MIN_SIZE, keeps >= settings.minimum_nodes, detail, fix),)

    def _budgets(self, fact: NodeFacts, settings: PoolSettings) -> tuple[GateCheck, ...]:
        found: list[GateCheck] = []
        for name, budget, nodes, flag in (
            ("pool's budget", settings.budget, self._mates(fact), "--budget"),
            ("cluster's budget", self._settings.cluster_budget, list(self._facts.values()), "--cluster-budget"),
        ):
            if budget is None:
                continue
            out = sum(1 for each in nodes if each.draining or not each.view.node.ready)
            allowed = budget.allows(len(nodes))
            of = f"of {counted(len(nodes), 'node')}"
            detail = f"{counted(out, f'{of} is', f'{of} are')} out, {allowed} may be at once ({budget})"
            found.append(GateCheck(name, Reason.BUDGET_EXHAUSTED, out < allowed, detail, f"raise the budget ({flag})"))
        return tuple(found)

    def _plan_size(self) -> tuple[GateCheck, ...]:
        allowed = self._settings.max_nodes
        if allowed is None:
            return ()
        detail = f"the plan stops after {counted(allowed, 'node')}"
        return (GateCheck("plan size", Reason.MAX_NODES_REACHED, True, detail, "raise --max-nodes"),)

    def _mates(self, fact: NodeFacts) -> list[NodeFacts]:
        return [each for each in self._facts.values() if each.pool == fact.pool]


def _closed(name: str, reason: Reason, detail: str, fix: str) -> GateCheck:
    return GateCheck(name, reason, False, detail, fix)
