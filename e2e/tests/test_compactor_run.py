"""``node-compactor run`` as a process on a real control plane: what it does to a cluster, and how it ends."""

from __future__ import annotations

import json
import time

import pytest
from drains import Run, Site

from tightship_e2e import ControlPlane
from tightship_e2e.autoscaler import off_peak
from tightship_testkit.client import ApiError, Json, wait_for
from tightship_testkit.drains import SETTINGS, all_ready, removing, small
from tightship_testkit.invariants import TAINT, drain, evictions_by, forbidden, mutating, taints
from tightship_testkit.remover import TO_BE_DELETED, mark_to_be_deleted
from tightship_testkit.replica import QUICK, USER, configure, lease


def test_off_peak_nodes_disappear_and_every_pod_is_ready_again(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        before = len(await on.api.list("Node"))
        began = time.monotonic()
        replica = on.start()
        async with removing(on.api) as remover:
            await replica.ready()

            def done() -> bool:
                return len(remover.removed) >= 3

            await on.seen(done, "three nodes are removed", 240)
        await all_ready(on.api)
        replica.told_to_end()
        assert await replica.ended() == 0
        events = control_plane.audit_events()
        assert forbidden(events, USER) == []
        evicted = evictions_by(events, USER)
        assert set(evicted.values()) == {1}
        seen = on.recorder
        print(
            f"\n{len(remover.removed)} of {before} nodes removed in {time.monotonic() - began:.0f} s, "
            f"{len(evicted)} evictions, longest Pending {seen.longest_pending:.1f} s, "
            f"most in drain {seen.most_in_drain}, least spare of budgets {min(seen.least_spare.values())}"
        )

    on_site(work, off_peak({"general": 6, "memory": 4}), settings=QUICK)


def test_nothing_is_left_of_a_drain_that_was_handed_over(on_site: Run) -> None:
    async def work(on: Site) -> None:
        replica = on.start()
        # Whoever takes the node before its drain has said its end is yielded to, and nothing is handed over.
        await on.phase("n1", "Drained")
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)
        await replica.says("handed_over")
        await on.free()
        assert on.recorder.phases("n1")[-4:] == ["Claimed", "Evicting", "Drained", "gone"]

    on_site(work)


def drained_until_evicting(pods_end_in: str = "8s") -> Json:
    """A cluster whose drain takes a while: pods take their time to end."""
    cluster = small()
    for item in cluster["items"]:
        if item["kind"] == "Pod":
            item["metadata"]["annotations"] = {"e2e.tightship.dev/exit-after": pods_end_in}
            item["spec"]["terminationGracePeriodSeconds"] = 30
    return cluster


def test_a_human_who_uncordons_is_obeyed(on_site: Run) -> None:
    async def work(on: Site) -> None:
        on.start()
        await on.phase("n1", "Evicting")
        on.recorder.human.add("n1")
        await on.api.patch("Node", "n1", {"spec": {"unschedulable": None}})

        def let_go() -> bool:
            node = on.recorder.node("n1") or {}
            return drain(node).get("phase") == "Backoff" and not any(t["key"] == TAINT for t in taints(node))

        await on.seen(let_go, "the drain lets go of n1")
        assert drain(on.recorder.node("n1") or {})["reason"].startswith("Uncordoned")
        judged = on.replicas[0].log.count('"judged"')
        await on.seen(lambda: on.replicas[0].log.count('"judged"') >= judged + 4, "four more passes")
        assert on.recorder.phases("n1")[-1] == "Backoff"
        assert not (on.recorder.node("n1") or {})["spec"].get("unschedulable")

    on_site(work, drained_until_evicting())


def test_it_yields_to_the_autoscaler_in_the_middle_of_a_drain(on_site: Run) -> None:
    async def work(on: Site) -> None:
        on.start()
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
        evictions = len([each for each in on.proxy.writes if each.call.path.endswith("/eviction")])
        judged = on.replicas[0].log.count('"judged"')
        await on.seen(lambda: on.replicas[0].log.count('"judged"') >= judged + 3, "three more passes")
        assert len([each for each in on.proxy.writes if each.call.path.endswith("/eviction")]) == evictions
        keys = {each["key"] for each in taints(on.recorder.node("n1") or {})}
        assert {TO_BE_DELETED, "example.com/soft", TAINT} <= keys
        await on.api.delete("Node", "n1")
        await on.replicas[0].says("handed_over")

    on_site(work, drained_until_evicting())


def test_a_budget_that_never_allows_keeps_its_node_untouched(on_site: Run) -> None:
    async def work(on: Site) -> None:
        replica = on.start()
        await replica.ready()
        await on.seen(lambda: replica.log.count('"judged"') >= 4, "four passes")
        assert set(on.recorder.phases("n1")) <= {"Marked"}
        assert not (on.recorder.node("n1") or {})["spec"].get("unschedulable")

    cluster = small()
    for item in cluster["items"]:
        if item["kind"] == "PodDisruptionBudget":
            item["spec"]["minAvailable"] = "100%"
    on_site(work, cluster)


