"""``node-refiner run`` as a process on a real control plane: what it takes, what it leaves, and what stops it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from drains import Run, Site

from tightship_e2e import ControlPlane
from tightship_testkit.client import wait_for
from tightship_testkit.drains import all_ready, removing
from tightship_testkit.faults import Call, Fault
from tightship_testkit.invariants import (
    STEERING,
    claims_made,
    drain,
    evictions_by,
    forbidden,
    most_in_drain,
    mutating,
    node_writes,
    taints,
)
from tightship_testkit.manifests import as_list, node, replicas
from tightship_testkit.refining import (
    ALONE,
    CLOCKS,
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

HALF_FULL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "half-full.yaml"
"""The documentation's example: four nodes, half of the CPU of each requested, and a budget over all pods."""
CLUSTER = "excess_nodes non_tainted_nodes nodes pods cpu_utilization memory_utilization unschedulable_nodes"
NODES = "cordoned drained uncordoned"
OLD_NAMES = [f"node_refiner_cluster_{each}" for each in CLUSTER.split()] + [
    f"node_refiner_nodes_{each}" for each in NODES.split()
]
"""The metrics of the older controller."""


async def counters(replica: Replica) -> dict[str, float]:
    """Return the refiner's own metrics."""
    lines = (await replica.get("/metrics"))[1].splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("node_refiner_")}


def removals(status: Any) -> list[str]:
    """Return the nodes of the plan that a status shows, in order."""
    planned = {each["order"]: each["name"] for each in status["plan"]["nodes"] if each["order"] is not None}
    return [planned[number] for number in sorted(planned)]


@pytest.mark.parametrize(("threshold", "goes"), [(1, 2), (2, 1)])
def test_the_excess_of_a_half_full_cluster_goes(
    on_site: Run, control_plane: ControlPlane, threshold: int, goes: int
) -> None:
    """Every node is at the autoscaler's threshold, so that it keeps them all."""

    async def work(on: Site) -> None:
        await limit(on, 7)
        control_plane.audit_events()
        began = time.monotonic()
        replica = on.start()
        async with removing(on.api) as remover:
            await on.seen(lambda: len(remover.removed) >= goes, f"{goes} nodes are removed")
            await all_ready(on.api)
            await on.free()
            took = time.monotonic() - began
            await on.passes(replica, 4)
        replica.told_to_end()
        assert await replica.ended() == 0
        assert len(remover.removed) == goes
        assert on.recorder.in_drain() == {}
        events = control_plane.audit_events()
        assert forbidden(events, REFINER.user) == []
        assert most_in_drain(events) == 1
        evicted = evictions_by(events, REFINER.user)
        assert set(evicted.values()) == {1}
        assert min(on.recorder.least_spare.values()) >= 0
        left = await on.api.list("Node")
        assert not [node for node in left if drain(node) or node["spec"].get("unschedulable")]
        assert len(left) == 4 - goes
        print(
            f"\nthreshold {threshold}: {goes} of 4 nodes removed in {took:.0f} s, {len(evicted)} evictions, "
            f"longest Pending {on.recorder.longest_pending:.1f} s, "
            f"least spare of the budget {min(on.recorder.least_spare.values())}"
        )

    on_site(work, HALF_FULL, settings=quick(excess_nodes_threshold=threshold), program=REFINER)


def test_a_node_with_a_pod_that_no_budget_lets_go_is_not_touched(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        await limit(on, "100%")
        control_plane.audit_events()
        replica = on.start(**ALONE)
        await on.passes(replica, 4)
        assert mutating(control_plane.audit_events(), REFINER.user) == []
        assert on.recorder.phases("n1") == []
        await limit(on, 4)
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)

    on_site(work, one_to_spare(), settings=quick(), program=REFINER)


