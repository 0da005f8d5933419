"""Which candidates go, and in what order: a small protocol with a list behind it."""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from tightship.objects.reasons import Refusal
from tightship.planning.plan.model import Candidate, Searched, SearchRules
from tightship.planning.plan.planner import Planner
from tightship.planning.utilization import Measure
from tightship.rules.checks import Check
from tightship.rules.disruption_cost import total_cost
from tightship.scheduler.scoring import Choice, aligned, best_fit
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
