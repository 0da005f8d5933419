"""The cluster-wide list of drain claims: which nodes are in drain now, by which replica of which controller.

The shared Lease (:mod:`tightship.draining.ledger`) holds the list, so all controllers share one budget. To claim nodes,
a replica reads the list, judges it, and writes it back with the version that it judged. Of several replicas that do so
at once one succeeds, and the others judge again.

A claim never expires. A replica that was stopped and wakes up must find that its claim still counts: otherwise its own
drain and one begun in its place would exceed the budget together. So before anybody drops a stranger's claim, they
must write to the node itself (the ``holder`` and ``epoch`` of its drain annotation, by compare-and-swap). The
stranger's next write then fails.

Beside the claims stands the history: recent drains, what pools have learned from them, and what they saved. So pauses
and savings survive a restart. Of what is decided, only the pace of drains depends on the history, so an unreadable
history counts as empty, and the next drain writes a new one. Claims go first where room is short
(:mod:`tightship.draining.lease_room`). A drain must not wait for its history: the ledger drops all of it if the API
server refuses the Lease as too long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tightship.draining.begun import given_back, with_begun, with_evicted
from tightship.draining.lease_room import (
    ADDITIONS_ANNOTATION,
    CLAIMS_ANNOTATION,
    HISTORY_ANNOTATION,
    LIMIT,
    RESERVED,
    SAVINGS_ANNOTATION,
    fitted,
    size,
)
from tightship.draining.ledger import Edit, Ledger
from tightship.kube.leases import Lease
from tightship.objects import Pod
from tightship.objects.api_errors import KubeError
from tightship.objects.drain_record import (
    Addition,
    Begun,
    DrainRecord,
    Ending,
    Finished,
    PastDrains,
    Phase,
    PoolSavings,
    Spent,
    begun_in,
)
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import recorded_time, rfc3339, rfc3339_ms, with_times
from tightship.objects.unreadable import UNREADABLE
from tightship.planning.savings import ended
from tightship.rules.limits import CLUSTER
from tightship.rules.rates import Rates, marks_of, refused_by_rate

_LONGEST_SHOWN = 300


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One drain under way: *holder*, a replica of *controller*, drains *node* of *pool* in operation *op*.

    *lease* is that of its installation. *since* is in seconds since 1970; the ledger keeps whole seconds. *evicts*
    is how many pods the drain was to evict when it began, *workloads* how many of each workload, by its mark, until
    all have gone, and *waits* whether it waits for what opens after its cordon.
    """

    node: str
    pool: str = ""
    op: str
    controller: str
    holder: str
    lease: str = ""
    since: float
    evicts: int = 0
    workloads: Mapping[str, int] = {}
    waits: bool = False

    @property
    def spends(self) -> Spent:
        """What the claim takes from the rates."""
        return Spent(self.since, self.pool, 1, self.evicts)


Allows = Callable[[tuple[Claim, ...], Begun], Refusal | None]


class ClaimRequest(Struct, frozen=True):
    """A *claim* to be made unless *allows* refuses, which gets all claims and what has begun, or *beside*, which
    gets the whole Lease.

    Each try to write calls both, so they must have no side effects.
    """

    claim: Claim
    allows: Allows
    beside: Callable[[Lease], Refusal | None] = lambda _: None


class ClaimsUnreadable(KubeError):  # noqa: N818 - named as the errors of tightship.kube
    """Somebody edited the list, and it is no longer a list of claims. No drain starts until they repair it."""

    def __init__(self, lease: Lease, value: str, problem: str) -> None:
        shown = value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "..."
        super().__init__(
            f"annotation {CLAIMS_ANNOTATION} of Lease {lease.namespace}/{lease.name} is not a list of drain claims: "
            f"{problem}; its value is {shown!r}. To fix it, write the claims of the nodes that have an annotation "
            f"tightship.dev/drain, or the empty list if no node is being drained: kubectl -n {lease.namespace} "
            f"annotate --overwrite lease {lease.name} {CLAIMS_ANNOTATION}='[]'"
        )


class _Entry(Struct, frozen=True):
    """A claim and its JSON, so that fields of a newer version survive a rewrite by this version."""

    claim: Claim
    raw: msgspec.Raw


_entries = msgspec.json.Decoder(list[msgspec.Raw])
_TIMES = frozenset({"since"})


def claims_in(lease: Lease) -> tuple[Claim, ...]:
    """Return all claims, the oldest first. Raises :class:`ClaimsUnreadable`, which never counts as empty."""
    return tuple(each.claim for each in _decode(lease))


