"""Which candidates go, and in what order: a small protocol with a list behind it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from tightship.placement.scoring import Choice, aligned, best_fit
from tightship.plan.planner import Candidate, Planner
from tightship.reasons import Refusal


class Gates(Protocol):
    """What a controller's settings say while a plan grows: minimums, required counts, budgets."""

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return what stands against planning *candidate* next, after what *planner* has planned so far."""
        ...


class Outcome(Struct, frozen=True):
    """A planner with what it planned, and the refusals of each candidate that stays."""

    planner: Planner
    stays: Mapping[str, list[Refusal]]


NewPlanner = Callable[[Choice], Planner]
"""Makes a planner over the same snapshot, candidates and ledger, with nothing planned yet."""


class Strategy(Protocol):
    """A way to choose which candidates go."""

    @property
    def name(self) -> str:
        """The word users configure."""
        ...

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round."""
        ...


class LeastUtilized:
    """The least utilized first, as the older controllers do; the utilization counts what was moved there meanwhile."""

    name = "least-utilized"

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """See :meth:`Strategy.run`."""
        planner = new_planner(best_fit)
        heap = [(candidate.ratio, candidate.name) for candidate in planner.candidates.values()]
        heapq.heapify(heap)
        stays: dict[str, list[Refusal]] = {}
        while heap:
            ratio, name = heapq.heappop(heap)
            current = planner.ratio(name)
            if current > ratio:
                heapq.heappush(heap, (current, name))
                continue
            _try(planner, gates, name, stays)
        return Outcome(planner, stays)


class FewestNodes:
    """As few nodes as can be: the smallest first, since big nodes hold what many small ones held.

    Size is the node's share of the cluster's capacity, summed over resources, so that a node with something scarce
    (a GPU) counts as large and is kept for those who need it. Pods go where the free room has their proportions.
    """

    name = "fewest-nodes"

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """See :meth:`Strategy.run`."""
        planner = new_planner(aligned)
        size = planner.space.sizes()
        order = sorted(
            planner.candidates.values(), key=lambda each: (size[planner.space.index[each.name]], each.ratio, each.name)
        )
        stays: dict[str, list[Refusal]] = {}
        for candidate in order:
            _try(planner, gates, candidate.name, stays)
        return Outcome(planner, stays)


def _try(planner: Planner, gates: Gates, name: str, stays: dict[str, list[Refusal]]) -> None:
    candidate = planner.candidates[name]
    refusals = gates.refuses(candidate, planner) or planner.attempt(candidate)
    if refusals:
        stays[name] = refusals


STRATEGIES: Mapping[str, Strategy] = {each.name: each for each in (LeastUtilized(), FewestNodes())}
"""The strategies by name, the controllers' default first."""
