"""Documents about floors: the output of ``-o json``, and the source of every other output.

Keys are camelCase on the wire and only ever added within one ``apiVersion``; see ``tightship.documents.document`` for
the house rules. Times are RFC 3339 in UTC, durations are whole seconds with the unit in the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from hpa_scaler.annotations.queries import RangeFrom
from tightship.documents.document import Generator, Head, SettingsView, Source

Action = Literal["raise", "lower", "hold", "skip"]


class BoundMove(Struct, frozen=True, rename="camel"):
    """A bound now, and after the plan."""

    now: int
    after: int

    @property
    def moves(self) -> bool:
        """Whether the bound changes."""
        return self.now != self.after

    def __format__(self, spec: str) -> str:
        """Return ``5 → 8``, or ``5`` if the bound stays, each number by *spec*."""
        now = format(self.now, spec)
        return f"{now} → {format(self.after, spec)}" if self.moves else now


class QueryEntry(Struct, frozen=True, rename="camel"):
    """One query: its answer, and the replicas that follow, ``ceil(delta + value / perReplica)``.

    *outcome* is ``answered``, or the reason why the answer can't be used as it is; then *value* and *replicas* may be
    ``null``. *looks_back_seconds* is how far back the data must reach, *range_from* the source of that number.
    *expected* is the highest value that a forecast expects soon.
    """

    query: str
    server: str
    outcome: str
    value: float | None
    per_replica: float
    delta: float
    replicas: int | None
    looks_back_seconds: int
    range_from: RangeFrom
    expected: float | None


class Floors(Struct, frozen=True, rename="camel"):
    """Every floor that was compared; ``null`` if absent or unknown.

    *wanted* is the floor within all caps; *window* and *raise_to* limit one step.
    """

    by_query: int | None
    by_ratio: int | None
    lower_bound: int
    upper_bound: int | None
    missing_data: int | None
    wanted: int
    window: int | None
    raise_to: int | None
    by_forecast: int | None


class CauseEntry(Struct, frozen=True, rename="camel"):
    """One reason; *fix* is the smallest change that would remove it, ``null`` if none is known."""

    reason: str
    detail: str
    fix: str | None


class HpaEntry(Struct, frozen=True, rename="camel"):
    """One HPA: its floor now and after, the inputs, and every reason, the most important first.

    *own_maximum* is the user's own maxReplicas. *desired_replicas* is the number that the HPA itself wants, ``null`` if
    its status has none. *floors* is ``null`` for a skipped HPA. The floor goes down only to the highest floor wanted in
    *lowering_window_seconds*; with 0, one answer is enough.
    """

    namespace: str
    name: str
    target: str
    action: Action
    dry_run: bool
    minimum: BoundMove
    maximum: BoundMove
    own_maximum: int
    replicas: int | None
    desired_replicas: int | None
    queries: tuple[QueryEntry, ...]
    formula: str
    ratio: float | None
    floors: Floors | None
    data_age_seconds: int | None
    lowering_window_seconds: int | None
    reasons: tuple[str, ...]
    causes: tuple[CauseEntry, ...]

    @property
    def key(self) -> str:
        """The HPA as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Actions(Struct, frozen=True, rename="camel"):
    """How many HPAs get each action."""

    raised: int
    lowered: int
    held: int
    skipped: int


class ReasonCount(Struct, frozen=True, rename="camel"):
    """A reason, and how many HPAs have it."""

    reason: str
    hpas: int


class Drops(Struct, frozen=True, rename="camel"):
    """The breaker for correlated drops: its counts, and whether it *held* all lowering."""

    counted: int
    dropping: int
    floor: int
    lost: int
    held: bool


class FloorSummary(Struct, frozen=True, rename="camel"):
    """The plan in numbers. *floor* is the sum of all floors; *not_enabled* HPAs are not opted in and not listed."""

    hpas: int
    not_enabled: int
    actions: Actions
    floor: BoundMove
    maxima_raised: int
    drops: Drops
    reasons: tuple[ReasonCount, ...]


class FloorHead(Head, frozen=True, rename="camel"):
    """The beginning of a document about floors."""

    settings: SettingsView

    @property
    def heading(self) -> tuple[str, str]:
        """The source of the HPAs, and the settings in force."""
        return self.judged, self.settings.summary


class FloorPlan(FloorHead, frozen=True, rename="camel", tag_field="kind", tag="FloorPlan"):
    """Where the floors of all HPAs would go in the next cycle, and why."""

    summary: FloorSummary
    hpas: tuple[HpaEntry, ...]
    warnings: tuple[str, ...]


class RememberedState(Struct, frozen=True, rename="camel"):
    """The content of an HPA's state annotation; *target* and *reason* are from the last change."""

    target: int | None
    reason: str | None
    evaluated_at: str | None
    answered_since: str | None
    failures: int
    highest_floor_in_window: int | None
    incident_at: str | None
    rolling_since: str | None
    set_back_by_others: int
    original_minimum: int | None
    original_maximum: int | None
    applied_minimum: int | None
    applied_maximum: int | None


class HpaDetail(Struct, frozen=True, rename="camel"):
    """Everything about one HPA. *gives_back* are its bounds after an opt-out or a release, ``null`` if not ours."""

    hpa: HpaEntry
    annotations: Mapping[str, str]
    conditions: tuple[str, ...]
    managers: tuple[str, ...]
    remembered: RememberedState
    gives_back: tuple[int, int] | None


class FloorExplanation(FloorHead, frozen=True, rename="camel", tag_field="kind", tag="FloorExplanation"):
    """Why the floors of some HPAs are where they are."""

    hpas: tuple[HpaDetail, ...]
    warnings: tuple[str, ...]


ReleaseOutcome = Literal["restored", "would-restore", "nothing-ours", "refused", "failed", "gone"]


class ReleaseEntry(Struct, frozen=True, rename="camel"):
    """One HPA: its bounds before and after, and the outcome.

    *left* names the bound that stays because somebody else set a newer value, and who; empty if none stays. *detail*
    quotes the API server after a refusal or a failure; then the bounds do not change.
    """

    namespace: str
    name: str
    outcome: ReleaseOutcome
    opted_in: bool
    minimum: BoundMove
    maximum: BoundMove
    left: str
    detail: str


class FloorRelease(Struct, frozen=True, rename="camel", tag_field="kind", tag="FloorRelease"):
    """The results of a release. *leaders* are controllers that run meanwhile."""

    api_version: Literal["tightship.dev/v1"]
    generator: Generator
    source: Source
    dry_run: bool
    leaders: tuple[str, ...]
    hpas: tuple[ReleaseEntry, ...]
    warnings: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether nothing of ours is left on any of the HPAs."""
        return all(each.outcome not in ("refused", "failed") for each in self.hpas)
