"""Which candidates go, and in what order; and from a snapshot to a plan.

A plan takes rounds of a strategy until nothing more goes, and says what kube-scheduler would make of the removals.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.objects import Pod
from tightship.objects.reasons import Check, Reason, Refusal
from tightship.planning.plan.model import (
    Candidate,
    Measure,
    Move,
    Placement,
    Plan,
    Removal,
    Searched,
    SearchRules,
    SteeringRules,
    distinct,
)
from tightship.planning.plan.planner import Going, Planner
from tightship.planning.plan.reserving import PlanStart
from tightship.rules.disruption import DisruptionLedger, RenewedLedger
from tightship.rules.disruption_cost import total_cost
from tightship.scheduler.fitting import Leaving, stuck_in_turn
from tightship.scheduler.scoring import Choice, aligned, best_fit, in_turn
from tightship.scheduler.space import PODS, Space


class Gates(ABC):
    """What a controller's settings say while a plan grows: minimums, required counts, budgets."""

    @abstractmethod
    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return what stands against planning *candidate* next, after what *planner* has planned so far."""

    def checks(self, name: str) -> Sequence[Check]:
        """Return the gates of node *name* as they stand when its turn comes, open ones and remarks too."""
        del name
        return ()


class Outcome(Struct, frozen=True):
    """A planner with what it planned, and the refusals of each candidate that stays."""

    planner: Planner
    stays: Mapping[str, list[Refusal]]


NewPlanner = Callable[[Choice], Planner]
"""Makes a planner over the same snapshot, candidates and ledger, with nothing planned yet."""


class Strategy(ABC):
    """A way to choose which candidates go, and in what order. *name* is the word that users configure.

    *choose* picks a place for each evicted pod where the plan may choose places (placement ``possible``). With
    *by_price*, the price of what is kept counts, not the number of nodes. *searched* says what a search came to, if
    the strategy searches.
    """

    by_price: bool = False
    searched: Searched | None = None
    grows: bool = True
    """Whether :meth:`extend` may go on where :meth:`run` has ended, with candidates that were none before."""
    name: str
    choose: Choice

    @property
    def plain(self) -> Strategy:
        """The strategy without a search."""
        return self

    @property
    def known(self) -> Plan | None:
        """An earlier plan that tells which nodes go, so that none has to be made to foresee that."""
        return None

    @abstractmethod
    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """Plan *candidates* on top of what *planner* has planned; return the refusals of those that stay."""

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round over all candidates."""
        planner = new_planner(self.choose)
        return Outcome(planner, self.extend(planner, gates, tuple(planner.candidates.values())))


Improve = Callable[[Strategy, SearchRules], Strategy]
"""Returns a strategy that plans as another one does, then searches for better."""

Key = Callable[[Planner, Candidate], tuple[float | str, ...]]
"""How far back in the order a candidate stands, after what a planner has planned. Planning more may raise a key, by
what is moved to the candidate's node, and never lowers one."""


