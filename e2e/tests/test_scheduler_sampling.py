"""Our model of the scheduler's choice on a cluster so large that kube-scheduler scores only some of the nodes."""

from __future__ import annotations

import numpy as np
import pytest

from tightship.cluster import Snapshot
from tightship.objects import Pod
from tightship.planning.plan import STRATEGIES, make_plan
from tightship.rules.nodes import SCALE_DOWN_DISABLED
from tightship.scheduler.scoring import nodes_to_find, scheduler_scores
from tightship.scheduler.space import Space
from tightship_e2e import ControlPlane
from tightship_e2e.draining import DEADLINE, begin, cordon, evict_all, metric_lines, pods_of, saved, settled
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import as_list, node, pod, replicas
from tightship_testkit.planning import judge, snapshot_of

NODES = 130
CHOICES = 40
BATCH = 30


def large() -> Json:
    """Return nodes that are full to different degrees, so that their scores differ; a drain can empty the last ten.

    One node that no drain empties has so much room that it stays the best until it has as many pods as it takes:
    without such a node many are the best together, and with some luck a sample never leaves out all of them.
    """
    names = [f"n{number:03}" for number in range(NODES)]
    nodes = [node(name) for name in names]
    nodes[0]["metadata"]["annotations"] = {SCALE_DOWN_DISABLED: "true"}
    nodes[0]["status"]["allocatable"] |= {"cpu": "64", "memory": "128Gi"}
    full, others = names[:-10], names[-10:]
    fill = [pod(f"fill-{name}", name, containers=[asking(f"{20 * number}m")]) for number, name in enumerate(full)]
    return as_list(*nodes, *fill, *replicas("web", others * 3, app="web"))


def asking(cpu: str = "150m") -> Json:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "300Mi"}}}


def alone(name: str) -> Json:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {"containers": [asking()]}}


@pytest.mark.takes(10)
def test_the_scheduler_chooses_among_a_sample_and_plans_hold(control_plane: ControlPlane) -> None:
    async def work(api: Client) -> None:
        assert nodes_to_find(NODES) == 100
        await begin(api, control_plane, large())
        await drained(api, control_plane)
        await choices(api, snapshot_of(await saved(api)))
        await equal_pods_are_no_batch(api, control_plane)

    control_plane.run(work)


async def choices(api: Client, snapshot: Snapshot) -> None:
    """Each node chosen is the best by our scores of any 100 nodes, and not always the best of all."""
    space, passed_over = Space(snapshot), 0
    for number in range(CHOICES):
        made = await api.create(alone(f"choice-{number}"))

        async def bound(name: str = made["metadata"]["name"]) -> str:
            return str((await api.get("Pod", name, "shop"))["spec"].get("nodeName") or "")

        target = await wait_for(bound, DEADLINE, "a choice")
        [chosen] = snapshot_of(as_list({**made, "kind": "Pod"})).unscheduled
        passed_over += best_of_a_sample(space, chosen, target)
    assert 0 < passed_over < CHOICES


def best_of_a_sample(space: Space, chosen: Pod, target: str) -> bool:
    """Place the pod on *target*, and return whether a better node was passed over."""
    ask = space.demand_of(chosen)
    nodes = space.feasible(ask).nonzero()[0]
    scores = scheduler_scores(space, ask, nodes)
    score = int(scores[np.searchsorted(nodes, space.index[target])])
    better = int(np.count_nonzero(scores > score))
    assert better <= len(nodes) - nodes_to_find(len(space.nodes)), (target, score, sorted(scores.tolist())[-5:])
    space.place(ask, space.index[target])
    return better > 0


async def equal_pods_are_no_batch(api: Client, plane: ControlPlane) -> None:
    """In the default profile opportunistic batching (KEP-5598) takes no pod for equal to another."""
    await api.each(api.create, [alone(f"equal-{number}") for number in range(BATCH)])

    async def bound() -> bool:
        return not await api.list("Pod", fieldSelector="spec.nodeName=")

    await wait_for(bound, DEADLINE, "all equal pods have nodes")
    lines = [each for each in metric_lines(plane) if each.startswith("scheduler_batch_")]
    used = [each for each in lines if "scheduler_batch_attempts_total" in each and 'result="hint_used"' in each]
    flushed = [each for each in lines if 'reason="pod_not_batchable"' in each]
    assert all(each.endswith(" 0") for each in used), used
    assert flushed, lines


async def drained(api: Client, plane: ControlPlane) -> None:
    """Drain the first node of a plan; the scheduler places its pods as it likes."""
    live = await saved(api)
    [first, *_] = make_plan(snapshot_of(live), judge, STRATEGIES["least-utilized"], "likely").removals
    assert first.moves
    await cordon(api, first.node)
    await evict_all(api, pods_of(live, {move.pod.key for move in first.moves}))
    assert not await settled(api, plane), first.node
