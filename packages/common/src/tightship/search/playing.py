"""Plays what a search found through the planner, which alone decides whether a removal is valid, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from tightship.objects import PodTemplate
from tightship.planning.plan.model import Candidate, Plan, Removal
from tightship.planning.plan.planner import PlannedTargets, Planner
from tightship.planning.plan.reserving import moving_nodes
from tightship.planning.plan.strategies import Gates, Outcome, Strategy
from tightship.scheduler.scoring import Choice
from tightship.scheduler.space import PodDemand, Space
from tightship.search.improve import Packed
from tightship.search.problem import Problem

PASSES = 3
"""How often the removals that a planner refused are tried again: others may have made room or freed a budget."""


def play(
    problem: Problem, found: Packed, new_planner: Callable[[Choice], Planner], gates: Gates, strategy: Strategy
) -> Outcome:
    """Plan what *found* removes, then let *strategy* try the other candidates."""
    choice = PlannedTargets(strategy.choose)
    planner = new_planner(choice)
    natives = problem.natives
    left = sorted(order(problem, found), key=lambda node: not planner.candidates[problem.names[node]].maintenance)
    for _ in range(PASSES):
        refused: list[int] = []
        for node in left:
            candidate = planner.candidates[problem.names[node]]
            choice.expect([(planner.space.demand_of(problem.pods[pod]), found.location[pod]) for pod in natives[node]])
            if gates.refuses(candidate, planner) or planner.attempt(candidate):
                refused.append(node)
        if not refused or len(refused) == len(left):
            break
        left = refused
    return _and_the_rest(planner, gates, strategy)


class ReplayedPlan(Struct, frozen=True):
    """What is left of a plan, as an *outcome*. *broken* counts the removals that no longer go as planned."""

    outcome: Outcome
    broken: int


def replay(plan: Plan, new_planner: Callable[[Choice], Planner], gates: Gates, strategy: Strategy) -> ReplayedPlan:
    """Plan what is left of *plan*, then let *strategy* try the other candidates.

    A node of the plan that is gone or in drain is dealt with. What still goes exactly as planned is planned first, so
    that nothing takes the room that the plan keeps for it. Where a pod has no target, or its target has no room any
    more, the pod finds another place after all that, and the others of its node keep their targets.
    """
    choice = PlannedTargets(strategy.choose)
    planner = new_planner(choice)
    space, moving = planner.space, frozenset(moving_nodes(planner.snapshot))
    broken: list[tuple[Candidate, list[tuple[PodDemand, int]]]] = []
    lost = 0
    for removal in plan.removals:
        candidate = planner.candidates.get(removal.node)
        if candidate is None:
            lost += removal.node in space.index and removal.node not in moving
            continue
        demands, targets = _targets(planner, candidate, removal)
        if len(targets) < len(demands) or not _find_room(space, candidate.name, targets):
            broken.append((candidate, targets))
            continue
        choice.expect(targets)
        if gates.refuses(candidate, planner) or planner.attempt(candidate):
            broken.append((candidate, targets))
    for candidate, targets in broken:
        choice.expect(targets)
        if not gates.refuses(candidate, planner):
            planner.attempt(candidate)
    return ReplayedPlan(_and_the_rest(planner, gates, strategy), lost + len(broken))


def _targets(
    planner: Planner, candidate: Candidate, removal: Removal
) -> tuple[list[PodDemand], list[tuple[PodDemand, int]]]:
    """Return the demands of the node's pods, and the targets of those that *removal* has one for.

    A pod that has come in place of an equal one takes its target.
    """
    space = planner.space
    pods = planner.pods_of(candidate)
    left = {move.pod.key: move for move in removal.moves}
    own = {pod.key: left.pop(pod.key) for pod in pods if pod.key in left}
    spare: dict[PodTemplate, list[str]] = {}
    for move in left.values():
        spare.setdefault(move.pod.template, []).append(move.target)
    demands: list[PodDemand] = []
    found: list[tuple[PodDemand, int]] = []
    for pod in pods:
        demand, others = space.demand_of(pod), spare.get(pod.template)
        demands.append(demand)
        target = own[pod.key].target if pod.key in own else others.pop() if others else ""
        if target in space.index:
            found.append((demand, space.index[target]))
    return demands, found


def _find_room(space: Space, name: str, targets: Sequence[tuple[PodDemand, int]]) -> bool:
    """Whether all pods that leave node *name* fit on their *targets*."""
    mark, node = space.mark(), space.index[name]
    space.close(node)
    for demand, _ in targets:
        space.remove(demand, node)
    fits = True
    for demand, target in targets:
        if not space.accepts(demand, target):
            fits = False
            break
        space.place(demand, target)
    space.rollback(mark)
    return fits


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
