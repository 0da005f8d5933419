"""Which nodes may be drained: one row for each opt-out, each owner, each state, and what switches a rule off."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tightship.objects.reasons import Reason
from tightship.rules.nodes import (
    SWITCHABLE,
    LegacyState,
    NodeRules,
    drain_record,
    draining,
    judge_node,
    legacy_state,
)
from tightship_testkit.builders import NOW, node, snapshot, when

Json = dict[str, Any]

OURS = "tightship.dev/do-not-drain"
CA = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
KARPENTER = "karpenter.sh/do-not-disrupt"
SHARED = "node-autoscaling.kubernetes.io/do-not-disrupt"
CAST = "autoscaling.cast.ai/removal-disabled"
DRAIN = "tightship.dev/drain"
SEED = "estafette.io/node-compactor-state"


def taint(key: str) -> Json:
    return {"taints": [{"key": key, "value": "1", "effect": "NoSchedule"}]}


def mark(**said: object) -> Json:
    return {"notes": {DRAIN: json.dumps({"v": 1, **said})}}


def at(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat()


def judged(given: Json, rules: NodeRules = NodeRules()) -> list[Reason]:
    [view] = snapshot(node(**given)).nodes.values()
    return sorted(refusal.reason for refusal in judge_node(view, NOW, rules))


BLOCKED: list[tuple[str, Json, Reason]] = [
    ("control plane label", {"labels": {"node-role.kubernetes.io/control-plane": ""}}, Reason.CONTROL_PLANE),
    ("a virtual node", {"labels": {"type": "virtual-kubelet"}}, Reason.VIRTUAL_NODE),
    ("our own opt-out", {"notes": {OURS: "true"}}, Reason.NODE_DO_NOT_DRAIN),
    ("our own opt-out with any other word", {"notes": {OURS: "ask me"}}, Reason.NODE_DO_NOT_DRAIN),
    ("CA's opt-out", {"notes": {CA: "true"}}, Reason.SCALE_DOWN_DISABLED),
    ("Karpenter's opt-out", {"notes": {KARPENTER: "true"}}, Reason.NODE_DO_NOT_DISRUPT),
    ("its older opt-out", {"notes": {"karpenter.sh/do-not-consolidate": "true"}}, Reason.NODE_DO_NOT_DISRUPT),
    (
        "taken by an older Karpenter",
        {"taints": [{"key": "karpenter.sh/disruption", "value": "disrupting", "effect": "NoSchedule"}]},
        Reason.KARPENTER_DISRUPTED,
    ),
    ("the opt-out of all autoscalers", {"notes": {SHARED: "true"}}, Reason.NODE_DO_NOT_DISRUPT),
    ("CAST AI's opt-out", {"notes": {CAST: "true"}}, Reason.NODE_DO_NOT_DISRUPT),
    ("CAST AI's opt-out as a label", {"labels": {CAST: "true"}}, Reason.NODE_DO_NOT_DISRUPT),
    ("Escalator's opt-out", {"notes": {"atlassian.com/no-delete": "stateful"}}, Reason.NODE_DO_NOT_DISRUPT),
    ("Spot Ocean's opt-out", {"labels": {"spotinst.io/restrict-scale-down": "true"}}, Reason.NODE_DO_NOT_DISRUPT),
    ("others drain it", {"true": ("DrainInProgress",)}, Reason.NODE_LIFECYCLE),
    ("others have drained it", {"true": ("Drained",)}, Reason.NODE_LIFECYCLE),
    ("under maintenance", {"true": ("MaintenanceInProgress",)}, Reason.NODE_LIFECYCLE),
    ("shutting down", {"true": ("GracefulNodeShutdownInProgress",)}, Reason.NODE_LIFECYCLE),
    ("Karpenter's NodePool", {"labels": {"karpenter.sh/nodepool": "spot"}}, Reason.KARPENTER_MANAGED),
    ("CA is deleting it", taint("ToBeDeletedByClusterAutoscaler"), Reason.TO_BE_DELETED),
    ("Karpenter is disrupting it", taint("karpenter.sh/disrupted"), Reason.KARPENTER_DISRUPTED),
    ("its object is being deleted", {"meta": {"deletionTimestamp": when(NOW)}}, Reason.NODE_TERMINATING),
    ("cordoned by somebody", {"unschedulable": True}, Reason.CORDONED),
    ("in a drain of ours", mark(phase="Evicting"), Reason.DRAIN_IN_PROGRESS),
    ("drained, waiting for the autoscaler", mark(phase="Drained"), Reason.DRAIN_IN_PROGRESS),
    ("a drain we can't read", {"notes": {DRAIN: "{"}}, Reason.DRAIN_IN_PROGRESS),
    ("our drain taint alone", taint("tightship.dev/draining"), Reason.DRAIN_IN_PROGRESS),
    ("in a drain of ours, cordoned by it", {**mark(phase="Evicting"), "unschedulable": True}, Reason.DRAIN_IN_PROGRESS),
    (
        "in a drain of the older controller",
        {"notes": {SEED: '{"scaleDownInProgress": true}'}},
        Reason.DRAIN_IN_PROGRESS,
    ),
    ("backing off", mark(phase="Backoff", nextTry=at(NOW + 1)), Reason.BACKOFF),
    ("not Ready", {"ready": "False"}, Reason.NOT_READY),
    ("of unknown health", {"ready": "Unknown"}, Reason.NOT_READY),
    ("without allocatable CPU", {"allocatable": {"memory": "1Gi"}}, Reason.NO_ALLOCATABLE),
]
IDS = [row[0] for row in BLOCKED]


@pytest.mark.parametrize(("given", "reason"), [row[1:] for row in BLOCKED], ids=IDS)
def test_a_rule_blocks_with_its_own_reason(given: Json, reason: Reason) -> None:
    assert judged(given) == [reason]


@pytest.mark.parametrize(("given", "reason"), [row[1:] for row in BLOCKED], ids=IDS)
def test_opt_outs_can_be_switched_off_and_what_others_do_can_not(given: Json, reason: Reason) -> None:
    without = judged(given, NodeRules(frozenset({reason})))
    if reason in SWITCHABLE:
        assert without == []
    assert judged(given, NodeRules(SWITCHABLE - {reason})) == [reason]


def test_every_switchable_rule_has_a_row() -> None:
    # test_karpenter.py has the rows of Karpenter's NodePools, test_node_groups.py those of the autoscaler's groups.
    elsewhere = {Reason.KARPENTER_CONSOLIDATION_OFF, Reason.NOT_AUTOSCALED}
    assert {reason for _, _, reason in BLOCKED} | elsewhere >= SWITCHABLE


FREE: list[tuple[str, Json]] = [
    ("a quiet node", {}),
    ("our opt-out taken back", {"notes": {OURS: "false"}}),
    ("CA's opt-out taken back", {"notes": {CA: "false"}}),
    ("CA's opt-out with a word CA does not know", {"notes": {CA: "yes"}}),
    ("Karpenter's opt-out taken back", {"notes": {KARPENTER: "false"}}),
    ("maintenance that is only planned", {"true": ("MaintenancePlanned",)}),
    ("a condition that nobody knows", {"true": ("Tuesday",)}),
    (
        "CA's soft candidate taint",
        {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]},
    ),
    ("somebody's own taint", taint("team")),
    ("marked by us", mark(phase="Marked")),
    ("a back-off that is over", mark(phase="Backoff", nextTry=at(NOW))),
    ("a back-off without a time", mark(phase="Backoff")),
    ("marked by the older controller", {"notes": {SEED: '{"lastUpdated": "2026-09-01T00:00:00Z"}'}}),
]


@pytest.mark.parametrize("given", [row[1] for row in FREE], ids=[row[0] for row in FREE])
def test_nothing_stands_against(given: Json) -> None:
    assert judged(given) == []


def test_all_reasons_are_given_not_only_the_first() -> None:
    given = {
        "notes": {OURS: "true", CA: "true", KARPENTER: "true"},
        "labels": {"node-role.kubernetes.io/control-plane": ""},
        "ready": "False",
        "unschedulable": True,
    }
    assert set(judged(given)) == {
        Reason.CONTROL_PLANE,
        Reason.NODE_DO_NOT_DRAIN,
        Reason.SCALE_DOWN_DISABLED,
        Reason.NODE_DO_NOT_DISRUPT,
        Reason.NOT_READY,
        Reason.CORDONED,
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            mark(phase="Evicting", controller="node-refiner", reason="PdbExhausted"),
            "by node-refiner is in phase Evicting: PdbExhausted",
        ),
        (mark(phase="Backoff", nextTry=at(NOW + 600), reason="PdbExhausted"), "failed (PdbExhausted); next try in 10m"),
        ({"notes": {DRAIN: "{"}}, "phase Unknown: annotation tightship.dev/drain can't be read"),
        ({"labels": {"karpenter.sh/nodepool": "spot"}}, "NodePool spot"),
    ],
)
def test_the_detail_says_what_the_mark_says(given: Json, words: str) -> None:
    [view] = snapshot(node(**given)).nodes.values()
    [refusal] = judge_node(view, NOW)
    assert words in refusal.detail


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ({"notes": {OURS: "true"}}, "kubectl annotate node n1 tightship.dev/do-not-drain-"),
        ({"unschedulable": True}, "kubectl uncordon n1"),
    ],
)
def test_the_fix_is_the_command_to_type(given: Json, command: str) -> None:
    [view] = snapshot(node(**given)).nodes.values()
    [refusal] = judge_node(view, NOW)
    assert refusal.fix == command


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ('{"scaleDownInProgress": true, "lastUpdated": "2026-09-01T00:00:00Z"}', LegacyState(True)),
        ('{"scaleDownInProgress": false, "lastUpdated": "2026-09-01T00:00:00Z"}', LegacyState(False, 1788220800.0)),
        ('{"markedForRemoval": false, "lastUpdated": "2026-09-01T00:00:00Z"}', LegacyState()),
        ('{"markedForRemoval": true, "lastUpdated": "2026-09-01T00:00:00Z"}', LegacyState(False, 1788220800.0)),
        ('{"lastUpdated": "yesterday"}', LegacyState()),
        ('{"lastUpdated": ""}', LegacyState()),
        ("{}", LegacyState()),
        ("{", None),
    ],
)
def test_the_older_controllers_state_is_read(text: str, state: LegacyState | None) -> None:
    [view] = snapshot(node(notes={SEED: text})).nodes.values()
    assert legacy_state(view.node) == state


def test_a_node_without_marks_is_in_no_drain() -> None:
    [view] = snapshot(node()).nodes.values()
    assert drain_record(view.node) is None
    assert legacy_state(view.node) is None
    assert not draining(view.node)
