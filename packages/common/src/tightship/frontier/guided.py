"""A strategy that removes the nodes that the program chose, and searches where the planner finds no place for a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from tightship.frontier.program import Program
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan.model import Candidate, Removal
from tightship.planning.plan.planner import Planner
from tightship.planning.plan.strategies import Gates, NewPlanner, Outcome, Strategy
from tightship.scheduler.scoring import Choice, best_fit
from tightship.search.bound import Bound
from tightship.search.improve import MOST_TO_PLACE, Effort, Packed, improve
from tightship.search.playing import order, play

ITERATIONS = 4000
"""Steps of the search of one plan, some seconds on a thousand nodes."""

NEAR = 1.03
"""A plan with at most this many times the evictions of the bound is not searched."""


class Guided(Strategy):
    """Removes *target* nodes with few evictions: those of which most goes by *share*, then those of most *worth* a pod.

    A plan has at most *most* evictions, and then says why the rest stays. It is *sure* to if what it moves to a node
    counts for that node as well; else it may have more where the order of moves matters. *ended* says why nodes stay
    after the *target*. Without a *least*, nothing is searched.
    """

    name = "fewest-evictions"
    grows = False
    choose: Choice = staticmethod(best_fit)

    def __init__(
        self,
        program: Program,
        share: NDArray[np.float64],
        target: int,
        most: int | None = None,
        *,
        sure: bool = True,
        worth: NDArray[np.float64] | None = None,
        ended: Mapping[str, Sequence[Refusal]] = {},
        least: int | None = None,
        prices: NDArray[np.float64] | None = None,
    ) -> None:
        self._program, self._share, self._target, self._most = program, share, target, most
        self._least, self._prices, self._sure = least, prices, sure
        self._ended = ended
        self._worth = np.ones(len(share)) if worth is None else worth
        problem = program.problem
        chosen = np.flatnonzero(share > 1e-6)
        chosen = chosen[np.lexsort((program.evictions[chosen], -share[chosen]))][:target]
        self._chosen: list[int] = chosen.tolist()
        whole = Packed(tuple(self._chosen), (), 0)
        self._first = [problem.names[node] for node in order(problem, whole)]

    @property
    def plain(self) -> Strategy:
        """The same without a search."""
        same = copy(self)
        same._least = None
        return same

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`."""
        some = {each.name: each for each in candidates}
        first = [some.pop(name) for name in self._first if name in some]
        stays: dict[str, list[Refusal]] = {}
        spent = 0
        for each in (*first, *sorted(some.values(), key=lambda each: self._key(planner, each))):
            pods = len(planner.pods_of(each) if self._sure else each.evict)
            full = len(planner.removals) >= self._target
            if full and self._most is None:
                break
            if self._most is not None and spent + pods > self._most:
                stays[each.name] = [_over(each.name, pods, self._most, spent)]
            elif full:
                stays[each.name] = [*self._ended.get(each.name, ())] or [_full(each.name, self._target)]
            elif refusals := gates.refuses(each, planner) or planner.attempt(each):
                stays[each.name] = refusals
            else:
                spent += pods
        return stays

    def _key(self, planner: Planner, each: Candidate) -> tuple[float, float, str]:
        pods = len(each.evict)
        return -self._worth[planner.space.index[each.name]] / pods if pods else -np.inf, each.ratio, each.name

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round over all candidates."""
        outcome = super().run(new_planner, gates)
        removals = outcome.planner.removals
        if self._least is None or (len(removals) >= self._target and evicted(removals) <= NEAR * self._least):
            return outcome
        found = self._searched() if self._program.evictions[self._chosen].sum() <= MOST_TO_PLACE else None
        if found is None:
            return outcome
        score = len(removals), -evicted(removals)
        other = play(self._program.problem, found, new_planner, gates, self)
        if (len(other.planner.removals), -evicted(other.planner.removals)) > score:
            return other
        return super().run(new_planner, gates)  # planners share a space, so the plan is made again

    def _searched(self) -> Packed | None:
        problem, sorts = self._program.problem, self._program.sorts
        assert self._prices is not None
        goes = np.where(problem.closable, self._share, 1.0)
        many = np.bincount(sorts, minlength=len(self._prices)).astype(np.float64)
        wanted = many - np.bincount(sorts, goes, minlength=len(many))
        kept = len(problem.names) - self._target
        bound = Bound(kept, float(kept), self._prices[sorts], sorts, wanted)
        return improve(problem, bound, None, Effort(ITERATIONS), 0, first=self._chosen)


def evicted(removals: Sequence[Removal]) -> int:
    """Return the evictions of *removals*."""
    return sum(len(each.moves) for each in removals)


def _full(node: str, nodes: int) -> Refusal:
    detail = f"the plan removes {counted(nodes, 'other node')}, as many as the controller's own plan"
    return Refusal(Reason.MAX_EVICTIONS_REACHED, node, detail)


def _over(node: str, pods: int, most: int, spent: int) -> Refusal:
    detail = f"the plan may have {counted(most, 'eviction')}: {spent:,} are spent, and this node takes {pods:,}"
    return Refusal(Reason.MAX_EVICTIONS_REACHED, node, detail, "raise --evictions")
