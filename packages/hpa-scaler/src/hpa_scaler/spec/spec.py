"""What the annotations of one HPA ask for, typed, and the rules of judgements.

Durations are in seconds, times in seconds since 1970.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from tightship.core.counting import counted
from tightship.core.objects import ScaleTarget

PREFIX = "estafette.io"
"""The default prefix, which is the older controller's."""

AGE_QUERY = "time() - min(min_over_time(timestamp(up)[{range}s:{step}s]))"
"""The age of a server's data in seconds, no more than the range asked for: how long ago the oldest sample of any target
in that range was taken. A Prometheus that has lost its data answers with the time since then."""

LATE_QUERY = "(time() - max(timestamp(up))) * (max(count_over_time(up[10m])) > 2) / 600"
"""How old the newest sample of all targets is, in scrape intervals. No answer if the scrapes are too
far apart to tell."""

FAILED_QUERY = "avg_over_time(up[{range}s]) < 0.9 and max_over_time(up[1h:2m]) > 0"
"""The targets that could not always be scraped in a range, but within the last hour."""

MissingDataRule = Literal["hold", "zero", "replicas", "current", "currentIfHigher"]
SeriesRule = Literal["hold", "max", "error"]
MaxReplicasRule = Literal["raise", "clamp"]


class ServerRef(Struct, frozen=True, order=True, omit_defaults=True):
    """Which server to query: one that the configuration names, or an address; the default server if neither is set."""

    name: str = ""
    url: str = ""

    def __str__(self) -> str:
        return self.name or self.url or "default"


class QuerySpec(Struct, frozen=True):
    """One query, and the replicas that follow from its value: ``ceil(delta + value / per_replica)``."""

    text: str
    per_replica: float = 1.0
    delta: float = 0.0
    server: ServerRef = ServerRef()


class MissingData(Struct, frozen=True):
    """What replaces a query's answer after *after* cycles in a row without one; *replicas* belongs to the rule
    ``replicas``.
    """

    rule: MissingDataRule = "hold"
    after: int = 3
    replicas: int = 0

    def __str__(self) -> str:
        return f"replicas={self.replicas}" if self.rule == "replicas" else self.rule


class Band(Struct, frozen=True):
    """How far a floor may be too high and still stay: *pods*, or a *share* of the floor, rounded down."""

    pods: int = 0
    share: float = 0.0

    def of(self, floor: int) -> int:
        """Return the band around *floor* in pods."""
        return max(self.pods, math.floor(floor * self.share + 1e-9))

    def __str__(self) -> str:
        return f"{self.share:.0%}" if self.share else str(self.pods)


class PauseSpec(Struct, frozen=True):
    """A pause: none, one without an end, or one that ends at *until*."""

    on: bool = False
    until: float | None = None

    def active(self, now: float) -> bool:
        """Whether the pause holds at *now*."""
        return self.on and (self.until is None or now < self.until)


class HoldSpec(Struct, frozen=True):
    """The query of an incident: nothing is lowered while it answers with anything but zero, and for
    *cool_down* after.
    """

    text: str
    cool_down: float = 300.0
    server: ServerRef = ServerRef()


class Spec(Struct, frozen=True):
    """Everything that one HPA asks for; the defaults are the older controller's, where it has the setting.

    *ratio* is the part of the present replicas that one step down may take (at least one pod). *up_ratio* and *up_pods*
    limit steps up; the smaller counts. *query_range* is how far back the queries look if their text does not show it,
    as behind recording rules; ``None`` if the HPA does not say. *lowest* and *highest* bound the floor. *window* is how
    long a wanted floor is kept; ``None``: as long as the queries need.
    """

    queries: tuple[QuerySpec, ...] = ()
    series: SeriesRule = "hold"
    missing: MissingData = MissingData()
    query_range: float | None = None
    ratio: float = 1.0
    rollout_check: bool = False
    up_ratio: float | None = None
    up_pods: int | None = None
    honour_behavior: bool = True
    deadband: Band = Band()
    window: float | None = None
    lowest: int | None = None
    highest: int | None = None
    max_replicas: MaxReplicasRule = "raise"
    paused: PauseSpec = PauseSpec()
    paused_down: PauseSpec = PauseSpec()
    paused_up: PauseSpec = PauseSpec()
    dry_run: bool = False
    hold: HoldSpec | None = None


