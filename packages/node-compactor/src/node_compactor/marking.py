"""Which marks to write on nodes, so that "underutilized since" outlives a restart and ends when load returns. Pure.

A mark is the time of ``Marked`` in the annotation ``tightship.dev/drain`` of a node that nobody drains: alone, with the
phase ``Marked``, or beside the note of a drain that failed (phase ``Backoff``), which it must not displace. There is no
hysteresis: like the older controller, a single pass above the limit ends a mark.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from node_compactor.policy import CONTROLLER, NodeFacts
from tightship.core.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.core.objects import Node
from tightship.core.reasons import Reason
from tightship.drain_io.writing import NodePatch
from tightship.planning.nodes import LEGACY_STATE, drain_record, legacy_state

NOT_TOUCHED = frozenset(
    {
        Reason.CORDONED,
        Reason.TO_BE_DELETED,
        Reason.KARPENTER_DISRUPTED,
        Reason.NODE_TERMINATING,
        Reason.DRAIN_IN_PROGRESS,
    }
)
"""Somebody has taken the node, a person's cordon included: nothing is written on it."""

NEVER_OURS = frozenset(
    {
        Reason.CONTROL_PLANE,
        Reason.NODE_DO_NOT_DRAIN,
        Reason.SCALE_DOWN_DISABLED,
        Reason.NODE_DO_NOT_DISRUPT,
        Reason.KARPENTER_MANAGED,
    }
)
"""No drain may come of a mark on such a node, so it gets none; one it had before is taken away."""

STALE_MARK = 24 * 3600.0
"""Seconds after which another controller's mark counts as left behind, and ours takes its place."""


class MarkWrite(Struct, frozen=True):
    """What to write on *node*: *record*, or nothing any more (``None``: the annotation goes).

    *forget_legacy* takes the older controller's mark away with it: ours has taken its place, or load has returned.
    """

    node: str
    record: DrainRecord | None
    forget_legacy: bool = False

    @property
    def patch(self) -> NodePatch:
        """Return the write; it must be made against the version of the node that was judged."""
        notes: dict[str, str | None] = {DRAIN_ANNOTATION: encode_record(self.record) if self.record else None}
        if self.forget_legacy:
            notes[LEGACY_STATE] = None
        return NodePatch(annotations=notes)


def mark_writes(facts: Mapping[str, NodeFacts], now: float, controller: str = CONTROLLER) -> tuple[MarkWrite, ...]:
    """Return what to write so that the nodes' marks are as *facts* say, ordered by node; nothing where they are."""
    writes = (_write(name, fact, now, controller) for name, fact in sorted(facts.items()))
    return tuple(each for each in writes if each is not None)


def _write(name: str, fact: NodeFacts, now: float, controller: str) -> MarkWrite | None:
    own = {refusal.reason for refusal in fact.refusals if refusal.subject == name}
    if fact.draining or own & NOT_TOUCHED:
        return None
    node = fact.view.node
    record = drain_record(node)
    if record is not None and record.phase is Phase.MARKED and record.controller != controller:
        # Its time is by the sibling's rule. Writing over it each time would never end: it would write again.
        if now < (record.entered(Phase.MARKED) or 0.0) + STALE_MARK:
            return None
        record = None
    legacy = _legacy_mark(node)
    if fact.underutilized and not own & NEVER_OURS:
        if record is not None and record.entered(Phase.MARKED) is not None:
            return None
        marked = _marked(record or DrainRecord(phase=Phase.MARKED, controller=controller), legacy, now)
        return MarkWrite(name, marked, legacy is not None)
    kept = _unmarked(record, now, controller)
    # In a pool that is not ours (yet), the older controller may still be at work: its mark is its business.
    forget = legacy is not None and fact.settings is not None and fact.settings.enabled
    return MarkWrite(name, kept, forget) if kept != drain_record(node) or forget else None


def _legacy_mark(node: Node) -> float | None:
    state = legacy_state(node)
    return None if state is None else state.marked_since


def _marked(record: DrainRecord, legacy: float | None, now: float) -> DrainRecord:
    """Return *record* with a mark. A back-off that is over stays: its count of attempts makes the next one longer."""
    since = min(now, legacy) if legacy is not None else now
    return msgspec.structs.replace(record, since={**record.since, Phase.MARKED.value: since})


def _unmarked(record: DrainRecord | None, now: float, controller: str) -> DrainRecord | None:
    """Return what is left of *record* when load has returned: the note of a failure whose pause is not over."""
    if record is None or record.phase is not Phase.BACKOFF:
        return None
    if record.controller == controller and (record.next_try is None or record.next_try <= now):
        return None  # no failure in a row any more
    since = {phase: time for phase, time in record.since.items() if phase != Phase.MARKED}
    return msgspec.structs.replace(record, since=since)
