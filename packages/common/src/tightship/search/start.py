"""Where a search starts: a plan, greedy or of an earlier search, as a state."""

from __future__ import annotations

from collections.abc import Sequence

from tightship.planning.plan.model import Removal
from tightship.search.improve import Packed
from tightship.search.problem import Problem
from tightship.search.state import Packing


def started(problem: Problem, removals: Sequence[Removal]) -> Packed | None:
    """Return *removals* as a state of *problem*, ``None`` if they are none: every pod must have a place there."""
    index = {name: number for number, name in enumerate(problem.names)}
    state = Packing(problem)
    targets: dict[str, str] = {}
    for removal in removals:
        node = index.get(removal.node)
        if node is None or not state.may_close(node):
            return None
        state.close(node)
        targets |= {move.pod.key: move.target for move in removal.moves}
    planned: dict[int, int | None] = {}
    for pod in state.unplaced:
        target = index.get(targets.get(problem.pods[pod].key, ""))
        if target is None and problem.evicted[pod]:
            return None
        planned[pod] = target
    left = sorted(planned, key=lambda pod: (planned[pod] is None, pod))
    while left:
        # A pod may need another one beside it, which comes later.
        waiting = [pod for pod in left if not _lands(state, pod, planned[pod])]
        if len(waiting) == len(left):
            return None
        left = waiting
    return Packed(tuple(sorted(state.closed)), tuple(state.location), state.moves)


def _lands(state: Packing, pod: int, target: int | None) -> bool:
    """Place *pod* on *target*, without a target anywhere, if it fits."""
    nodes = state.fits(state.kind[pod])
    if not len(nodes) or (target is not None and target not in nodes):
        return False
    state.move(pod, int(nodes[0]) if target is None else target)
    return True
