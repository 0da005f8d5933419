"""Plays what a search found through the planner, which alone decides whether a removal is valid, and in what order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from tightship.planning.placement.scoring import Choice, Indices
from tightship.planning.placement.space import Ask, Space
from tightship.planning.plan.model import Plan, Removal
from tightship.planning.plan.planner import Planner
from tightship.planning.plan.strategies import Gates, Outcome, Strategy
from tightship.planning.search.improve import Packed
from tightship.planning.search.problem import Problem

PASSES = 3
"""How often the removals that a planner refused are tried again: others may have made room or freed a budget."""


class PlannedTargets:
    """A :data:`~tightship.planning.placement.scoring.Choice` of the targets that a search found, where they fit."""

    def __init__(self, otherwise: Choice) -> None:
        self._otherwise = otherwise
        self._wanted: dict[int, list[int]] = {}
        self._taken: list[tuple[int, int, int]] = []

    def expect(self, targets: list[tuple[Ask, int]]) -> None:
        """From now on place pods with these asks on these nodes."""
        self._wanted = {}
        self._taken = []
        for ask, node in targets:
            self._wanted.setdefault(id(ask), []).append(node)

    def __call__(self, space: Space, ask: Ask, nodes: Indices) -> int:
        mark = space.mark()
        # The planner undoes choices when it starts over: those made at this point of the journal or later.
        while self._taken and self._taken[-1][0] >= mark:
            _, key, node = self._taken.pop()
            self._wanted[key].append(node)
        wanted = self._wanted.get(id(ask), [])
        for node in sorted(wanted):
            if (nodes == node).any():
                wanted.remove(node)
                self._taken.append((mark, id(ask), node))
                return node
        return self._otherwise(space, ask, nodes)


def play(
    problem: Problem, found: Packed, new_planner: Callable[[Choice], Planner], gates: Gates, strategy: Strategy
) -> Outcome:
    """Plan what *found* removes, then let *strategy* try the other candidates."""
    choice = PlannedTargets(strategy.choose)
    planner = new_planner(choice)
    natives = problem.natives
    left = order(problem, found)
    for _ in range(PASSES):
        refused: list[int] = []
        for node in left:
            candidate = planner.candidates[problem.names[node]]
            choice.expect([(planner.space.ask(problem.pods[pod]), found.location[pod]) for pod in natives[node]])
            if gates.refuses(candidate, planner) or planner.attempt(candidate):
                refused.append(node)
        if not refused or len(refused) == len(left):
            break
        left = refused
    return _and_the_rest(planner, gates, strategy)


def replay(plan: Plan, new_planner: Callable[[Choice], Planner], gates: Gates, strategy: Strategy) -> Outcome | None:
    """Plan what is left of *plan*, ``None`` if the cluster moved under it.

    A node of the plan that is gone was drained as planned. Every other one must still be allowed to go, and all its
    pods must find their planned places. Then *strategy* tries the other candidates.
    """
    choice = PlannedTargets(strategy.choose)
    planner = new_planner(choice)
    space = planner.space
    for removal in plan.removals:
        candidate = planner.candidates.get(removal.node)
        if candidate is None:
            if removal.node in space.index:
                return None
            continue
        targets = {move.pod.key: move.target for move in removal.moves}
        pods = planner.pods_of(candidate)
        if any(targets.get(pod.key) not in space.index for pod in pods):
            return None
        choice.expect([(space.ask(pod), space.index[targets[pod.key]]) for pod in pods])
        if gates.refuses(candidate, planner) or planner.attempt(candidate):
            return None
        if not _as_planned(planner.removals[-1], targets):
            return None
    return _and_the_rest(planner, gates, strategy)


def _as_planned(removal: Removal, targets: Mapping[str, str]) -> bool:
    """Whether the pods of *removal* go to the *targets*; equal pods may have changed places."""
    found = Counter((move.pod.template, move.target) for move in removal.moves)
    return found == Counter((move.pod.template, targets[move.pod.key]) for move in removal.moves)


def _and_the_rest(planner: Planner, gates: Gates, strategy: Strategy) -> Outcome:
    planner.choose_by(strategy.choose)
    removed = {removal.node for removal in planner.removals}
    rest = [each for name, each in planner.candidates.items() if name not in removed]
    return Outcome(planner, strategy.extend(planner, gates, rest))


def order(problem: Problem, found: Packed) -> list[int]:
    """Return the removed nodes in the order of work: empty ones, then those with the hardest pods.

    No pod goes to a node that is removed later, so no order moves a pod twice. Hard pods go while most room is free.
    A node that takes the rest of a PodDisruptionBudget goes last.
    """
    whole = problem.whole()
    reach = [
        int(np.count_nonzero(problem.allowed[:, kind] & (whole >= request).all(axis=1)))
        for kind, request in enumerate(problem.requests)
    ]
    largest = np.maximum(whole.max(axis=0, initial=1.0), 1.0)
    size = (problem.requests / largest).sum(axis=1)
    last = _last(problem, found)

    def key(node: int) -> tuple[float | str, ...]:
        hardest = min(
            ((reach[problem.kinds[pod]], -float(size[problem.kinds[pod]])) for pod in natives[node]), default=(-1, 0.0)
        )
        return (node in last, *hardest, problem.names[node])

    natives = problem.natives
    return sorted(found.closed, key=key)


def _last(problem: Problem, found: Packed) -> set[int]:
    """Return the nodes that need more of a budget than the others leave."""
    by_budget: dict[int, list[tuple[int, int]]] = {}
    for node in found.closed:
        for budget, count in problem.needs[node]:
            by_budget.setdefault(budget, []).append((count, node))
    return {
        max(needs)[1]
        for budget, needs in by_budget.items()
        if sum(count for count, _ in needs) > problem.allowances[budget]
    }
