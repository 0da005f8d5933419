"""A profile of kube-scheduler that packs: our model of its choice, on a real one."""

from __future__ import annotations

import random

import pytest

from tightship.scheduler.scoring import scheduler_scores
from tightship.scheduler.space import Space
from tightship_e2e import ControlPlane
from tightship_e2e.draining import DEADLINE, begin, saved
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import as_list, node, pod
from tightship_testkit.planning import snapshot_of

GKE = "gke.io/optimize-utilization-scheduler"
NODES = 12
CHOICES = 30


def asking(cpu: int, memory: int) -> Json:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}}


@pytest.mark.takes(10)
def test_pods_of_a_scheduler_that_packs_go_where_the_model_has_them(control_plane: ControlPlane) -> None:
    some = random.Random(7)
    names = [f"n{number:02}" for number in range(NODES)]
    fill = [
        pod(f"f-{name}", name, containers=[asking(some.randrange(100, 2500), some.randrange(100, 6000))])
        for name in names
    ]

    async def work(api: Client) -> None:
        await begin(api, control_plane, as_list(*map(node, names), *fill))
        space = Space(snapshot_of(await saved(api)))
        for number in range(CHOICES):
            containers = [asking(some.randrange(50, 400), some.randrange(50, 700))]
            spec = {"schedulerName": GKE, "containers": containers}
            made = await api.create(
                {"kind": "Pod", "metadata": {"name": f"p{number}", "namespace": "shop"}, "spec": spec}
            )

            async def bound(name: str = made["metadata"]["name"]) -> str:
                return str((await api.get("Pod", name, "shop"))["spec"].get("nodeName") or "")

            target = space.index[await wait_for(bound, DEADLINE, "a choice")]
            [chosen] = snapshot_of(as_list({**made, "kind": "Pod"})).unscheduled
            ask = space.demand_of(chosen)
            nodes = space.feasible(ask).nonzero()[0]
            scores = dict(zip(nodes.tolist(), scheduler_scores(space, ask, nodes).tolist(), strict=True))
            assert scores[target] == max(scores.values()), (number, target, scores)
            space.place(ask, target)

    control_plane.run(work)
