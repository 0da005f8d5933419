"""One plan in the order of what nodes cost in evictions: each beginning of the plan is a point of the frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tightship.frontier.program import Program
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.plan.model import Candidate, Plan, Proven, Removal, SearchRules
from tightship.planning.plan.planner import Planner
from tightship.planning.plan.strategies import Gates, NewPlanner, Outcome, Strategy
from tightship.rules.disruption import DisruptionLedger
from tightship.scheduler.scoring import Choice, aligned
from tightship.search.limits import limits_of
from tightship.search.problem import extract

POINTS = 10
"""Points of a frontier, from a tenth of the removals to all of them."""


class Buying(Strategy):
    """Removes first what the program gives up first; then the other nodes, those of most worth a pod first.

    With *most* evictions at most, the program chooses the nodes of most worth, and the plan says why the rest stays.
    Where :meth:`over` names a strategy that ends by a count of nodes, the plan ends there too. Without a program, for
    want of a solver or with too many nodes and kinds of pods, nodes of most worth a pod go first.
    """

    name = "fewest-evictions"
    grows = False
    choose: Choice = staticmethod(aligned)

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._own: Strategy = self
        self._program: Program | None = None
        self._rank: Mapping[str, int] = {}
        self._worth: Mapping[str, float] = {}
        self._fewest: Sequence[int] = ()
        self._target, self._ended = 0, dict[str, list[Refusal]]()

    def over(self, own: Strategy, _: SearchRules) -> Strategy:
        """Return this strategy for the controller whose strategy is *own*."""
        self._own = own
        return self

    @property
    def plain(self) -> Strategy:
        """What is expected to go: the nodes that the program chose, wherever their pods find places."""
        return _Chosen(self)

    def proven(self, plan: Plan) -> Proven:
        """Return what beginnings of *plan* have and need; *plan* is the one that this strategy has made."""
        spent = np.cumsum([len(each.moves) for each in plan.removals]).tolist()
        points = []
        for removed in sorted({len(spent) * part // POINTS for part in range(1, POINTS + 1)} - {0}):
            choice = None if self._program is None else self._program.fewest(removed)
            least = sum(self._fewest[:removed]) if choice is None else choice.least
            points.append((removed, spent[removed - 1], least))
        return Proven(points, self._program is not None and self._program.solved)

    def run(self, new_planner: NewPlanner, gates: Gates) -> Outcome:
        """Plan one round over all candidates."""
        if not self._own.grows:
            outcome = self._own.run(new_planner, gates)
            self._target, self._ended = len(outcome.planner.removals), dict(outcome.stays)
        return super().run(new_planner, gates)

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        """See :meth:`Strategy.extend`."""
        stays: dict[str, list[Refusal]] = {}
        spent = 0
        for each in sorted(candidates, key=self._key):
            pods = len(planner.pods_of(each))
            if self._most is not None and spent + pods > self._most:
                stays[each.name] = [_over(each.name, pods, self._most, spent)]
            elif not self._own.grows and len(planner.removals) >= self._target:
                stays[each.name] = self._ended.get(each.name) or [_full(each.name, self._target)]
            elif refusals := gates.refuses(each, planner) or planner.attempt(each):
                stays[each.name] = refusals
            else:
                spent += pods
        return stays

    def chosen(self, planner: Planner, gates: Gates) -> list[str]:
        """Return the nodes that the program chooses, in the order in which they go, before *planner* plans anything."""
        candidates = planner.candidates.values()
        self._fewest = sorted(len(each.evict) for each in candidates)
        priced = any(each.price is not None for each in candidates)
        self._worth = {each.name: planner.start.worth(each) if priced else 1.0 for each in candidates}
        problem = extract(planner, limits_of(gates, planner))
        if problem is None:
            return []
        self._program = program = Program(problem)
        if self._most is None:
            share = program.order(POINTS)
        else:
            share = program.most(np.array([self._worth.get(name, 0.0) for name in problem.names]), self._most)
        first = np.lexsort((program.evictions, -share.round(3)))
        names = [problem.names[node] for node in first.tolist() if share[node] > _LEAST]
        self._rank = {name: rank for rank, name in enumerate(names)}
        return names

    def _key(self, each: Candidate) -> tuple[bool, int, float, float, str]:
        gain = self._worth.get(each.name, 1.0) / max(len(each.evict), 0.1)
        return not each.maintenance, self._rank.get(each.name, len(self._rank)), -gain, each.ratio, each.name


_LEAST = 1e-6
"""The least part of a node that counts as chosen; what is less is the solver's tolerance."""


class _Chosen(Strategy):
    name = Buying.name
    choose: Choice = staticmethod(aligned)

    def __init__(self, buying: Buying) -> None:
        self._buying = buying

    def extend(self, planner: Planner, gates: Gates, candidates: Sequence[Candidate]) -> dict[str, list[Refusal]]:
        del candidates
        planner.ledger = DisruptionLedger(planner.snapshot)  # not the one that renews itself
        planner.removals = [Removal(name, planner.round, ()) for name in self._buying.chosen(planner, gates)]
        return {}


def _full(node: str, nodes: int) -> Refusal:
    detail = f"the plan removes {counted(nodes, 'other node')}, as many as the controller's own plan"
    return Refusal(Reason.MAX_EVICTIONS_REACHED, node, detail)


def _over(node: str, pods: int, most: int, spent: int) -> Refusal:
    detail = f"the plan may have {counted(most, 'eviction')}: {spent:,} are spent, and this node takes {pods:,}"
    return Refusal(Reason.MAX_EVICTIONS_REACHED, node, detail, "raise --evictions")
