"""What the scenarios share: a shop whose traffic rises and falls, its nodes, and a release that looks after both.

The shop's HPAs scale by metrics of the test's own (``traffic``), behind the real aggregator; the floors come from a
real Prometheus (``load``). So what an HPA sees may collapse while what Prometheus says does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tightship_charts.matrix import merge
from tightship_e2e.names import RELEASE, SHOP, SYSTEM
from tightship_e2e.providers import ImpossibleError, Provider, Values
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import RESOURCES, Json, wait_for
from tightship_testkit.floors import HPA, STATE, hpa_annotations
from tightship_testkit.grower import Grower
from tightship_testkit.invariants import Recorder, Watched
from tightship_testkit.manifests import POOL
from tightship_testkit.marks import ANNOTATION, drain, healthy
from tightship_testkit.remover import Remover
from tightship_testkit.replica import QUICK, QUICK_REFINER
from tightship_testkit.settings_text import with_units

DEADLINE = 120.0
PER_REPLICA = 10
NODES = {"general": 6, "memory": 3}
CONTROLLERS = ("hpa-scaler", "node-compactor", "node-refiner")


@dataclass(frozen=True)
class Workload:
    """A Deployment of *pool* whose pods ask for *cpu* milli-CPU, and its HPA, if *notes* (annotations) opt one in."""

    pool: str
    cpu: int
    least: int
    most: int
    notes: Mapping[str, object] | None = None


SHORTLY: Mapping[str, object] = {"requests_per_replica": PER_REPLICA, "query_range": "5s", "lowering_window": "5s"}
"""A day that takes minutes has no time for the windows that a gauge has by default."""

WORKLOADS: Mapping[str, Workload] = {
    "web": Workload("general", 500, 3, 24, {"prometheus_query": "sum(load_web)", **SHORTLY}),
    "api": Workload("general", 500, 3, 12, {"scale_down_max_ratio": 0.3}),
    "batch": Workload("general", 500, 6, 6),
    "cache": Workload("memory", 900, 2, 12, {"prometheus_query": "sum(load_cache)", **SHORTLY}),
}

PEAK = {"load_web": 180, "traffic_web": 240, "traffic_api": 120, "load_cache": 90, "traffic_cache": 120}
NIGHT = {"load_web": 60, "traffic_web": 20, "traffic_api": 10, "load_cache": 30, "traffic_cache": 10}
AT_PEAK = {"web": 24, "api": 12, "batch": 6, "cache": 12}
AT_NIGHT = {"web": 6, "api": 3, "batch": 6, "cache": 3}
"""What is left of each: the floors, where the HPAs themselves want less."""
UNGUARDED = {name: work.least for name, work in WORKLOADS.items()}
"""What would be left without the hpa-scaler."""

_COMMON: Values = {
    "interval": "1s",
    "dryRun": False,
    "replicaCount": 1,
    "nodeSelector": {POOL: "system"},
    "leaderElection": {"leaseDuration": "10s", "renewDeadline": "8s", "retryPeriod": "1s"},
    "requestTimeout": "5s",
    "log": {"level": "debug", "format": "json"},
}


SWITCHED_OFF: Mapping[str, Values] = {
    "node-compactor": {"config": {"nodePools": {"general": {"enabled": False}}}},
    "node-refiner": {"config": {"enabled": False}},
}
"""Values by which the controllers of nodes end what they have begun, and begin nothing."""

AFTERWARDS = (
    ("hpa-scaler", "release", "--all-namespaces"),
    ("kubectl", "annotate", "nodes", "--all", f"{ANNOTATION}-"),
)
"""What docs/operations.md has a person do after an uninstall."""


def settings(controller: str, url: str) -> dict[str, Any]:
    """Return values of a controller's chart whose pauses are short; *url* is that of Prometheus."""
    pool = {"enabled": True, "cpuRequestRatioLimit": 0.75, "requiredUnderutilizedNodeCount": 1}
    own: Mapping[str, Values] = {
        "node-compactor": {
            "config": with_units({**QUICK, "nodePools": {"general": pool}, "neededMarkedTimeForRemoval": "1s"})
        },
        "node-refiner": {"config": with_units({**QUICK_REFINER, "clusterCoolDownAfterDrain": "4s"})},
        "hpa-scaler": {
            "config": {"circuitBreakerPause": "1s", "prometheusServers": {"default": {"timeout": "1s"}}},
            "prometheusServerUrl": url,
            "minimumReplicasLowerBound": 1,
            "watch": True,
        },
    }
    return {**_COMMON, **own[controller]}


