"""The disruption controller of the embedded cluster: it keeps the status of every PodDisruptionBudget."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from tightship_simulator.api.budgets import controller_of, status_of
from tightship_simulator.api.errors import Expired
from tightship_simulator.api.store import Store

Json = dict[str, Any]

_SCALED = ("ReplicaSet", "ReplicationController", "StatefulSet")
_COUNTED = ("Pod", "PodDisruptionBudget", "Deployment", *_SCALED)

_RECHECK = 5.0
"""Seconds after which evictions that were not followed by a deletion are looked at again."""


async def keep_budgets(store: Store) -> None:
    """Compute what PodDisruptionBudgets allow, whenever anything that they count has changed, for ever."""
    known, where = store.version, None
    while True:
        compute_budgets(store, where)
        try:
            async with asyncio.timeout(_RECHECK):
                await store.wait(known)
        except TimeoutError:
            where = None
        else:
            where = _touched(store, known)
        known = store.version


def _touched(store: Store, since: int) -> set[str] | None:
    """Return the namespaces in which something has happened that counts, ``None`` where that is forgotten."""
    try:
        changes = [change for kind in _COUNTED for change in store.changes(kind, since)]
    except Expired:
        return None
    return {each.object["metadata"]["namespace"] for each in changes}


def compute_budgets(store: Store, namespaces: Collection[str] | None = None) -> None:
    """Compute the status of every budget, or of those in *namespaces*, from the pods there are now."""
    for budget in store.list("PodDisruptionBudget"):
        namespace = budget["metadata"]["namespace"]
        if namespaces is not None and namespace not in namespaces:
            continue
        pods = store.list("Pod", namespace)
        status = status_of(budget, pods, lambda pod: scale_of_controller(store, pod), store.now())
        if status != budget.get("status"):
            store.update("PodDisruptionBudget", {**budget, "status": status}, part="status")


def scale_of_controller(store: Store, pod: Json) -> tuple[str, int] | None:
    """Return uid and wanted replicas of what controls a pod: of a ReplicaSet the Deployment it belongs to, if any."""
    owner, namespace = controller_of(pod), pod["metadata"]["namespace"]
    if owner is None or owner["kind"] not in _SCALED:
        return None
    found = store.find(owner["kind"], owner["name"], namespace)
    if found is None:
        return None
    above = controller_of(found)
    if above is not None and above["kind"] == "Deployment":
        found = store.find("Deployment", above["name"], namespace) or found
    return found["metadata"]["uid"], int((found.get("spec") or {}).get("replicas", 1))
