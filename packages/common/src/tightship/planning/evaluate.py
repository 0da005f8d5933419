"""One evaluation of a cluster: facts, gates, a plan, and what holds its nodes back. Pure; the only place that decides.

``run``, ``plan``, ``explain``, the page, virtual time and the simulator all call :func:`evaluate`. A controller brings
a :class:`Judge`, made from its settings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.cluster.pools import shown
from tightship.objects import Node
from tightship.objects.drain_record import Begun, Finished, PastDrains
from tightship.objects.reasons import Check, Reason, Refusal, refusals, remark
from tightship.planning.demand import ReservedDemand, with_demand
from tightship.planning.facts import FactRules, NodeFacts, added, candidates_of, gather, judgement, plannable
from tightship.planning.plan import (
    Forecast,
    Gates,
    Improve,
    Judgement,
    Placement,
    Plan,
    SearchRules,
    SteeringRules,
    Strategy,
    forecast,
    make_plan,
)
from tightship.planning.savings import settled
from tightship.rules.after_cordon import waiting, waiting_elsewhere, with_restarts
from tightship.rules.disruption_cost import cost_remarks
from tightship.rules.karpenter import karpenter_pool
from tightship.rules.node_groups import with_current_statuses
from tightship.rules.nodes import with_abandoned
from tightship.rules.rates import Rates, crowded, newcomers, planned, rate_checks, refused_by_rate
from tightship.rules.waiting import AdditionRules, HealthRules, Pause, after_additions, brake, learned, longest
from tightship.rules.windows import Rollouts, WindowRules, window_checks
from tightship.scheduler.devices import with_devices

Facts = Mapping[str, NodeFacts]
"""What is known of each node, by name."""


class PaceRules(HealthRules, AdditionRules, WindowRules, Protocol):
    """When nothing is drained, or nothing in a pool, whatever the plan says."""


class Judge(ABC):
    """A controller's settings as rules, for a plan, a claim and a drain. Two judges of equal settings judge alike.

    *rules* are for nodes and pods, *placement* says how sure the place of an evicted pod must be. *steering* is how a
    running controller keeps evicted pods off the nodes that go next, ``None`` if it doesn't. Room is kept for the
    demand *ahead*, which has no pods yet. *pace* says when to brake, and what to learn from earlier drains.
    """

    rules: FactRules
    placement: Placement
    steering: SteeringRules | None
    ahead: ReservedDemand
    pace: PaceRules

    @abstractmethod
    def refusals(self, fact: NodeFacts, now: float) -> list[Refusal]:
        """Return what the controller's own gates say against one node, whatever a plan does."""

    @abstractmethod
    def gates(self, snapshot: Snapshot, facts: Facts, now: float) -> Gates:
        """Return the gates while a plan on *snapshot* grows; *facts* have all refusals of single nodes."""

    @abstractmethod
    def strategy(self, facts: Facts) -> Strategy:
        """Return which nodes go, and in what order."""

    @abstractmethod
    def pauses(self, facts: Facts, finished: Sequence[Finished], now: float) -> Callable[[str], Pause | None]:
        """Return a function from a pool to why it pauses at *now* after what has happened, ``None`` if it doesn't."""

    @abstractmethod
    def room(self, node: str, facts: Facts, claimed: Collection[str], begun: Begun = Begun()) -> Refusal | None:
        """Return why *node* may not be claimed beside *claimed*, all claimed nodes, after what has *begun*.

        ``None`` if it may.

        *facts* belong to the latest snapshot. The method must be free of side effects: each attempt to write the claim
        calls it again.
        """

    @abstractmethod
    def node_refusals(self, snapshot: Snapshot, node: Node) -> list[Refusal]:
        """Return what keeps *node* of *snapshot* as a whole; a drain asks before its claim and before each eviction."""

    def rates(self, pool: str) -> Sequence[Rates]:
        """Return the rates of *pool* and of the cluster."""
        del pool
        return ()

    def tells_minimum(self, pool: str) -> bool:
        """Whether the settings give *pool* a least number of nodes."""
        del pool
        return False