def test_a_pod_that_no_budget_lets_go_appears_while_the_node_settles(on_site: Run, control_plane: ControlPlane) -> None:
    """The counters tell both: a drain that was given up, and one that was not."""
    gap = 12

    async def work(on: Site) -> None:
        control_plane.audit_events()
        replica = on.start(**ALONE)
        await on.phase("n1", "Claimed")
        await refuse(on, "n1")
        await on.configured(quick(settle_time="5s", time_gap=f"{gap}s"))
        why = await given_back(on, "n1")
        await relent(on)
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)
        events = control_plane.audit_events()
        begun = claims_made(events)
        assert len(begun) == 2, on.logs()
        second = begun[1]
        paused = second.seconds - entered(node_writes(events), "Backoff").asked
        assert "shop/late" in why
        assert paused >= gap - CLOCKS
        evicted = [each for each in events if each.object_ref.subresource == "eviction"]
        assert all(each.request_received_timestamp > second.at for each in evicted)
        print(f"\n{why}\ntried again after {paused:.1f} s")

        async def counted() -> bool:
            told = await counters(replica)
            return [told[f"node_refiner_nodes_{what}"] for what in NODES.split()] == [2, 1, 1]

        await wait_for(counted, 60, "the counters have counted")

    on_site(work, one_to_spare(), settings=quick(settle_time=HOUR, time_gap=f"{gap}s"), program=REFINER)


def test_a_budget_stops_allowing_while_pods_are_evicted(on_site: Run, control_plane: ControlPlane) -> None:
    gap = 6

    async def work(on: Site) -> None:
        control_plane.audit_events()

        async def plan(call: Call) -> Fault | None:
            # Before it hears that the first pod leaves: the next is evicted once that one is gone.
            return Fault(after=lambda: limit(on, "100%")) if call.path.endswith("/early-0/eviction") else None

        on.proxy.plan = plan
        on.start(**ALONE)
        why = await given_back(on, "n1")
        moved = evictions_by(given_up := control_plane.audit_events(), REFINER.user)
        assert moved == {"shop/early-0": 1}
        await limit(on, 4)
        await on.configured(quick(time_gap=f"{gap}s"))
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)
        events = [*given_up, *control_plane.audit_events()]
        paused = claims_made(events)[1].seconds - entered(node_writes(events), "Backoff").asked
        assert "shop/web" in why
        assert paused >= gap - CLOCKS
        print(f"\n{why}\ntried again after {paused:.1f} s")

    settings = quick(time_gap=f"{gap}s", maximum_evictions_in_flight=1, pod_eviction_timeout="2s")
    early = slow(replicas("early", ["n1"], app="early"), "5s")
    on_site(work, one_to_spare(*early), settings=settings, program=REFINER)


