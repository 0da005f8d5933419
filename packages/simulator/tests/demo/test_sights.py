"""What is seen of API objects, and of what controllers say."""

from __future__ import annotations

import json

from lively import node, pod, workload

from tightship.core.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship_simulator.demo.sights import EventSeen, FloorSeen, NodeSeen, PodSeen, StatusSeen, seen, status_line


def test_a_node_in_drain_tells_whose_drain_it_is() -> None:
    item = node("n1", unschedulable=True)
    record = encode_record(DrainRecord(phase=Phase.EVICTING, controller="node-refiner", op="x"))
    item["metadata"]["annotations"] = {DRAIN_ANNOTATION: record}
    assert seen(item) == NodeSeen("n1", "a", 4000, 16384, cordoned=True, drain="Evicting", by="node-refiner")


def test_a_mark_is_no_drain() -> None:
    item = node("n1")
    record = encode_record(DrainRecord(phase=Phase.MARKED, controller="node-compactor"))
    item["metadata"]["annotations"] = {DRAIN_ANNOTATION: record}
    assert seen(item) == NodeSeen("n1", "a", 4000, 16384)


def test_a_node_that_the_autoscaler_takes_is_told_by_its_taint() -> None:
    found = seen(node("n1", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]))
    assert isinstance(found, NodeSeen)
    assert found.taken


def test_a_pod_tells_its_workload_and_what_it_requests() -> None:
    owner = workload("DaemonSet", "agent")
    assert seen(pod("p", "n1", "250m", owner=owner)) == PodSeen(
        "shop/p", "shop/agent", 250, 0, node="n1", ready=True, daemon=True
    )


def test_a_finished_pod_is_not_seen() -> None:
    item = pod("p", "n1")
    item["status"]["phase"] = "Succeeded"
    assert seen(item) is None


def test_a_floor_tells_whether_it_holds() -> None:
    condition = {"type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas"}
    item = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "annotations": {"estafette.io/hpa-scaler": "true"}},
        "spec": {"minReplicas": 4, "maxReplicas": 9},
        "status": {"currentReplicas": 5, "desiredReplicas": 4, "conditions": [condition]},
    }
    assert seen(item) == FloorSeen("shop/web", 4, 9, 5, 4, guarded=True, kept=True)


def test_events_of_both_forms_are_read_and_those_of_nobody_are_not() -> None:
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
    assert seen({"kind": "Event", "metadata": {}}) is None


def test_a_status_is_one_line_with_the_most_frequent_reasons() -> None:
    stays = [{"order": None, "reasons": ["TooYoung", "PoolDisabled"]}] * 2 + [{"order": None, "reasons": ["Cordoned"]}]
    told = {"held": {"n9": {"reason": "CoolDown"}}, "plan": {"nodes": [{"order": 1, "reasons": []}, *stays]}}
    line = status_line("node-compactor", json.dumps(told).encode())
    text = "could remove 1 (waiting: CoolDown 1); the others stay: TooYoung 2, Cordoned 1"
    assert line == StatusSeen("node-compactor", text)


def test_a_controller_without_a_plan_says_nothing() -> None:
    assert status_line("node-compactor", b'{"plan": null}') is None
    assert status_line("node-compactor", b"<html>") is None
