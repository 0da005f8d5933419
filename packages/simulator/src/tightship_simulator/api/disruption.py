"""The disruption controller of the embedded cluster: it keeps the status of every PodDisruptionBudget."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from tightship_simulator.api.budgets import controller_of, matches, status_of
from tightship_simulator.api.errors import Expired
from tightship_simulator.api.store import Store
from tightship_simulator.api.versioned import Change, Key, key_of

Json = dict[str, Any]

_SCALED = ("ReplicaSet", "ReplicationController", "StatefulSet")
_COUNTED = ("Pod", "PodDisruptionBudget", "Deployment", *_SCALED)

_RECHECK = 5.0
"""Seconds after which evictions that were not followed by a deletion are looked at again."""


async def keep_budgets(store: Store) -> None:
    """Compute what PodDisruptionBudgets allow, whenever anything that they count has changed, for ever."""
    known = store.version
    compute_budgets(store)
    while True:
        try:
            # Time changes nothing but evictions that nobody carries out.
            async with asyncio.timeout(_RECHECK if _charged(store) else None):
                await store.wait(known, _COUNTED)
        except TimeoutError:
            keys: Collection[Key] | None = _charged(store)
        else:
            keys = _touched(store, known)
        known = store.version
        compute_budgets(store, keys)


def _charged(store: Store) -> list[Key]:
    """Return the budgets that wait for pods to be deleted that were evicted."""
    budgets = store.list("PodDisruptionBudget")
    return [key_of(each) for each in budgets if (each.get("status") or {}).get("disruptedPods")]


def _touched(store: Store, since: int) -> set[Key] | None:
    """Return the budgets that may have to be computed anew, ``None`` where what has happened is forgotten."""
    found: set[Key] = set()
    try:
        for kind in _COUNTED:
            for change in store.changes(kind, since):
                found.update(_concerned(store, kind, change))
    except Expired:
        return None
    return found


def _concerned(store: Store, kind: str, change: Change) -> Iterable[Key]:
    if kind == "PodDisruptionBudget":
        return [key_of(change.object)]
    before, after = change.previous, change.object
    if kind != "Pod" and change.type == "MODIFIED" and before is not None and _scale(before) == _scale(after):
        return []  # its status
    budgets = store.list("PodDisruptionBudget", after["metadata"]["namespace"])
    if kind == "Pod":
        budgets = [each for each in budgets if matches(each, after) or (before is not None and matches(each, before))]
    return map(key_of, budgets)


def _scale(owner: Json) -> tuple[object, object]:
    return owner["metadata"].get("ownerReferences"), (owner.get("spec") or {}).get("replicas")


def compute_budgets(store: Store, keys: Collection[Key] | None = None) -> None:
    """Compute the status of every budget, or of those with *keys*, from the pods there are now."""
    for budget in store.list("PodDisruptionBudget"):
        if keys is not None and key_of(budget) not in keys:
            continue
        pods = store.list("Pod", budget["metadata"]["namespace"])
        status = status_of(budget, pods, _Scales(store), store.now())
        if status != budget.get("status"):
            store.update("PodDisruptionBudget", {**budget, "status": status}, part="status")


class _Scales:
    """Gives the scales of pods' controllers; those of one are looked up once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str, str], tuple[str, int] | None] = {}

    def __call__(self, pod: Json) -> tuple[str, int] | None:
        owner, namespace = controller_of(pod), pod["metadata"]["namespace"]
        if owner is None or owner["kind"] not in _SCALED:
            return None
        key = owner["kind"], namespace, owner["name"]
        if key not in self._known:
            self._known[key] = self._look_up(*key)
        return self._known[key]

    def _look_up(self, kind: str, namespace: str, name: str) -> tuple[str, int] | None:
        """Return uid and wanted replicas: of a ReplicaSet those of the Deployment it belongs to, if any."""
        found = self._store.find(kind, name, namespace)
        if found is None:
            return None
        above = controller_of(found)
        if above is not None and above["kind"] == "Deployment":
            found = self._store.find("Deployment", above["name"], namespace) or found
        return found["metadata"]["uid"], int((found.get("spec") or {}).get("replicas", 1))
