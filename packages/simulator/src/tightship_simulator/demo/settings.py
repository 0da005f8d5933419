"""How the demo sets up the three controllers: as anybody would, but with pauses that are short."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tightship_simulator.demo.cluster import SYSTEM
from tightship_simulator.life.changes import Json

COMPACTOR, REFINER, SCALER = "node-compactor", "node-refiner", "hpa-scaler"
CONTROLLERS = (COMPACTOR, REFINER, SCALER)

_INTERVALS = {
    COMPACTOR: "INTERVAL",
    REFINER: "INTERVAL",
    SCALER: "INTERVAL",
}

_DRAINS: Mapping[str, str] = {
    "settleTime": "0.5s",
    "pendingTimeout": "8s",
    "podEvictionTimeout": "20s",
    "nodeDrainTimeout": "30s",
    "handOverTimeout": "60s",
    "backoff": "4s",
    "backoffLimit": "30s",
    "pendingAfterDrainTimeout": "10s",
    "pendingAfterDrainWindow": "30s",
}
"""Times of drains, by their keys."""

_ROOM = 2
"""Nodes of the cluster in drain at once."""


def config_maps(*, on: bool = True) -> list[Json]:
    """Return the ConfigMap of each controller; with *on* false no drain is begun."""
    pool = {"enabled": on, "cpuRequestRatioLimit": 0.55, "requiredUnderutilizedNodeCount": 1}
    compactor = {
        "nodePools": {"general": {**pool, "minimumNodeCount": 5}, "compute": {**pool, "minimumNodeCount": 3}},
        "utilization": "cpu",
        "workloadPause": 0,
        "maximumNodesInDrain": _ROOM,
        "neededMarkedTimeForRemoval": "2s",
        "minimumNodeAge": "20s",
        **_DRAINS,
        "coolDownAfterNodeAdded": "15s",
        "coolDownAfterNodeDeleted": 0,
        "coolDownAfterFailure": "3s",
        "clusterCoolDownAfterFailure": 0,
    }
    refiner = {
        "enabled": on,
        "excessNodesThreshold": 2,
        "minimumNodeCount": 12,
        "maximumNodesInDrain": _ROOM,
        "clusterCoolDownAfterDrain": 0,
        "workloadPause": 0,
        "clusterCoolDownAfterNodeAdded": "15s",
        **_DRAINS,
    }
    scaler = {"coldSourceGuard": False, "dataAgeQuery": "", "circuitBreakerPause": "2s"}
    return [
        _config_map(COMPACTOR, {"config.yaml": json.dumps(compactor)}),
        _config_map(REFINER, {"config.yaml": json.dumps(refiner)}),
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
        "LEASE_DURATION": "60s",
        "LEASE_RENEW_DEADLINE": "40s",
        "LEASE_RETRY_PERIOD": "0.5s",
        "STOP_TIMEOUT": "8s",
        "STOP_GRACE": "15s",
    }


__all__ = ["COMPACTOR", "CONTROLLERS", "REFINER", "SCALER", "config_maps", "environment"]
