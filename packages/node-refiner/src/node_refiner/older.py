"""SAP node-refiner's names in configuration and environment, each as the native one.

Its ConfigMap has one key in snake case for each setting, every value is a text, and a plain number of a duration means
minutes (``cmInformer.go``). Keys that node-refiner has besides may be written in that style too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from node_refiner.settings import RefinerSettings
from tightship.objects.quoting import set_twice
from tightship.objects.times import DurationError, parse_duration, spell_duration
from tightship.process.settings.loading import OlderVariables, Translation, is_duration, wire_keys, without_unit

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

KEYS: Mapping[str, str] = {
    "drainer_enabled": "enabled",
    "time_gap": "clusterCoolDownAfterDrain",
    "time_since_last_addition": "clusterCoolDownAfterNodeAdded",
    "minimum_nodes": "minimumNodeCount",
    "minimum_non_tainted_nodes": "minimumNonTaintedNodeCount",
    "count_tainted": "countTaintedNodes",
    **{snake: key for key in wire_keys(RefinerSettings).values() if (snake := _HUMP.sub("_", key).lower()) != key},
}
"""The native key of each key in snake case."""

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

_DURATIONS = frozenset(
    wire_keys(RefinerSettings)[name] for name, field in RefinerSettings.model_fields.items() if is_duration(field)
)


def native(values: Mapping[str, object]) -> Translation:
    """Return the configuration *values* in native keys.

    With a key in snake case, drains have SAP node-refiner's times, a node whose drain failed is tried again after the
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
        found.values.setdefault(key, _read(key, value))
    if found.older:
        given = found.values
        implied = {"nodeDrainTimeout": DRAIN_TIMEOUT, "podEvictionTimeout": DRAIN_TIMEOUT, "backoff": _backoff(given)}
        implied["workloadPause"] = "0"
        for key, text in implied.items():
            if key not in given:
                given[key] = text
                found.notes.append(f"{key}: {text}, as SAP node-refiner")
    return found


def _read(key: str, value: object) -> object:
    if key in _DURATIONS and without_unit(value):
        return f"{str(value).strip()}m"
    return value.replace("_", "-") if key == "candidateOrder" and isinstance(value, str) else value


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
