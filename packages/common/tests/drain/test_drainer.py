"""Drains from claim to end on an embedded cluster: crashes, lost answers, other leaders, orphans."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tightship.drain.events import EventKind
from tightship.draining import drain_task as driving
from tightship.draining.claims import Claim, adding, dropping
from tightship.draining.drain_manager import ELSEWHERE_WATCHED, ORPHAN_AFTER, Order
from tightship.objects.api_errors import KubeError
from tightship.objects.drain_record import (
    DRAIN_ANNOTATION,
    FIELD_MANAGER,
    Begun,
    DrainRecord,
    Ending,
    Finished,
    Phase,
    encode_record,
)
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.nodes import TO_BE_DELETED
from tightship_testkit.builders import controller, node
from tightship_testkit.faults import Call, Fault, Reset
from tightship_testkit.simulated import BUDGET, LOST, UNHEARD, until

from .conftest import FAST, OTHERS, TOLERATIONS, Bench, Json, Replica, benched, evicting, known_pod, other

pytestmark = pytest.mark.virtual_time

OURS: Json = {"key": DRAINING.key, "value": "op", "effect": "NoSchedule"}
CA: Json = {"key": TO_BE_DELETED, "effect": "NoSchedule"}
MOVED = ["uid-Pod-web-1", "uid-Pod-web-2"]


def cordoned(raw: Json, *taints: Json, note: str | None = None) -> None:
    raw["spec"] = {"unschedulable": True, "taints": [OTHERS, *taints]}
    if note is not None:
        raw["metadata"]["annotations"] = {DRAIN_ANNOTATION: note}


def annotated(raw: Json, key: str, text: str) -> None:
    raw["metadata"].setdefault("annotations", {})[key] = text


def codes(bench: Bench) -> list[int | None]:
    return [each.answered for each in bench.writes()]


async def test_a_drain_claims_evicts_each_pod_once_and_hands_over(bench: Bench) -> None:
    replica = await bench.replica()
    assert await replica.claim() is None
    assert replica.drainer.driving == {"n1"}
    await until(lambda: not replica.drainer.driving)
    assert replica.phases == [Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED]
    assert [each.ending for each in replica.reported(EventKind.ENDED)] == [Ending.HANDED_OVER]
    assert sorted(bench.api.evicted) == MOVED
    assert bench.claims() == []
    first, *more = [json.loads(each.call.body) for each in bench.writes()]
    assert set(first["metadata"]) == {"resourceVersion", "annotations"}
    assert first["spec"]["taints"][0] == OTHERS
    assert all("resourceVersion" in each["metadata"] for each in more)
    assert all("spec" not in each for each in more)


@pytest.mark.parametrize("setting", ["workload_pause", "min_stable_time"])
async def test_two_pods_of_one_workload_go_a_rest_apart_though_that_is_longer_than_all_timeouts(
    bench: Bench, setting: str
) -> None:
    replica = await bench.replica()
    rules = msgspec.structs.replace(FAST.rules, node_timeout=300.0, pod_timeout=60.0, **{setting: 600.0})
    replica.settings = msgspec.structs.replace(FAST, rules=rules)
    began = asyncio.get_running_loop().time()
    assert await replica.claim() is None
    await until(lambda: bool(bench.api.evicted), 60.0)
    await asyncio.sleep(590)
    assert len(bench.api.evicted) == 1
    await until(lambda: not replica.drainer.driving, 300.0)
    assert asyncio.get_running_loop().time() - began >= 600
    assert [each.ending for each in replica.reported(EventKind.ENDED)] == [Ending.HANDED_OVER]
    assert sorted(bench.api.evicted) == MOVED


async def test_a_drain_that_rests_looks_now_and_then_however_busy_the_cluster_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look judges the whole cluster: 1,000 nodes cost tens of milliseconds."""
    looks = 0
    ask = driving.Drive._ask

    def counted(*given: Any) -> Any:
        nonlocal looks
        looks += 1
        return ask(*given)

    monkeypatch.setattr(driving.Drive, "_ask", counted)
    replica = await bench.replica()
    rules = msgspec.structs.replace(FAST.rules, node_timeout=300.0, workload_pause=60.0)
    replica.settings = msgspec.structs.replace(FAST, rules=rules)
    assert await replica.claim() is None
    await until(lambda: len(bench.api.evicted) == 1, 30.0)
    await asyncio.sleep(5)
    looks, sent = 0, len(replica.sent())
    for number in range(200):
        bench.api.edit_node("n2", lambda node, number=number: node["metadata"]["labels"].update(beat=str(number)))
        await asyncio.sleep(0.2)
    assert 10 <= looks <= 15
    assert [each.call.path for each in replica.sent()[sent:] if each.call.verb != "GET"] == []
    replica.drainer.wake()
    await asyncio.sleep(0.5)
    assert looks <= 16
    assert len(bench.api.evicted) == 1


