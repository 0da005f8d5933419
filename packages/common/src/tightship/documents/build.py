"""Makes the document of a plan, whichever controller decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.owners import named
from tightship.cluster.pools import pool_of, shown
from tightship.documents.advice import AdviceEntry, AdviceSummary, GainEntry, NodeBundle
from tightship.documents.document import (
    API_VERSION,
    DEFAULT_ORDER,
    Blocker,
    ExcessSummary,
    Generator,
    KarpenterSummary,
    KeptBy,
    MoveEntry,
    NodeEntry,
    NodePlan,
    NodeTotals,
    PendingSummary,
    PodCounts,
    PoolEntry,
    RefusalEntry,
    SchedulerForecast,
    SearchedPlan,
    SearchSummary,
    SettingsView,
    Share,
    ShareTotals,
    Source,
    StuckNode,
    Summary,
    sorted_nodes,
)
from tightship.documents.money import NodeCost, money_summary, month_totals, node_cost
from tightship.objects import Pod
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.resources import Resources
from tightship.objects.times import rfc3339
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Forecast, Plan, Removal
from tightship.planning.plan.model import Searched, Utilization
from tightship.rules.karpenter import karpenter_pool


class Inputs(Struct, frozen=True):
    """A snapshot, its plan, and the contents of the document's head.

    *now* is in seconds since 1970. *held* says which planned nodes have to wait, and why. *costs* are what more
    would go without each reason, *bundles* what would free a node, by its name. *costliest* is the change of settings
    that would free most nodes.
    *pending* are the pods without a node. *as_if_unmanaged* is the plan as if Karpenter consolidated nothing.
    """

    generator: Generator
    source: Source
    settings: SettingsView
    snapshot: Snapshot
    facts: Mapping[str, NodeFacts]
    plan: Plan
    now: float
    forecast: Forecast | None = None
    warnings: tuple[str, ...] = ()
    excess: ExcessSummary | None = None
    held: Mapping[str, Refusal] = {}
    as_if_unmanaged: Plan | None = None
    costliest: AdviceEntry | None = None
    advice: AdviceSummary | None = None
    costs: Mapping[Reason, GainEntry] = {}
    bundles: Mapping[str, NodeBundle] = {}
    pending: PendingSummary | None = None

    @property
    def head(self) -> tuple[Literal["tightship.dev/v1"], Generator, Source, str, str, str, SettingsView]:
        """The fields of a :class:`~tightship.documents.document.NodeHead`, in their order."""
        plan, at = self.plan, rfc3339(self.now)
        return API_VERSION, self.generator, self.source, at, plan.strategy, plan.placement, self.settings


_IMPORTANCE = {reason: number for number, reason in enumerate(Reason)}


def by_importance(refusals: tuple[Refusal, ...]) -> list[Refusal]:
    """Sort the most important first: refusals of the node, of gates, of pods, of PDBs, and of room elsewhere."""
    return sorted(refusals, key=lambda each: (_IMPORTANCE[each.reason], each.subject, each.detail))


def importance(reason: str) -> int:
    """Return the rank of a reason's word, 0 the most important."""
    return _IMPORTANCE[Reason(reason)]


def refusal_entry(refusal: Refusal) -> RefusalEntry:
    """Return *refusal* for the document."""
    return RefusalEntry(refusal.reason.value, refusal.subject, refusal.detail, refusal.fix or None)


def share(requested: int, allocatable: int) -> Share:
    """Return a share with its ratio."""
    return Share(requested, allocatable, round(requested / allocatable, 4) if allocatable > 0 else None)


def share_of(utilization: Utilization, resource: str) -> Share:
    """Return the share of *resource* of one node."""
    return share(utilization.requested.get(resource, 0), utilization.allocatable.get(resource, 0))


_SHOWN_ALWAYS = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


