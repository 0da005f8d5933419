"""The health brake: when nothing at all is drained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.cluster import Snapshot
from tightship.objects.drain_record import Finished, owner_mark
from tightship.objects.reasons import Reason, Refusal
from tightship.process.settings.loading import load
from tightship.process.settings.sections import HealthKeys
from tightship.rules.waiting import brake
from tightship_testkit.builders import NOW, controller, node, pod, snapshot, workload

Json = dict[str, Any]


def drained(pool: str, ending: str, ago: float, reason: str = "", by: str = "node-toy") -> Finished:
    return Finished(node=f"{pool}9", pool=pool, controller=by, ending=ending, at=NOW - ago, reason=reason)


def braked(cluster: Snapshot, *finished: Finished, failures: int = 0, **settings: object) -> Refusal | None:
    return brake(cluster, finished, load(HealthKeys, settings), NOW, failures)


def nodes(ready: int, not_ready: int, **given: Any) -> list[Json]:
    well = [node(f"n{number:03}") for number in range(ready)]
    return [*well, *(node(f"x{number:03}", ready="Unknown", **given) for number in range(not_ready))]


@pytest.mark.parametrize(
    ("ready", "not_ready", "settings", "holds"),
    [
        (2, 1, {}, False),
        (2, 2, {}, True),
        (4, 4, {}, True),
        (90, 10, {}, False),
        (89, 11, {}, True),
        (4, 4, {"maximumNotReadyNodeCount": 4}, False),
        (4, 4, {"maximumNotReadyNodePercentage": "50%"}, False),
        (5, 1, {"maximumNotReadyNodeCount": 0}, True),
    ],
)
def test_too_many_nodes_that_are_not_ready(ready: int, not_ready: int, settings: Json, holds: bool) -> None:
    assert (braked(snapshot(*nodes(ready, not_ready)), **settings) is not None) == holds


def test_nodes_that_are_being_deleted_are_not_counted() -> None:
    leaving = nodes(4, 4, taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])
    assert braked(snapshot(*leaving)) is None


@pytest.mark.parametrize(("failures", "holds"), [(0, False), (2, False), (3, True)])
def test_an_api_server_that_fails_pass_after_pass(failures: int, holds: bool) -> None:
    assert (braked(snapshot(node()), failures=failures) is not None) == holds


LAST = drained("a", "handed_over", 600)


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        ({"age": 300.0}, True),
        ({"age": 60.0}, False),
        ({"age": 601.0}, False),
        ({"age": 300.0, "cpu": "8"}, False),
        ({"age": 300.0, "schedulingGates": [{"name": "g"}]}, False),
        ({"age": 300.0, "schedulerName": "other"}, False),
        ({"age": 300.0, "deletion": NOW}, False),
    ],
    ids=[
        "pending",
        "only just",
        "before the drain ended",
        "fits on no node",
        "gated",
        "another scheduler's",
        "leaving",
    ],
)
def test_pods_without_a_place_since_the_last_drain(given: Json, holds: bool) -> None:
    cpu = given.pop("cpu", "4")
    cluster = snapshot(
        node(), pod("full", cpu="3500m"), pod("new", on="", phase="Pending", cpu=cpu, **given), workload()
    )
    assert (braked(cluster, LAST) is not None) == holds


@pytest.mark.parametrize(
    ("given", "holds"),
    [
        ({}, True),
        ({"priority": -10}, True),
        ({"priority": -11}, False),
        ({"owner": controller("DaemonSet", "web")}, False),
        ({"owner": controller("ReplicaSet", "other")}, False),
        ({"naked": True}, False),
    ],
    ids=["displaced", "not expendable", "expendable", "of a DaemonSet", "of another controller", "of none"],
)
def test_the_brake_holds_only_for_pods_that_a_drain_displaced(given: Json, holds: bool) -> None:
    cluster = snapshot(
        node(), pod("full", cpu="3500m"), pod("new", on="", phase="Pending", cpu="4", age=300.0, **given), workload()
    )
    drain = msgspec.structs.replace(LAST, displaced=frozenset({owner_mark("uid-web")}))
    assert (braked(cluster, drain) is not None) == holds
    assert braked(cluster, msgspec.structs.replace(LAST, displaced=frozenset())) is None


def test_without_a_drain_lately_pending_pods_say_nothing_about_drains() -> None:
    cluster = snapshot(node(), pod("new", on="", phase="Pending", age=300.0), workload())
    assert braked(cluster) is None
    assert braked(cluster, drained("a", "restored", 3601)) is None


def test_the_window_ends_what_nothing_can_help() -> None:
    cluster = snapshot(node(), pod("new", on="", phase="Pending", age=3500.0), workload())
    assert braked(cluster, drained("a", "handed_over", 3550)) is not None
    assert braked(cluster, drained("a", "handed_over", 3550), pendingAfterDrainWindow="30m") is None


def test_all_causes_are_told_at_once() -> None:
    found = braked(snapshot(*nodes(1, 5)), failures=9)
    assert (found.reason, found.subject) == (Reason.CLUSTER_UNHEALTHY, "cluster")
    assert found.detail == (
        "5 of 6 nodes are not Ready (x000, x001, x002 and 2 more), at most 1 or 10% may be; "
        "the API server failed 9 passes in a row, and at most 2 may fail"
    )
