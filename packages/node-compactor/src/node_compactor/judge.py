"""The compactor's judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure.

The evidence of cool-downs, after nodes were added and after drains, outlives a restart: nodes carry their creation
times, and the history that all controllers share has the endings of drains. A sibling's drain counts like one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from node_compactor.gates import (
    CompactorGates,
    age_check,
    kinds,
    kinds_of,
    mark_check,
    pool_checks,
    pool_minimum,
    utilization_check,
)
from node_compactor.marking import CONTROLLER
from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.cluster import Snapshot
from tightship.cluster.pools import pool_of, shown
from tightship.objects import Node
from tightship.objects.drain_record import Begun, Ending, Finished
from tightship.objects.reasons import Check, Reason, Refusal, refusals
from tightship.planning.demand import ReservedDemand
from tightship.planning.evaluate import Facts, Judge
from tightship.planning.facts import FactRules, NodeFacts, added, count_at_claim, not_autoscaled
from tightship.planning.plan import STRATEGIES, STRATEGIES_BY_CPU, PerPool, Placement, Strategy
from tightship.planning.utilization import UtilizationRules
from tightship.rules.additions import EVERY_POOL, Pause, longest, newest, pause
from tightship.rules.limits import CLUSTER, claimable, count_in_drain, group_minimum, node_budget, zone_budget
from tightship.rules.node_groups import NodeGroups
from tightship.rules.nodes import NodeRules, opt_outs, undeletable
from tightship.rules.rates import Rates, rate_checks

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
            *(not_autoscaled(node, groups, self.rules.nodes) if group is None else ()),
        ]

    def tells_minimum(self, pool: str) -> bool:
        """Whether the settings give *pool* a minimum, be it 0."""
        own = self.settings.pool(pool)
        return own is not None and "minimum_nodes" in own.model_fields_set
