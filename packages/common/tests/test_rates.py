"""Rates: what drains have begun is counted in the claims' Lease, and limits what begins next."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from links import Client, virtually

from tightship.draining.begun import LONGEST, MOST, given_back, with_begun, with_evicted
from tightship.draining.claims import Claim, ClaimRequest, dropping, rested, take
from tightship.draining.ledger import Edit, Ledger
from tightship.objects import Pod
from tightship.objects.drain_record import BEGUN_ANNOTATION, WORKLOADS_ANNOTATION, Begun, Spent, begun_in
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import parse_rfc3339
from tightship.rules.limits import CLUSTER
from tightship.rules.rates import (
    DAY,
    HOUR,
    SKEW,
    Rates,
    beside_drains,
    marks_of,
    newcomers,
    planned,
    rate_checks,
    refused_by_rate,
)
from tightship_testkit.builders import controller, node, pod, pod_of, snapshot
from tightship_testkit.simulated import Simulated

NOON = parse_rfc3339("2026-11-28T12:00:00Z")


def kept(*spent: Spent, now: float) -> Begun:
    notes: dict[str, str] = {}
    for each in spent:
        notes = dict(with_begun(notes, [each], each.at))
    return begun_in(with_begun(notes, (), now), now)


def pods(many: int) -> tuple[Pod, ...]:
    """As many pods of workloads of their own."""
    return tuple(pod_of(snapshot(node(), pod(owner=controller("StatefulSet", f"w{at}")))) for at in range(many))


HOURLY = Rates(nodes_per_hour=2)
DAILY = Rates(nodes_per_day=2)
PODS = Rates(evictions_per_hour=10)
POOL = Rates(of_pool="a", nodes_per_hour=1)

CASES = [
    ("nothing has begun", HOURLY, [], 0, 5, True),
    ("one of two", HOURLY, [Spent(NOON, "a", 1, 3)], 0, 5, True),
    ("two of two", HOURLY, [Spent(NOON, "a", 1, 3)] * 2, 60, 5, False),
    ("across the border of a clock's hour", HOURLY, [Spent(NOON - 60, "a", 2, 3)], 120, 5, False),
    ("an hour later, though clocks are 10 s apart", HOURLY, [Spent(NOON, "a", 2, 3)], HOUR + SKEW - 1, 5, False),
    ("an hour and the skew later", HOURLY, [Spent(NOON, "a", 2, 3)], HOUR + SKEW, 5, True),
    ("yesterday's, in an hour joined", DAILY, [Spent(NOON, "a", 2, 3)], DAY - 60, 5, False),
    ("more than a day later", DAILY, [Spent(NOON, "a", 2, 3)], DAY + SKEW, 5, True),
    ("as many pods as are left", PODS, [Spent(NOON, "a", 1, 5)], 60, 5, True),
    ("one pod too many", PODS, [Spent(NOON, "a", 1, 6)], 60, 5, False),
    ("a node that is empty evicts nothing", PODS, [Spent(NOON, "a", 1, 10)], 60, 0, True),
    ("another pool's", POOL, [Spent(NOON, "b", 1, 3)], 60, 5, True),
    ("the pool's own", POOL, [Spent(NOON, "a", 1, 3)], 60, 5, False),
    ("of nobody knows which pool", POOL, [Spent(NOON, None, 1, 3)], 60, 5, False),
    ("by a clock that is ahead", HOURLY, [Spent(NOON + 300, "a", 2, 3)], 0, 5, False),
]


@pytest.mark.parametrize(("rates", "spent", "later", "evicts", "goes"), [each[1:] for each in CASES],
                         ids=[each[0] for each in CASES])  # fmt: skip
def test_a_rate_slides(rates: Rates, spent: list[Spent], later: float, evicts: int, goes: bool) -> None:
    refusal = refused_by_rate([rates], kept(*spent, now=NOON + later), "n1", pods(evicts))
    assert (refusal is None) is goes
    assert refusal is None or (refusal.reason, refusal.subject) == (Reason.RATE_LIMITED, "n1")


def test_a_check_says_what_is_left_and_when_more_is() -> None:
    rates, begun = Rates(nodes_per_hour=2, evictions_per_hour=10), kept(Spent(NOON, "a", 1, 7), now=NOON + 120)
    nodes, evictions = rate_checks([rates], begun, pods(4))
    assert (nodes.open, nodes.detail) == (True, "1 of 2 nodes of the cluster in an hour, 1 left")
    wants = "7 of 10 evictions of the cluster in an hour; the node has 4 pods to evict; the next at 13:00 UTC, in 58m"
    assert not evictions.open
    assert (evictions.detail, evictions.fix) == (wants, "wait, or raise maximumEvictionsPerHour of the cluster")
    [never] = rate_checks([Rates(evictions_per_day=10)], begun, pods(11))
    assert never.detail.endswith("the node has 11 pods to evict, more than the rate ever lets go")


def test_a_plan_spends_a_rate_as_it_grows() -> None:
    begun = planned(planned(Begun(now=NOON), "a", pods(1)), "b", pods(1))
    assert refused_by_rate([HOURLY], begun, "n3", pods(1)) is not None
    assert refused_by_rate([POOL], Begun(now=NOON), "n3", pods(1)) is None


@pytest.mark.parametrize("text", ["", "soon", "{}", '[{"at":1}]', '[{"at":"2026-11-28T12:00:00Z","nodes":-1}]',
                                  '[{"at":"2026-11-28T12:00:00Z","nodes":0.5}]'])  # fmt: skip
def test_counts_that_nobody_can_read_are_spent_and_are_not_overwritten(text: str) -> None:
    notes = {BEGUN_ANNOTATION: text}
    begun = begun_in(notes, NOON)
    assert begun.problem
    assert refused_by_rate([HOURLY], begun, "n1", pods(1)) is not None
    assert refused_by_rate([], begun, "n1", pods(1)) is None
    assert with_begun(notes, [Spent(NOON, "a", 1, 1)], NOON) == notes


def test_counts_of_a_time_to_come_are_nobodys_and_said() -> None:
    begun = begun_in({BEGUN_ANNOTATION: '[{"at":"2126-11-28T12:00:00Z","nodes":1}]'}, NOON)
    [check] = rate_checks([HOURLY], begun, pods(1))
    assert "2126-11-28T12:00:00Z, which is to come" in check.detail
    assert "remove that annotation" in check.fix
    assert not check.open


def test_the_counts_stay_small_and_lose_nothing() -> None:
    notes: dict[str, str] = {}
    times = [NOON - DAY + 20 * at for at in range(int(DAY / 20))]
    for at in times[::7]:
        notes = dict(with_begun(notes, [Spent(at, f"pool-{int(at) % 50}", 1, 2)], at))
    begun = begun_in(notes, NOON)
    assert sum(each.nodes for each in begun.spent) == len(times[::7])
    assert len(begun.spent) <= MOST
    assert len(notes[BEGUN_ANNOTATION]) < 30_000


def test_what_a_drain_did_not_use_is_given_back() -> None:
    notes = with_begun({}, [Spent(NOON, "a", 1, 9), Spent(NOON + 5, "b", 1, 4)], NOON + 5)
    notes = given_back(notes, Spent(NOON, "a", 1, 6), NOON + 9)
    assert sorted((each.pool, each.nodes, each.evictions) for each in begun_in(notes).spent) == [
        ("a", 0, 3),
        ("b", 1, 4),
    ]


def claim(node: str, op: str, evicts: int = 4, at: float = NOON) -> Claim:
    return Claim(node=node, op=op, pool="a", controller="c", holder=op, since=at, evicts=evicts)


class Held:
    """The ledger as one replica of some controller has it."""

    def __init__(self, api: Simulated) -> None:
        self._client = Client(api)
        self._ledger = Ledger(self._client.connection, namespace="ns")

    async def take(self, claim: Claim, rates: Rates = HOURLY, evicts: tuple[Pod, ...] = ()) -> Refusal | None:
        def allows(_: tuple[Claim, ...], begun: Begun) -> Refusal | None:
            return refused_by_rate([rates], begun, claim.node, evicts or pods(claim.evicts))

        [answer] = await self._client.does(take(self._ledger, [ClaimRequest(claim, allows)]))
        return answer

    async def change(self, edit: Edit) -> None:
        await self._client.does(self._ledger.change(edit))

    async def drop(self, claim: Claim, **how: Any) -> None:
        await self._client.does(self._ledger.change(dropping([(claim.node, claim.op)], claim.since, **how)))

    async def begun(self) -> list[tuple[int, int]]:
        lease = await self._client.does(self._ledger.read())
        return [(each.nodes, each.evictions) for each in begun_in(lease.annotations).spent]


def test_two_controllers_at_once_pass_no_rate() -> None:
    async def work(api: Simulated) -> None:
        several = [Held(api) for _ in range(5)]
        requests = (each.take(claim(f"n{at}", f"op{at}", at=NOON + at - 2)) for at, each in enumerate(several))
        answers = await asyncio.gather(*requests)
        assert [each is None for each in answers].count(True) == 2
        assert {each.reason for each in answers if each} == {Reason.RATE_LIMITED}

    virtually(work)


def test_the_count_outlives_a_drain_and_its_leader() -> None:
    async def work(api: Simulated) -> None:
        first, next_one = Held(api), Held(api)
        one, two = claim("n1", "op1"), claim("n2", "op2")
        assert await first.take(one) is None
        await first.drop(one, evicted=3)
        assert await first.take(two) is None
        assert await first.take(two) is None  # the same claim again counts once
        await first.drop(two, evicted=6)
        refusal = await next_one.take(claim("n3", "op3"))
        assert refusal is not None
        assert refusal.reason is Reason.RATE_LIMITED
        found = await next_one.begun()
        assert (sum(nodes for nodes, _ in found), sum(pods for _, pods in found)) == (2, 9)

    virtually(work)


def test_a_claim_in_vain_spends_nothing() -> None:
    async def work(api: Simulated) -> None:
        held, one = Held(api), claim("n1", "op1")
        assert await held.take(one) is None
        await held.drop(one, in_vain=True)
        assert await held.begun() == []

    virtually(work)


@pytest.mark.parametrize(("subject", "asked"), [("n1", 2), (CLUSTER, 1)])
def test_a_budget_of_a_pool_ends_no_claims_of_other_pools(subject: str, asked: int) -> None:
    async def work(api: Simulated) -> None:
        full = Refusal(Reason.BUDGET_EXHAUSTED, subject, "full")
        requests = [
            ClaimRequest(claim("n1", "op1"), lambda *_: full),
            ClaimRequest(claim("n2", "op2"), lambda *_: None),
        ]
        client = Client(api)
        answers = await client.does(take(Ledger(client.connection, namespace="ns"), requests))
        assert answers == (full, None)[:asked]

    virtually(work)


def test_no_drain_begins_under_a_rate_while_the_counts_of_the_lease_are_unreadable() -> None:
    async def work(api: Simulated) -> None:
        notes = {BEGUN_ANNOTATION: json.dumps("edited")}
        api.add({"kind": "Lease", "metadata": {"name": "tightship-claims", "namespace": "ns", "annotations": notes},
                 "spec": {}})  # fmt: skip
        refusal = await Held(api).take(claim("n1", "op1"))
        assert refusal is not None
        assert "can't be read" in refusal.detail
        assert await Held(api).take(claim("n2", "op2"), Rates()) is None
        assert (
            api.store.get("Lease", "tightship-claims", "ns")["metadata"]["annotations"][BEGUN_ANNOTATION] == '"edited"'
        )

    virtually(work)


# A workload's rest.


def web(*names: str, template: str = "") -> tuple[Pod, ...]:
    """A pod of each Deployment *names*; of the release *template*."""
    labels = {"pod-template-hash": template or "5d9"}
    owners = (controller("ReplicaSet", f"{name}-{template or '5d9'}") for name in names)
    return tuple(pod_of(snapshot(node(), pod(owner=owner, labels=labels))) for owner in owners)


RESTING = Rates(workload_pause=600, node_timeout=1800)
PER_DAY = Rates(workload_evictions_per_day=2)


def after(seconds: float, many: int = 1, *names: str, held: int = 0) -> Begun:
    """The counts so long after evictions of so many pods of each of *names*, beside a drain under way of as many."""
    notes = with_evicted({}, dict.fromkeys(marks_of(web(*(names or ("shop",)))), many), NOON)
    return begun_in(notes, NOON + seconds).with_drain(None, {mark: held for mark in marks_of(web("shop")) if held})


RESTS = [
    ("nothing was evicted", RESTING, Begun(now=NOON), web("shop"), True),
    ("a second ago", RESTING, after(1), web("shop"), False),
    ("another workload's", RESTING, after(1), web("cart"), True),
    ("a pause ago, though clocks are 10 s apart", RESTING, after(600 + SKEW - 1), web("shop"), False),
    ("a pause and the skew ago", RESTING, after(600 + SKEW), web("shop"), True),
    ("a rollout in between", RESTING, after(60), web("shop", template="77f"), False),
    ("a drain under way may evict them", RESTING, after(3600, held=1), web("shop"), False),
    ("several on the node, which wait for each other", RESTING, Begun(now=NOON), web(*["shop"] * 4), True),
    ("too many for the time of a drain", RESTING, Begun(now=NOON), web(*["shop"] * 5), False),
    ("no pause", Rates(), after(1), web(*["shop"] * 5), True),
    ("one of two a day", PER_DAY, after(3600), web("shop"), True),
    ("two of two a day", PER_DAY, after(3600, 2), web("shop"), False),
    ("two on the node beside one", PER_DAY, after(3600), web("shop", "shop"), False),
    ("two, more than a day ago", PER_DAY, after(DAY + SKEW + 1, 2), web("shop"), True),
]


@pytest.mark.parametrize(("rates", "begun", "evicts", "goes"), [each[1:] for each in RESTS],
                         ids=[each[0] for each in RESTS])  # fmt: skip
def test_a_workload_rests(rates: Rates, begun: Begun, evicts: tuple[Pod, ...], goes: bool) -> None:
    assert (refused_by_rate([rates], begun, "n1", evicts) is None) is goes


STABLE = Rates(min_stable_time=300, node_timeout=1800)
NEW = [
    ("no pod made since, long ago", 400, [], True),
    ("no pod made since, and none could be Ready so long", 200, [], False),
    ("an older pod isn't Ready", 400, [(-60, math.inf)], True),
    ("the new one isn't Ready", 400, [(5, math.inf)], False),
    ("the new one has just become Ready", 400, [(5, 390)], False),
    ("the new one has been Ready for less", 400, [(5, 101)], False),
    ("the new one has been Ready for so long", 400, [(5, 100)], True),
    ("one of two has", 400, [(5, 100), (9, 350)], False),
    ("made before by a clock that is slow", 400, [(-SKEW, math.inf)], False),
]


@pytest.mark.parametrize(("at", "young", "goes"), [each[1:] for each in NEW], ids=[each[0] for each in NEW])
def test_a_workload_rests_until_its_replacements_are_stable(
    at: float, young: list[tuple[float, float]], goes: bool
) -> None:
    found = {"Deployment shop/shop": [(NOON + made, NOON + ready) for made, ready in young]}
    begun = msgspec.structs.replace(after(at), newcomers=found)
    assert (refused_by_rate([STABLE], begun, "n1", web("shop")) is None) is goes


def test_the_young_pods_of_a_workload_know_since_when_they_are_ready() -> None:
    owner, labels = controller("ReplicaSet", "shop-5d9"), {"pod-template-hash": "5d9"}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-28T12:00:00Z"}
    raw = pod(owner=owner, labels=labels)
    made = pod_of(snapshot(node(), raw)).created
    raw["status"] = {**raw.get("status", {}), "conditions": [ready]}
    [(created, since)] = newcomers(snapshot(node(), raw), made + 60.0)["Deployment shop/shop"]
    assert (created, since) == (made, datetime(2026, 11, 28, 12, tzinfo=UTC).timestamp())
    ready["status"] = "False"
    assert newcomers(snapshot(node(), raw), made + 60.0)["Deployment shop/shop"] == [(made, math.inf)]
    assert not newcomers(snapshot(node(), raw), made + DAY + 1)


def test_a_pod_that_came_after_the_claim_of_its_node_keeps_its_workload_from_other_drains() -> None:
    owner, labels = controller("ReplicaSet", "shop-5d9"), {"pod-template-hash": "5d9"}
    seen = snapshot(node("drains"), node("stays"), pod("late", on="drains", owner=owner, labels=labels))
    for nodes, goes in ((["drains"], False), (["stays"], True), (["gone"], True)):
        begun = beside_drains(Begun(now=NOON), seen, nodes)
        assert (refused_by_rate([RESTING], begun, "n1", web("shop")) is None) is goes
        # The claim counts the pods of its plan: a day's evictions of the workload count each once.
        assert refused_by_rate([PER_DAY], begun, "n1", web("shop", "shop")) is None


def test_a_check_shows_the_last_evictions_and_the_next() -> None:
    *_, waits = rate_checks([RESTING], after(120), web("shop"))
    assert waits.detail == "Deployment shop/shop: last eviction 2m ago, the next at 12:10 UTC, in 8m"
    *_, rests = rate_checks([RESTING], after(7200, 2), web("shop"))
    assert (rests.open, rests.detail) == (True, "Deployment shop/shop: last eviction 2h ago, 2 in a day")


def test_evictions_of_many_workloads_stay_small_and_no_rest_ends_early() -> None:
    notes: dict[str, str] = {}
    marks = [f"{at * 2654435761 % 2**32:08x}" for at in range(9000)]
    for at in range(0, len(marks), 30):
        notes = dict(with_evicted(notes, dict.fromkeys(marks[at : at + 30], 1), NOON + at))
    begun = begun_in(notes, NOON + len(marks))
    assert len(notes[WORKLOADS_ANNOTATION]) <= LONGEST
    for at, mark in enumerate(marks):
        assert max(each[0] for each in begun.evicted(mark)) >= NOON + at - at % 30
    later = begun_in(with_evicted(notes, {"0": 1}, NOON + 2 * DAY))
    assert list(later.workloads) == ["0"]


def test_two_controllers_never_evict_one_workload_at_once_nor_in_its_pause() -> None:
    mark = marks_of(web("shop"))

    async def work(api: Simulated) -> None:
        async def take_of(held: Held, node: str, at: float) -> Refusal | None:
            request = msgspec.structs.replace(claim(node, node, at=at), workloads=mark)
            return await held.take(request, RESTING, web("shop"))

        one, other = Held(api), Held(api)
        answers = await asyncio.gather(*(take_of(each, f"n{at}", NOON) for at, each in enumerate((one, other))))
        [first] = [f"n{at}" for at, each in enumerate(answers) if each is None]
        await other.change(rested(first, first, mark, NOON + 700))
        assert await take_of(other, "n5", NOON + 1200) is not None
        assert await take_of(other, "n5", NOON + 1311) is None
        await one.drop(claim("n5", "n5", at=NOON + 1400))  # by a stranger, who knows of nothing that was evicted
        assert await take_of(one, "n6", NOON + 1900) is not None
        assert await take_of(one, "n6", NOON + 2011) is None
        await one.drop(claim("n6", "n6"), in_vain=True)
        assert await take_of(one, "n7", NOON + 2012) is None

    virtually(work)
