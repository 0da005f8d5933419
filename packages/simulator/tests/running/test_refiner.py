"""``node-refiner run`` as a process on the embedded cluster, alone and beside node-compactor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightship_testkit.client import Json, wait_for
from tightship_testkit.drains import all_ready
from tightship_testkit.embedded import Ground, cluster, ground
from tightship_testkit.invariants import STEERING, drain, taints
from tightship_testkit.refining import ALONE, HOUR, KEEP, given_back, limit, quick, refuse, relent
from tightship_testkit.replica import COMPACTOR, NAMESPACE, QUICK, REFINER, lease, new_team

pytestmark = pytest.mark.virtual_time


def half_full() -> Json:
    """Four nodes, half of the CPU of each requested: two are in excess."""
    places = dict.fromkeys(("n1", "n2", "n3", "n4"), 3)
    return cluster(places, pools=dict.fromkeys(places, "spare"), cpu="620m")


def to_spare(*names: str) -> Json:
    """Nodes that may go, the last of them first, and n8 and n9, which have room and are not to be touched."""
    places = {name: len(names) + 1 - number for number, name in enumerate(names)}
    made = cluster({**places, "n8": 1, "n9": 1}, pools=dict.fromkeys(names, "spare"))
    for item in made["items"]:
        if item["metadata"]["name"] in ("n8", "n9"):
            item["metadata"]["annotations"][KEEP] = "true"
    return made


def there(on: Ground, *names: str) -> int:
    return sum(on.recorder.node(name) is not None for name in names or ("n1", "n2", "n3", "n4"))


def claimed(on: Ground) -> int:
    return [moment.phase for moment in on.recorder.moments].count("Claimed")


@pytest.mark.parametrize(("threshold", "goes"), [(1, 2), (2, 1)])
async def test_the_excess_of_a_half_full_cluster_goes(tmp_path: Path, threshold: int, goes: int) -> None:
    async with ground(tmp_path, half_full(), quick(excess_nodes_threshold=threshold), REFINER) as on:
        replica = on.start(**ALONE)
        await on.seen(lambda: there(on) == 4 - goes, f"{goes} nodes are removed")
        await all_ready(on.api)
        await on.free()
        await on.passes(replica)
        replica.told_to_end()
        assert await replica.ended() == 0
        assert there(on) == 4 - goes
        assert claimed(on) == goes
        assert on.recorder.most_in_drain == 1
        assert min(on.recorder.least_spare.values()) >= 0
        left = await on.api.list("Node")
        assert not [node for node in left if drain(node) or node["spec"].get("unschedulable")]


@pytest.mark.parametrize("minimum", ["minimum_nodes", "minimum_non_tainted_nodes"])
async def test_a_minimum_is_never_gone_below(tmp_path: Path, minimum: str) -> None:
    async with ground(tmp_path, half_full(), quick(**{minimum: 4}), REFINER) as on:
        replica = on.start(**ALONE)
        await on.passes(replica)
        assert on.yard.written() == []
        await on.configured(quick(**{minimum: 3}))
        await on.seen(lambda: there(on) == 3, "one node is removed")
        await all_ready(on.api)
        await on.free()
        await on.passes(replica)
        assert there(on) == 3
        assert claimed(on) == 1


async def test_the_drainer_is_switched_on_and_off_while_it_runs(tmp_path: Path) -> None:
    off = quick(drainer_enabled="False")
    async with ground(tmp_path, to_spare("n1", "n2"), off, REFINER, ending=2) as on:
        replica = on.start()
        await on.passes(replica)
        assert (await replica.status())["switchedOff"]
        assert on.yard.written() == []
        await on.configured(quick())
        await on.phase("n2", "Evicting")
        await on.configured(off)
        await replica.says("switched off: nothing new is begun")
        await on.gone("n2")

        async def resigned() -> bool:
            return not (await lease(on.api, f"{on.team}-leader"))["spec"].get("holderIdentity")

        await wait_for(resigned, 60, "the Lease is given up")
        await on.passes(replica)
        await on.free()
        await all_ready(on.api)
        assert on.recorder.phases("n1") == []
        assert not [each for each in await on.api.list("Node") if STEERING in {mark["key"] for mark in taints(each)}]


async def test_switched_off_it_stays_so_when_its_configuration_is_deleted(tmp_path: Path) -> None:
    """As an uninstall does: the defaults would drain."""
    off = quick(drainer_enabled="false")
    async with ground(tmp_path, to_spare("n1"), off, REFINER) as on:
        replica = on.start()
        await on.passes(replica)
        assert await on.api.delete("ConfigMap", on.team, NAMESPACE)
        await replica.says("was deleted")
        await on.passes(replica, 4)
        status = await replica.status()
        assert status["switchedOff"]
        told = f"ConfigMap {NAMESPACE}/{on.team} was deleted, nothing new is begun until it is back"
        assert status["problems"] == [told]
        page = (await replica.get("/"))[1]
        assert f">{told}<" in page
        assert "refused" not in page
        assert on.recorder.phases("n1") == []
        await on.configured(quick())
        await on.gone("n1")


async def test_a_dry_run_asks_for_no_change_and_plans_the_same(tmp_path: Path) -> None:
    async with ground(tmp_path, to_spare("n1", "n2"), quick(), REFINER) as on:

        async def removals() -> list[tuple[int, str]]:
            nodes = (await on.replicas[-1].status())["plan"]["nodes"]
            return sorted((each["order"], each["name"]) for each in nodes if each["order"] is not None)

        dry = on.start(DRY_RUN="true")
        await on.passes(dry)
        planned = await removals()
        dry.told_to_end()
        assert await dry.ended() == 0
        assert {"nodes", "pods"} <= {each.resource for each in on.yard.asked()}
        assert on.yard.written() == []
        await on.configured(quick(time_since_last_addition=HOUR))
        real = on.start()
        await real.says('"leader":true')
        await on.passes(real)
        assert await removals() == planned
        assert planned == [(1, "n2")]


async def test_a_node_is_restored_when_a_pod_of_it_can_not_go(tmp_path: Path) -> None:
    """It appears while the node settles; once its budget is gone the node goes too."""
    async with ground(tmp_path, to_spare("n1"), quick(settle_time=HOUR, time_gap="4s"), REFINER) as on:
        on.start(**ALONE)
        await on.phase("n1", "Claimed")
        await refuse(on, "n1")
        await on.configured(quick(settle_time="1s", time_gap="4s"))
        assert "shop/late" in await given_back(on, "n1")
        assert on.yard.evicted() == []
        await relent(on)
        await on.configured(quick(time_gap="4s"))
        await on.gone("n1")
        await all_ready(on.api)


async def test_a_budget_that_never_allows_keeps_its_node_untouched(tmp_path: Path) -> None:
    async with ground(tmp_path, to_spare("n1"), quick(), REFINER) as on:
        await limit(on, "100%")
        replica = on.start(**ALONE)
        await on.passes(replica)
        assert on.recorder.phases("n1") == []
        await limit(on, 3)
        await on.gone("n1")
        await all_ready(on.api)


async def test_compactor_and_refiner_share_one_budget(tmp_path: Path) -> None:
    """The compactor has one pool, the refiner the whole cluster: never are two nodes in drain."""
    pools = {"n1": "spare", "n2": "spare", "n3": "rest", "n4": "rest"}
    night = cluster(dict.fromkeys(pools, 2) | {"n5": 2}, pools=pools, cpu="300m")
    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.5, "scaleDownRequiredUnderutilizedNodeCount": 1}
    settings = {**QUICK, "nodePools": {"spare": pool}}
    async with ground(tmp_path, night, settings, COMPACTOR, ending=1) as on:
        compactor = on.start()
        await on.seen(lambda: bool(on.recorder.in_drain()), "the compactor has begun")
        ledger = f"{on.team}-claims"
        on.team = new_team()
        await on.staff(REFINER, quick(time_gap="3s"))
        refiner = on.start(CLAIMS_LEASE_NAME=ledger)

        def both() -> bool:
            return all("handed_over" in each.log for each in (compactor, refiner))

        await on.seen(both, "both have drained a node")
        for replica in (compactor, refiner):
            replica.told_to_end()
            assert await replica.ended() == 0
        await all_ready(on.api)
        assert on.recorder.most_in_drain == 1
