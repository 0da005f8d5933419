"""SAP node-refiner's names in configuration and environment, each as the native one.

Its ConfigMap has one key in snake case for each of six settings, every value is a text, and a plain number of a
duration means minutes (``UpdateSettings`` in ``drainer.go``). Native keys may stand beside them.
"""

from __future__ import annotations

from collections.abc import Mapping

from node_refiner.settings import RefinerSettings
from tightship.objects.quoting import set_twice
from tightship.objects.times import DurationError, parse_duration, spell_duration
from tightship.process.settings.loading import OlderVariables, Translation, without_unit

KEYS: Mapping[str, str] = {
    "drainer_enabled": "enabled",
    "time_gap": "clusterCoolDownAfterDrain",
    "time_since_last_addition": "clusterCoolDownAfterNodeAdded",
    "minimum_nodes": "minimumNodeCount",
    "minimum_non_tainted_nodes": "minimumNonTaintedNodeCount",
    "excess_nodes_threshold": "excessNodesThreshold",
}
"""The native key of each older one."""
_MINUTES = frozenset(("time_gap", "time_since_last_addition"))

METRIC_PREFIX = "node_refiner_"

METRICS: Mapping[str, str] = {
    "cluster_excess_nodes": "cluster_excess_nodes",
    "cluster_non_tainted_nodes": "cluster_counted_nodes",
    "cluster_nodes": "cluster_nodes",
    "cluster_pods": "cluster_pods",
    "cluster_cpu_utilization": "cluster_cpu_utilization",
    "cluster_memory_utilization": "cluster_memory_utilization",
    "cluster_unschedulable_nodes": "cluster_cordoned_nodes",
}
"""The native name of each metric of the cluster, both without their prefix."""

VARIABLES = OlderVariables(
    {"LISTENING_PORT": "ports"},
    implied={"config_map": "node-refiner-cm", "probe_port": 9102},
)
"""Variables of the process, with the ConfigMap and the probe's port that SAP node-refiner has besides."""

DRAIN_TIMEOUT = "8m30s"
"""The time that SAP node-refiner gives a drain (``drainer.go``)."""


def native(values: Mapping[str, object]) -> Translation:
    """Return the configuration *values* in native keys.

    With an older key, drains have SAP node-refiner's times, a node whose drain failed is tried again after the
    gap, and workloads don't rest, unless native keys say otherwise.
    """
    found = Translation({key: value for key, value in values.items() if key not in KEYS})
    for older, value in values.items():
        key = KEYS.get(older)
        if key is None:
            continue
        found.older[(key,)] = (older,)
        if key in values:
            found.problems.append(set_twice(older, key))
        minutes = older in _MINUTES and without_unit(value)
        found.values.setdefault(key, f"{str(value).strip()}m" if minutes else value)
    if found.older:
        given = found.values
        implied = {"nodeDrainTimeout": DRAIN_TIMEOUT, "podEvictionTimeout": DRAIN_TIMEOUT, "backoff": _backoff(given)}
        implied["workloadPause"] = "0"
        for key, text in implied.items():
            if key not in given:
                given[key] = text
                found.notes.append(f"{key}: {text}, as SAP node-refiner")
    return found


def _backoff(values: Mapping[str, object]) -> str:
    """Return the gap, but at most the longest pause of a node; a bad value is reported by the validation."""
    fields = RefinerSettings.model_fields
    keys = (("clusterCoolDownAfterDrain", "time_gap"), ("backoffLimit", "backoff_limit"))
    try:
        return spell_duration(
            min(parse_duration(str(values.get(key, f"{fields[field].default:g}s"))) for key, field in keys)
        )
    except DurationError:
        return spell_duration(fields["backoff"].default)
