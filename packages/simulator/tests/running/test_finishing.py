"""Going back to a dry run, switching off and leaving with a drain under way: no node stays cordoned or tainted."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tightship.objects.drain_record import DRAIN_ANNOTATION
from tightship_testkit.audit_readings import mutating
from tightship_testkit.client import Json, wait_for
from tightship_testkit.drains import SETTINGS, small
from tightship_testkit.embedded import SHORT, EmbeddedCluster, embedded_cluster
from tightship_testkit.marks import TAINT, drain, taints
from tightship_testkit.refining import slow
from tightship_testkit.remover import mark_to_be_deleted
from tightship_testkit.replica import COMPACTOR, NAMESPACE, QUICK_REFINER, REFINER, USER, Replica

pytestmark = pytest.mark.virtual_time

PHASES = pytest.mark.parametrize("phase", ["Claimed", "Evicting", "Drained", "Restoring", "Yielded", "Drained, taken"])
SOFT = "tightship.dev/candidate"
RARELY = {COMPACTOR.interval: "300"}
"""Passes as they come by default: who waits for a release must not wait for them."""


def lasting() -> Json:
    """Return a cluster whose pods take their time to end."""
    cluster = small()
    slow(cluster["items"], "8s")
    return cluster


async def reach(on: EmbeddedCluster, phase: str, **variables: str) -> Replica:
    """Start a live controller and have it get as far as *phase* with n1."""
    await on.configured({**SETTINGS, "settleTime": "30s" if phase == "Claimed" else 0.5, "handOverTimeout": "3600s"})
    replica = on.start(**SHORT, **variables)
    await on.phase("n1", "Evicting" if phase in ("Restoring", "Yielded") else phase.partition(",")[0])
    if phase in ("Yielded", "Drained, taken"):
        await mark_to_be_deleted(on.api, await on.api.get("Node", "n1"))
        await on.phase("n1", phase.partition(",")[0])
    return replica


async def leave(on: EmbeddedCluster, replica: Replica, how: signal.Signals, phase: str) -> None:
    """End the controller; one that had written Restoring was killed before the next write."""
    on.machine.signal(replica.name, how)
    await replica.ended()
    if phase == "Restoring":
        record = drain(await on.api.get("Node", "n1"))
        record |= {"phase": phase, "since": {**record["since"], phase: record["since"]["Evicting"]}}
        await on.api.patch("Node", "n1", {"metadata": {"annotations": {DRAIN_ANNOTATION: json.dumps(record)}}})


def free(on: EmbeddedCluster, *names: str) -> bool:
    """Whether nothing of ours holds a node, n1 unless others are named."""
    for name in names or ("n1",):
        node = on.recorder.node(name) or {}
        if node["spec"].get("unschedulable") or {each["key"] for each in taints(node)} & {TAINT, SOFT}:
            return False
        if drain(node).get("phase") not in (None, "Backoff", "Marked"):
            return False
    return True


@PHASES
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_a_dry_run_gives_back_what_its_live_self_has_cordoned(
    tmp_path: Path, phase: str, how: signal.Signals
) -> None:
    async with embedded_cluster(tmp_path, lasting(), SETTINGS) as on:
        live = await reach(on, phase)
        await leave(on, live, how, phase)
        dry = on.start(DRY_RUN="true", **SHORT)
        await on.seen(lambda: free(on), "n1 is given back")
        evicted = len(on.yard.evicted())
        await on.free()
        if not (phase == "Claimed" and how is signal.SIGTERM):
            # Who stops gives back by itself what has just been claimed.
            await dry.says("finishing: this controller gives back a node")
        await on.passes(dry, 5)
        # It has given the Lease up again, and begins nothing.
        assert not (on.yard.simulation.store.find("Lease", f"{on.team}-leader", NAMESPACE) or {})["spec"].get(
            "holderIdentity"
        )
        assert len(on.yard.evicted()) == evicted
        assert free(on)


async def test_a_dry_run_says_on_its_page_what_it_gives_back_and_why_it_can_not(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, lasting(), SETTINGS) as on:
        live = await reach(on, "Drained")
        live.kill()
        # A Lease that somebody else keeps is one that can't be had.
        dry = on.start(DRY_RUN="true", **{**SHORT, "LEASE_DURATION": "300s"})
        await dry.says("finishing")
        status = await dry.status()
        assert status["finishing"] == ["n1"]
        assert "Dry run, finishing: drains of this controller hold n1" in (await dry.get("/"))[1]
        assert not free(on)


@pytest.mark.parametrize("other", [{"LEASE_NAME": "elsewhere"}, {"NAMESPACE": "kube-system"}])
async def test_a_dry_run_beside_a_live_controller_leaves_its_drains_alone(
    tmp_path: Path, other: dict[str, str]
) -> None:
    """As whoever compares the two has them: another Lease is another installation."""
    async with embedded_cluster(tmp_path, lasting(), SETTINGS) as on:
        await reach(on, "Evicting")
        beside = on.start(DRY_RUN="true", POD_NAME="beside", **SHORT, **other)
        await on.phase("n1", "Drained")
        await on.passes(beside, 5)
        assert "finishing" not in beside.log
        assert "Restoring" not in on.recorder.phases("n1")
        assert [each for each in mutating(on.events, USER) if "beside" in json.dumps(str(each))] == []
        with on.removing():
            await on.gone("n1")


async def test_a_live_controller_with_a_standby_that_is_a_dry_run_goes_on(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, lasting(), SETTINGS) as on:
        await reach(on, "Evicting")
        dry = on.start(DRY_RUN="true", **SHORT)
        await on.phase("n1", "Drained")
        await on.passes(dry, 5)
        assert "Restoring" not in on.recorder.phases("n1")
        with on.removing():
            await on.gone("n1")


@PHASES
async def test_release_gives_back_everything_and_ends(tmp_path: Path, phase: str) -> None:
    async with embedded_cluster(tmp_path, lasting(), SETTINGS) as on:
        await leave(on, await reach(on, phase), signal.SIGKILL, phase)
        release = on.start(RELEASE="true", **SHORT, **RARELY)
        assert await release.ended(20) == 0
        await on.seen(lambda: free(on), "n1 is given back")
        await on.free()


async def test_release_takes_soft_taints_off_too(tmp_path: Path) -> None:
    cluster = small()
    [n1] = [each for each in cluster["items"] if each["kind"] == "Node" and each["metadata"]["name"] == "n1"]
    n1["spec"]["taints"].append({"key": SOFT, "value": "node-compactor", "effect": "PreferNoSchedule"})
    async with embedded_cluster(tmp_path, cluster, SETTINGS) as on:
        assert not free(on)
        release = on.start(RELEASE="true", **SHORT, **RARELY)
        assert await release.ended() == 0
        await on.seen(lambda: free(on), "its taint is gone")


async def deployed(on: EmbeddedCluster) -> str:
    """Make a Deployment of one pod that takes its time to end; return the pod's name, for the controller to bear."""
    labels = {"app": "controller"}
    template: Json = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    slow([{"kind": "Pod", **template}], "30s")
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    # Not on n1, whose drain would evict it.
    template["spec"]["nodeName"] = "n3"
    await on.api.create({"kind": "Deployment", "metadata": {"name": "own", "namespace": NAMESPACE}, "spec": spec})
    found: list[str] = []

    async def made() -> bool:
        found[:] = [each["metadata"]["name"] for each in await on.api.list("Pod", NAMESPACE)]
        return bool(found)

    await wait_for(made, 30, "the Deployment has its pod")
    return found[0]


