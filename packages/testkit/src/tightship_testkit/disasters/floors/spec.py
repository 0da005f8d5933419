"""The floors' part of a scenario: what traffic there is, who scrapes it, and which HPAs follow it. JSON in and out."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

PREFIX = "estafette.io/hpa-scaler"
STATE = f"{PREFIX}-state"
FALLBACK = 120.0
"""Seconds that a query without a range is taken to look back, or with a fallback, by docs/hpa-scaler.md."""


class App(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An application with *requests* per second, shared evenly by its *targets*, which say so to who scrapes them.

    *points* are pairs of a time and a factor of the requests: straight lines in between, level before and after.
    """

    name: str
    requests: float = 100.0
    targets: int = 1
    points: list[tuple[float, float]] = []


class Source(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A Prometheus: how often it scrapes and evaluates its recording rules, and how long a last sample counts."""

    name: str
    scrape: float = 5.0
    rules: float = 10.0
    lookback: float = 300.0
    past: float = 400.0
    """Seconds for which it had scraped when the scenario began."""


class Autoscaler(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An HPA of its user's bounds *least* and *most*, with *notes*: its annotations by the names after the prefix.

    *at* is its floor when the scenario begins, 0 for *least*. *demand* is by how much what the HPA itself would run
    exceeds what the traffic needs. One *of* a workload of the scenario scales that, any other pods that need no room.
    """

    name: str
    app: str
    least: int = 3
    most: int = 40
    at: int = 0
    notes: dict[str, str] = {}
    enabled: bool = True
    demand: float = 0.7
    of: str = ""


class Floors(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """See the module."""

    apps: list[App] = []
    sources: list[Source] = msgspec.field(default_factory=lambda: [Source(name="default")])
    autoscalers: list[Autoscaler] = []


class Query(Struct, frozen=True):
    """A query that is understood: of what *kind*, of which *app*, over which *range* (seconds, 0 for none).

    *reach* is how far its value really depends on the past; that is hidden where a recording rule has the range.
    """

    kind: str
    app: str
    range: float

    @property
    def falls_back(self) -> bool:
        """Whether it has a value where there are no data."""
        return "fallback" in self.kind

    @property
    def reach(self) -> float:
        """Seconds."""
        return HIDDEN if self.kind == "rule" else self.range


HIDDEN = 30.0
"""The range of the recording rule."""

KINDS = {
    "rate": 'sum(rate(requests_total{{app="{app}"}}[{range}]))',
    "by": 'sum by (version) (rate(requests_total{{app="{app}"}}[{range}]))',
    "rate-fallback": 'sum(rate(requests_total{{app="{app}"}}[{range}])) or vector(0)',
    "rule": 'app:requests:rate30s{{app="{app}"}}',
    "gauge": 'sum(requests_per_second{{app="{app}"}})',
    "gauge-fallback": 'sum(requests_per_second{{app="{app}"}}) or vector(0)',
}
"""Texts of queries, by what they are like."""
RULE = KINDS["rate"]

_SHAPES = {
    kind: re.compile(
        re.escape(text)
        .replace(r"\{\{", r"\{")
        .replace(r"\}\}", r"\}")
        .replace(r"\{app\}", r"(?P<app>[a-z0-9-]+)")
        .replace(r"\{range\}", r"(?P<range>[0-9]+)s")
    )
    for kind, text in KINDS.items()
}


def text_of(kind: str, app: str, seconds: int = 30) -> str:
    """Return the query of a *kind* of *app*."""
    return KINDS[kind].format(app=app, range=f"{seconds}s")


def query_of(text: str) -> Query | None:
    """Return what the query *text* asks, ``None`` where it is none of :data:`KINDS`."""
    for kind, shape in _SHAPES.items():
        found = shape.fullmatch(text)
        if found is not None:
            return Query(kind, found["app"], float(found.groupdict().get("range") or 0))
    return None


__all__ = [
    "FALLBACK", "HIDDEN", "KINDS", "PREFIX", "RULE", "STATE", "App", "Autoscaler", "Floors", "Query", "Source",
    "query_of", "text_of",
]  # fmt: skip
