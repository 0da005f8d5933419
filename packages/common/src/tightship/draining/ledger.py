"""One Lease for all that controllers share about drains: claims, history, what pools have learned, and installations.

Each is an annotation of its own. All changes of one process go through one :class:`Ledger`: those that wait at the same
time are one write, over the version that they judged. Of several processes that write at once one succeeds, and the
others judge again.

A write whose answer got lost may still arrive while the version that it was sent over is current. Until another write
has made that version outdated, nobody is told that there was nothing to change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import msgspec

from tightship.draining.lease_room import LIMIT, fitted, problem_of_room
from tightship.kube.connection import WRITE_TIMEOUT, Connection
from tightship.kube.host import monotonic, wall
from tightship.kube.leases import Lease, LeaseStore, micro_time
from tightship.kube.pacing import RetryPolicy, transient
from tightship.objects.api_errors import Conflict, Invalid, KubeError

CLAIMS_LEASE = "tightship-claims"
CLAIMS_NAMESPACE = "kube-system"
"""The default namespace of the Lease, which every cluster has."""

READ_TIMEOUT = 10.0
"""Seconds for each read."""

ATTEMPTS = 12
"""Most tries of a change, each a read and a write. Their waits add up to at most half a minute."""

LAST_TRY = 90.0
"""Seconds after which no further try begins: a pass must not hang on a Lease whose admission hangs."""

RETRY = RetryPolicy(attempts=ATTEMPTS, first=0.05, longest=4.0, jitter=0.5, longest_retry_after=10.0, give_up=LAST_TRY)

KNOWN_FOR = 2.0
"""Seconds for which a change goes by the Lease as it was last read or written here, instead of reading it again."""

Edit = Callable[[Lease], Mapping[str, str] | None]
"""Returns the annotations that a Lease should have, ``None`` to leave it as it is. Called once for each try."""


class LedgerContended(KubeError):  # noqa: N818 - named as the errors of tightship.kube
    """Others changed the Lease between every read and the following write. Try again later."""

    def __init__(self, store: LeaseStore, attempts: int) -> None:
        super().__init__(f"{store} was changed by others during each of {attempts} attempts to update it")


class _Change:
    """Edits that wait to be written together. *changed* says whether any of them changed the Lease in this try."""

    def __init__(self, edits: tuple[Edit, ...]) -> None:
        self._edits = edits
        self.changed = self.done = False
        self.error: Exception | None = None

    def apply(self, lease: Lease) -> Lease:
        """Return *lease* with all edits. An edit that raises leaves the Lease to the others, and fails this change."""
        self.changed, self.error = False, None
        for edit in self._edits:
            try:
                annotations = edit(lease)
            except Exception as error:  # raised where the change was asked for
                self.error = error
                continue
            if annotations is not None:
                self.changed = True
                lease = msgspec.structs.replace(lease, annotations=annotations)
        return lease


class Ledger:
    """The Lease *name* in *namespace*, which must be the same for all controllers.

    The first change creates the Lease. All tasks of one event loop may share a ledger.
    """

    def __init__(self, connection: Connection, *, namespace: str, name: str = CLAIMS_LEASE) -> None:
        self.store = LeaseStore(connection, namespace, name)
        self.problem = ""
        """A sentence about a Lease that was full when it was last seen, empty otherwise."""
        self._lock = asyncio.Lock()
        self._waiting: list[_Change] = []
        # Versions over which a write was sent without an answer.
        self._unsettled: set[str] = set()
        self._known: tuple[Lease, float] | None = None

    async def read(self) -> Lease:
        """Return the Lease as it is now. Raises :class:`~tightship.objects.api_errors.KubeError`. Never retries."""
        return self._seen(await self.store.get(READ_TIMEOUT))

    async def recent(self) -> Lease:
        """Return the Lease as it was at most :data:`KNOWN_FOR` seconds ago. Raises as :meth:`read` does."""
        return self._remembered() or await self.read()

    async def change(self, *edits: Edit, linger: float = 0.0) -> None:
        """Write what all *edits* make of the Lease, one after the other, in one write.

        The write waits *linger* seconds for others to join, or for another write that takes the edits along.

        If an edit raises, the others are written, and this method raises the same. Raises :class:`LedgerContended`, or
        the last :class:`~tightship.objects.api_errors.KubeError` of reads and writes. After an error without an answer
        the write may or may not have succeeded; the caller may call again.
        """
        change = _Change(edits)
        self._waiting.append(change)
        try:
            if linger:
                await asyncio.sleep(linger)
            async with self._lock:
                if not change.done:
                    await self._commit()
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(change)
        if change.error is not None:
            raise change.error

    async def _commit(self) -> None:
        """Read, edit and write until the write succeeds: all changes that wait at that time."""
        reserved = 0
        tried: tuple[_Change, ...] = ()

        async def once() -> None:
            nonlocal reserved, tried
            tried = tuple(self._waiting)
            try:
                await self._try(reserved)
            except Invalid:
                if reserved:
                    raise
                # Perhaps too long by a limit that we don't know: without any history it is as short as can be.
                reserved = LIMIT
                await self._try(reserved)

        try:
            await RETRY.retrying(lambda error: isinstance(error, Conflict) or transient(error))(once)
        except KubeError as error:
            failure = LedgerContended(self.store, ATTEMPTS) if isinstance(error, Conflict) else error
            for each in tried:
                each.error = failure
            self._settle(tried)

    async def _try(self, reserved: int) -> None:
        remembered = self._remembered()
        lease = remembered or await self.read()
        wanted = self._edited(lease, reserved)
        if remembered is not None and not all(each.changed for each in self._waiting):
            # Only what is there now tells that there is nothing to change.
            lease = await self.read()
            wanted = self._edited(lease, reserved)
        version = lease.resource_version
        self._unsettled &= {version}
        if wanted != lease.annotations or version in self._unsettled:
            batch = tuple(self._waiting)
            self._unsettled.add(version)
            self._known = None
            self._seen(await self.store.write(_stamped(lease, wanted), WRITE_TIMEOUT))
            self._settle(batch)
        else:
            self._settle(tuple(self._waiting))

    def _edited(self, lease: Lease, reserved: int) -> Mapping[str, str]:
        before = lease.annotations
        for each in self._waiting:
            lease = each.apply(lease)
        return fitted(lease.annotations, reserved) if lease.annotations is not before else before

    def _settle(self, batch: tuple[_Change, ...]) -> None:
        for each in batch:
            each.done = True
            with contextlib.suppress(ValueError):
                self._waiting.remove(each)

    def _remembered(self) -> Lease | None:
        if self._known is None or monotonic() >= self._known[1] + KNOWN_FOR:
            return None
        return self._known[0]

    def _seen(self, lease: Lease) -> Lease:
        self.problem = problem_of_room(lease)
        self._known = lease, monotonic()
        return lease


def _stamped(lease: Lease, annotations: Mapping[str, str]) -> Lease:
    # A write that changes nothing keeps the version, so each write has another time.
    now = int(wall() * 1_000_000)
    stamp = micro_time(now if micro_time(now) != lease.renewed else now + 1)
    return msgspec.structs.replace(lease, annotations=annotations, renewed=stamp)
