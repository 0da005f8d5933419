"""Small clusters in a few words: API objects as dicts, and the snapshot they decode to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tightship.cluster import ClusterState, Snapshot
from tightship.objects import KINDS, ApiObject, decode

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def node(name: str, cpu: str = "4", memory: str = "16Gi", pods: str = "110", **more: Any) -> dict[str, Any]:
    """A Ready node; *more* may hold labels, annotations, taints, unschedulable, zone, ready and extended resources."""
    labels = {HOST: name, **more.pop("labels", {})}
    if "zone" in more:
        labels[ZONE] = more.pop("zone")
    ready = more.pop("ready", True)
    spec = {key: more.pop(key) for key in ("taints", "unschedulable") if key in more}
    meta = {"name": name, "labels": labels, "creationTimestamp": more.pop("created", "2026-01-01T00:00:00Z")}
    if "annotations" in more:
        meta["annotations"] = more.pop("annotations")
    extended = {key.replace("__", "/"): value for key, value in more.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "spec": spec,
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **extended},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def pod(name: str, on: str = "", cpu: str = "1", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    """A Running pod of a ReplicaSet; *more* may hold namespace, labels, owner, spec and status fields."""
    owner = more.pop("owner", "ReplicaSet/web")
    meta: dict[str, Any] = {
        "name": name,
        "namespace": more.pop("namespace", "default"),
        "uid": f"uid-{name}",
        "labels": more.pop("labels", {"app": "web"}),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    for key in ("annotations", "deletionTimestamp"):
        if key in more:
            meta[key] = more.pop(key)
    if owner:
        kind, _, owner_name = owner.partition("/")
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": owner_name, "uid": f"uid-{owner}", "controller": True}
        ]
    phase = more.pop("phase", "Running" if on else "Pending")
    requests = {key: value for key, value in {"cpu": cpu, "memory": memory}.items() if value}
    requests |= more.pop("requests", {})
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(more.pop("ready", True))}]}
    container = {"name": "main", "resources": {"requests": requests}, **more.pop("container", {})}
    spec = {"containers": [container], **({"nodeName": on} if on else {}), **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def anti_affinity(key: str = HOST, **labels: str) -> dict[str, Any]:
    """Required anti-affinity to pods with *labels* (default: app=web) in the same domain of *key*."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": labels or {"app": "web"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def affinity(key: str = HOST, **labels: str) -> dict[str, Any]:
    """Required affinity to pods with *labels* in the same domain of *key*."""
    return {"podAffinity": anti_affinity(key, **labels)["podAntiAffinity"]}


def spread(key: str = ZONE, skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    """One hard topology spread constraint over pods with app=web."""
    constraint = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return [constraint | more]


def raw(thing: dict[str, Any]) -> bytes:
    """The JSON of one object."""
    return json.dumps(thing).encode()


def one(thing: dict[str, Any]) -> ApiObject:
    """One object, decoded."""
    return decode(thing["kind"], raw(thing))


def snapshot(things: Iterable[dict[str, Any]], *, have: Iterable[str] = ()) -> Snapshot:
    """The snapshot of *things*; kinds that occur nowhere, and are not in *have*, count as not read."""
    things = list(things)
    kinds = {thing["kind"] for thing in things} | {"Node", "Pod", "PodDisruptionBudget", *have}
    state = ClusterState()
    for thing in things:
        state.upsert(thing["kind"], one(thing))
    for kind in KINDS - kinds:
        state.mark_missing(kind, "not in the file")
    return state.snapshot()
