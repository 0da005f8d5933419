"""A fleet whose every Deployment has a budget of eviction-autoscaler: as many removals as without, one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tightship_simulator.generate import off_peak_cluster

FLEET_TIME = "2026-11-20T03:00:00Z"
FLAGS = ("--now", FLEET_TIME, "--advice-time", "0")


def guarded(owner: str) -> dict[str, Any]:
    """Return a fleet of 38 nodes in which each ReplicaSet without a budget has one that wants all its replicas."""
    cluster = off_peak_cluster(7, 38)
    covered = {
        (each["metadata"]["namespace"], each["spec"]["selector"]["matchLabels"].get("app"))
        for each in cluster["items"]
        if each["kind"] == "PodDisruptionBudget"
    }
    pods = [each for each in cluster["items"] if each["kind"] == "Pod"]
    for each in list(cluster["items"]):
        if each["kind"] != "ReplicaSet":
            continue
        meta = each["metadata"]
        mine = [
            pod
            for pod in pods
            if pod["metadata"]["namespace"] == meta["namespace"]
            and any(ref["name"] == meta["name"] for ref in pod["metadata"].get("ownerReferences") or ())
        ]
        if not mine or (meta["namespace"], mine[0]["metadata"]["labels"].get("app")) in covered:
            continue
        count = len(mine)
        status = {"currentHealthy": count, "desiredHealthy": count, "expectedPods": count, "disruptionsAllowed": 0}
        cluster["items"].append(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {
                    "name": f"guard-{meta['name']}",
                    "namespace": meta["namespace"],
                    "generation": 1,
                    "annotations": {"ownedBy": owner, "target": meta["name"]},
                },
                "spec": {
                    "minAvailable": count,
                    "selector": {"matchLabels": {"app": mine[0]["metadata"]["labels"]["app"]}},
                },
                "status": {**status, "observedGeneration": 1},
            }
        )
    return cluster


def removals(cli: Any, path: Path, cluster: Any) -> tuple[list[str], dict[str, Any]]:
    path.write_bytes(msgspec.json.encode(cluster))
    document = json.loads(cli("plan", "-f", path, *FLAGS, "-o", "json").out)
    return [each["name"] for each in document["nodes"] if each["decision"] == "remove"], document


def test_budgets_that_surge_after_a_cordon_keep_no_node(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    free, _ = removals(cli, path, off_peak_cluster(7, 38))
    theirs, document = removals(cli, path, guarded("EvictionAutoScaler"))
    shut, _ = removals(cli, path, guarded("somebody"))
    assert len(free) >= 5
    assert len(theirs) == len(free)
    assert shut == []
    assert not any("OpensAfterCordon" in each["reasons"] for each in document["nodes"])
    path.write_bytes(msgspec.json.encode(guarded("EvictionAutoScaler")))
    told = "".join(cli("explain", name, "-f", path, *FLAGS).out for name in theirs)
    assert "after the cordon" in told
    assert "eviction-autoscaler then adds replicas" in told