class Horizon(Struct, frozen=True):
    """How far an evaluation looks.

    *until_stable* plans round after round, as if all moved pods had become Ready, until a round removes nothing. *only*
    limits what may be removed to these nodes (a selection on the command line); the rest still receives pods.
    *forecast* asks what kube-scheduler's own choices would make of a plan that chose places itself. *search* says how
    long to search for a plan that removes more, where there is something that searches.
    """

    until_stable: bool = False
    only: Collection[str] | None = None
    forecast: bool = False
    search: SearchRules | None = None


AT_ONCE = Horizon()
"""One round over all nodes: what a running controller looks at in each pass."""


class Evaluation(Struct, frozen=True, kw_only=True):
    """What to do with *snapshot* at *now* (seconds since 1970), and why.

    The *plan* is the direction. *held* says which of its nodes have to wait and why, *unhealthy* why all of them do;
    *paused* are the pools that recent results forbid draining; *history* has those results as *snapshot* shows them.
    *newcomers* are the workloads' young pods, as in :class:`Begun`. *rates* has what the rates say to each
    planned node alone, *windows* what the windows say to each pool. *unknown_minimums* are pools of planned nodes of
    which nothing tells the minimum size.
    """

    snapshot: Snapshot
    now: float
    facts: Facts
    gates: Gates
    plan: Plan
    held: Mapping[str, Refusal]
    unhealthy: Refusal | None
    paused: Collection[str]
    history: PastDrains
    forecast: Forecast | None = None
    unknown_minimums: tuple[str, ...] = ()
    rates: Mapping[str, tuple[Check, ...]] = {}
    newcomers: Mapping[str, Sequence[tuple[float, float]]] = {}
    windows: Mapping[str, tuple[Check, ...]] = {}

    @property
    def untold(self) -> Mapping[str, tuple[Check, ...]]:
        """The *windows*, unless nodes that are held back by them tell of them."""
        held = any(each.reason is Reason.OUTSIDE_WINDOW for each in self.held.values())
        return {} if held else self.windows

    def checks(self, name: str) -> tuple[Check, ...]:
        """Return the gates of node *name*, its place in the order, and what holds it back if the plan removes it."""
        if name not in self.facts:
            return ()  # a virtual node
        held, fact = self.held.get(name), self.facts[name]
        maintained = fact.view.node.maintenance_planned
        planned = (remark("maintenance", "planned: the node goes first and takes nobody in"),) if maintained else ()
        opens = (remark("after the cordon", f"waits: {each.detail}") for each in fact.opens)
        pace = (*self.windows.get(fact.pool, ()), *self.rates.get(name, ()))
        told = held is None or any(each.detail == held.detail for each in pace)
        waits = () if told or held is None else (Check("held back", held.reason, False, held.detail, held.fix),)
        return (*self.gates.checks(name), *planned, *opens, *cost_remarks(fact.evict), *pace, *waits)


