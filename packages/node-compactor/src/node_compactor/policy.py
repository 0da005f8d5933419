"""The compactor's judgement: a snapshot, settings, marks and a time in; decisions and refusals out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import islice

from msgspec import Struct

from node_compactor.settings import CompactorSettings, PoolSettings
from tightship.core.counting import counted
from tightship.core.drain_record import Phase
from tightship.core.durations import format_duration
from tightship.core.objects import Node
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Snapshot
from tightship.planning.demand import Ahead
from tightship.planning.evictability import EvictionRules, awaited_for
from tightship.planning.facts import FactRules, gather, judgement, plannable
from tightship.planning.facts import NodeFacts as CommonFacts
from tightship.planning.nodes import NodeRules, drain_record, left_without, legacy_state, opt_outs
from tightship.planning.plan import Candidate, Judgement, Planner
from tightship.planning.pools import pool_of, shown
from tightship.planning.utilization import UtilizationRules

CONTROLLER = "node-compactor"
"""Our name in annotations, taints, claims and metrics."""


class NodeFacts(CommonFacts, frozen=True, kw_only=True):
    """What is known of one node before a plan, the compactor's gates included."""

    settings: PoolSettings | None
    underutilized: bool


class Marks(Struct, frozen=True):
    """Since when nodes have been marked underutilized, in seconds since 1970; what is absent is not marked."""

    since: Mapping[str, float] = {}

    @classmethod
    def of(cls, snapshot: Snapshot, controller: str = CONTROLLER) -> Marks:
        """Return the marks written on the nodes: our own, and, where there is none, the older controller's.

        A mark that another controller wrote as such is by that one's rule, and none of ours. Beside a back-off it is
        ours, whoever's drain failed: only we add it there.
        """
        found: dict[str, float] = {}
        for name, view in snapshot.nodes.items():
            record = drain_record(view.node)
            if record is not None and record.phase is Phase.MARKED and record.controller != controller:
                continue
            since = None if record is None else record.entered(Phase.MARKED)
            if since is None:
                state = legacy_state(view.node)
                since = None if state is None else state.marked_since
            if since is not None:
                found[name] = since
        return cls(found)


def eviction_rules(settings: CompactorSettings) -> EvictionRules:
    """Return the rules for pods; a drain and the plan before it go by the same."""
    return EvictionRules(
        settings.disabled_rules,
        settings.system_pod_timeout,
        awaited_for(settings.await_timeout),
        settings.node_timeout,
    )


def demand_ahead(settings: CompactorSettings) -> Ahead:
    """Return for which demand without pods room is kept."""
    return settings.ahead(settings.disabled_rules)


def pool_refusals(name: str, pool: str, settings: PoolSettings | None) -> list[Refusal]:
    """Return why nothing of *pool*, whose settings are these, is drained; *name* is the node asked about."""
    if settings is None:
        detail = f'pool {shown(pool)} is not in the configuration, and there is no "*" entry'
        return [Refusal(Reason.POOL_NOT_CONFIGURED, name, detail, f'add pool {shown(pool)} or "*" to nodePools')]
    if not settings.enabled:
        fix = f"set enabled: true for pool {shown(pool)}"
        return [Refusal(Reason.POOL_DISABLED, name, f"pool {shown(pool)} is not enabled", fix)]
    return []


def below_minimum(name: str, pool: str, left: int, settings: PoolSettings) -> list[Refusal]:
    """Return why node *name* may not go, if *pool* then has so many nodes *left*."""
    if left >= settings.minimum_nodes:
        return []
    detail = f"pool {shown(pool)} would keep {counted(left, 'node')}, its minimum is {settings.minimum_nodes}"
    return [Refusal(Reason.POOL_MIN_SIZE, name, detail)]


def keeps(settings: CompactorSettings, snapshot: Snapshot, node: Node) -> list[Refusal]:
    """Return what keeps *node* of *snapshot* as a whole, and may begin to while it is drained."""
    pool = pool_of(node, settings.pool_labels)
    own = settings.pool(pool)
    found = [*opt_outs(node, NodeRules(settings.disabled_rules)), *pool_refusals(node.name, pool, own)]
    if own is None or not own.minimum_nodes:
        return found
    rest = left_without(snapshot, node.name)
    mates = (each for each in rest if each.ready and pool_of(each, settings.pool_labels) == pool)
    # Asked at every look: enough are enough.
    return found + below_minimum(node.name, pool, sum(1 for _ in islice(mates, own.minimum_nodes)), own)