class Ordered(Strategy):
    """The candidates with the lowest keys first, the keys as they stand when their turn comes.

    Before all keys come planned maintenance, and what disrupting the pods costs by annotations of their owners.
    """

    choose: Choice = staticmethod(best_fit)

    def __init__(self, name: str, key: Key, *, by_price: bool = False) -> None:
        self.name, self.by_price = name, by_price
        self._own_key = key

    def key(self, planner: Planner, candidate: Candidate) -> tuple[float | str, ...]:
        """Return how far back in the order *candidate* stands, after what *planner* has planned."""
        return not candidate.maintenance, planner.cost(candidate.name), *self._own_key(planner, candidate)

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`."""
        heap = [(self.key(planner, candidate), candidate.name) for candidate in candidates]
        heapq.heapify(heap)
        planned = dict.fromkeys((candidate.name for candidate in candidates), len(planner.removals))
        stays: dict[str, list[Refusal]] = {}
        while heap:
            key, name = heapq.heappop(heap)
            if planned[name] < len(planner.removals):
                planned[name] = len(planner.removals)
                current = self.key(planner, planner.candidates[name])
                if current > key:
                    heapq.heappush(heap, (current, name))
                    continue
            _try(planner, gates, name, stays)
        return stays


def _least_utilized(measure: Measure) -> Ordered:
    return Ordered("least-utilized", lambda planner, candidate: (planner.utilization(candidate.name, measure),))


LEAST_UTILIZED = _least_utilized("dominant")
"""The least utilized first, by the resource of which most is requested; what was moved there meanwhile counts."""


def _fewest(planner: Planner, candidate: Candidate) -> tuple[float, ...]:
    return len(planner.pods_of(candidate)), planner.utilization(candidate.name, "dominant")


def saving_per_eviction(planner: Planner, candidate: Candidate) -> float:
    """Return what removing *candidate* next saves for each eviction: millionths an hour, or a size without prices."""
    evictions = len(planner.pods_of(candidate))
    return planner.start.worth(candidate) / evictions if evictions else math.inf


def _balanced(planner: Planner, candidate: Candidate) -> tuple[float, ...]:
    highest = max((pod.spec.priority for pod in planner.pods_of(candidate)), default=-math.inf)
    saving = saving_per_eviction(planner, candidate)
    return -saving, highest, planner.utilization(candidate.name, "dominant")


class FewestNodes(Strategy):
    """As few nodes as can be: the smallest first, since big nodes hold what many small ones held.

    Size is the node's share of the largest node, summed over resources, so that a node with something scarce (a GPU)
    counts as large and is kept for those who need it. It does not depend on which nodes have gone already: a running
    controller that measured against what is left would change its mind at every step. Pods go where the free room has
    their proportions. Where kube-scheduler places them, a pod may land on a node that goes later, and move again. There
    of nodes of about one size those with the fewest pods go first: fewer pods move while most nodes may still go.
    Nodes with planned maintenance come before all others. Of one size, what is cheap to disrupt goes first.
    """

    name = "fewest-nodes"
    choose: Choice = staticmethod(aligned)

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`."""
        stays: dict[str, list[Refusal]] = {}
        for candidate in sorted(candidates, key=_smallest(planner)):
            _try(planner, gates, candidate.name, stays)
        return stays


def _smallest(planner: Planner) -> Callable[[Candidate], tuple[bool, int, int, int, float, str]]:
    """Return the key by which the smallest candidates come first."""
    size, wander = planner.space.sizes(), planner.placement != "possible"

    def key(each: Candidate) -> tuple[bool, int, int, int, float, str]:
        about = _about(size[planner.space.index[each.name]])
        return not each.maintenance, about, each.cost, len(each.evict) if wander else 0, each.ratio, each.name

    return key


def _about(size: float) -> int:
    """Return a number that sizes within about 5 % of each other share."""
    return round(math.log(max(size, 1e-9)) / 0.05)


def _try(planner: Planner, gates: Gates, name: str, stays: dict[str, list[Refusal]]) -> None:
    candidate = planner.candidates[name]
    refusals = gates.refuses(candidate, planner) or planner.attempt(candidate)
    if refusals:
        stays[name] = refusals


class _Worth(Struct, frozen=True):
    """What an order of candidates goes by: a node's *price*, its *size*, the same in resources that are in *demand*
    (each weighs by the part of it that is requested), and the part of the size that its pods take (*load*).
    """

    price: float
    size: float
    demand: float
    load: float


_Order = Callable[[_Worth], float]

_ORDERS: tuple[_Order, ...] = (
    lambda _: 0.0,
    lambda node: node.size / node.price,
    lambda node: node.demand / node.price,
    lambda node: node.size / math.sqrt(node.price),
    lambda node: node.load / node.price,
    lambda node: -node.price,
)
"""The orders that a plan by price tries, the lowest first; ties go as for fewest nodes, which is the first order. None
is best on every fleet: size by price takes what is dear for its room, load what is cheap to move. The last one serves
plans of few nodes."""

_CHEAPEST = 1e-9
"""The price at which a free node counts in an order."""


class LowestCost(Strategy):
    """What costs least: plans in several orders, and keeps the plan whose removals cost most.

    So a round never saves less than one of fewest nodes. Where all candidates cost the same, or none has a price, both
    plan alike. Beside candidates with a price, one without counts as if it cost as much for its size as they do.
    """

    name = "lowest-cost"
    by_price = True
    choose: Choice = staticmethod(aligned)

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`; the candidates that are dear for their size go first."""
        worths = _worths(planner, candidates)
        return _extend_in(_orders(worths)[:2][-1], worths, planner, gates, candidates)

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round over all candidates."""
        planner = new_planner(self.choose)
        candidates = tuple(planner.candidates.values())
        worths = _worths(planner, candidates)
        orders = _orders(worths)
        best, most, least = orders[0], -1.0, 0
        for order in orders:
            planner = new_planner(self.choose)
            stays = _extend_in(order, worths, planner, gates, candidates)
            saved = sum(worths[removal.node].price for removal in planner.removals)
            cost = sum(total_cost(move.pod for move in removal.moves) for removal in planner.removals)
            if saved > most * (1 + _CHEAPEST) or (cost < least and saved >= most * (1 - _CHEAPEST)):
                best, most, least = order, saved, cost
        if best is not orders[-1]:
            # Planners may share a space, so the best plan is made again, not kept meanwhile.
            planner = new_planner(self.choose)
            stays = _extend_in(best, worths, planner, gates, candidates)
        return Outcome(planner, stays)


def _orders(worths: Mapping[str, _Worth]) -> tuple[_Order, ...]:
    """Return the orders to try: one if all candidates cost the same."""
    return _ORDERS if len({each.price for each in worths.values()}) > 1 else _ORDERS[:1]


def _worths(planner: Planner, candidates: Sequence[Candidate]) -> dict[str, _Worth]:
    sizes, demands = planner.space.sizes(), _demands(planner.space)
    index, priced = planner.space.index, any(each.price is not None for each in candidates)
    return {
        each.name: _Worth(
            price=max(_CHEAPEST, planner.start.worth(each) if priced else 0.0),
            size=sizes[index[each.name]],
            demand=demands[index[each.name]],
            load=each.ratio * sizes[index[each.name]],
        )
        for each in candidates
    }


def _demands(space: Space) -> list[float]:
    """Return each node's share of what the cluster has, summed over resources, each weighed by the part in use."""
    rows = [row for row in range(len(space.capacity)) if row != PODS]
    whole = np.maximum(space.capacity[rows].sum(axis=1, dtype=np.float64), 1.0)
    used = whole - space.free[rows].sum(axis=1, dtype=np.float64)
    shares: list[float] = (space.capacity[rows] * (used / whole**2)[:, None]).sum(axis=0).tolist()
    return shares


