"""What autoscalers tell of the nodes that they would delete: node groups with minimum sizes, and NodePools."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tightship_testkit.disasters.world import Json

NODE_POOL = "karpenter.sh/nodepool"
"""The label of a node that names its NodePool."""
DISRUPTED = "karpenter.sh/disrupted"
"""The taint of a node that Karpenter takes away."""
MINIMUM = "tightship.dev/node-group-min-size"
"""The annotation of a node that says how few nodes its group may have."""
STATUS, SYSTEM = "cluster-autoscaler-status", "kube-system"
"""The ConfigMap with Cluster Autoscaler's status, and where it is."""

DISRUPTIONS: Mapping[str, Json] = {
    "WhenEmpty": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "4s"},
    "Never": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    "budget of 0": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "0"}]},
    "budget of 0% for empty nodes": {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "2s",
        "budgets": [{"nodes": "100%"}, {"nodes": "0%", "reasons": ["Empty"]}],
    },
    "WhenEmptyOrUnderutilized": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "10s"},
}
"""Settings of a NodePool's disruption, by a name for them."""

_SIZE = re.compile(r"^[- ]*name: +(\S+)$.*?minSize[:=] *(\d+)", re.MULTILINE | re.DOTALL | re.IGNORECASE)


def status_text(minimums: Mapping[str, int], old: bool) -> str:
    """Return Cluster Autoscaler's status of groups with these minimum sizes, in its *old* form or in YAML."""
    if old:
        groups = "".join(
            f"  Name:        {name}\n  Health:      Healthy (ready=2 (minSize={least}, maxSize=9))\n\n"
            for name, least in minimums.items()
        )
        return f"Cluster-autoscaler status:\nCluster-wide:\n  Health:      Healthy\n\nNodeGroups:\n{groups}"
    groups = "".join(
        f"- name: {name}\n  health:\n    status: Healthy\n    minSize: {least}\n    maxSize: 9\n"
        for name, least in minimums.items()
    )
    return f"autoscalerStatus: Running\nclusterWide:\n  health:\n    status: Healthy\nnodeGroups:\n{groups}"


def minimums_of(status: Json | None) -> dict[str, int]:
    """Return the minimum sizes in the ConfigMap *status*, by group."""
    text = ((status or {}).get("data") or {}).get("status", "")
    return {name: int(least) for name, least in _SIZE.findall(text)}


def keeps_empty(node_pool: Json) -> str:
    """Return why Karpenter leaves an empty node of *node_pool* alone, empty where it would delete it."""
    spec = node_pool.get("spec") or {}
    disruption = spec.get("disruption") or {}
    if spec.get("replicas") is not None:
        return "is static"
    if disruption.get("consolidateAfter") == "Never":
        return "is never consolidated"
    for each in disruption.get("budgets") or []:
        if str(each["nodes"]).removesuffix("%").strip("0") == "" and "Empty" in each.get("reasons", ["Empty"]):
            return f"has a budget of {each['nodes']}"
    return ""


__all__ = [
    "DISRUPTED", "DISRUPTIONS", "MINIMUM", "NODE_POOL", "STATUS", "SYSTEM", "keeps_empty", "minimums_of", "status_text",
]  # fmt: skip