def _objects(name: str, work: Workload, replicas: int, container: Json) -> list[Json]:
    meta, labels = {"name": name, "namespace": SHOP}, {"app": name}
    requests = {"cpu": f"{work.cpu}m", "memory": "1Gi"}
    pod = {
        "containers": [{**container, "name": "main", "resources": {"requests": requests}}],
        "nodeSelector": {POOL: work.pool},
    }
    found: list[Json] = [
        {
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "kind": "PodDisruptionBudget",
            "metadata": meta,
            "spec": {"minAvailable": work.least - 1, "selector": {"matchLabels": labels}},
        },
    ]
    if work.notes is not None:
        notes = hpa_annotations(**work.notes, minimum_replicas=work.least)
        found.append(scaled(name, work.least, work.most, notes))
    return found


def scaled(name: str, minimum: int, maximum: int, notes: Mapping[str, str], kind: str = "Deployment") -> Json:
    """Return an HPA that scales by ``traffic_NAME``, at once in both directions."""
    version = "argoproj.io/v1alpha1" if kind == "Rollout" else "apps/v1"
    target = {"type": "AverageValue", "averageValue": PER_REPLICA}
    at_once = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}]}
    return {
        "kind": HPA,
        "metadata": {"name": name, "namespace": SHOP, "annotations": dict(notes)},
        "spec": {
            "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name},
            "minReplicas": minimum,
            "maxReplicas": maximum,
            "metrics": [{"type": "External", "external": {"metric": {"name": f"traffic_{name}"}, "target": target}}],
            "behavior": {"scaleDown": at_once},
        },
    }