def other_resources(amounts: Resources) -> list[str]:
    """Return the names of extended resources and huge pages in *amounts* that are not zero."""
    return sorted(name for name, amount in amounts.items() if amount and name not in _SHOWN_ALWAYS)


def extended_resources(nodes: Iterable[NodeEntry]) -> list[str]:
    """Return the names of the extended resources (GPUs and the like) of *nodes*, GPUs first."""
    names = {name for node in nodes for name in node.other if "/" in name}
    return sorted(names, key=lambda name: ("gpu" not in name, name))


def owner_of(pod: Pod) -> str | None:
    """Return ``Kind/name`` of the pod's controller."""
    return str(pod.owner) if pod.owner is not None else None


def plan_document(inputs: Inputs, sort_by: str = DEFAULT_ORDER) -> NodePlan:
    """Return the document of a plan, its nodes in the order *sort_by*."""
    places = {removal.node: (number, removal) for number, removal in enumerate(inputs.plan.removals, 1)}
    arriving: Counter[str] = Counter()
    for move in {move.pod.key: move for removal in inputs.plan.removals for move in removal.moves}.values():
        arriving[move.target] += inputs.snapshot.requests_anew(move.pod).get("cpu", 0)
    nodes = tuple(_node(inputs, name, facts, places.get(name), arriving[name]) for name, facts in inputs.facts.items())
    nodes += tuple(_uncounted(inputs, name) for name in sorted(inputs.plan.refusals.keys() - inputs.facts.keys()))
    return NodePlan(
        *inputs.head,
        summary=_summary(inputs, nodes),
        nodes=sorted_nodes(nodes, sort_by),
        held={name: refusal_entry(refusal) for name, refusal in sorted(inputs.held.items())},
        warnings=inputs.warnings,
        advice=inputs.advice,
    )


def _node(inputs: Inputs, name: str, facts: NodeFacts, place: tuple[int, Removal] | None, arriving: int) -> NodeEntry:
    node, used = facts.view.node, facts.utilization
    reasons, refusals = _refused(() if place is not None else inputs.plan.refusals.get(name, ()))
    return NodeEntry(
        name=name,
        pool=facts.pool,
        created_at=rfc3339(node.created) if node.created else None,
        age_seconds=max(0, int(inputs.now - node.created)) if node.created else None,
        ready=node.ready,
        decision="keep" if place is None else "remove",
        order=None if place is None else place[0],
        round=None if place is None else place[1].round,
        cpu_milli=share_of(used, "cpu"),
        memory_bytes=share_of(used, "memory"),
        other={each: share_of(used, each) for each in other_resources(used.allocatable)},
        pods=_pods(facts),
        moves=() if place is None else _moves(inputs, place[1]),
        reasons=reasons,
        refusals=refusals,
        cost=node_cost(facts.price),
        cpu_milli_arriving=0 if place is not None else arriving,
    )


def _uncounted(inputs: Inputs, name: str) -> NodeEntry:
    """Return the entry of a virtual node, whose amounts count nowhere, or of an unreadable one."""
    reasons, refusals = _refused(inputs.plan.refusals[name])
    view = inputs.snapshot.nodes.get(name)
    created = 0 if view is None else view.node.created
    return NodeEntry(
        name=name,
        pool="" if view is None else pool_of(view.node),
        created_at=rfc3339(created) if created else None,
        age_seconds=max(0, int(inputs.now - created)) if created else None,
        ready=view is not None and view.node.ready,
        decision="keep",
        order=None,
        round=None,
        cpu_milli=share(0, 0),
        memory_bytes=share(0, 0),
        other={},
        pods=PodCounts(0 if view is None else len(view.pods), 0, 0, 0),
        moves=(),
        reasons=reasons,
        refusals=refusals,
    )


def _refused(refusals: Sequence[Refusal]) -> tuple[tuple[str, ...], tuple[RefusalEntry, ...]]:
    """Return the distinct words of *refusals* and all their entries, the most important first."""
    found = by_importance(tuple(refusals))
    return tuple(dict.fromkeys(each.reason.value for each in found)), tuple(map(refusal_entry, found))


