"""Plans and explanations as documents: the output of ``-o json``, and the source of every other output.

Keys are camelCase in JSON and only ever added within one ``apiVersion``. Amounts are integers whose unit is in the key
(``cpuMilli``, ``memoryBytes``) or, under ``other``, the resource's own; times are RFC 3339 in UTC, to the second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from tightship.documents.advice import AdviceEntry, AdviceSummary, GainEntry, NodeBundle
from tightship.documents.money import MoneySummary, MonthTotals, NodeCost
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason


class Blocker(Struct, frozen=True, rename="camel"):
    """A *reason* with the *thing* behind it (a workload, a budget, a pool) and the number of *nodes* that it keeps.

    It alone keeps *alone* of them, which cost *micros_alone* in a month, *micros* all of them; both are ``null`` if no
    node has a price.
    """

    reason: str
    thing: str
    nodes: int
    alone: int
    micros: int | None = None
    micros_alone: int | None = None


class SearchedPlan(Struct, frozen=True, rename="camel"):
    """The nodes that a plan leaves (*nodes_after*), and its *evictions*."""

    nodes_after: int
    evictions: int


class SearchSummary(Struct, frozen=True, rename="camel"):
    """What a search for a better plan came to, in its first round.

    The search was allowed to take *seconds* and made *iterations*. *greedy* is what the strategy alone would plan,
    *searched* the better of both plans. No plan of one round leaves fewer than *bound* nodes; *solver* found that:
    ``highs`` the best that its linear program has, ``ascent`` one that may be lower. *costliest* is the change of
    settings that frees most nodes, measured by the strategy's own plans; ``null`` if none does, or none was measured.
    """

    seconds: float | None
    iterations: int
    greedy: SearchedPlan
    searched: SearchedPlan
    bound: int
    solver: Literal["highs", "ascent"] = "ascent"
    costliest: AdviceEntry | None = None


class PendingSummary(Struct, frozen=True, rename="camel"):
    """*pods* without a node, of which *could_run* would all find one now, beside each other."""

    pods: int
    could_run: int


class KarpenterSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The *nodes* that are left to Karpenter, of which *node_pools*. *unknown* are those whose settings were not read.

    As if Karpenter did not consolidate, the same plan would leave *nodes_after* nodes of the cluster with *evictions*;
    both are ``None`` where nobody asked.
    """

    nodes: int
    node_pools: tuple[str, ...]
    unknown: tuple[str, ...] = ()
    nodes_after: int | None = None
    evictions: int | None = None


API_VERSION: Final = "tightship.dev/v1"

Decision = Literal["remove", "keep"]

Plain: TypeAlias = bool | int | float | str | None
Setting: TypeAlias = Plain | list[str] | dict[str, dict[str, Plain] | str]
"""The value of a setting: a scalar, a list of words, or words or settings by name."""


class Generator(Struct, frozen=True, rename="camel"):
    """The program that made a document."""

    name: str
    version: str


class Source(Struct, frozen=True, rename="camel"):
    """The origin of the cluster: a ``file`` (``-`` is standard input) or a ``cluster`` (its context)."""

    type: Literal["file", "cluster"]
    name: str

    @property
    def shown(self) -> str:
        """The name for people."""
        return "standard input" if self.name == "-" else self.name


class SettingsView(Struct, frozen=True, rename="camel"):
    """The settings in force: one line for people, and all values by the keys of the configuration file."""

    summary: str
    values: Mapping[str, Setting]


class Head(Struct, frozen=True, rename="camel"):
    """The beginning of a document: its author, source and time."""

    api_version: Literal["tightship.dev/v1"]
    generator: Generator
    source: Source
    evaluated_at: str

    @property
    def judged(self) -> str:
        """The source and the time of the judgement."""
        return f"{self.source.type} {self.source.shown} at {self.evaluated_at}"


class NodeHead(Head, frozen=True, rename="camel"):
    """The beginning of a document about nodes."""

    strategy: str
    placement: str
    settings: SettingsView

    @property
    def heading(self) -> tuple[str, str]:
        """The source and time of the judgement, and its settings."""
        return self.judged, f"{self.settings.summary}; strategy {self.strategy}, placement {self.placement}"


