"""``docs/metrics.md``: every metric of every controller, as its registry has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry

from hpa_scaler.write.metrics import ScalerMetrics
from node_compactor.controller import CompactorMetrics
from node_refiner.controller import RefinerMetrics
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.process.metrics import RunMetrics, new_registry
from tightship_charts.places import CHARTS

METRICS = CHARTS.parent / "docs" / "metrics.md"

_HEAD = """\
<!-- Made by `make charts` from the code: edit that. -->
# Metrics

Every controller serves `/metrics` on each of its ports but the probes'. Counters end with `_total`; histograms are
marked; all others are gauges. Series of nodes, pools and HPAs that are gone vanish with the next pass. A standby
replica shows no plan and no HPA. Every controller shows the same savings: take their `max`. Words of the labels
`reason`, `outcome` and `result` that begin with a capital are [reasons](reasons.md).

With Kubernetes service discovery the label `namespace` becomes `exported_namespace`, unless `honorLabels` is set.
`perHPAMetrics: false` of hpa-scaler switches off the series with the label `hpa`.
"""

_TAIL = """\
Some label values of hpa-scaler:

* `tightship_hpa_writes_total`: `written`; `unneeded`, the HPA had changed; `refused` by the API server; `gone`, deleted
  meanwhile; `failed`, not made; `unheard`, the answer was lost; `left` to the next cycle or leader.
* Servers that HPAs name by address share the value `by-url` of `server`. A circuit is `closed`, `open` or `half-open`.
"""

_SECTIONS: Mapping[str, Callable[[CollectorRegistry], object]] = {
    "Every controller": RunMetrics,
    "node-compactor and node-refiner": lambda registry: ConsolidationMetrics(registry, "node-compactor"),
    "node-compactor": CompactorMetrics,
    "node-refiner": RefinerMetrics,
    "hpa-scaler": ScalerMetrics,
}


def metrics() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *(line for title, add in _SECTIONS.items() for line in _section(title, add)), _TAIL])


def _section(title: str, add: Callable[[CollectorRegistry], object]) -> Iterator[str]:
    registry = new_registry("none")
    before = set() if add is RunMetrics else set(registry._collector_to_names)
    made = add(registry)
    if isinstance(made, RunMetrics):
        made.watch_cache(dict)
    yield f"## {title}\n"
    yield "| metric{labels} | what |\n|---|---|"
    for collector in registry._collector_to_names:
        if collector in before:
            continue
        names = getattr(collector, "_labels", None) or getattr(collector, "_labelnames", ())
        for family in collector.describe() if hasattr(collector, "describe") else collector.collect():
            if not family.name.startswith("tightship_"):
                continue
            total = "_total" * (family.type == "counter")
            marked = " (histogram)" * (family.type == "histogram")
            labels = ", ".join(names or getattr(family, "_labelnames", None) or ())
            labels = labels and f"{{{labels}}}"
            what = family.documentation.removeprefix("The number of ")
            yield f"| `{family.name}{total}{labels}`{marked} | {what} |"
    yield ""


__all__ = ["METRICS", "metrics"]