async def test_who_takes_over_in_the_middle_of_a_rest_rests_once_more_and_ends_the_drain(bench: Bench) -> None:
    rules = msgspec.structs.replace(FAST.rules, workload_pause=600.0, node_timeout=300.0, pod_timeout=60.0)
    settings = msgspec.structs.replace(FAST, rules=rules)
    first = await bench.replica()
    first.settings = settings
    assert await first.claim() is None
    await until(lambda: bool(bench.api.evicted), 60.0)
    await asyncio.sleep(400)
    first.process.kill()
    second = await bench.replica("b", 2)
    second.settings = settings
    await second.settled()
    assert [each.ending for each in second.reported(EventKind.ENDED)] == [Ending.HANDED_OVER]
    assert sorted(bench.api.evicted) == MOVED


async def test_two_claims_of_one_moment_older_than_a_pods_binding_evict_its_workload_a_rest_apart(
    bench: Bench,
) -> None:
    """Neither claim counts the pod that came after its plan, so the compare-and-swap on the Lease lets both through."""
    bench.api.store.modify("ReplicaSet", "web", "shop", lambda raw: raw["spec"].update(replicas=3))
    bench.api.store.load([node("n3"), known_pod("late", on="n2", tolerations=TOLERATIONS)])
    rules = msgspec.structs.replace(FAST.rules, workload_pause=60.0)
    first, second = await bench.replica(), await bench.replica("b")
    for each, name in ((first, "n1"), (second, "n2")):
        each.settings = msgspec.structs.replace(FAST, rules=rules)
        judged = each.cache.snapshot().nodes[name].node
        assert await each.asks(Order(judged, "pool", "p", lambda *_: None)) is None
    times: list[float] = []
    for count in (1, 2, 3):
        await until(lambda count=count: len(bench.api.evicted) >= count, 300.0)
        times.append(asyncio.get_running_loop().time())
    assert all(b - a > 59 for a, b in itertools.pairwise(times))
    assert sorted(bench.api.evicted) == ["uid-Pod-late", *MOVED]
    await until(lambda: not (first.drainer.driving or second.drainer.driving))
    assert bench.claims() == []


async def test_a_drain_that_breaks_off_by_a_defect_is_told_and_taken_up_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = driving.advance

    def defect(*_: object) -> None:
        monkeypatch.setattr(driving, "advance", real)
        raise ZeroDivisionError

    replica = await bench.replica()
    monkeypatch.setattr(driving, "advance", defect)
    assert await replica.claim() is None
    await until(lambda: not replica.drainer.driving)
    assert "drain of node n1 broke off" in caplog.text
    assert bench.phase is Phase.CLAIMED
    await until(lambda: replica.cache.snapshot().nodes["n1"].node.unschedulable)
    await replica.settled()
    assert [each.ending for each in replica.reported(EventKind.ENDED)] == [Ending.HANDED_OVER]


async def test_a_drain_asks_the_server_for_its_node_only_where_it_must(bench: Bench) -> None:
    """Before the evictions, for taints of others that a patch sends along, and when the node is gone."""
    replica = await bench.replica()
    begun = len(replica.sent())
    assert await replica.claim() is None
    await until(lambda: not replica.drainer.driving)
    asked = [(each.call.verb, each.call.path.rsplit("/", 1)[-1], each.status) for each in replica.sent()[begun:]]
    assert [each for each in asked if each[1] == "n1"] == [
        ("GET", "n1", 200),
        ("PATCH", "n1", 200),
        ("PATCH", "n1", 200),
        ("GET", "n1", 200),
        ("PATCH", "n1", 200),
        ("GET", "n1", 404),
    ]
    assert [each for each in asked if "claims" in each[1] or each[1] == "leases"] == [
        ("GET", "tightship-claims", 404),
        ("POST", "leases", 201),
        ("PUT", "tightship-claims", 200),  # all pods are gone, and their workloads rest from now on
        ("PUT", "tightship-claims", 200),
    ]


