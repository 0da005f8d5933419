"""One look at a node in drain: the pods left, the pods to evict now, and what waiting does not change. Pure.

Pods that come back to the node from which they were evicted: evictions would repeat until the deadline. Pure.

A cordon and a taint stop only kube-scheduler. Pods whose template names the node come back, and so do pods of a
scheduler that checks neither.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.state import sum_up
from tightship.drain.answers import FATAL, GOING, EvictionAnswer, EvictionResult
from tightship.drain.machine import DrainRules, Findings
from tightship.objects import Node, Pod
from tightship.objects.counting import counted
from tightship.objects.drain_record import DrainRecord, Phase
from tightship.objects.pod import CORDON, DRAINING
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import doubled
from tightship.planning.demand import ReservedDemand, with_demand
from tightship.planning.plan import Candidate, Planner
from tightship.planning.plan.model import Placement
from tightship.planning.plan.reserving import moving_nodes
from tightship.rules.after_cordon import AFTER_CORDON, deployment_of, parted, with_restarts
from tightship.rules.disruption import DisruptionLedger
from tightship.rules.evictability import Evictability, EvictionRules, Sorted, rolling_out
from tightship.rules.nodes import drain_record, with_abandoned
from tightship.rules.rates import workload_of
from tightship.scheduler.devices import with_devices
from tightship.scheduler.space import Space

TRANSIENT = frozenset(
    {
        Reason.PDB_EXHAUSTED,
        Reason.PDB_NOT_CURRENT,
        Reason.PDB_SPENT_BY_PLAN,
        Reason.OPENS_AFTER_CORDON,
        Reason.MAKE_BEFORE_BREAK,
        Reason.ROLLOUT_UNFINISHED,
    }
)
"""Refusals that end by themselves. A drain under way waits for their end."""

_BY_ROLLOUT = frozenset({Reason.MAKE_BEFORE_BREAK, Reason.ROLLOUT_UNFINISHED})
"""Refusals that the drain's own look at rollouts replaces."""

_PLACES = frozenset({Reason.NO_PLACE, Reason.NO_PLACE_TOGETHER, Reason.SCHEDULER_MAY_STRAND})

SYSTEM_CRITICAL = 2_000_000_000
"""The priority of ``system-cluster-critical``; ``system-node-critical`` is higher."""

RETRY_FIRST, RETRY_LAST = 2.0, 30.0
"""Seconds before the next try of an eviction, doubled from the first to the last."""

_CONFLICT_TRIES = 2


class Try(Struct, frozen=True):
    """The evictions of one pod: the last answer, when it came, how many equal ones in a row, and when to try again."""

    result: EvictionResult
    at: float
    count: int = 1
    again: float = 0.0


def tried(previous: Try | None, result: EvictionResult, now: float) -> Try:
    """Return *previous* after one more answer."""
    count = previous.count + 1 if previous is not None and previous.result.answer is result.answer else 1
    pause = doubled(RETRY_FIRST, RETRY_LAST, count - 1)
    if result.retry_after is not None:
        pause = max(result.retry_after, RETRY_FIRST) if result.answer is EvictionAnswer.BUSY else result.retry_after
    return Try(result, now, count, now + pause)