class Policy:
    """Judges snapshots under one set of settings at one time.

    *only* limits what may be removed to these nodes (a selector on the command line); the rest still receives pods.
    """

    def __init__(
        self,
        settings: CompactorSettings,
        now: float,
        marks: Marks = Marks(),
        only: Collection[str] | None = None,
    ) -> None:
        self.settings = settings
        self.now = now
        self.marks = marks
        self.only = only
        self._rules = FactRules(
            nodes=NodeRules(settings.disabled_rules),
            eviction=eviction_rules(settings),
            counted=UtilizationRules(settings.ignore_daemonsets, settings.ignore_mirror_pods),
            pool_labels=settings.pool_labels,
            minimum_age=settings.minimum_age,
            past_budgets=settings.eviction_method == "delete",
        )

    def judge(self, snapshot: Snapshot) -> Judgement:
        """Return who may go, all refusals of the others, and the gates while a plan grows."""
        return self.judgement(snapshot, self.facts(snapshot))

    def judgement(self, snapshot: Snapshot, facts: Mapping[str, NodeFacts]) -> Judgement:
        """Return the same from *facts* that were gathered before."""
        return judgement(snapshot, facts, CompactorGates(self.settings, facts))

    def plannable(self, snapshot: Snapshot) -> Snapshot:
        """Return what a plan is made on; see :func:`tightship.planning.facts.plannable`."""
        return plannable(snapshot, self._rules)

    def facts(self, snapshot: Snapshot) -> dict[str, NodeFacts]:
        """Return what can be said of each node by itself, refusals complete but for those of pool and plan gates."""
        known = gather(snapshot, self._rules, self.now, self.only)
        return {name: self._with_gates(fact) for name, fact in known.items()}

    def _with_gates(self, fact: CommonFacts) -> NodeFacts:
        name = fact.view.name
        settings = self.settings.pool(fact.pool)
        refusals = pool_refusals(name, fact.pool, settings)
        # What counts as underutilized is the older controller's rule: enabled, old enough, under the limit.
        underutilized = False
        if settings is not None and settings.enabled:
            ratio = fact.cpu_ratio
            if ratio >= settings.limit:
                detail = f"CPU requests are {ratio:.3f} of allocatable, the limit is {settings.limit:g}"
                refusals.append(Refusal(Reason.NOT_UNDERUTILIZED, name, detail))
            else:
                old_enough = self.now - fact.view.node.created >= self.settings.minimum_age
                underutilized = old_enough and not fact.draining
                refusals += self._mark_refusals(name)
        return NodeFacts(
            view=fact.view,
            pool=fact.pool,
            utilization=fact.utilization,
            draining=fact.draining,
            evict=fact.evict,
            stays=fact.stays,
            refusals=tuple(sorted((*fact.refusals, *refusals))) if refusals else fact.refusals,
            awaits=fact.awaits,
            settings=settings,
            underutilized=underutilized,
        )

    def _mark_refusals(self, name: str) -> list[Refusal]:
        needed = self.settings.marked_for
        if needed <= 0:
            return []
        since = self.marks.since.get(name)
        marked = 0.0 if since is None else max(0.0, self.now - since)
        if marked >= needed:
            return []
        detail = f"has been marked for {format_duration(marked)}, {format_duration(needed)} are needed"
        return [Refusal(Reason.NOT_MARKED_LONG_ENOUGH, name, detail)]


