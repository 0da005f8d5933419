"""What keeps workloads at their number of pods: Deployments, ReplicaSets, StatefulSets, DaemonSets. Pure.

A Deployment rolls over with 25 % surge and no pod unavailable, which is stricter than the default. There is no history
of revisions: a ReplicaSet of an older template is deleted when it is empty. What has lost its owner is collected here.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter

import msgspec

from tightship_simulator import labels
from tightship_simulator.api.budgets import controller_of
from tightship_simulator.life.changes import (
    Change,
    Create,
    Delete,
    Json,
    Patch,
    finished,
    key_of,
    leaving,
    ready,
    reference,
    uid_of,
)
from tightship_simulator.life.index import Index

SURGE = 0.25
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_HASH = "pod-template-hash"
_UNDER_WAY = "ReplicaSetUpdated"
_POLICY = "podReplacementPolicy"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_CONTROLLERS = ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet", "ReplicationController", "Job", "Node")


class Workloads:
    """Judges all workloads; *rng* makes the endings of names."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def step(self, index: Index) -> list[Change]:
        """Return what brings every workload nearer to its number of pods; only those are judged that are stale."""
        changes: list[Change] = [Delete(each) for each in orphans(index)]
        stale, renewed = index.stale, index.renewed
        if not stale and not renewed:
            return changes
        for deployment in index.every("Deployment"):
            if uid_of(deployment) in stale:
                changes += deploy(deployment, index.owned(deployment, "ReplicaSet"))
        for each in index.every("ReplicaSet"):
            if uid_of(each) in stale:
                changes += self.replicate(each, index.owned(each, "Pod"))
        for each in index.every("StatefulSet"):
            if uid_of(each) in stale:
                changes += self.ordered(each, index.owned(each, "Pod"))
        for each in index.every("DaemonSet"):
            if renewed or uid_of(each) in stale:
                changes += self.daemons(each, index.owned(each, "Pod"), index.every("Node"))
        stale.clear()
        index.renewed = False
        return changes

    def replicate(self, owner: Json, pods: list[Json]) -> list[Change]:
        """Return pods to make or to delete, and the status of the ReplicaSet."""
        alive = [pod for pod in pods if not leaving(pod) and not finished(pod)]
        wanted = 0 if leaving(owner) else int(owner["spec"].get("replicas", 1))
        # KEP-5882: a pod that is being deleted keeps its place until it has gone.
        late = owner["spec"].get(_POLICY) == "TerminationComplete"
        there = len(alive) + late * sum(map(leaving, pods))
        changes: list[Change] = [Create(self._pod(owner)) for _ in range(wanted - there)]
        beside = Counter(pod["spec"].get("nodeName", "") for pod in alive)
        doomed = sorted(alive, key=lambda pod: _first_to_go(pod, beside[pod["spec"].get("nodeName", "")]))
        changes += [Delete(pod) for pod in doomed[: max(0, len(alive) - wanted)]]
        return changes + _status(owner, len(alive), sum(ready(pod) for pod in alive))

    def ordered(self, owner: Json, pods: list[Json]) -> list[Change]:
        """Return pods of a StatefulSet to make or to delete, and its status: a name comes back only when it is free.

        Unless ``podManagementPolicy`` is ``Parallel`` they come one after the other, each when all before it are Ready,
        and go from the last on, one at a time.
        """
        wanted = 0 if leaving(owner) else int(owner["spec"].get("replicas", 1))
        there = {pod["metadata"]["name"]: pod for pod in pods}
        patient = owner["spec"].get("podManagementPolicy", "OrderedReady") != "Parallel"
        changes: list[Change] = []
        for number in range(wanted):
            name = f"{owner['metadata']['name']}-{number}"
            pod = there.pop(name, None)
            if pod is None:
                changes.append(Create(self._numbered(owner, name, number)))
            elif finished(pod) and not leaving(pod):
                changes.append(Delete(pod))
            elif not leaving(pod) and ready(pod):
                continue
            if patient:
                break
        else:
            # What is above the number goes when all the others are well.
            for name in sorted(there, key=lambda each: (len(each), each), reverse=True):
                if not leaving(there[name]):
                    changes.append(Delete(there[name]))
                if patient:
                    break
        return changes + _status(owner, len(pods), sum(ready(pod) and not leaving(pod) for pod in pods))

    def _numbered(self, owner: Json, name: str, number: int) -> Json:
        pod = self._pod(owner)
        marks = {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(number)}
        pod["metadata"] |= {"name": name, "labels": {**pod["metadata"]["labels"], **marks}}
        return pod

    def daemons(self, owner: Json, pods: list[Json], nodes: list[Json]) -> list[Change]:
        """Return a pod for each node that may have one and lacks it; those of nodes gone are the kubelet's affair."""
        template = owner["spec"]["template"]
        running = {pod["spec"].get("nodeName") for pod in pods if not finished(pod)}
        fitting = [node for node in nodes if _may_run(template, node)]
        changes: list[Change] = []
        for node in fitting:
            if node["metadata"]["name"] not in running:
                pod = self._pod(owner)
                pod["spec"]["nodeName"] = node["metadata"]["name"]
                changes.append(Create(pod))
        count, healthy = len(pods), sum(ready(pod) for pod in pods)
        status = {
            "desiredNumberScheduled": len(fitting),
            "currentNumberScheduled": count,
            "numberReady": healthy,
            "numberAvailable": healthy,
            "numberMisscheduled": 0,
            "observedGeneration": owner["metadata"].get("generation", 1),
        }
        return changes + _written(owner, status)

    def _pod(self, owner: Json) -> Json:
        template = owner["spec"]["template"]
        namespace, name = key_of(owner)
        meta = template.get("metadata") or {}
        ending = "".join(self._rng.choices(_ALPHABET, k=5))
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{ending}",
                "namespace": namespace,
                "labels": dict(meta.get("labels") or {}),
                "annotations": dict(meta.get("annotations") or {}),
                "finalizers": list(meta.get("finalizers") or ()),
                "ownerReferences": [reference(owner)],
            },
            "spec": dict(template["spec"]),
            "status": {"phase": "Pending"},
        }


