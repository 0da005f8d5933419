"""Running node-refiners on the embedded cluster: what they take, what they leave, and what stops them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tightship_testkit.audit_readings import claims_made, evictions_by, mutating, node_writes
from tightship_testkit.client import Json, wait_for
from tightship_testkit.drains import all_ready
from tightship_testkit.embedded import Ground, ground
from tightship_testkit.faults import Call, Fault
from tightship_testkit.manifests import node, replicas
from tightship_testkit.marks import STEERING, drain, taints
from tightship_testkit.refining import (
    ALONE,
    HOUR,
    entered,
    given_back,
    limit,
    one_to_spare,
    quick,
    refuse,
    relent,
    slow,
    two_to_spare,
)
from tightship_testkit.replica import NAMESPACE, REFINER, Replica, lease

pytestmark = pytest.mark.virtual_time

EXAMPLE = Path(__file__).resolve().parents[4] / "docs" / "examples" / "half-full.yaml"
"""The documentation's example: four nodes, half of the CPU of each requested, and a budget over all pods."""
CLUSTER = "excess_nodes non_tainted_nodes nodes pods cpu_utilization memory_utilization unschedulable_nodes"
NODES = "cordoned drained uncordoned"
OLD_NAMES = [f"node_refiner_cluster_{each}" for each in CLUSTER.split()] + [
    f"node_refiner_nodes_{each}" for each in NODES.split()
]
"""The metrics of the older controller."""


def half_full(*more: Json) -> Json:
    found: Json = yaml.safe_load(EXAMPLE.read_text())
    return {**found, "items": [*found["items"], *more]}


async def counters(replica: Replica) -> dict[str, float]:
    """Return the refiner's own metrics."""
    lines = (await replica.get("/metrics"))[1].splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("node_refiner_")}


def removals(status: Any) -> list[str]:
    """Return the nodes of the plan that a status shows, in order."""
    planned = {each["order"]: each["name"] for each in status["plan"]["nodes"] if each["order"] is not None}
    return [planned[number] for number in sorted(planned)]


def written(on: Ground) -> list[str]:
    return mutating(on.events, REFINER.user)


@pytest.mark.parametrize(("threshold", "goes"), [(1, 2), (2, 1)])
async def test_the_excess_of_a_half_full_cluster_goes(tmp_path: Path, threshold: int, goes: int) -> None:
    """Every node is at the autoscaler's threshold, so that it keeps them all."""
    async with ground(tmp_path, half_full(), quick(excess_nodes_threshold=threshold), REFINER) as on:
        await limit(on, 7)
        replica = on.start()
        with on.removing() as remover:
            await on.seen(lambda: len(remover.removed) >= goes, f"{goes} nodes are removed")
            await all_ready(on.api)
            await on.free()
            await on.passes(replica, 4)
        replica.told_to_end()
        assert await replica.ended() == 0
        assert len(remover.removed) == goes
        assert on.recorder.in_drain() == {}
        assert on.recorder.most_in_drain == 1
        assert len(claims_made(on.events)) == goes
        assert set(evictions_by(on.events, REFINER.user).values()) == {1}
        assert min(on.recorder.least_spare.values()) >= 0
        left = await on.api.list("Node")
        assert not [node for node in left if drain(node) or node["spec"].get("unschedulable")]
        assert len(left) == 4 - goes


async def test_a_node_with_a_pod_that_no_budget_lets_go_is_not_touched(tmp_path: Path) -> None:
    async with ground(tmp_path, one_to_spare(), quick(), REFINER) as on:
        await limit(on, "100%")
        replica = on.start(**ALONE)
        await on.passes(replica, 4)
        assert written(on) == []
        assert on.recorder.phases("n1") == []
        await limit(on, 4)
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)


async def test_a_pod_that_no_budget_lets_go_appears_while_the_node_settles(tmp_path: Path) -> None:
    """The counters tell both: a drain that was given up, and one that was not."""
    gap = 12
    settings = quick(settle_time=HOUR, time_gap=f"{gap}s")
    async with ground(tmp_path, one_to_spare(), settings, REFINER) as on:
        replica = on.start(**ALONE)
        await on.phase("n1", "Claimed")
        await refuse(on, "n1")
        await on.configured(quick(settle_time="5s", time_gap=f"{gap}s"))
        assert "shop/late" in await given_back(on, "n1")
        assert on.yard.evicted() == []
        await relent(on)
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)
        begun = claims_made(on.events)
        assert len(begun) == 2
        paused = begun[1].seconds - entered(node_writes(on.events), "Backoff").asked
        assert gap <= paused <= gap + 1
        evicted = [each for each in on.events if each.object_ref.subresource == "eviction"]
        assert all(each.request_received_timestamp > begun[1].at for each in evicted)

        async def counted() -> bool:
            told = await counters(replica)
            return [told[f"node_refiner_nodes_{what}"] for what in NODES.split()] == [2, 1, 1]

        await wait_for(counted, 60, "the counters have counted")


async def test_a_budget_stops_allowing_while_pods_are_evicted(tmp_path: Path) -> None:
    gap = 6
    settings = quick(time_gap=f"{gap}s", maximum_evictions_in_flight=1, pod_eviction_timeout="2s")
    early = slow(replicas("early", ["n1"], app="early"), "5s")
    async with ground(tmp_path, one_to_spare(*early), settings, REFINER) as on:

        async def plan(call: Call) -> Fault | None:
            # Before it hears that the first pod leaves: the next is evicted once that one is gone.
            return Fault(after=lambda: limit(on, "100%")) if call.path.endswith("/early-0/eviction") else None

        on.audit.plan = plan
        on.start(**ALONE)
        assert "shop/web" in await given_back(on, "n1")
        assert evictions_by(on.events, REFINER.user) == {"shop/early-0": 1}
        on.audit.plan = None
        await limit(on, 4)
        await on.configured(quick(time_gap=f"{gap}s"))
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)
        paused = claims_made(on.events)[1].seconds - entered(node_writes(on.events), "Backoff").asked
        assert gap <= paused <= gap + 1


