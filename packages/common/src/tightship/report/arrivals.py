"""Where the pods of a plan end: a plan of several rounds may move one more than once."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tightship.report.document import MoveEntry, NodePlan


class Arrival(Struct, frozen=True):
    """A pod that a plan leaves on another node: its last *move*, and the node *origin* where it is now."""

    move: MoveEntry
    origin: str


def arrivals_of(plan: NodePlan) -> Mapping[str, tuple[Arrival, ...]]:
    """Return what arrives on each node that stays and gets something, in the order of the moves."""
    ended: dict[str, Arrival] = {}
    for node in sorted((each for each in plan.nodes if each.order is not None), key=lambda each: each.order or 0):
        for move in node.moves:
            before = ended.pop(move.pod, None)
            ended[move.pod] = Arrival(move, node.name if before is None else before.origin)
    found: dict[str, list[Arrival]] = {}
    for arrival in ended.values():
        found.setdefault(arrival.move.to, []).append(arrival)
    return {name: tuple(arrived) for name, arrived in found.items()}


__all__ = ["Arrival", "arrivals_of"]
