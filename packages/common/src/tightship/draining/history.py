"""Recent drains, what pools have learned from them, and what they saved: four more annotations on the claims' Lease.

So pauses and savings survive a restart. Of what is decided, only the pace of drains depends on the history, so an
unreadable history counts as empty, and the next drain writes a new one. Claims go first where room is short
(:mod:`tightship.draining.lease_room`). A drain must not wait for its history: the ledger drops all of it if the API
server refuses the Lease as too long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Struct

from tightship.draining.claims import Claim
from tightship.draining.lease_room import (
    ADDITIONS_ANNOTATION,
    HISTORY_ANNOTATION,
    REGRETS_ANNOTATION,
    RESERVED,
    SAVINGS_ANNOTATION,
    fitted,
)
from tightship.draining.ledger import Edit
from tightship.kube.leases import Lease
from tightship.objects.drain_record import (
    UNPRICED,
    Books,
    DrainRecord,
    Ending,
    Finished,
    PastDrains,
    Phase,
    Price,
    Regret,
    Saving,
)
from tightship.objects.times import recorded_time, rfc3339_ms
from tightship.objects.unreadable import UNREADABLE
from tightship.planning.savings import ended

KEPT = 50
"""Drains kept, the newest: about 10 kB."""

POOLS_KEPT = 100
"""Pools kept: those with the latest regrets, and those with the latest savings, about 1 kB each."""

MOST_DISPLACED = 100
"""Controllers of evicted pods that are kept of a drain; of more than these it counts as unknown whose pods went."""

_LONGEST_REASON = 200


class _Wire(Struct, omit_defaults=True):
    node: str
    controller: str
    ending: str
    at: str
    pool: str = ""
    reason: str = ""
    began: str = ""
    came: str = ""
    stayed: bool = False
    displaced: list[str] | None = None
    price: Price = UNPRICED


class _RegretWire(Struct):
    level: int
    at: str
    node: str


_Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _SavingWire(Struct):
    at: str
    nodes: _Amount
    hourly: dict[str, _Amount] = {}


class _BooksWire(Struct):
    seen: str
    standing: list[_SavingWire] = []
    seconds: float = 0.0
    micros: dict[str, _Amount] = {}


def past_drains(lease: Lease) -> PastDrains:
    """Return the whole history in *lease*."""
    notes = lease.annotations
    return PastDrains(
        _drains(notes.get(HISTORY_ANNOTATION, "[]")),
        _regrets(notes.get(REGRETS_ANNOTATION, "{}")),
        _books(notes.get(SAVINGS_ANNOTATION, "{}")),
        _additions(notes.get(ADDITIONS_ANNOTATION, "{}")),
    )


def remembering(change: Callable[[PastDrains], PastDrains]) -> Edit:
    """Return the edit that makes the history what *change* makes of it; each try calls *change* again."""

    def edit(lease: Lease) -> Mapping[str, str] | None:
        known = past_drains(lease)
        wanted = change(known)
        if wanted == known:
            return None
        annotations = fitted({**lease.annotations, **_encode(wanted)}, RESERVED)
        # What did not fit before is not written again and again.
        return annotations if annotations != lease.annotations else None

    return edit


def adding(finished: Finished) -> Edit:
    """Return the edit that adds *finished*."""
    return remembering(lambda history: ended(history, finished))


def catching_up(claim: Claim, record: DrainRecord | None, now: float) -> Edit:
    """Return the edit that adds the drain of *claim*, which ended while nobody could add it, so that pauses survive a
    restart.

    *record* is the record left on the node, ``None`` if the node is gone. The drain then ended *now* at the latest.
    """
    ending, reason, at = Ending.NODE_GONE, "", now
    if record is not None:
        ended_at = record.entered(Phase.BACKOFF)
        if ended_at is None or ended_at < claim.since:
            return lambda _: None  # another drain left this note; the claimed one never reached the node
        ending, reason, at = Ending.RESTORED, record.reason, ended_at
    drain = Finished(claim.node, claim.pool, claim.controller, ending.value, at, reason, began=claim.since)

    def add(history: PastDrains) -> PastDrains:
        known = any(each.node == claim.node and each.at >= claim.since for each in history.finished)
        return history if known else ended(history, drain)

    return remembering(add)


def _encode(history: PastDrains) -> dict[str, str]:
    drains = [_drain(each) for each in history.finished[-KEPT:]]
    latest = sorted(history.regrets.items(), key=lambda each: (each[1].at, each[0]))[-POOLS_KEPT:]
    regrets = {pool: _RegretWire(each.level, rfc3339_ms(each.at), each.node) for pool, each in latest}
    kept = sorted(history.books.items(), key=lambda each: (each[1].seen, each[0]))[-POOLS_KEPT:]
    books = {
        pool: _BooksWire(
            rfc3339_ms(each.seen),
            [_SavingWire(rfc3339_ms(one.at), one.nodes, dict(one.hourly)) for one in each.standing],
            round(each.seconds, 3),
            dict(each.micros),
        )
        for pool, each in kept
    }
    newest = sorted(history.additions.items(), key=lambda each: each[1])[-POOLS_KEPT:]
    additions = {pool: (rfc3339_ms(at), node) for pool, (at, node) in newest}
    found = {HISTORY_ANNOTATION: drains, REGRETS_ANNOTATION: regrets, ADDITIONS_ANNOTATION: additions}
    if books:
        found[SAVINGS_ANNOTATION] = books
    return {name: msgspec.json.encode(value).decode() for name, value in found.items()}


def _drain(finished: Finished) -> _Wire:
    return _Wire(
        **{
            **msgspec.structs.asdict(finished),
            "at": rfc3339_ms(finished.at),
            "reason": finished.reason.encode()[:_LONGEST_REASON].decode(errors="ignore"),
            "began": "" if finished.began is None else rfc3339_ms(finished.began),
            "displaced": _few(finished.displaced),
        }
    )


def _few(displaced: frozenset[str] | None) -> list[str] | None:
    return None if displaced is None or len(displaced) > MOST_DISPLACED else sorted(displaced)


def _drains(value: str) -> tuple[Finished, ...]:
    try:
        return tuple(_finished(each) for each in msgspec.json.decode(value, type=list[_Wire]))
    except (*UNREADABLE, ValueError):
        return ()


def _regrets(value: str) -> Mapping[str, Regret]:
    try:
        found = msgspec.json.decode(value, type=dict[str, _RegretWire])
        return {pool: Regret(max(1, each.level), recorded_time(each.at), each.node) for pool, each in found.items()}
    except (*UNREADABLE, ValueError):
        return {}


def _additions(value: str) -> Mapping[str, tuple[float, str]]:
    try:
        found = msgspec.json.decode(value, type=dict[str, tuple[str, str]])
        return {pool: (recorded_time(at), node) for pool, (at, node) in found.items()}
    except (*UNREADABLE, ValueError):
        return {}


def _books(value: str) -> Mapping[str, Books]:
    try:
        found = msgspec.json.decode(value, type=dict[str, _BooksWire])
        return {
            pool: Books(
                recorded_time(each.seen),
                tuple(Saving(recorded_time(one.at), max(1, one.nodes), one.hourly) for one in each.standing),
                each.seconds,
                each.micros,
            )
            for pool, each in found.items()
        }
    except (*UNREADABLE, ValueError):
        return {}


def _finished(wire: _Wire) -> Finished:
    return Finished(
        **{
            **msgspec.structs.asdict(wire),
            "at": recorded_time(wire.at),
            "began": recorded_time(wire.began) if wire.began else None,
            "displaced": None if wire.displaced is None else frozenset(wire.displaced),
        }
    )
