"""A pool that a person replaces: five full nodes of the old pool, five empty ones of the new."""

from __future__ import annotations

from tightship_testkit.client import Client, Json
from tightship_testkit.drains import all_ready, spare
from tightship_testkit.manifests import as_list, budget, owner, pod

BLUE = tuple(f"blue{number}" for number in range(5))
GREEN = tuple(f"green{number}" for number in range(5))
PODS = 5
"""Pods of each old node: no node has room for one more."""


def blue_green() -> Json:
    """Return the cluster: only the new nodes, which are of pool "spare", may go."""
    needs = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "700m"}}}]
    pods = [
        pod(f"web-{name}-{number}", name, owner("ReplicaSet", "web"), {"app": "web"}, containers=needs)
        for name in BLUE
        for number in range(PODS)
    ]
    nodes = [*(spare(name, pool="blue") for name in BLUE), *(spare(name) for name in GREEN)]
    return as_list(*nodes, *pods, budget("web", "80%", app="web"))


async def cordoned(api: Client) -> None:
    """Cordon the old nodes, as the person does who is about to drain them."""
    for name in BLUE:
        await api.patch("Node", name, {"spec": {"unschedulable": True}})


async def emptied(api: Client, node: str) -> None:
    """Evict all pods of *node* as the budget allows, and wait until every replacement runs."""
    while left := await api.list("Pod", "shop", fieldSelector=f"spec.nodeName={node}"):
        for each in left:
            if "deletionTimestamp" not in each["metadata"]:
                await api.evict("shop", each["metadata"]["name"])
        await all_ready(api)
