"""The cluster-wide ledger of drain claims: which nodes are in drain now, by which replica of which controller.

One Lease object holds the list, so all controllers share one budget. To claim a node, a replica reads the list,
judges it, and writes it back with the version that it judged. Of several replicas that do so at once one succeeds, and
the others judge again.

A claim never expires. A replica that was stopped and wakes up must find that its claim still counts: otherwise its own
drain and one begun in its place would exceed the budget together. So before anybody drops a stranger's claim, they
must write to the node itself (the ``holder`` and ``epoch`` of its drain annotation, by compare-and-swap). The
stranger's next write then fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from tightship.core.api_errors import Conflict, Invalid, KubeError
from tightship.core.backoff import Backoff
from tightship.core.reasons import Reason, Refusal
from tightship.core.times import recorded_time, rfc3339
from tightship.core.unreadable import UNREADABLE
from tightship.drain_io.lease_room import CLAIMS_ANNOTATION, LIMIT, fitted, size
from tightship.kube.connection import WRITE_TIMEOUT, Connection, transient
from tightship.kube.host import monotonic, wall
from tightship.kube.leases import Lease, LeaseStore, micro_time

CLAIMS_LEASE = "tightship-claims"
CLAIMS_NAMESPACE = "kube-system"
"""The ledger's default namespace, which every cluster has."""

READ_TIMEOUT = 10.0
"""Seconds for each read."""

ATTEMPTS = 12
"""Most tries of a change, each a read and a write. Their waits add up to at most half a minute."""

LAST_TRY = 90.0
"""Seconds after which no further try begins: a pass must not hang on a Lease whose admission hangs."""

_FIRST_WAIT, _LONGEST_WAIT, _LONGEST_RETRY_AFTER = 0.05, 4.0, 10.0
_LONGEST_SHOWN = 300


class Claim(Struct, frozen=True, kw_only=True):
    """One drain under way: *holder*, a replica of *controller*, drains *node* of *pool* in operation *op*.

    *lease* is that of its installation. *since* is in seconds since 1970; the ledger keeps whole seconds.
    """

    node: str
    op: str
    controller: str
    holder: str
    pool: str = ""
    lease: str = ""
    since: float


Allows = Callable[[tuple[Claim, ...]], Refusal | None]


class ClaimsUnreadable(KubeError):  # noqa: N818 - named as the errors of tightship.kube
    """Somebody edited the ledger, and it is no longer a list of claims. No drain starts until they repair it."""

    def __init__(self, store: LeaseStore, value: str, problem: str) -> None:
        shown = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
        super().__init__(
            f"annotation {CLAIMS_ANNOTATION} of {store} is not a list of drain claims: {problem}; its value is "
            f"{shown!r}. To fix it, write the claims of the nodes that have an annotation tightship.dev/drain, or the "
            f"empty list if no node is being drained: kubectl -n {store.namespace} annotate --overwrite lease "
            f"{store.name} {CLAIMS_ANNOTATION}='[]'"
        )


class ClaimsContended(KubeError):  # noqa: N818
    """Others changed the ledger between every read and the following write. Try again later."""

    def __init__(self, store: LeaseStore, attempts: int) -> None:
        super().__init__(f"{store} was changed by others during each of {attempts} attempts to update it")


class _Wire(Struct, omit_defaults=True, kw_only=True):
    node: str
    pool: str = ""
    op: str
    controller: str
    holder: str
    lease: str = ""
    since: str


class _Entry(Struct, frozen=True):
    """A claim and its JSON, so that fields of a newer version survive a rewrite by this version."""

    claim: Claim
    raw: msgspec.Raw


_entries = msgspec.json.Decoder(list[msgspec.Raw])
_claims = msgspec.json.Decoder(_Wire)

_Edit = Callable[[Sequence[_Entry], Lease], Sequence[_Entry] | None]


