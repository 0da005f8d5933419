"""Metrics for Prometheus: a registry for each process, and the metrics of every controller.

Names, labels and meanings are a contract with users' dashboards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, UntypedMetricFamily
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tightship import __version__
from tightship.kube.host import HOST, wall
from tightship.process.events import CAUSES

if TYPE_CHECKING:
    from tightship.kube.cache import KindStats

LOOP_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds, from an idle pass in a small cluster to a plan of the largest."""


def new_registry(controller: str, version: str = __version__) -> CollectorRegistry:
    """Return a registry with the metrics of the process and ``tightship_build_info``."""
    # Series of creation times double the counters, and rate() needs none.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    if HOST.get().own_process:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
    info = Gauge(
        "tightship_build_info",
        "The running controller and its version; always 1.",
        ("controller", "version"),
        registry=registry,
    )
    info.labels(controller, version).set(1)
    return registry


PREFIX = "tightship_"

Row = tuple[str, ...]
"""A metric in a table, by its name: the text of its help, then its labels. Or the label values of a series."""


class _Series(Collector):
    """One metric whose series this process keeps itself; *family* is its form in the client library."""

    def __init__(
        self,
        family: type[GaugeMetricFamily] | type[UntypedMetricFamily],
        name: str,
        documentation: str,
        labels: Sequence[str],
        registry: CollectorRegistry,
    ) -> None:
        self._family = partial(family, name, documentation, labels=tuple(labels))
        self._labels = tuple(labels)
        self._values: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        yield self._family()

    def collect(self) -> Iterable[Metric]:
        family = self._family()
        # A scrape runs in another thread, so it needs a copy.
        for labels, value in dict(self._values).items():
            family.add_metric(labels, value)
        yield family


class SnapshotGauge(_Series):
    """A gauge whose label sets each loop replaces, so that series of objects that are gone disappear.

    One assignment swaps the whole family, so a scrape never sees half of a loop's values.
    """

    def __init__(self, name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry) -> None:
        super().__init__(GaugeMetricFamily, name, documentation, labels, registry)
        self._name = name

    def replace(self, samples: Mapping[tuple[str, ...], float]) -> None:
        """Replace all series by *samples*, keyed by label values.

        Raises :class:`ValueError`, and changes nothing, if a key has more or fewer values than there are labels.
        """
        for values in samples:
            if len(values) != len(self._labels):
                raise ValueError(f"{self._name} has the labels {', '.join(self._labels)}, not {values!r}")
        self._values = dict(samples)


class NamedCounter(_Series):
    """A counter whose series bear just *name*: the client would add ``_total``, which older dashboards don't query.

    The counter is exposed without a type, because both text formats demand that suffix of a counter. A counter without
    *labels* exists from the start.
    """

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, registry: CollectorRegistry
    ) -> None:
        super().__init__(UntypedMetricFamily, name, documentation, labels, registry)
        if not labels:
            self._values[()] = 0

    def inc(self, *values: str, by: int = 1) -> None:
        """Count *by* more of the series with the label *values*."""
        self._values[values] = self._values.get(values, 0) + by

    def keep(self, wanted: Callable[[tuple[str, ...]], bool]) -> None:
        """Drop the series whose label values are not *wanted*."""
        self._values = {values: count for values, count in self._values.items() if wanted(values)}


class OlderName(Collector):
    """A *metric* once more, under the *name* that an older controller gave it, and with its names of *labels*."""

    def __init__(
        self, metric: Collector, name: str, labels: Mapping[str, str] = {}, *, registry: CollectorRegistry
    ) -> None:
        self._metric, self._name, self._labels = metric, name, labels
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return self.collect()

    def collect(self) -> Iterable[Metric]:
        for family in self._metric.collect():
            older = Metric(self._name, family.documentation, family.type)
            for each in family.samples:
                labels = {self._labels.get(label, label): value for label, value in each.labels.items()}
                older.add_sample(self._name, labels, each.value)
            yield older


def gauges(prefix: str, table: Mapping[str, str], registry: CollectorRegistry) -> dict[str, Gauge]:
    """Return a gauge for each name of *table*, which has the texts of help."""
    return {name: Gauge(prefix + name, text, registry=registry) for name, text in table.items()}