def _pods(facts: NodeFacts) -> PodCounts:
    refused = {refusal.subject for refusal in facts.refusals}
    pods = facts.view.pods
    with_node = sum(1 for pod in pods if pod.daemon or pod.mirror)
    return PodCounts(
        total=len(pods),
        evictable=sum(1 for pod in facts.evict if pod.key not in refused) if refused else len(facts.evict),
        with_node=with_node,
        leaving=len(pods) - with_node - len(facts.evict),
    )


def _moves(inputs: Inputs, removal: Removal) -> tuple[MoveEntry, ...]:
    targets = inputs.forecast.targets if inputs.forecast is not None else {}
    return tuple(
        MoveEntry(
            pod=move.pod.key,
            owner=owner_of(move.pod),
            cpu_milli=inputs.snapshot.requests_anew(move.pod).get("cpu", 0),
            memory_bytes=inputs.snapshot.requests_anew(move.pod).get("memory", 0),
            to=move.target,
            scheduler_to=targets.get(move.pod.key),
            waits_for=move.waits_for or None,
        )
        for move in sorted(removal.moves, key=lambda each: (each.pod.namespace, each.pod.name))
    )


def _summary(inputs: Inputs, nodes: tuple[NodeEntry, ...]) -> Summary:
    plan, every = inputs.plan, nodes
    nodes = tuple(each for each in every if Reason.VIRTUAL_NODE not in each.reasons)
    removed, virtual = len(plan.removals), len(every) - len(nodes)
    return Summary(
        nodes=NodeTotals(len(nodes), len(nodes) - removed, removed),
        cpu_milli=_totals(inputs, "cpu", [(each, each.cpu_milli) for each in nodes]),
        memory_bytes=_totals(inputs, "memory", [(each, each.memory_bytes) for each in nodes]),
        evictions=plan.evictions,
        pods_evicted=plan.pods,
        rounds=plan.rounds,
        waits_for=tuple(
            sorted({move.waits_for for removal in plan.removals for move in removal.moves if move.waits_for})
        ),
        kept_by=_kept_by(every, inputs),
        scheduler=_forecast(inputs, len(nodes)),
        excess=inputs.excess,
        search=search_summary(plan.searched, len(nodes), len(inputs.facts) + virtual, inputs.costliest),
        other={each: _totals(inputs, each, _parts(nodes, each)) for each in extended_resources(nodes)},
        pools=_pools(nodes),
        money=money_summary(_costs(nodes)),
        karpenter=karpenter_summary(inputs.snapshot, plan.refusals, inputs.as_if_unmanaged, len(inputs.facts)),
        pending=inputs.pending,
        blockers=blockers(inputs.snapshot, inputs.facts, plan.refusals),
        trough=trough(inputs.snapshot, inputs.now),
    )


def _parts(nodes: Sequence[NodeEntry], resource: str) -> list[tuple[NodeEntry, Share]]:
    return [(each, each.other.get(resource, share(0, 0))) for each in nodes]


def _costs(nodes: Iterable[NodeEntry]) -> list[tuple[NodeCost | None, bool]]:
    return [(each.cost, each.decision == "remove") for each in nodes]


def _pools(nodes: tuple[NodeEntry, ...]) -> tuple[PoolEntry, ...]:
    pools: dict[str, list[NodeEntry]] = {}
    for node in nodes:
        pools.setdefault(node.pool, []).append(node)
    return tuple(
        PoolEntry(
            pool=name,
            nodes=_before_and_after([(1, each) for each in own]),
            other={
                resource: _before_and_after([(part.allocatable, each) for each, part in _parts(own, resource)])
                for resource in extended_resources(own)
            },
            micros_per_month=month_totals(_costs(own)),
        )
        for name, own in sorted(pools.items())
    )