class ShopCluster:
    """The shop and its nodes, watched; what takes emptied nodes away and brings new ones; and a release."""

    def __init__(self, provider: Provider, charts: Path, recorder: Recorder) -> None:
        self.provider = provider
        self.charts = charts
        self.api = provider.client
        self.metrics = provider.metrics
        self.recorder = recorder
        self.remover = Remover(self.api, selector=provider.selector)
        self.grower = Grower(self.api, provider.add_node, NODES)
        self.lowest: dict[str, int] = {}
        """The fewest replicas that each Deployment was seen to have since :meth:`watch_lows`."""
        self._events: list[AuditEvent] = []

    async def audited(self) -> list[AuditEvent]:
        """Return the audit log since the cluster was built."""
        self._events += await self.provider.audit()
        return self._events

    async def be(self, traffic: Mapping[str, float]) -> None:
        """Have so much traffic from now on."""
        gauges = {name: value for name, value in traffic.items() if name.startswith("load_")}
        await self.metrics.set(gauges, {name: value for name, value in traffic.items() if name not in gauges})

    async def build(self, replicas: Mapping[str, int]) -> None:
        """Make all nodes and workloads, and wait until all pods are Ready."""
        await self.api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": SHOP}})
        # Leases outlive a release, and the emptying of a plane.
        await self.api.request("DELETE", RESOURCES["Lease"].path(SYSTEM))
        nodes = [("system-0", "system")]
        nodes += [(f"{pool}-{number}", pool) for pool, count in NODES.items() for number in range(count)]
        await self.api.each(lambda each: self.provider.add_node(*each), nodes)
        container = self.provider.container
        made = [each for name, work in WORKLOADS.items() for each in _objects(name, work, replicas[name], container)]
        await self.api.each(self.api.create, made)
        await self.until_ready(replicas)

    # The release.

    async def install(self, **more: Values) -> str:
        """Install or upgrade the umbrella, *more* being values by controller, and wait until all lead."""
        said = await self.apply(**more)
        await self.until_led()
        return said

    async def apply(self, **more: Values) -> str:
        """Install or upgrade the umbrella, and wait for nothing."""
        given = {name: merge(settings(name, self.metrics.url), dict(more.get(name, {}))) for name in CONTROLLERS}
        return await self.provider.install(RELEASE, self.charts / "tightship", SYSTEM, given)

    async def install_alone(self, controller: str, **more: object) -> str:
        """Install or upgrade the chart of one controller, *more* being its values, and wait until it leads."""
        given = merge(settings(controller, self.metrics.url), more)
        said = await self.provider.install(RELEASE, self.charts / controller, SYSTEM, given)
        await self.until_led(controller)
        return said

    async def switch_off(self) -> None:
        """Switch the controllers of nodes off, as the notes of the charts say it, and wait until they have ended."""
        await self.apply(**SWITCHED_OFF)  # what is switched off gives its Lease up

        async def clean() -> bool:
            left = [each for each in await self.left_behind() if not each.startswith("HPA ") and "Backoff" not in each]
            return left == [] and not self.recorder.in_drain()

        async def left() -> str:
            return f"left: {await self.left_behind()}"

        await self.until(clean, "nothing is left on the nodes but notes of drains given up", left)

    async def leave(self) -> None:
        """Uninstall what is switched off, and give the floors back: nothing may be left."""
        await self.provider.uninstall(RELEASE, SYSTEM)
        for command in AFTERWARDS:
            await self.provider.command(*command)
        assert await self.left_behind() == []

    async def until_led(self, *names: str) -> None:
        """Wait until a replica of each of these controllers leads, of all if none is named."""

        async def led() -> bool:
            return sorted(await self.leading()) == sorted(names or CONTROLLERS)

        await self.until(led, "every controller has a leader")

    async def leading(self) -> list[str]:
        """Return which controllers say that they lead."""
        every = await self.provider.controllers(SYSTEM)
        return [each.name for each in every if "tightship_leader 1.0" in (await each.get("/metrics"))[1]]

    async def reasons(self, name: str) -> list[str]:
        """Return the reasons that the hpa-scaler tells of an HPA."""
        for each in await self.provider.controllers(SYSTEM):
            if each.name == "hpa-scaler":
                status, text = await each.get("/status")
                plan = json.loads(text)["plan"] if status == 200 else None
                for hpa in plan["hpas"] if plan else ():
                    if hpa["name"] == name:
                        return list(hpa["reasons"])
        return []

    async def passes(self, more: int = 5) -> None:
        """Wait until the hpa-scaler has judged so many times more."""
        [scaler] = [each for each in await self.provider.controllers(SYSTEM) if each.name == "hpa-scaler"]
        before = (await scaler.said()).count('"judged"')

        async def judged() -> bool:
            return (await scaler.said()).count('"judged"') >= before + more

        await self.until(judged, f"{more} cycles")

    # What is seen.

    async def floors(self) -> dict[str, int]:
        """Return the floors."""
        return {each["metadata"]["name"]: each["spec"]["minReplicas"] for each in await self.api.list(HPA, SHOP)}

    async def replicas(self) -> dict[str, int]:
        """Return how many replicas each Deployment is to have."""
        found = await self.api.list("Deployment", SHOP)
        return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}

    async def nodes(self, pool: str) -> list[str]:
        """Return the nodes of a pool."""
        return [each["metadata"]["name"] for each in await self.api.list("Node", labelSelector=f"{POOL}={pool}")]

    async def until_ready(self, replicas: Mapping[str, int]) -> None:
        """Wait until Deployments have these replicas, all of them bound and Ready."""

        async def ready() -> bool:
            if {name: count for name, count in (await self.replicas()).items() if name in replicas} != dict(replicas):
                return False
            pods = [each for each in await self.api.list("Pod", SHOP) if not each["metadata"].get("deletionTimestamp")]
            return len(pods) == sum(replicas.values()) and all(healthy(each) for each in pods)

        await self.until(ready, f"{dict(replicas)} are Ready", self.pods_told)

    async def pods_told(self) -> str:
        """Return what there is of the shop's pods, for an error."""
        pods = await self.api.list("Pod", SHOP)
        reported = dict.fromkeys(await self.replicas(), 0)
        for each in pods:
            reported[each["metadata"]["labels"]["app"]] += healthy(each)
        waiting = [
            (each["metadata"]["name"], each["spec"].get("nodeName"), (each.get("status") or {}).get("conditions"))
            for each in pods
            if not healthy(each)
        ]
        nodes = {each["metadata"]["name"]: each["spec"].get("taints") for each in await self.api.list("Node")}
        said = f"Ready {reported}, wanted {await self.replicas()}, floors {await self.floors()}, nodes {nodes}"
        return "\n".join([said, *map(str, waiting)])

    async def at_rest(self, seconds: float = 10.0) -> None:
        """Wait until no node has been in drain for so long."""
        loop = asyncio.get_running_loop()
        last = loop.time()

        async def rested() -> bool:
            nonlocal last
            if self.recorder.in_drain():
                last = loop.time()
            return loop.time() - last > seconds

        await self.until(rested, "no node is drained any more", deadline=240)

    @asynccontextmanager
    async def watch_lows(self) -> AsyncIterator[None]:
        """Note the fewest replicas of each Deployment for the body's time."""
        self.lowest = {}

        async def look() -> None:
            while True:
                for name, count in (await self.replicas()).items():
                    self.lowest[name] = min(self.lowest.get(name, count), count)
                await asyncio.sleep(0.2)

        task = asyncio.create_task(look(), name="lows")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def until(
        self,
        condition: Callable[[], Awaitable[bool]],
        what: str,
        reported: Callable[[], Awaitable[str]] | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        """Wait for a condition; what happened, and the controllers' logs, are in the error."""
        try:
            await wait_for(condition, deadline, what)
        except TimeoutError as error:
            more = await reported() if reported else ""
            raise AssertionError(f"{error}\n{more}\n{self.recorder.story()}\n{await self.provider.logs()}") from None

    async def seen(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for what the recorder sees."""

        async def holds() -> bool:
            return condition()

        await self.until(holds, what)

    async def left_behind(self) -> list[str]:
        """Return everything on nodes and HPAs that is of a controller."""
        found = []
        for node in await self.api.list("Node"):
            name, spec = node["metadata"]["name"], node["spec"]
            found += [f"{name}: taint {each['key']}" for each in spec.get("taints") or [] if "tightship" in each["key"]]
            notes = [key for key in node["metadata"].get("annotations") or {} if "tightship" in key]
            found += [f"{name}: {key} {drain(node).get('phase')}" for key in notes]
            found += [f"{name}: cordoned"] if spec.get("unschedulable") else []
        for hpa in await self.api.list(HPA, SHOP):
            name = hpa["metadata"]["name"]
            work = WORKLOADS.get(name)
            if STATE in (hpa["metadata"].get("annotations") or {}):
                found.append(f"HPA {name}: {STATE}")
            if work and hpa["spec"]["minReplicas"] != work.least:
                found.append(f"HPA {name}: minReplicas {hpa['spec']['minReplicas']}, not {work.least}")
        return sorted(found)


@asynccontextmanager
async def shop_cluster(
    cluster: Watched, provider: Provider, charts: Path, *, by_night: bool = False
) -> AsyncIterator[ShopCluster]:
    """Build a cluster with a shop on an empty cluster, at its peak or by night, with all nodes that it may have."""
    made = ShopCluster(provider, charts, Recorder(cluster, pending=DEADLINE))
    with contextlib.suppress(ImpossibleError):  # told by the scenarios that ask for it
        await provider.audit()  # what is in it so far is of another cluster
    await made.be(NIGHT if by_night else PEAK)
    await made.build(UNGUARDED if by_night else AT_PEAK)
    # What is built is short of its budgets at first.
    async with made.recorder, made.remover, made.grower:
        yield made


ClusterWork = Callable[[ShopCluster], Awaitable[None]]
Live = Callable[..., None]
"""What the fixture ``on_shop_cluster`` is: runs work on a cluster with a shop, at its peak or ``by_night``."""


async def live_in(
    cluster: Watched, provider: Provider, charts: Path, work: ClusterWork, *, by_night: bool, lasts: bool = True
) -> None:
    """Run *work* on a cluster with a shop; afterwards its release goes, and what was seen has to be right.

    Where the cluster *lasts* it gets back what controllers hold; that waits for the Leases of those who have lost their
    rights.
    """
    async with shop_cluster(cluster, provider, charts, by_night=by_night) as made:
        try:
            await work(made)
        finally:
            await provider.uninstall(RELEASE, SYSTEM, hooks=lasts)
        assert await provider.ended() == {}, await provider.logs()
        await made.recorder.check()


__all__ = [
    "AT_NIGHT",
    "AT_PEAK",
    "CONTROLLERS",
    "NIGHT",
    "PEAK",
    "RELEASE",
    "SYSTEM",
    "UNGUARDED",
    "ClusterWork",
    "Live",
    "ShopCluster",
    "live_in",
    "scaled",
]
