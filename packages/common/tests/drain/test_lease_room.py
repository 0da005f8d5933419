"""Claims, history and the annotations of others in one Lease, which takes 256 KiB of annotations and no more."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from links import Direct, virtually

from tightship.draining.claims import (
    CLAIMS_ANNOTATION,
    KEPT,
    Claim,
    ClaimRequest,
    adding,
    catching_up,
    dropping,
    past_drains,
    remembering,
    take,
)
from tightship.draining.lease_room import (
    HISTORY_ANNOTATION,
    LIMIT,
    RESERVED,
    SAVINGS_ANNOTATION,
    fitted,
    problem_of_room,
    size,
)
from tightship.draining.ledger import Ledger
from tightship.kube.leases import Lease
from tightship.objects.drain_record import Ending, Finished, PastDrains, PoolSavings, Saving, owner_mark
from tightship.objects.reasons import Reason, Refusal
from tightship.planning.savings import APART
from tightship_testkit.simulated import Simulated

T0 = 1_700_000_000.0
NAME = "tightship-claims"


def claim(number: int = 1) -> Claim:
    return Claim(node=f"n{number}", op=f"op{number}", controller="node-compactor", holder="me", since=T0)


def drain(number: int, owners: int = 0, reason: str = "", ending: Ending = Ending.HANDED_OVER) -> Finished:
    marks = frozenset(owner_mark(f"{number}-{each}") for each in range(owners))
    node = f"ip-10-0-{number}.eu-west-1.compute.internal"
    return Finished(
        node=node,
        pool=f"pool-{number}",
        controller="node-compactor",
        ending=ending.value,
        at=T0 + number,
        reason=reason,
        displaced=marks,
    )


class Scene:
    """A Lease, its ledger and its history, and other people's annotations on it."""

    def __init__(self, api: Simulated) -> None:
        self.api = api
        connection: Any = Direct(api.store)
        self.ledger = Ledger(connection, namespace="ns")

    async def take(self, claim: Claim) -> Refusal | None:
        [answer] = await take(self.ledger, [ClaimRequest(claim, lambda *_: None)])
        return answer

    async def drop(self, node: str, op: str) -> None:
        await self.ledger.change(dropping([(node, op)]))

    async def add(self, finished: Finished) -> None:
        await self.ledger.change(adding(finished))

    async def history(self) -> PastDrains:
        return past_drains(await self.ledger.read())

    @property
    def notes(self) -> dict[str, str]:
        found: dict[str, str] = self.api.store.get("Lease", NAME, "ns")["metadata"]["annotations"]
        return found

    @property
    def claims(self) -> list[str]:
        return [each["node"] for each in json.loads(self.notes[CLAIMS_ANNOTATION])]

    def filled(self, left: int) -> None:
        """Have another tool fill the Lease until only *left* bytes are left."""

        def change(thing: dict[str, Any]) -> None:
            notes = thing["metadata"].setdefault("annotations", {})
            notes.pop("example.com/a", None)
            notes["example.com/a"] = "x" * (LIMIT - size(notes) - len("example.com/a") - left)

        self.api.store.modify("Lease", NAME, "ns", change)


def test_a_drain_ends_though_others_have_filled_the_lease() -> None:
    async def work(api: Simulated) -> None:
        scene = Scene(api)
        assert await scene.take(claim()) is None
        for number in range(20):
            await scene.add(drain(number, 12))
        scene.filled(40)
        await scene.add(drain(99, 12, reason="x" * 200))
        await scene.drop("n1", "op1")
        assert scene.claims == []
        assert size(scene.notes) <= LIMIT
        assert "example.com/a" in (await _read(scene)).problem

    virtually(work)


async def _read(scene: Scene) -> Ledger:
    await scene.ledger.read()
    return scene.ledger


def test_a_claim_takes_the_room_of_the_oldest_history() -> None:
    async def work(api: Simulated) -> None:
        scene = Scene(api)
        for number in range(20):
            await scene.add(drain(number, 12, ending=Ending.RESTORED))
        scene.filled(10)
        assert await scene.take(claim()) is None
        kept = [each.at - T0 for each in (await scene.history()).finished]
        assert scene.claims == ["n1"]
        assert 0 < len(kept) < 20
        assert kept == sorted(kept)
        assert kept[-1] == 19

    virtually(work)


