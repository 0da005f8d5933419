"""The golden cluster on a real control plane, read live and from the API's own JSON: the same answers.

Some reasons can't be had live, see ``NOT_LIVE``. Every other
one is real: budgets have the status that the disruption controller computed, and times are the API server's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rights import grant

from node_compactor.judge import CompactorJudge
from node_compactor.settings import load_settings
from tightship.cli.snapshot_file import parse, read_file
from tightship.cluster import Snapshot
from tightship.kube.cache import read_cluster
from tightship.kube.connection import connect
from tightship.kube.resources import RESOURCES
from tightship.objects.reasons import NODE_REASONS, Reason
from tightship.planning.evaluate import evaluate
from tightship.planning.plan import Plan
from tightship_e2e import ControlPlane, load
from tightship_e2e.source import clean_node, clean_pod
from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.golden import REFINERS, RUNNING_ONLY, refusals_of, removals_of

GOLDEN = Path(__file__).resolve().parents[2] / "packages" / "node-compactor" / "tests" / "golden"
DEADLINE = 60.0

NOT_LIVE: Mapping[Reason, str] = {
    Reason.UNREADABLE: "the API server stores no malformed Node",
    Reason.POD_UNREADABLE: "the API server stores no malformed Pod",
    Reason.PDB_UNREADABLE: "the API server stores no malformed PodDisruptionBudget",
    Reason.BUFFER_NEEDS_NODE: "its API is not served without a CustomResourceDefinition",
    Reason.KARPENTER_CONSOLIDATION_OFF: "its API is not served without a CustomResourceDefinition",
    Reason.NODE_LIFECYCLE: "no administrator plans maintenance here",
    Reason.REQUESTS_UNKNOWN: "its API is not served without a CustomResourceDefinition",
    Reason.NODE_GROUP_MIN_SIZE: "no Cluster Autoscaler tells the minimum size of a group",
    Reason.MAKE_BEFORE_BREAK: "nothing is restarted where makeBeforeBreak is off",
    Reason.NOT_RESTARTABLE: "nothing is restarted where makeBeforeBreak is off",
    Reason.ROLLOUT_UNFINISHED: "nothing is restarted where makeBeforeBreak is off",
    Reason.OPENS_AFTER_CORDON: "no drain waits for what opens after its cordon",
    Reason.NOT_OPENED: "no drain has waited for it in vain",
    Reason.MAX_EVICTIONS_REACHED: "it comes of a flag of the command line",
    Reason.SAVING_TOO_SMALL: "the golden configuration asks for no saving",
    Reason.NOT_SELECTED: "it comes of a selection on the command line, of which there is none here",
    Reason.NOT_AUTOSCALED: "no Cluster Autoscaler tells its groups",
    Reason.VIRTUAL_NODE: "no virtual node is in the golden cluster",
    Reason.OTHER_DRAIN_NEEDS_NODE: "the golden cluster has room for the pods of nodes that others cordoned",
    Reason.POD_STUCK: "a pod is stuck a minute after its grace period, which is over here when the test is",
    Reason.STUCK_FINALIZER: "a pod is stuck a minute after its grace period, which is over here when the test is",
}

YOUNG = "young"
"""Created after all others, so that a time exists at which it alone is younger than the minimum age."""

ORPHAN = "orphan"
"""The garbage collector deletes a pod whose controller is gone: it is created while that controller is paused."""


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


def named(items: list[Json], kind: str, name: str) -> Json:
    [found] = [item for item in items if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def planned(snapshot: Snapshot, now: float) -> Plan:
    return evaluate(snapshot, CompactorJudge(load_settings(golden("config.json"))), now).plan


def answers(plan: Plan) -> dict[str, Any]:
    """The plan in the form of ``expected.json``."""
    return {"refusals": refusals_of(plan), "removals": removals_of(plan)}


def statuses(snapshot: Snapshot) -> dict[str, tuple[int | bool, ...]]:
    """What the disruption controller says of each budget, for the golden file claims to say the same."""
    return {
        each.key: (
            each.disruptions_allowed,
            each.current_healthy,
            each.desired_healthy,
            each.expected_pods,
            each.observed_generation,
            each.generation,
            bool(each.sync_failed),
        )
        for each in snapshot.budgets
    }


async def load_golden(api: Client) -> None:
    """Load all but what has to come later, with the scheduler paused so that pending pods stay so."""
    items = golden("cluster.json")["items"]
    later = [named(items, "Node", YOUNG), named(items, "Pod", ORPHAN)]
    report = await load(api, {"kind": "List", "items": [item for item in items if item not in later]})
    assert report.problems == []
    # A Node object that is being deleted is one that something still holds.
    [held] = [item for item in items if item["kind"] == "Node" and "deletionTimestamp" in item["metadata"]]
    name = held["metadata"]["name"]
    await api.patch("Node", name, {"metadata": {"finalizers": held["metadata"]["finalizers"]}})
    await api.delete("Node", name)
    # Times of creation are whole seconds: two later, nothing else is as young.
    loaded = time.time()

    async def later_than_the_rest() -> bool:
        return time.time() > loaded + 2

    await wait_for(later_than_the_rest, DEADLINE, "the next seconds")
    await api.create(clean_node(later[0]))


async def freeze(api: Client) -> None:
    """Make, while the controllers are paused, what they would soon put right."""
    items = golden("cluster.json")["items"]
    orphan = clean_pod(named(items, "Pod", ORPHAN))
    orphan["metadata"]["ownerReferences"] = named(items, "Pod", ORPHAN)["metadata"]["ownerReferences"]
    await api.create(orphan)
    await api.patch("PodDisruptionBudget", "stale", {"spec": {"minAvailable": 1}}, "shop")
    scaler = named(items, "HorizontalPodAutoscaler", "scaled")
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    ]
    await api.create({**scaler, "spec": {**scaler["spec"], "metrics": metrics}})

    async def runs() -> bool:
        pod = await api.get("Pod", ORPHAN, "shop")
        return pod["status"].get("phase") == "Running"

    await wait_for(runs, DEADLINE, "the orphan runs")


async def reader_without_namespaces(api: Client) -> None:
    """An account that may read all but Namespaces: then what selects them by label can't be judged."""
    name = "golden-reader"
    groups = sorted({each.group for each in RESOURCES})
    rules = [
        {
            "apiGroups": [group],
            "resources": [each.name for each in RESOURCES if each.group == group and each.kind != "Namespace"],
            "verbs": ["list"],
        }
        for group in groups
    ]
    await api.request("DELETE", f"/api/v1/namespaces/default/serviceaccounts/{name}")
    await api.create({"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}})
    await grant(api, {"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}, name)


def test_the_golden_cluster_gives_the_same_answers_live_and_from_the_apis_own_json(empty_plane: ControlPlane) -> None:
    empty_plane.run(reader_without_namespaces)
    kubeconfig = empty_plane.service_account_kubeconfig("default", "golden-reader")
    expected = golden("expected.json")

    async def work(api: Client) -> None:
        with empty_plane.paused("kube-scheduler"):
            await load_golden(api)
            with empty_plane.paused("kube-controller-manager"):
                await freeze(api)
                async with await connect(kubeconfig) as connection:
                    live = await read_cluster(connection)
                    paths = [each.path for each in RESOURCES if each.kind not in live.missing]
                    bodies = [await connection.request("GET", path) for path in paths]
        undefined = (
            "CapacityBuffer",
            "LeaderWorkerSet",
            "NodePool",
            "PodGroup",
            "VerticalPodAutoscaler",
        )
        assert live.missing == {"Namespace": "forbidden", **dict.fromkeys(undefined, "not served")}
        assert statuses(live) == statuses(read_file(GOLDEN / "cluster.json"))
        file = parse(b"\n".join(bodies), "the API's JSON")
        minimum_age = load_settings(golden("config.json")).minimum_age
        now = live.nodes[YOUNG].node.created + minimum_age - 1
        of_live, of_file = await asyncio.gather(
            asyncio.to_thread(planned, live, now), asyncio.to_thread(planned, file, now)
        )
        assert answers(of_live) == answers(of_file)
        assert answers(of_live) == {part: expected[part] for part in ("refusals", "removals")}
        said = {refusal.reason for found in of_live.refusals.values() for refusal in found}
        assert NODE_REASONS - RUNNING_ONLY - REFINERS - said == set(NOT_LIVE)

    empty_plane.run(work)
