"""What opens only after a cordon: a drain of such a node waits between its cordon and its first eviction. Pure.

A refusal for a reason in :data:`AFTER_CORDON` doesn't keep a node from a plan. Its drain cordons the node, evicts
nothing while any such refusal stands, and gives the node back when the time for that is up. Then everything that it
has waited for in vain pauses, on every node: :class:`~tightship.objects.drain_record.DrainRecord` names them in its
``waits_for``. At most one node in the cluster waits so, or is in the drain that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tightship.cluster import Snapshot
from tightship.objects.drain_record import Phase
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration
from tightship.rules.nodes import drain_record

AFTER_CORDON = frozenset({Reason.OPENS_AFTER_CORDON, Reason.MAKE_BEFORE_BREAK})
"""Refusals for these reasons can end once the node is cordoned."""


def parted(refusals: Iterable[Refusal]) -> tuple[list[Refusal], list[Refusal]]:
    """Return the *refusals* that keep a node, and those that can end after its cordon."""
    keep: list[Refusal] = []
    opens: list[Refusal] = []
    for each in refusals:
        (opens if each.reason in AFTER_CORDON else keep).append(each)
    return keep, opens


def awaited(opens: Iterable[Refusal]) -> tuple[str, ...]:
    """Return the names by which records know what *opens* waits for."""
    return tuple(sorted({f"{each.reason} {each.subject}" for each in opens if each.reason in AFTER_CORDON}))


def paused(snapshot: Snapshot, now: float) -> Mapping[str, tuple[str, float]]:
    """Return what drains waited for in vain, with the node of each and when the next drain may wait for it."""
    found: dict[str, tuple[str, float]] = {}
    for name, view in snapshot.nodes.items():
        record = drain_record(view.node)
        if record is None or not record.waits_for or record.phase is not Phase.BACKOFF:
            continue
        until = record.next_try or 0.0
        if until > now:
            found |= {each: (name, until) for each in record.waits_for if until > found.get(each, ("", 0.0))[1]}
    return found


def pausing(
    opens: Iterable[Refusal], paused: Mapping[str, tuple[str, float]], now: float
) -> tuple[list[Refusal], list[Refusal]]:
    """Return those of *opens* that no drain waits for now, as refusals that keep their node, and the others."""
    keep: list[Refusal] = []
    rest: list[Refusal] = []
    for each in opens:
        last = next((paused[name] for name in awaited([each]) if name in paused), None)
        if last is None:
            rest.append(each)
            continue
        node, until = last
        detail = f"{each.detail}; it did not on node {node}, next try in {format_duration(until - now)}"
        keep.append(Refusal(Reason.NOT_OPENED, each.subject, detail, each.fix))
    return keep, rest


def waiting(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the operations of the drains that wait after their cordon, or are in what follows, by node."""
    records = ((name, drain_record(view.node)) for name, view in snapshot.nodes.items())
    return {
        name: record.op
        for name, record in records
        if record is not None and record.waits_for and record.phase in {Phase.CLAIMED, Phase.EVICTING}
    }


def waiting_elsewhere(snapshot: Snapshot, waiting: Mapping[str, str], node: str) -> Refusal | None:
    """Return why *node* may not wait after its cordon beside those claimed to wait, ``None`` if it may.

    *waiting* has the operation of each such claim by node. It counts until the snapshot shows that its drain has
    emptied the node.
    """
    ahead: list[str] = []
    for name, op in waiting.items():
        view = snapshot.nodes.get(name)
        record = None if view is None else drain_record(view.node)
        if name != node and (record is None or record.op != op or record.phase is not Phase.DRAINED):
            ahead.append(name)
    if not ahead:
        return None
    detail = f"one node at a time waits for what opens after its cordon, now {', '.join(ahead)}"
    return Refusal(Reason.OPENS_AFTER_CORDON, node, detail, "wait for the end of its drain")