def test_a_dry_run_writes_nothing_and_plans_the_same(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        dry = on.start(DRY_RUN="true")
        await on.passes(dry, 4)
        planned = removals(await dry.status())
        dry.told_to_end()
        assert await dry.ended() == 0
        assert mutating(control_plane.audit_events(), REFINER.user) == []
        assert on.proxy.writes == []
        await on.configured(quick(time_since_last_addition=HOUR))
        real = on.start()
        await real.says('"leader":true')
        await on.passes(real, 2)
        assert removals(await real.status()) == planned == ["n4", "n1"]

    on_site(work, two_to_spare(), settings=quick(), program=REFINER)


def test_the_drainer_is_switched_on_and_off_while_it_runs(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        replica = on.start()
        await on.passes(replica, 4)
        status = await replica.status()
        assert status["switchedOff"]
        assert removals(status) == ["n4", "n1"]
        assert mutating(control_plane.audit_events(), REFINER.user) == []
        switched = time.monotonic()
        await on.configured(quick())
        await on.phase("n4", "Claimed")
        took = time.monotonic() - switched
        await on.phase("n4", "Evicting")
        await on.configured(quick(drainer_enabled="False"))
        await replica.says("switched off: nothing new is begun")
        async with removing(on.api):
            await on.gone("n4")

            async def resigned() -> bool:
                return not (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity")

            await wait_for(resigned, 60, "the Lease is given up")
            await on.passes(replica, 4)
        await on.free()
        await all_ready(on.api)
        assert on.recorder.phases("n1") == []
        left = await on.api.list("Node")
        assert not [each for each in left if STEERING in {taint["key"] for taint in taints(each)}]
        assert len(claims_made(control_plane.audit_events())) == 1
        print(f"\nclaimed {took:.1f} s after it was switched on")

    on_site(work, two_to_spare("6s"), settings=quick(drainer_enabled="False"), program=REFINER)


@pytest.mark.parametrize("minimum", ["minimum_nodes", "minimum_non_tainted_nodes"])
def test_a_minimum_is_never_gone_below(on_site: Run, control_plane: ControlPlane, minimum: str) -> None:
    """A fifth node has a taint, and counts for one of them only."""
    there = 5 if minimum == "minimum_nodes" else 4

    async def work(on: Site) -> None:
        control_plane.audit_events()
        replica = on.start(**ALONE)
        async with removing(on.api) as remover:
            await on.passes(replica, 4)
            assert mutating(control_plane.audit_events(), REFINER.user) == []
            await on.configured(quick(**{minimum: there - 1}))
            await on.seen(lambda: len(remover.removed) == 1, "one node is removed")
            await all_ready(on.api)
            await on.free()
            await on.passes(replica, 4)
        assert len(claims_made(control_plane.audit_events())) == 1
        assert len(await on.api.list("Node")) == 4

    tainted = node("kept", taints=[{"key": "example.com/kept", "effect": "NoSchedule"}])
    cluster = as_list(*yaml.safe_load(HALF_FULL.read_text())["items"], tainted)
    on_site(work, cluster, settings=quick(**{minimum: there}), program=REFINER)


def test_edits_of_the_configuration_take_effect_and_bad_ones_do_not(on_site: Run) -> None:
    async def work(on: Site) -> None:
        async def valid() -> float:
            text = (await replica.get("/metrics"))[1]
            return float(re.findall(r"^tightship_config_valid(?:{.*})? (\S+)$", text, re.MULTILINE)[0])

        async def told() -> list[str]:
            events = await on.api.list("Event", NAMESPACE)
            return [each["message"] for each in events if each["reason"] == "ConfigInvalid"]

        replica = on.start(**ALONE)
        await on.passes(replica, 2)
        assert await valid() == 1
        edited = time.monotonic()
        await on.configured(quick(excess_nodes_threshold="many", bogus="1"))
        [message] = await wait_for(told, 60, "an Event of the bad configuration")
        refused = time.monotonic() - edited
        assert "many" in message
        assert "bogus" in message
        assert await valid() == 0
        await on.passes(replica, 3)
        assert on.recorder.moments == []
        assert (await replica.status())["plan"]["settings"]["values"]["excess_nodes_threshold"] == 99
        edited = time.monotonic()
        await on.configured(quick())
        await on.phase("n1", "Claimed")
        print(f"\nrefused after {refused:.1f} s, the good one acted on after {time.monotonic() - edited:.1f} s")
        assert await valid() == 1
        async with removing(on.api):
            await on.gone("n1")

    on_site(work, one_to_spare(), settings=quick(excess_nodes_threshold=99), program=REFINER)


def test_every_older_metric_is_served(on_site: Run) -> None:
    async def work(on: Site) -> None:
        replica = on.start(DRY_RUN="true")
        await on.passes(replica, 2)
        told = await counters(replica)
        assert [name for name in OLD_NAMES if name not in told] == []
        assert told["node_refiner_cluster_excess_nodes"] == 2
        assert told["node_refiner_cluster_cpu_utilization"] == 50
        assert told["node_refiner_cluster_pods"] == 8

    on_site(work, HALF_FULL, settings=quick(), program=REFINER)
