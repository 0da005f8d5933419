"""The promises of rates and rests see what breaks them, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tightship_testkit.disasters.promises.base import Eviction, Violation
from tightship_testkit.disasters.promises.rates import NoRatePassed, WorkloadsRest


def world(said: list[Violation], **settings: object) -> Any:
    team = SimpleNamespace(recent=lambda _: [settings])
    return SimpleNamespace(now=100.0, skewed=0.0, broken=said.append, ledger=lambda _: "ns", team=lambda _: team)


def evicted(name: str, by: str, at: float, owner: str = "rs", node: str = "n1") -> Eviction:
    owners = [{"controller": True, "uid": owner}]
    pod = {
        "metadata": {"name": name, "uid": name, "ownerReferences": owners},
        "spec": {"nodeName": node} if node else {},
    }
    return Eviction(pod, None, by, at, "op")


def claimed(name: str) -> Any:
    meta, note = {"name": name}, {"tightship.dev/drain": '{"v":1,"phase":"Claimed","op":"o"}'}
    after = {"kind": "Node", "metadata": {**meta, "annotations": note}}
    return SimpleNamespace(type="MODIFIED", object=after, previous={"kind": "Node", "metadata": meta})


def test_an_eviction_of_a_workload_in_its_pause_is_seen_whoever_evicted_before() -> None:
    said: list[Violation] = []
    promise = WorkloadsRest(world(said, workloadPause=10))
    promise.evicted(evicted("a", "node-compactor-1", 1.0))
    promise.evicted(evicted("b", "node-refiner-1", 12.0))
    promise.evicted(evicted("z", "node-refiner-1", 13.0, owner="other"))
    promise.evicted(evicted("waits for a node", "node-refiner-1", 14.0, node=""))
    assert said == []
    promise.evicted(evicted("c", "node-compactor-1", 15.0))
    assert [each.subject for each in said] == ["Pod c"]


def test_a_workload_rests_ten_minutes_where_nothing_is_set() -> None:
    for settings, broken in (({}, True), ({"workloadPause": "0s"}, False)):
        said: list[Violation] = []
        promise = WorkloadsRest(world(said, **settings))
        promise.evicted(evicted("a", "node-compactor-1", 1.0))
        promise.evicted(evicted("b", "node-compactor-1", 500.0))
        assert bool(said) is broken, settings


def test_a_drain_beyond_the_rate_is_seen_whoever_began_the_others() -> None:
    said: list[Violation] = []
    promise = NoRatePassed(world(said, maximumNodesPerHour=1))
    promise.changed(claimed("n1"), "node-compactor-1")
    assert said == []
    promise.changed(claimed("n2"), "node-refiner-1")
    assert [each.subject for each in said] == ["Node n2"]
