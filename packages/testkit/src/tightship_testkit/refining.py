"""What the tests of node-refiner share: its settings, small clusters, and pods that no budget lets go."""

from __future__ import annotations

from tightship_testkit.audit_readings import NodeWrite
from tightship_testkit.client import Json
from tightship_testkit.drains import Place, small, spare
from tightship_testkit.manifests import replicas
from tightship_testkit.marks import TAINT, drain, taints
from tightship_testkit.replica import QUICK_REFINER, Settings

ALONE = {"LEADER_ELECT": "false"}
"""No Lease of an election is written or waited for."""
KEEP = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
HOUR = 3600
"""Seconds."""


def quick(**changes: object) -> Settings:
    """Return settings whose pauses are as short as a test wants them, with *changes*."""
    return {**QUICK_REFINER, **changes}


def slow(items: list[Json], ends_in: str) -> list[Json]:
    """Have pods take their time to end."""
    for item in items:
        if item["kind"] == "Pod":
            item["metadata"]["annotations"] = {"e2e.tightship.dev/exit-after": ends_in}
            item["spec"]["terminationGracePeriodSeconds"] = 30
    return items


def one_to_spare(*more: Json) -> Json:
    """A cluster: n1 may go, n2 and n3 have room and are not to be touched."""
    cluster = small(*more)
    for item in cluster["items"]:
        if item["kind"] == "Node" and item["metadata"]["name"] in ("n2", "n3"):
            item["metadata"]["annotations"][KEEP] = "true"
    return cluster


def two_to_spare(ends_in: str = "") -> Json:
    """The same, and n4 may go too: before n1, since it has less to do."""
    two = replicas("two", ["n4", "n4"], app="two")
    return one_to_spare(spare("n4"), *(slow(two, ends_in) if ends_in else two))


async def limit(on: Place, at_least: int | str) -> None:
    """Write the budget of the pods of ``web``."""
    await on.api.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": at_least}}, "shop")


async def refuse(on: Place, where: str) -> None:
    """Bind a pod to a node past its cordon, which no budget lets go."""
    labels = {"app": "late"}
    # No owner would make it anew: it says itself that this is no obstacle.
    vouched = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    meta: Json = {"name": "late", "namespace": "shop"}
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": where}
    held = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    await on.api.create({"kind": "Pod", "metadata": {**meta, "labels": labels, "annotations": vouched}, "spec": spec})
    await on.seen(lambda: on.recorder.ready("shop/late"), "the late pod is Ready")
    await on.api.create({"kind": "PodDisruptionBudget", "metadata": meta, "spec": held})


async def relent(on: Place) -> None:
    """Take the budget away that :func:`refuse` has made."""
    await on.api.delete("PodDisruptionBudget", "late", "shop")


async def given_back(on: Place, name: str) -> str:
    """Wait until a drain has been given up, see that the node is as it was, and return why."""
    await on.phase(name, "Backoff")
    seen = on.recorder.node(name) or {}
    assert not seen["spec"].get("unschedulable")
    assert not [each for each in taints(seen) if each["key"] == TAINT]
    assert "example.com/soft" in {each["key"] for each in taints(seen)}
    return str(drain(seen)["reason"])


def entered(writes: list[NodeWrite], phase: str) -> NodeWrite:
    """Return the first write of a phase."""
    return next(each for each in writes if each.drain.get("phase") == phase)
