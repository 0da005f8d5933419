"""Two installations of one controller on one cluster: neither touches what is the other's while the other is alive."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from tightship_testkit.audit_readings import claims_made, node_writes
from tightship_testkit.client import Json
from tightship_testkit.drains import spare
from tightship_testkit.embedded import SHORT, EmbeddedCluster, embedded_cluster
from tightship_testkit.manifests import as_list, budget, replicas
from tightship_testkit.marks import STEERING, taints
from tightship_testkit.refining import quick
from tightship_testkit.replica import COMPACTOR, NAMESPACE, QUICK, REFINER, Program, Replica, Settings

pytestmark = pytest.mark.virtual_time

GONE = 300.0
"""Seconds after which whoever is dead has been succeeded: what others wait for a sign of life, and some passes."""
EVERY = {COMPACTOR.interval: "2", REFINER.interval: "2"}
COST = "tightship.dev/deletion-cost"
POOL = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1}


def settings(*pools: str, **changes: object) -> Settings:
    """Return settings that drain these pools."""
    return {**QUICK, "nodePools": dict.fromkeys(pools, POOL), "neededMarkedTimeForRemoval": "12s", **changes}


def two_pools(pods: int = 2) -> Json:
    """Return a cluster: a1, a2 of pool alpha and b1, b2 of pool beta may go, three nodes have room and stay."""
    rest = [spare(f"r{number}", pool="rest") for number in range(3)]
    going = [spare(name, pool) for name, pool in (("a1", "alpha"), ("a2", "alpha"), ("b1", "beta"), ("b2", "beta"))]
    where = [name for name in ("a1", "a2", "b1", "b2") for _ in range(pods)] + ["r0", "r1", "r2"]
    return as_list(*going, *rest, *replicas("web", where, app="web"), budget("web", len(where) - 1, app="web"))


def begin(on: EmbeddedCluster, **variables: str) -> Replica:
    """Start a replica whose writes are told apart by its name."""
    made = on.start(**{**SHORT, **EVERY, **variables})
    on.audit.users[made.name] = made.name
    return made


async def beside(
    on: EmbeddedCluster, configuration: Settings, program: Program = COMPACTOR, **variables: str
) -> Replica:
    """Start another installation that shares the claims of the first."""
    ledger = f"{on.team}-claims"
    on.team = f"{on.team}-b"
    await on.staff(program, configuration)
    return begin(on, CLAIMS_LEASE_NAME=ledger, **variables)


def lease_of(replica: Replica) -> str:
    return f"{NAMESPACE}/{replica.name.rpartition('-')[0]}-leader"


def leases(on: EmbeddedCluster, *names: str) -> dict[str, list[str]]:
    """Return by node under which Leases its annotation was written, each time that changed."""
    found: dict[str, list[str]] = {}
    for each in node_writes(on.events):
        lease = each.drain.get("lease")
        reported = found.setdefault(each.name, [])
        if lease and reported[-1:] != [lease]:
            reported.append(lease)
    return {name: found.get(name, []) for name in names}


def writes(on: EmbeddedCluster, replica: Replica) -> Counter[str]:
    """Return how often a replica has written each node."""
    return Counter(each.name for each in node_writes(on.events) if each.user == replica.name)


def claimed(on: EmbeddedCluster) -> dict[str, str]:
    """Return by node who has claimed it first."""
    return {each.name: each.user for each in reversed(claims_made(on.events))}


def times(replica: Replica, text: str) -> int:
    return replica.log.count(text)


async def test_installations_with_pools_of_their_own_work_side_by_side(tmp_path: Path) -> None:
    """Neither wipes the other's marks: the first claims on time, and writes its nodes about as often as alone."""
    alone: Counter[str] = Counter()
    (tmp_path / "alone").mkdir()
    async with embedded_cluster(tmp_path / "alone", two_pools(), settings("alpha")) as on:
        first = begin(on)
        with on.removing():
            await on.gone("a1")
            await on.gone("a2")
        alone, took = writes(on, first), on.recorder.moments[-1].at
    async with embedded_cluster(tmp_path, two_pools(), settings("alpha")) as on:
        on.recorder.budget = 2
        first = begin(on)
        second = await beside(on, settings("beta", maximumNodesInDrain=2))
        with on.removing():
            for name in ("a1", "a2", "b1", "b2"):
                await on.gone(name, took * 3)
        assert claimed(on) == {"a1": first.name, "a2": first.name, "b1": second.name, "b2": second.name}
        # Pods of the other pool that land here, and leave, change a mark or a soft taint now and then.
        assert all(number <= 3 * alone[name] for name, number in writes(on, first).items())
        assert set(writes(on, second)) == {"b1", "b2"}
        assert set(Counter(on.yard.evicted()).values()) == {1}
        status = await second.status()
        assert status["installations"] == [{"lease": lease_of(first), "pools": ["alpha"]}]
        assert "problems" not in status
        assert times(second, "another installation of this controller is live") == 1
        assert "tightship_other_installations 1.0" in (await second.get("/metrics"))[1]


