"""What a planner remembers of its attempts, so that a second plan over the same space repeats them without a search."""

from __future__ import annotations

from msgspec import Struct

from tightship.core.reasons import Refusal
from tightship.planning.disruption import Charge
from tightship.planning.placement.scoring import Choice
from tightship.planning.placement.space import Changes
from tightship.planning.plan.scale_ups import Guest, RoomOf


class Tried(Struct, frozen=True):
    """The result of a search for places: *refusals*, or the nodes on which pods are *placed* in the space.

    *shifted* are replicas about to start that had to make way, with their old and new nodes.
    """

    refusals: list[Refusal] = []
    placed: list[tuple[Guest, int]] = []
    shifted: list[tuple[Guest, int, int]] = []


class Attempt(Struct, frozen=True):
    """An attempt as it went: what it *tried* and, if there were places, what it *changed* in the space.

    *charge* is what the removal spends, *next_start* where the scheduler's model continues to look. Refusals are
    *explained*, or only name their reasons.
    """

    tried: Tried
    charge: Charge
    next_start: int
    explained: bool
    changed: Changes = ()


Before = tuple[int, str, int, Choice]
"""What an attempt's outcome depends on: the state of the plan, the candidate, where the scheduler's model continues to
look, and how nodes are chosen."""


class PlanMemory:
    """The attempts of planners over one space that spend alike. State 0 is the empty plan."""

    def __init__(self) -> None:
        self.attempts: dict[Before, Attempt] = {}
        self._states: dict[Before, int] = {}

    def after(self, before: Before) -> int:
        """Return the state of the plan once the candidate of *before* is planned."""
        return self._states.setdefault(before, len(self._states) + 1)


class PlannerStart(Struct, frozen=True):
    """What a planner needs to begin again: a mark of its space, and the pods for which it reserves room."""

    mark: int
    next_start: int
    waiting: dict[int, list[Guest]]
    scale_ups: RoomOf
    displaced: RoomOf
