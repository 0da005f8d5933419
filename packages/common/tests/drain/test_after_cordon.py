"""A drain waits for what opens after its cordon: one node at a time, within its time, and what failed pauses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.drain.machine import (
    LOOK_AGAIN,
    DrainRules,
    Findings,
    Look,
    NodeChange,
    Over,
    Step,
    Wait,
    Write,
    advance,
    claimed,
)
from tightship.objects import Node
from tightship.objects.drain_record import (
    DRAIN_ANNOTATION,
    FIELD_MANAGER,
    DrainRecord,
    Ending,
    Phase,
    decode_record,
    encode_record,
)
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.after_cordon import awaited, parted, paused, pausing, waiting_elsewhere
from tightship_testkit import builders
from tightship_testkit.builders import NOW

RULES = DrainRules(settle=5.0, after_cordon_timeout=600.0, backoff=300.0, hold_off=7200.0)
WEB = Refusal(Reason.OPENS_AFTER_CORDON, "shop/web", "PDB web opens", "see why")
DB = Refusal(Reason.OPENS_AFTER_CORDON, "shop/db", "PDB db opens", "see why")
PASSING = Refusal(Reason.PDB_EXHAUSTED, "shop/web-1", "one is not Ready")
GONE = Refusal(Reason.NO_PLACE, "shop/web-1", "too big")
POD = builders.decoded(builders.pod("web-1"))


def node(**more: Any) -> Node:
    managed = [{"manager": FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    taints = [{"key": DRAINING.key, "value": "op", "effect": "NoSchedule"}]
    return builders.decoded(builders.node(unschedulable=True, taints=taints, meta={"managedFields": managed}, **more))


BOTH = awaited((WEB, DB))
CLAIM = claimed(
    node(),
    None,
    op="op",
    controller="c",
    holder="h",
    epoch=1,
    plan_hash="p",
    waits_for=awaited((WEB, DB)),
    now=NOW - 60,
)
BEGUN = msgspec.structs.replace(CLAIM, deadline=NOW + 540)


def step(record: DrainRecord = BEGUN, now: float = NOW, **more: Any) -> Step:
    found = {"node": node(), "fresh": True, "judged": True, "evict": (POD,), "next": (POD,), **more}
    return advance("op", record, Findings(**found), RULES, now)


def record_of(made: Step) -> DrainRecord:
    assert isinstance(made, Write)
    assert made.record is not None
    return made.record


def test_the_wait_begins_after_a_fresh_look_and_is_on_the_node_with_its_deadline() -> None:
    assert step(CLAIM, opens=(WEB,), fresh=False) == Look()
    begun = record_of(step(CLAIM, opens=(WEB,)))
    assert begun == msgspec.structs.replace(CLAIM, deadline=NOW + 600, reason=str(WEB))
    assert decode_record(encode_record(begun)) == begun


def test_nothing_is_evicted_and_nothing_listed_while_anything_is_shut() -> None:
    assert step(opens=(DB, WEB), fresh=False, judged=False) == Wait(NOW + LOOK_AGAIN, DB.detail)


def test_evictions_begin_after_a_fresh_look_once_all_is_open() -> None:
    assert step(fresh=False) == Look()
    evicting = record_of(step())
    assert (evicting.phase, evicting.reason, evicting.deadline) == (Phase.EVICTING, "", NOW + RULES.node_timeout)


def test_at_the_deadline_the_node_is_given_back_after_one_more_look() -> None:
    late = NOW + 541
    assert step(now=late, opens=(WEB,), fresh=False) == Look()
    made = step(now=late, opens=(WEB, PASSING))
    assert isinstance(made, Write)
    assert made.because == Refusal(Reason.NOT_OPENED, "shop/web", "did not open in 10m: PDB web opens", "see why")
    restoring = record_of(made)
    assert (restoring.phase, restoring.waits_for) == (Phase.RESTORING, awaited((WEB,)))
    undone = step(restoring, now=late)
    assert isinstance(undone, Write)
    assert undone.change is NodeChange.RESTORE
    backoff = record_of(undone)
    assert (backoff.phase, backoff.next_try, backoff.waits_for) == (Phase.BACKOFF, late + 7200, awaited((WEB,)))


def test_what_opens_in_the_last_moment_is_used() -> None:
    assert record_of(step(now=NOW + 541)).phase is Phase.EVICTING


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"against": (GONE,)}, Reason.NO_PLACE),
        ({"pending": (msgspec.structs.replace(POD, created=int(NOW - 40)),)}, Reason.REPLACEMENTS_PENDING),
        ({"node": node(ready="False")}, Reason.NOT_READY),
        ({"node_refusals": (Refusal(Reason.POOL_DISABLED, "n"),)}, Reason.POOL_DISABLED),
    ],
)
def test_anything_else_ends_the_wait_and_pauses_nothing_but_the_node(more: dict[str, Any], reason: Reason) -> None:
    made = step(opens=(WEB,), fresh=False, judged=False, **more)
    if isinstance(made, Look):
        made = step(opens=(WEB,), **more)
    assert isinstance(made, Write)
    assert made.because is not None
    assert made.because.reason is reason
    assert record_of(made).waits_for == ()


def test_a_person_who_uncordons_pauses_nothing_but_the_node() -> None:
    freed = msgspec.structs.replace(node(), unschedulable=False)
    held = record_of(step(node=freed, opens=(WEB,)))
    assert (held.phase, held.waits_for) == (Phase.BACKOFF, ())


def test_a_controller_that_stops_leaves_a_wait_to_the_next_and_gives_back_a_node_that_has_none() -> None:
    assert step(opens=(WEB,), stopping=True) == Over(Ending.PARKED)
    assert record_of(step(CLAIM, opens=(WEB,), stopping=True)).phase is Phase.RESTORING


# Pauses, and one at a time.


def view(name: str, record: DrainRecord) -> Any:
    return builders.node(name, meta={"annotations": {DRAIN_ANNOTATION: encode_record(record)}})


def test_what_was_waited_for_in_vain_pauses_on_every_node_until_then() -> None:
    failed = DrainRecord(phase=Phase.BACKOFF, next_try=NOW + 60, waits_for=awaited((WEB,)))
    later = msgspec.structs.replace(failed, next_try=NOW + 90)
    over = msgspec.structs.replace(failed, next_try=NOW, waits_for=awaited((DB,)))
    now_waits = msgspec.structs.replace(BEGUN, waits_for=awaited((DB,)))
    cluster = builders.snapshot(view("a", failed), view("b", later), view("c", over), view("d", now_waits))
    found = paused(cluster, NOW)
    assert found == {"OpensAfterCordon shop/web": ("b", NOW + 90)}
    [refusal], rest = pausing((WEB, DB), found, NOW)
    assert rest == [DB]
    assert refusal.reason is Reason.NOT_OPENED
    assert "node b, next try in 90s" in refusal.detail
    assert parted([WEB, GONE, refusal]) == ([GONE, refusal], [WEB])


@pytest.mark.parametrize(
    ("record", "blocks"),
    [
        (BEGUN, True),
        (msgspec.structs.replace(BEGUN, phase=Phase.EVICTING), True),
        (msgspec.structs.replace(BEGUN, phase=Phase.DRAINED), False),
        (msgspec.structs.replace(BEGUN, phase=Phase.DRAINED, op="before"), True),
    ],
)
def test_one_node_at_a_time_until_its_drain_has_emptied_it(record: DrainRecord, blocks: bool) -> None:
    cluster = builders.snapshot(view("a", record), builders.node("b"))
    refusal = waiting_elsewhere(cluster, {"a": "op"}, "b")
    assert (refusal is not None) is blocks
    assert waiting_elsewhere(cluster, {"a": "op"}, "a") is None
    assert waiting_elsewhere(cluster, {"unseen": "op"}, "b") is not None
