"""The compactor's gates, and its judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure.

A gate is a function that returns a check, before a plan and while it grows.

The evidence of cool-downs, after nodes were added and after drains, outlives a restart: nodes carry their creation
times, and the history that all controllers share has the endings of drains. A sibling's drain counts like one of ours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from node_compactor.marking import CONTROLLER, marked_since
from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.cluster import Snapshot
from tightship.cluster.pools import pool_of, shown
from tightship.objects import Node, NodeGroup
from tightship.objects.counting import counted
from tightship.objects.drain_record import Begun, Ending, Finished
from tightship.objects.reasons import Check, Reason, Refusal, refusals
from tightship.objects.times import format_duration
from tightship.planning.demand import ReservedDemand
from tightship.planning.evaluate import Facts, Judge
from tightship.planning.facts import (
    CountInPlan,
    FactRules,
    NodeFacts,
    added,
    count_at_claim,
    count_before_plan,
    not_autoscaled,
)
from tightship.planning.plan import (
    STRATEGIES,
    STRATEGIES_BY_CPU,
    Candidate,
    Gates,
    PerPool,
    Placement,
    Planner,
    Strategy,
)
from tightship.planning.plan.model import UtilizationRules
from tightship.rules.disruption_cost import saving_check
from tightship.rules.limits import (
    CLUSTER,
    Count,
    Limit,
    claimable,
    count_in_drain,
    group_kind,
    group_minimum,
    node_budget,
    zone_budget,
    zone_kind,
)
from tightship.rules.node_groups import NodeGroups
from tightship.rules.nodes import NodeRules, opt_outs, undeletable
from tightship.rules.rates import Rates, rate_checks
from tightship.rules.waiting import EVERY_POOL, Pause, longest, newest, pause


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
                own = self.underutilized.get(fact.pool, ())
                if name in own and fact.cpu_ratio + planner.received_ratio(name) >= gates.limit_of(fact.pool):
                    self.underutilized[fact.pool].discard(name)
        self._seen = len(planner.removals)


_REMOVED = frozenset({Ending.HANDED_OVER.value, Ending.NODE_GONE.value})
_NO_FAILURES = frozenset({Reason.RELEASED})

_Event = tuple[float, str, str, float, float]
"""When something happened, in which pool, what, and for how long its pool and all pools pause."""


def cooling(
    facts: Facts, finished: Sequence[Finished], settings: CompactorSettings, now: float
) -> Callable[[str], Pause | None]:
    """Return the function from a pool to its longest pause at *now*.

    Only the newest node of a pool counts, as evidence of a scale-up. A drain that was given up because its controller
    stopped is no failure.
    """
    events = [*_added(facts, settings), *_ended(finished, settings)]

    def of(pool: str) -> Pause | None:
        name = shown(pool)
        own = (
            pause(name, what, at, length, now, who=f"pool {name} pauses")
            for at, where, what, length, _ in events
            if where == pool
        )
        return longest(*own, *(pause(name, what, at, length, now, who=EVERY_POOL) for at, _, what, _, length in events))

    return of


def _added(facts: Facts, settings: CompactorSettings) -> Iterator[_Event]:
    for pool, (at, _, name) in newest(added(facts)).items():
        own = _own(settings.pool(pool), "after_added", settings.after_added)
        yield at, pool, f"node {name} was added to pool {shown(pool)}", own, settings.all_after_added


def _ended(finished: Sequence[Finished], settings: CompactorSettings) -> Iterator[_Event]:
    for each in finished:
        own = settings.pool(each.pool)
        if each.ending in _REMOVED:
            what = f"node {each.node} of pool {shown(each.pool)} was removed"
            pauses = _own(own, "after_deleted", settings.after_deleted), settings.all_after_deleted
        elif each.ending == Ending.RESTORED.value and each.reason.partition(" ")[0] not in _NO_FAILURES:
            why = f" ({each.reason})" if each.reason else ""
            what = f"the drain of node {each.node} in pool {shown(each.pool)} was given up{why}"
            pauses = _own(own, "after_failure", settings.after_failure), settings.all_after_failure
        else:
            continue
        yield each.at, each.pool, what, *pauses


def _own(pool: PoolSettings | None, field: str, otherwise: float) -> float:
    value: float | None = getattr(pool, field, None)
    return otherwise if value is None else value


class CompactorJudge(Judge):
    """See :class:`tightship.planning.evaluate.Judge`."""

    def __init__(self, settings: CompactorSettings) -> None:
        self.settings = settings
        self.pace = settings
        self.placement: Placement = settings.placement
        self.steering = settings.steering_as(CONTROLLER)
        self.ahead: ReservedDemand = settings.ahead
        self.rules = FactRules(
            nodes=NodeRules(settings.disabled_rules),
            eviction=settings.eviction_rules,
            counted=UtilizationRules(settings.ignore_daemonsets, settings.ignore_mirror_pods),
            pool_labels=settings.pool_labels,
            past_budgets=settings.past_budgets,
            prices=settings.prices,
        )

    def refusals(self, fact: NodeFacts, now: float) -> list[Refusal]:
        """Return the refusals of pool, age, limit and mark against one node, whatever a plan does."""
        settings = self.settings.pool(fact.pool)
        checks: list[Check | None] = [*pool_checks(fact.pool, settings), age_check(fact, self.settings, now)]
        if settings is not None and settings.enabled:
            limit = utilization_check(fact.pool, fact.cpu_ratio, settings, fact.ratio_before)
            checks += [limit, mark_check(fact, self.settings, now)] if limit.open else [limit]
        return refusals(checks, fact.view.name)

    def gates(self, snapshot: Snapshot, facts: Facts, now: float) -> CompactorGates:
        """Return the gates of pools and of the plan's size."""
        del snapshot
        return CompactorGates(self.settings, facts, now)

    def strategy(self, facts: Facts) -> Strategy:
        """Return the strategy of all enabled pools, or a strategy that plans each pool by its own if they differ."""
        chosen: dict[str, str] = {}
        for name in sorted({fact.pool for fact in facts.values()}):
            pool = self.settings.pool(name)
            if pool is not None and pool.enabled:
                chosen[name] = pool.strategy or self.settings.strategy
        distinct = set(chosen.values()) or {self.settings.strategy}
        strategies = STRATEGIES_BY_CPU if self.settings.utilization == "cpu" else STRATEGIES
        if len(distinct) == 1:
            return strategies[distinct.pop()]
        return PerPool(chosen, self.settings.strategy, strategies)

    def pauses(self, facts: Facts, finished: Sequence[Finished], now: float) -> Callable[[str], Pause | None]:
        """Return the function from a pool to its cool-down at *now*."""
        return cooling(facts, finished, self.settings, now)

    def rates(self, pool: str) -> Sequence[Rates]:
        """Return the rates of the cluster and of *pool*."""
        found, own = [self.settings.rates], self.settings.pool(pool)
        if own is not None:
            found.append(msgspec.structs.replace(msgspec.convert(own, Rates, from_attributes=True), of_pool=pool))
        return [each for each in found if each.limited]

    def room(self, node: str, facts: Facts, claimed: Collection[str], begun: Begun = Begun()) -> Refusal | None:
        """Return why *node* may not be claimed beside the nodes *claimed* after what has *begun*, ``None`` if it may.

        *facts* belong to the latest snapshot. Unlike a plan's gates, this method counts the siblings' later claims.
        """
        fact, count = facts[node], count_at_claim(node, facts, claimed, kinds_of)
        own = self.settings.pool(fact.pool)
        limits = [node_budget(self.settings.cluster_budget, CLUSTER, count), *group_minimum(fact.group)]
        if own is not None and own.budget is not None:
            limits.append(node_budget(own.budget, f"pool {shown(fact.pool)}", count))
        limits += [*zone_budget(self.settings.zone_budget, fact.view.node, count), *pool_minimum(fact.pool, own)]
        rates = rate_checks(self.rates(fact.pool), begun, node, fact.evict)
        return claimable(node, claimed, (*(each.check(count, node) for each in limits), *rates))

    def node_refusals(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
        """Return the refusals that keep *node* of *snapshot* as a whole; they may also appear during its drain."""
        groups, labels = NodeGroups(snapshot.autoscaler_statuses, self.settings.pool_labels), self.settings.pool_labels
        pool = pool_of(node, labels)
        own, group = self.settings.pool(pool), groups.of(node)
        least, size = pool_minimum(pool, own), group_minimum(group)
        count = count_in_drain(
            snapshot, node, (*least, *size), lambda each: kinds(pool_of(each, labels), groups.of(each))
        )
        return [
            *opt_outs(snapshot.at(node), self.rules.nodes, snapshot.node_pools),
            *undeletable(snapshot, node, self.rules.nodes),
            *refusals((*pool_checks(pool, own), *(each.check(count, node.name) for each in least)), node.name),
            *refusals((each.check(count, node.name) for each in size), node.name),
            *not_autoscaled(node, groups, self.rules.nodes),
        ]

    def tells_minimum(self, pool: str) -> bool:
        """Whether the settings give *pool* a minimum, be it 0."""
        own = self.settings.pool(pool)
        return own is not None and "minimum_nodes" in own.model_fields_set
