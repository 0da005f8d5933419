"""The machines of ``tightship fit`` on a real control plane: the real kube-scheduler gives every pod a node."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tightship.cluster import NodeView
from tightship.fit.answering import Fitting
from tightship.fit.machines import Market, pools_of
from tightship.fit.model import Asked
from tightship.objects.selectors import Taint
from tightship.prices import prices
from tightship_e2e import ControlPlane
from tightship_e2e.draining import DEADLINE, name, scheduled, scheduler_rests
from tightship_e2e.load import load
from tightship_e2e.reset import reset
from tightship_e2e.source import clean_pod
from tightship_simulator.generate import off_peak_cluster
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import as_list
from tightship_testkit.planning import snapshot_of

HOLD = "e2e.tightship.dev/hold"
AROUND = ("Namespace", "StorageClass", "PersistentVolume", "PersistentVolumeClaim")


def taint(given: Taint) -> Json:
    return {"key": given.key, "value": given.value or "", "effect": given.effect}


def machine(view: NodeView) -> list[Json]:
    """Return a node that offers what that of *view* does, less what its DaemonSets' pods request, and its CSINode."""
    node, room = view.node, dict(view.node.allocatable)
    for pod in view.pods:
        for resource, asked in {**pod.requests, "pods": 1}.items():
            room[resource] = room.get(resource, 0) - asked
    amounts = {each: f"{amount}m" if each == "cpu" else str(amount) for each, amount in room.items()}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"taints": [taint(each) for each in node.taints]} if node.taints else {}
    driver = {"name": "pd.csi.storage.gke.io", "nodeID": node.name, "allocatable": {"count": 15}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": dict(node.labels)},
            "spec": spec,
            "status": status,
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": node.name},
            "spec": {"drivers": [driver]},
        },
    ]


def unbound(item: Json) -> Json:
    """Return the pod as it was before the scheduler saw it, without its owner."""
    pod = clean_pod(item)
    pod["spec"].pop("nodeName", None)
    return {**pod, "kind": "Pod"}


def key_of(item: Json) -> str:
    return f"{item['metadata'].get('namespace')}/{name(item)}"


async def all_bound(api: Client) -> bool:
    """Whether the controller of volumes has bound each claim that names one."""
    claims = await api.list("PersistentVolumeClaim")
    return all(each["status"].get("phase") == "Bound" for each in claims if each["spec"].get("volumeName"))


async def begin(api: Client, cluster: Json, views: Sequence[NodeView]) -> dict[str, Json]:
    """Make the nodes of *views* and what pods of *cluster* need beside them. Returns its pods by key."""
    await reset(api)
    nodes = [item for view in views for item in machine(view)]
    await load(api, as_list(*(each for each in cluster["items"] if each["kind"] in AROUND), *nodes))
    await wait_for(lambda: all_bound(api), DEADLINE, "claims are bound to their volumes")
    return {key_of(each): each for each in cluster["items"] if each["kind"] == "Pod"}


@pytest.mark.takes(60)
@pytest.mark.parametrize("mode", ["same-types", "same-family"])
def test_the_scheduler_gives_every_pod_the_node_that_the_answer_gives(control_plane: ControlPlane, mode: str) -> None:
    """Each pod is nominated to its node: kube-scheduler takes that one if and only if all its filters pass."""
    cluster = off_peak_cluster(1, 40)
    asked = Asked(snapshot=snapshot_of(cluster), prices=prices(None, None), modes=(mode,))
    pools, _ = pools_of(asked)
    filled, _, _ = Fitting(asked, pools, Market(asked), asked.snapshot).filled(mode)
    packed = filled.nodes()

    async def work(api: Client) -> None:
        items = await begin(api, cluster, [view for view, _ in packed])
        targets = {pod.key: view.name for view, pods in packed for pod in pods}
        for key, target in targets.items():
            held = unbound(items[key])
            held["spec"] = {**held["spec"], "schedulingGates": [{"name": HOLD}]}
            space, _, own = key.partition("/")
            await api.create(held)
            await api.patch("Pod", own, {"status": {"nominatedNodeName": target}}, space, subresource="status")
        for key in targets:
            space, _, own = key.partition("/")
            let_go = [{"op": "remove", "path": "/spec/schedulingGates"}]
            await api.patch("Pod", own, let_go, space, patch_type="json")
        await scheduler_rests(api, control_plane)
        found = {key_of(each): each["spec"].get("nodeName") or scheduled(each) for each in await api.list("Pod")}
        assert found == targets

    control_plane.run(work)


@pytest.mark.takes(60)
@pytest.mark.parametrize("mode", ["same-types", "same-family"])
def test_hardly_a_pod_waits_where_the_scheduler_chooses(control_plane: ControlPlane, mode: str) -> None:
    """On the machines that the answer has for that, largest pods first, though the scheduler spreads them."""
    cluster = off_peak_cluster(1, 40)
    asked = Asked(snapshot=snapshot_of(cluster), prices=prices(None, None), modes=(mode,))
    pools, _ = pools_of(asked)
    fitting = Fitting(asked, pools, Market(asked), asked.snapshot)
    filled, solved, offer = fitting.filled(mode)
    order = [pod.key for pod in filled.largest_first()]
    filled.add(fitting.more(filled, solved, offer))

    async def work(api: Client) -> None:
        items = await begin(api, cluster, [view for view, _ in filled.nodes()])
        for key in order:
            await api.create(unbound(items[key]))
        await scheduler_rests(api, control_plane)
        waiting = [key_of(each) for each in await api.list("Pod", fieldSelector="spec.nodeName=")]
        # Among equal nodes the scheduler draws, so that a late pod with a volume may find its zone full.
        assert len(waiting) * 100 <= len(order), waiting

    control_plane.run(work)