class Assessment:
    """Judges node *name* of *snapshot* at *now*.

    *node* and *pods*, if given, are newer than the snapshot's and replace them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        name: str,
        now: float,
        rules: DrainRules,
        eviction: EvictionRules,
        *,
        node: Node | None = None,
        pods: Sequence[Pod] | None = None,
    ) -> None:
        view = snapshot.nodes.get(name)
        at = node if node is not None else (view.node if view is not None else None)
        found = pods if pods is not None else (view.pods if view is not None else ())
        here = tuple(pod for pod in found if not pod.finished)
        if at is not None and (node is not None or pods is not None):
            view = NodeView(at, here, sum_up(here))
            snapshot = msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, name: view})
        snapshot = msgspec.structs.replace(with_devices(snapshot), schedulers=eviction.schedulers)
        self._record = drain_record(at) if at is not None else None
        # Whoever has restarted a Deployment looks no more for a place of its new pods.
        begins = self._record is not None and self._record.phase is Phase.CLAIMED and self._record.deadline is None
        snapshot = with_restarts(snapshot, eviction.restarts, places=begins)
        if name in snapshot.nodes:
            here = snapshot.nodes[name].pods
        self.snapshot = snapshot
        self.name = name
        self.node = at
        self._now = now
        self._rules = rules
        self.ledger = DisruptionLedger(snapshot)
        self.sorted: Sorted = Evictability(snapshot, eviction, now, self.ledger.covers).sort(here)
        unreadable = [each for each in snapshot.unreadable if each.kind == "Pod" and each.node == name]
        self._moving = self._pods_by_rollout()
        self._rolling = tuple(pod for pods in self._moving.values() for pod in pods)
        self._restart, self._unfinished = self._rollouts()
        self._unreadable = [Refusal(Reason.POD_UNREADABLE, e.key, e.problem, f"fix pod {e.key}") for e in unreadable]

    def rest(self, placement: Placement, ahead: ReservedDemand = ReservedDemand()) -> list[Refusal]:
        """Return what prevents emptying the node: opt-outs, budgets, and pods without another place.

        The search keeps room for the demand without pods that *ahead* names. Until the drain begins to evict, the
        search takes the node as it was before its cordon: a pod, pending or still to come, that could run only there
        keeps the node. If the search finds no place for pods that still have one on their landings, these count.
        """
        if self.node is None:
            return []
        found = self.sorted
        record = drain_record(self.node)
        begun = record is None or record.phase is not Phase.CLAIMED
        # Once evictions have begun, pods that this drain has evicted may take all the time that is left.
        kept = [each for each in parted(found.refusals)[0] if each.reason not in _BY_ROLLOUT]
        refusals = [*kept, *self._unreadable, *(() if begun else found.outlasting)]
        if refusals:
            return sorted(refusals)
        if begun and not found.evict:
            return []
        candidate = Candidate(self.name, "", 0.0, found.evict, found.stays)
        snapshot = with_abandoned(with_demand(self.snapshot, ahead), ahead.displaced_for, self._now)
        before = self._in_drain_before(snapshot)
        if not begun:
            snapshot = msgspec.structs.replace(snapshot, nodes={**snapshot.nodes, self.name: self._before(self.node)})
        if self._rules.past_budgets:
            snapshot = msgspec.structs.replace(snapshot, budgets=type(snapshot.budgets)())
        planner = Planner(snapshot, DisruptionLedger(snapshot), (candidate,), placement, in_drain=before)
        refusals = planner.attempt(candidate)
        places = all(each.reason in _PLACES for each in refusals)
        return [] if refusals and places and all_land(planner.space, self.name, found.evict) else refusals

    def _in_drain_before(self, snapshot: Snapshot) -> list[str]:
        """Return the nodes in drain that were claimed earlier. They come first, or else all drains would give up."""
        nodes = moving_nodes(snapshot)
        return nodes[: nodes.index(self.name)] if self.name in nodes else nodes

    def left(self, tries: Mapping[str, Try]) -> list[Pod]:
        """Return the pods to evict, without those that go by themselves after the answers in *tries*."""
        rolling = {pod.uid for pod in self._rolling}
        return [pod for pod in self.sorted.evict if not _going(pod, tries) and pod.uid not in rolling]

    def _pods_by_rollout(self) -> dict[str, list[Pod]]:
        """Return the pods that go by a rollout, by Deployment: those that must, and all of one that was restarted."""
        restarts = {} if self._record is None else self._record.restarts
        found: dict[str, list[Pod]] = {}
        for pod in self.sorted.evict if self.snapshot.restarts or restarts else ():
            above = deployment_of(self.snapshot, pod)
            if above is not None and (above.key in restarts or self.snapshot.restart_of(pod) is not None):
                found.setdefault(above.key, []).append(pod)
        return found

    def _rollouts(self) -> tuple[tuple[str, ...], list[Refusal]]:
        """Return the Deployments to restart now, and why the rollout of one will not do it.

        A Deployment is restarted once for a drain: its template has the drain's time from then on. Where it has not,
        the generation in the record tells that nothing was written yet.
        """
        record, begin, against = self._record, list[str](), list[Refusal]()
        if record is None or not record.owns_node:
            return (), against
        for key in self._moving:
            found, before = self.snapshot.deployments[key], record.restarts.get(key)
            if found.restarted_at == record.restart_time:
                if found.failed:
                    detail = "it was restarted, and its rollout makes no progress"
                    fix = f"kubectl -n {found.namespace} rollout status deployment/{found.name}"
                    against.append(Refusal(Reason.ROLLOUT_UNFINISHED, key, detail, fix))
            elif before == found.generation or (before is None and found.settled):
                begin.append(key)
            elif before is not None and found.settled:
                detail = "somebody else changed it meanwhile, so nobody knows whether this drain has restarted it"
                against.append(Refusal(Reason.ROLLOUT_UNFINISHED, key, detail))
        under_way = sum(key in record.restarts for key in self._moving if key not in begin)
        return tuple(begin[: max(0, self._rules.most_in_flight - under_way)]), against

    def _rollouts_to_end(self) -> list[Refusal]:
        """Return what the drain still waits for before its first eviction, by Deployment."""
        return [rolling_out(key, self.name) for key in self._moving]

    def findings(
        self,
        record: DrainRecord | None,
        tries: Mapping[str, Try],
        *,
        fresh: bool = False,
        rest: Sequence[Refusal] | None = None,
        back: Sequence[Refusal] = (),
        node_refusals: Sequence[Refusal] = (),
        progress: float | None = None,
        not_ready_since: float | None = None,
        stopping: bool = False,
        releasing: bool = False,
        met: float = 0.0,
        rests: Mapping[str, float] = {},
        rests_until: float = 0.0,
    ) -> Findings:
        """Return everything that the machine decides on.

        *rest* is the result of :meth:`rest`, if it was called. *back* are refusals of pods that came back.
        *node_refusals* are those of the node as a whole. *progress* is when something last moved, or when no eviction
        could be requested. *rests* says until when workloads rest.
        """
        left = self.left(tries)
        leaving = [*self.sorted.leaving, *(pod for pod in self.sorted.evict if _going(pod, tries))]
        refusing = [*self._unreadable, *(each for each in self.sorted.refusals if each.reason not in _BY_ROLLOUT)]
        budgets = [] if self._rules.past_budgets else self.ledger.charge(left)[1]
        lasting = [each for each in budgets if each.reason not in TRANSIENT]
        against = [*refusing, *lasting, *_fatal(left, tries), *back]
        if rest is not None:
            started = record is not None and record.phase is not Phase.CLAIMED
            against += [each for each in rest if not (started and each.reason in TRANSIENT)]
        opens: list[Refusal] = []
        if record is not None and record.phase is Phase.CLAIMED:
            refusing, opens = parted(refusing)
            against, _ = parted(against)
            opens += [*(each for each in budgets if each.reason in TRANSIENT), *self._rollouts_to_end()]
            if record.waits_for:
                against = [each for each in against if each.reason not in TRANSIENT]
            else:
                # The claim did not count as one that waits.
                against += [each for each in opens if each.reason in AFTER_CORDON - _BY_ROLLOUT]
                opens = []
        against += self._unfinished
        now_or_later = self._next(left, leaving, tries, rests)
        began = record.entered(Phase.CLAIMED) if record is not None else None
        return Findings(
            node=self.node,
            evict=tuple(left),
            awaits=self.sorted.awaits,
            leaving=tuple(leaving),
            node_refusals=tuple(sorted(node_refusals)),
            next=now_or_later[0],
            due=now_or_later[1],
            against=tuple(sorted(set(against))),
            refusing=tuple(sorted(set(refusing))),
            opens=tuple(sorted(set(opens), key=_opening)),
            late=tuple(self._late(record, left, leaving, tries, progress)),
            pending=self._pending(began) if began is not None else (),
            fresh=fresh,
            judged=rest is not None,
            stopping=stopping,
            releasing=releasing,
            met=met,
            not_ready_since=not_ready_since,
            rolling=self._rolling,
            restart=self._restart,
            rests_until=rests_until,
        )

    def _next(
        self, left: Sequence[Pod], leaving: Sequence[Pod], tries: Mapping[str, Try], rests: Mapping[str, float]
    ) -> tuple[tuple[Pod, ...], float | None]:
        """Return the pods to evict now, and when more could become due.

        Critical pods wait until all others have gone. Each pod spends from its PDB's allowance, so the drain sends no
        more evictions than the PDB allows. The other pods wait for a change of the PDB.
        """
        ordered = sorted(left, key=_order)
        if any(not _critical(pod) for pod in (*left, *leaving)):
            ordered = [pod for pod in ordered if not _critical(pod)]
        room = self._rules.most_in_flight - len(leaving)
        chosen: list[Pod] = []
        due: list[float] = []
        ledger = DisruptionLedger(self.snapshot)
        resting = {name: until for name, until in rests.items() if until > self._now}
        pause = self._rules.rest
        for pod in ordered:
            name = workload_of(pod) if pause else ""
            last = tries.get(pod.uid)
            # An eviction without an answer may be this workload's last one: another try is no other eviction.
            if name in resting and (last is None or last.result.answer is not EvictionAnswer.NO_ANSWER):
                due.append(resting[name])
                continue
            if last is not None and last.again > self._now:
                due.append(last.again)
                continue
            if len(chosen) >= room:
                break
            if not self._rules.past_budgets:
                charge, refusals = ledger.charge([pod])
                if refusals:
                    continue
                ledger.take(charge)
            chosen.append(pod)
            if name:
                resting[name] = self._now + pause
        return tuple(chosen), min(due, default=None)

    def _late(
        self,
        record: DrainRecord | None,
        left: Sequence[Pod],
        leaving: Sequence[Pod],
        tries: Mapping[str, Try],
        progress: float | None,
    ) -> list[Refusal]:
        if record is None or not left or leaving or self.sorted.awaits or self._rolling:
            return []
        began = record.entered(Phase.EVICTING)
        if began is None or self._now < max(began, progress or 0.0) + self._rules.pod_timeout:
            return []
        found: list[Refusal] = []
        for pod in left:
            budgets = [] if self._rules.past_budgets else self.ledger.charge([pod])[1]
            if budgets:
                found += budgets
            else:
                last = tries.get(pod.uid)
                text = last.result.text if last is not None else "was not asked"
                found.append(Refusal(Reason.EVICTION_FAILED, pod.key, f"can't be evicted: {text}"))
        return sorted(found)

    def _pending(self, began: float) -> tuple[Pod, ...]:
        """Return the pods without a node, created since *began*, that this node could run if it were not in drain."""
        if self.node is None:
            return ()
        waiting = [
            pod
            for pod in self.snapshot.unscheduled
            if pod.created >= int(began)
            and not pod.gated
            and not pod.daemon
            and not pod.expendable
            and pod.deletion is None
            and pod.spec.scheduler in self.snapshot.schedulers
            and self._now - pod.created >= self._rules.pending_timeout
        ]
        if not waiting:
            return ()
        alone = {self.name: self._before(self.node)}
        space = Space(msgspec.structs.replace(self.snapshot, nodes=alone, unscheduled=()))
        return tuple(pod for pod in waiting if space.feasible(space.demand_of(pod)).any())

    def _before(self, node: Node) -> NodeView:
        """Return the node as it would be without its drain."""
        view = self.snapshot.nodes[self.name]
        taints = tuple(each for each in node.taints if each.key not in (DRAINING.key, CORDON.key))
        return NodeView(msgspec.structs.replace(node, taints=taints, unschedulable=False), view.pods, view.usage)


def _opening(refusal: Refusal) -> tuple[bool, Refusal]:
    return refusal.reason not in AFTER_CORDON, refusal


def _going(pod: Pod, tries: Mapping[str, Try]) -> bool:
    last = tries.get(pod.uid)
    return last is not None and last.result.answer in GOING


def _fatal(left: Sequence[Pod], tries: Mapping[str, Try]) -> list[Refusal]:
    found: list[Refusal] = []
    for pod in left:
        last = tries.get(pod.uid)
        if last is None:
            continue
        reason = FATAL.get(last.result.answer)
        if last.result.answer is EvictionAnswer.CONFLICT and last.count > _CONFLICT_TRIES:
            reason = Reason.EVICTION_FAILED
        if reason is not None:
            found.append(Refusal(reason, pod.key, last.result.text))
    return found


def _critical(pod: Pod) -> bool:
    return pod.spec.priority >= SYSTEM_CRITICAL


def _order(pod: Pod) -> tuple[int, int, str]:
    """Low priority first, then pods without requests (BestEffort), then by name so that a drain is repeatable."""
    return pod.spec.priority, 1 if pod.requests.get("cpu") or pod.requests.get("memory") else 0, pod.key


def all_land(space: Space, node: str, pods: Iterable[Pod]) -> bool:
    """Whether each of *pods*, which leave *node*, still has its place on the landing in the snapshot of *space*.

    A search for other places may miss these: whoever chose them may have searched for much longer. *space* stays as it
    is.
    """
    landings, origin = space.snapshot.landings, space.index.get(node)
    if not landings or origin is None:
        return False
    mark = space.mark()
    try:
        space.close(origin)
        asks = [(space.demand_of(pod), space.index.get(landings.get(pod.uid, ""))) for pod in pods]
        for ask, _ in asks:
            space.remove(ask, origin)
        for ask, target in asks:
            if target is None or ask.unknown is not None or not space.accepts(ask, target):
                return False
            space.place(ask, target)
        return True
    finally:
        space.rollback(mark)


_FIX = "see why the pod is bound despite the cordon: spec.nodeName in its template, or a scheduler of its own"


class Returning:
    """Remembers what one drain has evicted, by controller.

    *since* (seconds since 1970) is when an earlier drive began the evictions, if one did. Pods created since then got
    past the cordon, and earlier evictions are unknown.
    """

    def __init__(self, since: float | None = None) -> None:
        self._since = since
        self._known: set[str] = set()
        self._evicted: defaultdict[str, set[str]] = defaultdict(set)
        self._replicas: defaultdict[str, int] = defaultdict(int)

    def evicted(self, pod: Pod) -> None:
        """Record an eviction that the server granted, or may have granted."""
        if pod.owner is not None:
            self._evicted[pod.owner.uid].add(pod.uid)

    def refuses(self, left: Iterable[Pod], snapshot: Snapshot) -> list[Refusal]:
        """Return refusals for the pods in *left*, which are still to evict, that their controllers bring back."""
        found: list[Refusal] = []
        left = tuple(left)
        here = {pod.uid for pod in left}
        for pod in left:
            owner = pod.owner
            if owner is None:
                continue
            gone = len(self._evicted[owner.uid] - here)
            late = self._since is not None and pod.created > self._since
            if pod.uid not in self._known and (gone or late):
                detail = f"{owner} put this pod on the node during the drain"
                if gone:
                    detail += f", after {counted(gone, 'of its pods was', 'of its pods were')} evicted from there"
                found.append(Refusal(Reason.RETURNS_TO_NODE, pod.key, detail, _FIX))
                continue
            self._known.add(pod.uid)
            workload = snapshot.workloads.get(owner.kind, {}).get(f"{pod.namespace}/{owner.name}")
            if workload is None or workload.replicas is None:
                continue
            most = self._replicas[owner.uid] = max(self._replicas[owner.uid], workload.replicas)
            if gone >= most > 0:
                evicted = counted(gone, f"pod of {owner} was", f"pods of {owner} were")
                detail = f"{evicted} evicted from the node, and {owner} has {counted(most, 'replica')}"
                found.append(Refusal(Reason.RETURNS_TO_NODE, pod.key, detail, _FIX))
        return found
