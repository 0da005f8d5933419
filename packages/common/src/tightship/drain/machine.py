"""The drain as a state machine: from the node's record, the findings and the time to the next step. Pure.

A node goes Claimed (cordoned, tainted, nothing evicted) -> Evicting -> Drained (the autoscaler's turn), and from any of
these to Restoring -> Backoff, or to Yielded if somebody else takes the node. The drain writes every phase on the node
before acting on it, so the next leader can continue from the annotation alone.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Struct

from tightship.objects import Node, Pod
from tightship.objects.counting import counted, some
from tightship.objects.drain_record import DRAIN_ANNOTATION, FIELD_MANAGER, UNDER_WAY, DrainRecord, Ending, Phase
from tightship.objects.pod import DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import doubled, format_duration
from tightship.rules.after_cordon import awaited
from tightship.rules.evictability import outlasting
from tightship.rules.nodes import owner_elsewhere


class DrainRules(Struct, frozen=True, kw_only=True):
    """The rules of a drain, as the settings of a controller give them; all times are in seconds.

    A claimed node is left alone for *settle*, so that bindings under way become visible. One pod may refuse to go for
    *pod_timeout*; the evictions of a node may take *node_timeout*. A drain waits *await_timeout* for pods that end by
    themselves (0: such pods keep their node). With *keep_drained*, a drained node that nobody takes is kept instead of
    restored. What opens after a cordon has *after_cordon_timeout* to do so.
    """

    settle: float = 5.0
    pod_timeout: float = 600.0
    node_timeout: float = 1800.0
    await_timeout: float = 0.0
    not_ready_timeout: float = 300.0
    pending_timeout: float = 30.0
    after_cordon_timeout: float = 900.0
    hand_over_timeout: float = 3600.0
    keep_drained: bool = False
    backoff: float = 300.0
    backoff_limit: float = 6 * 3600.0
    hold_off: float = 4 * 3600.0
    most_in_flight: int = 10
    workload_pause: float = 0.0
    """Seconds between two evictions of one workload's pods."""
    min_stable_time: float = 0.0
    """Seconds for which the replacement of an evicted pod must have been Ready before the workload's next eviction."""
    past_budgets: bool = False
    """Delete pods instead of evicting them, in spite of every PDB, as the older controller did."""

    @property
    def rest(self) -> float:
        """Least seconds between two evictions of one workload's pods."""
        return max(self.workload_pause, self.min_stable_time)


