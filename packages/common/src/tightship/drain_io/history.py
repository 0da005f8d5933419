"""Recent drains, what pools have learned from them, and what they saved: four more annotations on the claims' Lease.

So pauses and savings survive a restart. Of what is decided, only the pace of drains depends on the history, so an
unreadable history counts as empty, and the next drain writes a new one. Claims go first where room is short
(:mod:`tightship.drain_io.lease_room`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Struct

from tightship.core.api_errors import Conflict, Invalid
from tightship.core.drain_record import (
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
from tightship.core.times import recorded_time, rfc3339_ms
from tightship.core.unreadable import UNREADABLE
from tightship.drain_io.claims import CLAIMS_LEASE, READ_TIMEOUT, Claim
from tightship.drain_io.lease_room import (
    ADDITIONS_ANNOTATION,
    HISTORY_ANNOTATION,
    LIMIT,
    REGRETS_ANNOTATION,
    RESERVED,
    SAVINGS_ANNOTATION,
    fitted,
    problem_of_room,
)
from tightship.kube.connection import WRITE_TIMEOUT, Connection
from tightship.kube.leases import Lease, LeaseStore, micro_time
from tightship.planning.savings import ended

KEPT = 50
"""Drains kept, the newest: about 10 kB."""

POOLS_KEPT = 100
"""Pools kept: those with the latest regrets, and those with the latest savings, about 1 kB each."""

MOST_DISPLACED = 100
"""Controllers of evicted pods that are kept of a drain; of more than these it counts as unknown whose pods went."""

_LONGEST_REASON = 200
_TRIES = 8


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


class DrainHistory:
    """The recent drains of all controllers that share the Lease *name* in *namespace*."""

    def __init__(self, connection: Connection, *, namespace: str, name: str = CLAIMS_LEASE) -> None:
        self._store = LeaseStore(connection, namespace, name)
        self.problem = ""
        """A sentence about a Lease that was full when it was last read, empty otherwise."""

    async def read(self) -> tuple[Finished, ...]:
        """Return the recent drains, the oldest first. Raises :class:`~tightship.core.api_errors.KubeError`."""
        return (await self.all()).finished

    async def all(self) -> PastDrains:
        """Return the whole history. Raises :class:`~tightship.core.api_errors.KubeError`."""
        return _decode(await self._read())

    async def _read(self) -> Lease:
        lease = await self._store.get(READ_TIMEOUT)
        self.problem = problem_of_room(lease)
        return lease

    async def add(self, finished: Finished) -> None:
        """Add *finished*. Raises :class:`~tightship.core.api_errors.KubeError`, the last conflict included."""
        await self.change(lambda history: ended(history, finished), finished.at)

    async def catch_up(self, claim: Claim, record: DrainRecord | None, now: float) -> None:
        """Add the drain of *claim*, which ended while nobody could add it, so that pauses survive a restart.

        *record* is the record left on the node, ``None`` if the node is gone. The drain then ended *now* at the latest.
        Raises as :meth:`add` does.
        """
        ending, reason, at = Ending.NODE_GONE, "", now
        if record is not None:
            ended_at = record.entered(Phase.BACKOFF)
            if ended_at is None or ended_at < claim.since:
                return  # another drain left this note; the claimed one never reached the node
            ending, reason, at = Ending.RESTORED, record.reason, ended_at
        if not any(each.node == claim.node and each.at >= claim.since for each in await self.read()):
            drain = Finished(claim.node, claim.pool, claim.controller, ending.value, at, reason, began=claim.since)
            await self.add(drain)

    async def change(self, edit: Callable[[PastDrains], PastDrains], now: float) -> PastDrains:
        """Write what *edit* makes of the history at *now*, if that differs, and return it. Raises as :meth:`add` does.

        Each try calls *edit* again. A drain must not wait for its history: if the API server refuses the Lease even
        without any history, nothing is written.
        """
        reserved = RESERVED
        for attempt in range(_TRIES):
            lease = await self._read()
            known = _decode(lease)
            wanted = edit(known)
            annotations = fitted({**lease.annotations, **_encode(wanted)}, reserved)
            # What did not fit before is not written again and again.
            if wanted == known or annotations == lease.annotations:
                return known
            stamp = micro_time(int(now * 1_000_000))
            changed = msgspec.structs.replace(lease, annotations=annotations, renewed=stamp)
            try:
                await self._store.write(changed, WRITE_TIMEOUT)
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
            except Invalid:
                if reserved == LIMIT or attempt == _TRIES - 1:
                    return known
                reserved = LIMIT
            else:
                return wanted
        raise AssertionError("unreachable")  # pragma: no cover


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


def _decode(lease: Lease) -> PastDrains:
    notes = lease.annotations
    return PastDrains(
        _drains(notes.get(HISTORY_ANNOTATION, "[]")),
        _regrets(notes.get(REGRETS_ANNOTATION, "{}")),
        _books(notes.get(SAVINGS_ANNOTATION, "{}")),
        _additions(notes.get(ADDITIONS_ANNOTATION, "{}")),
    )


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
