"""The store as behaviours in the same process use it: its clock, its memory, what it takes in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tightship_simulator.api.errors import Expired, Forbidden
from tightship_simulator.api.store import AUTHOR, FIRST_NAMESPACES, Store
from tightship_simulator.api.versioned import Change, key_of
from tightship_simulator.generate import off_peak_cluster

Json = dict[str, Any]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return Store(now=clock, history=10, seed=1)


def pod(name: str = "web-0", node: str = "n1", namespace: str = "default", **spec: object) -> Json:
    where = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c"}], **where, **spec},
    }


def config_map(name: str, **data: str) -> Json:
    return {"metadata": {"name": name}, "data": data}


def changes(store: Store, count: int) -> None:
    store.create("ConfigMap", config_map("busy"))
    for number in range(count):
        store.modify("ConfigMap", "busy", "default", lambda each, number=number: each.update(data={"n": str(number)}))


def test_times_are_those_of_the_clock_it_is_given(store: Store, clock: Clock) -> None:
    assert store.create("ConfigMap", config_map("a"))["metadata"]["creationTimestamp"] == "2026-03-01T12:00:00Z"
    clock.time += timedelta(hours=1)
    assert store.create("ConfigMap", config_map("b"))["metadata"]["creationTimestamp"] == "2026-03-01T13:00:00Z"


def test_uids_are_the_same_for_the_same_seed_and_all_different() -> None:
    def uids(seed: int) -> list[str]:
        return [each["metadata"]["uid"] for each in Store(seed=seed).list("Namespace")]

    assert uids(1) == uids(1)
    assert uids(1) != uids(2)
    assert len(set(uids(1))) == len(FIRST_NAMESPACES)


def test_what_was_read_is_not_changed_by_what_is_written(store: Store) -> None:
    before = store.create("ConfigMap", config_map("a", key="old"))
    store.modify("ConfigMap", "a", "default", lambda each: each["data"].update(key="new"))
    assert before["data"] == {"key": "old"}
    assert store.get("ConfigMap", "a", "default")["data"] == {"key": "new"}


def test_an_earlier_state_can_be_read_until_it_is_forgotten(store: Store) -> None:
    store.create("ConfigMap", config_map("a"))
    then = store.version
    store.create("ConfigMap", config_map("b"))
    store.modify("ConfigMap", "a", "default", lambda each: each.update(data={"x": "y"}))
    store.delete("ConfigMap", "b", "default")
    [earlier] = store.list("ConfigMap", at=then)
    assert (earlier["metadata"]["name"], earlier["data"]) == ("a", {})
    changes(store, 10)
    with pytest.raises(Expired, match=f"too old resource version: {then}"):
        store.list("ConfigMap", at=then)


def test_other_kinds_do_not_push_a_kind_out_of_memory(store: Store) -> None:
    then = store.version
    store.create("Node", {"metadata": {"name": "n1"}})
    changes(store, 100)
    assert [each.type for each in store.changes("Node", then)] == ["ADDED"]


async def test_a_behaviour_sees_every_change_in_its_order(store: Store) -> None:
    seen: list[Change] = []

    async def watch() -> None:
        async for change in store.watch("ConfigMap"):
            seen.append(change)
            if change.type == "DELETED":
                return

    task = asyncio.create_task(watch())
    await asyncio.sleep(0)
    store.create("ConfigMap", config_map("a"))
    await asyncio.sleep(0)
    store.modify("ConfigMap", "a", "default", lambda each: each.update(data={"x": "y"}))
    store.delete("ConfigMap", "a", "default")
    async with asyncio.timeout(60):
        await task
    assert [each.type for each in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert [each.version for each in seen] == sorted({each.version for each in seen})
    assert seen[1].previous == seen[0].object


async def test_what_happens_while_a_behaviour_is_busy_is_not_lost(store: Store) -> None:
    follows = store.watch("ConfigMap", since=store.version)
    store.create("ConfigMap", config_map("a"))
    async with asyncio.timeout(60):
        assert key_of((await anext(follows)).object) == ("default", "a")
        # The generator has yielded, and has not begun to wait again.
        store.create("ConfigMap", config_map("b"))
        assert key_of((await anext(follows)).object) == ("default", "b")


# Pods.


def test_a_grace_period_that_is_shortened_counts_from_its_beginning(store: Store, clock: Clock) -> None:
    store.create("Pod", pod(terminationGracePeriodSeconds=300))
    store.delete("Pod", "web-0", "default")
    clock.time += timedelta(seconds=5)
    assert store.delete("Pod", "web-0", "default", grace=10)["metadata"]["deletionTimestamp"] == "2026-03-01T12:00:10Z"


def test_a_pod_has_the_priority_of_its_class(store: Store) -> None:
    store.create("PriorityClass", {"metadata": {"name": "high"}, "value": 1000})
    assert store.create("Pod", pod("a", priorityClassName="high"))["spec"]["priority"] == 1000
    assert store.create("Pod", pod("b", priorityClassName="system-node-critical"))["spec"]["priority"] == 2_000_001_000
    assert store.create("Pod", pod("c"))["spec"]["priority"] == 0


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}, "Burstable"),
    ],
)
def test_a_pod_has_its_quality_of_service(store: Store, resources: Json, quality: str) -> None:
    made = store.create("Pod", pod(containers=[{"name": "c", "resources": resources}]))
    assert made["status"]["qosClass"] == quality


# Namespaces.


def test_a_namespace_takes_what_is_in_it_along_and_takes_nothing_more(store: Store) -> None:
    store.create("Namespace", {"metadata": {"name": "shop"}})
    store.create("Pod", pod(namespace="shop"))
    store.create("ConfigMap", {"metadata": {"name": "a", "namespace": "shop"}})
    store.delete("Namespace", "shop")
    assert store.find("ConfigMap", "a", "shop") is None
    assert store.get("Namespace", "shop")["status"]["phase"] == "Terminating"
    with pytest.raises(Forbidden, match="being terminated"):
        store.create("ConfigMap", {"metadata": {"name": "b", "namespace": "shop"}})
    store.delete("Pod", "web-0", "shop", grace=0)
    assert store.find("Namespace", "shop") is None


# Files.


def test_a_file_is_taken_in_as_it_is(store: Store) -> None:
    items = off_peak_cluster(7, 12)["items"]
    assert store.load(items) == {}
    for item in items:
        meta = item["metadata"]
        kept = store.get(item["kind"], meta["name"], meta.get("namespace", ""))
        assert kept["metadata"]["uid"] == meta["uid"]
        assert kept["metadata"]["creationTimestamp"] == meta["creationTimestamp"]
        if item["kind"] in {"Node", "PodDisruptionBudget"}:
            assert kept["status"] == item["status"]


def test_namespaces_that_a_file_does_not_hold_are_made_and_kinds_that_are_not_served_counted(store: Store) -> None:
    items = [{"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}}, *turnips(2)]
    assert store.load(items) == {"Turnip": 2}
    assert store.get("Namespace", "shop")["status"]["phase"] == "Active"


def turnips(count: int) -> Iterator[Json]:
    for number in range(count):
        yield {"kind": "Turnip", "metadata": {"name": str(number), "namespace": "field"}}


def test_a_backup_brings_back_what_there_was_and_forgets_the_rest() -> None:
    store = Store(seed=1)
    store.create("Node", {"metadata": {"name": "kept"}})
    store.create("Node", {"metadata": {"name": "changed"}})
    store.create("Node", {"metadata": {"name": "deleted"}})
    backup, before = store.version, {each["metadata"]["name"]: each for each in store.list("Node")}
    store.modify("Node", "changed", change=lambda each: each["spec"].update(unschedulable=True))
    store.delete("Node", "deleted")
    store.create("Node", {"metadata": {"name": "new"}})
    last, reported = store.version, []
    store.listeners.append(
        lambda change, author: reported.append((change.type, change.object["metadata"]["name"], author))
    )
    store.restore(backup)
    assert {each["metadata"]["name"]: each for each in store.list("Node")} == before
    assert reported == [("MODIFIED", "changed", "etcd"), ("ADDED", "deleted", "etcd"), ("DELETED", "new", "etcd")]
    with pytest.raises(Expired):
        store.changes("Node", last)
    again = store.modify("Node", "kept", change=lambda each: each["spec"].update(unschedulable=True))
    assert int(again["metadata"]["resourceVersion"]) > last


def test_a_listener_hears_of_each_change_and_its_author() -> None:
    store, reported = Store(seed=1), []
    store.listeners.append(lambda change, author: reported.append((change.type, author)))
    store.create("Node", {"metadata": {"name": "n1"}})
    token = AUTHOR.set("somebody")
    store.delete("Node", "n1")
    AUTHOR.reset(token)
    assert reported == [("ADDED", ""), ("DELETED", "somebody")]
