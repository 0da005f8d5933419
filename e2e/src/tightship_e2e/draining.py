"""Drains nodes of a real control plane by plain API calls, and watches what the scheduler makes of it."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections import Counter
from functools import partial

from tightship_e2e.load import load
from tightship_e2e.plane import ControlPlane
from tightship_e2e.provisioner import unbound_claims
from tightship_e2e.reset import reset
from tightship_simulator import World
from tightship_simulator.random_clusters import NEVER
from tightship_simulator.world import CORDON, DRAINING
from tightship_testkit.client import Client, Items, Json, wait_for, wait_while

DEADLINE = 120.0
"""Seconds for one condition; the scheduler tries a pod again after at most two."""

TALLY: Counter[str] = Counter()
"""What was verified in this run; the terminal summary shows it."""

SAVED = (
    "Namespace", "Node", "ReplicaSet", "DaemonSet", "PodDisruptionBudget", "Pod", "PersistentVolumeClaim",
    "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment",
)  # fmt: skip


async def begin(api: Client, plane: ControlPlane, cluster: Json) -> Json:
    """Load *cluster* into an emptied plane and return what it has become once the scheduler is done."""
    await reset(api)
    await load(api, cluster)
    await wait_while(partial(unbound_claims, api), DEADLINE, "claims are bound")
    await scheduler_rests(api, plane)
    # What may find a place only later would take it from a pod that is being moved; that is not in question here.
    for pod in await unbound(api):
        await api.delete("Pod", name(pod), pod["metadata"]["namespace"], grace=0)
    return await saved(api)


async def saved(api: Client) -> Json:
    """Return the cluster as a List, as kubectl prints it."""
    lists = await asyncio.gather(*(api.list(kind) for kind in SAVED))
    items = [{**item, "kind": kind} for kind, found in zip(SAVED, lists, strict=True) for item in found]
    return {"apiVersion": "v1", "kind": "List", "items": items}


async def cordon(api: Client, node: str) -> None:
    """Cordon a node as a drain does: the flag, the taint that follows it, and the drain's own.

    Returns when the scheduler has seen it. Its watches of nodes and pods are not ordered among each other, so that a
    pod made right after the cordon could otherwise still be put there (a drain waits seconds for the same reason).
    """
    item = await api.get("Node", node)
    taints = [each for each in item["spec"].get("taints") or [] if each["key"] not in (CORDON["key"], DRAINING["key"])]
    spec = {"unschedulable": True, "taints": [*taints, CORDON, DRAINING]}
    await api.patch("Node", node, {"spec": spec})
    await _scheduler_sees(api, node, cordoned=True)


async def uncordon(api: Client, node: str, taints: Items) -> None:
    """Lift a cordon, with *taints* left on the node, and return when the scheduler has seen it."""
    await api.patch("Node", node, {"spec": {"unschedulable": None, "taints": taints}})
    await _scheduler_sees(api, node, cordoned=False)


async def _scheduler_sees(api: Client, node: str, *, cordoned: bool) -> None:
    async def seen() -> bool:
        probe = (await api.create(_probe(node)))["metadata"]["name"]

        async def decided() -> Json | None:
            found = await api.get("Pod", probe, "default")
            return found if found["spec"].get("nodeName") or scheduled(found)[1] else None

        found = await wait_for(decided, DEADLINE, f"the scheduler tries a probe on {node}")
        await api.delete("Pod", probe, "default", grace=0)
        return found is not None and ("unschedulable" in scheduled(found)[1]) is cordoned

    await wait_for(seen, DEADLINE, f"the scheduler sees that {node} is {'' if cordoned else 'no longer '}cordoned")


def _probe(node: str) -> Json:
    """Return a pod that asks for nothing and could run on one node only."""
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}
    meta = {"generateName": f"{NEVER}-probe-", "namespace": "default"}
    spec = {"containers": [{"name": "none", "image": "none"}], "affinity": {"nodeAffinity": required}}
    return {"kind": "Pod", "metadata": meta, "spec": spec}


async def evict_all(api: Client, pods: Items, *, ask_budgets: bool = True) -> None:
    """Evict pods all at once, asking again where a budget says no; without budgets, just delete them."""

    async def leave(pod: Json) -> None:
        space = pod["metadata"]["namespace"]
        if not ask_budgets:
            await api.delete("Pod", name(pod), space, grace=0)
            return

        async def granted() -> bool:
            return await api.evict(space, name(pod), grace=0) in (201, 404)

        await wait_for(granted, DEADLINE, f"an eviction of {space}/{name(pod)}")

    await asyncio.gather(*(leave(pod) for pod in pods))


async def unbound(api: Client) -> Items:
    """Return pods without a node, but for those made to fit nowhere."""
    pods = await api.list("Pod", fieldSelector="spec.nodeName=")
    return [pod for pod in pods if not name(pod).startswith(NEVER)]


async def replaced(api: Client) -> bool:
    """Whether every ReplicaSet has its pods again, bound or not."""
    sets = await api.list("ReplicaSet")
    pods = await api.list("Pod")
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    held = [ref["uid"] for pod in alive for ref in pod["metadata"].get("ownerReferences") or []]
    return all(held.count(each["metadata"]["uid"]) == each["spec"]["replicas"] for each in sets)


async def settled(api: Client, plane: ControlPlane) -> str:
    """Wait until all pods are replaced and the scheduler is done; returns what it could not place, and why."""
    await wait_for(lambda: replaced(api), DEADLINE, "all pods are replaced")
    await scheduler_rests(api, plane)
    return "; ".join(f"{name(pod)}: {scheduled(pod)[1]}" for pod in await unbound(api))


async def scheduler_rests(api: Client, plane: ControlPlane) -> None:
    """Wait until every unbound pod has been tried against the cluster as it is, and lies in the unschedulable queue."""

    async def rests() -> bool:
        waiting = await api.list("Pod", fieldSelector="spec.nodeName=")
        if any(scheduled(pod)[0] != "Unschedulable" for pod in waiting):
            return False
        queues = await asyncio.to_thread(queue_lengths, plane)
        return queues == {"active": 0, "backoff": 0, "unschedulable": len(waiting), "gated": 0}

    await wait_for(rests, DEADLINE, "the scheduler has tried every pod")


def queue_lengths(plane: ControlPlane) -> dict[str, int]:
    """Return how many pods wait in each queue of the scheduler. One that is being tried is in none of them."""
    found: dict[str, int] = {}
    for line in metric_lines(plane):
        if line.startswith("scheduler_pending_pods{"):
            queue = line.partition('queue="')[2].partition('"')[0]
            found[queue] = found.get(queue, 0) + int(float(line.split()[-1]))
    return {queue: found.get(queue, 0) for queue in ("active", "backoff", "unschedulable", "gated")}


def metric_lines(plane: ControlPlane) -> list[str]:
    """Return the scheduler's metrics."""
    url = f"https://127.0.0.1:{plane.layout.ports['kube-scheduler']}/metrics"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {plane.token}"})
    trust = ssl._create_unverified_context()  # noqa: S323 - the scheduler signs its own certificate
    with urllib.request.urlopen(request, context=trust, timeout=10) as answer:  # noqa: S310
        return list(answer.read().decode().splitlines())


def scheduled(pod: Json) -> tuple[str, str]:
    """Return reason and message of the pod's PodScheduled condition, empty where it has none."""
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled":
            if "ephemeral volume controller" in condition.get("message", ""):
                return "", ""  # its claims are being made
            return condition.get("reason", ""), condition.get("message", "")
    return "", ""


def name(item: Json) -> str:
    """Return an object's name."""
    return str(item["metadata"]["name"])


def pods_of(cluster: Json, keys: set[str]) -> Items:
    """Return the pods of a List with these keys."""
    world = World(cluster)
    return [world.pods[key] for key in sorted(keys)]