class Share(Struct, frozen=True, rename="camel"):
    """Requested of allocatable. *ratio* has four decimals, and is ``null`` if nothing is allocatable."""

    requested: int
    allocatable: int
    ratio: float | None


class RefusalEntry(Struct, frozen=True, rename="camel"):
    """One thing that keeps a node; *fix* is the smallest change that would remove it, ``null`` if none is known."""

    reason: str
    subject: str
    detail: str
    fix: str | None


class MoveEntry(Struct, frozen=True, rename="camel"):
    """One eviction of the plan.

    *to* is where the pod can go, *scheduler_to* where kube-scheduler would first put it by our model of its scoring
    (``null`` without a forecast), *waits_for* the PodDisruptionBudget that lets pods go only one after another.
    """

    pod: str
    owner: str | None
    cpu_milli: int
    memory_bytes: int
    to: str
    scheduler_to: str | None
    waits_for: str | None


class PodCounts(Struct, frozen=True, rename="camel"):
    """Pods of a node: *evictable* ones, DaemonSet and mirror pods that go *with_node*, and ones already *leaving*."""

    total: int
    evictable: int
    with_node: int
    leaving: int


class NodeEntry(Struct, frozen=True, rename="camel"):
    """One node: its utilization, and its place in the plan (*order* and *round*, from 1) or the reasons that keep it.

    *reasons* are the distinct words of *refusals*, the most important first. *cost* is ``null`` without a price.
    *cpu_milli_arriving* is what the pods request that the plan leaves here.
    """

    name: str
    pool: str
    created_at: str | None
    age_seconds: int | None
    ready: bool
    decision: Decision
    order: int | None
    round: int | None
    cpu_milli: Share
    memory_bytes: Share
    other: Mapping[str, Share]
    pods: PodCounts
    moves: tuple[MoveEntry, ...]
    reasons: tuple[str, ...]
    refusals: tuple[RefusalEntry, ...]
    cost: NodeCost | None = None
    cpu_milli_arriving: int = 0


class NodeTotals(Struct, frozen=True, rename="camel"):
    """Nodes, or what is allocatable on them, before the plan and after it."""

    before: int
    after: int
    removed: int


class ShareTotals(Struct, frozen=True, rename="camel"):
    """A resource over the whole cluster. The allocatable amount of *after* is the capacity kept."""

    before: Share
    after: Share


class PoolEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One pool: its nodes, its extended resources, and its price for a month, ``null`` if none of its nodes has one."""

    pool: str
    nodes: NodeTotals
    other: Mapping[str, NodeTotals]
    micros_per_month: MonthTotals | None = None


class KeptBy(Struct, frozen=True, rename="camel"):
    """A reason and the number of *nodes* that it keeps; it is the only reason for *alone* of them.

    *gain* is what a plan without the reason would remove besides, ``null`` if that was not measured.
    """

    reason: str
    nodes: int
    alone: int
    gain: GainEntry | None = None


class StuckNode(Struct, frozen=True, rename="camel"):
    """A planned node that kube-scheduler's own choices would leave undrained, by our model."""

    node: str
    refusals: tuple[RefusalEntry, ...]


class SchedulerForecast(Struct, frozen=True, rename="camel"):
    """The result of the first round if kube-scheduler placed every pod by its default scoring, by our model."""

    removed: int
    nodes_after: int
    evictions: int
    pods_evicted: int
    stuck: tuple[StuckNode, ...]


class ExcessSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many nodes the cluster could do without before anything is planned, and the figures behind that number.

    *nodes* is the smaller of *cpu* and *memory*, *resource* names the smaller one, and all three refer to *candidate*.
    A figure is ``null`` if the candidate has none of the resource; all are ``null`` if no node is counted. *could_go*
    nodes could really go, pod by pod. *cpu_milli* and *memory_bytes* are the sums of *counted_nodes* nodes. *dedicated*
    has the same for each dedicated pool, by its taints.
    """

    nodes: float | None
    resource: Literal["cpu", "memory"] | None
    cpu: float | None
    memory: float | None
    candidate: str | None
    could_go: int
    threshold: float
    counted_nodes: int
    cpu_milli: Share
    memory_bytes: Share
    dedicated: Mapping[str, ExcessSummary] = {}


class Summary(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The plan in numbers. *evictions* are of *pods_evicted* different pods. *waits_for* are PodDisruptionBudgets that
    let pods go only one after another.

    *other* are extended resources. *money* exists only if some node has a price, *excess* only if the controller uses
    that figure, *search* only if it was asked for, *karpenter* only if nodes are left to Karpenter,
    *pending* only if pods wait for a node and somebody asked. *blockers* are what keeps the rest, what alone keeps most
    money first. *trough* says what suggests that the fleet is needed in full at other hours, empty if nothing does.
    """

    nodes: NodeTotals
    cpu_milli: ShareTotals
    memory_bytes: ShareTotals
    evictions: int
    pods_evicted: int
    rounds: int
    waits_for: tuple[str, ...]
    kept_by: tuple[KeptBy, ...]
    scheduler: SchedulerForecast | None
    excess: ExcessSummary | None = None
    search: SearchSummary | None = None
    other: Mapping[str, ShareTotals] = {}
    pools: tuple[PoolEntry, ...] = ()
    money: MoneySummary | None = None
    karpenter: KarpenterSummary | None = None
    pending: PendingSummary | None = None
    blockers: tuple[Blocker, ...] = ()
    trough: str = ""


class NodePlan(NodeHead, frozen=True, rename="camel", omit_defaults=True, tag_field="kind", tag="NodePlan"):
    """The nodes to remove and the reasons that keep the rest, of one cluster at one time.

    *held* says which of the nodes to remove have to wait, and why: a cool-down, a regret, the health brake. *advice*
    exists only if it was asked for.
    """

    summary: Summary
    nodes: tuple[NodeEntry, ...]
    warnings: tuple[str, ...]
    held: Mapping[str, RefusalEntry] = {}
    advice: AdviceSummary | None = None


Fate = Literal["evict", "stays", "leaving"]
"""The effect of a drain on a pod: evicts it, lets it go with the node, or awaits its deletion under way."""


class GateCheck(Struct, frozen=True, rename="camel"):
    """One gate of the controller with its numbers. *reason* is its refusal's word, *fix* what opens it if closed."""

    name: str
    reason: str
    passed: bool
    detail: str
    fix: str = ""


class BudgetEntry(Struct, frozen=True, rename="camel"):
    """A PodDisruptionBudget that covers a pod, and the evictions that it allows now."""

    name: str
    rule: str
    allowed: int
    healthy: int
    wanted: int
    expected: int


class PodEntry(Struct, frozen=True, rename="camel"):
    """One pod of the node.

    *target* is the pod's new node in the plan, or if only this one were drained; ``null`` if the pod stays or has no
    place. *anew* says what a VPA changes in its replacement.
    """

    name: str
    owner: str | None
    phase: str
    ready: bool
    priority: int
    cpu_milli: int
    memory_bytes: int
    other: Mapping[str, int]
    fate: Fate
    anew: str | None
    target: str | None
    scheduler_target: str | None
    budgets: tuple[BudgetEntry, ...]
    refusals: tuple[RefusalEntry, ...]


class FreeingChange(Struct, frozen=True, rename="camel"):
    """A change, and the blockers (``Reason subject``) it removes."""

    change: str
    removes: tuple[str, ...]