async def test_a_node_with_nothing_to_evict_is_drained_in_one_write_after_its_claim(bench: Bench) -> None:
    bench.api.remove("ReplicaSet", "web", "shop")
    for name in ("web-1", "web-2"):
        bench.api.remove("Pod", name, "shop")
    replica = await bench.replica()
    assert await replica.claim() is None
    await until(lambda: not replica.drainer.driving)
    assert replica.phases == [Phase.CLAIMED, Phase.DRAINED]
    assert [each.ending for each in await replica.ended()] == [Ending.HANDED_OVER.value]


async def test_what_is_unfinished_is_driven_or_on_a_node_or_in_the_ledger_under_our_name(bench: Bench) -> None:
    def left(controller: str) -> str:
        record = DrainRecord(phase=Phase.EVICTING, controller=controller, op="op", since={"Evicting": 1.0})
        return encode_record(record)

    async def unfinished() -> bool:
        return await replica.does(replica.drainer.unfinished(replica.cache.snapshot()))

    replica = await bench.replica()
    assert not await unfinished()
    for note, ours in ((left("c"), True), (left("sibling"), False), ("", False)):
        bench.api.edit_node("n1", lambda raw, note=note: cordoned(raw, OURS, note=note), manager=FIELD_MANAGER)
        version = (bench.api.node() or {})["metadata"]["resourceVersion"]
        await until(lambda v=version: replica.cache.snapshot().nodes["n1"].node.resource_version == v)
        assert await unfinished() == ours
    for name, ours in (("sibling", False), ("c", True)):
        claim = Claim(node=f"of-{name}", op="op", controller=name, holder="h", since=1.0)
        await replica.take(claim)
        assert await unfinished() == ours
    await replica.does(replica.ledger.change(dropping([("of-c", "op")])))
    assert not await unfinished()
    assert bench.writes() == []


async def test_a_drain_that_is_driven_from_here_is_unfinished_though_the_cache_lags_behind(bench: Bench) -> None:
    replica = await bench.replica()
    bench.api.freeze("Node")
    bench.api.refuse = BUDGET
    assert await replica.claim() is None
    assert not replica.cache.snapshot().nodes["n1"].node.unschedulable
    assert await replica.does(replica.drainer.unfinished(replica.cache.snapshot()))


async def test_a_cache_that_lags_behind_our_own_writes_is_not_read_as_an_uncordon(bench: Bench) -> None:
    replica = await bench.replica()
    bench.api.freeze("Node")
    bench.api.autoscaler = False
    assert await replica.claim() is None
    await until(lambda: bench.phase is Phase.DRAINED)
    bench.api.thaw()
    await until(lambda: replica.cache.snapshot().nodes["n1"].node.unschedulable)
    bench.api.remove("Node", "n1")
    await until(lambda: not replica.drainer.driving)
    assert replica.phases == [Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED]
    assert sorted(bench.api.evicted) == MOVED


async def test_pods_bound_behind_the_cache_are_found_before_a_node_counts_as_drained(bench: Bench) -> None:
    bench.api.remove("ReplicaSet", "web", "shop")
    for name in ("web-1", "web-2"):
        bench.api.remove("Pod", name, "shop")
    replica = await bench.replica()
    bench.api.freeze("Pod")
    bench.api.add(other(), known_pod("late", owner=controller("ReplicaSet", "other"), tolerations=TOLERATIONS))
    assert await replica.claim() is None
    await until(lambda: not replica.drainer.driving)
    assert bench.api.evicted == ["uid-Pod-late"]
    assert bench.api.node() is None


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_write_that_comes_second_is_decided_anew(bench: Bench, number: int) -> None:
    replica = await bench.replica()
    patches = 0

    async def first(call: Call) -> None:
        nonlocal patches
        patches += call.verb == "PATCH"
        if call.verb == "PATCH" and patches == number:
            bench.api.edit_node("n1", lambda raw: annotated(raw, "example.com/kubelet", "beat"))

    replica.meets(first)
    refusal = await replica.claim()
    assert (refusal is not None) == (number == 1)
    if refusal is not None:
        assert refusal.reason is Reason.COOL_DOWN
        assert bench.claims() == []
        assert bench.pristine
        return
    await until(lambda: not replica.drainer.driving)
    assert codes(bench).count(409) == 1
    assert [each.ending for each in replica.reported(EventKind.ENDED)] == [Ending.HANDED_OVER]
    assert sorted(bench.api.evicted) == MOVED


