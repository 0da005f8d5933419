"""Marks that say since when nodes have been underutilized, and the writes of marks. Pure.

Marks are on the nodes, so that "underutilized since" outlives a restart; a mark ends when load returns.

A mark is the time of ``Marked`` in the annotation ``tightship.dev/drain`` of a node that nobody drains: alone, with the
phase ``Marked``, or beside the note of a failed drain (phase ``Backoff``), which a mark must not replace. There is no
hysteresis: as with the older controller, a single pass above the limit ends a mark.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec import Struct

from node_compactor.settings import CompactorSettings
from tightship.cluster.installations import Beside
from tightship.draining.writing import NodePatch
from tightship.objects import Node
from tightship.objects.drain_record import DRAIN_ANNOTATION, DrainRecord, Phase, encode_record
from tightship.objects.reasons import Reason
from tightship.planning.evaluate import Facts
from tightship.planning.facts import NodeFacts
from tightship.rules.nodes import LEGACY_STATE, drain_record, legacy_state

CONTROLLER = "node-compactor"
"""Our name in annotations, taints, claims and metrics."""

NOT_TOUCHED = frozenset(
    {
        Reason.CORDONED,
        Reason.TO_BE_DELETED,
        Reason.KARPENTER_DISRUPTED,
        Reason.NODE_TERMINATING,
        Reason.NODE_LIFECYCLE,
        Reason.DRAIN_IN_PROGRESS,
        Reason.OTHER_INSTALLATION,
    }
)
"""Reasons why somebody else owns the node, a person's cordon included. Nothing is written on such a node."""

NEVER_OURS = frozenset(
    {
        Reason.CONTROL_PLANE,
        Reason.NODE_DO_NOT_DRAIN,
        Reason.SCALE_DOWN_DISABLED,
        Reason.NODE_DO_NOT_DISRUPT,
        Reason.KARPENTER_MANAGED,
        Reason.KARPENTER_CONSOLIDATION_OFF,
        Reason.NOT_AUTOSCALED,
    }
)
"""Reasons why a mark could never lead to a drain. Such a node gets no mark, and loses an earlier one."""

STALE_MARK = 24 * 3600.0
"""Seconds after which another controller's mark counts as abandoned, and ours replaces it."""


class MarkWrite(Struct, frozen=True):
    """The record to write on *node*; ``None`` removes the annotation.

    *forget_legacy* also removes the older controller's mark: ours has replaced it, or load has returned.
    """

    node: str
    record: DrainRecord | None
    forget_legacy: bool = False

    @property
    def patch(self) -> NodePatch:
        """Return the patch, which is valid only against the judged version of the node."""
        notes: dict[str, str | None] = {DRAIN_ANNOTATION: encode_record(self.record) if self.record else None}
        if self.forget_legacy:
            notes[LEGACY_STATE] = None
        return NodePatch(annotations=notes)


def marked_since(node: Node) -> float | None:
    """Return since when (seconds since 1970) *node* has been marked underutilized, ``None`` without a mark.

    Our own mark counts, else the older controller's. A sibling's record in the phase ``Marked`` follows its own rule
    and does not count. A mark beside a back-off is ours, whoever's drain failed: only the compactor adds one there.
    """
    record = drain_record(node)
    if record is not None and record.phase is Phase.MARKED and record.controller != CONTROLLER:
        return None
    since = None if record is None else record.entered(Phase.MARKED)
    return since if since is not None else _legacy_mark(node)


def mark_writes(
    facts: Facts,
    underutilized: Collection[str],
    settings: CompactorSettings,
    now: float,
    beside: Beside = Beside(CONTROLLER),
) -> tuple[MarkWrite, ...]:
    """Return the writes after which exactly the nodes *underutilized* carry a mark, ordered by node.

    Notes of another installation that *beside* has alive stay as they are, in pools that we don't drain.
    """

    def write(name: str, fact: NodeFacts) -> MarkWrite | None:
        pool = settings.pool(fact.pool)
        return _write(fact, name in underutilized, pool is not None and pool.enabled, now, beside)

    writes = (write(name, fact) for name, fact in sorted(facts.items()))
    return tuple(each for each in writes if each is not None)


def _write(fact: NodeFacts, underutilized: bool, pool_is_ours: bool, now: float, beside: Beside) -> MarkWrite | None:
    node = fact.view.node
    own = {refusal.reason for refusal in fact.refusals if refusal.subject == node.name}
    if fact.draining or own & NOT_TOUCHED:
        return None
    record = drain_record(node)
    if record is not None and record.phase is Phase.MARKED and record.controller != CONTROLLER:
        # The sibling's mark follows its own rule. If ours replaced it, the sibling would write it again, endlessly.
        if now < (record.entered(Phase.MARKED) or 0.0) + STALE_MARK:
            return None
        record = None
    if record is not None and not pool_is_ours and beside.foreign(record.lease):
        return None
    legacy = _legacy_mark(node)
    if underutilized and not own & NEVER_OURS:
        if record is not None and record.entered(Phase.MARKED) is not None:
            if record.phase is not Phase.MARKED or record.lease == beside.lease:
                return None
            # Another installation has given the pool up. The node has been underutilized for as long as it says.
            return MarkWrite(node.name, msgspec.structs.replace(record, lease=beside.lease), legacy is not None)
        new = DrainRecord(phase=Phase.MARKED, controller=CONTROLLER, lease=beside.lease)
        marked = _marked(record or new, legacy, now)
        return MarkWrite(node.name, marked, legacy is not None)
    kept = _unmarked(record, now)
    # In a pool that is not ours (yet), the older controller may still be active and manage its own mark.
    forget = legacy is not None and pool_is_ours
    return MarkWrite(node.name, kept, forget) if kept != drain_record(node) or forget else None


def _legacy_mark(node: Node) -> float | None:
    state = legacy_state(node)
    return None if state is None else state.marked_since


def _marked(record: DrainRecord, legacy: float | None, now: float) -> DrainRecord:
    """Return *record* with a mark. A back-off that is over stays: its count of attempts makes the next one longer."""
    since = now if legacy is None else min(now, legacy)
    return msgspec.structs.replace(record, since={**record.since, Phase.MARKED.value: since})


def _unmarked(record: DrainRecord | None, now: float) -> DrainRecord | None:
    """Return the rest of *record* after load has returned: the note of a failure whose pause is not over."""
    if record is None or record.phase is not Phase.BACKOFF:
        return None
    if record.controller == CONTROLLER and (record.next_try is None or record.next_try <= now):
        return None  # the series of failures has ended
    since = {phase: time for phase, time in record.since.items() if phase != Phase.MARKED}
    return msgspec.structs.replace(record, since=since)
