"""Whether another replica comes after this one: who stops for good gives back what somebody else would go on with."""

from __future__ import annotations

from tightship.cluster import Snapshot
from tightship.objects import Pod

_KIND = "ReplicaSet"


def successor_expected(snapshot: Snapshot, namespace: str, name: str) -> bool:
    """Return whether a pod is going to go on with what the pod *name* has begun, as far as its Deployment says.

    True where that can't be told: outside of a cluster, or in a pod of another kind.
    """
    pod = _pod(snapshot, f"{namespace}/{name}")
    if pod is None or pod.owner is None or pod.owner.kind != _KIND or _KIND in snapshot.missing:
        return True
    sets = snapshot.workloads.get(_KIND, {})
    own = sets.get(f"{namespace}/{pod.owner.name}")
    if own is None or own.uid != pod.owner.uid:
        return False
    if own.owner is None:
        return own.replicas != 0
    # In a rollout the next one is of another ReplicaSet of the same Deployment.
    return any(each.replicas != 0 for each in sets.values() if each.owner is not None and each.owner == own.owner)


def _pod(snapshot: Snapshot, key: str) -> Pod | None:
    pods = (pod for view in snapshot.nodes.values() for pod in view.pods)
    return next((pod for pod in pods if pod.key == key), None)


__all__ = ["successor_expected"]
