"""Sets of annotations to try over the recorded past of HPAs, and what came of each. Pure."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.older import prefix_of, prefixes
from hpa_scaler.annotations.parsing import name_of
from hpa_scaler.annotations.queries import Query, value_query
from hpa_scaler.annotations.spec import ENABLE, FloorSpec, Rules, ServerRef
from hpa_scaler.judge.decision import GUARDS, Guard
from hpa_scaler.process.forecasts import Forecasts
from hpa_scaler.prometheus.samples import Trace
from tightship.objects import HorizontalPodAutoscaler

Kind = Literal["today", "none", "changed"]
"""The annotations as they are, no floor at all, or changed annotations."""

EVERY = "*"
"""The target of a change to all HPAs."""


class AnnotationChange(Struct, frozen=True):
    """One annotation, by its name after ``hpa-scaler-``, of one HPA or of :data:`EVERY`; *text* ``None`` removes it."""

    target: str
    name: str
    text: str | None


class Variant(Struct, frozen=True):
    """A set of annotations to try, called *name* in the output."""

    name: str
    kind: Kind
    changes: tuple[AnnotationChange, ...] = ()

    def hpa(self, hpa: HorizontalPodAutoscaler, prefix: str) -> HorizontalPodAutoscaler:
        """Return *hpa* with this variant's annotations."""
        if self.kind == "none":
            return msgspec.structs.replace(hpa, annotations={})
        notes = dict(hpa.annotations)
        for change in self.changes:
            if change.target not in (EVERY, hpa.key):
                continue
            own = prefix_of(notes, prefix)
            notes[f"{own}/{ENABLE}"] = "true"
            for each in prefixes(prefix):
                notes.pop(name_of(each, change.name), None)
            if change.text is not None:
                notes[name_of(own, change.name)] = change.text
        return msgspec.structs.replace(hpa, annotations=notes)


class Span(Struct, frozen=True):
    """A stretch of time, in seconds since 1970."""

    begin: float
    end: float

    def __contains__(self, at: object) -> bool:
        return isinstance(at, float | int) and self.begin <= at < self.end


class HpaPast(Struct, frozen=True):
    """One HPA and its recorded past.

    *hpa* has the user's own bounds. *traces* are the answers to queries. *wanted* is what the HPA's own metrics asked
    for, in replicas; without it, *share* is the part of the traffic's need that the HPA aims at. *yardstick* says how
    much traffic one replica carries. *floor* is the recorded ``minReplicas``; *proposed* says that the query is ours.
    """

    hpa: HorizontalPodAutoscaler
    traces: Mapping[Query, Trace]
    yardstick: FloorSpec | None
    wanted: Trace | None = None
    replicas: Trace | None = None
    share: float = 1.0
    floor: Trace | None = None
    proposed: bool = False

    def need(self, now: float) -> float | None:
        """Return the replicas that the true traffic needs at *now*, not rounded; ``None`` if that is unknown."""
        if self.yardstick is None:
            return None
        needs = []
        for query in self.yardstick.queries:
            trace = self.traces.get(value_query(query))
            value = None if trace is None else trace.value(now)
            if value is None:
                return None
            needs.append(max(0.0, value) / query.per_replica)
        return max(needs, default=None)


class BacktestSetup(Struct, frozen=True):
    """What all variants share.

    A cycle takes *interval* seconds, a new replica is ready after *start* seconds. In *outages* no query has an answer;
    after each, the server has lost its data. *forecasts* makes the source of an HPA's forecasts.
    """

    rules: Rules
    begin: float
    end: float
    interval: float = 75.0
    start: float = 60.0
    outages: tuple[Span, ...] = ()
    forecasts: Callable[[], Forecasts] = Forecasts
    drawn: int = 40
    """How many HPAs keep every number, for pictures."""

    def cycles(self) -> Iterator[float]:
        """Yield the time of each cycle."""
        return (self.begin + number * self.interval for number in range(self.count))

    @property
    def count(self) -> int:
        """How many cycles there are."""
        return max(0, math.ceil((self.end - self.begin) / self.interval))

    def since(self, now: float) -> float:
        """Return for how long the server has had its data: since the last outage, if any."""
        return min((now - each.end for each in self.outages if each.end <= now), default=math.inf)


