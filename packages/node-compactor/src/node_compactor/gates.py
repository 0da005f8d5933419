"""The compactor's gates: functions that return a check, before a plan and while it grows. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from node_compactor.marking import marked_since
from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.cluster.pools import shown
from tightship.objects import NodeGroup
from tightship.objects.counting import counted
from tightship.objects.reasons import Check, Reason, Refusal, refusals
from tightship.objects.times import format_duration
from tightship.planning.evaluate import Facts
from tightship.planning.facts import CountInPlan, NodeFacts, count_before_plan
from tightship.planning.plan import Candidate, Gates, Planner
from tightship.rules.disruption_cost import saving_check
from tightship.rules.limits import (
    CLUSTER,
    Count,
    Limit,
    group_kind,
    group_minimum,
    node_budget,
    zone_budget,
    zone_kind,
)


def pool_checks(pool: str, settings: PoolSettings | None) -> tuple[Check, ...]:
    """Return whether nodes of *pool*, which has *settings*, are drained at all."""
    name = shown(pool)
    if settings is None:
        detail = f'pool {name} is not in the configuration, and there is no "*" entry'
        return (Check("pool", Reason.POOL_NOT_CONFIGURED, False, detail, f'add pool {name} or "*" to nodePools'),)
    detail = f"pool {name} is enabled" if settings.enabled else f"pool {name} is not enabled"
    fix = f"set enabled: true for pool {name}"
    return (Check("pool", Reason.POOL_DISABLED, settings.enabled, detail, fix),)


def utilization_check(pool: str, ratio: float, settings: PoolSettings, before: float | None = None) -> Check:
    """Return whether a node with this *ratio* of CPU requests is underutilized.

    *before* is the ratio without the pods of nodes planned before, if there may be such pods.
    """
    limit = settings.limit
    have = "CPU requests are" if before is None else "with the pods of nodes planned before, CPU requests are"
    if ratio < limit:
        detail = f"{have} {ratio:.3f} of allocatable, under the limit {limit:g}"
        return Check("CPU ratio", Reason.NOT_UNDERUTILIZED, True, detail)
    detail = f"{have} {ratio:.3f} of allocatable, the limit is {limit:g}"
    fix = ""
    if math.isfinite(ratio):
        # The limit is exclusive: the next hundredth above the ratio lets the node through.
        wanted = math.floor(ratio * 100 + 1) / 100
        fix = f"raise the limit of pool {shown(pool)} to {wanted:.2f} (--limit {wanted:.2f})"
    filled = before is not None and before < limit
    reason = Reason.FILLED_BY_PLAN if filled else Reason.NOT_UNDERUTILIZED
    return Check("CPU ratio", reason, False, detail, fix)


def age_check(fact: NodeFacts, settings: CompactorSettings, now: float) -> Check:
    """Return whether the node is old enough at *now*."""
    age, wanted = now - fact.view.node.created, settings.minimum_age
    detail = f"is {format_duration(age)} old"
    if age >= wanted:
        return Check("age", Reason.TOO_YOUNG, True, f"{detail}, {format_duration(wanted)} wanted")
    fix = f"wait {format_duration(wanted - age)}, or set --min-age lower"
    return Check("age", Reason.TOO_YOUNG, False, f"{detail}, younger than {format_duration(wanted)}", fix)


def mark_check(fact: NodeFacts, settings: CompactorSettings, now: float) -> Check | None:
    """Return whether the node has been marked for long enough at *now*; ``None`` if no mark is required."""
    wanted = settings.marked_for
    if not wanted:
        return None
    since = marked_since(fact.view.node)
    marked = 0.0 if since is None else max(0.0, now - since)
    detail = f"has been marked for {format_duration(marked)}, {format_duration(wanted)} are needed"
    fix = f"wait until the node has been underutilized for {format_duration(wanted)}, or set --marked-for lower"
    return Check("mark", Reason.NOT_MARKED_LONG_ENOUGH, marked >= wanted, detail, fix)


def required_check(pool: str, have: int, draining: int, settings: PoolSettings) -> Check:
    """Return whether *pool* has enough underutilized nodes; those in drain are required on top."""
    also = f" besides the {draining} in drain" if draining else ""
    needed = counted(settings.required_count, "is", "are")
    detail = f"pool {shown(pool)} has {counted(have, 'underutilized node')}, and {needed} required{also}"
    fix = f"lower the required count of pool {shown(pool)} to {max(0, have - draining)} (--required-count)"
    enough = have >= settings.required_count + draining
    return Check("required count", Reason.REQUIRED_COUNT_NOT_REACHED, enough, detail, fix)


def kinds(pool: str, group: NodeGroup | None) -> tuple[str, ...]:
    """Return the kinds, as limits count them, of a node of *pool* and *group*."""
    return CLUSTER, f"pool {shown(pool)}", *group_kind(group)


def kinds_of(fact: NodeFacts) -> tuple[str, ...]:
    """Return the kinds of the node of *fact*."""
    return (*kinds(fact.pool, fact.group), *zone_kind(fact.view.node))


def pool_minimum(pool: str, settings: PoolSettings | None) -> tuple[Limit, ...]:
    """Return the minimum of *pool*, nothing if its *settings* have none."""
    if settings is None or not settings.minimum_nodes:
        return ()
    kind, least = f"pool {shown(pool)}", settings.minimum_nodes
    return (
        Limit(
            gate="minimum size",
            kind=kind,
            reason=Reason.POOL_MIN_SIZE,
            least=least,
            detail=lambda left: f"{kind} would keep {counted(left, 'node')}, its minimum is {least}",
            fix=lambda _: f"lower the minimum of {kind} (--min-nodes)",
        ),
    )


def plan_size_check(planned: int, settings: CompactorSettings) -> Check | None:
    """Return whether a plan with *planned* removals may grow; ``None`` if plans have no limit."""
    allowed = settings.max_nodes
    if allowed is None:
        return None
    detail = f"the plan stops after {counted(allowed, 'node')}"
    return Check("plan size", Reason.MAX_NODES_REACHED, planned < allowed, detail, "raise --max-nodes")


def underutilized(fact: NodeFacts, settings: CompactorSettings, now: float) -> bool:
    """Whether the node is underutilized by the older controller's rule: enabled, old enough, under the limit."""
    pool = settings.pool(fact.pool)
    return (
        pool is not None
        and pool.enabled
        and fact.cpu_ratio < pool.limit
        and now - fact.view.node.created >= settings.minimum_age
        and not fact.draining
    )