class CompactorGates:
    """The gates that depend on what the plan has taken so far; see :class:`tightship.planning.plan.Gates`."""

    def __init__(self, settings: CompactorSettings, facts: Mapping[str, NodeFacts]) -> None:
        self._settings = settings
        self._facts = facts
        self._nodes = Counter(fact.pool for fact in facts.values())
        self._in_drain = Counter(fact.pool for fact in facts.values() if fact.draining)
        self._not_ready = Counter(
            fact.pool for fact in facts.values() if not fact.draining and not fact.view.node.ready
        )
        self._progress = _Progress(None, facts)

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return what the pool's and the cluster's gates say to removing *candidate* next."""
        settings = self._facts[candidate.name].settings
        if settings is None:
            return []
        if self._progress.planner is not planner:
            self._progress = _Progress(planner, self._facts)
        progress = self._progress
        progress.catch_up()
        return sorted(
            [
                *self._plan_size(candidate, progress),
                *_under_limit(candidate, planner, settings),
                *self._required_count(candidate, progress, settings),
                *self._minimum(candidate, progress, settings),
                *self._budgets(candidate, progress, settings),
            ]
        )

    def _plan_size(self, candidate: Candidate, progress: _Progress) -> list[Refusal]:
        allowed = self._settings.max_nodes
        if allowed is None or progress.removed.total() < allowed:
            return []
        return [Refusal(Reason.MAX_NODES_REACHED, candidate.name, f"the plan stops after {counted(allowed, 'node')}")]

    def _required_count(self, candidate: Candidate, progress: _Progress, settings: PoolSettings) -> list[Refusal]:
        draining_now = self._in_drain[candidate.pool]
        have = len(progress.underutilized.get(candidate.pool, ()))
        if have >= settings.required_count + draining_now:
            return []
        also = f" besides the {draining_now} in drain" if draining_now else ""
        needed = counted(settings.required_count, "is", "are")
        detail = f"pool {shown(candidate.pool)} has {counted(have, 'underutilized node')}, and {needed} required{also}"
        return [Refusal(Reason.REQUIRED_COUNT_NOT_REACHED, candidate.name, detail)]

    def _minimum(self, candidate: Candidate, progress: _Progress, settings: PoolSettings) -> list[Refusal]:
        pool = candidate.pool
        left = self._nodes[pool] - self._in_drain[pool] - progress.removed[pool] - 1
        return below_minimum(candidate.name, pool, left, settings)

    def _budgets(self, candidate: Candidate, progress: _Progress, settings: PoolSettings) -> list[Refusal]:
        found: list[Refusal] = []
        pool = candidate.pool
        for budget, what, nodes, out in (
            (
                settings.budget,
                f"pool {shown(pool)}",
                self._nodes[pool],
                self._in_drain[pool] + self._not_ready[pool] + progress.removed[pool],
            ),
            (
                self._settings.cluster_budget,
                "the cluster",
                self._nodes.total(),
                self._in_drain.total() + self._not_ready.total() + progress.removed.total(),
            ),
        ):
            if budget is not None and out >= budget.allows(nodes):
                allowed = counted(budget.allows(nodes), "node")
                detail = f"{what} may have {allowed} out at once ({budget}), {counted(out, 'is', 'are')} out"
                found.append(Refusal(Reason.BUDGET_EXHAUSTED, candidate.name, detail))
        return found


class _Progress:
    """What one planner has taken, kept up removal by removal."""

    def __init__(self, planner: Planner | None, facts: Mapping[str, NodeFacts]) -> None:
        self.planner = planner
        self.removed: Counter[str] = Counter()
        self.underutilized: dict[str, set[str]] = {}
        self._facts = facts
        self._seen = 0
        for name, fact in facts.items():
            if fact.underutilized:
                self.underutilized.setdefault(fact.pool, set()).add(name)

    def catch_up(self) -> None:
        """Take in the removals planned since the last call; a node that was filled up is underutilized no more."""
        planner = self.planner
        if planner is None:
            return
        for removal in planner.removals[self._seen :]:
            pool = self._facts[removal.node].pool
            self.removed[pool] += 1
            self.underutilized.get(pool, set()).discard(removal.node)
            for name in {move.target for move in removal.moves}:
                fact = self._facts[name]
                settings = fact.settings
                if settings is not None and fact.cpu_ratio + planner.received_ratio(name) >= settings.limit:
                    self.underutilized.get(fact.pool, set()).discard(name)
        self._seen = len(planner.removals)


def _under_limit(candidate: Candidate, planner: Planner, settings: PoolSettings) -> list[Refusal]:
    ratio = planner.ratio(candidate.name)
    if ratio < settings.limit:
        return []
    detail = f"with the pods of nodes planned before, CPU requests are {ratio:.3f}, the limit is {settings.limit:g}"
    return [Refusal(Reason.NOT_UNDERUTILIZED, candidate.name, detail)]