async def take(
    ledger: Ledger, requests: Sequence[ClaimRequest], held: Callable[[], Iterable[Claim]] = tuple
) -> tuple[Refusal | None, ...]:
    """Make the claims of *requests* in their order, in one write; ``None`` means that the ledger holds the claim.

    Nothing is asked for any more once the cluster's budget has refused: the answers may be fewer than the wishes.
    *held* returns the claims whose drains the caller drives. If somebody has deleted the Lease, or etcd has lost its
    last writes, these claims still count, and are entered again beside new ones.

    A wish is not asked whether it is allowed if the ledger already holds this very claim (node and op), nor if another
    operation claims the node, which is a refusal. Raises :class:`ClaimsUnreadable`, and as :meth:`Ledger.change` does.
    After an error without an answer the claims may or may not exist, and the caller may :func:`take` or drop them
    again.
    """
    for request in requests:
        if not request.claim.node or not request.claim.op:
            raise ValueError(f"a claim needs a node and an op: {request.claim}")
    answers: list[Refusal | None] = []

    def add(lease: Lease) -> Mapping[str, str] | None:
        answers.clear()
        present = list(_decode(lease))
        known = {each.claim.op for each in present}
        lost = [_Entry(each, _encode(each)) for each in held() if each.op not in known]
        notes: Mapping[str, str] | None = None
        for request in requests:
            claim = request.claim
            other = next((each.claim for each in present if each.claim.node == claim.node), None)
            if other is not None:
                answers.append(None if other.op == claim.op else _taken(other))
                continue
            counted = [*present, *lost]
            spent = [each.claim.spends for each in lost]
            begun = begun_in(with_begun(lease.annotations, spent, claim.since), claim.since)
            for each in counted:
                begun = begun.with_drain(None, each.claim.workloads)
            refusal = request.beside(lease) or request.allows(tuple(each.claim for each in counted), begun)
            if refusal is None:
                counted.append(_Entry(claim, _encode(claim)))
                wider = _with(counted, with_begun(lease.annotations, [*spent, claim.spends], claim.since))
                if size(wider) > LIMIT:
                    detail = f"Lease {lease.namespace}/{lease.name} has no room for another claim"
                    refusal = Refusal(Reason.BUDGET_EXHAUSTED, CLUSTER, detail)
                else:
                    present, lost, notes = counted, [], wider
                    lease = msgspec.structs.replace(lease, annotations=wider)
            answers.append(refusal)
            if exhausted(refusal):
                break
        return notes

    await ledger.change(add)
    return tuple(answers)


async def joined(ledger: Ledger, drain: tuple[str, str], pods: Sequence[Pod], rates: Rates, now: float) -> bool:
    """Enter the workloads of *pods* into the claim of *drain* (node and op), which is about to evict them.

    Return whether they may go.

    The plan may not have seen some of them: pods can be bound until the cordon. A workload that other drains may evict
    pods of, or that rests by *rates*, is not entered. A claim that somebody has deleted refuses nothing.
    """
    answer = True

    def edit(lease: Lease) -> Mapping[str, str] | None:
        nonlocal answer
        answer, present, begun = True, list(_decode(lease)), begun_in(lease.annotations, now)
        own = next((at for at, each in enumerate(present) if (each.claim.node, each.claim.op) == drain), None)
        known = {} if own is None else present[own].claim.workloads
        late = [pod for pod in pods if not marks_of([pod]).keys() <= known.keys()]
        if own is None or not late:
            return None
        for at, each in enumerate(present):
            begun = begun if at == own else begun.with_drain(None, each.claim.workloads)
        answer = refused_by_rate([rates], begun, drain[0], late) is None
        if not answer:
            return None
        present[own] = _with_workloads(present[own], {**known, **marks_of(late)})
        return _with(present, lease.annotations)

    await ledger.change(edit)
    return answer


def rested(node: str, op: str, marks: Mapping[str, int] | None, now: float) -> Edit:
    """Return the edit after which other drains may evict pods of drain *op*'s workloads, once these have rested.

    *now* the drain has evicted so many pods of workloads, by their *marks*; ``None`` if nobody knows.
    """

    def edit(lease: Lease) -> Mapping[str, str] | None:
        present = list(_decode(lease))
        for at, each in enumerate(present):
            if (each.claim.node, each.claim.op) == (node, op):
                present[at] = _with_workloads(each, {})
                return _with(
                    present, with_evicted(lease.annotations, each.claim.workloads if marks is None else marks, now)
                )
        return None

    return edit


def _with_workloads(entry: _Entry, workloads: Mapping[str, int]) -> _Entry:
    fields: dict[str, Any] = msgspec.json.decode(entry.raw, type=dict[str, msgspec.Raw])
    raw = msgspec.Raw(msgspec.json.encode({**fields, "workloads": workloads}))
    return _Entry(_read(raw), raw)


