"""What changes gain."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from tightship.objects.reasons import Reason, Refusal
from tightship.planning.changes import Change
from tightship.planning.plan import Move

Measured = Literal["plan", "extension"]
"""How a gain was measured."""


class Gain(Struct, frozen=True, order=True):
    """What a plan removes beyond another one: *micros* of the currency a month, and *nodes*."""

    micros: int
    nodes: int

    @property
    def frees(self) -> bool:
        """Whether a plan is better: it removes more, and loses nothing."""
        return self.nodes >= 0 and self.micros >= 0 and (self.nodes > 0 or self.micros > 0)


class ReasonCost(Struct, frozen=True):
    """What a plan would remove besides if nothing were kept for *reason*."""

    reason: Reason
    gain: Gain


class Bundle(Struct, frozen=True):
    """*changes* that gain something together, in the order in which to make them; *freed* are the nodes that then go.

    *settings* are those in force with the changes. *measured* says how: by a
    ``plan``, or by an ``extension`` of the plan as it stands. *instead_of* is the number (from 1) of the bundle, among
    those of one advice, to which this one is an alternative: it gains as much, and nothing besides; 0 for none.
    """

    changes: tuple[Change, ...]
    gain: Gain
    freed: tuple[str, ...]
    settings: Any
    measured: Measured = "plan"
    instead_of: int = 0


class Freed(Struct, frozen=True):
    """What frees one node: a *bundle* and the *moves* of its pods then; or what *remains* though all else is changed.

    The node goes in *round* of the plan, from 1. If it goes anyhow, the bundle has no changes. *late* says that the
    time ran out before.
    """

    bundle: Bundle | None = None
    moves: tuple[Move, ...] = ()
    round: int = 0
    remains: tuple[Refusal, ...] = ()
    late: bool = False


class Advice(Struct, frozen=True):
    """The costs of *reasons*, and *bundles*, both the dearest first. *together* is what those with these
    *numbers* (from 1) gain at once; the others add nothing to them.

    *tried* sets of changes were planned with; *untried* is how many of those known were left when the time ran out.
    *others* are sentences about what is for operators and for Karpenter to change.
    """

    reasons: tuple[ReasonCost, ...]
    bundles: tuple[Bundle, ...]
    together: Bundle | None
    numbers: tuple[int, ...]
    tried: int
    untried: int
    others: tuple[str, ...] = ()
