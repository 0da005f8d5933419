"""``node-refiner run`` as a process on a real control plane: what it takes, what it leaves, and what stops it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters import as_list, node, replicas
from drains import Run, Site, all_ready, removing, small, spare

from tightship_e2e import ControlPlane
from tightship_e2e.autoscaler import off_peak
from tightship_e2e.client import Json, wait_for
from tightship_e2e.invariants import (
    STEERING,
    TAINT,
    NodeWrite,
    claims_made,
    drain,
    evictions_by,
    forbidden,
    most_in_drain,
    mutating,
    node_writes,
    quarrels,
    taints,
)
from tightship_e2e.replica import (
    COMPACTOR,
    NAMESPACE,
    QUICK,
    QUICK_REFINER,
    REFINER,
    Replica,
    Settings,
    lease,
    new_team,
)

HALF_FULL = Path(__file__).resolve().parents[2] / "docs" / "examples" / "half-full.yaml"
"""The documentation's example: four nodes, half of the CPU of each requested, and a budget over all pods."""
ALONE = {"LEADER_ELECT": "false"}
"""No Lease of an election is written or waited for."""
KEEP = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
HOUR = 60
"""Minutes, the unit of plain numbers."""
OLD_NAMES = [
    *(
        f"node_refiner_cluster_{name}"
        for name in (
            "excess_nodes",
            "non_tainted_nodes",
            "nodes",
            "pods",
            "cpu_utilization",
            "memory_utilization",
            "unschedulable_nodes",
        )
    ),
    *(f"node_refiner_nodes_{name}" for name in ("cordoned", "drained", "uncordoned")),
]
CLOCKS = 0.1
"""Seconds by which a time in the audit log may be off."""


def quick(**changes: object) -> Settings:
    return {**QUICK_REFINER, **changes}


def slow(items: list[Json], ends_in: str) -> list[Json]:
    """Have pods take their time to end."""
    for item in items:
        if item["kind"] == "Pod":
            item["metadata"]["annotations"] = {"e2e.tightship.dev/exit-after": ends_in}
            item["spec"]["terminationGracePeriodSeconds"] = 30
    return items


def one_to_spare(*more: Json) -> Json:
    """A cluster: n1 may go, n2 and n3 have room and are not to be touched."""
    cluster = small(*more)
    for item in cluster["items"]:
        if item["kind"] == "Node" and item["metadata"]["name"] in ("n2", "n3"):
            item["metadata"]["annotations"][KEEP] = "true"
    return cluster


def two_to_spare(ends_in: str = "") -> Json:
    """The same, and n4 may go too: before n1, since it has less to do."""
    two = replicas("two", ["n4", "n4"], app="two")
    return one_to_spare(spare("n4"), *(slow(two, ends_in) if ends_in else two))


async def limit(on: Site, at_least: int | str) -> None:
    """Write the budget of the pods of ``web``."""
    await on.api.patch("PodDisruptionBudget", "web", {"spec": {"minAvailable": at_least}}, "shop")


async def refuse(on: Site, where: str) -> None:
    """Bind a pod to a node past its cordon, which no budget lets go."""
    labels = {"app": "late"}
    # No owner would make it anew: it says itself that this is no obstacle.
    vouched = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    meta: Json = {"name": "late", "namespace": "shop"}
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": where}
    held = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    await on.api.create({"kind": "Pod", "metadata": {**meta, "labels": labels, "annotations": vouched}, "spec": spec})
    await on.seen(lambda: on.recorder.ready("shop/late"), "the late pod is Ready")
    await on.api.create({"kind": "PodDisruptionBudget", "metadata": meta, "spec": held})


async def relent(on: Site) -> None:
    """Take the budget away that :func:`refuse` has made."""
    await on.api.delete("PodDisruptionBudget", "late", "shop")


async def given_back(on: Site, name: str) -> str:
    """Wait until a drain has been given up, see that the node is as it was, and return why."""
    await on.phase(name, "Backoff")
    seen = on.recorder.node(name) or {}
    assert not seen["spec"].get("unschedulable")
    assert not [each for each in taints(seen) if each["key"] == TAINT]
    assert "example.com/soft" in {each["key"] for each in taints(seen)}
    return str(drain(seen)["reason"])


