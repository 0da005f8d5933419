"""Hours of a cluster under the stand-in for the Cluster Autoscaler, with our controllers and without, on virtual time.

Loads change as a test says; counted is what it costs: nodes that the autoscaler adds, evictions, and CPUs kept. All
durations, those of the controllers' defaults too, are divided by :data:`SPEED`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from tightship_simulator.life.capacity_buffers import BufferController
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import NodeGroup, Rules
from tightship_simulator.virtual.programs import PROGRAMS
from tightship_simulator.virtual.simulation import NAMESPACE, Simulation, simulate
from tightship_testkit.loads import HOUR, Load
from tightship_testkit.settings_text import with_units

Json = dict[str, Any]

SPEED = 20.0
POOL = "cloud.google.com/gke-nodepool"
SHOP = "shop"
BOTH = ("node-compactor", "node-refiner")
CPUS = 4
"""CPUs of each node."""

WARM_UP = 900.0
"""Seconds of the cluster before the controllers start, and anything is counted."""

_LOOK = 1.0
"""Seconds of the loop's clock between two looks."""
_CONFIG_MAPS = {"node-compactor": "node-compactor-config", "node-refiner": "node-refiner-config"}
_FIRST = "n"


class Outcome(Struct, frozen=True):
    """What some hours have cost: nodes *added* and *removed* (when, in seconds of the cluster, and which), our
    *evictions*, and the CPUs kept in the mean. *said* are the reasons that our controllers gave. *disturbed* are the
    nodes from which anybody, Cluster Autoscaler included, evicted a pod.
    """

    added: Sequence[tuple[float, str]]
    removed: Sequence[tuple[float, str]]
    evictions: int
    cpus: float
    said: frozenset[str]
    disturbed: frozenset[str]

    @property
    def undisturbed(self) -> int:
        """How many nodes were removed without an eviction."""
        return sum(name not in self.disturbed for _, name in self.removed)

    def back(self, within: float) -> int:
        """Return how many nodes were added within so many seconds of one that was removed."""
        return sum(any(0 <= at - gone <= within for gone, _ in self.removed) for at, _ in self.added)


def live_for(
    hours: float,
    load: Load,
    *,
    seed: int = 0,
    controllers: Sequence[str] = (),
    nodes: int = 4,
    cpu: str = "500m",
    buffer: tuple[int, str] | None = None,
    share: Json | None = None,
    settings: Mapping[str, Json] = {},
    warm_up: float = WARM_UP,
    hpas: bool = False,
    rollouts_every: float = math.inf,
    threshold: float = 0.5,
) -> Outcome:
    """Let a cluster live for so many *hours* under *load* with these *controllers*; see the module.

    It begins with so many *nodes*, and lives *warm_up* seconds before the controllers start and anything is counted.
    Each pod asks for *cpu*. A *buffer* keeps room for so many pods of a CPU request, *share* is the
    spec of one for Deployment w0. *settings* are added to those of
    the controllers by name, their durations divided already. With *hpas* the replicas follow *load* as
    HorizontalPodAutoscalers do. Every *rollouts_every* seconds one Deployment after the other is rolled over.
    """
    clock = _Clock()

    def measure(hpa: Json, metric: Json, current: int) -> float | None:
        del metric
        return load(clock.now())[hpa["metadata"]["name"]] / max(1, current)

    async def live(simulation: Simulation) -> Outcome:
        store = simulation.store
        store.load([_node(f"{_FIRST}{number}") for number in range(nodes)])
        for name in (SHOP, NAMESPACE):
            if store.find("Namespace", name) is None:
                store.create("Namespace", {"metadata": {"name": name}})
        store.load([_deployment(name, count, cpu) for name, count in load(-warm_up).items()])
        if hpas:
            store.load([_autoscaler(name) for name in load(-warm_up)])
        if buffer is not None:
            store.load(_buffer(*buffer))
        if share is not None:
            simulation.living.others.append(BufferController())
            ref = {"apiGroup": "apps", "kind": "Deployment", "name": "w0"}
            store.load(_buffers({"scalableRef": ref, **share}, {}))
        # A cluster that has just been filled is not what a controller finds.
        clock.start(simulation, -warm_up)
        while clock.now() < 0:
            if not hpas:
                _scale(simulation, load(clock.now()))
            await simulation.sleep(_LOOK)
        for program in (each for each in PROGRAMS if each.name in controllers):
            data = _config(program.name, settings.get(program.name, {}))
            store.create(
                "ConfigMap", {"metadata": {"name": _CONFIG_MAPS[program.name], "namespace": NAMESPACE}, **data}
            )
            simulation.start(program, name=program.name, skew=0.0, **_VARIABLES[program.name])
        return await _watch(simulation, hours, None if hpas else load, rollouts_every)

    group = NodeGroup("p", _node("template"), 1, 60)
    speeds = Speeds(Pace(), Rules(threshold=threshold))
    return simulate(live, seed=seed, groups=[group], measure=measure, speeds=speeds, speed=SPEED, bookmarks=600.0)


