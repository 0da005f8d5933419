"""What stands before the API server: slow webhooks, policies that clean metadata, a Lease that others have filled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from tightship.draining.lease_room import LIMIT, size
from tightship.objects.drain_record import DRAIN_ANNOTATION
from tightship_testkit.admission import SlowWebhook, cleaning
from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster, small
from tightship_testkit.marks import TAINT, drain, taints
from tightship_testkit.refining import slow
from tightship_testkit.replica import claims

pytestmark = pytest.mark.virtual_time

LATE = {**SETTINGS, "nodeDrainTimeout": "12s", "podEvictionTimeout": "12s", "backoff": "600s", "backoffLimit": "600s"}


def free(on: EmbeddedCluster) -> bool:
    """Whether n1 is as it was before its drain, but for the note of the back-off."""
    found = on.recorder.node("n1") or {}
    held = found["spec"].get("unschedulable") or TAINT in {each["key"] for each in taints(found)}
    return not held and drain(found).get("phase") in (None, "Backoff")


@pytest.mark.parametrize("what", ["nodes", "nodes and leases", "events, pods and nodes"])
async def test_a_node_is_given_back_though_each_of_its_writes_takes_thirty_seconds(tmp_path: Path, what: str) -> None:
    """The Lease of the election is spared: without it nobody leads."""

    def matches(path: str) -> bool:
        parts = path.split("/")
        return any(kind in parts for kind in what.replace(",", "").split()) and not path.endswith("-leader")

    webhook = SlowWebhook(matches)
    cluster = small()
    slow(cluster["items"], "10m")
    async with embedded_cluster(tmp_path, cluster, LATE, ending=600, admission=webhook.middleware) as on:
        replica = on.start()
        await on.phase("n1", "Evicting")
        webhook.hangs = True
        began = on.yard.simulation.wall()
        await on.seen(lambda: free(on), "n1 is given back", deadline=300)
        assert on.yard.simulation.wall() - began < 150
        assert webhook.dropped == 0
        assert '"leads no longer' not in replica.log
        webhook.hangs = False
        await on.free()


async def test_what_a_controller_by_hand_holds_is_given_back_when_it_is_told_to_end(tmp_path: Path) -> None:
    """Nobody comes after it. With the chart's times it outlasts one write that takes thirty seconds."""
    webhook = SlowWebhook(lambda path: "nodes" in path.split("/"))
    cluster = small()
    slow(cluster["items"], "10m")
    async with embedded_cluster(tmp_path, cluster, SETTINGS, ending=600, admission=webhook.middleware) as on:
        times = {"STOP_TIMEOUT": "37s", "STOP_GRACE": "55s"}
        replica = on.start(KUBERNETES_SERVICE_HOST="", DRY_RUN="false", **times)
        await on.phase("n1", "Evicting")
        webhook.hangs = True
        replica.asked_to_end()
        assert await replica.ended() == 0
        await on.seen(lambda: free(on), "n1 is given back")
        assert await claims(on.api, on.team) == []


async def test_a_full_lease_stops_no_drain_and_is_said_once(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), SETTINGS) as on:
        replica = on.start()
        await on.phase("n1", "Evicting")
        lease = f"{on.team}-claims"

        def fill(thing: dict) -> None:
            notes = thing["metadata"]["annotations"]
            notes["example.com/a"] = "x" * (LIMIT - size(notes) - len("example.com/a") - 40)

        on.yard.simulation.store.modify("Lease", lease, "kube-system", fill)
        with on.removing():
            await on.gone("n1")
            await on.free()
        await on.passes(replica, 4)
        assert await claims(on.api, on.team) == []
        [problem] = (await replica.status())["problems"]
        assert problem.startswith(f"Lease kube-system/{lease} is full")
        assert "annotation example.com/a" in problem
        assert replica.log.count("is full, as it takes") == 1


@web.middleware
async def no_eviction(request: web.Request, handler: Handler) -> web.StreamResponse:
    """An API server that has no time for evictions: what fails is the drain, and nothing is left of it."""
    if request.path.endswith("/eviction"):
        return web.json_response({"kind": "Status", "code": 429, "reason": "TooManyRequests"}, status=429)
    return await handler(request)


def writes(on: EmbeddedCluster) -> int:
    """Return how often controllers have written n1."""
    return sum((each.resource, each.name) == ("nodes", "n1") for each in on.yard.written())


async def test_a_policy_that_removes_each_record_at_once_stops_claims_and_is_said(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, small(), SETTINGS) as on:
        on.yard.simulation.store.mutating.append(cleaning(DRAIN_ANNOTATION))
        replica = on.start()
        await on.passes(replica, 60)
        status = await replica.status()
        [problem] = status["problems"]
        assert problem.startswith(f"Annotation {DRAIN_ANNOTATION} vanished from node n1 soon after it was written")
        assert status["held"]["n1"]["reason"] == "Backoff"
        assert replica.log.count("vanished from node n1 soon") == 1
        assert writes(on) <= 8
        assert free(on)
        assert await claims(on.api, on.team) == []
        assert on.yard.evicted() == []
        # Between the claim and its undoing nothing says who is responsible: that is the policy's doing.
        assert {each.partition(": ")[0] for each in on.recorder.problems} == {"0.10 s"}
        on.recorder.problems.clear()
        on.yard.simulation.store.mutating.clear()
        with on.removing():
            await on.gone("n1")


@pytest.mark.parametrize("after", [1.0, 20.0])
async def test_a_tool_that_removes_the_note_of_each_failed_drain_gets_few_drains(tmp_path: Path, after: float) -> None:
    """Without a memory of its own the controller would drain n1 again at once, again and again."""
    async with embedded_cluster(tmp_path, small(), LATE, admission=no_eviction) as on:
        replica = on.start()
        ends = on.yard.simulation.wall() + 300
        while on.yard.simulation.wall() < ends:
            await asyncio.sleep(after)
            if drain(await on.api.get("Node", "n1")).get("phase") == "Backoff":
                await on.api.patch("Node", "n1", {"metadata": {"annotations": {DRAIN_ANNOTATION: None}}})
        assert 2 <= replica.log.count("cordoned and tainted the node") <= 4
        assert "vanished from node n1" in replica.log


async def test_a_pool_that_is_switched_on_and_off_costs_few_writes(tmp_path: Path) -> None:
    off = {**SETTINGS, "nodePools": {"*": {"enabled": False}}}
    async with embedded_cluster(tmp_path, small(), {**SETTINGS, "candidateTaints": 3}) as on:
        on.start()
        rounds = 40
        before = on.yard.simulation.wall()
        for number in range(rounds):
            await on.configured(off if number % 2 else {**SETTINGS, "neededMarkedTimeForRemoval": "600s"})
            await asyncio.sleep(4)
        hours = (on.yard.simulation.wall() - before) / 3600
        assert writes(on) <= 10 + 40 * hours