async def _with_one_failure(folder: Path, number: int, fate: Fault) -> bool:
    """Whether the drain had as many changing requests; its end must be good in any case."""
    async with benched(folder) as bench:
        api = bench.api
        replica = await bench.replica()
        changes = 0

        async def fail(call: Call) -> Fault | None:
            nonlocal changes
            changes += call.verb != "GET"
            return fate if call.verb != "GET" and changes == number else None

        replica.meets(fail)
        try:
            refusal = await replica.claim()
            assert refusal is None
        except KubeError:
            pass
        await replica.settled()
        context = f"{fate}: {changes} changes, {number} failed; {api.did}"
        assert len(api.evicted) == len(set(api.evicted)) or fate is UNHEARD, context
        assert set(api.evicted) <= set(MOVED), context
        if api.node() is None:
            assert sorted(set(api.evicted)) == MOVED, context
        else:
            assert not api.evicted, context
            assert bench.pristine, context
        return changes >= number


@pytest.mark.parametrize("fate", [LOST, UNHEARD], ids=["lost", "unheard"])
async def test_a_write_without_an_answer_is_made_good_wherever_it_happens(tmp_path: Path, fate: Fault) -> None:
    for number in itertools.count(1):
        if not await _with_one_failure(tmp_path, number, fate):
            break
    assert number > 7, "lease, claim, evicting, two evictions, drained, history and lease again"


async def _with_a_crash(folder: Path, number: int, *, done: bool) -> bool:
    async with benched(folder) as bench:
        api = bench.api
        first = await bench.replica("a", 1)
        second = await bench.replica("b", 2)
        count = 0

        async def killed() -> None:
            first.process.kill()

        async def die(_: Call) -> Fault | None:
            nonlocal count
            count += 1
            if count != number:
                return None
            return Reset(done=True, after=killed) if done else Reset(before=killed)

        first.meets(die)
        task = asyncio.create_task(first.claim())
        await until(lambda: not first.process.alive or (task.done() and not first.drainer.driving))
        crashed = not first.process.alive
        if not crashed:
            assert await task is None
        first.meets(None)
        await second.settled()
        task.cancel()
        context = f"request {number}: {[(each.call.verb, each.call.path, each.answered) for each in api.did]}"
        assert len(api.evicted) == len(set(api.evicted)), context
        if api.node() is None:
            assert sorted(api.evicted) == MOVED, context
        else:
            assert not api.evicted, context
            assert bench.pristine, context
        assert bench.claims() == []
        return crashed


@pytest.mark.parametrize("done", [False, True], ids=["before it is sent", "once it is carried out"])
async def test_whoever_leads_after_a_crash_at_any_request_brings_the_drain_to_a_good_end(
    tmp_path: Path, done: bool
) -> None:
    for number in itertools.count(1):
        if not await _with_a_crash(tmp_path, number, done=done):
            break
    assert number > 10


async def test_another_leader_takes_over_and_the_first_one_stops(bench: Bench) -> None:
    first, second = await bench.replica("a", 1), await bench.replica("b", 2)
    await evicting(bench, first)
    await until(lambda: second.cache.snapshot().nodes["n1"].node.unschedulable)
    await second.adopt()
    assert [each.record.holder for each in second.reported(EventKind.TAKEN_OVER) if each.record] == ["b"]
    await until(lambda: not first.drainer.driving)
    assert [each.ending for each in first.reported(EventKind.ENDED)] == [Ending.PARKED]
    assert [each.node for each in bench.claims()] == ["n1"], "the claim counts until the drain is over"
    sent = first.changes()
    bench.api.refuse = None
    await second.settled()
    assert first.changes() == sent
    assert sorted(bench.api.evicted) == MOVED


async def test_a_leader_that_wakes_up_late_writes_nothing_after_the_takeover(bench: Bench) -> None:
    """It was stopped between its decision and its patch."""
    first, second = await bench.replica("a", 1), await bench.replica("b", 2)
    patches = 0

    async def taken_over(call: Call) -> None:
        nonlocal patches
        patches += call.verb == "PATCH"
        if call.verb == "PATCH" and patches == 2:
            bench.api.refuse = BUDGET
            await second.adopt()

    first.meets(taken_over)
    assert await first.claim() is None
    await until(lambda: second.reported(EventKind.TAKEN_OVER) and not first.drainer.driving)
    assert first.changes().count(("PATCH", "/api/v1/nodes/n1")) == 2
    assert sorted((each.call.client, each.answered) for each in bench.writes()[:3]) == [
        ("a", 200),
        ("a", 409),
        ("b", 200),
    ]
    assert not [path for _, path in first.changes() if path.endswith("/eviction")]
    bench.api.refuse = None
    await second.settled()
    assert bench.api.node() is None