def entered(writes: list[NodeWrite], phase: str) -> float:
    """Return when a phase was written first, in seconds since 1970."""
    return next(each.seconds for each in writes if each.drain.get("phase") == phase)


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
    gap = 6

    async def work(on: Site) -> None:
        control_plane.audit_events()
        replica = on.start(**ALONE)
        await on.phase("n1", "Claimed")
        await refuse(on, "n1")
        why = await given_back(on, "n1")
        await relent(on)
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)
        events = control_plane.audit_events()
        _, second = claims_made(events)
        paused = second.seconds - entered(node_writes(events), "Backoff")
        assert "shop/late" in why
        assert paused >= gap - CLOCKS
        evicted = [each for each in events if each.object_ref.subresource == "eviction"]
        assert all(each.request_received_timestamp > second.at for each in evicted)
        print(f"\n{why}\ntried again after {paused:.1f} s")

        async def counted() -> bool:
            told = await counters(replica)
            return [told[f"node_refiner_nodes_{what}"] for what in ("cordoned", "drained", "uncordoned")] == [2, 1, 1]

        await wait_for(counted, 30, "the counters have counted")

    on_site(work, one_to_spare(), settings=quick(settle_time="5s", time_gap=f"{gap}s"), program=REFINER)


def test_a_budget_stops_allowing_while_pods_are_evicted(on_site: Run, control_plane: ControlPlane) -> None:
    gap = 6

    async def work(on: Site) -> None:
        control_plane.audit_events()
        on.start(**ALONE)

        def one_is_leaving() -> bool:
            return any("early-0/eviction" in each.call.path and each.status == 201 for each in on.proxy.writes)

        await on.seen(one_is_leaving, "the first pod is evicted")
        await limit(on, "100%")
        why = await given_back(on, "n1")
        moved = evictions_by(given_up := control_plane.audit_events(), REFINER.user)
        assert moved == {"shop/early-0": 1}
        await limit(on, 4)
        await on.configured(quick(time_gap=f"{gap}s"))
        async with removing(on.api):
            await on.gone("n1")
        await all_ready(on.api)
        events = [*given_up, *control_plane.audit_events()]
        paused = claims_made(events)[1].seconds - entered(node_writes(events), "Backoff")
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


# Killed while it waits.


async def after_an_addition(on: Site) -> float:
    """The cluster's nodes were made a moment ago."""
    made = [each["metadata"]["creationTimestamp"] for each in await on.api.list("Node")]
    return time.mktime(time.strptime(max(made), "%Y-%m-%dT%H:%M:%SZ")) - time.timezone


async def after_a_success(on: Site) -> float:
    await on.phase("n4", "Drained")
    began = time.time()
    async with removing(on.api):
        await on.gone("n4")
    await on.free()
    return began


async def after_a_failure(on: Site) -> float:
    await on.phase("n4", "Claimed")
    began = time.time()
    await refuse(on, "n4")
    await given_back(on, "n4")
    await on.free()
    await relent(on)
    return began


PAUSES = [
    (after_an_addition, "time_since_last_addition"),
    (after_a_success, "time_gap"),
    (after_a_failure, "time_gap"),
]


@pytest.mark.parametrize(("pause", "key"), PAUSES, ids=[pause.__name__ for pause, _ in PAUSES])
def test_killed_in_a_pause_nothing_begins_early(
    on_site: Run, control_plane: ControlPlane, pause: Any, key: str
) -> None:
    """The pause is an hour first, and cut to some seconds from now on once the next one has stood it for a while."""

    async def work(on: Site) -> None:
        control_plane.audit_events()
        first = on.start(**ALONE)
        await on.passes(first, 1)
        since = await pause(on)
        await on.passes(first, 2)
        first.kill()
        before = control_plane.audit_events()
        second = on.start(**ALONE)
        await on.passes(second, 4)
        held = (await second.status())["held"]
        assert {each["reason"] for each in held.values()} == {"CoolDown"}
        meanwhile = control_plane.audit_events()
        assert claims_made(meanwhile) == []
        length = int(time.time() - since) + 4
        await on.configured(quick(settle_time="5s", **{key: f"{length}s"}))
        await on.seen(lambda: bool(on.recorder.in_drain()), "a drain begins")
        begun = claims_made(control_plane.audit_events())[0]
        ended = [each.seconds for each in node_writes([*before, *meanwhile]) if each.drain.get("phase") == "Backoff"]
        assert begun.seconds >= (ended[0] if ended else since) + length - CLOCKS
        async with removing(on.api):
            await on.gone(begun.name)
        print(f"\nbegan {begun.seconds - since:.1f} s after, with a pause of {length} s")

    on_site(work, two_to_spare(), settings=quick(settle_time="5s", **{key: HOUR}), program=REFINER)


