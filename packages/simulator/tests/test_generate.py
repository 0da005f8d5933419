"""Generated clusters: the same for the same seed, believable, and legal."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tightship_simulator import World, random_cluster
from tightship_simulator.generate import NOW, main, off_peak_cluster


def test_an_off_peak_cluster_is_the_same_for_the_same_seed_and_moment() -> None:
    assert off_peak_cluster(3) == off_peak_cluster(3)
    assert off_peak_cluster(3) != off_peak_cluster(4)
    assert off_peak_cluster(3) != off_peak_cluster(3, now=NOW + timedelta(days=1))


@pytest.mark.parametrize("seed", range(2))
def test_an_off_peak_cluster_holds_what_a_fleet_holds(seed: int) -> None:
    cluster = off_peak_cluster(seed)
    kinds = Counter(item["kind"] for item in cluster["items"])
    assert kinds["Node"] == 40
    assert 300 < kinds["Pod"] < 900
    for kind in (
        "Deployment",
        "ReplicaSet",
        "StatefulSet",
        "DaemonSet",
        "Job",
        "PodDisruptionBudget",
        "PersistentVolume",
    ):
        assert kinds[kind], kind
    world = World(cluster)
    assert world.overcommitted() == []
    assert len(world.on_node[""]) == 1
    assert sum("nvidia.com/gpu" in node["status"]["allocatable"] for node in world.nodes.values()) == 2
    assert any(not pod["metadata"].get("ownerReferences") for pod in world.pods.values())


def test_budgets_of_an_off_peak_cluster_tell_the_truth() -> None:
    cluster = off_peak_cluster(7)
    pods = [item for item in cluster["items"] if item["kind"] == "Pod" and "nodeName" in item["spec"]]
    for budget in (item for item in cluster["items"] if item["kind"] == "PodDisruptionBudget"):
        wanted = budget["spec"]["selector"]["matchLabels"]["app"]
        space = budget["metadata"]["namespace"]
        covered = [
            pod
            for pod in pods
            if pod["metadata"]["namespace"] == space and pod["metadata"]["labels"].get("app") == wanted
        ]
        assert budget["status"]["expectedPods"] == budget["status"]["currentHealthy"] == len(covered)


def test_a_fleet_of_rivals_has_its_conflicts_and_little_free_memory() -> None:
    cluster = off_peak_cluster(3, nodes=30, pods=450, conflicts=200)
    assert cluster == off_peak_cluster(3, nodes=30, pods=450, conflicts=200)
    world = World(cluster)
    assert world.overcommitted() == []
    excluded: dict[str, set[str]] = {}
    requested = 0
    for pod in world.pods.values():
        requested += int(pod["spec"]["containers"][0]["resources"]["requests"]["memory"].removesuffix("Mi"))
        for term in pod["spec"].get("affinity", {}).get("podAntiAffinity", {}).values():
            assert term[0]["topologyKey"] == "kubernetes.io/hostname"
            excluded[pod["metadata"]["labels"]["app"]] = set(term[0]["labelSelector"]["matchExpressions"][0]["values"])
    assert sum(len(others - {app}) for app, others in excluded.items()) > 180
    room = sum(int(node["status"]["allocatable"]["memory"].removesuffix("Ki")) for node in world.nodes.values())
    assert 0.7 < requested * 1024 / room < 0.85
    for node in world.nodes:
        apps = [world.pods[key]["metadata"]["labels"].get("app") for key in world.on_node[node]]
        for app in apps:
            others = [*apps]
            others.remove(app)
            assert excluded.get(app, set()).isdisjoint(others)


def test_the_command_writes_the_same_list(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    main(["--seed", "5", "--nodes", "12", "-o", str(path)])
    assert msgspec.json.decode(path.read_bytes()) == off_peak_cluster(5, nodes=12)


def test_placements_of_random_clusters_overcommit_no_node() -> None:
    for seed in range(50):
        cluster = random_cluster(seed)
        assert cluster == random_cluster(seed)
        assert World(cluster).overcommitted() == []