class CompactorGates(Gates):
    """The gates over one set of facts; see :class:`tightship.planning.plan.Gates`.

    *underutilized* holds the underutilized nodes before a plan.
    """

    def __init__(self, settings: CompactorSettings, facts: Facts, now: float) -> None:
        self._settings = settings
        self._facts = facts
        self._now = now
        self._count = count_before_plan(facts, kinds_of)
        self._in_plan = CountInPlan(self._count)
        self._in_drain = Counter(fact.pool for fact in facts.values() if fact.draining)
        self.underutilized = frozenset(name for name, fact in facts.items() if underutilized(fact, settings, now))
        self._progress = _Progress(None, self)

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return the refusals of the pool's gates and the plan's size against removing *candidate* next."""
        settings = self._settings.pool(candidate.pool)
        if settings is None:
            return []
        if self._progress.planner is not planner:
            self._progress = _Progress(planner, self)
        self._progress.catch_up()
        ratio = planner.ratio(candidate.name)
        count, group = self._in_plan.after(planner), self._facts[candidate.name].group
        checks = self._growing(candidate.name, candidate.pool, settings, self._progress, count)
        size = (each.check(count, candidate.name) for each in group_minimum(group))
        limit = utilization_check(candidate.pool, ratio, settings, candidate.ratio)
        evictions = len(planner.pods_of(candidate))
        saving = saving_check(candidate.price, evictions, self._settings.minimum_saving)
        return [*refusals((limit, *checks), candidate.name), *refusals((*size, saving), candidate.name)]

    def checks(self, name: str) -> tuple[Check, ...]:
        """Return the gates as they stand before a plan; for a pool that is not drained, only its own and the age."""
        fact, settings = self._facts[name], self._settings
        pool = settings.pool(fact.pool)
        first, age = pool_checks(fact.pool, pool), age_check(fact, settings, self._now)
        if pool is None or not pool.enabled:
            return (*first, age)
        marks = mark_check(fact, settings, self._now)
        growing = self._growing(name, fact.pool, pool, _Progress(None, self), self._count)
        size = (each.check(self._count, name) for each in group_minimum(fact.group))
        limit = utilization_check(fact.pool, fact.cpu_ratio, pool)
        price = None if fact.price is None else fact.price.hourly
        saving = saving_check(price, len(fact.evict), settings.minimum_saving)
        found = (*first, limit, age, marks, *growing, *size, saving, *self._budgets(name, pool))
        return tuple(each for each in found if each is not None)

    def _growing(
        self, name: str, pool: str, settings: PoolSettings, progress: _Progress, count: Count
    ) -> Iterator[Check | None]:
        underutilized = len(progress.underutilized.get(pool, ()))
        yield required_check(pool, underutilized, self._in_drain[pool], settings)
        for each in pool_minimum(pool, settings):
            yield each.check(count, name)
        yield plan_size_check(progress.removed, self._settings)

    def _budgets(self, name: str, settings: PoolSettings) -> Iterator[Check]:
        """Yield the checks of the budgets. Budgets limit the pace, so they never shorten a plan."""
        pool, cluster = f"pool {shown(self._facts[name].pool)}", self._settings.cluster_budget
        if settings.budget is not None:
            yield node_budget(settings.budget, pool, self._count, "--budget").check(self._count, name)
        yield node_budget(cluster, CLUSTER, self._count, "--cluster-budget").check(self._count, name)
        for each in zone_budget(self._settings.zone_budget, self._facts[name].view.node, self._count):
            yield each.check(self._count, name)

    def limit_of(self, pool: str) -> float:
        """Return the limit of *pool*, 0 if it has none."""
        settings = self._settings.pool(pool)
        return 0.0 if settings is None else settings.limit

    def __contains__(self, name: str) -> bool:
        return name in self._facts

    def fact(self, name: str) -> NodeFacts:
        """Return the facts of node *name*."""
        return self._facts[name]


class _Progress:
    def __init__(self, planner: Planner | None, gates: CompactorGates) -> None:
        self.planner = planner
        self.removed = 0
        self.underutilized: dict[str, set[str]] = {}
        self._gates = gates
        self._seen = 0
        for name in gates.underutilized:
            self.underutilized.setdefault(gates.fact(name).pool, set()).add(name)

    def catch_up(self) -> None:
        """Add the removals since the last call. A node that receives too many pods is no longer underutilized."""
        planner, gates = self.planner, self._gates
        if planner is None:
            return
        for removal in planner.removals[self._seen :]:
            self.removed += 1
            self.underutilized.get(gates.fact(removal.node).pool, set()).discard(removal.node)
            for name in {move.target for move in removal.moves}:
                if name not in gates:
                    continue  # a virtual node
                fact = gates.fact(name)
                if fact.cpu_ratio + planner.received_ratio(name) >= gates.limit_of(fact.pool):
                    self.underutilized.get(fact.pool, set()).discard(name)
        self._seen = len(planner.removals)
