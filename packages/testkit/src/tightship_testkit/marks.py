"""What our controllers write on nodes, and what is read of nodes and pods: plain JSON, in words of its own.

No object goes through our code, and names and words are written out: tests go by these.
"""

from __future__ import annotations

import json

from tightship_testkit.client import Json

OURS = "tightship.dev/"
ANNOTATION = "tightship.dev/drain"
TAINT = "tightship.dev/draining"
STEERING = "tightship.dev/candidate"
OWNING = frozenset({"Claimed", "Evicting", "Drained", "Restoring", "Yielded"})
MANAGER = "tightship"
"""The manager of the fields that our controllers write: their user agent up to the slash."""
MAY_WRITE = frozenset(
    {"metadata/annotations/" + ANNOTATION, "metadata/labels/tightship.dev/leaving", "spec/taints", "spec/unschedulable"}
)
STARTUP = "startup-taint.cluster-autoscaler.kubernetes.io/"
"""What keys of taints begin with that a node has until it has started."""
LIFECYCLE = (
    "node.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
    STARTUP,
)
"""Taints that come and go by the hand of the controller-manager, the autoscaler and Karpenter."""


def drain(node: Json) -> Json:
    """Return a node's drain annotation, empty where there is none."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    try:
        found: Json = json.loads(text) if text else {}
    except ValueError:
        return {"phase": "unreadable"}
    return found


def taints(node: Json) -> list[Json]:
    """Return a node's taints."""
    return list(node["spec"].get("taints") or [])


def healthy(pod: Json) -> bool:
    """Return whether a budget counts a pod."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
