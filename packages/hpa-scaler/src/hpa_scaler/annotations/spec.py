"""The parsed annotations of one HPA, and the rules for judgements.

Durations are in seconds, times in seconds since 1970.
"""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from tightship.objects import ScaleTarget
from tightship.objects.counting import counted
from tightship.objects.times import format_duration
from tightship.rules.windows import Windows

PREFIX = "tightship.dev"
"""The default prefix; :mod:`hpa_scaler.annotations.parsing` reads the older controller's too."""

ENABLE = "hpa-scaler"
"""The name of the annotation that opts in, with which the names of all others begin."""
STATE = "state"
"""Written by the controller, never read as a setting."""

AGE_QUERY = "time() - min(min_over_time(timestamp(up)[{range}s:{step}s]))"
"""The age of a server's data in seconds, at most the range: the time since the oldest sample of any target in that
range. A Prometheus that has lost its data answers with the time since the loss."""

LATE_QUERY = (
    "(time() - max(timestamp(up)))"
    " * max((count_over_time(up[10m]) > 2) / (timestamp(up) - min_over_time(timestamp(up)[10m:30s]) > 0))"
)
"""The age of the newest sample of all targets, in scrape intervals as the samples of ten minutes show them, or of less
where the data are younger. No answer if the scrapes are too far apart to tell."""

FAILED_QUERY = "avg_over_time(up[{range}s]) < 0.9 and (max_over_time(up[10m]) > 0 or max_over_time(up[1h:2m]) > 0)"
"""The targets that could not always be scraped in a range, but at least once within the last hour: every sample of ten
minutes counts, and before that one in two minutes, because all samples of an hour are too many."""

MissingDataRule = Literal["hold", "zero", "replicas", "current", "currentIfHigher"]
SeriesRule = Literal["hold", "max", "error"]
MaxReplicasRule = Literal["raise", "clamp"]
Season = Literal["daily", "weekly"]


class ServerRef(Struct, frozen=True, order=True, omit_defaults=True):
    """The server to query: a configured *name*, or the address *url*; without either, the default server."""

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
    """The substitute for a query's answer after *after* consecutive cycles without one; *replicas* belongs to
    ``replicas``.
    """

    rule: MissingDataRule = "hold"
    after: int = 3
    replicas: int = 0

    def __str__(self) -> str:
        return f"replicas={self.replicas}" if self.rule == "replicas" else self.rule


class Band(Struct, frozen=True):
    """The deadband: how far a floor may be too high and still stay, in *pods* or as a *share* of the floor, rounded
    down.
    """

    pods: int = 0
    share: float = 0.0

    def of(self, floor: int) -> int:
        """Return the band around *floor* in pods."""
        return max(self.pods, math.floor(floor * self.share + 1e-9))

    def __str__(self) -> str:
        return f"{self.share:.0%}" if self.share else str(self.pods)


class PauseSpec(Struct, frozen=True):
    """No pause, a pause without an end, or a pause that ends at *until*."""

    on: bool = False
    until: float | None = None

    def active(self, now: float) -> bool:
        """Whether the pause holds at *now*."""
        return self.on and (self.until is None or now < self.until)

    def left(self, now: float) -> str:
        """Return for how much longer the pause holds, empty if it has no end."""
        return "" if self.until is None else f" for another {format_duration(self.until - now)}"


class HoldSpec(Struct, frozen=True):
    """The query for incidents. Nothing is lowered while its answer is other than zero, and for *cool_down* after."""

    text: str
    cool_down: float = 300.0
    server: ServerRef = ServerRef()


class ForecastSpec(Struct, frozen=True, order=True):
    """A forecast of the next *ahead* seconds, by the same time of earlier days or weeks."""

    season: Season
    ahead: float = 900.0


