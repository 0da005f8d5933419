"""What stands before the API server: slow webhooks, policies that clean metadata, a Lease that others have filled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship.drain_io.lease_room import LIMIT, size
from tightship_testkit.admission import SlowWebhook
from tightship_testkit.drains import SETTINGS
from tightship_testkit.embedded import Ground, ground, small
from tightship_testkit.marks import TAINT, drain, taints
from tightship_testkit.refining import slow
from tightship_testkit.replica import claims

pytestmark = pytest.mark.virtual_time

LATE = {**SETTINGS, "nodeDrainTimeout": 12, "podEvictionTimeout": 12, "backoff": 600, "backoffLimit": 600}


def free(on: Ground) -> bool:
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
    async with ground(tmp_path, cluster, LATE, ending=600, admission=webhook.middleware) as on:
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
    async with ground(tmp_path, cluster, SETTINGS, ending=600, admission=webhook.middleware) as on:
        times = {"STOP_TIMEOUT_SECONDS": "37", "STOP_GRACE_SECONDS": "55"}
        replica = on.start(KUBERNETES_SERVICE_HOST="", DRY_RUN="false", **times)
        await on.phase("n1", "Evicting")
        webhook.hangs = True
        replica.told_to_end()
        assert await replica.ended() == 0
        await on.seen(lambda: free(on), "n1 is given back")
        assert await claims(on.api, on.team) == []


async def test_a_full_lease_stops_no_drain_and_is_said_once(tmp_path: Path) -> None:
    async with ground(tmp_path, small(), SETTINGS) as on:
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