def _before_and_after(amounts: Sequence[tuple[int, NodeEntry]]) -> NodeTotals:
    before = sum(amount for amount, _ in amounts)
    removed = sum(amount for amount, node in amounts if node.decision == "remove")
    return NodeTotals(before, before - removed, removed)


def _totals(inputs: Inputs, resource: str, parts: list[tuple[NodeEntry, Share]]) -> ShareTotals:
    """Sum over all nodes, and over the kept nodes with the moved pods; a pod moved twice counts once, and one that ends
    on a virtual node nowhere.
    """
    ended = {move.pod.key: move for removal in inputs.plan.removals for move in removal.moves}
    moved = {key: move.pod for key, move in ended.items() if move.target in inputs.facts}
    kept = [part for node, part in parts if node.decision == "keep"]
    arriving = sum(inputs.snapshot.requests_anew(pod).get(resource, 0) for pod in moved.values())
    return ShareTotals(
        before=share(sum(part.requested for _, part in parts), sum(part.allocatable for _, part in parts)),
        after=share(sum(part.requested for part in kept) + arriving, sum(part.allocatable for part in kept)),
    )


def _kept_by(nodes: tuple[NodeEntry, ...], inputs: Inputs) -> tuple[KeptBy, ...]:
    counts: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    for node in nodes:
        counts.update(node.reasons)
        if len(node.reasons) == 1:
            alone.update(node.reasons)
    order = sorted(counts.items(), key=lambda item: (-item[1], importance(item[0])))
    return tuple(KeptBy(reason, number, alone[reason], inputs.costs.get(Reason(reason))) for reason, number in order)


def _forecast(inputs: Inputs, nodes: int) -> SchedulerForecast | None:
    forecast = inputs.forecast
    if forecast is None:
        return None

    stuck = tuple(StuckNode(name, _refused(refusals)[1]) for name, refusals in forecast.stuck.items())
    return SchedulerForecast(forecast.removed, nodes - forecast.removed, forecast.evictions, forecast.pods, stuck)


def karpenter_summary(
    snapshot: Snapshot, refusals: Mapping[str, tuple[Refusal, ...]], as_if: Plan | None, nodes: int = 0
) -> KarpenterSummary | None:
    """Return what is left to Karpenter by *refusals* of a plan on *snapshot*, ``None`` if nothing is.

    *as_if* is the plan of the *nodes* nodes without the rule.
    """
    left = [
        snapshot.nodes[name].node
        for name, found in refusals.items()
        if name in snapshot.nodes and any(each.reason is Reason.KARPENTER_MANAGED for each in found)
    ]
    if not left:
        return None
    pools = sorted({name for node in left if (name := karpenter_pool(node)) is not None})
    return KarpenterSummary(
        nodes=len(left),
        node_pools=tuple(pools),
        unknown=tuple(name for name in pools if name not in snapshot.node_pools or snapshot.node_pools[name].problem),
        nodes_after=None if as_if is None else nodes - len(as_if.removals),
        evictions=None if as_if is None else as_if.evictions,
    )


def search_summary(
    found: Searched | None, nodes: int, known: int, costliest: AdviceEntry | None = None
) -> SearchSummary | None:
    """Return what a search of a cluster of *nodes* nodes came to, ``None`` without a search.

    The search knows *known* nodes: virtual ones besides, which stay, and none that could not be read, which stay too.
    """
    if found is None or (found.seconds is None and not found.iterations):
        return None
    return SearchSummary(
        seconds=found.seconds,
        iterations=found.iterations,
        greedy=SearchedPlan(nodes - found.greedy_removed, found.greedy_evictions),
        searched=SearchedPlan(nodes - found.removed, found.evictions),
        bound=found.bound + nodes - known,
        solver="highs" if found.solved else "ascent",
        costliest=costliest,
    )


MOST_AT_MINIMUM = 0.5
"""Part of the HPAs at their minimum from which on a plan says that this may be a trough."""


