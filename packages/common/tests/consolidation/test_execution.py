"""A searched plan carried out batch by batch keeps what it promised, and misses cost it little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from search_fleets import exclusive_fleet, gpu_fleet

from tightship.cluster import Snapshot
from tightship.kube.host import HOST, Host
from tightship_testkit.execution import Carried, Execution
from tightship_testkit.planning import snapshot_of

from .test_background import Judge


@pytest.fixture(autouse=True)
def _iterations_count() -> Iterator[None]:
    token = HOST.set(Host(stopwatch=None))
    yield
    HOST.reset(token)


async def carried(snapshot: Snapshot, miss: float, seconds: float = 30.0) -> Carried:
    return await Execution(snapshot, Judge(), seconds, miss=miss, at_once=8, seed=1).run()


@pytest.mark.takes(12)
async def test_without_misses_the_plan_comes_true(subtests: pytest.Subtests) -> None:
    for name, fleet in (("gpus", gpu_fleet(3, 80)), ("exclusive", exclusive_fleet(3, 60))):
        with subtests.test(fleet=name):
            end = await carried(snapshot_of(fleet), 0.0)
            assert end.kept <= end.planned <= end.greedy
            assert (end.missed, end.pending) == (0, 0)


@pytest.mark.takes(12)
@pytest.mark.parametrize("miss", [0.05, 0.2])
async def test_pods_that_land_elsewhere_cost_a_few_nodes_at_most(miss: float) -> None:
    whole = await carried(snapshot_of(gpu_fleet(3, 80)), 0.0)
    end = await carried(snapshot_of(gpu_fleet(3, 80)), miss)
    assert end.missed > 0
    assert end.pending == 0
    assert end.kept <= whole.kept + 2
    assert end.evictions <= whole.evictions * (1 + 2 * miss) + 3


async def test_equal_executions_are_equal() -> None:
    one, other = [await carried(snapshot_of(gpu_fleet(3, 40)), 0.2, 10.0) for _ in range(2)]
    assert one == other
