"""Loading a saved cluster: it rests as the file says, under real owners."""

from __future__ import annotations

from tightship_e2e import ControlPlane, load, settle
from tightship_e2e.owners import OWNER_LABEL
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.manifests import as_list, budget, node, owner, pod, replicas

NODES = [f"n{i}" for i in range(8)]
DEADLINE = 120.0


def full_cluster() -> Json:
    """Every kind of owner, a naked pod, a mirror pod, one of an unknown kind, one unbound."""
    web = replicas("web", NODES, app="web")
    twin = replicas("twin", NODES[:3], app="web")  # the same labels as web
    old = [pod(f"old-{i}", "n0", owner("ReplicationController", "old")) for i in range(2)]
    db = [pod(f"db-{i}", f"n{i}", owner("StatefulSet", "db"), {"app": "db"}) for i in (1, 2, 3)]
    agent = [pod(f"agent-{n}", n, owner("DaemonSet", "agent"), {"app": "agent"}) for n in NODES[:5]]
    job = [pod(f"job-{i}", "n7", owner("Job", "job"), {"job-name": "job"}, restartPolicy="Never") for i in range(2)]
    mirror = pod("static-n0", "n0", {**owner("Node", "n0"), "apiVersion": "v1"})
    custom = pod("custom", "n1", {**owner("Rollout", "r"), "apiVersion": "example.com/v1"})
    urgent = pod("urgent", "n2", priority=1000, priorityClassName="gone")
    done = pod("done", "n2", owner("Job", "job"))
    done["status"]["phase"] = "Succeeded"
    huge = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "64"}}}]}
    pending = pod("web-8", None, owner("ReplicaSet", "web"), {"app": "web"}, **huge)
    single = [pod("naked", "n3", labels={"app": "naked"}), mirror, custom, urgent, done, pending]
    tainted = node("n8", taints=[{"key": "k", "effect": "NoSchedule"}], unschedulable=True)
    return as_list(
        *map(node, NODES), tainted, *web, *twin, *old, *db, *agent, *job, *single,
        budget("web", 10, app="web"), {"kind": "Rollout", "metadata": {"name": "r"}},
    )  # fmt: skip


def uids(pods: list[Json]) -> dict[str, str]:
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods}


def test_a_loaded_cluster_rests_as_the_file_says(empty_plane: ControlPlane) -> None:
    cluster = full_cluster()

    async def work(api: Client) -> None:
        report = await load(api, cluster)
        assert report.problems == []
        assert (report.nodes, report.bound, report.unbound, report.finished) == (9, 27, 1, 1)
        assert report.owners == {
            "ReplicaSet": 2, "ReplicationController": 1, "StatefulSet": 1, "DaemonSet": 1, "Job": 1,
        }  # fmt: skip
        assert report.ignored == {"Rollout": 1}
        pods = await api.list("Pod", "shop")
        given = {p["metadata"]["name"]: p for p in cluster["items"] if p["kind"] == "Pod"}
        for live in pods:
            name = live["metadata"]["name"]
            assert live["spec"].get("nodeName") == given[name]["spec"].get("nodeName")
            for reference in live["metadata"].get("ownerReferences", []):
                key = (reference["kind"], "shop", reference["name"])
                if key in report.uids:
                    assert reference["uid"] == report.uids[key]
                    assert reference["controller"]
        by_name = {live["metadata"]["name"]: live for live in pods}
        assert "ownerReferences" not in by_name["naked"]["metadata"]
        assert by_name["custom"]["metadata"]["ownerReferences"][0]["kind"] == "Rollout"
        assert by_name["urgent"]["spec"]["priority"] == 1000
        node_uid = (await api.get("Node", "n0"))["metadata"]["uid"]
        assert by_name["static-n0"]["metadata"]["ownerReferences"][0]["uid"] == node_uid
        assert OWNER_LABEL in by_name["twin-0"]["metadata"]["labels"]
        # Nothing is made or deleted once every controller has looked at everything.
        await settle.pods_seen(api)
        await settle.owners_seen(api, report.owners)
        assert uids(await api.list("Pod", "shop")) == uids(pods)
        await nodes_are_kept(api)

    empty_plane.run(work)


async def nodes_are_kept(api: Client) -> None:
    """Nodes are as the file says, and stay Ready."""

    async def leased() -> bool:
        # That of a node without pods is nothing that loading waits for.
        leases = await api.list("Lease", "kube-node-lease")
        return {lease["metadata"]["name"] for lease in leases} == {*NODES, "n8"}

    await wait_for(leased, DEADLINE, "every node has its Lease, and nothing else has")
    for live in await api.list("Node"):
        given = node(live["metadata"]["name"])
        assert live["status"]["allocatable"] == given["status"]["allocatable"]
        assert live["status"]["capacity"] == given["status"]["capacity"]
        assert live["metadata"]["labels"] == given["metadata"]["labels"]
        ready = [c["status"] for c in live["status"]["conditions"] if c["type"] == "Ready"]
        assert ready == ["True"]
        keys = {taint["key"] for taint in live["spec"].get("taints", [])}
        wanted = {"k"} if live["metadata"]["name"] == "n8" else set()
        assert keys - {"node.kubernetes.io/unschedulable"} == wanted
