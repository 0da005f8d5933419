"""estafette-k8s-node-compactor's names in configuration and environment, each as the native one.

Its ConfigMap holds ``{"nodePools": {NAME: {...}}}`` as JSON under :data:`DATA_KEY` (``nodeCompactorConfigMap`` in its
``main.go``), its environment what its chart's ``deployment.yaml`` sets.
"""

from __future__ import annotations

from collections.abc import Mapping

from tightship.objects.quoting import set_twice
from tightship.process.settings.loading import OlderVariables, Translation, dotted

DATA_KEY = "estafette-k8s-node-compactor-config.yaml"
"""The key of the older ConfigMap's data."""

POOL_KEYS: Mapping[str, str] = {
    "scaleDownCPURequestRatioLimit": "cpuRequestRatioLimit",
    "scaleDownRequiredUnderutilizedNodeCount": "requiredUnderutilizedNodeCount",
}
"""The native key of each older key of a pool."""

VARIABLES = OlderVariables(
    {
        "MINIMUM_NODE_AGE_SECONDS": "minimum_age",
        "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": "marked_for",
    }
)
"""Variables that set keys of the configuration."""

CONFIG_KEYS: Mapping[str, str] = {
    "MINIMUM_NODE_AGE_SECONDS": "minimumNodeAge",
    "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS": "neededMarkedTimeForRemoval",
}
"""The native key of each of :data:`VARIABLES`."""

PROCESS_VARIABLES = OlderVariables(
    {
        "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS": "interval",
        "CONFIGMAP_NAME": "config_map",
        "ESTAFETTE_LOG_FORMAT": "log_format",
        "ESTAFETTE_LOG_LEVEL": "log_level",
    },
    implied={"config_map": "estafette-k8s-node-compactor"},
)
"""Variables of the process, and the name of the older ConfigMap where an older environment has none."""

METRIC_PREFIX = "estafette_node_compactor_"

METRICS: Mapping[str, str] = {
    "total_node_count": "pool_nodes",
    "underutilized_node_count": "pool_underutilized_nodes",
    "marked_for_removal_node_count": "pool_marked_nodes",
    "scale_down_in_progress_node_count": "pool_draining_nodes",
}
"""The native name of each metric of a pool, both without their prefix. Metrics of a node have units of their own."""

_IMPLIED = (
    ("utilization", "cpu", "utilization: cpu, since estafette-k8s-node-compactor knew no other resource"),
    ("workloadPause", "0", "workloadPause: 0, since estafette-k8s-node-compactor let no workload rest"),
)
"""What an older key of a pool implies, by key, each with its note."""


def native(values: Mapping[str, object]) -> Translation:
    """Return the configuration *values* in native keys.

    With an older key of a pool, CPU orders candidates and workloads don't rest, unless native keys say otherwise.
    """
    found = Translation(dict(values))
    pools = values.get("nodePools")
    if not isinstance(pools, Mapping):
        return found
    found.values["nodePools"] = {
        name: _pool(name, pool, found) if isinstance(pool, Mapping) else pool for name, pool in pools.items()
    }
    for key, value, note in _IMPLIED if found.older else ():
        if key not in values:
            found.values[key] = value
            found.notes.append(note)
    return found


def _pool(name: str, pool: Mapping[str, object], found: Translation) -> dict[str, object]:
    keys: dict[str, object] = {}
    for key, value in pool.items():
        new = POOL_KEYS.get(key, key)
        here, there = ("nodePools", name, key), ("nodePools", name, new)
        if key != new:
            found.older[there] = here
            if new in pool:
                found.problems.append(set_twice(dotted(here), dotted(there)))
        keys.setdefault(new, value)
    return keys
