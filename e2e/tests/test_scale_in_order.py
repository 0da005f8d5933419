"""Which pods a real ReplicaSet controller deletes first: deletion costs rest on this, and the simulator agrees."""

from __future__ import annotations

import random

import pytest

from tightship.deletion_costs.costs import LOWEST, notes_of
from tightship.rules.disruption_cost import DELETION_COST
from tightship_e2e import ControlPlane
from tightship_simulator.life.changes import Delete
from tightship_simulator.life.workloads import Workloads
from tightship_testkit.client import RESOURCES, Client, Json, wait_for

pytestmark = pytest.mark.takes(5)

NAME = "cheap"
COSTS = (str(LOWEST), str(LOWEST + 1), "", "7")
"""What each pod costs; none counts as 0."""


def test_a_scale_in_takes_the_pods_of_the_lowest_cost_first_and_so_does_the_simulator(
    control_plane: ControlPlane,
) -> None:
    async def work(api: Client) -> None:
        labels = {"app": NAME}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "none"}]}}
        # Nothing schedules the pods: all of them are Pending, and alike but for their costs.
        template["spec"]["schedulerName"] = "nobody"
        spec = {"replicas": len(COSTS), "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": NAME, "namespace": "default"}
        await api.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec})
        try:
            await wait_for(lambda: has(api, len(COSTS)), 60, "the pods are made")
            for pod, cost in zip(await pods(api), COSTS, strict=True):
                notes = {DELETION_COST: cost} if cost else {}
                notes = notes_of("node-compactor", int(cost)) if cost.startswith("-") else notes
                path = RESOURCES["Pod"].path("default", pod["metadata"]["name"])
                body = {"metadata": {"annotations": notes}}
                await api.call("PATCH", path, body=body, content_type="application/merge-patch+json")
            for left in range(len(COSTS) - 1, 0, -1):
                before = await pods(api)
                [change] = [each for each in simulated(before, left) if isinstance(each, Delete)]
                path = RESOURCES["ReplicaSet"].path("default", NAME)
                body = {"spec": {"replicas": left}}
                await api.call("PATCH", path, body=body, content_type="application/merge-patch+json")
                await wait_for(lambda left=left: has(api, left), 60, "a pod goes")
                gone = {each["metadata"]["name"] for each in before} - {
                    each["metadata"]["name"] for each in await pods(api)
                }
                assert gone == {change.item["metadata"]["name"]}
            [last] = await pods(api)
            assert last["metadata"]["annotations"][DELETION_COST] == "7"
        finally:
            await api.delete("ReplicaSet", NAME, "default")

    control_plane.run(work)


async def pods(api: Client) -> list[Json]:
    found = await api.list("Pod", "default", labelSelector=f"app={NAME}")
    return [each for each in found if "deletionTimestamp" not in each["metadata"]]


async def has(api: Client, count: int) -> bool:
    return len(await pods(api)) == count


def simulated(found: list[Json], replicas: int) -> list[object]:
    owner = {"metadata": {"name": NAME, "namespace": "default", "uid": "u"}, "spec": {"replicas": replicas}}
    return list(Workloads(random.Random(0)).replicate(owner, found))
