"""What the behaviours have at hand, against a look at everything."""

from __future__ import annotations

import contextlib
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from lively import Json, node, workload

from tightship_simulator.api.disruption import compute_budgets
from tightship_simulator.api.errors import Refused
from tightship_simulator.api.store import Store
from tightship_simulator.life.changes import Evict
from tightship_simulator.life.index import Index
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Living, Speeds
from tightship_simulator.life.node_autoscaler import NodeGroup, Rules

BEGIN = datetime(2026, 11, 21, 21, tzinfo=UTC)
SPEEDS = Speeds(Pace(start=3, stop=4, boot=15), Rules(unneeded=40, taint_delay=3, eviction=20))


class _Everything(Living):
    """Looks at everything each time, and remembers nothing of the look before."""

    def _look(self) -> Index:
        self._index, self._full = Index(), None
        self._reading = type(self._reading)()
        for kind in ("DaemonSet", "Deployment", "HorizontalPodAutoscaler", "Node", "Pod", "ReplicaSet", "StatefulSet"):
            for item in self._store.list(kind):
                self._take(False, item)
        return self._index


def _made(kind: type[Living], seed: int, history: int) -> tuple[Store, Living]:
    store = Store(seed=seed, history=history)
    agent = workload("DaemonSet", "agent")
    agent["metadata"]["namespace"] = "kube-system"
    agent["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 12,
            "metrics": [{"type": "Resource"}],
        },
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    store.load([node("n1"), node("n2"), agent, _deployment("web", 4), _deployment("batch", 3), hpa, budget])
    template = node("template")
    del template["metadata"]["uid"]
    groups = [NodeGroup("a", template, 1, 6)]
    return store, kind(store, groups, lambda *_: 0.5 + store.version % 7 / 6, speeds=SPEEDS, seed=seed)


def _deployment(name: str, replicas: int) -> Json:
    found = workload("Deployment", name, replicas)
    found["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "900m"}}
    return found


def _disturb(store: Store, living: Living, rng: random.Random) -> None:
    """Do one of the things that people, clouds and controllers do to a cluster."""
    pods, nodes = store.list("Pod", "shop"), store.list("Node")
    match rng.randrange(9):
        case 0:
            store.modify("Deployment", "batch", "shop", lambda each: each["spec"].update(replicas=rng.randrange(7)))
        case 1 if nodes:
            store.delete("Node", rng.choice(nodes)["metadata"]["name"])
        case 2 if pods:
            store.delete("Pod", rng.choice(pods)["metadata"]["name"], "shop", grace=rng.choice([None, 0]))
        case 3 if pods:
            living.carry_out([Evict(rng.choice(pods))])
        case 4 if nodes:
            name = rng.choice(nodes)["metadata"]["name"]
            store.modify("Node", name, change=lambda each: each["spec"].update(unschedulable=rng.random() < 0.5))
        case 5:
            image = f"i:{rng.randrange(3)}"
            store.modify(
                "Deployment",
                "web",
                "shop",
                lambda each: each["spec"]["template"]["spec"]["containers"][0].update(image=image),
            )
        case 6 if store.find("Deployment", "batch", "shop"):
            store.delete("Deployment", "batch", "shop")
        case 7:
            store.create("Deployment", _deployment("batch", 2))
        case 8 if pods:
            name = rng.choice(pods)["metadata"]["name"]
            store.modify("Pod", name, "shop", lambda each: each["status"].update(phase="Failed"))


def _described(store: Store) -> dict[str, list[Any]]:
    kinds = ("Node", "Pod", "ReplicaSet", "Deployment", "DaemonSet", "HorizontalPodAutoscaler", "PodDisruptionBudget")
    return {kind: [_timeless(each) for each in store.list(kind)] for kind in kinds}


def _timeless(thing: Any) -> Any:
    """Return *thing* without times: what was there from the beginning has those of the real clock."""
    if isinstance(thing, dict):
        return {key: _timeless(each) for key, each in thing.items() if not key.endswith(("Time", "Timestamp"))}
    return [_timeless(each) for each in thing] if isinstance(thing, list) else thing


@pytest.mark.parametrize("history", [10_000, 3])
@pytest.mark.parametrize("seed", range(6))
def test_who_goes_by_changes_decides_as_who_looks_at_everything(seed: int, history: int) -> None:
    stores = [_made(kind, seed, history) for kind in (Living, _Everything)]
    rngs = [random.Random(seed), random.Random(seed)]
    for second in range(150):
        for (store, living), rng in zip(stores, rngs, strict=True):
            # Who is younger goes first: both are to have one clock.
            store.now = lambda at=second: BEGIN + timedelta(seconds=at)
            if rng.random() < 0.2:
                with contextlib.suppress(Refused):  # it is there already, or is no more
                    _disturb(store, living, rng)
            compute_budgets(store)
            living.step(float(second))
        assert _described(stores[0][0]) == _described(stores[1][0]), f"after {second} s"
    assert stores[0][0].version > 300
