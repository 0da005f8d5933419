"""Each transition of the drain machine, from a record, a look and a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tightship.drain.machine import (
    KEPT,
    DrainRules,
    Evict,
    Findings,
    Look,
    NodeChange,
    Over,
    Step,
    Wait,
    Write,
    advance,
    claimed,
    repaired,
)
from tightship.objects import Node, Pod
from tightship.objects.drain_record import FIELD_MANAGER, DrainRecord, Ending, Phase, decode_record, encode_record
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.nodes import KARPENTER_DISRUPTED, TO_BE_DELETED
from tightship_testkit import builders
from tightship_testkit.builders import NOW

RULES = DrainRules()
CLAIMED_AT = NOW - 100.0
AGAINST = (Refusal(Reason.NO_PLACE, "shop/web-1", "too big"),)


def node(
    *keys: str,
    cordoned: bool = True,
    tainted: bool = True,
    ready: str = "True",
    by: tuple[str, ...] = (FIELD_MANAGER,),
    **meta: Any,
) -> Node:
    taints = [{"key": key, "value": "1", "effect": "NoSchedule"} for key in keys]
    if tainted:
        taints.append({"key": DRAINING.key, "value": "op", "effect": "NoSchedule"})
    managed = [{"manager": each, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}} for each in by]
    raw = builders.node(ready=ready, taints=taints, unschedulable=cordoned, meta={**meta, "managedFields": managed})
    return builders.decoded(raw)


def pod(name: str = "web-1", **more: Any) -> Pod:
    return builders.decoded(builders.pod(name, **more))


def record(phase: Phase, at: float = CLAIMED_AT, **more: Any) -> DrainRecord:
    return DrainRecord(
        phase=phase, op="op", controller="c", holder="h", since={"Claimed": CLAIMED_AT, phase.value: at}, **more
    )


def seen(**more: Any) -> Findings:
    return Findings(**{"node": node(), "fresh": True, "judged": True, **more})


def step(phase: Phase, look: Findings, rules: DrainRules = RULES, now: float = NOW, **more: Any) -> Step:
    return advance("op", record(phase, **more), look, rules, now)


def written(made: Step) -> tuple[Phase | None, NodeChange, Reason | None]:
    assert isinstance(made, Write), made
    phase = made.record.phase if made.record is not None else None
    return phase, made.change, made.because.reason if made.because is not None else None


def gives_up(made: Step) -> Reason | None:
    """The reason with which the restore begins; nothing is undone by that write yet."""
    phase, change, reason = written(made)
    assert phase is Phase.RESTORING
    assert change is NodeChange.NOTHING
    assert made.record.reason == str(made.because)
    return reason


def test_a_claim_remembers_the_mark_the_attempts_and_the_cordon() -> None:
    marked = DrainRecord(phase=Phase.BACKOFF, attempts=3, op="old", since={"Marked": 1.0, "Backoff": 2.0})
    begun = claimed(node(tainted=False), marked, op="op", controller="c", holder="h", epoch=7, plan_hash="p", now=NOW)
    assert begun == DrainRecord(
        phase=Phase.CLAIMED,
        controller="c",
        op="op",
        holder="h",
        epoch=7,
        since={"Marked": 1.0, "Claimed": NOW},
        prior_unschedulable=True,
        attempts=3,
        plan_hash="p",
    )


def test_a_claimed_node_is_left_alone_until_it_has_settled() -> None:
    made = step(Phase.CLAIMED, seen(evict=(pod(),), next=(pod(),)), now=CLAIMED_AT + 4.9)
    assert made.until == CLAIMED_AT + 5


@pytest.mark.parametrize(
    ("known", "until", "later"),
    [
        (None, NOW + 60, 60),
        (NOW - 20, NOW + 60, 60),
        (NOW + 20, NOW + 60, 40),
        (NOW + 60, NOW + 60, 0),
        (NOW + 90, NOW + 60, 0),
        (None, NOW, 0),
    ],
)
def test_a_pause_moves_the_deadline_by_what_nobody_has_counted_yet(
    known: float | None, until: float, later: float
) -> None:
    made = step(Phase.EVICTING, seen(evict=(pod(),), rests_until=until), deadline=NOW + 100, rests_until=known)
    moved = (made.record.deadline, made.record.rests_until) if isinstance(made, Write) else None
    assert moved == ((NOW + 100 + later, until) if later else None)
    assert isinstance(step(Phase.EVICTING, seen(evict=(pod(),), rests_until=until), rests_until=known), Wait)


@pytest.mark.parametrize(("fresh", "judged"), [(False, False), (True, False), (False, True)])
def test_a_settled_node_is_listed_and_judged_anew_before_anything_goes(fresh: bool, judged: bool) -> None:
    assert step(Phase.CLAIMED, seen(evict=(pod(),), fresh=fresh, judged=judged)) == Look()


def test_a_settled_node_whose_pods_have_places_is_evicted_with_a_deadline() -> None:
    made = step(Phase.CLAIMED, seen(evict=(pod(),)))
    assert written(made) == (Phase.EVICTING, NodeChange.NOTHING, None)
    assert made.record.deadline == NOW + RULES.node_timeout
    assert made.record.since["Evicting"] == NOW


def test_pods_that_end_by_themselves_extend_the_deadline() -> None:
    rules = DrainRules(await_timeout=3600.0)
    made = step(Phase.CLAIMED, seen(awaits=(pod(),)), rules)
    assert made.record.deadline == NOW + rules.node_timeout + 3600


def test_a_settled_node_that_does_not_fit_any_more_is_restored() -> None:
    assert gives_up(step(Phase.CLAIMED, seen(evict=(pod(),), against=AGAINST))) is Reason.NO_PLACE


def test_a_node_settles_from_when_it_was_cordoned_however_late_the_api_server_answered_the_claim() -> None:
    made = step(Phase.CLAIMED, seen(met=NOW - 1, evict=(pod(),), next=(pod(),)))
    assert made.until == NOW - 1 + RULES.settle


def test_a_claimed_node_that_became_not_ready_is_restored() -> None:
    assert gives_up(step(Phase.CLAIMED, seen(node=node(ready="Unknown")))) is Reason.NOT_READY


def test_a_claim_is_given_back_when_the_controller_stops() -> None:
    assert gives_up(step(Phase.CLAIMED, seen(stopping=True), now=CLAIMED_AT)) is Reason.RELEASED


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED])
def test_a_drain_that_nobody_continues_is_given_back_in_one_write(phase: Phase) -> None:
    made = step(phase, seen(evict=(pod(),), releasing=True))
    assert written(made) == (Phase.BACKOFF, NodeChange.RESTORE, Reason.RELEASED)


@pytest.mark.parametrize("other", [node(TO_BE_DELETED), node(KARPENTER_DISRUPTED)])
@pytest.mark.parametrize("phase", [Phase.EVICTING, Phase.DRAINED, Phase.YIELDED])
def test_a_stopping_controller_leaves_every_other_drain_where_it_stands(phase: Phase, other: Node) -> None:
    parked = Over(Ending.PARKED)
    if phase is not Phase.YIELDED:
        assert step(phase, seen(evict=(pod(),), next=(pod(),), stopping=True)) == parked
    if phase is not Phase.EVICTING:
        assert step(phase, seen(node=other, stopping=True)) == parked


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.RESTORING])
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (node(TO_BE_DELETED), Reason.TO_BE_DELETED),
        (node(KARPENTER_DISRUPTED, cordoned=False), Reason.KARPENTER_DISRUPTED),
        (node(deletionTimestamp="2026-09-21T00:00:00Z"), Reason.NODE_TERMINATING),
    ],
)
def test_a_node_that_somebody_else_takes_is_left_to_them_cordon_and_all(
    phase: Phase, other: Node, reason: Reason
) -> None:
    made = step(phase, seen(node=other, evict=(pod(),), next=(pod(),)))
    assert written(made) == (Phase.YIELDED, NodeChange.NOTHING, reason)


STARTS = Refusal(Reason.NODE_LIFECYCLE, "n1", "something has not started on the node yet")
MANAGED = Refusal(Reason.KARPENTER_MANAGED, "n1", "Karpenter consolidates underutilized nodes itself")


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.RESTORING])
def test_a_node_with_a_startup_taint_of_its_pool_is_left_to_whoever_starts_there(phase: Phase) -> None:
    made = step(phase, seen(node_refusals=(MANAGED, STARTS), evict=(pod(),), next=(pod(),)))
    assert written(made) == (Phase.YIELDED, NodeChange.NOTHING, Reason.NODE_LIFECYCLE)
    assert isinstance(step(Phase.YIELDED, seen(node_refusals=(MANAGED, STARTS))), Wait)
    assert gives_up(step(Phase.YIELDED, seen(node_refusals=(MANAGED,)))) is Reason.NOT_HANDED_OVER


@pytest.mark.parametrize("phase", [Phase.YIELDED, Phase.DRAINED])
def test_a_node_in_other_hands_is_only_watched(phase: Phase) -> None:
    assert isinstance(step(phase, seen(node=node(TO_BE_DELETED), evict=(pod(),), next=(pod(),))), Wait)


@pytest.mark.parametrize(("phase", "left"), [(Phase.EVICTING, RULES.hand_over_timeout), (Phase.DRAINED, 0.0)], ids=str)
def test_a_taken_node_keeps_its_place_in_the_budget_no_longer_than_a_hand_over_may_take(
    phase: Phase, left: float
) -> None:
    now = NOW + RULES.hand_over_timeout
    made = step(phase, seen(node=node(TO_BE_DELETED)), now=now, at=NOW)
    assert written(made) == (Phase.YIELDED, NodeChange.NOTHING, Reason.TO_BE_DELETED)
    assert made.record.deadline == now + left


def test_a_node_that_was_given_back_is_restored() -> None:
    assert gives_up(step(Phase.YIELDED, seen())) is Reason.NOT_HANDED_OVER


@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED, Phase.YIELDED])
def test_a_node_somebody_uncordoned_is_left_with_nothing_of_ours_for_hours(phase: Phase) -> None:
    made = step(phase, seen(node=node(cordoned=False), evict=(pod(),), next=(pod(),)), attempts=2)
    assert written(made) == (Phase.BACKOFF, NodeChange.UNTAINT, Reason.UNCORDONED)
    assert made.record.next_try == NOW + RULES.hold_off
    assert made.record.attempts == 2
    assert made.record.deadline is None


def test_a_node_whose_taint_somebody_removed_loses_our_cordon_too() -> None:
    made = step(Phase.EVICTING, seen(node=node(tainted=False), evict=(pod(),), next=(pod(),)))
    assert written(made) == (Phase.BACKOFF, NodeChange.RESTORE, Reason.UNCORDONED)
    assert "someone else removed the taint tightship.dev/draining" in made.because.detail


@pytest.mark.parametrize("tainted", [True, False])
@pytest.mark.parametrize("by", [("kubectl",), ("argocd", FIELD_MANAGER)], ids=["cordoned anew", "applied beside ours"])
@pytest.mark.parametrize("phase", [Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED, Phase.YIELDED])
def test_a_node_somebody_else_cordoned_meanwhile_is_left_with_their_cordon_for_hours(
    phase: Phase, by: tuple[str, ...], tainted: bool
) -> None:
    made = step(phase, seen(node=node(by=by, tainted=tainted), evict=(pod(),), next=(pod(),)))
    assert written(made) == (Phase.BACKOFF, NodeChange.UNTAINT, Reason.UNCORDONED)
    assert f"someone else ({by[0]}) cordoned the node" in made.because.detail
    assert made.record.next_try == NOW + RULES.hold_off


@pytest.mark.parametrize(("tainted", "change"), [(True, NodeChange.RESTORE), (False, NodeChange.UNTAINT)])
def test_a_restore_lifts_no_cordon_but_ours(tainted: bool, change: NodeChange) -> None:
    assert written(step(Phase.RESTORING, seen(node=node(by=("kubectl",), tainted=tainted))))[1] is NodeChange.UNTAINT
    assert written(step(Phase.RESTORING, seen(node=node(by=(), tainted=tainted))))[1] is change


def test_a_cordon_that_is_attributed_to_nobody_is_left_where_the_taint_is_gone() -> None:
    made = step(Phase.EVICTING, seen(node=node(by=(), tainted=False), evict=(pod(),), next=(pod(),)))
    assert written(made) == (Phase.BACKOFF, NodeChange.UNTAINT, Reason.UNCORDONED)
    assert isinstance(step(Phase.EVICTING, seen(node=node(by=()), evict=(pod(),), next=(pod(),))), Evict)


@pytest.mark.parametrize(("cordoned", "change"), [(True, NodeChange.RESTORE), (False, NodeChange.UNTAINT)])
def test_a_restore_takes_off_what_is_left_and_backs_off(cordoned: bool, change: NodeChange) -> None:
    made = step(Phase.RESTORING, seen(node=node(cordoned=cordoned)), reason="why", deadline=1.0)
    assert written(made) == (Phase.BACKOFF, change, None)
    assert (made.record.attempts, made.record.next_try) == (1, NOW + RULES.backoff)
    assert (made.record.reason, made.record.deadline) == ("why", None)


@pytest.mark.parametrize(("attempts", "pause"), [(0, 300), (1, 600), (3, 2400), (20, 21600), (5000, 21600)])
def test_back_off_doubles_up_to_its_limit(attempts: int, pause: float) -> None:
    made = step(Phase.RESTORING, seen(), attempts=attempts)
    assert made.record.next_try == NOW + pause


@pytest.mark.parametrize("phase", [Phase.BACKOFF, Phase.MARKED])
def test_a_restored_node_ends_the_drain(phase: Phase) -> None:
    assert step(phase, seen(node=node(tainted=False, cordoned=False))) == Over(Ending.RESTORED)


@pytest.mark.parametrize("found", [None, DrainRecord(phase=Phase.EVICTING, op="another")])
def test_a_node_with_another_annotation_or_none_is_not_written_on(found: DrainRecord | None) -> None:
    assert advance("op", found, seen(evict=(pod(),)), RULES, NOW) == Over(Ending.NOT_OURS)


@pytest.mark.parametrize(
    ("phase", "ending"),
    [
        (Phase.CLAIMED, Ending.NODE_GONE),
        (Phase.EVICTING, Ending.NODE_GONE),
        (Phase.RESTORING, Ending.NODE_GONE),
        (Phase.DRAINED, Ending.HANDED_OVER),
        (Phase.YIELDED, Ending.NODE_GONE),
    ],
)
def test_a_deleted_node_ends_the_drain(phase: Phase, ending: Ending) -> None:
    assert step(phase, seen(node=None)) == Over(ending)


def test_a_node_that_was_yielded_when_it_was_empty_has_been_drained() -> None:
    yielded = DrainRecord(phase=Phase.YIELDED, op="op", since={"Drained": NOW - 60, "Yielded": NOW - 30})
    assert advance("op", yielded, seen(node=None), RULES, NOW) == Over(Ending.HANDED_OVER)


def test_pods_that_may_go_are_evicted() -> None:
    assert step(Phase.EVICTING, seen(evict=(pod(), pod("web-2")), next=(pod(),))) == Evict((pod(),))


def test_nothing_is_evicted_while_pods_are_awaited_that_end_by_themselves() -> None:
    look = seen(evict=(pod(),), next=(pod(),), awaits=(pod("job"),))
    made = step(Phase.EVICTING, look, deadline=NOW + 900)
    assert made.why == "waits for 1 pod to finish by itself"
    ended = msgspec.structs.replace(look, awaits=())
    assert step(Phase.EVICTING, ended, deadline=NOW + 900) == Evict((pod(),))


def test_an_emptied_node_is_listed_once_more_before_it_counts_as_drained() -> None:
    assert step(Phase.EVICTING, seen(fresh=False)) == Look()
    made = step(Phase.EVICTING, seen(), deadline=NOW + 9)
    assert written(made) == (Phase.DRAINED, NodeChange.NOTHING, None)
    assert made.record.deadline is None


def test_a_pod_that_opts_out_half_way_has_the_rest_stay() -> None:
    assert gives_up(step(Phase.EVICTING, seen(evict=(pod(),), next=(pod(),), against=AGAINST))) is Reason.NO_PLACE


def test_what_stands_against_evicting_does_not_matter_when_only_leaving_pods_are_left() -> None:
    assert isinstance(step(Phase.EVICTING, seen(leaving=(pod(deletion=NOW),), against=AGAINST)), Wait)


def test_a_pod_that_refuses_for_too_long_ends_the_drain() -> None:
    late = (Refusal(Reason.PDB_EXHAUSTED, "shop/web-1"),)
    assert gives_up(step(Phase.EVICTING, seen(evict=(pod(),), late=late))) is Reason.PDB_EXHAUSTED


def test_the_deadline_of_the_node_ends_the_drain_after_a_last_look() -> None:
    look = seen(evict=(pod(),), leaving=tuple(pod(f"w{n}", deletion=NOW) for n in range(4)))
    stale = msgspec.structs.replace(look, fresh=False)
    assert isinstance(step(Phase.EVICTING, stale, deadline=NOW + 0.1), Wait)
    assert step(Phase.EVICTING, stale, deadline=NOW) == Look()
    made = step(Phase.EVICTING, look, deadline=NOW)
    assert gives_up(made) is Reason.DRAIN_DEADLINE
    assert made.because.detail.endswith("still here: shop/web-1, shop/w0, shop/w1 and 2 more")


def test_a_pod_stuck_on_a_finalizer_is_named_with_it() -> None:
    late = msgspec.structs.replace(pod(deletion=NOW - 61), finalizers=("example.com/guard",))
    stale = seen(leaving=(late,), fresh=False)
    assert step(Phase.EVICTING, stale) == Look(), "it may have gone meanwhile"
    made = step(Phase.EVICTING, seen(leaving=(late,)))
    assert gives_up(made) is Reason.STUCK_FINALIZER
    assert "finalizer example.com/guard holds it" in made.because.detail


def test_a_pod_stuck_without_a_finalizer_is_named() -> None:
    assert gives_up(step(Phase.EVICTING, seen(leaving=(pod(deletion=NOW - 61),)))) is Reason.POD_STUCK


def test_a_terminating_pod_is_not_stuck_within_a_minute_of_its_grace() -> None:
    assert isinstance(step(Phase.EVICTING, seen(leaving=(pod(deletion=NOW - 60),))), Wait)


def test_a_stuck_pod_is_blamed_for_the_deadline() -> None:
    look = seen(evict=(pod(),), leaving=(pod("old", deletion=NOW - 61),))
    assert gives_up(step(Phase.EVICTING, look, deadline=NOW)) is Reason.POD_STUCK


def test_a_stuck_pod_ends_the_drain_before_another_pod_is_evicted() -> None:
    look = seen(evict=(pod(),), next=(pod(),), leaving=(pod("old", deletion=NOW - 61),))
    assert step(Phase.EVICTING, msgspec.structs.replace(look, fresh=False)) == Look()
    assert gives_up(step(Phase.EVICTING, look)) is Reason.POD_STUCK


@pytest.mark.parametrize("phase", [Phase.EVICTING, Phase.DRAINED])
def test_a_replacement_without_a_node_gets_this_one_back(phase: Phase) -> None:
    left = (pod(deletion=NOW),) if phase is Phase.EVICTING else ()
    young = seen(leaving=left, pending=(pod("new", on="", age=29),))
    assert isinstance(step(phase, young), Wait)
    assert gives_up(step(phase, seen(leaving=left, pending=(pod("new", on="", age=30),)))) is (
        Reason.REPLACEMENTS_PENDING
    )


def test_nothing_is_evicted_from_a_node_that_is_not_ready_and_it_is_given_up_in_time() -> None:
    look = seen(node=node(ready="Unknown"), evict=(pod(),), next=(pod(),))
    early = msgspec.structs.replace(look, not_ready_since=NOW - 299)
    assert isinstance(step(Phase.EVICTING, look), Wait)
    assert isinstance(step(Phase.EVICTING, early), Wait)
    late = msgspec.structs.replace(look, not_ready_since=NOW - 300)
    assert gives_up(step(Phase.EVICTING, late)) is Reason.NOT_READY


def test_pods_that_arrive_on_a_drained_node_are_evicted_with_a_deadline_of_their_own() -> None:
    made = step(Phase.DRAINED, seen(evict=(pod(),)))
    assert written(made) == (Phase.EVICTING, NodeChange.NOTHING, None)
    assert made.record.deadline == NOW + RULES.node_timeout


def test_pods_that_keep_arriving_do_not_put_off_the_end_of_the_wait_for_the_autoscaler() -> None:
    again = step(Phase.DRAINED, seen(evict=(pod(),)), at=NOW - 3000)
    back = advance("op", again.record, seen(), RULES, NOW + 500)
    assert gives_up(advance("op", back.record, seen(), RULES, NOW + 600)) is Reason.NOT_HANDED_OVER


def test_a_drained_node_waits_for_the_autoscaler_and_is_restored_when_none_comes() -> None:
    assert isinstance(step(Phase.DRAINED, seen(), at=NOW - 3599), Wait)
    assert gives_up(step(Phase.DRAINED, seen(), at=NOW - 3600)) is Reason.NOT_HANDED_OVER


def test_a_drained_node_may_be_kept_and_that_is_said_once() -> None:
    rules = DrainRules(keep_drained=True)
    made = step(Phase.DRAINED, seen(), rules, at=NOW - 3600)
    assert written(made) == (Phase.DRAINED, NodeChange.NOTHING, Reason.NOT_HANDED_OVER)
    assert made.record is not None
    assert isinstance(advance("op", made.record, seen(), rules, NOW + 100), Wait)


def test_a_node_that_is_kept_says_now_and_then_that_somebody_answers_for_it() -> None:
    rules = DrainRules(keep_drained=True)
    made = step(Phase.DRAINED, seen(), rules, at=NOW - 3600)
    for _ in range(3):
        later = made.record.deadline - KEPT / 2
        assert isinstance(advance("op", made.record, seen(), rules, later - 1), Wait)
        again = advance("op", made.record, seen(), rules, later)
        assert written(again) == (Phase.DRAINED, NodeChange.NOTHING, None)
        assert again.record.reason == made.record.reason
        made = again


def test_a_wait_ends_when_something_becomes_due() -> None:
    look = seen(evict=(pod(),), due=NOW + 4)
    made = step(Phase.EVICTING, look, deadline=NOW + 9)
    assert made.until == NOW + 4
    made = step(Phase.EVICTING, msgspec.structs.replace(look, due=None), deadline=NOW + 9)
    assert made.until == NOW + 9


TIMES = st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)


@given(
    st.builds(
        DrainRecord,
        phase=st.sampled_from([each for each in Phase if each is not Phase.UNKNOWN]),
        controller=st.text(max_size=20),
        op=st.text(max_size=16),
        holder=st.text(max_size=60),
        epoch=st.integers(0, 10**6),
        since=st.dictionaries(st.sampled_from([each.value for each in Phase]), TIMES),
        deadline=st.none() | TIMES,
        prior_unschedulable=st.booleans(),
        attempts=st.integers(0, 1000),
        next_try=st.none() | TIMES,
        reason=st.text(max_size=100),
        plan_hash=st.text(max_size=16),
    )
)
def test_a_record_is_read_back_as_it_was_written(written: DrainRecord) -> None:
    assert decode_record(encode_record(written)) == written


@given(st.text(min_size=300, max_size=4000) | st.sampled_from(["\x00" * 2000, "\U0001f6a2" * 900, "a" * 901]))
def test_an_annotation_stays_below_two_kilobytes_whatever_a_webhook_says(reason: str) -> None:
    since = {each.value: NOW + 0.123 for each in Phase}
    full = record(Phase.RESTORING, reason=reason, deadline=NOW, next_try=NOW, plan_hash="p" * 64)
    text = encode_record(msgspec.structs.replace(full, since=since, holder="h" * 63))
    assert len(text.encode()) < 2048
    kept = decode_record(text).reason
    assert kept == reason or (kept.endswith("...") and reason.startswith(kept[:-3]))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "{}",
        '{"v":1}',
        '{"v":2,"phase":"Evicting"}',
        '{"v":1,"phase":"Unknown"}',
        '{"v":1,"phase":"Sleeping"}',
        '{"v":1,"phase":"Evicting","since":{"Claimed":"yesterday"}}',
        '{"v":1,"phase":"Evicting","deadline":"2026-01-01T00:00:00"}',
        '{"v":1,"phase":"Evicting","epoch":"1"}',
        pytest.param('{"v":1,"phase":"Marked","x":' + "[" * 20_000 + "]" * 20_000 + "}", id="nested too deeply"),
    ],
)
def test_an_annotation_that_cannot_be_read_owns_its_node_in_an_unknown_phase(text: str) -> None:
    found = decode_record(text)
    assert found.phase is Phase.UNKNOWN
    assert found.owns_node
    assert found.reason.startswith("annotation tightship.dev/drain can't be read: ")


def test_what_a_newer_version_adds_to_an_annotation_is_passed_over() -> None:
    assert decode_record('{"v":1,"phase":"Marked","color":"red"}') == DrainRecord(phase=Phase.MARKED)


@pytest.mark.parametrize(
    ("left", "change", "detail", "attempts", "pause"),
    [
        (None, NodeChange.RESTORE, "no readable tightship.dev/drain on it", 0, RULES.hold_off),
        (record(Phase.EVICTING), NodeChange.RESTORE, "no readable tightship.dev/drain on it", 1, RULES.backoff),
        (record(Phase.EVICTING, reason="NoPlace: too big"), NodeChange.RESTORE, "NoPlace: too big", 1, RULES.backoff),
    ],
)
def test_what_is_left_over_from_a_drain_is_undone_once_and_says_of_which(
    left: DrainRecord | None, change: NodeChange, detail: str, attempts: int, pause: float
) -> None:
    made = repaired(node(), left, "c", RULES, NOW)
    assert written(made) == (Phase.BACKOFF, change, Reason.ORPHANED)
    note = made.record
    assert note is not None
    assert note.reason == f"Orphaned n1: left over from a drain: {detail}"
    assert (note.controller, note.attempts, note.next_try) == ("c", attempts, NOW + pause)


def test_of_a_node_that_no_drain_owns_only_the_taint_goes() -> None:
    noted = record(Phase.BACKOFF, reason="given up")
    assert repaired(node(), noted, "c", RULES, NOW).record is noted
    assert written(repaired(node(), noted, "c", RULES, NOW)) == (Phase.BACKOFF, NodeChange.UNTAINT, Reason.ORPHANED)
