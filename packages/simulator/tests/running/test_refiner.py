"""Running node-refiners on the embedded cluster: what they take, what they leave, and what stops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tightship_testkit.audit_readings import claims_made, evictions_by, mutating
from tightship_testkit.client import Json
from tightship_testkit.drains import all_ready
from tightship_testkit.embedded import EmbeddedCluster, embedded_cluster
from tightship_testkit.manifests import node
from tightship_testkit.marks import drain
from tightship_testkit.refining import (
    ALONE,
    HOUR,
    limit,
    one_to_spare,
    quick,
    two_to_spare,
)
from tightship_testkit.replica import NAMESPACE, REFINER

pytestmark = pytest.mark.virtual_time

EXAMPLE = Path(__file__).resolve().parents[4] / "docs" / "examples" / "half-full.yaml"
"""The documentation's example: four nodes, half of the CPU of each requested, and a budget over all pods."""


def half_full(*more: Json) -> Json:
    found: Json = yaml.safe_load(EXAMPLE.read_text())
    return {**found, "items": [*found["items"], *more]}


def removals(status: Any) -> list[str]:
    """Return the nodes of the plan that a status shows, in order."""
    planned = {each["order"]: each["name"] for each in status["plan"]["nodes"] if each["order"] is not None}
    return [planned[number] for number in sorted(planned)]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def written(on: EmbeddedCluster) -> list[str]:
    """What the controller wrote, besides itself into the list of installations."""
    entered = f"create {LEASES}: 201"
    return [each for each in mutating(on.events, REFINER.user) if each != entered]


@pytest.mark.parametrize(("threshold", "goes"), [(1, 2), (2, 1)])
async def test_the_excess_of_a_half_full_cluster_goes(tmp_path: Path, threshold: int, goes: int) -> None:
    """Every node is at the autoscaler's threshold, so that it keeps them all."""
    async with embedded_cluster(tmp_path, half_full(), quick(excessNodesThreshold=threshold), REFINER) as on:
        await limit(on, 7)
        replica = on.start()
        with on.removing() as remover:
            await on.seen(lambda: len(remover.removed) >= goes, f"{goes} nodes are removed")
            await all_ready(on.api)
            await on.free()
            await on.passes(replica, 4)
        replica.asked_to_end()
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
    async with embedded_cluster(tmp_path, one_to_spare(), quick(), REFINER) as on:
        await limit(on, "100%")
        replica = on.start(**ALONE)
        await on.passes(replica, 4)
        assert written(on) == []
        assert on.recorder.phases("n1") == []
        await limit(on, 4)
        with on.removing():
            await on.gone("n1")
        await all_ready(on.api)


@pytest.mark.parametrize("minimum", ["minimumNodeCount", "minimumNonTaintedNodeCount"])
async def test_a_minimum_is_never_gone_below(tmp_path: Path, minimum: str) -> None:
    """A fifth node has a taint, and counts for one of them only."""
    there = 5 if minimum == "minimumNodeCount" else 4
    tainted = node("kept", taints=[{"key": "example.com/kept", "effect": "NoSchedule"}])
    async with embedded_cluster(tmp_path, half_full(tainted), quick(**{minimum: there}), REFINER) as on:
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


async def test_switched_off_it_stays_so_when_its_configuration_is_deleted(tmp_path: Path) -> None:
    """As an uninstall does: the defaults would drain."""
    async with embedded_cluster(tmp_path, one_to_spare(), quick(enabled="false"), REFINER) as on:
        replica = on.start()
        await on.passes(replica)
        assert await on.api.delete("ConfigMap", on.team, NAMESPACE)
        await replica.says("was deleted")
        await on.passes(replica, 4)
        status = await replica.status()
        assert status["switchedOff"]
        detail = f"ConfigMap {NAMESPACE}/{on.team} was deleted; nothing new begins until it is back"
        assert status["problems"] == [detail]
        page = (await replica.get("/"))[1]
        assert f">{detail}<" in page
        assert "refused" not in page
        assert on.recorder.phases("n1") == []
        await on.configured(quick())
        with on.removing():
            await on.gone("n1")


async def test_without_a_configuration_it_removes_nothing_until_there_is_one(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, one_to_spare(), quick(), REFINER) as on:
        assert await on.api.delete("ConfigMap", on.team, NAMESPACE)
        replica = on.start()
        await replica.says("does not exist")
        await on.passes(replica, 4)
        status = await replica.status()
        detail = f"ConfigMap {NAMESPACE}/{on.team} does not exist; nothing new begins until it does"
        assert (status["switchedOff"], status["problems"]) == (True, [detail])
        assert written(on) == []
        await on.configured(quick())
        with on.removing():
            await on.gone("n1")


async def test_a_dry_run_writes_nothing_and_plans_the_same(tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path, two_to_spare(), quick(), REFINER) as on:
        dry = on.start(DRY_RUN="true")
        await on.passes(dry, 4)
        planned = removals(await dry.status())
        dry.asked_to_end()
        assert await dry.ended() == 0
        # The log of requests holds what it has read, so that an empty list of writes means something.
        assert {"nodes", "pods"} <= {each.object_ref.resource for each in on.events}
        assert written(on) == []
        await on.configured(quick(clusterCoolDownAfterNodeAdded=HOUR))
        real = on.start()
        await real.says('"leader":true')
        await on.passes(real, 2)
        assert removals(await real.status()) == planned == ["n4", "n1"]
