"""``hpa-scaler run`` as a process on a real control plane: what it sets, what it gives back, and what stops it."""

from __future__ import annotations

import asyncio

import pytest
from floors import Open, Shop

from tightship_e2e import ControlPlane
from tightship_testkit.audit_readings import forbidden
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.floors import DEADLINE, SHOP, STATE
from tightship_testkit.replica import SCALER

ASKS = {"prometheus_query": "rate", "requests_per_replica": 10, "minimum_replicas": 1}
SHORT = {"LEASE_DURATION_SECONDS": "10", "LEASE_RENEW_DEADLINE_SECONDS": "8", "LEASE_RETRY_PERIOD_SECONDS": "1"}


@pytest.mark.takes(20)
def test_a_floor_follows_its_query_up_and_down(in_shop: Open, control_plane: ControlPlane) -> None:
    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        on.prometheus.set("rate", 72)
        control_plane.audit_events()
        replica = on.start()
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
        replica.told_to_end()
        assert await replica.ended() == 0
        assert forbidden(control_plane.audit_events(), SCALER.user) == []

    in_shop(work)


STEPS = [(72, (8, 20)), (41, (5, 20)), (250, (25, 26)), (250, (3, 20))]
"""What the query answers, and the bounds that follow; the last step is the opt-out."""


@pytest.mark.takes(20)
def test_killed_after_its_first_write_the_original_is_not_lost(in_shop: Open) -> None:
    """All writes, and all requests, are tried on virtual time: packages/hpa-scaler/tests/running/test_kills.py."""

    async def work(on: Shop) -> None:
        await on.stock("web", 3, 20, **ASKS)
        replicas = [on.start(**SHORT)]

        async def plan(call: Call) -> Fault | None:
            if call.verb != "PATCH" or "horizontalpodautoscalers" not in call.path or replicas[0].code is not None:
                return None
            return Reset(done=True, after=lambda: asyncio.to_thread(replicas[0].kill))

        on.proxy.plan = plan
        for step, (rate, bounds) in enumerate(STEPS, 1):
            on.prometheus.set("rate", rate)
            if step == len(STEPS):
                await on.annotate("web", enabled="false")
            if step == 1:

                async def killed() -> bool:
                    return replicas[0].code is not None

                await on.until(killed, "the leader is killed at its first write")
                replicas.append(on.start(**SHORT))
            await on.until_bounds("web", *bounds)
            if step < len(STEPS):
                state = await on.state("web")
                assert (state["originalMin"], state["originalMax"]) == (3, 20)
        assert STATE not in (await on.hpa("web"))["metadata"]["annotations"]
        events = await on.api.list("Event", SHOP)
        assert not [each for each in events if each["reason"] in ("ChangedByOthers", "StateUnreadable")]

    in_shop(work)
