"""Recent drains, and what pools have learned from them, in two more annotations on the Lease of the claims.

So pauses survive a restart. Only the pace of drains depends on the history, so an unreadable history counts as empty,
and the next drain writes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from tightship.core.api_errors import Conflict
from tightship.core.drain_record import Finished, PastDrains, Regret
from tightship.core.times import recorded_time, rfc3339_ms
from tightship.drain_io.claims import CLAIMS_LEASE, REQUEST_TIMEOUT
from tightship.kube.connection import Connection
from tightship.kube.leases import Lease, LeaseStore, micro_time

HISTORY_ANNOTATION = "tightship.dev/finished-drains"
REGRETS_ANNOTATION = "tightship.dev/regrets"

KEPT = 50
"""Drains kept, the newest: about 10 kB."""

POOLS_KEPT = 100
"""Pools kept, those with the latest regrets."""

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


class _RegretWire(Struct):
    level: int
    at: str
    node: str


class DrainHistory:
    """The recent drains of all controllers that share the Lease *name* in *namespace*."""

    def __init__(self, connection: Connection, *, namespace: str, name: str = CLAIMS_LEASE) -> None:
        self._store = LeaseStore(connection, namespace, name)

    async def read(self) -> tuple[Finished, ...]:
        """Return the recent drains, the oldest first. Raises :class:`~tightship.core.api_errors.KubeError`."""
        return (await self.all()).finished

    async def all(self) -> PastDrains:
        """Return the whole history. Raises :class:`~tightship.core.api_errors.KubeError`."""
        return _decode(await self._store.get(REQUEST_TIMEOUT))

    async def add(self, finished: Finished) -> None:
        """Add *finished*. Raises :class:`~tightship.core.api_errors.KubeError`, the last conflict included."""

        def edit(history: PastDrains) -> PastDrains:
            return msgspec.structs.replace(history, finished=(*history.finished, finished))

        await self.change(edit, finished.at)

    async def change(self, edit: Callable[[PastDrains], PastDrains], now: float) -> PastDrains:
        """Write what *edit* makes of the history at *now*, if that differs, and return it. Raises as :meth:`add` does.

        Each try calls *edit* again.
        """
        for attempt in range(_TRIES):
            lease = await self._store.get(REQUEST_TIMEOUT)
            known = _decode(lease)
            wanted = edit(known)
            if wanted == known:
                return known
            annotations = {**lease.annotations, **_encode(wanted)}
            stamp = micro_time(int(now * 1_000_000))
            changed = msgspec.structs.replace(lease, annotations=annotations, renewed=stamp)
            try:
                await self._store.write(changed, REQUEST_TIMEOUT)
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
            else:
                return wanted
        raise AssertionError("unreachable")  # pragma: no cover


def _encode(history: PastDrains) -> dict[str, str]:
    drains = [_drain(each) for each in history.finished[-KEPT:]]
    latest = sorted(history.regrets.items(), key=lambda each: (each[1].at, each[0]))[-POOLS_KEPT:]
    regrets = {pool: _RegretWire(each.level, rfc3339_ms(each.at), each.node) for pool, each in latest}
    found = {HISTORY_ANNOTATION: drains, REGRETS_ANNOTATION: regrets}
    return {name: msgspec.json.encode(value).decode() for name, value in found.items()}


def _drain(finished: Finished) -> _Wire:
    return _Wire(
        **{
            **msgspec.structs.asdict(finished),
            "at": rfc3339_ms(finished.at),
            "reason": finished.reason[:200],
            "began": "" if finished.began is None else rfc3339_ms(finished.began),
            "displaced": None if finished.displaced is None else sorted(finished.displaced),
        }
    )


def _decode(lease: Lease) -> PastDrains:
    notes = lease.annotations
    return PastDrains(_drains(notes.get(HISTORY_ANNOTATION, "[]")), _regrets(notes.get(REGRETS_ANNOTATION, "{}")))


def _drains(value: str) -> tuple[Finished, ...]:
    try:
        return tuple(_finished(each) for each in msgspec.json.decode(value, type=list[_Wire]))
    except (msgspec.DecodeError, ValueError):
        return ()


def _regrets(value: str) -> Mapping[str, Regret]:
    try:
        found = msgspec.json.decode(value, type=dict[str, _RegretWire])
        return {pool: Regret(max(1, each.level), recorded_time(each.at), each.node) for pool, each in found.items()}
    except (msgspec.DecodeError, ValueError):
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
