"""The demo's cluster at nine in the evening."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from tightship_simulator import World
from tightship_simulator.api.store import Store
from tightship_simulator.demo.cluster import SHAPES, WORKS, group, objects
from tightship_simulator.life.changes import Json
from tightship_simulator.life.living import Living

NOW = datetime(2026, 11, 21, 21, tzinfo=UTC)


def _items(seed: int = 7) -> list[Json]:
    return list(objects(seed, NOW))


def test_the_town_is_the_same_for_the_same_seed() -> None:
    assert _items() == _items()
    assert _items(3) != _items(4)


@pytest.mark.parametrize("seed", range(3))
def test_no_node_is_overcommitted_and_every_pod_has_one(seed: int) -> None:
    world = World({"items": _items(seed)})
    assert world.overcommitted() == []
    assert not world.on_node[""]


def test_there_are_three_pools_of_about_forty_nodes_and_all_workloads_are_complete() -> None:
    items = _items()
    kinds = Counter(item["kind"] for item in items)
    assert kinds["Node"] == sum(shape.count for shape in SHAPES) == 38
    assert kinds["HorizontalPodAutoscaler"] == sum(1 for work in WORKS if work.rate)
    apps = Counter(item["metadata"]["labels"]["app"] for item in items if item["kind"] == "Pod")
    assert {work.name: work.replicas for work in WORKS} == {name: apps[name] for name in apps if name != "node-agent"}
    assert sum(1 for work in WORKS if work.stubborn) == 4


def test_the_town_is_at_rest_by_itself() -> None:
    store = Store(seed=1)
    store.load(_items())
    before = {item["metadata"]["uid"] for item in store.list("Pod")}
    living = Living(store, [group(shape) for shape in SHAPES])
    for now in range(20):
        living.step(float(now))
    assert {item["metadata"]["uid"] for item in store.list("Pod")} == before
    assert len(store.list("ReplicaSet")) == len(WORKS)
