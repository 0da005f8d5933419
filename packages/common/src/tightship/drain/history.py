"""Drains that ended lately, so that cool-downs outlive a restart: a second annotation on the Lease of the claims.

Kept short, and needed for pace only: a list that somebody broke counts as empty, and the next drain writes a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from tightship.drain.claims import CLAIMS_LEASE, REQUEST_TIMEOUT
from tightship.drain_record import Finished
from tightship.kube.connection import Connection
from tightship.kube.errors import Conflict
from tightship.kube.leases import Lease, LeaseStore, micro_time

HISTORY_ANNOTATION = "tightship.dev/finished-drains"

KEPT = 50
"""Drains kept, the newest first to be written and the oldest first to go: about 10 kB."""

_TRIES = 8


class _Wire(Struct, omit_defaults=True):
    node: str
    controller: str
    ending: str
    at: str
    pool: str = ""
    reason: str = ""


class DrainHistory:
    """The drains that ended lately, of all controllers that share the Lease *name* in *namespace*."""

    def __init__(self, connection: Connection, *, namespace: str, name: str = CLAIMS_LEASE) -> None:
        self._store = LeaseStore(connection, namespace, name)

    async def read(self) -> tuple[Finished, ...]:
        """Return what ended lately, the oldest first. Raises :class:`~tightship.kube.errors.KubeError`."""
        return _decode(await self._store.get(REQUEST_TIMEOUT))

    async def add(self, finished: Finished) -> None:
        """Add *finished*. Raises :class:`~tightship.kube.errors.KubeError`, the last conflict included."""
        for attempt in range(_TRIES):
            lease = await self._store.get(REQUEST_TIMEOUT)
            kept = [*_decode(lease), finished][-KEPT:]
            base = lease or Lease(namespace=self._store.namespace, name=self._store.name)
            value = msgspec.json.encode([_encode(each) for each in kept]).decode()
            stamp = micro_time(int(finished.at * 1_000_000))
            changed = msgspec.structs.replace(
                base, annotations={**base.annotations, HISTORY_ANNOTATION: value}, renewed=stamp
            )
            try:
                await (self._store.replace if lease else self._store.create)(changed, REQUEST_TIMEOUT)
            except Conflict:
                if attempt == _TRIES - 1:
                    raise
            else:
                return


def _encode(finished: Finished) -> _Wire:
    at = datetime.fromtimestamp(finished.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return _Wire(
        node=finished.node,
        controller=finished.controller,
        ending=finished.ending,
        at=at,
        pool=finished.pool,
        reason=finished.reason[:200],
    )


def _decode(lease: Lease | None) -> tuple[Finished, ...]:
    value = lease.annotations.get(HISTORY_ANNOTATION) if lease is not None else None
    if value is None:
        return ()
    try:
        return tuple(_finished(each) for each in msgspec.json.decode(value, type=list[_Wire]))
    except (msgspec.DecodeError, ValueError):
        return ()


def _finished(wire: _Wire) -> Finished:
    at = datetime.fromisoformat(wire.at)
    if at.tzinfo is None:
        raise ValueError(f"{wire.at!r} is not an RFC 3339 time")
    return Finished(wire.node, wire.pool, wire.controller, wire.ending, at.timestamp(), wire.reason)


__all__: Sequence[str] = ("HISTORY_ANNOTATION", "KEPT", "DrainHistory")
