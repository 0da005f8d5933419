"""What is read from an audit log: who quarrels with whom over a node, and how many nodes are in drain at once."""

from __future__ import annotations

import json

import msgspec
import pytest

from tightship_testkit.audit import AuditEvent, ObjectRef, ResponseStatus, User
from tightship_testkit.audit_readings import most_in_drain, quarrels
from tightship_testkit.client import Json
from tightship_testkit.embedded_audit import changed_fields
from tightship_testkit.marks import ANNOTATION, MAY_WRITE, STEERING, TAINT
from tightship_testkit.replica import COMPACTOR, REFINER

BOTH = {COMPACTOR.user: COMPACTOR.name, REFINER.user: REFINER.name}


def state(*soft: str, phase: str = "", controller: str = COMPACTOR.name, cordoned: bool | None = None) -> Json:
    """Return a node as a write leaves it: with soft taints of these controllers, and perhaps a record."""
    owned = phase not in ("", "Marked", "Backoff")
    record = {ANNOTATION: json.dumps({"phase": phase, "controller": controller, "op": "1"})} if phase else {}
    taints = [{"key": STEERING, "value": each, "effect": "PreferNoSchedule"} for each in soft]
    taints += [{"key": TAINT, "value": "1", "effect": "NoSchedule"}] if owned else []
    return {"annotations": record, "taints": taints, "unschedulable": owned if cordoned is None else cordoned}


def written(
    number: int, user: str, node: Json, name: str = "n1", uid: str = "first", answered: int | None = None
) -> AuditEvent:
    meta = {"name": name, "uid": f"{name}-{uid}", "resourceVersion": str(number), "annotations": node["annotations"]}
    stored = {"metadata": meta, "spec": {"taints": node["taints"], "unschedulable": node["unschedulable"]}}
    return AuditEvent(
        verb="patch",
        request_uri=f"/api/v1/nodes/{name}",
        user=User(user),
        object_ref=ObjectRef("nodes", name=name),
        response_status=ResponseStatus(200),
        stage_timestamp=f"2026-01-01T00:00:{answered or number:02}Z",
        response_object=msgspec.Raw(json.dumps(stored).encode()),
    )


@pytest.mark.parametrize(
    ("before", "after", "quarrel"),
    [
        (state(phase="Evicting"), state(phase="Claimed", controller=REFINER.name), True),
        (state(phase="Evicting"), state(phase="Evicting", cordoned=False), True),
        (state(phase="Evicting"), state(), True),
        (state(phase="Evicting"), state("node-refiner", phase="Evicting"), False),
        (state(phase="Marked"), state(), True),
        (state(phase="Marked"), state(phase="Claimed", controller=REFINER.name), False),
        (state(COMPACTOR.name), state(), True),
        (state(REFINER.name), state(), False),
        (state(phase="Backoff"), state(phase="Claimed", controller=REFINER.name), False),
    ],
)
def test_what_counts_as_a_quarrel(before: Json, after: Json, quarrel: bool) -> None:
    own = written(1, COMPACTOR.user, before)
    assert bool(quarrels([own, written(2, REFINER.user, after)], BOTH)) is quarrel
    assert quarrels([own, written(2, "somebody else", after)], BOTH) == []


def test_a_write_whose_answer_comes_after_its_node_was_told_to_go_does_not_leave_it_in_drain() -> None:
    """The log has the deletion by when it was asked for, and the write by when it was answered."""
    own = COMPACTOR.user
    deletion = AuditEvent(
        verb="delete",
        request_uri="/api/v1/nodes/n1",
        object_ref=ObjectRef("nodes", name="n1"),
        response_status=ResponseStatus(200),
        request_received_timestamp="2026-01-01T00:00:02Z",
    )
    begun, next_one = written(1, own, state(phase="Evicting")), written(4, own, state(phase="Claimed"), "n2")
    assert most_in_drain([begun, deletion, written(3, own, state(phase="Yielded")), next_one]) == 1
    assert most_in_drain([begun, deletion, written(3, own, state(phase="Claimed"), uid="second"), next_one]) == 2
    assert most_in_drain([begun, next_one]) == 2


def test_a_write_whose_answer_is_held_up_counts_from_when_it_was_stored() -> None:
    own = COMPACTOR.user
    begun, next_one = written(1, own, state(phase="Evicting")), written(3, own, state(phase="Claimed"), "n2")
    assert most_in_drain([begun, next_one, written(2, own, state(phase="Backoff"), answered=5)]) == 1
    assert most_in_drain([begun, next_one, written(4, own, state(phase="Backoff"))]) == 2


def test_fields_in_which_two_versions_differ_are_told_by_section_and_key() -> None:
    before = {
        "metadata": {"name": "n1", "resourceVersion": "1", "labels": {"a": "1", "b": "1"}},
        "spec": {"taints": []},
    }
    after = {
        "metadata": {"name": "n1", "resourceVersion": "2", "labels": {"a": "2"}, "annotations": {ANNOTATION: "{}"}},
        "spec": {"taints": [], "unschedulable": True},
        "status": {"phase": "Running"},
    }
    wrong = {"metadata/labels/a", "metadata/labels/b", "status/phase"}
    assert changed_fields(before, before) == set()
    assert changed_fields(before, after) - MAY_WRITE == wrong
