"""The refiner's judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure.

A plan ignores threshold and minimums at first, which tells how many nodes could really go, pod by pod. Then it is cut
at its first node that threshold or minimums refuse, where the older controller's loop would end.

The evidence of pauses, after a node was added and after any controller's drain, outlives a restart: creation times and
starts of drains are on the nodes, endings in the history that all controllers share. The older controller forgot its
timers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from node_refiner.excess import dedicated, taint_of_others, tainted
from node_refiner.gates import CONTROLLER, RefinerGates, UpToThreshold
from node_refiner.outlook import kinds, kinds_of, minimums, minimums_check
from node_refiner.settings import RefinerSettings
from tightship.cluster import Snapshot
from tightship.objects import Node
from tightship.objects.drain_record import Begun, Finished, Phase
from tightship.objects.reasons import Refusal, refusals
from tightship.planning.demand import ReservedDemand
from tightship.planning.evaluate import Facts, Judge
from tightship.planning.facts import FactRules, NodeFacts, added, count_at_claim, not_autoscaled
from tightship.planning.plan import Placement, Strategy
from tightship.rules.additions import Pause, longest, newest, pause
from tightship.rules.limits import CLUSTER, claimable, count_in_drain, group_minimum, node_budget, zone_budget
from tightship.rules.node_groups import NodeGroups
from tightship.rules.nodes import NodeRules, drain_record, opt_outs, undeletable
from tightship.rules.rates import Rates, rate_checks

_WHOLE = "cluster"
"""The subject of a pause."""

_Event = tuple[float, str, float, str]
"""When something happened, what, for how long the cluster pauses, and the key that sets that."""


def cooling(facts: Facts, settings: RefinerSettings, now: float, finished: Sequence[Finished] = ()) -> Pause | None:
    """Return the longest pause at *now*, ``None`` if nothing pauses drains.

    Every drain counts, whatever its ending: a drain that was given up because its controller stopped has moved pods
    too.
    """
    events = [*_added(facts, settings), *_under_way(facts, settings), *_ended(finished, settings)]
    latest = sorted(events, key=lambda each: each[1], reverse=True)
    return longest(
        *(pause(_WHOLE, what, at, length, now, who="no node is drained", key=key) for at, what, length, key in latest)
    )


def _added(facts: Facts, settings: RefinerSettings) -> Iterator[_Event]:
    last = max(newest(added(facts)).values(), key=lambda each: (each[0], each[2]), default=None)
    if last is not None:
        at, _, name = last
        yield at, f"node {name} was added", settings.time_since_last_addition, "clusterCoolDownAfterNodeAdded"


def _under_way(facts: Facts, settings: RefinerSettings) -> Iterator[_Event]:
    for name, fact in facts.items():
        record = drain_record(fact.view.node)
        since = record.entered(Phase.CLAIMED) if record is not None and record.owns_node else None
        if since is not None:
            yield since, f"a drain of node {name} began", settings.time_gap, "clusterCoolDownAfterDrain"


def _ended(finished: Sequence[Finished], settings: RefinerSettings) -> Iterator[_Event]:
    for each in finished:
        yield each.at, f"the drain of node {each.node} ended", settings.time_gap, "clusterCoolDownAfterDrain"


class RefinerJudge(Judge):
    """See :class:`tightship.planning.evaluate.Judge`."""

    def __init__(self, settings: RefinerSettings) -> None:
        self.settings = settings
        self.pace = settings
        self.placement: Placement = settings.placement
        self.steering = settings.steering_as(CONTROLLER)
        self.ahead: ReservedDemand = settings.ahead
        self.rules = FactRules(
            nodes=NodeRules(settings.disabled_rules),
            eviction=settings.eviction_rules,
            pool_labels=settings.pool_labels,
            past_budgets=settings.past_budgets,
            prices=settings.prices,
        )

    def refusals(self, fact: NodeFacts, now: float) -> list[Refusal]:
        """Return the taints of others that keep a node, unless their state is a refusal already."""
        del now
        if self.settings.count_tainted and dedicated(fact.view.node):
            return []
        found = tainted(fact.view.node, {refusal.reason for refusal in fact.refusals})
        return [] if found is None else [found]

    def gates(self, snapshot: Snapshot, facts: Facts, now: float) -> RefinerGates:
        """Return the threshold, the minimums and the plan's size."""
        return RefinerGates(self.settings, snapshot, facts, now)

    def strategy(self, facts: Facts) -> Strategy:
        """Return the strategy that tries candidates in the configured order."""
        del facts
        return UpToThreshold(self.settings)

    def pauses(self, facts: Facts, finished: Sequence[Finished], now: float) -> Callable[[str], Pause | None]:
        """Return why all pools pause at *now*: the refiner's cool-downs apply to the whole cluster."""
        pause = cooling(facts, self.settings, now, finished)
        return lambda _: pause

    def rates(self, pool: str) -> Sequence[Rates]:
        """Return the rates of the cluster."""
        del pool
        return (self.settings.rates,) if self.settings.rates.limited else ()

    def room(self, node: str, facts: Facts, claimed: Collection[str], begun: Begun = Begun()) -> Refusal | None:
        """Return why *node* may not be claimed beside the nodes *claimed* after what has *begun*, ``None`` if it may.

        The claim checks the minimums again: nodes that siblings have claimed since the plan do not remain.
        """
        fact, count = facts[node], count_at_claim(node, facts, claimed, kinds_of)
        zone = zone_budget(self.settings.zone_budget, fact.view.node, count)
        limits = (node_budget(self.settings.cluster_budget, CLUSTER, count), *zone, *group_minimum(fact.group))
        rates = rate_checks(self.rates(fact.pool), begun, node, fact.evict)
        least = minimums_check(minimums(self.settings), count, node)
        return claimable(node, claimed, (*(each.check(count, node) for each in limits), least, *rates))

    def node_refusals(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
        """Return the refusals that keep *node* of *snapshot* as a whole; they may also appear during its drain."""
        groups = NodeGroups(snapshot.autoscaler_statuses, self.settings.pool_labels)
        group, least = groups.of(node), minimums(self.settings)
        size = group_minimum(group)
        count = count_in_drain(snapshot, node, (*least, *size), lambda each: kinds(each, groups.of(each)))
        tainted_by_others = taint_of_others(node)
        counted = self.settings.count_tainted and dedicated(node)
        return [
            *opt_outs(snapshot.at(node), self.rules.nodes, snapshot.node_pools),
            *undeletable(snapshot, node, self.rules.nodes),
            *refusals((each.check(count, node.name) for each in size), node.name),
            *(not_autoscaled(node, groups, self.rules.nodes) if group is None else ()),
            *((tainted_by_others,) if tainted_by_others is not None and not counted else ()),
            *refusals((minimums_check(least, count, node.name),), node.name),
        ]