async def test_a_replica_that_loses_leadership_changes_nothing_more(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    replica.leading = False
    replica.drainer.wake()
    await until(lambda: not replica.drainer.driving)
    done = len(bench.api.did)
    bench.api.refuse = None
    await replica.adopt()
    assert len(bench.api.did) == done
    assert bench.phase is Phase.EVICTING
    assert [each.node for each in bench.claims()] == ["n1"]


async def test_the_same_process_leads_again_and_goes_on(bench: Bench) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    replica.leading = False
    replica.drainer.wake()
    await until(lambda: not replica.drainer.driving)
    replica.leading = True
    bench.api.refuse = None
    await replica.settled()
    assert bench.api.node() is None
    assert sorted(bench.api.evicted) == MOVED


# Orphans.


async def test_a_taint_without_an_annotation_is_undone_with_its_cordon(bench: Bench) -> None:
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS), manager=FIELD_MANAGER)
    replica = await bench.replica()
    await replica.adopt()
    assert bench.pristine
    record = bench.record
    assert (record.phase, record.attempts) == (Phase.BACKOFF, 0)
    assert record.next_try > bench.api.now + FAST.rules.hold_off - 60
    assert [each.because.reason for each in replica.news if each.because] == [Reason.ORPHANED]


@pytest.mark.parametrize("note", [None, "{"], ids=["no annotation", "one that nobody can read"])
@pytest.mark.parametrize("manager", ["kubectl", ""], ids=["theirs", "nobody's"])
async def test_a_taint_that_is_left_over_takes_no_cordon_along_that_is_not_shown_to_be_ours(
    bench: Bench, note: str | None, manager: str
) -> None:
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note=note), manager=manager or FIELD_MANAGER)
    if not manager:
        bench.api.forget_managers("n1")
    replica = await bench.replica()
    await replica.adopt()
    assert bench.node.unschedulable
    assert [taint.key for taint in bench.node.taints] == ["dedicated"]
    assert bench.phase is Phase.BACKOFF


@pytest.mark.parametrize("others", [True, False], ids=["live", "switched off"])
async def test_an_annotation_nobody_can_read_is_replaced_by_a_back_off(bench: Bench, others: bool) -> None:
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note='{"v": 1, "phase": '), manager=FIELD_MANAGER)
    replica = await bench.replica()
    await replica.adopt(others=others)
    assert bench.pristine
    record = bench.record
    assert record.phase is Phase.BACKOFF
    assert record.next_try > bench.api.now
    assert "can't be read" in record.reason


async def test_a_dry_run_leaves_an_annotation_nobody_can_read(bench: Bench) -> None:
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note="{"), manager=FIELD_MANAGER)
    before = bench.api.node()
    replica = await bench.replica()
    await replica.adopt(others=False, ledger=False)
    assert bench.api.node() == before


async def test_an_orphan_that_the_autoscaler_has_taken_is_undone_only_when_it_is_given_back(bench: Bench) -> None:
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, CA, note="{"), manager=FIELD_MANAGER)
    before = bench.api.node()
    replica = await bench.replica()
    await replica.adopt()
    assert bench.api.node() == before
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note="{"), manager=FIELD_MANAGER)
    await replica.adopt()
    assert bench.pristine


async def test_an_unreadable_annotation_on_a_node_somebody_cordoned_does_not_lift_the_cordon(bench: Bench) -> None:
    bench.api.edit_node("n1", lambda raw: cordoned(raw, note="{"))
    replica = await bench.replica()
    await replica.adopt()
    assert bench.phase is Phase.BACKOFF
    assert bench.node.unschedulable


async def test_a_taint_that_somebody_wrote_back_after_the_restore_goes_and_their_cordon_stays(bench: Bench) -> None:
    note = encode_record(DrainRecord(phase=Phase.BACKOFF, controller="c", op="op", attempts=2))
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note=note), manager=FIELD_MANAGER)
    replica = await bench.replica()
    await replica.adopt()
    assert bench.node.unschedulable
    assert [taint.key for taint in bench.node.taints] == ["dedicated"]
    assert bench.record.attempts == 2


async def test_a_node_without_anything_of_ours_is_never_touched(bench: Bench) -> None:
    bench.api.edit_node("n1", cordoned)
    replica = await bench.replica()
    await replica.adopt()
    assert bench.api.did == []