class FloorSpec(Struct, frozen=True):
    """Everything that one HPA asks for. Defaults are the older controller's, for settings that it has.

    *ratio* is the part of the present replicas that one step down may remove (at least one pod). *up_ratio* and
    *up_pods* limit steps up; the smaller counts. *query_range* is the look-back of queries whose text does not show it,
    such as recording rules; ``None`` if the HPA does not set it. *lowest* and *highest* bound the floor. *window* is
    how long a wanted floor is kept; ``None``: as long as the queries need. *lower_during* are the windows in which the
    floor may be lowered.
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
    lower_during: Windows = Windows()
    lowest: int | None = None
    highest: int | None = None
    max_replicas: MaxReplicasRule = "raise"
    paused: PauseSpec = PauseSpec()
    paused_down: PauseSpec = PauseSpec()
    paused_up: PauseSpec = PauseSpec()
    dry_run: bool = False
    hold: HoldSpec | None = None
    forecast: ForecastSpec | None = None


class Problems(Struct, frozen=True):
    """Invalid annotations, one line each; any of them disables the HPA."""

    lines: tuple[str, ...]


class Rules(Struct, frozen=True, kw_only=True):
    """The rules for every judgement.

    *lower_bound* is the lowest floor of HPAs that set none. *age_query* asks a server for the age of its data,
    *late_query* for late samples, and *failed_query* for targets with failed scrapes; an empty query is not sent.
    *longest_guard* is the longest time for which young data hold a floor, *rollout_limit* the longest time for which a
    rollout does. *longest_gap* is the greatest age at which a history can be continued. *handover_gap* is the same for
    a history that another leader left in the annotation. That gap must hide no cycle, because the other leader may not
    have written down the cycle's results.

    After *contest_resets* changes by somebody else, each within *contest_window* of the one before, the controller
    leaves an HPA alone for *contest_pause*. Each further change doubles the pause, up to *contest_longest_pause*.

    The breaker for correlated drops needs *drop_count* queries or more. A query drops if it wants less than before by
    more than the share *drop_size*. If more than *drop_share* of the queries drop, or more than *drop_floor_share* of
    all wanted pods are lost, nothing is lowered for *drop_hold* (0: until the queries recover).

    A floor goes above *rise_factor* times the known floor of the last day, and above *rise_pods*, only once the queries
    have wanted that for as long as they look back. No floor goes above *maximum_factor* times the user's own maximum. A
    factor of 0 is no limit. Floors are lowered only while *windows* are open, and raised at any time.
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
    windows: Windows = Windows()


class Rollout(Struct, frozen=True):
    """The state of a rollout; *detail* has the numbers, or says why the state is unknown."""

    state: Literal["steady", "rolling", "unknown"]
    detail: str = ""


def rollout_of(target: ScaleTarget) -> Rollout:
    """Return whether *target* is rolling out.

    A Deployment rolls out until all its pods have the newest template: ``status.replicas`` includes surge pods, unlike
    the replicas that an HPA knows. A StatefulSet rolls out while its two revisions differ, an Argo Rollout also while
    its phase says so. A spec that the target's controller has not seen yet counts as a rollout.
    """
    what = f"{target.kind} {target.name}"
    if target.paused or target.phase == "Paused":
        what += ", which is paused,"
    if target.observed_generation is not None and target.observed_generation < target.generation:
        return Rollout("rolling", f"the controller of {what} has not seen the newest spec yet")
    if target.kind == "StatefulSet":
        if target.current_revision != target.update_revision:
            return Rollout("rolling", f"{what} goes from {target.current_revision} to {target.update_revision}")
    elif target.kind != "ReplicaSet" and target.replicas > target.updated:
        return Rollout("rolling", f"{what} has {counted(target.updated, 'new pod')} of {target.replicas}")
    if target.phase == "Paused":
        return Rollout("rolling", f"{target.kind} {target.name} is paused")
    if target.phase == "Progressing":
        return Rollout("rolling", f"{what} is Progressing")
    return Rollout("steady")
