"""How the demo sets up the three controllers: as anybody would, but with pauses that are short."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tightship_simulator.demo.cluster import SYSTEM
from tightship_simulator.life.changes import Json

COMPACTOR, REFINER, SCALER = "node-compactor", "node-refiner", "hpa-scaler"
CONTROLLERS = (COMPACTOR, REFINER, SCALER)

_INTERVALS = {
    COMPACTOR: "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
    REFINER: "CALCULATION_LOOP_FREQUENCY_SECONDS",
    SCALER: "SLEEP_DURATION_BETWEEN_ITERATIONS_SECONDS",
}

_DRAINS: Mapping[str, float] = {
    "settleTime": 0.5,
    "pendingTimeout": 8,
    "podEvictionTimeout": 20,
    "nodeDrainTimeout": 30,
    "handOverTimeout": 60,
    "backoff": 4,
    "backoffLimit": 30,
    "pendingAfterDrainTimeout": 10,
    "pendingAfterDrainWindow": 30,
}
"""Seconds, by node-compactor's keys."""

_ROOM = 2
"""Nodes of the cluster in drain at once."""


def config_maps(*, on: bool = True) -> list[Json]:
    """Return the ConfigMap of each controller; with *on* false no drain is begun."""
    pool = {"enabled": on, "scaleDownCPURequestRatioLimit": 0.55, "scaleDownRequiredUnderutilizedNodeCount": 1}
    compactor = {
        "nodePools": {"general": {**pool, "minimumNodeCount": 5}, "compute": {**pool, "minimumNodeCount": 3}},
        "maximumNodesInDrain": _ROOM,
        "neededMarkedTimeForRemoval": 2,
        "minimumNodeAge": 20,
        **_DRAINS,
        "coolDownAfterNodeAdded": 15,
        "coolDownAfterNodeDeleted": 0,
        "coolDownAfterFailure": 3,
        "clusterCoolDownAfterFailure": 0,
    }
    refiner = {
        "drainer_enabled": "true" if on else "false",
        "excess_nodes_threshold": "2",
        "minimum_nodes": "12",
        "maximum_nodes_in_drain": str(_ROOM),
        "time_gap": "0s",
        "time_since_last_addition": "15s",
        **{re.sub("[A-Z]", lambda hump: f"_{hump[0].lower()}", key): f"{value}s" for key, value in _DRAINS.items()},
    }
    scaler = {"coldSourceGuard": False, "dataAgeQuery": "", "circuitBreakerPause": "2s"}
    return [
        _config_map(COMPACTOR, {"config.yaml": json.dumps(compactor)}),
        _config_map(REFINER, refiner),
        _config_map(SCALER, {"config.yaml": json.dumps(scaler)}),
    ]


def _config_map(name: str, data: Mapping[str, str]) -> Json:
    meta = {"name": name, "namespace": SYSTEM}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}


def environment(name: str) -> dict[str, str]:
    """Return the environment of a controller, but for where it finds the API, Prometheus and its port."""
    return {
        "KUBERNETES_SERVICE_HOST": "10.96.0.1",  # as in a pod
        "NAMESPACE": SYSTEM,
        "POD_NAME": name,
        "CONFIG_MAP_NAME": name,
        "LEASE_NAME": name,
        "CLAIMS_LEASE_NAME": "tightship-claims",
        _INTERVALS[name]: "1",
        "LEASE_DURATION_SECONDS": "60",
        "LEASE_RENEW_DEADLINE_SECONDS": "40",
        "LEASE_RETRY_PERIOD_SECONDS": "0.5",
        "STOP_TIMEOUT_SECONDS": "8",
        "STOP_GRACE_SECONDS": "15",
    }


__all__ = ["COMPACTOR", "CONTROLLERS", "REFINER", "SCALER", "config_maps", "environment"]
