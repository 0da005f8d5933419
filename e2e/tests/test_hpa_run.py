"""``hpa-scaler run`` as a process on a real control plane: what it sets, what it gives back, and what stops it."""

from __future__ import annotations

import asyncio

import pytest
from floors import Open, Shop

from tightship_e2e import ControlPlane
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.floors import DEADLINE, HPA, SHOP, STATE, autoscaler, hpa_annotations
from tightship_testkit.invariants import forbidden
from tightship_testkit.replica import SCALER

ASKS = {"prometheus_query": "rate", "requests_per_replica": 10, "minimum_replicas": 1}
SHORT = {"LEASE_DURATION_SECONDS": "4", "LEASE_RENEW_DEADLINE_SECONDS": "3", "LEASE_RETRY_PERIOD_SECONDS": "0.3"}


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
