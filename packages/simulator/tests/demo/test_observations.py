"""What is seen of API objects, and of what controllers say."""

from __future__ import annotations

import json

import pytest
from lively import Json, node, pod, workload

from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship_simulator.demo.observations import (
    EventSeen,
    FloorSeen,
    NodeSeen,
    Observation,
    PodSeen,
    StatusSeen,
    seen,
    status_line,
)


def drained(record: DrainRecord, **spec: object) -> Json:
    """Return a node with a drain's record."""
    item = node("n1", **spec)
    item["metadata"]["annotations"] = {DRAIN_ANNOTATION: encode_record(record)}
    return item


def finished(name: str) -> Json:
    item = pod(name, "n1")
    item["status"]["phase"] = "Succeeded"
    return item


REFINED = DrainRecord(phase=Phase.EVICTING, controller="node-refiner", op="x")
MARKED = DrainRecord(phase=Phase.MARKED, controller="node-compactor")
GOING = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
DAEMON = pod("p", "n1", "250m", owner=workload("DaemonSet", "agent"))


@pytest.mark.parametrize(
    ("item", "observation"),
    [
        (
            drained(REFINED, unschedulable=True),
            NodeSeen("n1", "a", 4000, 16384, cordoned=True, drain="Evicting", by="node-refiner"),
        ),
        (drained(MARKED), NodeSeen("n1", "a", 4000, 16384)),
        (node("n1", taints=[GOING]), NodeSeen("n1", "a", 4000, 16384, taken=True)),
        (DAEMON, PodSeen("shop/p", "shop/agent", 250, 0, node="n1", ready=True, daemon=True)),
        (finished("p"), None),
        ({"kind": "Event", "metadata": {}}, None),
    ],
    ids=["in drain", "a mark is no drain", "taken by the autoscaler", "a pod", "a finished pod", "an Event of nobody"],
)
def test_what_is_seen(item: Json, observation: Observation | None) -> None:
    assert seen(item) == observation


def test_a_floor_tells_whether_it_holds() -> None:
    condition = {"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas"}
    item = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "annotations": {"tightship.dev/hpa-scaler": "true"}},
        "spec": {"minReplicas": 4, "maxReplicas": 9},
        "status": {"currentReplicas": 5, "desiredReplicas": 4, "conditions": [condition]},
    }
    assert seen(item) == FloorSeen("shop/web", 4, 9, 5, 4, guarded=True, kept=True)


def test_events_of_both_forms_are_read() -> None:
    new = {
        "kind": "Event",
        "metadata": {},
        "reportingController": "tightship.dev/node-refiner",
        "regarding": {"kind": "Node", "name": "n1"},
        "reason": "NodeDrained",
        "note": "NodeDrained",
        "type": "Normal",
    }
    expected = EventSeen("node-refiner", "Node", "n1", "NodeDrained", "NodeDrained")
    assert seen(new) == expected
    old = {**new, "involvedObject": new["regarding"], "message": new["note"]}
    del old["regarding"], old["note"]
    assert seen(old) == expected


def test_a_status_is_one_line_with_the_most_frequent_reasons() -> None:
    stays = [{"order": None, "reasons": ["TooYoung", "PoolDisabled"]}] * 2 + [{"order": None, "reasons": ["Cordoned"]}]
    reported = {"held": {"n9": {"reason": "CoolDown"}}, "plan": {"nodes": [{"order": 1, "reasons": []}, *stays]}}
    line = status_line("node-compactor", json.dumps(reported).encode())
    text = "could remove 1 (waiting: CoolDown 1); the others stay: TooYoung 2, Cordoned 1"
    assert line == StatusSeen("node-compactor", text)


def test_a_controller_without_a_plan_says_nothing() -> None:
    assert status_line("node-compactor", b'{"plan": null}') is None
    assert status_line("node-compactor", b"<html>") is None