async def asked_to_end(on: EmbeddedCluster, replica: Replica, pod: str, *, at_once: bool = False) -> None:
    """See its pod deleted (its object too: *at_once*), have the kubelet tell it to end, and see it end."""

    async def leaving() -> bool:
        status, found = await on.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")
        return status == 200 and bool(found["metadata"].get("deletionTimestamp"))

    await wait_for(leaving, 30, "the controller's pod is deleted")
    if at_once:
        await on.api.delete("Pod", pod, NAMESPACE, grace=0)
        await on.passes(replica)
    replica.asked_to_end()
    assert await replica.ended() == 0


@pytest.mark.parametrize("phase", ["Claimed", "Evicting", "Drained", "Yielded", "Drained, taken"])
@pytest.mark.parametrize("how", ["scaled to nothing", "deleted", "deleted at once"])
async def test_a_controller_that_nobody_comes_after_gives_back_what_it_holds(
    tmp_path: Path, phase: str, how: str
) -> None:
    async with embedded_cluster(tmp_path, lasting(), SETTINGS) as on:
        pod = await deployed(on)
        live = await reach(on, phase, POD_NAME=pod)
        if how.startswith("deleted"):
            await on.passes(live)
            await on.api.delete("Deployment", "own", NAMESPACE)
        else:
            await on.api.patch("Deployment", "own", {"spec": {"replicas": 0}}, NAMESPACE)
        await asked_to_end(on, live, pod, at_once=how == "deleted at once")
        await on.seen(lambda: free(on), "n1 is given back")
        await on.free()


@pytest.mark.parametrize("how", ["evicted", "replaced"])
async def test_a_controller_that_has_a_successor_leaves_it_what_it_holds(tmp_path: Path, how: str) -> None:
    """Its pod was evicted, perhaps by itself, or is replaced in a rollout."""
    async with embedded_cluster(tmp_path, lasting(), SETTINGS) as on:
        pod = await deployed(on)
        live = await reach(on, "Evicting", POD_NAME=pod)
        if how == "replaced":
            newer = {"metadata": {"labels": {"version": "2"}}}
            await on.api.patch("Deployment", "own", {"spec": {"template": newer}}, NAMESPACE)
        else:
            await on.api.delete("Pod", pod, NAMESPACE)
        await asked_to_end(on, live, pod)
        assert "Restoring" not in on.recorder.phases("n1")
        on.start(**SHORT)
        with on.removing():
            await on.gone("n1")


async def test_a_refiner_that_becomes_a_dry_run_gives_its_node_back(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, lasting(), {**QUICK_REFINER, "handOverTimeout": "3600s"}, REFINER) as on:
        live = on.start(**SHORT)
        names = ("n1", "n2", "n3")
        await on.seen(lambda: any("Drained" in on.recorder.phases(each) for each in names), "a node is drained")
        live.kill()
        on.start(DRY_RUN="true", **SHORT)
        await on.seen(lambda: free(on, *names), "it is given back")
