"""One look at a node in drain: who goes next, who waits, what will not mend."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tightship.drain.answers import EvictionAnswer, EvictionResult
from tightship.drain.assessment import RETRY_FIRST, RETRY_LAST, Assessment, Try, tried
from tightship.drain.machine import DrainRules, Findings
from tightship.objects import Pod
from tightship.objects.drain_record import DrainRecord, Phase
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.evictability import EvictionRules
from tightship_testkit.builders import NOW, budget, controller, decoded, node, pod, snapshot, workload

Json = dict[str, Any]

CRITICAL = 2_000_000_000
RULES = DrainRules(await_timeout=600.0)
EVICTION = EvictionRules(awaited=frozenset({Reason.JOB_RUNNING}))
BASE = (workload(), workload("Job", "nightly"), workload("DaemonSet", "agent"))
EVICTING = DrainRecord(phase=Phase.EVICTING, op="op", since={"Claimed": NOW - 500, "Evicting": NOW - 400})
OURS = {"key": DRAINING.key, "value": "op", "effect": "NoSchedule"}
NONE = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2}
NEVER = {"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}


def draining(name: str = "n1") -> Json:
    return node(name, taints=[OURS], unschedulable=True)


def uid(item: Json) -> Json:
    """Give a pod the UID the API server would."""
    return {**item, "metadata": {**item["metadata"], "uid": f"uid-{item['metadata']['name']}"}}


def sight(*items: Json, rules: DrainRules = RULES, pods: list[Pod] | None = None) -> Assessment:
    things = [uid(item) if item["kind"] == "Pod" else item for item in (draining(), *BASE, *items)]
    return Assessment(snapshot(*things), "n1", NOW, rules, EVICTION, pods=pods)


def look(*items: Json, tries: dict[str, Try] | None = None, rules: DrainRules = RULES, **more: Any) -> Findings:
    return sight(*items, rules=rules).findings(more.pop("record", EVICTING), tries or {}, **more)


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [each.name for each in pods]


def refused(answer: EvictionAnswer, count: int = 1, again: float = NOW - 1, text: str = "no") -> Try:
    return Try(EvictionResult(answer, text), NOW - 10, count, again)


def reasons(seen: Findings) -> list[Reason]:
    return [each.reason for each in seen.against]


# Who goes next.


def test_system_critical_pods_go_last() -> None:
    found = look(pod("web-1"), pod("dns", priority=CRITICAL))
    assert names(found.evict) == ["dns", "web-1"]
    assert names(found.next) == ["web-1"]
    assert names(look(pod("dns", priority=CRITICAL)).next) == ["dns"]


def test_system_critical_pods_wait_until_the_others_are_gone_not_only_asked() -> None:
    dns = pod("dns", priority=CRITICAL)
    assert not look(dns, pod("web-1", deletion=NOW + 30)).next
    assert not look(dns, pod("web-1"), tries={"uid-web-1": refused(EvictionAnswer.ACCEPTED)}).next
    assert names(look(dns, pod("net", priority=CRITICAL, deletion=NOW + 30)).next) == ["dns"]


def test_low_priority_goes_first_then_best_effort_then_by_name() -> None:
    found = look(
        pod("a", priority=100), pod("b"), pod("c"), pod("best-effort", cpu="0", memory="0"), pod("cheap", priority=-5)
    )
    assert names(found.next) == ["cheap", "best-effort", "b", "c", "a"]


def test_no_more_are_evicted_at_once_than_the_budget_allows() -> None:
    found = look(pod("web-1"), pod("web-2"), pod("db", labels={"app": "db"}), budget())
    assert names(found.evict) == ["db", "web-1", "web-2"]
    assert names(found.next) == ["db", "web-1"]


def test_a_budget_that_allows_none_now_holds_its_pods_back_without_ending_the_drain() -> None:
    found = look(pod("web-1"), budget(status=NONE))
    assert (found.next, found.against) == ((), ())


def test_a_budget_that_counts_a_pod_less_until_its_replacement_is_made_does_not_end_the_drain() -> None:
    wanted = {**workload(name="db"), "spec": {"replicas": 3}}
    pods = [pod(f"db-{number}", owner=controller("ReplicaSet", "db")) for number in (1, 2)]
    found = look(wanted, *pods, budget(status=NEVER, minAvailable=2))
    assert (found.next, found.against) == ((), ())


def test_a_budget_that_is_not_current_is_waited_for() -> None:
    found = look(pod("web-1"), budget(generation=2))
    assert (found.next, found.against) == ((), ())


@pytest.mark.parametrize(
    ("budgets", "reason"),
    [
        ([budget("a"), budget("b")], Reason.MULTIPLE_PDBS),
        ([budget(status=NEVER)], Reason.PDB_NEVER_ALLOWS),
        ([budget(failed="no scale subresource")], Reason.PDB_SYNC_FAILED),
    ],
)
def test_a_budget_that_waiting_does_not_mend_ends_the_drain(budgets: list[Json], reason: Reason) -> None:
    found = look(pod("web-1"), *budgets)
    assert reasons(found) == [reason]
    assert not found.next


def test_a_budget_does_not_matter_to_a_pod_that_is_on_its_way() -> None:
    assert not look(pod("web-1", deletion=NOW + 30), budget("a"), budget("b")).against


def test_deleting_past_budgets_asks_none_of_them() -> None:
    rules = msgspec.structs.replace(RULES, past_budgets=True)
    found = look(pod("web-1"), pod("web-2"), budget(status=NEVER), rules=rules)
    assert names(found.next) == ["web-1", "web-2"]
    assert not found.against
    assert not sight(pod("web-1"), node("n2"), budget("a"), budget("b"), rules=rules).rest("likely")


def test_one_pod_of_a_workload_goes_at_a_time_and_none_while_it_rests() -> None:
    rules = msgspec.structs.replace(RULES, workload_pause=600.0)
    pods = (pod("web-1"), pod("web-2"), pod("db-0", owner=controller("StatefulSet", "db")))
    assert names(look(*pods, rules=rules).next) == ["db-0", "web-1"]
    found = look(*pods, rules=rules, rests={"ReplicaSet shop/web": NOW + 9, "StatefulSet shop/db": NOW})
    assert (names(found.next), found.due) == (["db-0"], NOW + 9)
    unanswered = {"uid-web-1": refused(EvictionAnswer.NO_ANSWER)}
    found = look(*pods, rules=rules, tries=unanswered, rests={"ReplicaSet shop/web": NOW + 9})
    assert names(found.next) == ["db-0", "web-1"]


def test_only_so_many_pods_are_on_their_way_at_once() -> None:
    rules = msgspec.structs.replace(RULES, most_in_flight=3)
    pods = [pod(f"web-{n}") for n in range(5)]
    assert len(look(*pods, rules=rules).next) == 3
    assert len(look(*pods, pod("old", deletion=NOW + 9), rules=rules).next) == 2
    going = {f"uid-web-{n}": refused(EvictionAnswer.ACCEPTED) for n in range(3)}
    found = look(*pods, tries=going, rules=rules)
    assert (names(found.leaving), found.next) == (["web-0", "web-1", "web-2"], ())


@pytest.mark.parametrize(
    "answer", [EvictionAnswer.ACCEPTED, EvictionAnswer.EVACUATING, EvictionAnswer.NAMESPACE_TERMINATING]
)
def test_a_pod_that_has_agreed_to_go_is_never_asked_again(answer: EvictionAnswer) -> None:
    found = look(pod("web-1"), tries={"uid-web-1": refused(answer)})
    assert (found.evict, found.next, names(found.leaving)) == ((), (), ["web-1"])


def test_a_pod_of_the_same_name_with_another_uid_is_another_pod() -> None:
    assert names(look(pod("web-1"), tries={"uid-before": refused(EvictionAnswer.ACCEPTED)}).next) == ["web-1"]


def test_a_refused_pod_is_asked_again_after_its_pause() -> None:
    found = look(pod("web-1"), pod("web-2"), tries={"uid-web-1": refused(EvictionAnswer.BUDGET, again=NOW + 7)})
    assert names(found.next) == ["web-2"]
    assert found.due == NOW + 7
    assert names(look(pod("web-1"), tries={"uid-web-1": refused(EvictionAnswer.BUDGET, again=NOW)}).next) == ["web-1"]


# Pauses and verdicts.


def test_pauses_double_up_to_their_limit() -> None:
    last: Try | None = None
    pauses = []
    for _ in range(6):
        last = tried(last, EvictionResult(EvictionAnswer.SERVER_ERROR), NOW)
        pauses.append(last.again - NOW)
    assert pauses == [RETRY_FIRST, 4, 8, 16, RETRY_LAST, RETRY_LAST]


@pytest.mark.parametrize(
    ("answer", "asked", "pause"),
    [
        (EvictionAnswer.BUDGET_NOT_CURRENT, 10.0, 10.0),
        (EvictionAnswer.BUSY, 1.0, RETRY_FIRST),
        (EvictionAnswer.BUSY, 45.0, 45.0),
    ],
)
def test_a_server_that_names_a_time_is_left_alone_that_long(answer: EvictionAnswer, asked: float, pause: float) -> None:
    assert tried(None, EvictionResult(answer, "", asked), NOW).again == NOW + pause


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (EvictionAnswer.BUDGET_SYNC_FAILED, Reason.PDB_SYNC_FAILED),
        (EvictionAnswer.MULTIPLE_BUDGETS, Reason.MULTIPLE_PDBS),
        (EvictionAnswer.FORBIDDEN, Reason.EVICTION_FORBIDDEN),
        (EvictionAnswer.INVALID, Reason.EVICTION_FAILED),
    ],
)
def test_a_final_answer_ends_the_drain_with_its_words(answer: EvictionAnswer, reason: Reason) -> None:
    found = look(pod("web-1"), tries={"uid-web-1": refused(answer, text="because")})
    assert found.against == (Refusal(reason, "shop/web-1", "because"),)


@pytest.mark.parametrize(
    "answer",
    [
        EvictionAnswer.BUDGET,
        EvictionAnswer.BUSY,
        EvictionAnswer.SERVER_ERROR,
        EvictionAnswer.NO_ANSWER,
        EvictionAnswer.GONE,
    ],
)
def test_any_other_answer_does_not(answer: EvictionAnswer) -> None:
    assert not look(pod("web-1"), tries={"uid-web-1": refused(answer, count=50)}).against


def test_conflicts_in_a_row_end_the_drain_a_single_one_after_other_refusals_does_not() -> None:
    last: Try | None = None
    for answer in (
        *[EvictionAnswer.BUDGET] * 5,
        EvictionAnswer.CONFLICT,
        EvictionAnswer.BUDGET,
        EvictionAnswer.CONFLICT,
        EvictionAnswer.CONFLICT,
    ):
        last = tried(last, EvictionResult(answer), NOW - 100)
        assert not look(pod("web-1"), tries={"uid-web-1": last}).against
    again = tried(last, EvictionResult(EvictionAnswer.CONFLICT, "still another"), NOW - 100)
    assert reasons(look(pod("web-1"), tries={"uid-web-1": again})) == [Reason.EVICTION_FAILED]


# What is on the node.


def test_finished_daemonset_and_mirror_pods_do_not_keep_a_node() -> None:
    static = pod(
        "static",
        owner={"kind": "Node", "name": "n1", "uid": "u", "apiVersion": "v1", "controller": True},
        notes={"kubernetes.io/config.mirror": "x"},
    )
    agent = pod("agent", owner=controller("DaemonSet", "agent"))
    found = look(agent, static, pod("done", phase="Succeeded"), pod("failed", phase="Failed"))
    assert (found.evict, found.awaits, found.leaving, found.against) == ((), (), (), ())


def test_a_running_job_is_awaited() -> None:
    job = pod("job", owner=controller("Job", "nightly"), restartPolicy="Never")
    found = look(job, pod("web-1"))
    assert (names(found.awaits), names(found.evict), found.against) == (["job"], ["web-1"], ())


def test_a_pod_that_opts_out_stands_against_the_drain_at_any_time() -> None:
    assert reasons(look(pod("web-1", notes={"karpenter.sh/do-not-disrupt": "true"}))) == [Reason.POD_DO_NOT_DISRUPT]


def test_pods_read_from_the_server_replace_those_of_the_cache() -> None:
    fresh = [decoded(uid(each)) for each in (pod("late"), pod("done", phase="Succeeded"))]
    found = sight(pod("gone"), pods=fresh).findings(EVICTING, {}, fresh=True)
    assert names(found.evict) == ["late"]


# Where the rest could go.


def test_the_rest_is_placed_on_the_other_nodes() -> None:
    assert not sight(pod("web-1", cpu="3"), node("n2")).rest("likely")
    full = sight(pod("web-1", cpu="3"), node("n2"), pod("big", on="n2", cpu="3"))
    assert [each.reason for each in full.rest("likely")] == [Reason.NO_PLACE]


def test_a_transient_refusal_stops_a_claim_but_not_a_drain_under_way() -> None:
    claimed = DrainRecord(phase=Phase.CLAIMED, op="op", since={"Claimed": NOW - 10})
    items = (pod("web-1"), node("n2"), budget(status=NONE))
    rest = sight(*items).rest("likely")
    assert reasons(look(*items, record=claimed, rest=rest)) == [Reason.PDB_EXHAUSTED]
    under_way = look(*items, rest=rest)
    assert not under_way.against
    assert under_way.judged


# Refusing for too long.


def test_pods_are_late_when_nothing_has_moved_for_the_whole_time() -> None:
    old = msgspec.structs.replace(EVICTING, since={"Claimed": NOW - 999, "Evicting": NOW - 600})
    found = look(pod("web-1"), budget(status=NONE), record=old)
    assert [each.reason for each in found.late] == [Reason.PDB_EXHAUSTED]
    assert not look(pod("web-1"), budget(status=NONE), record=old, progress=NOW - 599).late
    assert not look(pod("web-1"), pod("w", deletion=NOW + 9), record=old).late
    answer = refused(EvictionAnswer.SERVER_ERROR, text="etcd is away")
    found = look(pod("web-1"), record=old, tries={"uid-web-1": answer})
    assert found.late == (Refusal(Reason.EVICTION_FAILED, "shop/web-1", "can't be evicted: etcd is away"),)


def test_budgets_are_not_blamed_for_a_pod_that_is_deleted_past_them() -> None:
    old = msgspec.structs.replace(EVICTING, since={"Claimed": NOW - 999, "Evicting": NOW - 600})
    rules = msgspec.structs.replace(RULES, past_budgets=True)
    found = look(pod("web-1"), budget(status=NONE), record=old, rules=rules)
    assert [each.reason for each in found.late] == [Reason.EVICTION_FAILED]


# Replacements.


@pytest.mark.parametrize(
    ("waiting", "found"),
    [
        (pod("new", on="", age=200, phase="Pending"), ["new"]),
        (pod("young", on="", age=29, phase="Pending"), []),
        (pod("older", on="", age=501, phase="Pending"), []),
        (pod("huge", on="", age=200, phase="Pending", cpu="64"), []),
        (pod("elsewhere", on="", age=200, phase="Pending", nodeSelector={"zone": "b"}), []),
        (pod("gated", on="", age=200, phase="Pending", schedulingGates=[{"name": "x"}]), []),
        (pod("foreign", on="", age=200, phase="Pending", schedulerName="other"), []),
        (pod("dying", on="", age=200, phase="Pending", deletion=NOW + 9), []),
        (pod("agent", on="", age=200, phase="Pending", owner=controller("DaemonSet", "agent")), []),
        (pod("cheap", on="", age=200, phase="Pending", priority=-10), ["cheap"]),
        (pod("expendable", on="", age=200, phase="Pending", priority=-11), []),
    ],
    ids=lambda each: each["metadata"]["name"] if isinstance(each, dict) else "",
)
def test_a_pod_that_waits_since_the_claim_and_could_run_here_wants_the_node_back(
    waiting: Json, found: list[str]
) -> None:
    assert names(look(waiting).pending) == found


def test_a_pod_this_node_is_too_full_for_does_not_want_it_back() -> None:
    waiting = pod("new", on="", age=200, phase="Pending", cpu="2")
    assert not look(waiting, pod("stays", cpu="3")).pending
    assert names(look(waiting, pod("done", cpu="3", phase="Succeeded")).pending) == ["new"]


def test_a_node_that_is_gone_has_nothing_to_see() -> None:
    gone = Assessment(snapshot(), "n1", NOW, RULES, EVICTION)
    assert gone.rest("likely") == []
    assert gone.findings(EVICTING, {}) == Findings(node=None)


def test_a_node_that_is_gone_stays_gone_whoever_still_lists_its_pods() -> None:
    there = sight(pod("web-1"))
    left = snapshot(*BASE, node("n2"))
    gone = Assessment(left, "n1", NOW, RULES, EVICTION, pods=list(there.sorted.evict))
    assert gone.node is None
    assert list(gone.snapshot.nodes) == ["n2"]


def test_a_pod_that_has_finished_takes_no_room_on_its_node() -> None:
    newer = sight(pod("web-1"), pods=[decoded(uid(pod("web-1"))), decoded(uid(pod("done", phase="Succeeded")))])
    assert names(newer.snapshot.nodes["n1"].pods) == ["web-1"]