class Findings(Struct, frozen=True, kw_only=True):
    """The findings of one look at a node and its pods.

    *evict* are pods to evict that nobody is deleting yet, *awaits* pods that end by themselves, *leaving* pods that
    terminate. *node_refusals* are those of the node as a whole; each would have prevented the claim. *next* are the
    pods of *evict* to evict now; more may be due at *due*. *against* is everything that waiting does not change:
    opt-outs, no place, a budget that never allows an eviction, a fatal answer. *refusing* is the part of it about pods
    that are here and may not be evicted any more: they opted out meanwhile. *opens* is what can still end after
    the cordon, and part of neither; with any of it, nothing is evicted. *late* names pods that have refused to go
    for too long. *pending* are pods without a node that were created since the drain began and could run here. *fresh*
    says that the server just listed the pods, *judged* that *against* includes a new search for places. *stopping* says
    that somebody else continues the drain; *releasing* says that nobody does, so the node is given back. *met* is when
    the present drive first saw the node in its phase. *rolling* are pods that a rollout of their Deployment moves, and
    *restart* the Deployments (``namespace/name``) to restart for it now. *rests_until* is when the
    last pause of a workload with a pod here ends.
    """

    node: Node | None
    evict: tuple[Pod, ...] = ()
    awaits: tuple[Pod, ...] = ()
    leaving: tuple[Pod, ...] = ()
    node_refusals: tuple[Refusal, ...] = ()
    next: tuple[Pod, ...] = ()
    due: float | None = None
    against: tuple[Refusal, ...] = ()
    refusing: tuple[Refusal, ...] = ()
    opens: tuple[Refusal, ...] = ()
    late: tuple[Refusal, ...] = ()
    pending: tuple[Pod, ...] = ()
    fresh: bool = False
    judged: bool = False
    stopping: bool = False
    releasing: bool = False
    met: float = 0.0
    not_ready_since: float | None = None
    rests_until: float = 0.0
    rolling: tuple[Pod, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[Pod, ...]:
        """The pods for which the drain still has to wait."""
        return (*self.evict, *self.awaits, *self.rolling, *self.leaving)


class NodeChange(Enum):
    """The change of a node besides its annotation."""

    NOTHING = "nothing"
    RESTORE = "restore"
    """Remove our taint, and restore ``spec.unschedulable``."""
    UNTAINT = "untaint"
    """Remove our taint; the cordon belongs to somebody else."""


class Wait(Struct, frozen=True):
    """Wait until *until*, or until the cluster changes."""

    until: float
    why: str


class Look(Struct, frozen=True):
    """List the node's pods from the server, judge the rest, and ask again."""


class Evict(Struct, frozen=True):
    """Evict these pods, each independently."""

    pods: tuple[Pod, ...]


class Restart(Struct, frozen=True):
    """Restart these Deployments (``namespace/name``), each at most once for the drain."""

    deployments: tuple[str, ...]


class Write(Struct, frozen=True):
    """Write *record* (``None``: remove the annotation) with *change*. *because* is the cause, for people."""

    record: DrainRecord | None
    change: NodeChange = NodeChange.NOTHING
    because: Refusal | None = None


class Over(Struct, frozen=True):
    """The drain is over for this drive."""

    ending: Ending


Step = Wait | Look | Evict | Restart | Write | Over


KEPT = 6 * 3600.0
"""Seconds for which the record keeps a drained node; renewed after half of them."""

LOOK_AGAIN = 15.0
"""Seconds between two looks at a node while nothing happens."""


def claimed(
    node: Node,
    previous: DrainRecord | None,
    *,
    op: str,
    controller: str,
    holder: str,
    epoch: int,
    lease: str = "",
    plan_hash: str,
    waits_for: tuple[str, ...] = (),
    now: float,
) -> DrainRecord:
    """Return the record of a new drain of *node*, with the mark and the count of attempts of the *previous* record."""
    since = {} if previous is None else {k: v for k, v in previous.since.items() if k == Phase.MARKED}
    return DrainRecord(
        phase=Phase.CLAIMED,
        controller=controller,
        op=op,
        holder=holder,
        epoch=epoch,
        lease=lease,
        since={**since, Phase.CLAIMED.value: now},
        prior_unschedulable=node.unschedulable,
        attempts=0 if previous is None else previous.attempts,
        plan_hash=plan_hash,
        waits_for=waits_for,
    )


def inherited(record: DrainRecord, node: Node, controller: str, now: float) -> tuple[DrainRecord, Refusal]:
    """Return the record with which *controller* ends the drain that another controller has left on *node*, and why."""
    last = format_duration(now - max(record.since.values(), default=now))
    because = Refusal(Reason.ORPHANED, node.name, f"{record.controller} has not touched the drain for {last}")
    return _enter(record, Phase.RESTORING, now, controller=controller, reason=str(because)), because


def repaired(node: Node, record: DrainRecord | None, controller: str, rules: DrainRules, now: float) -> Write:
    """Return how *controller* repairs a node with our taint or an unreadable annotation: it undoes only our part.

    Whoever removed the annotation wants no drain of this node, and is obeyed for as long as somebody who uncordons a
    node. If a node's annotation says that the node was restored, somebody else put the taint back by writing an old
    list of taints: then a cordon is not ours.
    """
    detail = record.reason if record is not None and record.reason else f"no readable {DRAIN_ANNOTATION} on it"
    because = Refusal(Reason.ORPHANED, node.name, f"left over from a drain: {detail}")
    if record is not None and not record.owns_node:
        return Write(record, NodeChange.UNTAINT, because)
    note = DrainRecord(
        phase=Phase.BACKOFF,
        controller=controller,
        since={Phase.BACKOFF.value: now},
        attempts=0 if record is None else 1,
        next_try=now + (rules.hold_off if record is None else rules.backoff),
        reason=str(because),
    )
    return Write(note, undoing(node, None), because)


def _emptied(record: DrainRecord) -> bool:
    """Whether the drain had emptied its node. One that an autoscaler took before would have gone without the drain."""
    return record.phase is Phase.DRAINED or (
        record.phase is Phase.YIELDED and record.entered(Phase.DRAINED) is not None
    )


def advance(op: str, record: DrainRecord | None, seen: Findings, rules: DrainRules, now: float) -> Step:
    """Return the next step of drain *op*, whose node carries *record* and is as *seen* at *now*."""
    node = seen.node
    if node is None:
        return Over(Ending.HANDED_OVER if record is not None and _emptied(record) else Ending.NODE_GONE)
    if record is None or record.op != op:
        return Over(Ending.NOT_OURS)
    if not record.owns_node:
        return Over(Ending.RESTORED)
    if record.phase is Phase.UNKNOWN:
        return give_up(record, Refusal(Reason.ORPHANED, node.name, record.reason), now)
    step = _taken_away(record, node, seen, rules, now)
    if step is None and seen.releasing and record.phase is not Phase.RESTORING:
        # In one write: while admission is slow, a process that is told to end has no time for two.
        because = Refusal(Reason.RELEASED, node.name, "no controller continues the drain")
        given_up = give_up(record, because, now).record
        assert given_up is not None
        step = msgspec.structs.replace(_restoring(given_up, node, seen, rules, now), because=because)
    return step or _kept(record, seen, now) or _PHASES[record.phase](record, node, seen, rules, now)


def give_up(record: DrainRecord, because: Refusal, now: float) -> Write:
    """Return the first of the two writes that undo a drain: the node gets the reason before anything is undone."""
    return Write(_enter(record, Phase.RESTORING, now, reason=str(because)), because=because)


def undoing(node: Node, record: DrainRecord | None) -> NodeChange:
    """Return how to undo a drain of *node*. The cordon is lifted only if it is provably ours.

    The API server attributes the cordon to whoever changed it last. If somebody uncordoned the node and cordoned it
    again, that is somebody else, whatever else they left on the node. If the server attributes the cordon to nobody,
    the node must carry both *record* and the taint of its drain, which came in one patch with the cordon.
    """
    if not node.unschedulable:
        return NodeChange.UNTAINT
    if node.cordoned_by:
        return NodeChange.RESTORE if set(node.cordoned_by) == {FIELD_MANAGER} else NodeChange.UNTAINT
    return NodeChange.RESTORE if record is not None and _tainted(node, record) else NodeChange.UNTAINT


def _tainted(node: Node, record: DrainRecord) -> bool:
    return bool(record.op) and any(taint.key == DRAINING.key and taint.value == record.op for taint in node.taints)


def _taken_away(record: DrainRecord, node: Node, seen: Findings, rules: DrainRules, now: float) -> Step | None:
    """Give way to others: to whoever deletes the node, and to whoever lifted the cordon."""
    # Start-up taints of the NodePool are among what keeps the node: the node alone does not tell them.
    other = owner_elsewhere(node) or next(
        (each for each in seen.node_refusals if each.reason is Reason.NODE_LIFECYCLE), None
    )
    # On release nobody would be left to lift our cordon once they let go of the node.
    if other is not None and not seen.releasing:
        emptied = (record.entered(Phase.DRAINED) or now) if record.phase is Phase.DRAINED else None
        overdue = emptied is not None and now >= emptied + rules.hand_over_timeout
        if record.phase is Phase.YIELDED or (emptied is not None and not overdue):
            return Over(Ending.PARKED) if seen.stopping else Wait(now + LOOK_AGAIN, other.detail)
        # Until then the node counts as being drained; an emptied node has counted for as long already.
        until = now if overdue else now + rules.hand_over_timeout
        return Write(_enter(record, Phase.YIELDED, now, reason=str(other), deadline=until), because=other)
    change, tainted = undoing(node, record), _tainted(node, record)
    if change is NodeChange.RESTORE and tainted:
        return None
    # Somebody has undone the drain: a person, or Cluster Autoscaler's rollback, which lifts any cordon.
    if record.phase is Phase.RESTORING:
        return None
    if not node.unschedulable:
        what = "someone else lifted the cordon during the drain"
    elif node.cordoned_by and change is NodeChange.UNTAINT:
        by = ", ".join(each for each in node.cordoned_by if each != FIELD_MANAGER)
        what = f"someone else ({by}) cordoned the node during the drain, and that cordon stays"
    else:
        what = f"someone else removed the taint {DRAINING.key} during the drain"
    lifted = Refusal(Reason.UNCORDONED, node.name, what)
    held = _enter(record, Phase.BACKOFF, now, reason=str(lifted), next_try=now + rules.hold_off, deadline=None)
    return Write(held, change, lifted)


def _kept(record: DrainRecord, seen: Findings, now: float) -> Step | None:
    """Give the node back for anything that would have prevented the claim. Pods that have moved stay where they are."""
    if record.phase not in UNDER_WAY or not seen.node_refusals or (seen.stopping and record.phase is not Phase.CLAIMED):
        return None
    return give_up(record, seen.node_refusals[0], now)


def _claimed(record: DrainRecord, node: Node, seen: Findings, rules: DrainRules, now: float) -> Step:
    if seen.stopping:
        released = Refusal(Reason.RELEASED, node.name, "the controller is stopping")
        # A wait of minutes is left to whoever comes next.
        return give_up(record, released, now) if record.deadline is None else Over(Ending.PARKED)
    # The record tells when the claim was sent: an API server that answers late cordons the node only then.
    ready = max(record.entered(Phase.CLAIMED) or 0.0, seen.met) + rules.settle
    if now < ready:
        return Wait(ready, f"claimed, waits {format_duration(rules.settle)} before the first eviction")
    if not node.ready:
        return give_up(record, Refusal(Reason.NOT_READY, node.name, "became NotReady after the claim"), now)
    # While the drain waits, a look at the server each time that anything changes would be too much.
    waits = record.deadline is not None and bool(seen.opens) and not seen.against and now < record.deadline
    if not waits and not (seen.fresh and seen.judged):
        return Look()
    if seen.against:
        return give_up(record, seen.against[0], now)
    if seen.opens:
        return _waits_to_open(record, seen, rules, now)
    record = msgspec.structs.replace(record, reason="", deadline=None)
    if not seen.left:
        return Write(_enter(record, Phase.DRAINED, now))
    timeout = rules.node_timeout + (rules.await_timeout if seen.awaits else 0.0)
    return Write(_enter(record, Phase.EVICTING, now, deadline=now + timeout))


def _waits_to_open(record: DrainRecord, seen: Findings, rules: DrainRules, now: float) -> Step:
    """Wait until all that opens after the cordon is open, or give the node back: what failed would fail again."""
    first = seen.opens[0]
    if record.deadline is None:
        begun = msgspec.structs.replace(record, deadline=now + rules.after_cordon_timeout, reason=str(first))
        return Write(begun, because=first)
    if now >= record.deadline:
        left = msgspec.structs.replace(record, waits_for=awaited(seen.opens) or record.waits_for)
        waited = format_duration(rules.after_cordon_timeout)
        because = Refusal(Reason.NOT_OPENED, first.subject, f"did not open in {waited}: {first.detail}", first.fix)
        return give_up(left, because, now)
    pending = _waiting_too_long(seen, rules, now)
    if pending is not None:
        return give_up(record, pending, now)
    if seen.restart:
        return Restart(seen.restart)
    return Wait(min(now + LOOK_AGAIN, record.deadline), first.detail)


def _evicting(record: DrainRecord, node: Node, seen: Findings, rules: DrainRules, now: float) -> Step:
    if seen.stopping:
        return Over(Ending.PARKED)
    if not node.ready:
        return _not_ready(record, node, seen, rules, now)
    unmoved = next((found for pod in seen.leaving if (found := outlasting(pod, now)) is not None), None)
    deadline = record.deadline
    overdue = deadline is not None and now >= deadline
    empty = not seen.left
    hopeless = _hopeless(seen, rules, now)
    if hopeless is not None:
        return give_up(record, hopeless, now)
    if (overdue or empty or unmoved is not None) and not seen.fresh:
        return Look()
    later = None if overdue else _with_rests(record, seen, now)
    if empty or later is not None:
        return Write(later or _enter(record, Phase.DRAINED, now, deadline=None))
    if overdue or unmoved is not None:
        return give_up(record, unmoved or _overdue(node, seen), now)
    # Rollouts end first: a node that is given back meanwhile has lost no pod.
    if seen.restart or (seen.next and not (seen.awaits or seen.rolling)):
        return Restart(seen.restart) if seen.restart else Evict(seen.next)
    until = min(x for x in (now + LOOK_AGAIN, seen.due, deadline) if x is not None)
    return Wait(max(until, now + 0.1), _waits_for(seen))


def _with_rests(record: DrainRecord, seen: Findings, now: float) -> DrainRecord | None:
    """Return *record* with the deadline moved by pauses that it does not know; ``None`` if it knows them all.

    The node has the new deadline, so that whoever takes over knows how long the drain may take.
    """
    known = max(now, record.rests_until or 0.0)
    if record.deadline is None or not seen.left or seen.rests_until <= known:
        return None
    deadline = record.deadline + seen.rests_until - known
    return msgspec.structs.replace(record, deadline=deadline, rests_until=seen.rests_until)


def _drained(record: DrainRecord, node: Node, seen: Findings, rules: DrainRules, now: float) -> Step:
    if seen.stopping:
        return Over(Ending.PARKED)
    if seen.evict or seen.awaits or seen.rolling:
        # A pod got past the cordon: by node name, by a toleration, or by a scheduler that did not see the cordon.
        return Write(_enter(record, Phase.EVICTING, now, deadline=now + rules.node_timeout))
    waiting = _waiting_too_long(seen, rules, now)
    if waiting is not None:
        return give_up(record, waiting, now)
    since = record.entered(Phase.DRAINED) or now
    if now < since + rules.hand_over_timeout:
        return Wait(min(now + LOOK_AGAIN, since + rules.hand_over_timeout), "empty, waits for the autoscaler")
    nobody = Refusal(
        Reason.NOT_HANDED_OVER,
        node.name,
        f"drained {format_duration(now - since)} ago, and no autoscaler has removed it",
        "see why Cluster Autoscaler keeps the node: minimum size of the group, scale-down disabled, or not managed",
    )
    if not rules.keep_drained:
        return give_up(record, nobody, now)
    if not record.reason.startswith(Reason.NOT_HANDED_OVER):
        return Write(msgspec.structs.replace(record, reason=str(nobody), deadline=now + KEPT), because=nobody)
    if record.deadline is None or now >= record.deadline - KEPT / 2:
        # The renewal shows observers that somebody still answers for the node.
        return Write(msgspec.structs.replace(record, deadline=now + KEPT))
    return Wait(now + LOOK_AGAIN, nobody.detail)


def _restoring(record: DrainRecord, node: Node, seen: Findings, rules: DrainRules, now: float) -> Write:
    del seen
    attempts = record.attempts + 1
    pause = doubled(rules.backoff, rules.backoff_limit, attempts - 1)
    if record.waits_for:
        pause = max(pause, rules.hold_off)
    ended = _enter(record, Phase.BACKOFF, now, attempts=attempts, next_try=now + pause, deadline=None)
    return Write(ended, undoing(node, record))


def _yielded(record: DrainRecord, node: Node, seen: Findings, rules: DrainRules, now: float) -> Step:
    del seen, rules
    # Whoever took the node has let go of it again.
    return give_up(record, Refusal(Reason.NOT_HANDED_OVER, node.name, f"was given back: {record.reason}"), now)


_PHASES = {
    Phase.CLAIMED: _claimed,
    Phase.EVICTING: _evicting,
    Phase.DRAINED: _drained,
    Phase.RESTORING: _restoring,
    Phase.YIELDED: _yielded,
}


def _not_ready(record: DrainRecord, node: Node, seen: Findings, rules: DrainRules, now: float) -> Step:
    since = seen.not_ready_since if seen.not_ready_since is not None else now
    if now >= since + rules.not_ready_timeout:
        detail = f"has not been Ready for {format_duration(now - since)}, which the node lifecycle controller handles"
        return give_up(record, Refusal(Reason.NOT_READY, node.name, detail), now)
    return Wait(min(now + LOOK_AGAIN, since + rules.not_ready_timeout), "the node is not Ready, so no pod is evicted")


def _hopeless(seen: Findings, rules: DrainRules, now: float) -> Refusal | None:
    """Return a reason to give up that waiting does not change."""
    if seen.refusing:
        return seen.refusing[0]
    if not seen.left:
        return None
    if seen.against and (seen.evict or seen.awaits or seen.rolling):
        return seen.against[0]
    return seen.late[0] if seen.late else _waiting_too_long(seen, rules, now)


def _waiting_too_long(seen: Findings, rules: DrainRules, now: float) -> Refusal | None:
    for pod in seen.pending:
        if now - pod.created >= rules.pending_timeout:
            detail = f"has had no node for {format_duration(now - pod.created)}, and this node could run it"
            return Refusal(Reason.REPLACEMENTS_PENDING, pod.key, detail)
    return None


def _overdue(node: Node, seen: Findings) -> Refusal:
    left = [pod.key for pod in seen.left]
    return Refusal(Reason.DRAIN_DEADLINE, node.name, f"the time for the drain is up, still here: {some(left)}")


def _waits_for(seen: Findings) -> str:
    if seen.awaits:
        return f"waits for {counted(len(seen.awaits), 'pod to finish by itself', 'pods to finish by themselves')}"
    if seen.rolling:
        return f"waits until rollouts have moved {counted(len(seen.rolling), 'pod')}"
    if seen.leaving:
        return f"waits for {counted(len(seen.leaving), 'pod')} to go"
    return f"waits until {counted(len(seen.evict), 'pod')} may be evicted"


def _enter(record: DrainRecord, phase: Phase, now: float, **changes: object) -> DrainRecord:
    since = {**record.since, phase.value: now}
    if phase is Phase.DRAINED:
        # Otherwise pods that keep arriving would postpone the end of the phase forever.
        since[phase.value] = record.since.get(phase.value, now)
    entered = msgspec.structs.replace(record, phase=phase, since=since, **changes)
    if phase in {Phase.RESTORING, Phase.BACKOFF} and not entered.reason.startswith(Reason.NOT_OPENED):
        return msgspec.structs.replace(entered, waits_for=())  # it has not waited in vain
    return entered