class ClaimLedger:
    """The list of claims in the Lease *name* in *namespace*, which must be the same for all controllers.

    The first claim creates the Lease. A Lease without the annotation holds no claims. An unreadable annotation raises
    :class:`ClaimsUnreadable`, and never counts as empty. All tasks of one event loop may share a ledger.
    """

    def __init__(self, connection: Connection, *, namespace: str, name: str = CLAIMS_LEASE) -> None:
        self._store = LeaseStore(connection, namespace, name)
        self._lock = asyncio.Lock()
        # Versions over which a write was sent without an answer. It may still arrive while such a version is current.
        self._unsettled: set[str] = set()

    async def read(self) -> tuple[Claim, ...]:
        """Return all claims, the oldest first. Raises :class:`~tightship.core.api_errors.KubeError`. Never retries."""
        return tuple(each.claim for each in self._decode(await self._store.get(READ_TIMEOUT)))

    async def take(
        self,
        claim: Claim,
        allows: Allows,
        held: Callable[[], Iterable[Claim]] = tuple,
        beside: Callable[[Lease], Refusal | None] = lambda _: None,
    ) -> Refusal | None:
        """Add *claim* unless *allows* refuses; ``None`` means that the ledger holds the claim.

        *held* returns the claims whose drains the caller drives. If somebody has deleted the Lease, or etcd has lost
        its last writes, these claims still count, and are entered again beside *claim*. *beside* judges the rest of the
        Lease, which each write of the claim goes over.

        Each try calls *allows* with all claims, so it must have no side effects. It is not called if the ledger already
        holds this very claim (node and op), nor if another operation claims the node, which is a refusal. Raises
        :class:`ClaimsUnreadable`, :class:`ClaimsContended`, or the last :class:`~tightship.core.api_errors.KubeError`.
        After an error without an answer the claim may or may not exist, and the caller may call :meth:`take` or
        :meth:`drop` again.
        """
        if not claim.node or not claim.op:
            raise ValueError(f"a claim needs a node and an op: {claim}")
        refusal: Refusal | None = None
        taking = _Entry(claim, _encode(claim))

        def add(present: Sequence[_Entry], lease: Lease) -> Sequence[_Entry] | None:
            nonlocal refusal
            refusal = None
            for each in present:
                if each.claim.node == claim.node:
                    refusal = None if each.claim.op == claim.op else _taken(each.claim)
                    return None
            known = {each.claim.op for each in present}
            lost = (_Entry(each, _encode(each)) for each in held() if each.op not in known)
            present = (*present, *lost)
            refusal = beside(lease) or allows(tuple(each.claim for each in present))
            return [*present, taking] if refusal is None else None

        try:
            await self._change(add)
        except _NoRoomError:
            refusal = Refusal(Reason.BUDGET_EXHAUSTED, claim.node, f"{self._store} has no room for another claim")
        return refusal

    async def drop(self, node: str, op: str) -> None:
        """Remove the claim of *op* on *node*, if it exists. Raises as :meth:`take` does.

        Drop your own claim when its drain has ended, or a stranger's after a write to the node (see this module's
        text).
        """

        def remove(present: Sequence[_Entry], _: Lease) -> Sequence[_Entry] | None:
            kept = [each for each in present if (each.claim.node, each.claim.op) != (node, op)]
            return kept if len(kept) < len(present) else None

        await self._change(remove)

    async def _change(self, edit: _Edit) -> None:
        """Read, *edit* and write until the write succeeds; *edit* returns ``None`` if nothing has to change."""
        backoff = Backoff(_FIRST_WAIT, _LONGEST_WAIT)
        failure: KubeError | None = None
        reserved = 0
        async with self._lock:
            began = monotonic()
            for attempt in range(ATTEMPTS):
                if attempt and monotonic() >= began + LAST_TRY:
                    break
                if attempt:
                    asked = getattr(failure, "retry_after", None) or 0.0
                    await asyncio.sleep(max(backoff.next(), min(asked, _LONGEST_RETRY_AFTER)))
                try:
                    return await self._try(edit, reserved)
                except KubeError as error:
                    if isinstance(error, Invalid) and not reserved:
                        # Perhaps too long by a limit that we don't know: without any history it is as short as can be.
                        reserved = LIMIT
                    elif not (isinstance(error, Conflict) or transient(error)):
                        raise
                    failure = error
        assert failure is not None
        if isinstance(failure, Conflict):
            raise ClaimsContended(self._store, ATTEMPTS) from failure
        raise failure

    async def _try(self, edit: _Edit, reserved: int) -> None:
        lease = await self._store.get(READ_TIMEOUT)
        version = lease.resource_version
        present = self._decode(lease)
        self._unsettled &= {version}
        wanted = edit(present, lease)
        if wanted is None:
            if version not in self._unsettled:
                return
            # An earlier write of ours may still arrive and undo what we are about to report. Another write makes its
            # version outdated.
            wanted = present
        changed = _with(lease, wanted, reserved)
        if len(wanted) > len(present) and size(changed.annotations) > LIMIT:
            raise _NoRoomError
        self._unsettled.add(version)
        await self._store.write(changed, WRITE_TIMEOUT)

    def _decode(self, lease: Lease) -> Sequence[_Entry]:
        value = lease.annotations.get(CLAIMS_ANNOTATION)
        if value is None:
            return ()
        try:
            return [_Entry(_read(raw), raw) for raw in _entries.decode(value)]
        except (*UNREADABLE, ValueError) as error:
            raise ClaimsUnreadable(self._store, value, str(error)) from error


class _NoRoomError(Exception):
    """Claims and the annotations of others leave no room for another claim, even without any history."""


def _with(lease: Lease, entries: Sequence[_Entry], reserved: int) -> Lease:
    value = msgspec.json.encode([each.raw for each in entries]).decode()
    # A write that changes nothing keeps the version, so each write has another time.
    now = int(wall() * 1_000_000)
    stamp = micro_time(now if micro_time(now) != lease.renewed else now + 1)
    annotations = fitted({**lease.annotations, CLAIMS_ANNOTATION: value}, reserved)
    return msgspec.structs.replace(lease, annotations=annotations, renewed=stamp)


def _taken(claim: Claim) -> Refusal:
    detail = f"claimed by {claim.controller} ({claim.holder}) since {rfc3339(claim.since)}, op {claim.op}"
    return Refusal(Reason.DRAIN_IN_PROGRESS, claim.node, detail)


def _encode(claim: Claim) -> msgspec.Raw:
    wire = _Wire(**{**msgspec.structs.asdict(claim), "since": rfc3339(claim.since)})
    return msgspec.Raw(msgspec.json.encode(wire))


def _read(raw: msgspec.Raw) -> Claim:
    wire = _claims.decode(raw)
    if not wire.node or not wire.op:
        raise ValueError("a claim without node or op")
    return Claim(**{**msgspec.structs.asdict(wire), "since": recorded_time(wire.since)})
