"""The writes of a drain on its node: one annotation, one taint, and ``spec.unschedulable``.

The annotation holds everything that the next leader needs to continue a drain. Times on the wire are RFC 3339 in UTC
with milliseconds; in these structs they are seconds since 1970. :mod:`tightship.drain.machine` moves a node from phase
to phase.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Annotated
from zlib import crc32

import msgspec
from msgspec import Struct

from tightship.objects.times import recorded_time, rfc3339_ms, with_times
from tightship.objects.unreadable import UNREADABLE

DRAIN_ANNOTATION = "tightship.dev/drain"
VERSION = 1

FIELD_MANAGER = "tightship"
"""The name under which ``managedFields`` lists whoever writes drains."""

_LONGEST_REASON = 900
"""Most bytes of a reason in the annotation."""


class Phase(StrEnum):
    """The phase of a node. ``Marked`` and ``Backoff`` are notes on a node that nobody drains; other phases own it."""

    MARKED = "Marked"
    CLAIMED = "Claimed"
    EVICTING = "Evicting"
    DRAINED = "Drained"
    RESTORING = "Restoring"
    YIELDED = "Yielded"
    BACKOFF = "Backoff"
    UNKNOWN = "Unknown"
    """Never written; an unreadable annotation counts as this."""


IDLE_PHASES = frozenset({Phase.MARKED, Phase.BACKOFF})
"""Phases in which only the annotation is on the node."""

UNDER_WAY = frozenset({Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED})
"""Phases in which a drain continues unless something stands against it."""


class DrainRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The annotation ``tightship.dev/drain``.

    *op* is unique to one drain and the value of its taint. *holder* is the replica that drives the drain, *epoch* the
    transitions of its Lease when it took over. *lease* (``namespace/name``) tells one installation of a controller from
    another. *since* maps each phase, ``Marked`` included, to when this drain last entered it (``Drained``: first).
    *prior_unschedulable* is what a restore puts back. *attempts* counts consecutive drains given up, and *next_try* is
    when another may start. *reason* explains the phase in the words of :class:`tightship.objects.reasons.Reason`.
    *restarts* are the Deployments (``namespace/name``) that the drain restarts, each with its generation before.
    *waits_for* names what the drain waits for between its cordon and its first eviction or, in ``Backoff``, has waited
    for in vain (:mod:`tightship.rules.after_cordon`); *deadline* is when a wait ends, or the evictions: pauses of
    workloads until *rests_until* have moved it.
    """

    phase: Phase
    controller: str = ""
    op: str = ""
    holder: str = ""
    epoch: int = 0
    lease: str = ""
    since: Mapping[str, float] = {}
    deadline: float | None = None
    prior_unschedulable: bool = False
    attempts: int = 0
    next_try: float | None = None
    reason: str = ""
    plan_hash: str = ""
    restarts: Mapping[str, int] = {}
    waits_for: tuple[str, ...] = ()
    rests_until: float | None = None

    @property
    def owns_node(self) -> bool:
        """Whether the node is cordoned and tainted on behalf of this record."""
        return self.phase not in IDLE_PHASES

    def entered(self, phase: Phase) -> float | None:
        """Return when the drain entered *phase*, ``None`` if it has not."""
        return self.since.get(phase.value)

    @property
    def restart_time(self) -> str:
        """What the drain writes as :data:`~tightship.objects.workloads.RESTARTED_AT`: when it began.

        The same for whoever continues the drain, so that a second write of the value restarts nothing.
        """
        return rfc3339_ms(self.since.get(Phase.CLAIMED.value, 0.0))


class _Head(Struct):
    v: int
    phase: str


_TIMES = frozenset({"deadline", "nextTry", *Phase})


class Ending(Enum):
    """How a drain ends for whoever drives it."""

    HANDED_OVER = "handed_over"
    NODE_GONE = "node_gone"
    RESTORED = "restored"
    NOT_OURS = "not_ours"
    """The annotation is gone, or another drain's: write nothing more."""
    PARKED = "parked"
    """We stop; the annotation stays for whoever starts next."""


Price = tuple[int, str]
"""The price of a node for an hour: millionths of a currency, and the currency."""

UNPRICED: Price = (0, "")


