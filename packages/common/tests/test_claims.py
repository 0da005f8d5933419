"""The ledger of drain claims, on virtual time, over links that lose, delay and repeat."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from links import Client, Direct, virtually

from tightship.draining.claims import (
    CLAIMS_ANNOTATION,
    Allows,
    Claim,
    ClaimRequest,
    ClaimsUnreadable,
    adding,
    claims_in,
    dropping,
    past_drains,
    take,
)
from tightship.draining.ledger import Ledger, LedgerContended
from tightship.kube.connection import Connection
from tightship.objects.api_errors import ConnectionFailed, Forbidden, KubeError, Unavailable
from tightship.objects.drain_record import Begun, Ending, Finished
from tightship.objects.reasons import Reason, Refusal
from tightship.rules.limits import CLUSTER
from tightship_testkit.simulated import Simulated

T = TypeVar("T")
Json = dict[str, Any]


def claim(node: str = "n1", op: str = "op1", **more: Any) -> Claim:
    fields = {"pool": "p", "controller": "node-compactor", "holder": "me", "since": 1_700_000_000.0, **more}
    return Claim(node=node, op=op, **fields)


def direct(api: Simulated) -> tuple[Direct, Ledger]:
    made = Direct(api.store)
    return made, Ledger(cast("Connection", made), namespace="ns")


async def taken(ledger: Ledger, claim: Claim, allows: Allows) -> Refusal | None:
    [answer] = await take(ledger, [ClaimRequest(claim, allows)])
    return answer


class Held:
    """The ledger as one client has it."""

    def __init__(self, api: Simulated) -> None:
        self._client = Client(api)
        self.link = self._client.link
        self._ledger = Ledger(self._client.connection, namespace="ns")

    async def read(self) -> tuple[Claim, ...]:
        return claims_in(await self._client.does(self._ledger.read()))

    async def take_all(self, requests: Sequence[ClaimRequest]) -> Sequence[Refusal | None]:
        return await self._client.does(take(self._ledger, requests))

    async def take(self, claim: Claim, allows: Allows) -> Refusal | None:
        return await self._client.does(taken(self._ledger, claim, allows))

    async def drop(self, node: str, op: str) -> None:
        await self._client.does(self._ledger.change(dropping([(node, op)])))


def anything(_: tuple[Claim, ...], __: Begun = Begun()) -> None:
    return None


def one_at_a_time(present: tuple[Claim, ...], _: Begun = Begun()) -> Refusal | None:
    if not present:
        return None
    return Refusal(Reason.BUDGET_EXHAUSTED, present[0].node, f"{len(present)} in flight")


def lease(api: Simulated) -> Json:
    return api.store.get("Lease", "tightship-claims", "ns")


def annotation(api: Simulated) -> str:
    return cast("str", lease(api)["metadata"]["annotations"][CLAIMS_ANNOTATION])


def written(api: Simulated) -> list[Any]:
    return cast("list[Any]", json.loads(annotation(api)))


def holding(api: Simulated, value: str, **spec: Any) -> None:
    """Put a Lease there."""
    notes = {"note": "hands off", CLAIMS_ANNOTATION: value}
    meta = {"name": "tightship-claims", "namespace": "ns", "labels": {"team": "x"}, "annotations": notes}
    api.add({"kind": "Lease", "metadata": meta, "spec": spec})


def test_a_claim_is_written_read_and_dropped() -> None:
    async def work(api: Simulated) -> None:
        mine, theirs = Held(api), Held(api)
        assert await mine.read() == ()
        assert await mine.take(claim(), anything) is None
        assert await theirs.take(claim("n2", "op2", pool="", controller="node-refiner"), anything) is None
        assert written(api) == [
            {
                "node": "n1",
                "pool": "p",
                "op": "op1",
                "controller": "node-compactor",
                "holder": "me",
                "since": "2023-11-14T22:13:20Z",
            },
            {"node": "n2", "op": "op2", "controller": "node-refiner", "holder": "me", "since": "2023-11-14T22:13:20Z"},
        ]
        assert await mine.read() == (claim(), claim("n2", "op2", pool="", controller="node-refiner"))
        await mine.drop("n1", "op1")
        assert [each.node for each in await theirs.read()] == ["n2"]
        await theirs.drop("n2", "op2")
        assert written(api) == []

    virtually(work)


def test_what_is_there_already_is_not_written_again() -> None:
    async def work(api: Simulated) -> None:
        held = Held(api)
        await held.drop("n1", "op1")
        assert held.link.sent == ["GET"]
        assert await held.take(claim(), one_at_a_time) is None
        held.link.sent.clear()
        assert await held.take(claim(), one_at_a_time) is None
        await held.drop("n1", "another op")
        assert held.link.sent == ["GET", "GET"]

    virtually(work)


def test_a_node_has_one_claim() -> None:
    async def work(api: Simulated) -> None:
        held = Held(api)
        await held.take(claim(), anything)
        refusal = await held.take(claim(op="op2"), anything)
        assert (refusal.reason, refusal.subject) == (Reason.DRAIN_IN_PROGRESS, "n1")
        assert refusal.detail == "claimed by node-compactor (me) since 2023-11-14T22:13:20Z, op op1"
        assert await held.read() == (claim(),)

    virtually(work)


@pytest.mark.parametrize(("node", "op"), [("", "op"), ("node", "")])
def test_a_claim_names_its_node_and_operation(node: str, op: str) -> None:
    async def work(api: Simulated) -> None:
        with pytest.raises(ValueError, match="needs a node and an op"):
            await Held(api).take(claim(node, op), anything)

    virtually(work)


def test_what_others_wrote_stays() -> None:
    entry = {"node": "n9", "op": "op9", "controller": "c", "holder": "h", "since": "2026-01-01T01:00:00+01:00", "v2": 1}

    async def work(api: Simulated) -> None:
        holding(api, json.dumps([entry]), strategy="x")
        held = Held(api)
        await held.take(claim(), anything)
        assert written(api)[0] == entry
        there = lease(api)
        assert there["metadata"]["labels"] == {"team": "x"}
        assert there["metadata"]["annotations"]["note"] == "hands off"
        assert there["spec"]["strategy"] == "x"
        assert "holderIdentity" not in there["spec"]

    virtually(work)


GOOD = {"node": "n", "op": "o", "controller": "c", "holder": "h", "since": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "truncated"),
        ("n1", "truncated"),
        ("[n1]", "is not a list"),
        ("null", "array"),
        ("{}", "array"),
        ('["n1"]', "object"),
        (json.dumps([{**GOOD, "node": ""}]), "without node"),
        (json.dumps([{**GOOD, "node": 1}]), "node"),
        (json.dumps([{k: v for k, v in GOOD.items() if k != "op"}]), "op"),
        (json.dumps([{**GOOD, "since": "2026-01-01T00:00:00"}]), "RFC 3339"),
        (json.dumps([{**GOOD, "since": "yesterday"}]), "yesterday"),
        (json.dumps([GOOD]) + "x" * 5000, "malformed"),
    ],
)
def test_a_ledger_broken_by_hand_is_an_error_that_says_how_to_mend_it(value: str, problem: str) -> None:
    async def work(api: Simulated) -> None:
        holding(api, value)
        held = Held(api)
        for call in (held.read(), held.take(claim(), anything), held.drop("n", "o")):
            with pytest.raises(ClaimsUnreadable, match=problem) as caught:
                await call
            text = str(caught.value)
            assert "Lease ns/tightship-claims" in text
            assert repr(value[:300])[1:-1] in text
            assert "kubectl -n ns annotate --overwrite lease tightship-claims tightship.dev/claims='[]'" in text
            assert len(text) < 1000
        assert annotation(api) == value

    virtually(work)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_of_many_takers_at_once_one_gets_the_only_place(seed: int) -> None:
    rng = random.Random(seed)

    async def work(api: Simulated) -> None:

        async def taker(number: int) -> Refusal | None:
            connection, held = direct(api)
            connection.link.delay = lambda: rng.uniform(0, 0.2)
            return await taken(held, claim(f"n{number}", f"op{number}"), one_at_a_time)

        answers = await asyncio.gather(*[taker(number) for number in range(20)])
        [winner] = [number for number, refusal in enumerate(answers) if refusal is None]
        assert [each["node"] for each in written(api)] == [f"n{winner}"]
        assert all(each.reason is Reason.BUDGET_EXHAUSTED for each in answers if each)

    virtually(work)


def test_many_changes_at_once_all_come_through() -> None:
    async def work(api: Simulated) -> None:
        ledgers = [Held(api) for _ in range(10)]
        claims = [claim(f"n{number}", f"op{number}") for number in range(10)]
        answers = await asyncio.gather(*[held.take(each, anything) for held, each in zip(ledgers, claims, strict=True)])
        assert answers == [None] * 10
        assert {each["node"] for each in written(api)} == {each.node for each in claims}
        await asyncio.gather(*[held.drop(c.node, c.op) for held, c in zip(ledgers, claims, strict=True)])
        assert written(api) == []

    virtually(work)


@pytest.mark.parametrize("mode", ["lost answer", "late", "twice", "refused", "hang", 500, 503, 429, 409])
@pytest.mark.parametrize("empty", [True, False])
def test_a_write_whose_answer_was_lost_is_looked_for(mode: str | int, empty: bool) -> None:
    async def work(api: Simulated) -> None:
        if not empty:
            holding(api, "[]")
        held = Held(api)
        held.link.once.append(mode)
        assert await held.take(claim(), one_at_a_time) is None
        assert await held.read() == (claim(),)
        held.link.once.append(mode)
        await held.drop("n1", "op1")
        assert await held.read() == ()
        await asyncio.sleep(60)
        assert await held.read() == ()

    virtually(work)


@pytest.mark.parametrize("empty", [True, False])
def test_a_write_still_on_its_way_can_not_undo_what_was_reported(empty: bool) -> None:
    """The write is given up for lost, the budget is gone meanwhile, then the write arrives."""
    budget = iter([None, Refusal(Reason.BUDGET_EXHAUSTED, "", "gone meanwhile")])

    async def work(api: Simulated) -> None:
        if not empty:
            holding(api, "[]")
        held = Held(api)
        held.link.once.append("late")
        held.link.lateness = 30
        assert await held.take(claim(), lambda *_: next(budget)) is not None
        await asyncio.sleep(60)
        last = api.proxy.writes[0]
        assert (last.call.verb, last.status) == ("POST" if empty else "PUT", 409)
        assert await held.read() == ()

    virtually(work)


def test_a_cancelled_take_can_be_undone() -> None:
    async def work(api: Simulated) -> None:
        holding(api, "[]")
        held = Held(api)
        held.link.delay = lambda: 1.0
        held.link.once.append("late")
        task = asyncio.create_task(held.take(claim(), anything))
        await asyncio.sleep(1.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await held.drop("n1", "op1")
        await asyncio.sleep(60)
        assert await held.read() == ()

    virtually(work)


@pytest.mark.parametrize(
    ("mode", "error", "sent"),
    [
        ("refused", ConnectionFailed, 24),  # the transport repeats a PUT whose idle connection broke
        ("hang", ConnectionFailed, 3),
        (409, LedgerContended, 12),
    ],
)
def test_tries_end_with_a_typed_error(mode: str | int, error: type[KubeError], sent: int) -> None:
    async def work(api: Simulated) -> None:
        holding(api, "[]")
        held = Held(api)
        held.link.once.extend([mode] * 100)
        with pytest.raises(error):
            await held.take(claim(), anything)
        assert held.link.sent.count("PUT") == sent

    virtually(work)


def test_what_is_forbidden_is_not_tried_again() -> None:
    async def work(api: Simulated) -> None:
        held = Held(api)
        held.link.mode = 403
        with pytest.raises(Forbidden):
            await held.take(claim(), anything)
        assert held.link.sent == ["GET"]

    virtually(work)


async def persist(change: Callable[[], Awaitable[T]]) -> T:
    """Go on after an error that says nothing about the outcome, as a controller does in its next loop."""
    while True:
        try:
            return await change()
        except (ConnectionFailed, LedgerContended, Unavailable):
            await asyncio.sleep(1)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3))
def test_the_budget_holds_whatever_the_network_does(seed: int, budget: int) -> None:
    rng = random.Random(seed)

    def allows(present: tuple[Claim, ...], _: Begun) -> Refusal | None:
        return None if len(present) < budget else Refusal(Reason.BUDGET_EXHAUSTED, "", "")

    async def work(api: Simulated) -> None:
        mine: set[str] = set()
        uncertain: set[str] = set()

        async def controller(number: int) -> None:
            connection, held = direct(api)
            connection.link.delay = lambda: rng.uniform(0, 0.5)
            connection.link.lateness = rng.uniform(0, 40)
            modes = ["lost answer", "late", "twice", "refused", 503]
            connection.link.once.extend(rng.choices(["up", *modes], [12, 1, 1, 1, 1, 1], k=200))
            for turn in range(6):
                node = op = f"{number}-{turn}"
                uncertain.add(node)
                refusal = await persist(lambda each=claim(node, op): taken(held, each, allows))  # type: ignore[misc]
                uncertain.remove(node)
                if refusal is None:
                    mine.add(node)
                    assert len(mine) <= budget
                    await asyncio.sleep(rng.uniform(0, 5))
                    assert node in {each["node"] for each in written(api)}
                    mine.remove(node)
                    uncertain.add(node)
                    await persist(lambda each=node: held.change(dropping([(each, each)])))  # type: ignore[misc]
                    uncertain.remove(node)
                await asyncio.sleep(rng.uniform(0, 5))

        async def watch() -> None:
            while True:
                await asyncio.sleep(0.05)
                if api.store.find("Lease", "tightship-claims", "ns") is not None:
                    there = {each["node"] for each in written(api)}
                    assert len(there) <= budget
                    assert mine <= there <= mine | uncertain

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            await asyncio.gather(*[controller(number) for number in range(4)])
            await asyncio.sleep(60)
            assert written(api) == []
            watching.cancel()

    virtually(work)


def test_several_claims_are_one_write_until_the_budget_ends() -> None:
    def two(present: tuple[Claim, ...], _: Begun) -> Refusal | None:
        return Refusal(Reason.BUDGET_EXHAUSTED, CLUSTER, "two at once") if len(present) >= 2 else None

    async def work(api: Simulated) -> None:
        held = Held(api)
        requests = [ClaimRequest(claim(f"n{number}", f"op{number}"), two) for number in range(5)]
        answers = await held.take_all(requests)
        assert [each and each.reason for each in answers] == [None, None, Reason.BUDGET_EXHAUSTED]
        assert [each["node"] for each in written(api)] == ["n0", "n1"]
        assert held.link.sent == ["GET", "POST"]

    virtually(work)


def test_changes_that_wait_together_are_one_write() -> None:
    async def work(api: Simulated) -> None:
        holding(api, "[]")
        held = Held(api)
        held.link.delay = lambda: 0.1
        claims = [claim(f"n{number}", f"op{number}") for number in range(10)]
        await asyncio.gather(*[held.take(each, anything) for each in claims])
        assert held.link.sent == ["GET", "PUT"]
        await asyncio.gather(*[held.drop(each.node, each.op) for each in claims])
        assert written(api) == []
        assert held.link.sent == ["GET", "PUT", "PUT", "PUT"], "the first at once, all others after it"

    virtually(work)


def test_whoever_waits_for_a_write_that_is_cancelled_is_written_after_it() -> None:
    async def work(api: Simulated) -> None:
        holding(api, "[]")
        connection, held = direct(api)
        connection.link.delay = lambda: 1.0
        first, second = (asyncio.create_task(taken(held, claim(each, each), anything)) for each in ("n1", "n2"))
        await asyncio.sleep(1.5)
        first.cancel()
        assert await second is None
        await asyncio.gather(first, return_exceptions=True)
        assert "n2" in {each["node"] for each in written(api)}

    virtually(work)


def test_what_is_remembered_of_the_lease_is_overtaken_by_what_others_wrote() -> None:
    async def work(api: Simulated) -> None:
        (_, mine), (_, theirs) = direct(api), direct(api)
        assert await taken(mine, claim("n1", "op1"), one_at_a_time) is None
        await theirs.change(dropping([("n1", "op1")]))
        assert await taken(mine, claim("n2", "op2"), one_at_a_time) is None
        assert [each["node"] for each in written(api)] == ["n2"]
        await theirs.change(dropping([("n2", "op2")]))
        assert await taken(theirs, claim("n3", "op3"), one_at_a_time) is None
        refusal = await taken(mine, claim("n4", "op4"), one_at_a_time)
        assert refusal is not None
        assert refusal.subject == "n3"

    virtually(work)


def test_a_list_that_nobody_can_read_keeps_no_drain_out_of_the_history() -> None:
    async def work(api: Simulated) -> None:
        holding(api, "n1")
        _, held = direct(api)
        drain = Finished(
            node="n1", pool="p", controller="node-compactor", ending=Ending.HANDED_OVER.value, at=1_700_000_100.0
        )
        with pytest.raises(ClaimsUnreadable):
            await held.change(adding(drain), dropping([("n1", "op1")]))
        assert past_drains(await held.read()).finished == (drain,)
        assert annotation(api) == "n1"

    virtually(work)
