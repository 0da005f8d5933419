"""``hpa-scaler run`` as a process on a real control plane: what it sets, what it gives back, and what stops it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from fleets import patched
from floors import Open, Shop

from tightship_e2e import ControlPlane
from tightship_testkit.fault_proxy import FaultProxy
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.floors import DEADLINE, HPA, SHOP, STATE, autoscaler, hpa_annotations
from tightship_testkit.floors import cli as hpa_scaler
from tightship_testkit.invariants import forbidden, mutating
from tightship_testkit.replica import SCALER, lease

ASKS = {"prometheus_query": "rate", "requests_per_replica": 10, "minimum_replicas": 1}
SHORT = {"LEASE_DURATION_SECONDS": "4", "LEASE_RENEW_DEADLINE_SECONDS": "3", "LEASE_RETRY_PERIOD_SECONDS": "0.3"}
LONGER = {"LEASE_DURATION_SECONDS": "12", "LEASE_RENEW_DEADLINE_SECONDS": "10", "LEASE_RETRY_PERIOD_SECONDS": "0.5"}
"""Where who has taken over must not lose it again on a machine that stands still for some seconds."""


def patches(proxy: FaultProxy) -> list[str]:
    """The HPAs that were written to through *proxy*, whatever became of it."""
    return patched(proxy.writes)


def test_a_floor_follows_its_query_up_and_down(in_shop: Open, control_plane: ControlPlane) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        control_plane.audit_events()
        on.start()
        await on.until_bounds("web", 8, 20)
        state = await on.state("web")
        assert (state["originalMin"], state["applied"], state["reason"]) == (3, 8, "FollowsQuery")

        async def scaled() -> bool:
            return bool((await on.hpa("web"))["status"]["currentReplicas"] == 8)

        await on.until(scaled, "the HPA controller has scaled to the floor", DEADLINE)
        on.prometheus.set("rate", 41)
        await on.until_bounds("web", 5, 20)
        managers = {
            each["manager"]
            for each in (await on.hpa("web"))["metadata"]["managedFields"]
            if "f:minReplicas" in str(each["fieldsV1"].get("f:spec"))
        }
        assert managers == {"hpa-scaler"}

        async def told() -> bool:
            events = await on.api.list("Event", SHOP)
            ours = [each for each in events if each["reportingComponent"] == "tightship.dev/hpa-scaler"]
            return len([each for each in ours if "minReplicas" in each["message"]]) == 2

        await on.until(told, "an Event for each change")
        assert forbidden(control_plane.audit_events(), SCALER.user) == []

    in_shop(work)


def test_on_opt_out_the_users_bounds_are_back(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        for name in ("off", "removed"):
            await on.stock(name, 3, 6, **ASKS)
        on.prometheus.set("rate", 72)
        on.start()
        for name in ("off", "removed"):
            await on.until_bounds(name, 8, 9)
        await on.annotate("off", enabled="false")
        await on.annotate("removed", enabled=None)
        for name in ("off", "removed"):
            await on.until_bounds(name, 3, 6)
            assert STATE not in (await on.hpa(name))["metadata"]["annotations"]

    in_shop(work)


def test_release_refuses_while_a_controller_leads_and_gives_back_once_it_ended(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 6, **ASKS)
        await on.stock("edited", 3, 20, **ASKS)
        await on.stock("plain", 2, 4)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await on.until_bounds("web", 8, 9)
        await on.until_bounds("edited", 8, 20)
        code, out, err = await hpa_scaler(on, "release", "-A")
        assert (code, out) == (1, "")
        assert "a controller runs" in err
        assert "--force" in err
        replica.told_to_end()
        assert await replica.ended() == 0
        await on.edit("edited", minReplicas=5)
        code, out, _ = await hpa_scaler(on, "release", "-A", "--dry-run")
        assert code == 0
        assert "would-restore" in out
        assert await on.bounds("web") == (8, 9)
        code, out, _ = await hpa_scaler(on, "release", "-A")
        assert code == 0, out
        assert await on.bounds("web") == (3, 6)
        assert await on.bounds("edited") == (5, 20)
        assert "that is the user's own now" in out
        for name in ("web", "edited"):
            assert STATE not in (await on.hpa(name))["metadata"]["annotations"]
        code, out, _ = await hpa_scaler(on, "release", "shop/web", "shop/plain")
        assert (code, out.count("nothing-ours")) == (0, 3)

    in_shop(work)


def test_sigterm_ends_it_in_good_order_and_the_next_one_goes_on_from_the_hpas(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, lowering_window="1h", **ASKS)
        on.prometheus.set("rate", 72)
        first = on.start()
        await on.until_bounds("web", 8, 20)
        on.prometheus.set("rate", 31)
        await on.cycles(first, 3)
        first.told_to_end()
        assert await first.ended() == 0
        assert not (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity")
        state = await on.state("web")
        assert max(floor for _, floor in state["history"]["floors"]) == 8
        second = on.start()
        await on.cycles(second, 3)
        assert await on.bounds("web") == (8, 20)
        assert (await on.state("web"))["originalMin"] == 3

    in_shop(work)


def test_a_bad_configuration_leaves_the_last_good_one_in_force(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        await on.configured(defaults={"maximumReplicas": 6})
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await on.until_bounds("web", 6, 20)
        await on.configured("defaults: {maximumReplicas: many}")
        await replica.says("The configuration was refused, the last good one stands")
        await on.cycles(replica, 3)
        assert await on.bounds("web") == (6, 20)
        await on.configured()
        await on.until_bounds("web", 8, 20)

    in_shop(work)


def test_a_dry_run_writes_nothing(in_shop: Open, control_plane: ControlPlane) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        control_plane.audit_events()
        replica = on.start(DRY_RUN="true")
        await on.cycles(replica, 4)
        [shown] = (await replica.status())["plan"]["hpas"]
        assert (shown["action"], shown["minimum"]) == ("raise", {"now": 3, "after": 8})
        replica.told_to_end()
        assert await replica.ended() == 0
        assert mutating(control_plane.audit_events(), SCALER.user) == []
        assert on.proxy.writes == []

    in_shop(work)


def test_an_hpa_in_dry_run_shows_what_admission_would_say(in_shop: Open) -> None:
    """A floor of 8 with a maximum of 7 that somebody lowers just then is refused, and seen to be."""

    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, dry_run="true", **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await replica.says("would be raised")
        assert await on.bounds("web") == (3, 20)
        assert await on.state("web") == {}

        async def counted() -> bool:
            return (
                'tightship_hpa_would_be_min_replicas{hpa="web",namespace="shop"} 8'
                in (await replica.get("/metrics"))[1]
            )

        await on.until(counted, "the metric says where it would go")

    in_shop(work)


def test_an_outage_of_the_api_server_changes_no_floor_and_restarts_nothing(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start(**SHORT)
        await on.until_bounds("web", 8, 20)
        async with on.proxy.outage():
            on.prometheus.set("rate", 41)
            await on.deposed(replica)
            assert (await replica.get("/healthz"))[0] == 200
            asked = len(on.prometheus.seen)
            await asyncio.sleep(2)
            assert len(on.prometheus.seen) == asked
            assert await on.bounds("web") == (8, 20)
        await on.until_bounds("web", 5, 20)
        assert (await on.state("web"))["originalMin"] == 3
        assert replica.code is None

    in_shop(work)


def test_a_standby_takes_over_from_a_leader_that_was_killed(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        first = on.start(**SHORT)
        await on.until_bounds("web", 8, 20)
        second = on.start(**SHORT)
        await second.ready()
        before = len(patches(on.proxy))
        first.kill()
        on.prometheus.set("rate", 41)
        await on.until_bounds("web", 5, 20)
        assert (await on.state("web"))["originalMin"] == 3
        assert len(patches(on.proxy)) == before + 1

    in_shop(work)


def test_a_leader_that_slept_through_its_lease_writes_no_more(in_shop: Open, tmp_path: Path) -> None:
    """Each replica has its own way to the API server, so that it shows who writes."""

    async def work(on: Shop) -> None:
        await on.stock("web", 3, 40, **ASKS)
        on.prometheus.set("rate", 72)
        first = on.start(**LONGER)
        await on.until_bounds("web", 8, 40)
        async with FaultProxy(on.plane) as other:
            kubeconfig = other.kubeconfig(tmp_path / "other", base=on.kubeconfig)
            second = on.start(KUBECONFIG=str(kubeconfig), **LONGER)
            await second.ready()
            # Once it has stopped: until then it could still be told of the new rate.
            with on.plane.paused(first.name):
                on.prometheus.set("rate", 91)
                await on.until_bounds("web", 10, 40)
            theirs = len(patches(on.proxy))
            for rate, floor in ((112, 12), (131, 14), (152, 16)):
                on.prometheus.set("rate", rate)
                await on.until_bounds("web", floor, 40)
            await on.deposed(first)
            assert len(patches(on.proxy)) == theirs
            assert len(patches(other)) == 4
            assert (await on.state("web"))["originalMin"] == 3

    in_shop(work)


def test_with_a_watch_a_floor_that_is_set_back_is_raised_again_at_once(in_shop: Open) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        replica = on.start(WATCH_HPAS="true", **{SCALER.interval: "3600"})
        await on.until_bounds("web", 8, 20)

        async def watches() -> bool:
            return any(each.call.is_watch and "horizontalpodautoscalers" in each.call.path for each in on.proxy.log)

        await on.until(watches, "the watch is open")
        questions = len(on.prometheus.seen)
        began = time.monotonic()
        await on.edit("web", minReplicas=4)
        await on.until_bounds("web", 8, 20)
        print(f"\nraised again after {time.monotonic() - began:.2f} s")
        assert (await on.state("web"))["originalMin"] == 4
        assert len(on.prometheus.seen) == questions
        # Raising is all that is done between cycles.

        def looks() -> int:
            gets = [each for each in on.proxy.log if each.call.verb == "GET" and each.call.path.endswith("/web")]
            return len(gets)

        before = looks()
        await on.edit("web", minReplicas=12)

        async def looked() -> bool:
            return looks() > before

        await on.until(looked, "the change is looked at")
        replica.told_to_end()
        assert await replica.ended() == 0
        assert await on.bounds("web") == (12, 20)

    in_shop(work)


STEPS = [(72, (8, 20)), (41, (5, 20)), (250, (25, 26)), (250, (3, 20))]
"""What the query answers, and the bounds that follow; the last step is the opt-out."""


@pytest.mark.parametrize("number", range(1, len(STEPS) + 1))
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_killed_at_any_write_the_original_is_never_lost(in_shop: Open, number: int, done: bool) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        replicas = [on.start(**SHORT)]
        seen = 0

        async def kill() -> None:
            await asyncio.to_thread(replicas[0].kill)

        async def plan(call: Call) -> Fault | None:
            nonlocal seen
            # A note of what a lowering waits for is a write too, and none of these steps.
            if call.verb != "PATCH" or "horizontalpodautoscalers" not in call.path or b'"replace"' not in call.body:
                return None
            seen += 1
            if seen != number:
                return None
            return Reset(done=True, after=kill) if done else Reset(before=kill)

        on.proxy.plan = plan
        for step, (rate, bounds) in enumerate(STEPS, 1):
            on.prometheus.set("rate", rate)
            if step == len(STEPS):
                await on.annotate("web", enabled="false")
            if step == number:

                async def killed() -> bool:
                    return replicas[0].code is not None

                await on.until(killed, f"the leader is killed at write {number}")
                replicas.append(on.start(**SHORT))
            await on.until_bounds("web", *bounds)
            if step < len(STEPS):
                state = await on.state("web")
                assert (state["originalMin"], state["originalMax"]) == (3, 20)
        assert STATE not in (await on.hpa("web"))["metadata"]["annotations"]
        events = await on.api.list("Event", SHOP)
        assert not [each for each in events if each["reason"] in ("ChangedByOthers", "StateUnreadable")]

    in_shop(work)


HPAS, CHANGES = 10, 20


def written(metrics: list[str]) -> dict[str, float]:
    """How many writes there were, by their result."""
    return {
        line.partition('result="')[2].partition('"')[0]: float(line.split()[1])
        for line in metrics
        if line.startswith("tightship_hpa_writes_total")
    }


def test_no_change_is_lost_to_status_updates(in_shop: Open) -> None:
    """The HPA controller writes the status now and then; here every 50 ms, to each HPA. The older controller's way is
    tried beside it: a PUT of what was listed.
    """
    names = [f"web-{number}" for number in range(HPAS)]

    async def work(on: Shop) -> None:
        for name in names:
            await on.api.create(autoscaler(name, 3, 100, hpa_annotations(**ASKS)))
            await on.api.create(autoscaler(f"{name}-put", 3, 100))
        churned = 0
        metrics: list[str] = []

        async def churn(name: str) -> None:
            nonlocal churned
            while True:
                churned += 1
                status = {"status": {"desiredReplicas": churned % 50}}
                await on.api.patch(HPA, name, status, SHOP, subresource="status")
                await asyncio.sleep(0.05)

        everything = [*names, *(f"{name}-put" for name in names)]
        churning = [asyncio.create_task(churn(name)) for name in everything]
        try:
            on.prometheus.set("rate", 35)
            replica = on.start()
            lost = 0
            for change in range(1, CHANGES + 1):
                on.prometheus.set("rate", 10 * (3 + change) - 1)
                for name in names:
                    await on.until_bounds(name, 3 + change, 100)
                listed = [each for each in await on.api.list(HPA, SHOP) if each["metadata"]["name"].endswith("-put")]
                for each in listed:
                    each["spec"]["minReplicas"] = 3 + change
                    path = f"/apis/autoscaling/v2/namespaces/{SHOP}/horizontalpodautoscalers/{each['metadata']['name']}"
                    whole = {**each, "apiVersion": "autoscaling/v2", "kind": HPA}
                    code, _ = await on.api.request("PUT", path, body=whole)
                    assert code in (200, 409)
                    lost += code == 409

            async def counted() -> bool:
                # A write is seen by others before its answer is counted.
                metrics[:] = (await replica.get("/metrics"))[1].splitlines()
                return sum(written(metrics).values()) >= HPAS * CHANGES

            await on.until(counted, "every write is counted")
        finally:
            for task in churning:
                task.cancel()
            ended = await asyncio.gather(*churning, return_exceptions=True)
        assert {type(each) for each in ended} == {asyncio.CancelledError}
        writes = written(metrics)
        total = HPAS * CHANGES
        print(f"\n{total} changes under {churned} status updates: {writes}; of {total} PUTs {lost} were lost")
        assert {result: count for result, count in writes.items() if count} == {"written": total}
        assert "tightship_hpa_rejudged_total 0.0" in metrics
        assert lost > 0

    in_shop(work)