def dropping(
    drains: Iterable[tuple[str, str]],
    now: float = 0.0,
    *,
    evicted: int | None = None,
    marks: Mapping[str, int] | None = None,
    in_vain: bool = False,
) -> Edit:
    """Return the edit that removes the claims of *drains* (node and op), as far as they exist.

    If it is known that *now* so many pods of each were *evicted*, and of which workloads by their *marks*, the rates
    count these; claims made *in_vain* don't count.

    Drop your own claim when its drain has ended, or a stranger's after a write to the node (see this module's text).
    """
    gone = frozenset(drains)

    def remove(lease: Lease) -> Mapping[str, str] | None:
        present = _decode(lease)
        kept = [each for each in present if (each.claim.node, each.claim.op) not in gone]
        if len(kept) == len(present):
            return None
        notes: Mapping[str, str] = lease.annotations
        for claim in (each.claim for each in present if (each.claim.node, each.claim.op) in gone):
            if not in_vain:
                notes = with_evicted(notes, claim.workloads if marks is None else marks, now)
            if in_vain or evicted is not None:
                more = 0 if in_vain else (evicted or 0)
                unused = Spent(claim.since, claim.pool, int(in_vain), max(0, claim.evicts - more))
                notes = given_back(notes, unused, now)
                if more > claim.evicts:
                    notes = with_begun(notes, [Spent(now, claim.pool, 0, more - claim.evicts)], now)
        return _with(kept, notes)

    return remove


def _decode(lease: Lease) -> Sequence[_Entry]:
    value = lease.annotations.get(CLAIMS_ANNOTATION)
    if value is None:
        return ()
    try:
        return [_Entry(_read(raw), raw) for raw in _entries.decode(value)]
    except (*UNREADABLE, ValueError) as error:
        raise ClaimsUnreadable(lease, value, str(error)) from error


def exhausted(refusal: Refusal | None) -> bool:
    """Whether *refusal* says that no other node may be claimed either."""
    return refusal is not None and refusal.reason is Reason.BUDGET_EXHAUSTED and refusal.subject == CLUSTER


def _with(entries: Sequence[_Entry], notes: Mapping[str, str]) -> Mapping[str, str]:
    value = msgspec.json.encode([each.raw for each in entries]).decode()
    return fitted({**notes, CLAIMS_ANNOTATION: value})


def _taken(claim: Claim) -> Refusal:
    detail = f"claimed by {claim.controller} ({claim.holder}) since {rfc3339(claim.since)}, op {claim.op}"
    return Refusal(Reason.DRAIN_IN_PROGRESS, claim.node, detail)


def _encode(claim: Claim) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(with_times(msgspec.to_builtins(claim), _TIMES, rfc3339)))


def _read(raw: msgspec.Raw) -> Claim:
    claim = msgspec.convert(with_times(msgspec.json.decode(raw), _TIMES, recorded_time), Claim)
    if not claim.node or not claim.op:
        raise ValueError("a claim without node or op")
    return claim


KEPT = 50
"""Drains kept, the newest: about 10 kB."""

POOLS_KEPT = 100
"""Pools kept: those with the latest additions, and those with the latest savings, about 1 kB each."""

MOST_DISPLACED = 100
"""Controllers of evicted pods that are kept of a drain; of more than these it counts as unknown whose pods went."""

_LONGEST_REASON = 200
_TIMES_OF_HISTORY = frozenset({"at", "began", "regrettedAt", "seen"})

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
        annotations = fitted({**lease.annotations, **_annotations_of(wanted)}, RESERVED)
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


def _annotations_of(history: PastDrains) -> dict[str, str]:
    drains = [_drain(each) for each in history.finished[-KEPT:]]
    kept = sorted(history.savings.items(), key=lambda each: (each[1].seen, each[0]))[-POOLS_KEPT:]
    saved = _plain({pool: msgspec.structs.replace(each, seconds=round(each.seconds, 3)) for pool, each in kept})
    newest = sorted(history.additions.items(), key=lambda each: (max(each[1].at, each[1].regretted_at), each[0]))
    found = {HISTORY_ANNOTATION: drains, ADDITIONS_ANNOTATION: _plain(dict(newest[-POOLS_KEPT:]))}
    if saved:
        found[SAVINGS_ANNOTATION] = saved
    return {name: msgspec.json.encode(value).decode() for name, value in found.items()}


def _plain(value: object) -> Any:
    return with_times(msgspec.to_builtins(value), _TIMES_OF_HISTORY, rfc3339_ms)


def _drain(finished: Finished) -> dict[str, object]:
    reason = finished.reason.encode()[:_LONGEST_REASON].decode(errors="ignore")
    many = finished.displaced is not None and len(finished.displaced) > MOST_DISPLACED
    displaced = None if many else finished.displaced
    plain: dict[str, object] = _plain(msgspec.structs.replace(finished, reason=reason, displaced=displaced))
    return plain if displaced is None else {**plain, "displaced": sorted(displaced)}


def _decoded(value: str, of: type[T], empty: T) -> T:
    try:
        return msgspec.convert(with_times(msgspec.json.decode(value), _TIMES_OF_HISTORY, recorded_time), of)
    except (*UNREADABLE, ValueError):
        return empty
