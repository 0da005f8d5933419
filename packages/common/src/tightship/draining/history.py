"""Recent drains, what pools have learned from them, and what they saved: four more annotations on the claims' Lease.

So pauses and savings survive a restart. Of what is decided, only the pace of drains depends on the history, so an
unreadable history counts as empty, and the next drain writes a new one. Claims go first where room is short
(:mod:`tightship.draining.lease_room`). A drain must not wait for its history: the ledger drops all of it if the API
server refuses the Lease as too long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from tightship.draining.begun import begun_in
from tightship.draining.claims import Claim
from tightship.draining.lease_room import (
    ADDITIONS_ANNOTATION,
    HISTORY_ANNOTATION,
    RESERVED,
    SAVINGS_ANNOTATION,
    fitted,
)
from tightship.draining.ledger import Edit
from tightship.kube.leases import Lease
from tightship.objects.drain_record import (
    Addition,
    DrainRecord,
    Ending,
    Finished,
    PastDrains,
    Phase,
    PoolSavings,
)
from tightship.objects.times import recorded_time, rfc3339_ms, with_times
from tightship.objects.unreadable import UNREADABLE
from tightship.planning.savings import ended

KEPT = 50
"""Drains kept, the newest: about 10 kB."""

POOLS_KEPT = 100
"""Pools kept: those with the latest additions, and those with the latest savings, about 1 kB each."""

MOST_DISPLACED = 100
"""Controllers of evicted pods that are kept of a drain; of more than these it counts as unknown whose pods went."""

_LONGEST_REASON = 200
_TIMES = frozenset({"at", "began", "regrettedAt", "seen"})

T = TypeVar("T")


def past_drains(lease: Lease) -> PastDrains:
    """Return the whole history in *lease*."""
    notes = lease.annotations
    return PastDrains(
        tuple(_decoded(notes.get(HISTORY_ANNOTATION, "[]"), list[Finished], [])),
        _decoded(notes.get(ADDITIONS_ANNOTATION, "{}"), dict[str, Addition], {}),
        _decoded(notes.get(SAVINGS_ANNOTATION, "{}"), dict[str, PoolSavings], {}),
        begun_in(notes),
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
    drain = Finished(
        node=claim.node,
        controller=claim.controller,
        ending=ending.value,
        at=at,
        pool=claim.pool,
        reason=reason,
        began=claim.since,
    )

    def add(history: PastDrains) -> PastDrains:
        known = any(each.node == claim.node and each.at >= claim.since for each in history.finished)
        return history if known else ended(history, drain)

    return remembering(add)


def _encode(history: PastDrains) -> dict[str, str]:
    drains = [_drain(each) for each in history.finished[-KEPT:]]
    kept = sorted(history.savings.items(), key=lambda each: (each[1].seen, each[0]))[-POOLS_KEPT:]
    books = _plain({pool: msgspec.structs.replace(each, seconds=round(each.seconds, 3)) for pool, each in kept})
    newest = sorted(history.additions.items(), key=lambda each: (max(each[1].at, each[1].regretted_at), each[0]))
    found = {HISTORY_ANNOTATION: drains, ADDITIONS_ANNOTATION: _plain(dict(newest[-POOLS_KEPT:]))}
    if books:
        found[SAVINGS_ANNOTATION] = books
    return {name: msgspec.json.encode(value).decode() for name, value in found.items()}


def _plain(value: object) -> Any:
    return with_times(msgspec.to_builtins(value), _TIMES, rfc3339_ms)


def _drain(finished: Finished) -> dict[str, object]:
    reason = finished.reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
    many = finished.displaced is not None and len(finished.displaced) > MOST_DISPLACED
    displaced = None if many else finished.displaced
    plain: dict[str, object] = _plain(msgspec.structs.replace(finished, reason=reason, displaced=displaced))
    return plain if displaced is None else {**plain, "displaced": sorted(displaced)}


def _decoded(value: str, of: type[T], empty: T) -> T:
    try:
        return msgspec.convert(with_times(msgspec.json.decode(value), _TIMES, recorded_time), of)
    except (*UNREADABLE, ValueError):
        return empty