class NodeDetail(Struct, frozen=True, rename="camel"):
    """Everything about one node.

    Together, *changes* free the node; *without_change* are the blockers without a known small change. *bundle* is the
    smallest known set of changes that frees the node when planned again. A node that the plan removes has none of them.
    """

    name: str
    pool: str
    created_at: str | None
    age_seconds: int | None
    ready: bool
    cordoned: bool
    labels: Mapping[str, str]
    taints: tuple[str, ...]
    decision: Decision
    order: int | None
    round: int | None
    removals: int
    utilization: Mapping[str, Share]
    gates: tuple[GateCheck, ...]
    refusals: tuple[RefusalEntry, ...]
    pods: tuple[PodEntry, ...]
    changes: tuple[FreeingChange, ...]
    without_change: tuple[str, ...]
    cost: NodeCost | None = None
    bundle: NodeBundle | None = None


class NodeExplanation(NodeHead, frozen=True, rename="camel", tag_field="kind", tag="NodeExplanation"):
    """Why each of some nodes goes or stays, of one cluster at one time."""

    nodes: tuple[NodeDetail, ...]
    warnings: tuple[str, ...]


DEFAULT_ORDER = "decision"

_Key = Callable[[NodeEntry], tuple[float | str, ...]]


def _ratio(share: Share) -> float:
    return share.ratio if share.ratio is not None else -1.0


_KEYS: Mapping[str, _Key] = {
    DEFAULT_ORDER: lambda node: (
        node.order if node.order is not None else float("inf"),
        node.pool,
        _ratio(node.cpu_milli),
        node.name,
    ),
    "name": lambda node: (node.name,),
    "pool": lambda node: (node.pool, _ratio(node.cpu_milli), node.name),
    "cpu": lambda node: (_ratio(node.cpu_milli), node.name),
    "memory": lambda node: (_ratio(node.memory_bytes), node.name),
    "price": lambda node: (-(node.cost.micros_per_hour if node.cost is not None else -1), node.name),
    "age": lambda node: (-(node.age_seconds or 0), node.name),
}

ORDERS: tuple[str, ...] = tuple(_KEYS)
"""Words of ``--sort-by``. ``decision``: removals in their order, then the rest by pool and CPU ratio; ``age``: the
oldest first; ``price``: the dearest first; ``cpu`` and ``memory``: the emptiest first."""


def sorted_nodes(nodes: tuple[NodeEntry, ...], by: str) -> tuple[NodeEntry, ...]:
    """Return *nodes* in the order of one of :data:`ORDERS`, then by name."""
    return tuple(sorted(nodes, key=_KEYS[by]))


SHOW: Final = ("removals", "kept", "all")
"""Words of ``--show``."""

SUMMARY_FROM = 100
"""Nodes from which on a plan is printed as a summary unless ``-o`` says otherwise."""

SUMMARY_ROWS = 5
"""Nodes that a summary prints unless ``--limit-rows`` says otherwise."""


class ShownRows(Struct, frozen=True):
    """What ``--show`` and ``--limit-rows`` say; without *show*, nodes that stay for a reason of *unasked* are left out.

    Such nodes are those that ``--pool``, ``--selector`` and ``--max-nodes`` exclude.
    """

    show: str = ""
    limit: int | None = None
    unasked: frozenset[Reason] = frozenset({Reason.NOT_SELECTED})

    def of(self, plan: NodePlan, *, brief: bool = False) -> tuple[tuple[NodeEntry, ...], str]:
        """Return the nodes of *plan* to print, and what says that there are more; *brief* is as a summary has them."""
        show = self.show or ("removals" if brief and plan.summary.nodes.removed else "")
        limit = SUMMARY_ROWS if self.limit is None and brief else self.limit
        found = plan.nodes
        if show in ("removals", "kept"):
            found = tuple(each for each in found if (each.decision == "remove") == (show == "removals"))
        elif not show:
            found = tuple(each for each in found if not self.unasked.intersection(each.reasons))
        rows = found if limit is None else found[:limit]
        if len(rows) == len(plan.nodes):
            return rows, ""
        left = len(found) - len(rows)
        if not left:
            return rows, "" if brief else f"{counted(len(rows), 'row')} of {counted(len(plan.nodes), 'node')}"
        noun = {"removals": "more removal", "kept": "more kept node"}.get(show, "more node")
        return rows, f"and {counted(left, noun)} (--show {show or 'all'} --limit-rows {len(found)}, or -o table)"