async def test_the_drainer_is_switched_on_and_off_while_it_runs(tmp_path: Path) -> None:
    off = quick(drainer_enabled="False")
    async with ground(tmp_path, two_to_spare("6s"), off, REFINER) as on:
        replica = on.start()
        await on.passes(replica, 4)
        status = await replica.status()
        assert status["switchedOff"]
        assert removals(status) == ["n4", "n1"]
        assert written(on) == []
        await on.configured(quick())
        await on.phase("n4", "Claimed")
        await on.phase("n4", "Evicting")
        await on.configured(off)
        await replica.says("switched off: no new drain begins")
        with on.removing():
            await on.gone("n4")

            async def resigned() -> bool:
                return not (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity")

            await wait_for(resigned, 60, "the Lease is given up")
            await on.passes(replica, 4)
        await on.free()
        await all_ready(on.api)
        assert on.recorder.phases("n1") == []
        assert not [each for each in await on.api.list("Node") if STEERING in {mark["key"] for mark in taints(each)}]
        assert len(claims_made(on.events)) == 1


@pytest.mark.parametrize("minimum", ["minimum_nodes", "minimum_non_tainted_nodes"])
async def test_a_minimum_is_never_gone_below(tmp_path: Path, minimum: str) -> None:
    """A fifth node has a taint, and counts for one of them only."""
    there = 5 if minimum == "minimum_nodes" else 4
    tainted = node("kept", taints=[{"key": "example.com/kept", "effect": "NoSchedule"}])
    async with ground(tmp_path, half_full(tainted), quick(**{minimum: there}), REFINER) as on:
        replica = on.start(**ALONE)
        with on.removing() as remover:
            await on.passes(replica, 4)
            assert written(on) == []
            await on.configured(quick(**{minimum: there - 1}))
            await on.seen(lambda: len(remover.removed) == 1, "one node is removed")
            await all_ready(on.api)
            await on.free()
            await on.passes(replica, 4)
        assert len(claims_made(on.events)) == 1
        assert len(await on.api.list("Node")) == 4


# Configuration, dry run, metrics.


async def test_edits_of_the_configuration_take_effect_and_bad_ones_do_not(tmp_path: Path) -> None:
    async with ground(tmp_path, one_to_spare(), quick(excess_nodes_threshold=99), REFINER) as on:

        async def valid() -> float:
            text = (await replica.get("/metrics"))[1]
            return float(re.findall(r"^tightship_config_valid(?:{.*})? (\S+)$", text, re.MULTILINE)[0])

        async def told() -> list[str]:
            events = await on.api.list("Event", NAMESPACE)
            return [each["message"] for each in events if each["reason"] == "ConfigInvalid"]

        replica = on.start(**ALONE)
        await on.passes(replica, 2)
        assert await valid() == 1
        await on.configured(quick(excess_nodes_threshold="many", bogus="1"))
        [message] = await wait_for(told, 60, "an Event of the bad configuration")
        assert "many" in message
        assert "bogus" in message
        assert await valid() == 0
        await on.passes(replica, 3)
        assert on.recorder.moments == []
        assert (await replica.status())["plan"]["settings"]["values"]["excess_nodes_threshold"] == 99
        await on.configured(quick())
        await on.phase("n1", "Claimed")
        assert await valid() == 1
        with on.removing():
            await on.gone("n1")


async def test_switched_off_it_stays_so_when_its_configuration_is_deleted(tmp_path: Path) -> None:
    """As an uninstall does: the defaults would drain."""
    async with ground(tmp_path, one_to_spare(), quick(drainer_enabled="false"), REFINER) as on:
        replica = on.start()
        await on.passes(replica)
        assert await on.api.delete("ConfigMap", on.team, NAMESPACE)
        await replica.says("was deleted")
        await on.passes(replica, 4)
        status = await replica.status()
        assert status["switchedOff"]
        told = f"ConfigMap {NAMESPACE}/{on.team} was deleted; nothing new begins until it is back"
        assert status["problems"] == [told]
        page = (await replica.get("/"))[1]
        assert f">{told}<" in page
        assert "refused" not in page
        assert on.recorder.phases("n1") == []
        await on.configured(quick())
        with on.removing():
            await on.gone("n1")


async def test_a_dry_run_writes_nothing_and_plans_the_same(tmp_path: Path) -> None:
    async with ground(tmp_path, two_to_spare(), quick(), REFINER) as on:
        dry = on.start(DRY_RUN="true")
        await on.passes(dry, 4)
        planned = removals(await dry.status())
        dry.told_to_end()
        assert await dry.ended() == 0
        # The log of requests holds what it has read, so that an empty list of writes means something.
        assert {"nodes", "pods"} <= {each.object_ref.resource for each in on.events}
        assert written(on) == []
        await on.configured(quick(time_since_last_addition=HOUR))
        real = on.start()
        await real.says('"leader":true')
        await on.passes(real, 2)
        assert removals(await real.status()) == planned == ["n4", "n1"]


async def test_every_older_metric_is_served(tmp_path: Path) -> None:
    async with ground(tmp_path, half_full(), quick(), REFINER) as on:
        replica = on.start(DRY_RUN="true")
        await on.passes(replica, 2)
        told = await counters(replica)
        assert [name for name in OLD_NAMES if name not in told] == []
        assert told["node_refiner_cluster_excess_nodes"] == 2
        assert told["node_refiner_cluster_cpu_utilization"] == 50
        assert told["node_refiner_cluster_pods"] == 8