class Finished(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A drain of *node* in *pool* by *controller* that ended at *at*, and how (*ending*, *reason*).

    *ending* is a value of :class:`Ending`. *began* is ``None`` if unknown. *came* is the node
    added in place of the removed one; *stayed* says that none was added for long enough. *displaced* are the
    controllers of the evicted pods, as :func:`owner_mark` writes them, ``None`` if not all are known. *price* is
    what the node cost.
    """

    node: str
    controller: str
    ending: str
    at: float
    pool: str = ""
    reason: str = ""
    began: float | None = None
    came: str = ""
    stayed: bool = False
    displaced: frozenset[str] | None = None
    price: Price = UNPRICED


def owner_mark(uid: str) -> str:
    """Return the short form in which a history of fifty drains keeps a controller of pods with *uid*."""
    return f"{crc32(uid.encode()):08x}"


Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Counted = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Addition(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a pool has learned from nodes that were added to it.

    *node* is the last one, and was added at *at*; it may be gone already. *level* counts nodes in a row that came soon
    after a drain: *regretted* is the last of these, and came at *regretted_at*.
    """

    at: float = 0.0
    node: str = ""
    level: Amount = 0
    regretted_at: float = 0.0
    regretted: str = ""


class Saving(Struct, frozen=True):
    """So many *nodes* of a pool are gone since *at*; *hourly* is what they cost, in millionths by currency."""

    at: float
    nodes: Counted
    hourly: Mapping[str, Amount] = {}


class PoolSavings(Struct, frozen=True, rename={"active": "standing"}):
    """What drains have saved in a pool: *seconds* of nodes and *micros* by currency so far, and what *active* adds.

    *active* are the nodes that are still gone, the longest first. *seen* is when the newest node was created that has
    been looked at.
    """

    seen: float
    active: tuple[Saving, ...] = ()
    seconds: float = 0.0
    micros: Mapping[str, Amount] = {}


class Spent(Struct, frozen=True, omit_defaults=True):
    """So many drains of *pool* began until *at*, and evict so many pods; without a pool they are of several."""

    at: float
    pool: str | None = None
    nodes: Amount = 0
    evictions: Amount = 0


class Begun(Struct, frozen=True):
    """What drains of all controllers have *spent* of the last day's rates, asked *now* (seconds since 1970).

    *workloads* has the times and counts of evictions in the last day by mark of the workload, or by the beginning of a
    mark for several workloads; a drain under way counts at infinity. *problem* says why nobody can tell, as half a
    sentence. *newcomers* are the young pods of each workload, by its name: when each was created, and since when it has
    been Ready, at infinity if it isn't.
    """

    spent: tuple[Spent, ...] = ()
    now: float = 0.0
    problem: str = ""
    workloads: Mapping[str, tuple[tuple[float, int], ...]] = {}
    newcomers: Mapping[str, Sequence[tuple[float, float]]] = {}

    def with_drain(self, spent: Spent | None, workloads: Mapping[str, int]) -> Begun:
        """Return the same with a drain under way, which has *spent* and may evict so many pods of *workloads*."""
        marks = {mark: (*self.workloads.get(mark, ()), (math.inf, many)) for mark, many in workloads.items()}
        return msgspec.structs.replace(
            self, spent=(*self.spent, *([spent] if spent else ())), workloads={**self.workloads, **marks}
        )

    def evicted(self, mark: str) -> list[tuple[float, int]]:
        """Return the times and counts of evictions of the workload with *mark*."""
        return [each for end in range(1, len(mark) + 1) for each in self.workloads.get(mark[:end], ())]


class PastDrains(Struct, frozen=True):
    """Recent drains of all controllers, the oldest first, what pools have learned, what drains saved and began."""

    finished: tuple[Finished, ...] = ()
    additions: Mapping[str, Addition] = {}
    savings: Mapping[str, PoolSavings] = {}
    begun: Begun = Begun()


def encode_record(record: DrainRecord) -> str:
    """Return *record* as the annotation's value. A long reason is cut, so that the value stays below 2 kB."""
    plain = with_times(msgspec.to_builtins(record), _TIMES, rfc3339_ms)
    fields = {"v": VERSION, **plain, "reason": _cut(record.reason)}
    return msgspec.json.encode({name: value for name, value in fields.items() if value != ""}).decode()


@lru_cache(maxsize=4096)  # a pass asks many times about a node in drain
def decode_record(text: str) -> DrainRecord:
    """Return the record in an annotation. An unreadable one has the phase ``Unknown``, and its reason says why."""
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.v != VERSION:
            raise ValueError(f"version {head.v} is not known, only {VERSION}")
        if Phase(head.phase) is Phase.UNKNOWN:
            raise ValueError("phase Unknown is never written")
        return msgspec.convert(with_times(msgspec.json.decode(text), _TIMES, recorded_time), DrainRecord)
    except (*UNREADABLE, ValueError) as error:
        return DrainRecord(phase=Phase.UNKNOWN, reason=f"annotation {DRAIN_ANNOTATION} can't be read: {error}")


def _cut(reason: str) -> str:
    """Cut *reason* to its limit in bytes: a webhook's text may hold characters that take several bytes each."""
    if len(msgspec.json.encode(reason)) <= _LONGEST_REASON:
        return reason
    kept = reason[:_LONGEST_REASON]
    while len(msgspec.json.encode(kept)) > _LONGEST_REASON - 3:
        kept = kept[: len(kept) * 9 // 10]
    return kept + "..."


BEGUN_ANNOTATION = "tightship.dev/begun"
WORKLOADS_ANNOTATION = "tightship.dev/evicted-workloads"
_BEGUN_TIMES = frozenset({"at"})
_evictions = msgspec.json.Decoder(dict[str, tuple[tuple[Amount, Amount], ...]])


def begun_in(annotations: Mapping[str, str], now: float = 0.0) -> Begun:
    """Return the counts in *annotations* of the Lease, asked *now*."""
    name = BEGUN_ANNOTATION
    try:
        plain = with_times(msgspec.json.decode(annotations.get(name, "[]")), _BEGUN_TIMES, recorded_time)
        found = msgspec.convert(plain, list[Spent])
        name = WORKLOADS_ANNOTATION
        hits = _evictions.decode(annotations.get(name, "{}"))
    except (*UNREADABLE, ValueError) as error:
        return Begun(now=now, problem=f"annotation {name} of the claims' Lease can't be read: {error}")
    return Begun(tuple(found), now, workloads=hits)