def test_killed_while_a_node_settles_its_pods_are_left_for_as_long(on_site: Run, control_plane: ControlPlane) -> None:
    async def work(on: Site) -> None:
        control_plane.audit_events()
        first = on.start(**ALONE)
        await on.phase("n4", "Claimed")
        await on.passes(first, 1)
        first.kill()
        second = on.start(**ALONE)
        await on.passes(second, 4)
        assert on.recorder.phases("n4") == ["Claimed"]
        events = control_plane.audit_events()
        [claim] = claims_made(events)
        length = int(time.time() - claim.seconds) + 4
        await on.configured(quick(settle_time=f"{length}s", time_gap=HOUR))
        async with removing(on.api):
            await on.gone("n4")
        await on.free()
        await all_ready(on.api)
        events += control_plane.audit_events()
        settled = entered(node_writes(events), "Evicting") - claim.seconds
        evicted = evictions_by(events, REFINER.user)
        assert set(evicted.values()) == {1}
        assert settled >= length - CLOCKS
        assert claims_made(events) == [claim]
        print(f"\nevicting began {settled:.1f} s after the claim, to be settled for {length} s")

    on_site(work, two_to_spare(), settings=quick(settle_time=HOUR, time_gap=HOUR), program=REFINER)


@pytest.mark.parametrize(
    ("phase", "unseen"),
    [("Evicting", False), ("Drained", False), ("Drained", True)],
    ids=["evicting", "drained", "drained, and taken unseen"],
)
def test_killed_in_a_drain_it_is_ended_and_the_next_one_waits(
    on_site: Run, control_plane: ControlPlane, phase: str, unseen: bool
) -> None:
    """The pause after a drain holds too where the autoscaler took the node while nobody was there to see it."""

    async def work(on: Site) -> None:
        def asked_to_go() -> bool:
            return any(each.call.path.endswith("/eviction") and each.status == 201 for each in on.proxy.writes)

        control_plane.audit_events()
        first = on.start(**ALONE)
        await on.phase("n4", phase)
        await on.seen(asked_to_go, "a pod is evicted")
        first.kill()
        if unseen:
            async with removing(on.api):
                await on.gone("n4")
        second = on.start(**ALONE)
        await on.passes(second, 2)
        async with removing(on.api):
            await on.gone("n4")
            await on.free()
            await all_ready(on.api)
            await on.passes(second, 4)
        events = control_plane.audit_events()
        assert set(evictions_by(events, REFINER.user).values()) == {1}
        assert len(claims_made(events)) == 1
        assert on.recorder.phases("n1") == []
        held = (await second.status())["held"]
        assert {name: each["reason"] for name, each in held.items()} == {"n1": "CoolDown"}

    cluster = two_to_spare("4s" if phase == "Evicting" else "")
    on_site(work, cluster, settings=quick(time_gap=HOUR), program=REFINER)


def test_compactor_and_refiner_drain_one_cluster_together(on_site: Run, control_plane: ControlPlane) -> None:
    """The compactor has one pool, the refiner the whole cluster; after each drain it lets the compactor go first."""

    async def work(on: Site) -> None:
        control_plane.audit_events()
        before = len(await on.api.list("Node"))
        began = time.monotonic()
        compactor, ledger = on.start(), f"{on.team}-claims"
        on.team = new_team()
        await on.staff(REFINER, quick(time_gap="4s"))
        refiner = on.start(CLAIMS_LEASE_NAME=ledger)
        await compactor.ready()
        await refiner.ready()
        both = {COMPACTOR.user: COMPACTOR.name, REFINER.user: REFINER.name}
        events = []
        async with removing(on.api) as remover:

            async def rests() -> bool:
                events.extend(control_plane.audit_events())
                if {each.user for each in claims_made(events)} != set(both) or on.recorder.in_drain():
                    return False
                return time.time() - node_writes(events)[-1].seconds > 12

            await wait_for(rests, 240, "both have drained nodes, and find no more")
        took = time.monotonic() - began
        await all_ready(on.api)
        for replica in on.replicas:
            replica.told_to_end()
            assert await replica.ended() == 0
        events += control_plane.audit_events()
        made = claims_made(events)
        by = {name: sum(each.user == user for each in made) for user, name in both.items()}
        print(
            f"\n{len(remover.removed)} of {before} nodes removed in {took:.0f} s, claims {by}, longest Pending "
            f"{on.recorder.longest_pending:.1f} s, least spare of budgets {min(on.recorder.least_spare.values())}"
        )
        assert min(by.values()) >= 1
        assert most_in_drain(events) == 1
        assert quarrels(events, both) == []
        assert [forbidden(events, user) for user in both] == [[], []]
        assert {each["metadata"]["name"] for each in await on.api.list("Node")}.isdisjoint(remover.removed)
        assert on.recorder.in_drain() == {}

    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1}
    settings = {**QUICK, "nodePools": {"memory": pool}, "neededMarkedTimeForRemoval": 1}
    on_site(work, off_peak({"general": 5, "memory": 5}, low=0.5, high=0.6), settings=settings)