def snapshots(prefix: str, table: Mapping[str, Row], registry: CollectorRegistry) -> dict[str, SnapshotGauge]:
    """Return a gauge of a whole pass for each name of *table*."""
    return {
        name: SnapshotGauge(prefix + name, text, labels, registry=registry) for name, (text, *labels) in table.items()
    }


def counters(
    prefix: str, table: Mapping[str, Row], series: Mapping[str, Iterable[Row]], registry: CollectorRegistry
) -> dict[str, Counter]:
    """Return a counter for each name of *table*, with *series* of label values that exist from the start.

    A series that appears with its first count hides that count from rate().
    """
    made = {name: Counter(prefix + name, text, labels, registry=registry) for name, (text, *labels) in table.items()}
    for name, rows in series.items():
        for row in rows:
            made[name].labels(*row)
    return made


_GAUGES = {
    "leader": "1 if this replica leads, 0 if it stands by.",
    "lease_epoch": "How often the Lease had changed hands when this replica last took it; 0 before that.",
    "stopped": "1 while an annotation on the Lease stops this controller, as this replica last saw it; else 0.",
    "config_valid": "0 while the latest configuration is invalid, or deleted so that no new work starts; else 1.",
    "loop_last_success_timestamp_seconds": "Unix time of the last successful pass; 0 before the first.",
    "loop_age_seconds": "Seconds since the last successful pass, or since the start.",
}
_COUNTERS: Mapping[str, Row] = {
    "loop_failures": ("Failed passes.",),
    "events_dropped": ("Events that were not recorded, by cause.", "cause"),
}


class RunMetrics:
    """The metrics of every controller.

    *now* is the wall clock in Unix seconds. Each scrape computes the ages, so that a loop that hangs shows.
    """

    def __init__(self, registry: CollectorRegistry, *, now: Callable[[], float] = wall) -> None:
        self._now = now
        self._began = now()
        self._succeeded: float | None = None
        self._registry = registry
        made = gauges(PREFIX, _GAUGES, registry)
        self.leader, self.lease_epoch, self.config_valid = made["leader"], made["lease_epoch"], made["config_valid"]
        self.stopped = made["stopped"]
        self.loop_last_success = made["loop_last_success_timestamp_seconds"]
        made["loop_age_seconds"].set_function(self.loop_age)
        counted = counters(PREFIX, _COUNTERS, {"events_dropped": [(cause,) for cause in CAUSES]}, registry)
        self.loop_failures, self._events_dropped = counted["loop_failures"], counted["events_dropped"]
        self.loop_duration = Histogram(
            "tightship_loop_duration_seconds",
            "The duration of passes, including failed ones.",
            buckets=LOOP_BUCKETS,
            registry=registry,
        )

    def loop_age(self) -> float:
        """Return the seconds since the last successful pass, or since the start."""
        return max(0.0, self._now() - (self._began if self._succeeded is None else self._succeeded))

    def loop_done(self, seconds: float, *, succeeded: bool) -> None:
        """Count a pass of the loop that took *seconds*."""
        self.loop_duration.observe(seconds)
        if succeeded:
            self._succeeded = self._now()
            self.loop_last_success.set(self._succeeded)
        else:
            self.loop_failures.inc()

    def event_dropped(self, cause: str) -> None:
        """Count an Event that was not recorded; the causes are those of :mod:`tightship.process.events`."""
        self._events_dropped.labels(cause).inc()

    def watch_cache(self, stats: Callable[[], Mapping[str, KindStats]]) -> None:
        """Show the health of each kind that *stats* returns. Each scrape calls *stats* from another thread."""
        self._registry.register(_CacheHealth(stats))


class _CacheHealth(Collector):
    def __init__(self, stats: Callable[[], Mapping[str, KindStats]]) -> None:
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return self._families({})

    def collect(self) -> Iterable[Metric]:
        return self._families(self._stats())

    @staticmethod
    def _families(stats: Mapping[str, KindStats]) -> Iterable[Metric]:
        synced = GaugeMetricFamily(
            "tightship_cache_synced", "1 if all objects of the kind are known.", labels=("kind",)
        )
        age = GaugeMetricFamily(
            "tightship_cache_age_seconds",
            "Seconds since the last list, event or bookmark of the kind.",
            labels=("kind",),
        )
        for kind, health in stats.items():
            synced.add_metric((kind,), float(health.synced))
            if health.age is not None:
                age.add_metric((kind,), health.age)
        return synced, age