class Evaluator:
    """Evaluates a cluster pass after pass; plans nothing anew while nothing has changed.

    Time alone may change facts (how old a node is, whose grace is over). Each pass gathers them; where they are the
    same, so is all that follows from them.
    """

    def __init__(self) -> None:
        self._read: tuple[Snapshot, Judge, Mapping[str, str], Beside | None, Snapshot] | None = None
        self._planned: tuple[Facts, Gates, Plan] | None = None
        self._known: tuple[Plan, ...] = ()

    def __call__(
        self,
        snapshot: Snapshot,
        judge: Judge,
        now: float,
        horizon: Horizon = AT_ONCE,
        *,
        history: PastDrains = PastDrains(),
        api_failures: int = 0,
        landings: Mapping[str, str] = {},
        beside: Beside | None = None,
        improve: Improve | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Evaluation:
        """Judge every node of *snapshot* as *judge* does; see :func:`evaluate`.

        *landings* are the nodes where drains under way want pods to land, by uid: the plan keeps their room.
        *beside* says which installation judges, and which ones are beside it.
        """
        read = self._read
        if read is None or read[0] is not snapshot or read[1] is not judge or read[2:4] != (landings, beside):
            seen = msgspec.structs.replace(with_devices(snapshot), schedulers=judge.rules.eviction.schedulers)
            wanted = with_restarts(with_demand(seen, judge.ahead), judge.rules.eviction.restarts)
            # A search evaluates a snapshot that has both already.
            if landings:
                wanted = msgspec.structs.replace(wanted, landings=dict(landings))
            if beside is not None:
                wanted = msgspec.structs.replace(wanted, beside=beside)
            read = self._read = (snapshot, judge, dict(landings), beside, wanted)
            self._planned = None
        current = with_abandoned(with_current_statuses(read[-1], now), judge.ahead.displaced_for, now)
        if current is not read[-1]:
            self._read, self._planned = (*read[:4], current), None
        snapshot = current
        facts: Facts = facts_of(snapshot, judge, now, horizon.only)
        planned, known = self._planned, self._known
        self._known = () if horizon.search is None else horizon.search.warm
        if planned is None or planned[0] != facts or not _considered(self._known, (planned[2], *known)):
            planned = self._planned = (
                facts,
                *_plan(snapshot, judge, facts, now, horizon, improve=improve, progress=progress),
            )
        facts, gates, plan = planned
        nodes = added(facts)
        history = settled(learned(history, nodes, judge.pace, now), nodes, now)
        evaluation = Evaluation(
            snapshot=snapshot,
            now=now,
            facts=facts,
            gates=gates,
            plan=plan,
            held={},
            unhealthy=None,
            paused=(),
            history=history,
            forecast=_forecast(snapshot, judge, facts, plan) if horizon.forecast else None,
            unknown_minimums=_unknown_minimums(plan, facts, judge),
        )
        return paced(evaluation, judge, history, now, api_failures)


def paced(evaluation: Evaluation, judge: Judge, history: PastDrains, now: float, api_failures: int = 0) -> Evaluation:
    """Return *evaluation* with what *history* and the health of the cluster hold back at *now*."""
    snapshot, facts = evaluation.snapshot, evaluation.facts
    unhealthy = brake(snapshot, history.finished, judge.pace, now, api_failures)
    additions, pauses = after_additions(history, judge.pace, now), judge.pauses(facts, history.finished, now)
    pools = {each.node: facts[each.node].pool for each in evaluation.plan.removals}
    held_pools = {pool: longest(pauses(pool), additions.get(pool)) for pool in set(pools.values())}
    windows = {pool: judge.pace.windows_of(pool) for pool in {each.pool for each in facts.values()}}
    opened, rollouts = {pool: window_checks(each, now) for pool, each in windows.items()}, Rollouts(snapshot)
    held = {
        name: unhealthy
        or next(iter(refusals(opened[pool], shown(pool))), None)
        or ((each := held_pools[pool]) and each.refusal)
        or rollouts.refusal(windows[pool], name, now)
        for name, pool in pools.items()
    }
    stable = any(each.min_stable_time for pool in {*pools.values()} for each in judge.rates(pool))
    young = newcomers(snapshot, now) if stable else {}
    begun = msgspec.structs.replace(history.begun, now=now, newcomers=young)
    now_begun, rates = begun, dict[str, tuple[Check, ...]]()
    ahead = waiting(snapshot)
    for name, pool in pools.items():
        evicts, own = facts[name].evict, judge.rates(pool)
        rates[name] = tuple(rate_checks(own, begun, evicts))
        if held[name] is None:
            held[name] = refused_by_rate(own, now_begun, name, evicts)
        if held[name] is None and facts[name].opens:
            held[name] = waiting_elsewhere(snapshot, ahead, name)
        if held[name] is None and own:
            now_begun = planned(now_begun, pool, evicts)
    return msgspec.structs.replace(
        evaluation,
        held={name: refusal for name, refusal in held.items() if refusal is not None},
        unhealthy=unhealthy,
        paused=additions.keys(),
        rates=rates,
        newcomers=young,
        windows=opened,
    )


def evaluate(
    snapshot: Snapshot,
    judge: Judge,
    now: float,
    horizon: Horizon = AT_ONCE,
    *,
    history: PastDrains = PastDrains(),
    api_failures: int = 0,
    improve: Improve | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Judge every node of *snapshot* at *now* (seconds since 1970), once.

    *history* are the recent drains of all controllers and what pools have learned from them; *api_failures* counts
    passes in a row in which the API server failed. *improve* is what searches. *progress* is told (round,
    nodes removed so far).
    """
    once = Evaluator()
    return once(
        snapshot, judge, now, horizon, history=history, api_failures=api_failures, improve=improve, progress=progress
    )


def facts_of(
    snapshot: Snapshot,
    judge: Judge,
    now: float,
    only: Collection[str] | None = None,
    *,
    before: Mapping[str, NodeFacts] = {},
    names: Iterable[str] | None = None,
) -> dict[str, NodeFacts]:
    """Return what can be said of each node by itself, with the refusals of the controller's own gates.

    *names* are the nodes to judge, by default all. *before* are the facts before the rounds of a plan that lead to
    *snapshot*.
    """

    def complete(fact: NodeFacts) -> NodeFacts:
        known = before.get(fact.view.name)
        if known is not None and known.utilization != fact.utilization:
            fact = msgspec.structs.replace(fact, ratio_before=known.cpu_ratio)
        own = judge.refusals(fact, now)
        if len(fact.evict) > 1 and not own and not fact.refusals:
            found = (check for each in judge.rates(fact.pool) for check in crowded(each, fact.evict))
            own += refusals(found, fact.view.name)
        if len(snapshot.beside.listed) > 1 and (other := snapshot.beside.refusal(fact.view.node)) is not None:
            own.append(other)
        return msgspec.structs.replace(fact, refusals=tuple(sorted((*fact.refusals, *own)))) if own else fact

    return {name: complete(fact) for name, fact in gather(snapshot, judge.rules, now, only, names).items()}


def _plan(
    snapshot: Snapshot,
    judge: Judge,
    facts: Facts,
    now: float,
    horizon: Horizon,
    *,
    improve: Improve | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[Gates, Plan]:
    plan_snapshot = plannable(snapshot, judge.rules)
    gates = judge.gates(plan_snapshot, facts, now)

    prepared = [judgement(snapshot, facts, gates)]

    def judged(current: Snapshot) -> Judgement:
        if prepared:
            return prepared.pop()
        known = facts_of(current, judge, now, horizon.only, before=facts)
        return judgement(current, known, judge.gates(current, known, now))

    strategy = judge.strategy(facts)
    searching = None
    if improve is not None and horizon.search is not None:
        searching = improve(strategy, horizon.search)

    def made(by: Strategy) -> Plan:
        return make_plan(
            plan_snapshot,
            judged,
            by,
            judge.placement,
            until_stable=horizon.until_stable,
            progress=progress,
            steering=judge.steering,
        )

    plan = made(searching or strategy)
    if searching is not None:
        plan = msgspec.structs.replace(plan, searched=searching.searched)
        plan = _over_rounds(plan, made(strategy), facts if strategy.by_price else {}) if horizon.until_stable else plan
    return gates, plan


def score(plan: Plan, priced: Facts) -> tuple[int, int, int]:
    """Return how good *plan* is: what the nodes that it removes cost by the facts *priced*, their number, evictions."""
    prices = (priced[each.node].price for each in plan.removals if each.node in priced)
    return sum(each.hourly for each in prices if each is not None), len(plan.removals), -plan.evictions


def _over_rounds(found: Plan, plain: Plan, priced: Facts) -> Plan:
    """Return the better of *found*, whose first round was searched, and *plain*, the strategy's own plan.

    If one saves more money by the facts *priced*, that is better; then the number of nodes counts.

    A first round that removes most may take room that later rounds would have used for more nodes.
    """
    searched = found.searched
    if searched is None or score(found, priced) >= score(plain, priced):
        return found
    unused = msgspec.structs.replace(searched, removed=searched.greedy_removed, evictions=searched.greedy_evictions)
    return msgspec.structs.replace(plain, searched=unused)


def _unknown_minimums(plan: Plan, facts: Facts, judge: Judge) -> tuple[str, ...]:
    """Return the pools of nodes that go by *plan* though nothing says what their group's minimum size is."""
    going = (facts[each.node] for each in plan.removals if each.node in facts)
    unknown = {fact.pool for fact in going if fact.group is None and karpenter_pool(fact.view.node) is None}
    return tuple(sorted(pool for pool in unknown if not judge.tells_minimum(pool)))


def _considered(known: Sequence[Plan], before: Sequence[Plan]) -> bool:
    """Whether the *known* plans are among those from *before*."""
    return all(any(each is other for other in before) for each in known)


def _forecast(snapshot: Snapshot, judge: Judge, facts: Facts, plan: Plan) -> Forecast | None:
    if judge.placement != "possible" or not plan.removals:
        return None
    return forecast(plannable(snapshot, judge.rules), plan, candidates_of(facts), judge.steering)
