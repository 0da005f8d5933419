"""A strategy that searches: what another strategy plans, then a search for a plan that removes more nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from tightship.core.reasons import Refusal
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.placement.scoring import Choice
from tightship.planning.plan.engine import straightened
from tightship.planning.plan.model import Plan, Removal, Searched
from tightship.planning.plan.planner import Candidate, Planner
from tightship.planning.plan.planners import Planners
from tightship.planning.plan.strategies import Gates, NewPlanner, Outcome, Strategy
from tightship.planning.search.bound import bound
from tightship.planning.search.improve import Effort, improve
from tightship.planning.search.limits import limits_of
from tightship.planning.search.playing import play, replay
from tightship.planning.search.problem import extract
from tightship.planning.search.start import started

BOUND_PART = 0.2
"""The part of the effort after which the search goes on with the bound as it stands."""


class SearchRules(Struct, frozen=True, kw_only=True):
    """How to search: for *iterations*, or *seconds* of *clock*, whichever ends first.

    The same *seed* and iterations give the same plan. *warm* is the last plan, from which the search starts if it still
    holds.
    """

    iterations: int | None = None
    seconds: float | None = None
    clock: Callable[[], float] | None = None
    seed: int = 0
    warm: Plan | None = None


class Searching(Strategy):
    """Plans as *greedy* does, then searches for better. Only plans that choose places (``possible``) are searched.

    The first round of a plan is searched. :attr:`searched` says what came of it.
    """

    def __init__(self, greedy: Strategy, rules: SearchRules) -> None:
        self.name = greedy.name
        self.choose = greedy.choose
        self.searched: Searched | None = None
        self._greedy = greedy
        self._rules = rules

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`; nothing is searched."""
        return self._greedy.extend(planner, gates, candidates)

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round over all candidates, and keep the better of both plans."""
        greedy = self._greedy.run(new_planner, gates)
        if self.searched is not None or greedy.planner.placement != "possible":
            return greedy
        rules, first = self._rules, straightened(greedy.planner, Planners())
        new_planner = _apart(greedy.planner)
        before = new_planner(self.choose)
        problem = extract(before, limits_of(gates, before))
        warm = None if rules.warm is None else replay(rules.warm, new_planner, gates, self._greedy)
        best, score, removals = greedy, _score(first), first
        if warm is not None:
            replayed = straightened(warm.planner, Planners())
            if _score(replayed) > score:
                best, score, removals = warm, _score(replayed), replayed
        start = started(problem, removals)
        effort = Effort(rules.iterations, rules.seconds, rules.clock)
        floor = bound(problem, lambda: effort.spent() > BOUND_PART)
        found = improve(problem, floor, start, effort, rules.seed)
        if found is not None:
            outcome = play(problem, found, new_planner, gates, self._greedy)
            played = _score(straightened(outcome.planner, Planners()))
            if played > score:
                best, score = outcome, played
        self.searched = Searched(
            seconds=rules.seconds,
            iterations=effort.iterations,
            greedy_removed=len(first),
            greedy_evictions=-_score(first)[1],
            removed=score[0],
            evictions=-score[1],
            bound=floor.nodes,
            warm_start=None if rules.warm is None else warm is not None,
        )
        return best


def _apart(planner: Planner) -> NewPlanner:
    """Return what makes planners like *planner*, each with a space of its own: a search looks at several at once."""
    snapshot, candidates = planner.snapshot, tuple(planner.candidates.values())

    def new_planner(choose: Choice) -> Planner:
        ledger = DisruptionLedger(snapshot)
        return Planner(snapshot, ledger, candidates, planner.placement, choose=choose, round_number=planner.round)

    return new_planner


def _score(removals: Sequence[Removal]) -> tuple[int, int]:
    """Return how good a plan is: the nodes removed, then the evictions, negative."""
    return len(removals), -sum(len(removal.moves) for removal in removals)