class _Clock:
    """Seconds of the cluster since the controllers started."""

    def __init__(self) -> None:
        self.now: Callable[[], float] = lambda: 0.0

    def start(self, simulation: Simulation, at: float) -> None:
        loop = simulation.loop
        began = loop.time() - at / SPEED
        self.now = lambda: (loop.time() - began) * SPEED


async def _watch(simulation: Simulation, hours: float, load: Load | None, rollouts_every: float) -> Outcome:
    loop, store = simulation.loop, simulation.store
    began, end = loop.time(), loop.time() + hours * HOUR / SPEED
    known = {each["metadata"]["name"] for each in store.list("Node")}
    added: list[tuple[float, str]] = []
    removed: list[tuple[float, str]] = []
    said: set[str] = set()
    disturbed: set[str] = set()
    total = looks = rolled = 0
    version = store.version
    while loop.time() < end:
        now = (loop.time() - began) * SPEED
        if load is not None:
            _scale(simulation, load(now))
        if now >= (rolled + 1) * rollouts_every:
            _roll(simulation, rolled)
            rolled += 1
        disturbed |= {
            each.object["spec"]["nodeName"] for each in store.changes("Pod", version) if _evicted(each.object)
        }
        version = store.version
        names = {each["metadata"]["name"] for each in store.list("Node")}
        added += [(now, name) for name in sorted(names - known)]
        removed += [(now, name) for name in sorted(known - names)]
        known, total, looks = names, total + len(names), looks + 1
        if not looks % 10:
            said |= await _reasons(simulation)
        await simulation.sleep(_LOOK)
    evictions = sum(each.subresource == "eviction" and each.code == 201 for each in simulation.cluster.requests)
    assert not any(each.crashed for each in simulation.replicas)
    return Outcome(added, removed, evictions, CPUS * total / looks, frozenset(said), frozenset(disturbed))


def _evicted(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("reason") == "EvictionByEvictionAPI" for each in conditions)


def _roll(simulation: Simulation, number: int) -> None:
    """Roll over one Deployment after the other, as a new version of its image does."""
    names = sorted(each["metadata"]["name"] for each in simulation.store.list("Deployment"))
    name = names[number % len(names)]

    def changed(deployment: Json) -> None:
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = f"version-{number}"

    simulation.store.modify("Deployment", name, SHOP, changed)


def _scale(simulation: Simulation, wanted: Mapping[str, int]) -> None:
    store = simulation.store
    for name, count in wanted.items():
        item = store.find("Deployment", name, SHOP)
        if item is not None and item["spec"]["replicas"] != count:
            store.modify("Deployment", name, SHOP, partial(_scaled, count))


def _scaled(replicas: int, deployment: Json) -> None:
    deployment["spec"]["replicas"] = replicas


