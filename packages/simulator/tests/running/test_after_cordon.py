"""Drains of nodes whose budgets open only after a cordon, beside stand-ins of the controllers that open them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tightship_simulator.life.openers import EvictionAutoscaler, PrimaryMover
from tightship_testkit.audit_readings import claims_made, evictions_by
from tightship_testkit.client import Json
from tightship_testkit.drains import SETTINGS, small, spare
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.kill_points import counts
from tightship_testkit.manifests import as_list, budget, replicas
from tightship_testkit.marks import drain
from tightship_testkit.refining import ALONE, one_to_spare, quick
from tightship_testkit.replica import COMPACTOR, REFINER
from tightship_testkit.virtual import run_virtually

pytestmark = pytest.mark.virtual_time

WAIT: Json = {**SETTINGS, "afterCordonTimeout": "60s", "holdOff": "300s", "handOverTimeout": "600s"}


def surging(name: str, available: int, **labels: str) -> Json:
    """The budget that eviction-autoscaler makes of a Deployment (its ``CreatePDBForDeployment``)."""
    made = budget(name, available, **labels)
    made["metadata"]["annotations"] = {"ownedBy": "EvictionAutoScaler", "target": name}
    return made


def of_azure(cluster: Json) -> Json:
    """Return *cluster* with eviction-autoscaler's budgets in place of its own."""
    items = [
        surging(each["metadata"]["name"], 1 + each["spec"]["minAvailable"], **each["spec"]["selector"]["matchLabels"])
        if each["kind"] == "PodDisruptionBudget"
        else each
        for each in cluster["items"]
    ]
    return {**cluster, "items": items}


@contextmanager
def beside(on: EmbeddedCluster, actor: Any) -> Iterator[None]:
    """Have *actor* live in the cluster."""
    on.living.others.append(actor)
    on.living.wake()
    try:
        yield
    finally:
        on.living.others.remove(actor)


def database() -> Json:
    """Return a database of CloudNativePG: its primary on n1 with the budget ``db-primary``, its replicas elsewhere."""
    items = replicas("db", ["n1", "n2", "n3"])
    for number, each in enumerate(item for item in items if item["kind"] == "Pod"):
        each["metadata"]["labels"] = {"cnpg.io/cluster": "db", "role": "replica" if number else "primary"}
    guards = [
        budget("db-primary", 1, **{"cnpg.io/cluster": "db", "role": "primary"}),
        budget("db", 1, **{"cnpg.io/cluster": "db", "role": "replica"}),
    ]
    return as_list(spare(), *(spare(name, pool="rest") for name in ("n2", "n3")), *items, *guards)


async def reason(on: EmbeddedCluster, name: str) -> str:
    return str(drain(await on.api.get("Node", name)).get("reason", ""))


@pytest.mark.parametrize("program", [COMPACTOR, REFINER], ids=lambda each: each.name)
async def test_a_surge_after_the_cordon_lets_the_pods_go(tmp_path: Path, program: Any) -> None:
    cluster, settings = (small(), WAIT) if program is COMPACTOR else (one_to_spare(), quick())
    aks = EvictionAutoscaler(cooldown=5)
    async with embedded_cluster(tmp_path, of_azure(cluster), settings, program) as on:
        with beside(on, aks), on.removing():
            on.start()
            await on.gone("n1")
            await asyncio.sleep(60)
            assert aks.surges
            sets = await on.api.list("ReplicaSet")
            assert all("evictionSurgeReplicas" not in (each["metadata"].get("annotations") or {}) for each in sets)
            await on.ended_well()
        assert min(on.recorder.least_spare.values()) >= 0


async def test_a_primary_goes_once_another_instance_is_the_primary(tmp_path: Path) -> None:
    operator = PrimaryMover()
    async with embedded_cluster(tmp_path, database(), WAIT) as on:
        with beside(on, operator), on.removing():
            on.start()
            await on.ended_well("n1")
        assert operator.moved == ["db"]


async def test_a_node_whose_budget_stays_shut_is_given_back_untouched_and_not_tried_again(tmp_path: Path) -> None:
    aks = EvictionAutoscaler()
    aks.dead = True
    two = small(spare("n4"), *replicas("other", ["n4"], app="web"), pods=2)
    for each in two["items"]:
        if each["kind"] == "PodDisruptionBudget":
            each["metadata"]["annotations"] = {"ownedBy": "EvictionAutoScaler", "target": "web"}
            each["spec"]["minAvailable"] = 5
    async with embedded_cluster(tmp_path, two, WAIT) as on:
        with beside(on, aks):
            replica = on.start()
            await on.seen(lambda: bool(on.recorder.in_drain()), "one node is claimed")
            await asyncio.sleep(20)
            [waits] = on.recorder.in_drain()
            assert "OpensAfterCordon shop/web" in await reason(on, waits)
            [entry] = (await replica.status())["inDrain"]
            assert (entry["phase"], entry["deadline"] > "") == ("Claimed", True)
            await on.phase(waits, "Backoff")
            await asyncio.sleep(200)
            assert len(claims_made(on.events)) == 1
            assert on.yard.evicted() == []
            plan = {each["name"]: each["reasons"] for each in (await replica.status())["plan"]["nodes"]}
            assert "NotOpened" in plan["n4" if waits == "n1" else "n1"]
            aks.dead = False
            await asyncio.sleep(150)
        assert len(claims_made(on.events)) == 2


async def test_a_budget_that_loses_its_annotation_meanwhile_gives_the_node_back(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, of_azure(small()), WAIT) as on:
        on.start()
        await on.seen(lambda: bool(on.recorder.in_drain()), "n1 is claimed")
        await asyncio.sleep(10)
        await on.api.patch("PodDisruptionBudget", "web", {"metadata": {"annotations": {"ownedBy": None}}}, "shop")
        await on.phase("n1", "Backoff")
        assert "PdbNeverAllows" in await reason(on, "n1")
        assert on.yard.evicted() == []


async def killed(folder: Path, number: int, *, after: bool, standby: bool) -> bool:
    """Kill the replica at its write *number*; return whether there was one."""
    met = False
    async with embedded_cluster(folder, of_azure(small()), WAIT) as on:
        first = on.start(**ALONE)
        writes = 0

        async def kill() -> None:
            first.kill()

        async def plan(call: Call) -> Fault | None:
            nonlocal writes, met
            if met or not counts(call):
                return None
            writes += 1
            if writes != number:
                return None
            met = True
            return Reset(done=True, after=kill) if after else Reset(before=kill)

        on.audit.plan = plan
        if standby:
            await on.passes(first, 1)
            on.start(**ALONE)
        with beside(on, EvictionAutoscaler(cooldown=5)), on.removing():
            if not standby:
                await on.seen(lambda: first.code is not None or on.recorder.node("n1") is None, "killed, or ended")
                on.start(**ALONE)
            await on.gone("n1")
            await asyncio.sleep(30)
            await on.ended_well()
        assert on.recorder.most_in_drain == 1
        assert set(evictions_by(on.events, COMPACTOR.user).values()) == {1}
        assert min(on.recorder.least_spare.values()) >= 0
    return met


@pytest.mark.slow
@pytest.mark.takes(4)
@pytest.mark.parametrize(
    ("after", "standby"), [(False, False), (True, True)], ids=["before, alone", "after, with a standby"]
)
def test_killed_at_any_write_of_a_drain_that_waits_the_next_one_ends_it(
    tmp_path: Path, after: bool, standby: bool
) -> None:
    number = 1
    while run_virtually(killed(tmp_path, number, after=after, standby=standby)):
        number += 1
    assert number > 6
