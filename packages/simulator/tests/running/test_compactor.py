"""Running node-compactors on the embedded cluster: what they do to a cluster, what stops them, and how they end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tightship_testkit.audit_readings import evictions_by, mutating
from tightship_testkit.client import ApiError, Json, wait_for
from tightship_testkit.drains import SETTINGS, all_ready, small
from tightship_testkit.embedded import Ground, ground
from tightship_testkit.marks import TAINT, drain, taints
from tightship_testkit.refining import slow
from tightship_testkit.remover import TO_BE_DELETED, mark_to_be_deleted
from tightship_testkit.replica import NAMESPACE, USER, configure, lease

pytestmark = pytest.mark.virtual_time


def lasting(ends_in: str = "8s") -> Json:
    """Return a cluster whose drain takes a while: pods take their time to end."""
    cluster = small()
    slow(cluster["items"], ends_in)
    return cluster


def evictions(on: Ground) -> list[str]:
    """Return the pods whose eviction was asked for, whatever was answered."""
    return [each.object_ref.name for each in on.events if each.object_ref.subresource == "eviction"]


async def test_nothing_is_left_of_a_drain_that_was_handed_over(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS) as on:
        replica = on.start()
        # Whoever takes the node before its drain has said its end is yielded to, and nothing is handed over.
        await on.phase("n1", "Drained")
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)
        await replica.says("handed_over")
        await on.free()
        assert on.recorder.phases("n1") == ["Marked", "Claimed", "Evicting", "Drained", "gone"]


async def test_a_human_who_uncordons_is_obeyed(tmp_path: Path) -> None:
    async with ground(tmp_path, lasting(), SETTINGS) as on:
        replica = on.start()
        await on.phase("n1", "Evicting")
        on.recorder.human.add("n1")
        await on.api.patch("Node", "n1", {"spec": {"unschedulable": None}})

        def let_go() -> bool:
            node = on.recorder.node("n1") or {}
            return drain(node).get("phase") == "Backoff" and not any(each["key"] == TAINT for each in taints(node))

        await on.seen(let_go, "the drain lets go of n1")
        assert drain(on.recorder.node("n1") or {})["reason"].startswith("Uncordoned")
        await on.passes(replica, 4)
        assert on.recorder.phases("n1") == ["Marked", "Claimed", "Evicting", "Backoff"]
        assert not (on.recorder.node("n1") or {})["spec"].get("unschedulable")


async def test_it_yields_to_the_autoscaler_in_the_middle_of_a_drain(tmp_path: Path) -> None:
    async with ground(tmp_path, lasting(), SETTINGS) as on:
        replica = on.start()
        await on.phase("n1", "Evicting")

        async def marked() -> bool:
            try:
                await mark_to_be_deleted(on.api, await on.api.get("Node", "n1"))
            except ApiError as error:
                if error.status != 409:
                    raise
                return False
            return True

        await wait_for(marked, 30, "the autoscaler's taint is on n1")
        await on.phase("n1", "Yielded")
        before = evictions(on)
        await on.passes(replica)
        assert evictions(on) == before
        keys = {each["key"] for each in taints(on.recorder.node("n1") or {})}
        assert {TO_BE_DELETED, "example.com/soft", TAINT} <= keys
        # Whom the autoscaler disturbs is its own affair, and none of what is looked at here.
        await on.api.delete("PodDisruptionBudget", "web", "shop")
        await on.api.delete("Node", "n1")
        await replica.says("handed_over")


async def test_a_budget_that_never_allows_keeps_its_node_untouched(tmp_path: Path) -> None:
    cluster = small()
    for item in cluster["items"]:
        if item["kind"] == "PodDisruptionBudget":
            item["spec"]["minAvailable"] = "100%"
    async with ground(tmp_path, cluster, SETTINGS) as on:
        replica = on.start()
        await replica.ready()
        await on.passes(replica, 4)
        assert set(on.recorder.phases("n1")) <= {"Marked"}
        assert not (on.recorder.node("n1") or {})["spec"].get("unschedulable")
        assert evictions(on) == []


async def test_a_replacement_that_is_not_made_yet_is_waited_for(tmp_path: Path) -> None:
    """A budget of a number then wants as many pods as there are; which it does for a moment after every eviction."""
    async with ground(tmp_path, small(), SETTINGS) as on:

        async def one_less() -> bool:
            status = (await on.api.get("PodDisruptionBudget", "web", "shop"))["status"]
            return bool(status["expectedPods"] == status["desiredHealthy"] == 4)

        with on.living.paused("workloads"):
            replica = on.start()
            await on.phase("n1", "Evicting")
            await wait_for(one_less, 60, "the budget counts a pod less")
            await on.passes(replica, 3)
            assert on.recorder.phases("n1")[-1] == "Evicting"
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)
        assert on.recorder.phases("n1") == ["Marked", "Claimed", "Evicting", "Drained", "gone"]


async def test_a_pod_bound_after_the_cordon_is_seen(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), {**SETTINGS, "settleTime": 3}) as on:
        on.start()
        await on.phase("n1", "Claimed")
        # No ReplicaSet may have a say in what becomes of it.
        vouched = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
        late = {"name": "late", "namespace": "shop", "annotations": vouched}
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
        await on.api.create({"kind": "Pod", "metadata": late, "spec": spec})
        with on.removing():
            await on.gone("n1")
        about = [each for each in on.events if each.object_ref.name == "late"]
        assert [(each.object_ref.subresource, each.code) for each in about] == [("eviction", 201)]
        assert len(evictions_by(on.events, USER)) == 4


async def test_a_node_that_becomes_not_ready_is_given_back(tmp_path: Path) -> None:
    settings = {**SETTINGS, "notReadyTimeout": 1, "backoff": 600, "backoffLimit": 600}
    async with ground(tmp_path, lasting("40s"), settings) as on:
        on.start()
        await on.phase("n1", "Evicting")
        down = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "by the test"}
        await on.api.patch("Node", "n1", {"status": {"conditions": [down]}}, subresource="status")
        await on.phase("n1", "Backoff")
        node = on.recorder.node("n1") or {}
        assert drain(node)["reason"].startswith("NotReady")
        assert not node["spec"].get("unschedulable")
        assert not [each for each in taints(node) if each["key"] == TAINT]


async def test_a_finalizer_is_named_and_its_node_restored_by_the_deadline(tmp_path: Path) -> None:
    cluster = small()
    for item in cluster["items"]:
        if item["kind"] == "Pod":
            item["spec"]["terminationGracePeriodSeconds"] = 1
    settings = {**SETTINGS, "nodeDrainTimeout": 150, "backoff": 600, "backoffLimit": 600}
    async with ground(tmp_path, cluster, settings) as on:
        await on.api.patch("Pod", "web-0", {"metadata": {"finalizers": ["example.com/held"]}}, "shop")
        on.start()
        await on.phase("n1", "Backoff", 300)
        moments = {each.phase: each.at for each in on.recorder.moments}
        assert 60 < moments["Backoff"] - moments["Claimed"] <= 150
        node = on.recorder.node("n1") or {}
        assert drain(node)["reason"].startswith("StuckFinalizer")
        assert "example.com/held" in drain(node)["reason"]
        assert not node["spec"].get("unschedulable")
        await on.api.patch("Pod", "web-0", {"metadata": {"finalizers": None}}, "shop")


@pytest.mark.parametrize("phase", ["Claimed", "Evicting", "Drained"])
async def test_told_to_end_in_the_middle_of_a_drain(tmp_path: Path, phase: str) -> None:
    """It restores what it has only claimed, parks the rest, gives up the Lease, and the next one ends the drain."""
    settings = {**SETTINGS, "settleTime": 600 if phase == "Claimed" else 0.5}
    async with ground(tmp_path, lasting("3s"), settings) as on:
        replica = on.start()
        await on.phase("n1", phase)
        replica.told_to_end()
        assert await replica.ended() == 0
        held = (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity", "")
        assert held == ""
        node = await on.api.get("Node", "n1")
        assert drain(node)["phase"] == ("Backoff" if phase == "Claimed" else phase)
        assert bool(node["spec"].get("unschedulable")) is (phase != "Claimed")
        await on.configured(SETTINGS)
        on.start()
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)
        await on.free()


# Configuration, dry run, pages.


async def test_a_configuration_that_names_only_some_pools(tmp_path: Path) -> None:
    pools = {"spare": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}}
    async with ground(tmp_path, small(), {**SETTINGS, "nodePools": pools}) as on:
        on.start()
        with on.removing():
            await on.gone("n1")


async def test_a_bad_edit_keeps_the_last_good_configuration(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), {**SETTINGS, "neededMarkedTimeForRemoval": 4}) as on:
        replica = on.start()
        await replica.ready()
        await replica.says('"configuration in use"')
        await configure(on.api, on.team, "nodePools: {spare: {enabled: perhaps}}\nbogus: 1\n")
        await replica.says("The configuration was refused; the last good one applies")
        assert "bogus" in replica.log
        text = (await replica.get("/metrics"))[1]
        assert [line.split()[-1] for line in text.splitlines() if line.startswith("tightship_config_valid")] == ["0.0"]
        with on.removing():
            await on.gone("n1")


async def test_a_deleted_configuration_is_told_with_what_is_in_force(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), {**SETTINGS, "neededMarkedTimeForRemoval": 3600}) as on:
        replica = on.start()
        await on.phase("n1", "Marked")
        assert await on.api.delete("ConfigMap", on.team, NAMESPACE)
        told = f"ConfigMap {NAMESPACE}/{on.team} was deleted; environment and defaults apply until it is back"
        await replica.says(told)
        await on.passes(replica)
        assert (await replica.status())["problems"] == [told]
        assert f">{told}<" in (await replica.get("/"))[1]
        assert "Claimed" not in on.recorder.phases("n1")


async def test_a_dry_run_writes_nothing_and_plans_the_same(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS) as on:
        replica = on.start(DRY_RUN="true")
        await replica.ready()
        await on.passes(replica, 4)
        assert '"next":"n1"' in replica.log
        replica.told_to_end()
        assert await replica.ended() == 0
        # The log of requests holds what it has read, so that an empty list of writes means something.
        assert {"nodes", "pods"} <= {each.object_ref.resource for each in on.events}
        assert mutating(on.events, USER) == []
        assert on.recorder.phases("n1") == []
        await on.free()
        await all_ready(on.api)


async def test_a_replica_that_is_ready_stays_so_while_its_passes_begin_to_follow_more(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS) as on:
        on.machine.simulation.network.delay = lambda: 0.2
        replica = on.start()

        async def asked(after: float) -> tuple[float, int]:
            await asyncio.sleep(after)
            try:
                return after, (await replica.get("/readyz"))[0]
            except OSError:
                return after, 0

        answers = [code for _, code in sorted(await asyncio.gather(*(asked(each / 20) for each in range(200))))]
        assert set(answers[answers.index(200) :]) == {200}


async def test_everything_is_served(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS) as on:
        replica = on.start()
        await replica.ready()
        await on.phase("n1", "Drained")
        for path, part in (
            ("/healthz", ""),
            ("/liveness", ""),
            ("/readyz", ""),
            ("/readiness", ""),
            ("/metrics", "estafette_node_compactor_total_node_count"),
            ("/metrics", "tightship_"),
            ("/status", '"CompactorStatus"'),
            ("/", "<html"),
        ):
            status, text = await replica.get(path)
            assert status == 200, (path, status, text)
            assert part in text.lower() or part in text, path

        async def shown() -> bool:
            return "n1" in json.dumps((await replica.status()).get("inDrain"))

        await wait_for(shown, 30, "the drain is shown")