@pytest.mark.parametrize("skew", ["0", "-5", "5"])
async def test_of_two_with_the_same_pools_the_first_holds_them(tmp_path: Path, skew: str) -> None:
    """The other says so once, writes nothing, and takes over as soon as the first gives the pools up."""
    async with embedded_cluster(tmp_path, two_pools(), settings("alpha", "beta")) as on:
        first = begin(on)
        own = on.team
        await first.says('"leader":true')
        second = await beside(on, settings("alpha", "beta"), TEST_CLOCK_SKEW_SECONDS=skew)
        await second.says("another installation holds pools")
        with on.removing():
            await on.gone("a1")
        await on.passes(second, 10)
        status = await second.status()
        kept = {each["name"]: each["reasons"] for each in status["plan"]["nodes"]}
        assert all("OtherInstallation" in kept[name] for name in ("a2", "b1", "b2") if name in kept)
        assert any(lease_of(first) in each and "alpha, beta" in each for each in status["problems"])
        assert times(second, "another installation holds pools") == 1
        assert (
            'tightship_nodes_refused{controller="node-compactor",pool="beta",reason="OtherInstallation"}'
            in ((await second.get("/metrics"))[1])
        )
        assert not writes(on, second)
        on.team = own
        with on.removing():
            await on.configured(settings("alpha"))
            await on.seen(lambda: second.name in claimed(on).values(), "the second claims a node of beta")
            await on.gone("b1" if claimed(on).get("b1") == second.name else "b2")
        assert {name[0] for name, by in claimed(on).items() if by == second.name} == {"b"}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_who_dies_is_succeeded_in_its_pools_and_its_drains(tmp_path: Path, how: signal.Signals) -> None:
    """A drain of whoever is alive stays its own; no node stays cordoned with nobody responsible."""
    async with embedded_cluster(
        tmp_path, two_pools(), settings("alpha", podEvictionTimeout="1h", nodeDrainTimeout="1h")
    ) as on:
        first = begin(on)
        with on.living.paused("workloads"):
            await on.seen(lambda: "Evicting" in {*on.recorder.phases("a1"), *on.recorder.phases("a2")}, "one goes")
            second = await beside(on, settings("alpha", maximumNodesInDrain=1))
            await second.says("another installation holds pools")
            await asyncio.sleep(GONE)
            node = next(iter(on.recorder.in_drain()))
            assert leases(on, node)[node] == [lease_of(first)]
            on.machine.signal(first.name, how)
            await on.seen(lambda: leases(on, node)[node][-1] == lease_of(second), "the second takes over", GONE)
        with on.removing():
            await on.gone("a1")
            await on.gone("a2", GONE)
        assert on.recorder.most_in_drain == 1