async def test_another_controllers_drain_is_left_alone_until_nobody_can_be_behind_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = 60.0
    monkeypatch.setattr("tightship.draining.drain_manager.ORPHAN_WATCHED", watched)
    replica = await bench.replica()
    last = bench.api.now - ORPHAN_AFTER + watched + 600
    since = {"Claimed": last, "Evicting": last}
    theirs = DrainRecord(phase=Phase.EVICTING, controller="other", op="op", since=since)
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note=encode_record(theirs)), manager=FIELD_MANAGER)
    await until(lambda: replica.cache.snapshot().nodes["n1"].node.unschedulable)
    await replica.adopt()
    await asyncio.sleep(watched)
    await replica.adopt()
    assert bench.api.did == []
    await asyncio.sleep(600)
    await replica.adopt()
    await until(lambda: not replica.drainer.driving)
    assert bench.pristine
    assert bench.phase is Phase.BACKOFF
    assert bench.api.evicted == []


async def test_a_drain_of_others_without_a_claim_where_ours_are_is_told_when_it_has_been_so_for_a_while(
    bench: Bench,
) -> None:
    replica = await bench.replica()
    theirs = DrainRecord(phase=Phase.EVICTING, controller="other", op="op", since={"Evicting": bench.api.now})
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note=encode_record(theirs)), manager=FIELD_MANAGER)
    await until(lambda: replica.cache.snapshot().nodes["n1"].node.unschedulable)
    await replica.adopt()
    assert replica.drainer.elsewhere == []
    await asyncio.sleep(ELSEWHERE_WATCHED)
    await replica.adopt()
    assert replica.drainer.elsewhere == [("n1", "other")]


async def test_a_drain_of_others_with_a_claim_where_ours_are_shares_our_budget(bench: Bench) -> None:
    replica = await bench.replica()
    theirs = DrainRecord(phase=Phase.EVICTING, controller="other", op="op", since={"Evicting": bench.api.now})
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note=encode_record(theirs)), manager=FIELD_MANAGER)
    await replica.take(Claim(node="n1", op="op", controller="other", holder="h", since=bench.api.now))
    for _ in range(3):
        await replica.adopt()
        await asyncio.sleep(ELSEWHERE_WATCHED)
    assert replica.drainer.elsewhere == []


async def test_a_drain_that_moves_is_nobodys_orphan_however_late_it_is_by_our_clock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = 60.0
    monkeypatch.setattr("tightship.draining.drain_manager.ORPHAN_WATCHED", watched)
    replica = await bench.replica(ahead=2 * ORPHAN_AFTER)
    for phase in (Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED):
        theirs = DrainRecord(phase=phase, controller="other", op="op", since={phase.value: bench.api.now})
        note = encode_record(theirs)
        bench.api.edit_node("n1", lambda raw, note=note: cordoned(raw, OURS, note=note), manager=FIELD_MANAGER)
        for _ in range(3):
            await asyncio.sleep(watched / 3)
            await replica.adopt()
    assert bench.api.did == []


@pytest.mark.parametrize("ahead", [-3600.0, -40.0, 3600.0])
async def test_a_drain_takes_as_long_whatever_the_clock_of_who_takes_it_over(bench: Bench, ahead: float) -> None:
    first, second = await bench.replica("a", 1), await bench.replica("b", 2, ahead=ahead)
    bench.api.autoscaler = False
    for each in (first, second):
        each.settings = msgspec.structs.replace(FAST, rules=msgspec.structs.replace(FAST.rules, settle=20.0))
    assert await first.claim() is None
    first.process.kill()
    began = bench.api.now
    await until(lambda: second.cache.snapshot().nodes["n1"].node.unschedulable)
    await second.adopt()
    await until(lambda: bench.phase is Phase.DRAINED)
    assert bench.api.now < began + 30
    record = bench.record
    assert abs(record.since["Drained"] - bench.api.now) < 5


async def test_a_time_in_the_future_is_waited_for_no_longer_than_it_could_be(bench: Bench) -> None:
    """As written by a controller that went by its own clock."""
    later = bench.api.now + 7200
    left = DrainRecord(
        phase=Phase.CLAIMED, controller="c", op="op", holder="gone", since={"Claimed": later, "Marked": later}
    )
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note=encode_record(left)), manager=FIELD_MANAGER)
    bench.api.autoscaler = False
    replica = await bench.replica()
    await replica.adopt()
    await until(lambda: bench.phase is Phase.DRAINED, 60)