def test_a_replacement_that_is_not_made_yet_is_waited_for(on_site: Run) -> None:
    """A budget of a number then wants as many pods as there are; which it does for a moment after every eviction."""
    quotas = "/api/v1/namespaces/shop/resourcequotas"

    async def work(on: Site) -> None:
        async def one_less() -> bool:
            status = (await on.api.get("PodDisruptionBudget", "web", "shop"))["status"]
            return bool(status["expectedPods"] == status["desiredHealthy"] == 4)

        await on.api.call("POST", quotas, body={"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}})
        try:
            replica = on.start()
            await on.phase("n1", "Evicting")
            await wait_for(one_less, 60, "the budget counts a pod less")
            await on.passes(replica, 3)
            assert on.recorder.phases("n1")[-1] == "Evicting"
        finally:
            await on.api.call("DELETE", f"{quotas}/full")
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)
        assert on.recorder.phases("n1")[-4:] == ["Claimed", "Evicting", "Drained", "gone"]

    on_site(work)


def test_a_pod_bound_after_the_cordon_is_seen(on_site: Run) -> None:
    async def work(on: Site) -> None:
        on.start()
        await on.phase("n1", "Claimed")
        # No ReplicaSet may have a say in what becomes of it.
        vouched = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
        late = {"generateName": "late-", "namespace": "shop", "annotations": vouched}
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
        made = (await on.api.create({"kind": "Pod", "metadata": late, "spec": spec}))["metadata"]
        async with removing(on.api):
            await on.gone("n1")
        pods = [each["metadata"]["name"] for each in await on.api.list("Pod", "shop")]
        print(f"\nlate pod {made['name']} is {'there' if made['name'] in pods else 'gone'}")
        path = f"/pods/{made['name']}/eviction"
        assert [each.status for each in on.proxy.writes if each.call.path.endswith(path)] == [201]

    on_site(work, settings={**SETTINGS, "settleTime": 3})


def test_a_node_that_becomes_not_ready_is_given_back(on_site: Run) -> None:
    async def work(on: Site) -> None:
        on.start()
        await on.phase("n1", "Evicting")
        down = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "by the test"}
        await on.api.patch("Node", "n1", {"status": {"conditions": [down]}}, subresource="status")
        await on.phase("n1", "Backoff")
        node = on.recorder.node("n1") or {}
        assert drain(node)["reason"].startswith("NotReady")
        assert not node["spec"].get("unschedulable")

    on_site(
        work,
        drained_until_evicting("40s"),
        settings={**SETTINGS, "notReadyTimeout": 1, "backoff": 600, "backoffLimit": 600},
    )


def test_a_finalizer_is_named_and_its_node_restored_at_the_deadline(on_site: Run) -> None:
    async def work(on: Site) -> None:
        await on.api.patch("Pod", "web-0", {"metadata": {"finalizers": ["example.com/held"]}}, "shop")
        on.start()
        try:
            await on.phase("n1", "Backoff", 300)
            reason = drain(on.recorder.node("n1") or {})["reason"]
            print(f"\n{reason}")
            assert reason.startswith("StuckFinalizer")
            assert "example.com/held" in reason
        finally:
            await on.api.patch("Pod", "web-0", {"metadata": {"finalizers": None}}, "shop")

    cluster = small()
    for item in cluster["items"]:
        if item["kind"] == "Pod":
            item["spec"]["terminationGracePeriodSeconds"] = 1
    on_site(work, cluster, settings={**SETTINGS, "nodeDrainTimeout": 150, "backoff": 600, "backoffLimit": 600})


@pytest.mark.parametrize("phase", ["Claimed", "Evicting", "Drained"])
def test_told_to_end_in_the_middle_of_a_drain(on_site: Run, phase: str) -> None:
    """It parks or restores, gives up the Lease, and the next one ends the drain."""

    async def work(on: Site) -> None:
        # The Lease is given up by one request, for which there is a third of the renew deadline.
        replica = on.start(LEASE_DURATION_SECONDS="60", LEASE_RENEW_DEADLINE_SECONDS="45")
        await on.phase("n1", phase)
        told = time.monotonic()
        replica.told_to_end()
        assert await replica.ended() == 0
        took = time.monotonic() - told
        held = (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity", "")
        left = drain(await on.api.get("Node", "n1")).get("phase")
        print(f"\nSIGTERM in {phase}: ended in {took:.1f} s, left {left}")
        assert held == ""
        assert left == ("Backoff" if phase == "Claimed" else phase)
        await on.configured(SETTINGS)
        again = time.monotonic()
        on.start()
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)
        print(f"the next one ended it in {time.monotonic() - again:.1f} s")

    settle = 600 if phase == "Claimed" else 0.5
    on_site(work, drained_until_evicting("3s"), settings={**SETTINGS, "settleTime": settle})


def test_a_dry_run_writes_nothing_and_plans_the_same(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        replica = on.start(DRY_RUN="true")
        await replica.ready()
        await on.seen(lambda: replica.log.count('"judged"') >= 4, "four passes")
        assert '"next":"n1"' in replica.log
        replica.told_to_end()
        assert await replica.ended() == 0
        assert on.proxy.writes == []
        assert mutating(control_plane.audit_events(), USER) == []
        assert on.recorder.phases("n1") == []

    on_site(work)


def test_a_bad_edit_keeps_the_last_good_configuration(on_site: Run) -> None:
    async def work(on: Site) -> None:
        replica = on.start()
        await replica.ready()
        await replica.says('"configuration in use"')
        await configure(on.api, on.team, "nodePools: {spare: {enabled: perhaps}}\nbogus: 1\n")
        await replica.says("The configuration was refused, the last good one stands")
        assert "bogus" in replica.log
        text = (await replica.get("/metrics"))[1]
        assert [line.split()[-1] for line in text.splitlines() if line.startswith("tightship_config_valid")] == ["0.0"]
        async with removing(on.api):
            await on.gone("n1")

    on_site(work, settings={**SETTINGS, "neededMarkedTimeForRemoval": 4})


def test_a_configuration_that_names_only_some_pools(on_site: Run) -> None:
    async def work(on: Site) -> None:
        on.start()
        async with removing(on.api):
            await on.gone("n1")

    pools = {"spare": {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75}}
    on_site(work, settings={**SETTINGS, "nodePools": pools})


def test_everything_is_served(on_site: Run) -> None:
    async def work(on: Site) -> None:
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

    on_site(work)