class Worst(Struct, frozen=True):
    """The worst moment: *ready* replicas where *need* were needed."""

    at: float
    need: float
    ready: int


class Held(Struct, frozen=True):
    """A stretch without answers: the floor *before*, and the *lowest* until the queries' range was full again."""

    span: Span
    before: int
    lowest: int

    @property
    def held(self) -> bool:
        """Whether nothing was lowered."""
        return self.lowest >= self.before


class BacktestResult(Struct, kw_only=True):
    """What one variant did to one HPA, in seconds and replica-seconds.

    *short* is how long each ready replica had to carry more than a tenth above the yardstick, *unknown* how long the
    traffic was unknown. *caution* is what each guard cost. *floors* has a number for each cycle,
    *running* too if it was kept, *shorts* the times that were short.
    """

    key: str
    variant: Variant
    floor: float = 0.0
    replicas: float = 0.0
    short: float = 0.0
    unknown: float = 0.0
    worst: Worst | None = None
    lowest: int = 2**31
    highest: int = 0
    changes: int = 0
    caution: dict[Guard, float] = msgspec.field(default_factory=lambda: dict.fromkeys(GUARDS, 0.0))
    reasons: Counter[str] = msgspec.field(default_factory=Counter)
    held: list[Held] = []
    floors: array[int] = msgspec.field(default_factory=lambda: array("i"))
    running: array[int] = msgspec.field(default_factory=lambda: array("i"))
    shorts: list[float] = []


_ABOUT = '{{namespace="{namespace}",horizontalpodautoscaler="{name}"}}'
_SCRAPED = "instance, pod, endpoint, service, job, node, uid, prometheus, prometheus_replica, replica, __replica__"
"""Labels of who was scraped and who scraped, not of the HPA. Every other one, as ``cluster``, tells HPAs apart."""
_OTHERS = f"{_SCRAPED}, container, exported_container"
_CURRENT = f"max without ({_OTHERS}) (kube_horizontalpodautoscaler_status_current_replicas{_ABOUT})"
_FLOOR = f"max without ({_OTHERS}) (kube_horizontalpodautoscaler_spec_min_replicas{_ABOUT})"
_RATIO = (
    f"max without ({_OTHERS}, metric_name, metric_target_type) ("
    f"max without ({_SCRAPED}) (kube_horizontalpodautoscaler_status_target_metric{_ABOUT})"
    f" / max without ({_SCRAPED}) (kube_horizontalpodautoscaler_spec_target_metric{_ABOUT}))"
)


def replicas_query(namespace: str, name: str, server: ServerRef = ServerRef()) -> Query:
    """Return the query for the replicas that an HPA had, by kube-state-metrics."""
    return Query(_CURRENT.format(namespace=namespace, name=name), server)


def floor_query(namespace: str, name: str, server: ServerRef = ServerRef()) -> Query:
    """Return the query for the ``minReplicas`` that an HPA had, by kube-state-metrics."""
    return Query(_FLOOR.format(namespace=namespace, name=name), server)


def wanted_query(namespace: str, name: str, server: ServerRef = ServerRef()) -> Query:
    """Return the query for the replicas that an HPA's own metrics asked for, not rounded.

    That is the replicas, times the largest ratio of a metric to its target (kube-state-metrics 2.6 or later). There is
    a series for each HPA of that name, as in a server of several clusters. Metrics of one name and type, as of two
    containers, are one series until kube-state-metrics tells them apart (kubernetes/kube-state-metrics#2403, #2405).
    """
    return Query(f"{_CURRENT} * {_RATIO}".format(namespace=namespace, name=name), server)
