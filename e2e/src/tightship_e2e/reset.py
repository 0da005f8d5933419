"""Empties a control plane between tests, far faster than a new one starts."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

from tightship_e2e import settle
from tightship_e2e.load import SYSTEM
from tightship_e2e.owners import KINDS
from tightship_testkit.client import ApiError, Client, Json, Propagation, wait_for

DEADLINE = 120.0  # seconds
CLAIMS = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tightship-claims"

# Owners of owners go first, so that nothing makes anew what is deleted after them.
ABOVE = ("CronJob", "Deployment")
OWNERS = {*ABOVE, *KINDS}
BESIDE = ("HorizontalPodAutoscaler", "PodDisruptionBudget", "Service", "ConfigMap", "Event")
STORAGE = ("PersistentVolumeClaim", "PersistentVolume", "VolumeAttachment", "CSIStorageCapacity")
CLUSTER = ("CSINode", "CSIDriver", "StorageClass", "RuntimeClass", "PriorityClass", "Node")

# What a fresh plane has, and what belongs to its own namespaces.
KEPT = {
    ("ConfigMap", "kube-root-ca.crt"),
    ("Service", "kubernetes"),
    ("PriorityClass", "system-cluster-critical"),
    ("PriorityClass", "system-node-critical"),
}
SYSTEM_KEEPS = {"ConfigMap", "Service"}


async def reset(client: Client, *, keep: Collection[str] = (), deadline: float = DEADLINE) -> None:
    """Delete pods, owners, budgets, storage, nodes and the content of namespaces.

    Namespaces stay, and those in `keep` with everything in them, so that a chart that is
    installed survives. RBAC and ServiceAccounts stay everywhere. Raises TimeoutError when
    something is still there after `deadline` seconds. Needs the controller-manager.
    Beyond some ten thousand pods a new plane is sooner there than an emptied one.
    """
    kept = {*keep, "kube-node-lease"}
    above = await _delete(client, ABOVE, kept)
    if "Deployment" in above:
        await settle.owners_seen(client, ["Deployment"])
    owners = await _delete(client, KINDS, kept)
    await settle.owners_seen(client, owners)
    await _delete(client, BESIDE, kept)

    async def empty() -> bool:
        # Pods that a CronJob or a controller under test made meanwhile are met again.
        left = await _delete(client, ("Pod", *KINDS), kept, grace=0)
        left |= await _delete(client, STORAGE, kept)
        return not left

    await wait_for(empty, deadline, "the plane is empty")
    classes = [item["metadata"]["name"] for item in await client.list("PriorityClass")]
    await _delete(client, CLUSTER, kept)
    gone = dict.fromkeys(name for name in classes if ("PriorityClass", name) not in KEPT)
    await settle.priorities_seen(client, gone)
    # A Lease of a node that is gone would be taken for that of its namesake to come. That of the claims remembers the
    # drains of the cluster that was, and the pauses after them.
    await client.delete_all("Lease", "kube-node-lease")
    await client.request("DELETE", CLAIMS)


async def _delete(
    client: Client, kinds: Collection[str], kept: Collection[str], *, grace: int | None = None
) -> set[str]:
    """Delete all objects of these kinds; returns the kinds of which there were any.

    Owners leave their pods behind, to be deleted here and at once. Those that the garbage collector deletes have a
    grace period, which kwok ends by a DELETE of the name alone: held up, it would meet a namesake of the next cluster.
    """
    lists = await asyncio.gather(*(client.list(kind) for kind in kinds))
    found: set[str] = set()
    for kind, items in zip(kinds, lists, strict=True):
        wanted = [item for item in items if _unwanted(kind, item, kept)]
        if not wanted:
            continue
        found.add(kind)
        dependents: Propagation = "Orphan" if kind in OWNERS else "Background"
        stuck = [item for item in wanted if item["metadata"].get("finalizers")]
        await client.each(partial(_release, client, kind), stuck)
        if len(wanted) == len(items):
            spaces = {item["metadata"].get("namespace") for item in wanted}
            await client.each(partial(client.delete_all, kind, grace=grace, dependents=dependents), spaces)
        else:
            await client.each(partial(_delete_one, client, kind, grace, dependents), wanted)
    return found


async def _delete_one(client: Client, kind: str, grace: int | None, dependents: Propagation, item: Json) -> None:
    await client.delete(kind, *_place(item), grace=grace, dependents=dependents)


def _unwanted(kind: str, item: Json, kept: Collection[str]) -> bool:
    name, namespace = _place(item)
    if namespace in kept or (kind, name) in KEPT:
        return False
    return not (namespace in SYSTEM - {"default"} and kind in SYSTEM_KEEPS)


def _place(item: Json) -> tuple[str, str | None]:
    return item["metadata"]["name"], item["metadata"].get("namespace")


async def _release(client: Client, kind: str, item: Json) -> None:
    """Take an object's finalizers off: those who set them may not be here to do it."""
    name, namespace = _place(item)
    try:
        await client.patch(kind, name, {"metadata": {"finalizers": None}}, namespace)
    except ApiError as error:
        if error.status != 404:
            raise