async def test_a_deadline_in_the_far_future_is_no_further_away_than_a_new_one(bench: Bench) -> None:
    later = bench.api.now + 7200
    left = DrainRecord(
        phase=Phase.EVICTING, controller="c", op="op", holder="gone", since={"Claimed": later}, deadline=later + 1800
    )
    bench.api.edit_node("n1", lambda raw: cordoned(raw, OURS, note=encode_record(left)), manager=FIELD_MANAGER)
    bench.api.refuse = BUDGET
    replica = await bench.replica()
    rules = msgspec.structs.replace(FAST.rules, pod_timeout=1e6, node_timeout=120.0)
    replica.settings = msgspec.structs.replace(FAST, rules=rules)
    await replica.adopt()
    await until(lambda: bench.phase is Phase.BACKOFF, rules.node_timeout + 60)


async def _abandoned_entry(bench: Bench, replica: Replica) -> None:
    """A claim that is in the ledger, while its patch never left."""

    async def lose(call: Call) -> Fault | None:
        return LOST if call.verb == "PATCH" else None

    replica.meets(lose)
    with pytest.raises(KubeError):
        await replica.claim()
    replica.meets(None)
    assert [each.node for each in bench.claims()] == ["n1"]


async def test_a_drain_under_way_counts_and_is_entered_again_when_somebody_has_deleted_the_claims(bench: Bench) -> None:
    replica = await bench.replica()
    assert await replica.claim() is None
    bench.api.remove("Lease", "tightship-claims", "tightship")
    assert bench.claims() == []
    seen: list[tuple[Claim, ...]] = []

    def full(claims: tuple[Claim, ...], _: Begun) -> Refusal | None:
        seen.append(claims)
        return Refusal(Reason.BUDGET_EXHAUSTED, "n2", "one at a time") if busy else None

    other = replica.cache.snapshot().nodes["n2"].node
    busy = True
    await replica.asks(Order(other, "pool", "p", full))
    busy = False
    await replica.asks(Order(other, "pool", "p", full))
    assert {tuple(each.node for each in claims) for claims in seen} == {("n1",)}
    assert [each.node for each in bench.claims()] == ["n1", "n2"]


async def test_an_entry_without_a_claim_is_dropped(bench: Bench) -> None:
    replica = await bench.replica()
    await _abandoned_entry(bench, replica)
    await replica.adopt()
    assert bench.claims() == []
    assert bench.pristine
    assert bench.api.evicted == []


async def test_the_late_patch_of_a_dropped_claim_meets_another_version(bench: Bench) -> None:
    first, second = await bench.replica("a", 1), await bench.replica("b", 2)

    async def mended_meanwhile(call: Call) -> None:
        if call.verb == "PATCH":
            await second.adopt()
            assert bench.claims() == []

    first.meets(mended_meanwhile)
    refusal = await first.claim()
    assert refusal.reason is Reason.COOL_DOWN
    assert {(each.call.client, each.answered) for each in bench.writes()} == {("a", 409), ("b", 200)}
    assert bench.pristine


async def test_the_mark_and_the_back_off_of_a_node_survive_a_dropped_claim(bench: Bench) -> None:
    mark = DrainRecord(phase=Phase.MARKED, controller="c", since={"Marked": 1.5}, attempts=3)
    bench.api.edit_node("n1", lambda raw: annotated(raw, DRAIN_ANNOTATION, encode_record(mark)))
    replica = await bench.replica()
    await _abandoned_entry(bench, replica)
    await replica.adopt()
    assert bench.claims() == []
    assert (bench.record.phase, bench.record.attempts, bench.record.since) == (Phase.MARKED, 3, {"Marked": 1.5})


async def test_one_entry_that_cannot_be_mended_does_not_keep_the_next(bench: Bench) -> None:
    replica = await bench.replica()
    await _abandoned_entry(bench, replica)
    await replica.take(_claim("n2"))

    async def forbid_n1(call: Call) -> Fault | None:
        return LOST if (call.verb, call.path) == ("PATCH", "/api/v1/nodes/n1") else None

    replica.meets(forbid_n1)
    with pytest.raises(KubeError):
        await replica.adopt()
    assert [each.node for each in bench.claims()] == ["n1"]


def _claim(name: str) -> Claim:
    return Claim(node=name, op="stray", controller="c", holder="h", since=0.0)