class Problems(Struct, frozen=True):
    """Invalid annotations, one line each; they disable their HPA."""

    lines: tuple[str, ...]


class Rules(Struct, frozen=True, kw_only=True):
    """The rules of every judgement.

    *lower_bound* is the lowest floor of HPAs that set none. *age_query* asks a server for the age of its data,
    *late_query* whether its samples come late, and *failed_query* for the targets that it could not scrape; an empty
    one is not sent. *longest_guard* is the longest time that young data hold a floor, *rollout_limit* the longest that
    a rollout does. *longest_gap* is the greatest age at which a history can be continued; *handover_gap* is the same
    for a history that another term of leadership left in the annotation. It must hide no cycle, because that cycle's
    results may not have been written down.

    After *contest_resets* changes by somebody else, each within *contest_window* of the one before, the controller
    leaves an HPA alone for *contest_pause*, doubled with each further change up to *contest_longest_pause*.

    The breaker for correlated drops looks at *drop_count* queries or more. If more than *drop_share* of them, or more
    than *drop_floor_share* of the pods that they wanted, are gone at once, each by more than *drop_size* of what it
    wanted, nothing is lowered for *drop_hold* (0: until they recover).

    A floor goes above *rise_factor* times what is known of the last day, and above *rise_pods*, only once the queries
    have wanted it for as long as they look back; and never above *maximum_factor* times the user's own maximum (0: no
    limit, each).
    """

    prefix: str = PREFIX
    lower_bound: int = 3
    age_query: str = AGE_QUERY
    late_query: str = LATE_QUERY
    failed_query: str = FAILED_QUERY
    cold_guard: bool = True
    longest_guard: float = 3600.0
    rollout_limit: float = 1800.0
    longest_gap: float = 300.0
    handover_gap: float = 300.0
    contest_resets: int = 3
    contest_window: float = 3600.0
    contest_pause: float = 900.0
    contest_longest_pause: float = 6 * 3600.0
    drop_count: int = 10
    drop_share: float = 0.5
    drop_floor_share: float = 0.5
    drop_size: float = 0.3
    drop_hold: float = 3600.0
    rise_factor: float = 3.0
    rise_pods: int = 10
    maximum_factor: float = 3.0


class Rollout(Struct, frozen=True):
    """The state of a rollout; *detail* has the numbers, or says why the state is unknown."""

    state: Literal["steady", "rolling", "unknown"]
    detail: str = ""


def rollout_of(target: ScaleTarget) -> Rollout:
    """Return whether *target* is rolling out.

    A Deployment rolls out until all its pods have the newest template: ``status.replicas`` includes the pods of a
    surge, unlike the replicas that an HPA knows. A StatefulSet rolls out while its two revisions differ, an Argo
    Rollout also while its phase says so. A spec that the controller has not seen yet counts as a rollout.
    """
    what = f"{target.kind} {target.name}"
    if target.observed_generation is not None and target.observed_generation < target.generation:
        return Rollout("rolling", f"the controller of {what} has not seen the newest spec yet")
    if target.kind == "StatefulSet":
        if target.current_revision != target.update_revision:
            return Rollout("rolling", f"{what} goes from {target.current_revision} to {target.update_revision}")
    elif target.kind != "ReplicaSet" and target.replicas > target.updated:
        return Rollout("rolling", f"{what} has {counted(target.updated, 'new pod')} of {target.replicas}")
    if target.phase in ("Progressing", "Paused"):
        return Rollout("rolling", f"{what} is {target.phase}")
    return Rollout("steady")
