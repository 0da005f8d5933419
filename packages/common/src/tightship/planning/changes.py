"""Changes of a cluster and of a controller's settings, as values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Evaluation, Horizon, Judge
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Plan


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

    def judge(self, settings: Any) -> Judge:
        """Return the judge of *settings*."""

    def change(self, reason: Reason, fact: NodeFacts, evaluation: Evaluation) -> Change | None:
        """Return the change of settings against *reason* for nodes of the pool of *fact*, ``None`` if there is none."""

    def without(self, reason: Reason) -> Change:
        """Return the change that switches the rule of *reason* off."""

    def values(self, settings: Any) -> Mapping[str, Any]:
        """Return *settings* as plain data by the configuration's keys."""

    def winning(self, values: Mapping[str, Any]) -> Sequence[str]:
        """Return the flags of this command that win over *values*, by the configuration's keys."""


class TimeLimit(Struct, frozen=True):
    """How long to measure: *seconds* by *clock*. No plan begins that would take longer than what is left.

    *planned* is how many seconds the base took.
    """

    seconds: float
    clock: Callable[[], float]
    planned: float = 0.0


class AdviceAsked(Struct, frozen=True):
    """Asks which changes of *snapshot* as read, or of the settings in *tunable*, would free nodes.

    *base* is what was planned, as far as *horizon* looks; *limits* say how long to look for an answer.
    """

    tunable: Tunable
    snapshot: Snapshot
    base: Evaluation
    horizon: Horizon
    limits: TimeLimit