NIGHT = range(6)
"""Hours, in UTC, at which a plan asks whether it is off-peak, where no HPA tells."""


def trough(snapshot: Snapshot, now: float) -> str:
    """Return what suggests at *now* (seconds since 1970) that more nodes are needed at other hours, or nothing."""
    scaling = [
        each
        for each in snapshot.autoscalers.values()
        if each.deletion is None and each.current_replicas is not None and each.min_replicas < each.max_replicas
    ]
    if scaling:
        least = sum((each.current_replicas or 0) <= each.min_replicas for each in scaling)
        if least < MOST_AT_MINIMUM * len(scaling):
            return ""
        of = counted(len(scaling), "HPA")
        return f"{least:,} of {of} {'is' if least == 1 else 'are'} at the minimum: at a peak, more nodes are needed"
    at = rfc3339(now)[len("2026-01-01T") :][: len("00:00")]
    night = int(at[:2]) in NIGHT
    return f"it is {at} UTC: if that is off-peak, more nodes are needed later" if night else ""


OF_BUDGETS = frozenset({Reason.PDB_NEVER_ALLOWS, Reason.PDB_EXHAUSTED, Reason.PDB_NOT_CURRENT, Reason.PDB_SYNC_FAILED})
"""Reasons behind which a budget stands, and not the workload."""

PASSING = frozenset(
    {
        Reason.PDB_SPENT_BY_PLAN,
        Reason.FILLED_BY_PLAN,
        Reason.NOT_SELECTED,
        Reason.MAX_NODES_REACHED,
        Reason.MAX_EVICTIONS_REACHED,
    }
)
"""Reasons that the plan itself, or the command, gives: nothing is to be changed about them."""


def blockers(
    snapshot: Snapshot, facts: Mapping[str, NodeFacts], refusals: Mapping[str, tuple[Refusal, ...]]
) -> tuple[Blocker, ...]:
    """Return what keeps nodes by *refusals*: first what alone keeps most money, then what keeps most nodes."""
    pods = {pod.key: pod for view in snapshot.nodes.values() for pod in view.pods}
    thing_of: dict[tuple[Reason, str], str] = {}
    kept: dict[tuple[str, str], list[int]] = {}
    priced = any(fact.price is not None for fact in facts.values())
    for name, found in refusals.items():
        if any(each.reason is Reason.NOT_SELECTED for each in found) or name not in facts:
            continue
        price = facts[name].price
        cost = 0 if price is None else price.monthly
        things: dict[tuple[str, str], None] = {}
        for each in found:
            place = each.reason, each.subject
            if place not in thing_of:
                thing_of[place] = _thing(snapshot, pods.get(each.subject), each, facts[name].pool)
            things[each.reason.value, thing_of[place]] = None
        for thing in things:
            sums = kept.setdefault(thing, [0, 0, 0, 0])
            sums[0] += 1
            sums[2] += cost
            if len(things) == 1:
                sums[1] += 1
                sums[3] += cost
    rows = [
        Blocker(reason, thing, nodes, alone, micros if priced else None, by_it if priced else None)
        for (reason, thing), (nodes, alone, micros, by_it) in kept.items()
        if Reason(reason) not in PASSING
    ]
    return tuple(sorted(rows, key=_worth))


def _worth(each: Blocker) -> tuple[int, int, int, int, str, str]:
    return -(each.micros_alone or 0), -each.alone, -(each.micros or 0), -each.nodes, each.reason, each.thing


def _thing(snapshot: Snapshot, pod: Pod | None, refusal: Refusal, pool: str) -> str:
    if pod is None:
        return refusal.subject if refusal.reason is Reason.LOCAL_STORAGE else f"pool {shown(pool)}"
    if refusal.reason in OF_BUDGETS:
        found = snapshot.budgets.of(pod.template)
        if len(found) == 1:
            return f"PDB {found[0].key}"
    return f"{pod.namespace}/{named(snapshot, pod)}"