def orphans(index: Index) -> list[Json]:
    """Return the objects whose controller is gone, as the garbage collector finds them."""
    found = []
    for at in sorted(index.strays):
        each = index.strays[at]
        owner = controller_of(each)
        known = owner is not None and (owner["kind"] not in _CONTROLLERS or index.there(owner["kind"], owner["uid"]))
        if owner is None or known or leaving(each):
            del index.strays[at]
        else:
            found.append(each)
    return found


def deploy(deployment: Json, sets: list[Json]) -> list[Change]:
    """Return what brings a Deployment's ReplicaSets nearer to it, and its status; one that is paused is left."""
    if leaving(deployment) or deployment["spec"].get("paused"):
        return []
    wanted = int(deployment["spec"].get("replicas", 1))
    template = deployment["spec"]["template"]
    digest = hash_of(template)
    current = [each for each in sets if (each["metadata"].get("labels") or {}).get(_HASH) == digest]
    older = [each for each in sets if each not in current]
    taken = sum(int(each["spec"].get("replicas", 1)) for each in older)
    most = wanted if not older else max(0, min(wanted, wanted + math.ceil(SURGE * wanted) - taken))
    changes: list[Change] = []
    if not current:
        changes.append(Create(_replica_set(deployment, digest, most)))
    elif int(current[0]["spec"].get("replicas", 1)) != most:
        changes.append(Patch(current[0], {"spec": {"replicas": most}}))
    healthy = sum(_ready_of(each) for each in current)
    for each in older:
        have = int(each["spec"].get("replicas", 1))
        keep = max(0, min(have, wanted - healthy))
        if have == 0 and not (each.get("status") or {}).get("replicas"):
            changes.append(Delete(each))
        elif keep != have:
            changes.append(Patch(each, {"spec": {"replicas": keep}}))
    total = sum(int((each.get("status") or {}).get("replicas", 0)) for each in sets)
    updated = sum(int((each.get("status") or {}).get("replicas", 0)) for each in current)
    healthy = sum(_ready_of(each) for each in sets)
    # DeploymentComplete and its condition (pkg/controller/deployment/progress.go); nothing here has a deadline.
    done = updated == total == healthy == wanted
    progress = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable" if done else _UNDER_WAY}
    return changes + _status(deployment, total, healthy, updatedReplicas=updated, conditions=[progress])


def hash_of(template: Json) -> str:
    """Return the label that tells a template from others."""
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:10]


def _replica_set(deployment: Json, digest: str, replicas: int) -> Json:
    namespace, name = key_of(deployment)
    spec = deployment["spec"]
    template = spec["template"]
    marked = {**((template.get("metadata") or {}).get("labels") or {}), _HASH: digest}
    selector = spec.get("selector") or {}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{name}-{digest}",
            "namespace": namespace,
            "labels": marked,
            "annotations": dict(deployment["metadata"].get("annotations") or {}),
            "ownerReferences": [reference(deployment)],
        },
        "spec": {
            **({_POLICY: spec[_POLICY]} if _POLICY in spec else {}),
            "replicas": replicas,
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), _HASH: digest}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": marked}},
        },
        "status": {"replicas": 0},
    }


def _ready_of(item: Json) -> int:
    return int((item.get("status") or {}).get("readyReplicas", 0))


def _status(owner: Json, count: int, healthy: int, **more: object) -> list[Change]:
    seen = owner["metadata"].get("generation", 1)
    status = {
        "replicas": count, "readyReplicas": healthy, "availableReplicas": healthy, "observedGeneration": seen, **more
    }  # fmt: skip
    return _written(owner, status)


def _written(owner: Json, status: Json) -> list[Change]:
    known = owner.get("status") or {}
    same = all(known.get(key) == value for key, value in status.items())
    return [] if same else [Patch(owner, {"status": status}, status=True)]


def _first_to_go(pod: Json, beside: int) -> tuple[bool, int, bool, int, int, int, str]:
    """Order as ``ActivePodsWithRanks`` (kubernetes, pkg/controller/controller_utils.go): unbound, phase, not Ready, low
    deletion cost, crowded, young.

    The name is in the place of times on a logarithmic scale, and of restarts.
    """
    created = pod["metadata"].get("creationTimestamp") or ""
    age = -int("".join(filter(str.isdigit, created)) or 0)
    phase = _PHASES.get((pod.get("status") or {}).get("phase", ""), 0)
    cost = deletion_cost(pod)
    return bool(pod["spec"].get("nodeName")), phase, ready(pod), cost, -beside, age, pod["metadata"]["name"]


def deletion_cost(pod: Json) -> int:
    """Return the pod's deletion cost; what is no whole number of 32 bits counts as 0, as for the real controller."""
    text = str((pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0"))
    cost = int(text) if re.fullmatch(r"0|-?[1-9][0-9]{0,9}", text, re.ASCII) else 0
    return cost if -(2**31) <= cost < 2**31 else 0


def _may_run(template: Json, node: Json) -> bool:
    pod = {"spec": template["spec"]}
    return not leaving(node) and labels.node_selected(pod, node)


__all__ = ["Workloads", "deploy", "hash_of", "orphans"]
