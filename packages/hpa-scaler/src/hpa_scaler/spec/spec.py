"""What the annotations of one HPA ask for, typed. Durations are in seconds, times in seconds since 1970."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

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


class Pause(Struct, frozen=True):
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
    paused: Pause = Pause()
    paused_down: Pause = Pause()
    paused_up: Pause = Pause()
    dry_run: bool = False
    hold: HoldSpec | None = None


class Problems(Struct, frozen=True):
    """Invalid annotations, one line each; they disable their HPA."""

    lines: tuple[str, ...]


__all__ = [
    "Band",
    "HoldSpec",
    "MaxReplicasRule",
    "MissingData",
    "MissingDataRule",
    "Pause",
    "Problems",
    "QuerySpec",
    "SeriesRule",
    "ServerRef",
    "Spec",
]