@pytest.mark.parametrize("noted", [False, True], ids=["not noted", "noted before the crash"])
async def test_a_drained_node_that_was_taken_while_nobody_was_there_is_remembered_once(
    bench: Bench, noted: bool
) -> None:
    claim = Claim(node="n9", op="old", controller="c", holder="h", pool="p", since=float(int(bench.api.now)))
    replica = await bench.replica()
    await replica.take(claim)
    if noted:
        await replica.does(
            replica.ledger.change(
                adding(Finished(node="n9", pool="p", controller="c", ending="handed_over", at=bench.api.now))
            )
        )
    await replica.adopt()
    [each] = await replica.ended()
    assert (each.node, each.pool, each.controller) == ("n9", "p", "c")
    assert each.ending == ("handed_over" if noted else "node_gone")
    assert each.at >= claim.since
    assert bench.claims() == []


@pytest.mark.parametrize(("before", "remembered"), [(0.0, True), (3600.0, False)], ids=["its own", "an older drain's"])
async def test_a_drain_that_was_restored_and_not_noted_is_remembered_by_its_back_off(
    bench: Bench, before: float, remembered: bool
) -> None:
    now = float(int(bench.api.now))
    record = DrainRecord(
        phase=Phase.BACKOFF, controller="c", op="old", since={"Backoff": now - before}, reason="PodStuck shop/web-1: x"
    )
    bench.api.edit_node("n1", lambda raw: annotated(raw, DRAIN_ANNOTATION, encode_record(record)))
    replica = await bench.replica()
    await replica.take(Claim(node="n1", op="old", controller="c", holder="h", pool="p", since=now))
    await replica.adopt()
    assert bench.claims() == []
    ended = Finished(
        node="n1", pool="p", controller="c", ending="restored", at=now, reason="PodStuck shop/web-1: x", began=now
    )
    assert await replica.ended() == ([ended] if remembered else [])


# Claims that are refused.


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cordoned, Reason.CORDONED),
        (lambda raw: annotated(raw, "karpenter.sh/do-not-disrupt", "true"), Reason.NODE_DO_NOT_DISRUPT),
        (lambda raw: annotated(raw, "karpenter.sh/do-not-disrupt", "false"), Reason.COOL_DOWN),
        (lambda raw: raw["metadata"]["labels"].update(pool="b"), Reason.COOL_DOWN),
        (
            lambda raw: raw["spec"]["taints"].append({"key": TO_BE_DELETED, "effect": "NoSchedule"}),
            Reason.TO_BE_DELETED,
        ),
        (None, Reason.NODE_TERMINATING),
    ],
)
async def test_a_node_that_has_changed_since_it_was_judged_is_not_claimed(
    bench: Bench, change: Any, reason: Reason
) -> None:
    replica = await bench.replica()
    judged = replica.cache.snapshot().nodes["n1"].node
    if change is None:
        bench.api.renew_node("n1")
    else:
        bench.api.edit_node("n1", change)
    refusal = await replica.asks(Order(judged, "pool", "p", lambda *_: None))
    assert refusal.reason is reason
    assert bench.claims() == []
    assert bench.writes() == []


async def test_of_two_claims_for_one_node_one_is_refused(bench: Bench) -> None:
    first, second = await bench.replica("a", 1), await bench.replica("b", 2)
    await evicting(bench, first)
    refusal = await second.claim()
    assert refusal.reason is Reason.DRAIN_IN_PROGRESS


# Stopping.


async def test_stopping_gives_back_a_node_of_which_no_pod_was_touched(bench: Bench) -> None:
    replica = await bench.replica()
    replica.settings = msgspec.structs.replace(
        replica.settings, rules=msgspec.structs.replace(replica.settings.rules, settle=3600.0)
    )
    assert await replica.claim() is None
    replica.stopping = True
    assert await replica.does(replica.drainer.stop(60)) == {}
    assert bench.pristine
    assert bench.phase is Phase.BACKOFF
    assert bench.claims() == []


@pytest.mark.parametrize("taken", [False, True])
async def test_stopping_parks_a_drain_under_way_at_once_also_in_the_autoscalers_hands(
    bench: Bench, taken: bool
) -> None:
    replica = await bench.replica()
    await evicting(bench, replica)
    if taken:
        bench.api.edit_node("n1", lambda raw: raw["spec"]["taints"].append(CA))
        await until(lambda: bench.phase is Phase.YIELDED)
    replica.stopping = True
    assert await replica.does(replica.drainer.stop(60)) == {}
    assert bench.phase is (Phase.YIELDED if taken else Phase.EVICTING)
    assert [each.node for each in bench.claims()] == ["n1"]
    assert [each.ending for each in replica.reported(EventKind.ENDED)] == [Ending.PARKED]
