"""All behaviours together on a store, without a server and without waiting: time is what the test says."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import pytest
from lively import Json, node, workload

from tightship_simulator.api.disruption import compute_budgets
from tightship_simulator.api.store import Store
from tightship_simulator.life.changes import Change, Evict, Look, Patch, ready
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Living, Speeds, apply
from tightship_simulator.life.node_autoscaler import NodeGroup, Rules

SPEEDS = Speeds(Pace(start=5, stop=5, boot=20), Rules(unneeded=60, taint_delay=5, threshold=0.0))


class _LivingCluster:
    def __init__(self, *items: Json, most: int = 3) -> None:
        self.store = Store(seed=1)
        self.store.load(items)
        template = node("template")
        del template["metadata"]["uid"]
        self.living = Living(self.store, [NodeGroup("a", template, 1, most)], speeds=SPEEDS)
        self.now = 0.0

    def until(self, condition: Callable[[], bool], most: float = 300.0) -> None:
        end = self.now + most
        while not condition():
            assert self.now < end, "it did not come to pass in time"
            self.now += 1.0
            self.living.step(self.now)
            compute_budgets(self.store)

    def pods(self) -> list[Json]:
        return self.store.list("Pod", "shop")

    def all_ready(self, count: int) -> bool:
        return len(self.pods()) == count and all(map(ready, self.pods()))


def _deployment(replicas: int, cpu: str) -> Json:
    found = workload("Deployment", "web", replicas)
    found["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    return found


def test_a_deployment_brings_the_nodes_that_it_needs_and_leaves_them_when_it_is_scaled_down() -> None:
    cluster = _LivingCluster(node("n1"), _deployment(5, "2"))
    cluster.until(lambda: cluster.all_ready(5))
    assert len(cluster.store.list("Node")) == 3
    cluster.store.modify("Deployment", "web", "shop", lambda each: each["spec"].update(replicas=1))
    cluster.until(lambda: cluster.all_ready(1) and len(cluster.store.list("Node")) == 1)
    assert cluster.pods()[0]["spec"]["nodeName"] == cluster.store.list("Node")[0]["metadata"]["name"]


def test_an_evicted_pod_is_replaced_and_a_budget_says_no() -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    cluster = _LivingCluster(node("n1"), _deployment(3, "1"), budget)
    cluster.until(lambda: cluster.all_ready(3))
    before = {each["metadata"]["uid"] for each in cluster.pods()}
    for pod in cluster.pods():
        cluster.living.carry_out([Evict(pod)])
    assert sum("deletionTimestamp" in each["metadata"] for each in cluster.pods()) == 1
    cluster.until(lambda: cluster.all_ready(3) and {each["metadata"]["uid"] for each in cluster.pods()} != before)
    assert len(before & {each["metadata"]["uid"] for each in cluster.pods()}) == 2


def test_what_is_paused_does_nothing_and_sees_afterwards_what_has_changed() -> None:
    cluster = _LivingCluster(node("n1"), _deployment(2, "1"))
    cluster.until(lambda: cluster.all_ready(2))
    with cluster.living.paused("workloads"):
        cluster.store.delete("Pod", cluster.pods()[0]["metadata"]["name"], "shop", grace=0)
        for _ in range(20):
            cluster.now += 1.0
            cluster.living.step(cluster.now)
        assert len(cluster.pods()) == 1
    cluster.until(lambda: cluster.all_ready(2))


@pytest.mark.virtual_time
async def test_life_that_is_woken_looks_at_once_though_nothing_has_changed() -> None:
    cluster = _LivingCluster(node("n1"))
    seen: list[float] = []

    class Other:
        due = math.inf

        def step(self, look: Look, now: float, at: str) -> list[Change]:
            seen.append(now)
            return []

    with cluster.living.paused("horizontal", "nodes"):
        life = asyncio.create_task(cluster.living.run())
        await asyncio.sleep(100)
        cluster.living.others.append(Other())
        assert seen == []
        cluster.living.wake()
        await asyncio.sleep(100)
        life.cancel()
    assert len(seen) == 1


def test_a_guarded_patch_fails_on_an_object_that_has_changed() -> None:
    cluster = _LivingCluster(node("n1"))
    read = cluster.store.get("Node", "n1")
    cluster.store.modify("Node", "n1", change=lambda each: each["spec"].update(unschedulable=True))
    taint = {"key": "k", "effect": "NoSchedule"}
    cluster.living.carry_out([Patch(read, {"spec": {"taints": [taint]}}, guarded=True)])
    assert "taints" not in cluster.store.get("Node", "n1")["spec"]
    apply(cluster.store, Patch(cluster.store.get("Node", "n1"), {"spec": {"taints": [taint]}}, guarded=True))
    assert cluster.store.get("Node", "n1")["spec"]["taints"] == [taint]
