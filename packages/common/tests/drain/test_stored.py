"""What drains store on nodes and on the Lease: to the byte, since other versions read it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tightship.draining.claims import Claim, claims_in, past_drains, remembering
from tightship.kube.leases import Lease
from tightship.objects.drain_record import (
    Addition,
    DrainRecord,
    Finished,
    PastDrains,
    Phase,
    PoolSavings,
    Saving,
    decode_record,
    encode_record,
)

T = 1_790_000_000.25

PAST = PastDrains(
    (
        Finished(
            node="n1",
            controller="c",
            ending="handed_over",
            at=T + 60,
            pool="p",
            reason="why",
            began=T,
            displaced=frozenset({"b", "a"}),
            price=(5, "USD"),
        ),
        Finished(node="n2", controller="c", ending="restored", at=T),
    ),
    {"p": Addition(at=T, node="n3"), "q": Addition(at=T, node="n4", level=2, regretted="n3", regretted_at=T)},
    {"seen": PoolSavings(T, (Saving(T, 1, {"USD": 5}),), 1.235, {"USD": 7})},
)

STORED = {
    "tightship.dev/finished-drains": '[{"node":"n1","controller":"c","ending":"handed_over",'
    '"at":"2026-09-21T14:14:20.250Z","pool":"p","reason":"why","began":"2026-09-21T14:13:20.250Z",'
    '"displaced":["a","b"],"price":[5,"USD"]},'
    '{"node":"n2","controller":"c","ending":"restored","at":"2026-09-21T14:13:20.250Z"}]',
    "tightship.dev/additions": '{"p":{"at":"2026-09-21T14:13:20.250Z","node":"n3"},'
    '"q":{"at":"2026-09-21T14:13:20.250Z","node":"n4","level":2,"regrettedAt":"2026-09-21T14:13:20.250Z",'
    '"regretted":"n3"}}',
    "tightship.dev/savings": '{"seen":{"seen":"2026-09-21T14:13:20.250Z",'
    '"standing":[{"at":"2026-09-21T14:13:20.250Z","nodes":1,"hourly":{"USD":5}}],"seconds":1.235,"micros":{"USD":7}}}',
}

RECORD = DrainRecord(
    phase=Phase.EVICTING,
    controller="c",
    op="o",
    since={"Claimed": T},
    deadline=T + 5,
    prior_unschedulable=True,
    next_try=T,
)
RECORDED = (
    '{"v":1,"phase":"Evicting","controller":"c","op":"o","since":{"Claimed":"2026-09-21T14:13:20.250Z"},'
    '"deadline":"2026-09-21T14:13:25.250Z","priorUnschedulable":true,"nextTry":"2026-09-21T14:13:20.250Z"}'
)


def lease(notes: Mapping[str, str]) -> Lease:
    return Lease(namespace="ns", name="claims", annotations=notes)


def test_the_history_is_stored_and_read() -> None:
    assert remembering(lambda _: PAST)(lease({})) == STORED
    assert past_drains(lease(STORED)) == PAST


@pytest.mark.parametrize("text", ['[{"node":"n","controller":"c","ending":"e","at":1}]', '[{"node":"n"}]', "7", ""])
def test_a_history_that_somebody_spoiled_counts_as_empty(text: str) -> None:
    assert past_drains(lease({"tightship.dev/finished-drains": text})).finished == ()


def test_a_drain_is_recorded_and_read() -> None:
    assert encode_record(RECORD) == RECORDED
    assert decode_record(RECORDED) == RECORD
    nulls = RECORDED.replace('"deadline":"2026-09-21T14:13:25.250Z"', '"deadline":null,"future":{"at":[1]}')
    assert decode_record(nulls).deadline is None


def test_a_claim_is_read_as_it_was_written() -> None:
    text = '[{"node":"n1","pool":"p","op":"o","controller":"c","holder":"h","since":"2026-09-21T14:13:20Z"}]'
    [read] = claims_in(lease({"tightship.dev/claims": text}))
    assert read == Claim(node="n1", op="o", controller="c", holder="h", pool="p", since=T - 0.25)
