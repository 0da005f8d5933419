"""What a drain writes on its node: one annotation, one taint, and ``spec.unschedulable``.

The annotation is the whole memory of a drain: whoever leads next goes on from it. Times on the wire are RFC 3339 in
UTC, with milliseconds; in these structs they are seconds since 1970. The machine that moves a node from phase to phase
is :mod:`tightship.drain.machine`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from zlib import crc32

import msgspec
from msgspec import Struct

from tightship.core.times import recorded_time, rfc3339_ms

DRAIN_ANNOTATION = "tightship.dev/drain"
VERSION = 1

FIELD_MANAGER = "tightship"
"""What the API server calls whoever writes drains, in ``managedFields``."""

_LONGEST_REASON = 900
"""Bytes of the annotation."""


class Phase(StrEnum):
    """Where a node stands. ``Marked`` and ``Backoff`` are notes on a node nobody drains; the others own it."""

    MARKED = "Marked"
    CLAIMED = "Claimed"
    EVICTING = "Evicting"
    DRAINED = "Drained"
    RESTORING = "Restoring"
    YIELDED = "Yielded"
    BACKOFF = "Backoff"
    UNKNOWN = "Unknown"
    """Never written: what an annotation that can't be read counts as."""


IDLE_PHASES = frozenset({Phase.MARKED, Phase.BACKOFF})
"""Phases in which nothing but the annotation is on the node."""

UNDER_WAY = frozenset({Phase.CLAIMED, Phase.EVICTING, Phase.DRAINED})
"""Phases in which a drain goes on, unless something speaks against it."""


class DrainRecord(Struct, frozen=True, kw_only=True):
    """The annotation ``tightship.dev/drain``.

    *op* is unique to one drain and the value of its taint; *holder* is the replica that drives it and *epoch* its
    lease's transitions when it took over; *lease* is that Lease, ``namespace/name``, by which an installation of the
    controller is told from another one. *since* has when each phase was last entered in this drain (``Drained``:
    first), ``Marked`` included. *prior_unschedulable* is what a restore puts back. *attempts* counts drains given up in
    a row; *next_try* is when another may start. *reason* is why the phase is what it is, in the words of
    :class:`tightship.core.reasons.Reason`.
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

    @property
    def owns_node(self) -> bool:
        """Whether the node is cordoned and tainted on behalf of this record."""
        return self.phase not in IDLE_PHASES

    def entered(self, phase: Phase) -> float | None:
        """Return when *phase* was entered, ``None`` if it was not."""
        return self.since.get(phase.value)


class _Wire(Struct, rename="camel", omit_defaults=True, kw_only=True):
    v: int
    phase: str
    controller: str = ""
    op: str = ""
    holder: str = ""
    epoch: int = 0
    lease: str = ""
    since: dict[str, str] = {}
    deadline: str | None = None
    prior_unschedulable: bool = False
    attempts: int = 0
    next_try: str | None = None
    reason: str = ""
    plan_hash: str = ""


class Finished(Struct, frozen=True):
    """A drain that ended: of which *node* and *pool*, by which *controller*, how (*ending*, *reason*) and when (*at*).

    *ending* is a value of :class:`tightship.drain.steps.Ending`; *began* is ``None`` where it is not known. *came* is
    the node that was added in place of what the drain took, *stayed* that none was for long enough. *displaced* are the
    controllers of the pods it evicted, as :func:`owner_mark` has them; ``None`` where not all of them are known.
    """

    node: str
    pool: str
    controller: str
    ending: str
    at: float
    reason: str = ""
    began: float | None = None
    came: str = ""
    stayed: bool = False
    displaced: frozenset[str] | None = None


def owner_mark(uid: str) -> str:
    """Return what a controller of pods, known by its *uid*, is kept as: short, since fifty drains are."""
    return f"{crc32(uid.encode()):08x}"


class Regret(Struct, frozen=True):
    """What a pool has learned: *node* was added *at* that time, soon after a drain; *level* times, less what stayed."""

    level: int
    at: float
    node: str


def encode_record(record: DrainRecord) -> str:
    """Return *record* as the annotation's value; its reason is cut so that the whole stays below 2 kB."""
    wire = _Wire(
        **{
            **msgspec.structs.asdict(record),
            "v": VERSION,
            "phase": record.phase.value,
            "since": {phase: rfc3339_ms(time) for phase, time in record.since.items()},
            "deadline": None if record.deadline is None else rfc3339_ms(record.deadline),
            "next_try": None if record.next_try is None else rfc3339_ms(record.next_try),
            "reason": _cut(record.reason),
        }
    )
    return msgspec.json.encode(wire).decode()


@lru_cache(maxsize=4096)  # of a node in drain it is asked many times a pass
def decode_record(text: str) -> DrainRecord:
    """Return the record an annotation holds; one that can't be read has the phase ``Unknown`` and says why."""
    try:
        wire = msgspec.json.decode(text, type=_Wire)
        if wire.v != VERSION:
            raise ValueError(f"version {wire.v} is not known, only {VERSION}")
        phase = Phase(wire.phase)
        if phase is Phase.UNKNOWN:
            raise ValueError("phase Unknown is never written")
        fields = msgspec.structs.asdict(wire)
        del fields["v"]
        fields |= {
            "phase": phase,
            "since": {each: recorded_time(time) for each, time in wire.since.items()},
            "deadline": None if wire.deadline is None else recorded_time(wire.deadline),
            "next_try": None if wire.next_try is None else recorded_time(wire.next_try),
        }
        return DrainRecord(**fields)
    except (msgspec.DecodeError, ValueError) as error:
        return DrainRecord(phase=Phase.UNKNOWN, reason=f"annotation {DRAIN_ANNOTATION} can't be read: {error}")


def _cut(reason: str) -> str:
    """A reason may hold a webhook's words: other scripts and control characters take several bytes each."""
    if len(msgspec.json.encode(reason)) <= _LONGEST_REASON:
        return reason
    kept = reason[:_LONGEST_REASON]
    while len(msgspec.json.encode(kept)) > _LONGEST_REASON - 3:
        kept = kept[: len(kept) * 9 // 10]
    return kept + "..."