def _extend_in(
    order: _Order,
    worths: Mapping[str, _Worth],
    planner: Planner,
    gates: Gates,
    candidates: Sequence[Candidate],
) -> dict[str, list[Refusal]]:
    smallest = _smallest(planner)

    def key(each: Candidate) -> tuple[bool, float, tuple[bool, int, int, int, float, str]]:
        return not each.maintenance, order(worths[each.name]), smallest(each)

    stays: dict[str, list[Refusal]] = {}
    for candidate in sorted(candidates, key=key):
        _try(planner, gates, candidate.name, stays)
    return stays


_ALL = (
    LEAST_UTILIZED,
    Ordered("fewest-evictions", _fewest),
    Ordered("balanced", _balanced, by_price=True),
    FewestNodes(),
    LowestCost(),
)

STRATEGIES: Mapping[str, Strategy] = {each.name: each for each in _ALL}
"""The strategies by name, the controllers' default first."""

STRATEGIES_BY_CPU: Mapping[str, Strategy] = {**STRATEGIES, LEAST_UTILIZED.name: _least_utilized("cpu")}
"""The same where the CPU ratio alone says which node is the least utilized, as in the older controllers."""


class PerPool(Strategy):
    """Every pool by a strategy of its own: *pools* names it by pool, *default* for the rest.

    The strategies take their turns in the order of :data:`STRATEGIES`, each with the candidates of its pools, on one
    planner: what one has planned is taken for the next, room, budgets and gates alike.
    """

    name = "per-pool"
    choose: Choice = staticmethod(_ALL[0].choose)

    def __init__(self, pools: Mapping[str, str], default: str, strategies: Mapping[str, Strategy] = STRATEGIES) -> None:
        self._pools = pools
        self._default = default
        self._strategies = strategies
        self.by_price = any(STRATEGIES[each].by_price for each in pools.values())

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`."""
        stays: dict[str, list[Refusal]] = {}
        for strategy in self._strategies.values():
            own = [each for each in candidates if self._pools.get(each.pool, self._default) == strategy.name]
            planner.choose_by(strategy.choose)
            stays |= strategy.extend(planner, gates, own)
        return stays


class Judgement(Struct, frozen=True):
    """A controller's view of one snapshot: who may go, why the others stay, and the gates while the plan grows."""

    candidates: tuple[Candidate, ...]
    refusals: Mapping[str, tuple[Refusal, ...]]
    gates: Gates


Judge = Callable[[Snapshot], Judgement]
"""A controller's policy, with its settings and the time bound."""

MAX_ROUNDS = 1000
"""Rounds after which ``until_stable`` gives up; each removes at least one node, so clusters below this size end."""


MOST_EVICTIONS = 1.25
"""Evictions for each pod above which a round is planned once more, knowing which nodes it removes."""

CORRECTIONS = 2
"""How often at most."""


def make_plan(
    snapshot: Snapshot,
    judge: Judge,
    strategy: Strategy,
    placement: Placement,
    *,
    until_stable: bool = False,
    progress: Callable[[int, int], None] | None = None,
    steering: SteeringRules | None = None,
) -> Plan:
    """Return the plan of *strategy* for *snapshot*.

    One round spends each PodDisruptionBudget's allowance once. With *until_stable*, rounds follow each other, as if all
    moved pods had become Ready, until one removes nothing. *progress* is told (round, nodes removed so far). *steering*
    is how kube-scheduler learns which nodes go.
    """
    removals: list[Removal] = []
    refusals: Mapping[str, tuple[Refusal, ...]] = {}
    going, rounds = Going(), 0
    current = snapshot
    while rounds < MAX_ROUNDS:
        rounds += 1
        done, refusals, going = _one_round(current, judge(current), strategy, placement, rounds, steering)
        removals += done
        if progress is not None:
            progress(rounds, len(removals))
        if not until_stable or not done:
            break
        current = after(current, done)
    spent = {Reason.PDB_SPENT_BY_PLAN}
    later = tuple(name for name in going.names if {each.reason for each in refusals.get(name, ())} == spent)
    rounds = max(1, rounds - 1) if until_stable else 1
    return Plan(strategy.name, placement, tuple(removals), refusals, rounds, later=later)


def _one_round(  # noqa: PLR0917
    snapshot: Snapshot,
    judgement: Judgement,
    strategy: Strategy,
    placement: Placement,
    number: int,
    steering: SteeringRules | None,
) -> tuple[list[Removal], dict[str, tuple[Refusal, ...]], Going]:
    outcome, going = planned_round(snapshot, judgement, strategy, placement, number, steering)
    planner = outcome.planner
    removals = planner.removals
    if placement == "possible":
        removals = straightened(planner)
    refusals = dict(judgement.refusals)
    for name, found in outcome.stays.items():
        refusals[name] = tuple(sorted({*refusals.get(name, ()), *found}))
    return removals, refusals, going


def planned_round(  # noqa: PLR0917
    snapshot: Snapshot,
    judgement: Judgement,
    strategy: Strategy,
    placement: Placement,
    number: int,
    steering: SteeringRules | None,
    start: PlanStart | None = None,
    *,
    explain: bool = True,
) -> tuple[Outcome, Going]:
    """Return what round *number* of a plan comes to, and the nodes that were expected to go; *start* is that of
    *snapshot* with the candidates of *judgement*, if there is one already.
    """
    candidates = judgement.candidates
    if start is None:
        start = PlanStart(snapshot, candidates, placement, taint=None if steering is None else steering.taint)
    going = expected(start, judgement, strategy, steering)

    def new_planner(choose: Choice) -> Planner:
        ledger = DisruptionLedger(snapshot)
        return Planner(
            snapshot,
            ledger,
            candidates,
            placement,
            choose=choose,
            round_number=number,
            explain=explain,
            start=start,
            going=going,
        )

    outcome = strategy.run(new_planner, judgement.gates)
    for _ in range(CORRECTIONS if going.steering is not None else 0):
        removals = outcome.planner.removals
        if sum(len(each.moves) for each in removals) <= MOST_EVICTIONS * distinct(removals):
            break
        # Pods landed on nodes that nobody expected to go. Now we know these, too.
        names = dict.fromkeys((*(each.node for each in removals), *going.names))
        going = msgspec.structs.replace(going, names=tuple(names))
        outcome = strategy.run(new_planner, judgement.gates)
    return outcome, going


def expected(start: PlanStart, judgement: Judgement, strategy: Strategy, steering: SteeringRules | None) -> Going:
    """Return which nodes go, by a plan that does not know yet which do.

    Where the plan chooses places, it will keep pods off these nodes, so the pods that this first one moves onto a
    candidate don't count for the gates. Budgets don't end it: what has to wait for the next round goes as well, so pods
    avoid it now.
    """
    placement, snapshot = start.placement, start.snapshot
    chosen = placement == "possible"
    if not chosen and steering is None:
        return Going()
    if chosen and (known := strategy.known) is not None:
        ends = {pod: node for pod, node in _ends(known.removals).items() if node in start.space.index}
        return Going(tuple(each.node for each in known.removals), steering, targets=ends)
    candidates = judgement.candidates
    first = Going(tuple(each.name for each in candidates), untried=True) if chosen else Going(steering=steering)

    def new_planner(choose: Choice) -> Planner:
        return Planner(
            snapshot,
            RenewedLedger(snapshot),
            candidates,
            placement,
            choose=choose,
            model=in_turn,
            explain=False,
            start=start,
            going=first,
        )

    removals = strategy.plain.run(new_planner, judgement.gates).planner.removals
    return Going(tuple(each.node for each in removals), steering, targets=_ends(removals) if chosen else {})


def straightened(planner: Planner) -> list[Removal]:
    """Return the plan's removals with every pod sent straight to where it ends up.

    A strategy may move a pod onto a node that it removes later. What is reached so can be reached with one eviction
    per pod: the node where it ends up only fills as the plan goes on. Where constraints between pods make the order
    matter all the same, the removals are returned as they were tried. *planner* plans nothing any more.
    """
    removed = {removal.node for removal in planner.removals}
    if not any(move.target in removed for removal in planner.removals for move in removal.moves):
        return planner.removals  # straight already, and valid as tried
    final = _ends(planner.removals)
    straight: list[Removal] = []
    for removal in planner.removals:
        own = [move for move in removal.moves if move.origin == removal.node and move.pod.node == removal.node]
        moves = tuple(Move(move.pod, move.origin, final[move.pod.key], move.waits_for) for move in own)
        straight.append(msgspec.structs.replace(removal, moves=moves))
    return straight if _holds(planner, straight) else planner.removals


def _ends(removals: Sequence[Removal]) -> dict[str, str]:
    """Return the node where each moved pod is in the end, by ``namespace/name``."""
    return {move.pod.key: move.target for removal in removals for move in removal.moves}


def _holds(planner: Planner, removals: list[Removal]) -> bool:
    """Play *removals* from the start of the plan; return whether every move finds its target feasible at its time."""
    space = planner.space
    planner.start.begin()
    everyone, _, _ = planner.start.placed_pods()
    for removal in removals:
        node = space.index[removal.node]
        space.close(node)
        waiting = everyone.pop(node, [])
        for placed_pod in waiting:
            space.remove(placed_pod.demand, node)
        demands = [(space.demand_of(move.pod), space.index[move.target]) for move in removal.moves]
        for demand, _ in demands:
            space.remove(demand, node)
        for demand, target in demands:
            if not space.accepts(demand, target):
                return False
            space.place(demand, target)
        waits = [bool(move.waits_for) for move in removal.moves]
        leaving = [Leaving(demand, target, wait) for (demand, target), wait in zip(demands, waits, strict=True)]
        if stuck_in_turn(space, node, leaving):
            return False
        for placed_pod in waiting:
            options = space.feasible(placed_pod.demand).nonzero()[0]
            if not len(options):
                return False
            space.place(placed_pod.demand, int(options[0]))
            everyone.setdefault(int(options[0]), []).append(placed_pod)
    return True


def after(snapshot: Snapshot, removals: list[Removal]) -> Snapshot:
    """Return *snapshot* as it would be with *removals* done: nodes gone, moved pods running where they were sent."""
    gone = {removal.node for removal in removals}
    arrivals: dict[str, dict[str, Pod]] = {}
    for removal in removals:
        for move in removal.moves:
            arrivals.setdefault(removal.node, {}).pop(move.pod.key, None)
            moved = msgspec.structs.replace(move.pod, node=move.target, requests=snapshot.requests_anew(move.pod))
            arrivals.setdefault(move.target, {})[move.pod.key] = moved
    nodes: dict[str, NodeView] = {}
    for name, view in snapshot.nodes.items():
        if name in gone:
            continue
        new = arrivals.get(name)
        if new:
            pods = tuple(sorted((*view.pods, *new.values()), key=lambda pod: (pod.namespace, pod.name)))
            nodes[name] = NodeView(view.node, pods, sum_up(pods))
        else:
            nodes[name] = view
    return msgspec.structs.replace(snapshot, nodes=nodes)


class Forecast(Struct, frozen=True):
    """What the scheduler's own choices would make of a plan, by our model of its default scoring.

    *targets* maps each moved pod (``namespace/name``) to the node it would first land on, *stuck* each planned node
    that could then not be emptied to why. *removed*, *evictions* and distinct *pods* count what would still be done.
    """

    targets: Mapping[str, str]
    stuck: Mapping[str, tuple[Refusal, ...]]
    removed: int
    evictions: int
    pods: int


def forecast(
    snapshot: Snapshot, plan: Plan, candidates: tuple[Candidate, ...], steering: SteeringRules | None = None
) -> Forecast:
    """Drain the plan's nodes in its order, each pod placed by the model; a node whose pods don't all fit is skipped.

    *candidates* are those of the judgement the plan was made from; *steering* is as for :func:`make_plan`. Only the
    first round is played.
    """
    first = [removal for removal in plan.removals if removal.round == 1]
    going = Going(tuple(removal.node for removal in first), steering) if steering is not None else Going()
    planner = Planner(snapshot, DisruptionLedger(snapshot), candidates, "likely", going=going)
    stuck: dict[str, tuple[Refusal, ...]] = {}
    for removal in first:
        refusals = planner.attempt(planner.candidates[removal.node])
        if refusals:
            stuck[removal.node] = tuple(refusals)
    targets: dict[str, str] = {}
    for done in planner.removals:
        for move in done.moves:
            targets.setdefault(move.pod.key, move.target)
    evictions = sum(len(done.moves) for done in planner.removals)
    return Forecast(targets, stuck, len(planner.removals), evictions, distinct(planner.removals))
