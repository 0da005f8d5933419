"""A strategy that searches: what another strategy plans, then a search for a plan that removes more nodes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan.model import Candidate, Plan, Removal, Searched, SearchRules
from tightship.planning.plan.planner import Planner
from tightship.planning.plan.strategies import Gates, NewPlanner, Outcome, Strategy, straightened
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.disruption_cost import total_cost
from tightship.scheduler.scoring import Choice
from tightship.search.bound import bound
from tightship.search.improve import Effort, improve
from tightship.search.limits import limits_of
from tightship.search.linear import solved_bound
from tightship.search.playing import play, replay
from tightship.search.problem import extract
from tightship.search.start import started

BOUND_PART = 0.2
"""The part of the effort after which the search goes on with the bound as it stands."""


class _Found(Struct, frozen=True):
    """An outcome with its final removals and score. *broken* counts what a replay had to plan anew."""

    outcome: Outcome
    removals: Sequence[Removal]
    broken: int
    by_price: bool

    @property
    def evictions(self) -> int:
        return sum(len(removal.moves) for removal in self.removals)

    @property
    def score(self) -> tuple[int, int, int, int, int]:
        """The money saved, if it counts, and the nodes removed, then those with planned maintenance, and costs."""
        candidates = self.outcome.planner.candidates
        saved = round(sum(map(self._price, self.removals))) if self.by_price else 0
        maintained = sum(candidates[removal.node].maintenance for removal in self.removals)
        cost = sum(total_cost(move.pod for move in removal.moves) for removal in self.removals)
        return saved, len(self.removals), maintained, -cost, -self.evictions

    def _price(self, removal: Removal) -> float:
        planner = self.outcome.planner
        priced = any(each.price is not None for each in planner.candidates.values())
        return planner.start.worth(planner.candidates[removal.node]) if priced else 0.0


class Searching(Strategy):
    """Plans as *greedy* does, then searches for better. Only plans that choose places (``possible``) are searched.

    The first round of a plan is searched. :attr:`searched` says what came of it.
    """

    def __init__(self, greedy: Strategy, rules: SearchRules) -> None:
        self.name = greedy.name
        self.choose, self.by_price = greedy.choose, greedy.by_price
        self.searched: Searched | None = None
        self._begun = False
        self._greedy = greedy
        self._rules = rules

    @property
    def plain(self) -> Strategy:
        """The strategy whose plans are searched."""
        return self._greedy

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`; nothing is searched."""
        return self._greedy.extend(planner, gates, candidates)

    @property
    def known(self) -> Plan | None:
        """See :meth:`Strategy.known`. Of nodes that wait for budgets, a plan that knows of them tells too little."""
        warm = self._rules.warm
        spent = bool(warm) and (bool(warm[0].later) or warm[0].refuses(Reason.PDB_SPENT_BY_PLAN))
        return None if not warm or spent or warm[0].strategy != self.name else warm[0]

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round over all candidates, and keep the better of both plans."""
        warm = () if self._begun else self._rules.warm
        greedy: _Found | None = None
        if not warm or new_planner(self.choose).placement != "possible":
            outcome = self._greedy.run(new_planner, gates)
            if self._begun or outcome.planner.placement != "possible":
                return outcome
            greedy = best = self._found(outcome)
        else:
            # A known plan stays unless another is better: nodes are steered by it already.
            best = max((self._replayed(plan, new_planner, gates) for plan in warm), key=lambda each: each.score)
            broken = best.broken
            if broken or self.known is None:
                # Reasons cost more than the plan, and a plan known from before is seldom worse.
                quick = self._found(self._greedy.run(_unexplained(new_planner), gates))
                if quick.score > best.score:
                    greedy = best = self._found(self._greedy.run(new_planner, gates))
            self.searched = self._as_known(warm[0].searched, best, broken, known=greedy is None)
        self._begun = True
        if self._rules.iterations != 0:
            best = self._search(best, gates, afresh=best is greedy)
        return best.outcome

    def _replayed(self, plan: Plan, new_planner: NewPlanner, gates: Gates) -> _Found:
        again = replay(plan, new_planner, gates, self._greedy)
        return self._found(again.outcome, again.broken)

    def _as_known(self, before: Searched | None, best: _Found, broken: int, *, known: bool) -> Searched:
        """Return what an earlier search, *before*, came to for the present cluster: as much more than the strategy."""
        nodes, removed = len(best.outcome.planner.snapshot.nodes), len(best.removals)
        more = 0 if before is None or not known else before.removed - before.greedy_removed
        evictions = 0 if before is None or not known else before.evictions - before.greedy_evictions
        return Searched(
            seconds=None if before is None else before.seconds,
            iterations=0 if before is None else before.iterations,
            greedy_removed=max(0, removed - more),
            greedy_evictions=max(0, best.evictions - evictions),
            removed=removed,
            evictions=best.evictions,
            bound=0 if before is None else min(before.bound, nodes - removed),
            warm_start=known and not broken,
            broken=broken,
        )

    def _search(self, start: _Found, gates: Gates, *, afresh: bool) -> _Found:
        """Return the better of *start* and what a search from there finds."""
        rules = self._rules
        effort = Effort(rules.iterations, rules.seconds, rules.clock, rules.stop)
        new_planner = _own_spaces(start.outcome.planner)
        before = new_planner(self.choose)
        problem = extract(before, limits_of(gates, before))
        best, least, exact = start, 0, None
        if problem is not None:
            floor = bound(problem, lambda: effort.spent() > BOUND_PART)
            origin, least = started(problem, start.removals), floor.nodes
            found = improve(problem, floor, origin, effort, rules.seed, afresh=afresh)
            if found is not None and not effort.stopped:
                played = self._found(play(problem, found, new_planner, gates, self._greedy))
                best = played if played.score > start.score else start
            if rules.solving and len(before.snapshot.nodes) - len(best.removals) > least:
                exact = solved_bound(problem, rules.solving)
        known = self.searched
        self.searched = Searched(
            seconds=rules.seconds,
            iterations=effort.iterations,
            greedy_removed=len(start.removals) if known is None else known.greedy_removed,
            greedy_evictions=start.evictions if known is None else known.greedy_evictions,
            removed=len(best.removals),
            evictions=best.evictions,
            bound=least if exact is None else max(least, exact),
            solved=exact is not None,
            warm_start=None if known is None else known.warm_start,
            broken=0 if known is None else known.broken,
        )
        return best

    def _found(self, outcome: Outcome, broken: int = 0) -> _Found:
        return _Found(outcome, straightened(outcome.planner), broken, self.by_price)


def _unexplained(new_planner: NewPlanner) -> NewPlanner:
    """Return what makes the same planners, whose refusals only name their reasons."""

    def quick(choose: Choice) -> Planner:
        planner = new_planner(choose)
        planner.explain = False
        return planner

    return quick


def _own_spaces(planner: Planner) -> NewPlanner:
    """Return what makes planners like *planner*, each with a space of its own: a search looks at several at once."""
    snapshot, candidates = planner.snapshot, tuple(planner.candidates.values())

    def new_planner(choose: Choice) -> Planner:
        ledger = DisruptionLedger(snapshot)
        return Planner(snapshot, ledger, candidates, planner.placement, choose=choose, round_number=planner.round)

    return new_planner
