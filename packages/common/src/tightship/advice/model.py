"""Changes that would free nodes, and what they gain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.evaluate import Evaluation, Judge
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Move, Plan


class Change(Struct, frozen=True, eq=False):
    """One change to one *thing* behind *reason*: in the cluster (*edit*), or in the controller's settings (*tune*).

    *commands* make the change in the cluster. *flags* make the change of settings for one plan; they are empty where
    no flag does just that. *note* is what whoever makes the change has to know. *tighter* returns smaller changes of
    the same setting that may do for a plan, the smallest first, and *only* the change that one node needs; both are
    ``None`` where the change has no size.
    """

    reason: Reason
    thing: str
    edit: Callable[[Snapshot], Snapshot] | None = None
    tune: Callable[[Any], Any] | None = None
    commands: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    note: str = ""
    tighter: Callable[[Plan], Sequence[Change]] | None = None
    only: Callable[[NodeFacts], Change] | None = None


class Scenario(Struct, frozen=True):
    """A cluster and the settings that judge it."""

    snapshot: Snapshot
    settings: Any

    def after(self, changes: Iterable[Change]) -> Scenario:
        """Return the scenario with *changes* made, in their order."""
        snapshot, settings = self.snapshot, self.settings
        for change in changes:
            if change.edit is not None:
                snapshot = change.edit(snapshot)
            if change.tune is not None:
                settings = change.tune(settings)
        return Scenario(snapshot, settings)


class Tunable(Protocol):
    """A controller's settings, as far as advice changes them."""

    @property
    def settings(self) -> Any:
        """The settings in force."""

    def judge(self, settings: Any) -> Judge[Any]:
        """Return the judge of *settings*."""

    def change(self, reason: Reason, fact: NodeFacts, evaluation: Evaluation[Any]) -> Change | None:
        """Return the change of settings against *reason* for nodes of the pool of *fact*, ``None`` if there is none."""

    def without(self, reason: Reason) -> Change:
        """Return the change that switches the rule of *reason* off."""

    def values(self, settings: Any) -> Mapping[str, Any]:
        """Return *settings* as plain data by the configuration's keys."""

    def winning(self, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the flags of this command that win over *values*, by the configuration's keys."""


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

    *settings* are those in force with the changes.
    """

    changes: tuple[Change, ...]
    gain: Gain
    freed: tuple[str, ...]
    settings: Any


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
