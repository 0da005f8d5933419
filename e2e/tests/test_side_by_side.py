"""node-compactor and node-refiner on one cluster: one budget, one ledger, and neither touches what is the other's."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from drains import Run, Site

from tightship_e2e import ControlPlane
from tightship_testkit.audit import AuditEvent, ObjectRef, ResponseStatus, User
from tightship_testkit.client import Json, wait_for
from tightship_testkit.drains import all_ready, removing
from tightship_testkit.invariants import (
    ANNOTATION,
    STEERING,
    TAINT,
    claims_made,
    forbidden,
    most_in_drain,
    node_writes,
    quarrels,
)
from tightship_testkit.off_peak import off_peak
from tightship_testkit.refining import quick
from tightship_testkit.replica import COMPACTOR, QUICK, REFINER, new_team

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


def test_compactor_and_refiner_drain_one_cluster_together(on_site: Run, control_plane: ControlPlane) -> None:
    """The compactor has one pool and begins, the refiner has the whole cluster, and pauses after each drain."""

    async def work(on: Site) -> None:
        control_plane.audit_events()
        before = len(await on.api.list("Node"))
        began = time.monotonic()
        on.start()
        await on.seen(lambda: bool(on.recorder.in_drain()), "the compactor has begun")
        ledger = f"{on.team}-claims"
        on.team = new_team()
        await on.staff(REFINER, quick(time_gap="4s"))
        on.start(CLAIMS_LEASE_NAME=ledger)
        events: list[AuditEvent] = []
        async with removing(on.api) as remover:

            async def rests() -> bool:
                events.extend(control_plane.audit_events())
                if {each.user for each in claims_made(events)} != set(BOTH) or on.recorder.in_drain():
                    return False
                return time.time() - node_writes(events)[-1].seconds > 20

            await wait_for(rests, 360, "both have drained nodes, and find no more")
        took = time.monotonic() - began
        await all_ready(on.api)
        for replica in on.replicas:
            replica.told_to_end()
            assert await replica.ended() == 0
        events += control_plane.audit_events()
        made = claims_made(events)
        by = {name: sum(each.user == user for each in made) for user, name in BOTH.items()}
        print(
            f"\n{len(remover.removed)} of {before} nodes removed in {took:.0f} s, claims {by}, longest Pending "
            f"{on.recorder.longest_pending:.1f} s, least spare of budgets {min(on.recorder.least_spare.values())}"
        )
        assert min(by.values()) >= 1
        assert most_in_drain(events) == 1
        assert quarrels(events, BOTH) == []
        assert [forbidden(events, user) for user in BOTH] == [[], []]
        assert {each["metadata"]["name"] for each in await on.api.list("Node")}.isdisjoint(remover.removed)
        assert on.recorder.in_drain() == {}

    pool = {"enabled": True, "scaleDownCPURequestRatioLimit": 0.75, "scaleDownRequiredUnderutilizedNodeCount": 1}
    settings = {**QUICK, "nodePools": {"memory": pool}, "neededMarkedTimeForRemoval": 1}
    on_site(work, off_peak({"general": 5, "memory": 5}, low=0.5, high=0.6), settings=settings)
