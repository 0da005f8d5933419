"""Explains single nodes of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import Budgets, NodeView, Snapshot
from tightship.cluster.pools import KNOWN_POOL_LABELS, pool_of
from tightship.cluster.snapshot import Usage
from tightship.documents.build import (
    Inputs,
    by_importance,
    other_resources,
    owner_of,
    refusal_entry,
    share,
    share_of,
)
from tightship.documents.document import (
    BudgetEntry,
    FreeingChange,
    GateCheck,
    NodeDetail,
    NodeExplanation,
    PodEntry,
)
from tightship.documents.money import node_cost
from tightship.objects import Pod
from tightship.objects.reasons import Check, Reason, Refusal
from tightship.objects.times import rfc3339
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Candidate, Placement, Planner, Removal
from tightship.planning.plan.model import Utilization
from tightship.rules.disruption import DisruptionLedger

TELLING_LABELS = (
    *KNOWN_POOL_LABELS,
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "karpenter.sh/capacity-type",
    "eks.amazonaws.com/capacityType",
    "cloud.google.com/gke-spot",
    "cloud.google.com/gke-provisioning",
    "kubernetes.azure.com/scalesetpriority",
)
"""Labels that matter for packing: pool, place, size, price."""


def explanation_document(
    inputs: Inputs, names: Sequence[str], checks: Mapping[str, tuple[Check, ...]]
) -> NodeExplanation:
    """Return the explanation of the nodes *names*, all of which must be in the snapshot.

    *checks* are the controller's gates by node; a gate that closed while the plan grew appears closed.
    """
    places = {removal.node: (number, removal) for number, removal in enumerate(inputs.plan.removals, 1)}
    alone = DrainAlone(inputs.snapshot, inputs.plan.placement)
    ledger = DisruptionLedger(inputs.snapshot)

    def detail(name: str) -> NodeDetail:
        facts, place = inputs.facts.get(name) or _uncounted(inputs, name), places.get(name)
        tried = Alone({}, ()) if place is not None else alone.of(name, facts.evict)
        return _detail(inputs, facts, place, tried, checks=checks.get(name, ()), ledger=ledger)

    return NodeExplanation(
        *inputs.head,
        nodes=tuple(detail(name) for name in dict.fromkeys(names)),
        warnings=inputs.warnings,
    )


def _uncounted(inputs: Inputs, name: str) -> NodeFacts:
    """Return the facts of a virtual node, whose amounts and pods count nowhere."""
    node = inputs.snapshot.nodes[name].node
    refusals = inputs.plan.refusals.get(name, ())
    return NodeFacts(NodeView(node, (), Usage()), pool_of(node), Utilization({}, {}), False, (), 0, refusals)


def _detail(
    inputs: Inputs,
    facts: NodeFacts,
    place: tuple[int, Removal] | None,
    alone: Alone,
    *,
    checks: tuple[Check, ...],
    ledger: DisruptionLedger,
) -> NodeDetail:
    node, used = facts.view.node, facts.utilization
    blockers = [] if place is not None else _blockers(inputs.plan.refusals.get(node.name, ()), alone.refusals)
    pod_keys = {pod.key for pod in facts.view.pods}
    by_pod: dict[str, list[Refusal]] = {}
    for refusal in blockers:
        if refusal.subject in pod_keys:
            by_pod.setdefault(refusal.subject, []).append(refusal)
    targets = dict(alone.targets)
    if place is not None:
        targets = {move.pod.key: move.target for move in place[1].moves}
    changes, without = _changes(blockers)
    return NodeDetail(
        name=node.name,
        pool=facts.pool,
        created_at=rfc3339(node.created) if node.created else None,
        age_seconds=max(0, int(inputs.now - node.created)) if node.created else None,
        ready=node.ready,
        cordoned=node.unschedulable,
        labels={label: node.labels[label] for label in TELLING_LABELS if label in node.labels},
        taints=tuple(map(str, node.taints)),
        decision="keep" if place is None else "remove",
        order=None if place is None else place[0],
        round=None if place is None else place[1].round,
        removals=len(inputs.plan.removals),
        utilization={
            "cpuMilli": share_of(used, "cpu"),
            "memoryBytes": share_of(used, "memory"),
            "pods": share(len(facts.view.pods), used.allocatable.get("pods", 0)),
            **{each: share_of(used, each) for each in other_resources(used.allocatable)},
        },
        gates=tuple(_as_planned(each, blockers) for each in checks),
        refusals=tuple(refusal_entry(each) for each in blockers if each.subject not in pod_keys),
        pods=tuple(
            _pod(inputs, pod, facts, targets, refusals=by_pod.get(pod.key, []), ledger=ledger)
            for pod in facts.view.pods
        ),
        changes=changes,
        without_change=without,
        cost=node_cost(facts.price),
        bundle=inputs.bundles.get(node.name),
    )


def _blockers(planned: tuple[Refusal, ...], alone: tuple[Refusal, ...]) -> list[Refusal]:
    """Join the refusals of the plan and of draining only this node, one for each reason and subject."""
    joined = {(each.reason, each.subject): each for each in (*alone, *planned)}
    return by_importance(tuple(joined.values()))


def _as_planned(check: Check, blockers: list[Refusal]) -> GateCheck:
    """Show a gate as it stands, or closed if it closed while the plan grew."""
    reason = "" if check.reason is None else check.reason.value
    if not check.open:
        return GateCheck(check.gate, reason, False, check.detail, check.fix)
    refusal = next((each for each in blockers if each.reason is check.reason), None)
    if refusal is None:
        return GateCheck(check.gate, reason, True, check.detail)
    return GateCheck(check.gate, reason, False, refusal.detail, refusal.fix or check.fix)


def _pod(
    inputs: Inputs,
    pod: Pod,
    facts: NodeFacts,
    targets: Mapping[str, str],
    *,
    refusals: list[Refusal],
    ledger: DisruptionLedger,
) -> PodEntry:
    evicted = any(each is pod for each in facts.evict)
    forecast = inputs.forecast.targets if inputs.forecast is not None else {}
    anew = inputs.snapshot.anew.get(pod.template)
    return PodEntry(
        name=pod.key,
        owner=owner_of(pod),
        phase=pod.phase,
        ready=pod.ready,
        priority=pod.spec.priority,
        cpu_milli=pod.requests.get("cpu", 0),
        memory_bytes=pod.requests.get("memory", 0),
        other={name: pod.requests[name] for name in other_resources(pod.requests)},
        fate="evict" if evicted else "stays" if pod.daemon or pod.mirror or pod.expendable else "leaving",
        anew=anew.changes(pod.requests) or None if evicted and anew is not None else None,
        target=targets.get(pod.key),
        scheduler_target=forecast.get(pod.key),
        budgets=tuple(
            BudgetEntry(
                name=budget.key,
                rule=budget.rule,
                allowed=budget.disruptions_allowed,
                healthy=budget.current_healthy,
                wanted=budget.desired_healthy,
                expected=budget.expected_pods,
            )
            for budget in ledger.budgets_of(pod.template)
        ),
        refusals=tuple(refusal_entry(each) for each in refusals),
    )


def _changes(blockers: list[Refusal]) -> tuple[tuple[FreeingChange, ...], tuple[str, ...]]:
    """Return the union of the smallest changes of all blockers, and the blockers without one."""
    union: dict[str, list[str]] = {}
    without: list[str] = []
    for refusal in blockers:
        blocker = f"{refusal.reason} {refusal.subject}"
        if refusal.fix:
            union.setdefault(refusal.fix, []).append(blocker)
        else:
            without.append(blocker)
    return tuple(FreeingChange(fix, tuple(removed)) for fix, removed in union.items()), tuple(without)


class Alone(Struct, frozen=True):
    """The place of each pod (``namespace/name``) that has one, and the refusals of the others."""

    targets: Mapping[str, str]
    refusals: tuple[Refusal, ...]


class DrainAlone:
    """Simulates draining one node alone, whatever the gates say, so that its blockers elsewhere appear as well.

    Answers for the nodes of one snapshot. Ignores PodDisruptionBudgets, which the judgement has already covered.
    """

    def __init__(self, snapshot: Snapshot, placement: Placement) -> None:
        self._snapshot = msgspec.structs.replace(snapshot, budgets=Budgets(), unreadable=())
        self._placement = placement

    def of(self, name: str, pods: tuple[Pod, ...]) -> Alone:
        """Return the result of draining only *name*, which has *pods*.

        Each attempt sets aside the pods without a place, so that the places of the others are known too.
        """
        snapshot, placement = self._snapshot, self._placement
        left = {pod.key: pod for pod in pods}
        found: dict[tuple[Reason, str], Refusal] = {}
        while True:
            candidate = Candidate(name=name, pool="", ratio=0.0, evict=tuple(left.values()))
            planner = Planner(snapshot, DisruptionLedger(snapshot), (candidate,), placement)
            refusals = planner.attempt(candidate)
            for refusal in refusals:
                found.setdefault((refusal.reason, refusal.subject), refusal)
            if not refusals:
                targets = {move.pod.key: move.target for removal in planner.removals for move in removal.moves}
                return Alone(targets, tuple(sorted(found.values())))
            unplaced = [refusal.subject for refusal in refusals if refusal.subject in left]
            for key in unplaced:
                del left[key]
            if any(refusal.reason is Reason.BUFFER_NEEDS_NODE for refusal in refusals):
                # The pods have places, which a buffer wants as well.
                snapshot = msgspec.structs.replace(snapshot, headroom=())
            elif not unplaced:
                # No single pod is the cause: the scheduler's choices are, or a pending pod that needs this node.
                if placement == "possible":
                    return Alone({}, tuple(sorted(found.values())))
                placement = "possible"