async def _reasons(simulation: Simulation) -> set[str]:
    """Return by which reasons our controllers hold nodes back, or keep them."""
    found: set[str] = set()
    async with simulation.session() as session:
        for replica in simulation.replicas:
            async with session.get(f"http://{replica.name}:9101/status") as answer:
                status = json.loads(await answer.text())
            found |= {each["reason"] for each in status.get("held", {}).values()}
            if status.get("plan") is not None:
                found |= {each["reason"] for node in status["plan"]["nodes"] for each in node.get("refusals") or ()}
    return found


def _node(name: str) -> Json:
    room = {"cpu": str(CPUS), "memory": "16Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, POOL: "p"}},
        "spec": {},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _deployment(name: str, replicas: int, cpu: str) -> Json:
    labels = {"app": name}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _autoscaler(name: str) -> Json:
    target = {"type": "Utilization", "averageUtilization": 70}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 60,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def _buffer(replicas: int, cpu: str) -> list[Json]:
    """Return a buffer as its autoscaler has filled in its status, and what it needs."""
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    template = {"spec": {"containers": [{"name": "main", "image": "none", "resources": resources}]}}
    where = {"name": "spare", "namespace": SHOP}
    spec = {"podTemplateRef": {"name": "spare"}, "replicas": replicas}
    return [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": where, "template": template},
        *_buffers(spec, {**spec, "podTemplateGeneration": 1}),
    ]


def _buffers(spec: Json, status: Json) -> list[Json]:
    group = "autoscaling.x-k8s.io"
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"capacitybuffers.{group}"},
            "spec": {"group": group, "versions": [{"name": "v1beta1", "served": True}]},
        },
        {
            "apiVersion": f"{group}/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {"name": "spare", "namespace": SHOP},
            "spec": spec,
            "status": status,
        },
    ]


def _part(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000 / SPEED))}ms"


_DRAINS = {
    "settleTime": 5, "podEvictionTimeout": 600, "nodeDrainTimeout": 1800, "notReadyTimeout": 300, "pendingTimeout": 30,
    "handOverTimeout": 3600, "backoff": 300, "backoffLimit": 6 * HOUR, "holdOff": 4 * HOUR,
    "pendingAfterDrainTimeout": 120, "pendingAfterDrainWindow": HOUR, "regretWindow": HOUR, "regretLimit": 24 * HOUR,
    "scaleInTimeout": 1800,
}  # fmt: skip
_COMPACTOR = {
    "minimumNodeAge": 1200, "neededMarkedTimeForRemoval": 300, "coolDownAfterNodeAdded": 600,
    "coolDownAfterFailure": 600, "clusterCoolDownAfterFailure": 180,
}  # fmt: skip
_REFINER = {"clusterCoolDownAfterDrain": 600, "clusterCoolDownAfterNodeAdded": HOUR}
_VARIABLES = {
    name: {
        interval: str(seconds / SPEED),
        "LEASE_DURATION": "60s",
        "LEASE_RENEW_DEADLINE": "40s",
        "LEASE_RETRY_PERIOD": "15s",
        "HTTP_PORTS": "9101",
    }
    for name, interval, seconds in (
        ("node-compactor", "INTERVAL", 120),
        ("node-refiner", "INTERVAL", 60),
    )
}


def _config(name: str, more: Json) -> Json:
    """Return the data of a controller's ConfigMap: its defaults, divided, and *more*."""
    if name == "node-compactor":
        times = {key: _part(seconds) for key, seconds in (_DRAINS | _COMPACTOR).items()}
        pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.8, "scaleDownRequiredUnderutilizedNodeCount": 0}
        return {"data": {"config.json": json.dumps(with_units({"nodePools": {"*": pool}, **times, **more}))}}
    times = {key: _part(seconds) for key, seconds in (_DRAINS | _REFINER).items()}
    return {"data": {"config.json": json.dumps(with_units({"workloadPause": "0s", **times, **more}))}}


__all__ = ["BOTH", "CPUS", "SPEED", "Outcome", "live_for"]
