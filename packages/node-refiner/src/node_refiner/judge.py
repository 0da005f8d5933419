"""The refiner's gates, and its judge: its settings as the rules of an evaluation, of a claim, and of a drain. Pure.

The gates end a plan where the outlook does, and explain themselves for a single node.

A plan ignores threshold and minimums at first, which tells how many nodes could really go, pod by pod. Then it is cut
at its first node that threshold or minimums refuse, where the older controller's loop would end.

The evidence of pauses, after a node was added and after any controller's drain, outlives a restart: creation times and
starts of drains are on the nodes, endings in the history that all controllers share. The older controller forgot its
timers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from node_refiner.excess import dedicated, taint_of_others, tainted
from node_refiner.ordering import Keys, Scoring
from node_refiner.outlook import (
    Outlook,
    ended,
    kinds,
    kinds_of,
    minimums,
    minimums_check,
    outlooks,
    plan_size_check,
    pool_of,
    threshold_check,
)
from node_refiner.settings import RefinerSettings
from tightship.cluster import Snapshot
from tightship.objects import Node
from tightship.objects.counting import counted
from tightship.objects.drain_record import Begun, Finished, Phase
from tightship.objects.reasons import Check, Reason, Refusal, refusals, remark
from tightship.objects.times import format_duration, rfc3339
from tightship.planning.demand import ReservedDemand
from tightship.planning.evaluate import Facts, Judge
from tightship.planning.facts import (
    CountInPlan,
    FactRules,
    NodeFacts,
    added,
    candidates_of,
    count_at_claim,
    count_before_plan,
    not_autoscaled,
)
from tightship.planning.plan import Candidate, Gates, Ordered, Placement, Planner, Removal, Strategy
from tightship.planning.plan.model import CANDIDATE
from tightship.planning.plan.strategies import NewPlanner, Outcome
from tightship.rules.disruption import DisruptionLedger, RenewedLedger
from tightship.rules.disruption_cost import saving_check
from tightship.rules.limits import CLUSTER, Limit, claimable, count_in_drain, group_minimum, node_budget, zone_budget
from tightship.rules.node_groups import NodeGroups
from tightship.rules.nodes import NodeRules, drain_record, opt_outs, undeletable
from tightship.rules.rates import Rates, rate_checks
from tightship.rules.waiting import Pause, longest, newest, pause

_SPENT = Reason.PDB_SPENT_BY_PLAN

CONTROLLER = "node-refiner"
"""Our name in annotations, taints, claims and metrics."""


class RefinerGates(Gates):
    """The gates over one set of facts; see :class:`tightship.planning.plan.Gates`.

    A plan is *free* at first: only what nobody would delete is held back. Then :attr:`outlooks` say where it ends.
    """

    def __init__(self, settings: RefinerSettings, snapshot: Snapshot, facts: Facts, now: float) -> None:
        self.outlooks: Mapping[str, Outlook] = {}
        self._explained = math.inf
        self._tried: dict[str, int] = {}
        """How many removals the free plan had when it first tried each candidate."""
        self._whole = 0
        """How many removals of the free plan come before the first that its end takes back."""
        self._settings = settings
        self._snapshot = snapshot
        self._facts = facts
        self._now = now
        self._places: dict[str, int] | None = None
        self._count = count_before_plan(facts, kinds_of)
        self._in_plan = CountInPlan(self._count)

    @property
    def outlook(self) -> Outlook:
        """The outlook of all nodes that are of no dedicated pool."""
        return self.outlooks[""]

    def begin(self, explained: float) -> None:
        """Let a plan begin, which explains its refusals until it has removed *explained* nodes."""
        self.outlooks, self._explained, self._tried = {}, explained, {}

    def end(self, planner: Planner, at_once: int) -> set[str]:
        """Find out where the free plan of *planner* ends, whose first *at_once* removals need no renewed budget. Return
        the nodes that go.
        """
        self.outlooks = outlooks(
            planner.removals,
            self._facts,
            self._settings,
            at_once=at_once,
            count=self._count,
            starting_on=planner.start.starting_on,
        )
        goes = [self._goes(each.node) for each in planner.removals[:at_once]]
        self._whole = goes.index(False) if False in goes else len(goes)
        return {each.node for each, went in zip(planner.removals, goes, strict=False) if went}

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return the refusals that end the plan before the turn of *candidate*, and the candidate's other refusals.

        The free plan refused a candidate without a turn in a state that the real plan may never reach. So once the real
        plan has ended, such a candidate gets another attempt on the resulting cluster.
        """
        if not self.outlooks:
            self._tried.setdefault(candidate.name, len(planner.removals))
            planner.explain = len(planner.removals) < self._explained
            return self._size(candidate, planner)
        ahead = self._ahead(candidate.name)
        turn = ahead.turns.get(candidate.name)
        if not ahead.ends or (self._own(ahead, planner.removals) if turn is None else turn.number) < ahead.goes:
            return self._size(candidate, planner)
        found = ended(candidate.name, ahead)
        if turn is None or turn.later:
            found += planner.attempt(candidate, keep=False)
        return sorted({*found, *self._size(candidate, planner)})

    def holds(self, name: str, planner: Planner) -> bool:
        """Whether what the free plan of *planner* found against node *name* holds for the plan up to its end.

        Without a turn of its own, a candidate must have been tried before any removal that the end takes back.
        """
        ahead = self._ahead(name)
        turn = ahead.turns.get(name)
        if turn is not None or not ahead.ends:
            return turn is None or turn.number < ahead.goes
        tried, removals = self._tried[name], planner.removals
        if tried > self._whole:
            return False
        return self._own(ahead, removals[:tried]) < ahead.goes

    def _goes(self, name: str) -> bool:
        ahead = self._ahead(name)
        return ahead.turns[name].number < ahead.goes

    def checks(self, name: str) -> tuple[Check, ...]:
        """Return the gates as they stand at the node's turn, or before the plan if the node has no turn."""
        gates = (self._excess(name), self._minimums(name), plan_size_check(self._before(name), self._settings))
        fact = self._facts[name]
        price = None if fact.price is None else fact.price.hourly
        saving = saving_check(price, len(fact.evict), self._settings.minimum_saving)
        return (
            self._order(name),
            *(self._as_ended(each, name) for each in gates if each is not None),
            *(each.check(self._count, name) for each in group_minimum(fact.group)),
            *(each.check(self._count, name) for each in self._zone(name)),
            *((saving,) if saving is not None else ()),
            self._pauses(),
            *_marks(fact.view.node),
        )

    def _zone(self, name: str) -> tuple[Limit, ...]:
        return zone_budget(self._settings.zone_budget, self._facts[name].view.node, self._count)

    def _size(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return what its group's size and its saving refuse of *candidate*, after what *planner* has removed."""
        count, limits = self._in_plan.after(planner), group_minimum(self._facts[candidate.name].group)
        saving = saving_check(candidate.price, len(planner.pods_of(candidate)), self._settings.minimum_saving)
        return refusals((*(each.check(count, candidate.name) for each in limits), saving), candidate.name)

    def _order(self, name: str) -> Check:
        fact, settings = self._facts[name], self._settings
        cpu, memory = fact.cpu_ratio, fact.memory_ratio
        score = (
            f"score {Scoring(settings).of(cpu, memory):.3f} ({settings.cpu_weight:g} x {cpu:.0%} CPU + "
            f"{settings.memory_weight:g} x {memory:.0%} memory)"
        )
        places = self._order_of_candidates()
        if name not in places:
            return remark("order", f"{score}; no candidate")
        return remark("order", f"{score}; candidate {places[name]} of {len(places)} by {settings.candidate_order}")

    def _order_of_candidates(self) -> dict[str, int]:
        if self._places is None:
            snapshot, strategy = self._snapshot, UpToThreshold(self._settings)
            planner = Planner(snapshot, DisruptionLedger(snapshot), candidates_of(self._facts), "likely")
            order = sorted((strategy.key(planner, each), name) for name, each in planner.candidates.items())
            self._places = {name: number for number, (_, name) in enumerate(order, 1)}
        return self._places

    def _excess(self, name: str) -> Check:
        ahead = self._ahead(name)
        turn = ahead.turns.get(name)
        excess = ahead.counted.excess(self._facts[name].view.node) if turn is None else turn.excess
        return threshold_check(excess, len(ahead.turns) - self._before(name), self._settings)

    def _minimums(self, name: str) -> Check:
        ahead = self._ahead(name)
        return ahead.minimums.get(name) or minimums_check(minimums(self._settings), ahead.count, name)

    def _as_ended(self, check: Check, name: str) -> Check:
        """Close the gate of a node that could go if its reason ends the plan at the same or an earlier turn."""
        ahead = self._ahead(name)
        turn = ahead.turns.get(name)
        if turn is None:
            return check
        is_open = all(each.reason is not check.reason for each in ahead.reached(turn.number))
        return Check(check.gate, check.reason, is_open, check.detail)

    def _before(self, name: str) -> int:
        """Return how many nodes could go before node *name*, 0 if *name* could not go."""
        turn = self._ahead(name).turns.get(name)
        return 0 if turn is None else turn.number

    def _ahead(self, name: str) -> Outlook:
        """Return the outlook of the dedicated pool of node *name*, or of all nodes that have none."""
        if len(self.outlooks) == 1:
            return self.outlook
        return self.outlooks.get(pool_of(self._facts[name], self._settings), self.outlook)

    def _own(self, ahead: Outlook, removals: Sequence[Removal]) -> int:
        """Return how many of *removals* count for *ahead*."""
        return len(removals) if len(self.outlooks) == 1 else sum(self._ahead(each.node) is ahead for each in removals)

    def _pauses(self) -> Check:
        newest = max((fact.view.node.created for fact in self._facts.values()), default=0)
        settings, age = self._settings, format_duration(self._now - newest)
        added, gap = format_duration(settings.time_since_last_addition), format_duration(settings.time_gap)
        out = f"at most {settings.cluster_budget} out at once ({counted(self._count.out[CLUSTER], 'is', 'are')} now)"
        detail = f"while running: {added} after a node was added (the newest is {age} old), {gap} after a drain; {out}"
        return remark("pauses", detail)


class UpToThreshold(Ordered):
    """Candidates in the configured order, up to where threshold and minimums end the plan.

    The plan is made without them first, since the number of nodes that could really go counts for the threshold. It
    goes on with the evictions that PodDisruptionBudgets allow once the moved pods are Ready again: the refiner drains
    one node after another, so a budget over the pods of many nodes does not prevent their removal. Then it is cut.
    """

    grows = False

    def __init__(self, settings: RefinerSettings) -> None:
        super().__init__(settings.candidate_order, Keys(settings).of)

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round over all candidates."""
        assert isinstance(gates, RefinerGates)
        planner = new_planner(self.choose)
        explain, ledger, expected = planner.explain, planner.ledger, planner.going.names
        gates.begin((len(expected) if expected else math.inf) if explain else 0)
        stays = self.extend(planner, gates, tuple(planner.candidates.values()))
        at_once = len(planner.removals)
        planner.ledger = RenewedLedger(planner.snapshot)
        waiting = [name for name, found in stays.items() if any(each.reason is _SPENT for each in found)]
        self.extend(planner, gates, [planner.candidates[name] for name in waiting])
        goes = gates.end(planner, at_once)
        cut = planner.cut(goes, type(ledger)(planner.snapshot))
        cut.explain = explain
        done, found = {each.node for each in cut.removals}, dict[str, list[Refusal]]()
        # Without explanations, nobody asks why the others stay: only which nodes go.
        for name, candidate in planner.candidates.items() if explain else ():
            if name in done:
                continue
            free = stays.get(name, [])
            if free and gates.holds(name, planner):
                unexplained = not all(each.detail for each in free)
                found[name] = (unexplained and cut.attempt(candidate, keep=False)) or free
            elif refusals := gates.refuses(candidate, cut) or cut.attempt(candidate):
                found[name] = refusals
        return Outcome(cut, found)


def _marks(node: Node) -> tuple[Check, ...]:
    """Return a sibling's notes on *node*, which are no obstacle."""
    found: list[Check] = []
    record = drain_record(node)
    since = record.entered(Phase.MARKED) if record is not None and not record.owns_node else None
    if record is not None and since is not None:
        detail = f"marked underutilized by {record.controller or 'a sibling'} since {rfc3339(since)}; no obstacle"
        found.append(remark("mark", detail))
    steering = [(taint.value or "").partition(".")[0] for taint in node.taints if taint.key == CANDIDATE]
    if steering and steering[0] != CONTROLLER:
        found.append(remark("steering", f"{steering[0] or 'a sibling'} would take it soon too; no obstacle"))
    return tuple(found)


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
            *not_autoscaled(node, groups, self.rules.nodes),
            *((tainted_by_others,) if tainted_by_others is not None and not counted else ()),
            *refusals((minimums_check(least, count, node.name),), node.name),
        ]