async def test_a_drain_in_a_pool_that_is_not_the_survivors_is_given_back(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, two_pools(), settings("alpha", nodeDrainTimeout="3600s")) as on:
        first = begin(on)
        with on.living.paused("workloads"):
            await on.seen(lambda: bool(on.recorder.in_drain()), "one goes")
            node = next(iter(on.recorder.in_drain()))
            await beside(on, settings("beta"))
            first.kill()
            await on.phase(node, "Backoff", GONE)
        assert not (on.recorder.node(node) or {})["spec"].get("unschedulable")


async def test_of_two_refiners_the_first_holds_the_cluster(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, two_pools(), quick(clusterCoolDownAfterDrain="4s"), REFINER) as on:
        first = begin(on)
        await first.says('"leader":true')
        second = await beside(on, quick(clusterCoolDownAfterDrain="4s"), REFINER)
        with on.removing():
            await on.seen(lambda: len(claimed(on)) >= 2, "two nodes are claimed")
        assert set(claimed(on).values()) == {first.name}
        assert any(lease_of(first) in each for each in (await second.status())["problems"])
        first.kill()
        with on.removing():
            await on.seen(lambda: second.name in claimed(on).values(), "the second goes on", GONE)


async def test_soft_taints_and_deletion_costs_of_the_other_are_left_alone(tmp_path: Path) -> None:
    """As long as it is alive; afterwards somebody removes them."""
    waits = {"maximumCandidateTaints": 2, "minimumNodeAge": 0, "steering": "taints", "deletionCost": True}
    held = settings("alpha", **waits, neededMarkedTimeForRemoval=0, coolDownAfterNodeAdded="36000s")
    async with embedded_cluster(tmp_path, two_pools(), held) as on:
        first = begin(on)

        def steered() -> dict[str, str]:
            nodes = {name: on.recorder.node(name) or {} for name in ("a1", "a2", "b1", "b2")}
            found = {
                name: [each["value"] for each in taints(node) if each["key"] == STEERING]
                for name, node in nodes.items()
            }
            return {name: values[0] for name, values in found.items() if values}

        def priced() -> dict[str, str]:
            pods = on.yard.simulation.store.list("Pod")
            marks = {each["spec"]["nodeName"]: (each["metadata"].get("annotations") or {}).get(COST) for each in pods}
            return {name: mark.partition("=")[0] for name, mark in marks.items() if mark}

        await on.seen(lambda: set(steered()) == {"a1", "a2"}, "alpha is steered")
        before = writes(on, first)
        second = await beside(on, {**held, "nodePools": {"beta": POOL}})
        await on.seen(lambda: set(steered()) == {"a1", "a2", "b1", "b2"}, "beta is steered too")
        await asyncio.sleep(GONE)
        assert writes(on, first) == before
        assert set(writes(on, second)) == {"b1", "b2"}
        assert len(set(steered().values())) == 2
        assert priced() == steered()
        first.kill()
        await on.seen(lambda: set(steered()) == {"b1", "b2"}, "the second tidies up", GONE)
        await on.passes(second)
        assert priced() == steered()


async def test_leases_that_are_deleted_again_and_again_make_no_two_holders(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, two_pools(), settings("alpha", "beta")) as on:
        first = begin(on)
        await first.says('"leader":true')
        second = await beside(on, settings("alpha", "beta"))
        await second.says("another installation holds pools")

        async def deleting() -> None:
            while True:
                await asyncio.sleep(3.0)
                for each in on.yard.simulation.store.list("Lease"):
                    meta = each["metadata"]
                    on.yard.simulation.store.delete("Lease", meta["name"], meta["namespace"])

        vandal = asyncio.create_task(deleting())
        try:
            with on.removing():
                for name in ("a1", "a2", "b1", "b2"):
                    await on.gone(name, GONE)
        finally:
            vandal.cancel()
        assert set(claimed(on).values()) == {first.name}
        assert not writes(on, second)
        assert all(reported == [lease_of(first)] for reported in leases(on, "a1", "a2", "b1", "b2").values())