def test_without_room_for_a_claim_nothing_is_claimed_and_it_is_said() -> None:
    async def work(api: Simulated) -> None:
        scene = Scene(api)
        assert await scene.take(claim()) is None
        await scene.add(drain(1, 3))
        scene.filled(10)
        history = size({name: text for name, text in scene.notes.items() if name.startswith("tightship.dev/")})
        assert history < 2 * RESERVED
        refusals = [await scene.take(claim(number)) for number in range(2, 8)]
        [*_, last] = refusals
        assert last is not None
        assert (last.reason, last.detail) == (Reason.BUDGET_EXHAUSTED, f"Lease ns/{NAME} has no room for another claim")
        assert "no drain begins" in (await _read(scene)).problem
        for name in scene.claims:
            await scene.drop(name, f"op{name[1:]}")
        assert scene.claims == []

    virtually(work)


def test_our_own_limits_fit_with_room_for_claims() -> None:
    """50 drains of 240 owners each, and savings in 100 pools, would be 336 kB."""

    async def work(api: Simulated) -> None:
        scene = Scene(api)
        active = tuple(Saving(T0 + each, 1, {"USD": 500_000}) for each in range(APART))
        savings = {f"pool-{each}-of-a-team-with-a-long-name": PoolSavings(T0 + each, active) for each in range(100)}
        drains = tuple(drain(number, 240, "🚢" * 300) for number in range(60))
        many = PastDrains(drains, savings=savings)
        await scene.ledger.change(remembering(lambda _: many))
        assert size(scene.notes) <= LIMIT - RESERVED
        found = await scene.history()
        assert [each.node for each in found.finished] == [each.node for each in drains[-KEPT:]]
        assert all(each.displaced is None and len(each.reason.encode()) <= 200 for each in found.finished)
        assert all(set(each.reason) == {"🚢"} for each in found.finished)
        # What did not fit is not written again with each pass.
        version = api.store.get("Lease", NAME, "ns")["metadata"]["resourceVersion"]
        await scene.ledger.change(remembering(lambda _: many))
        assert api.store.get("Lease", NAME, "ns")["metadata"]["resourceVersion"] == version
        for number in range(80):
            assert await scene.take(claim(number)) is None

    virtually(work)


def test_a_lease_that_is_refused_as_too_long_below_the_limit_loses_its_history_and_not_the_drain() -> None:
    async def work(api: Simulated) -> None:
        scene = Scene(api)
        connection: Any = scene.ledger.store._connection
        assert await scene.take(claim()) is None
        await scene.add(drain(1, 3))
        connection.link.once.extend([422])
        await scene.drop("n1", "op1")
        assert scene.claims == []
        assert HISTORY_ANNOTATION not in scene.notes
        connection.link.once.extend([422])
        await scene.add(drain(2, 3))
        assert HISTORY_ANNOTATION not in scene.notes
        await scene.add(drain(3, 3))
        assert HISTORY_ANNOTATION in scene.notes

    virtually(work)


def test_what_ended_while_nobody_could_note_it_does_not_hold_its_claim() -> None:
    async def work(api: Simulated) -> None:
        scene = Scene(api)
        await scene.ledger.change(catching_up(claim(), None, T0 + 5))
        [found] = (await scene.history()).finished
        assert (found.node, found.ending, found.began) == ("n1", Ending.NODE_GONE.value, T0)

    virtually(work)


@pytest.mark.parametrize("text", ["", "7", "{", '"x"', "[" * 100_000, '{"a":' * 100_000])
def test_history_that_nobody_can_read_gives_way_as_a_whole(text: str) -> None:
    notes = {HISTORY_ANNOTATION: text, "example.com/a": "x" * (LIMIT - 20)}
    assert fitted(notes) == {"example.com/a": notes["example.com/a"]}


@pytest.mark.parametrize("over", [0, 1, 10, 100, 1000, 5000])
def test_no_more_gives_way_than_has_to_and_savings_first(over: int) -> None:
    savings = {f"p{each}": {"seen": "2026-01-01T00:00:00Z"} for each in range(100)}
    written = msgspec.json.encode
    notes = {SAVINGS_ANNOTATION: written(savings).decode(), HISTORY_ANNOTATION: written([{"n": "é"}] * 300).decode()}
    notes["example.com/a"] = "x" * (LIMIT - size(notes) - len("example.com/a") + over)
    found = fitted(notes)
    assert LIMIT - 100 < size(found) <= LIMIT
    kept = list(json.loads(found.get(SAVINGS_ANNOTATION, "{}")))
    assert kept == list(savings)[len(savings) - len(kept) :]
    if kept:
        assert found[HISTORY_ANNOTATION] == notes[HISTORY_ANNOTATION]
    if not over:
        assert found == notes


def test_a_lease_with_room_is_no_problem() -> None:
    assert problem_of_room(Lease(namespace="ns", name=NAME, annotations={"a": "x" * 1000})) == ""
