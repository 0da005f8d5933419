"""A plan as a page for people: what to do, what keeps the rest, a part for each team, and every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from tightship.cluster.pools import shown
from tightship.documents.advice import AdviceEntry, gained, numbered, together
from tightship.documents.amounts import cores, memory, percent, short
from tightship.documents.document import (
    ExcessSummary,
    MoveEntry,
    NodeEntry,
    NodePlan,
    RefusalEntry,
    SchedulerForecast,
    Setting,
    Share,
    Summary,
)
from tightship.documents.html.fleet import Bar, Slot, fleet_of
from tightship.documents.html.page import Page
from tightship.documents.karpenter import karpenter_line
from tightship.documents.money import an_hour, money_lines, origin
from tightship.documents.pending import pending_line
from tightship.documents.search import search_lines
from tightship.objects.counting import counted

STATES = (
    ("go", "nodes that would go"),
    ("take", "nodes that take pods"),
    ("stay", "nodes that stay as they are"),
)
"""The states of a row and their meanings."""

EXTENDED_SHOWN = 3
"""Most extended resources that the figures and the pools of a page name."""

NAMES_SHOWN = 5
"""Most names that a line lists before it gives the number of the others."""

BLOCKERS_SHOWN = 20
"""Most blockers, and most workloads whose pods move, that the part of a team lists."""

MANY = 500
"""With more nodes than this, what keeps several nodes is told once, in the part of its team."""


BlockerKey: TypeAlias = tuple[str, str, str | None]
"""A reason, its detail and its fix."""


class Arrival(Struct, frozen=True):
    """A pod that a plan leaves on another node: its last *move*, and its present node *origin*."""

    move: MoveEntry
    origin: str


class Row(Struct, frozen=True):
    """A node in a page, with its *number* there: its *state*, its bars, its arrivals, why it waits, and what would
    strand it.
    """

    number: int
    node: NodeEntry
    state: str
    came: Sequence[Arrival]
    cpu: Bar
    memory: Bar
    held: RefusalEntry | None
    stuck: Sequence[RefusalEntry]

    @property
    def blockers(self) -> Mapping[BlockerKey, list[str]]:
        """The subjects of each reason, detail and fix: several pods may share them."""
        return blockers(self.node.refusals)

    @property
    def strands(self) -> Mapping[BlockerKey, list[str]]:
        """The same of what kube-scheduler's own choices would come to."""
        return blockers(self.stuck)


class Blocker(Struct, frozen=True):
    """What keeps *nodes* in the part of a team: a reason with its detail and fix, and the pods behind it."""

    reason: str
    detail: str
    fix: str | None
    pods: Sequence[str]
    nodes: Sequence[str]

    @property
    def key(self) -> BlockerKey:
        return self.reason, self.detail, self.fix


class Team(Struct, frozen=True, kw_only=True):
    """A namespace, whose owners get a link to *anchor*.

    Its pods keep *nodes*, *alone* of which nothing else keeps; these cost *micros* in a month. *changes* are pieces of
    advice about its things, each with its number. The plan evicts *evicted* pods of the workloads *moves*.
    """

    name: str
    anchor: str
    nodes: int
    alone: int
    micros: int
    blockers: Sequence[Blocker]
    changes: Sequence[tuple[int, AdviceEntry]]
    evicted: int
    moves: Sequence[tuple[str, int]]


def plan_page(
    plan: NodePlan,
    *,
    template: str = "tightship.documents.html/plan.html",
    alerts: Sequence[str] = (),
    refresh: int = 0,
    first: int = 0,
    within: str = "",
    named: str = "",
    **more: object,
) -> Page:
    """Return the page of *plan*; *template* extends its template and has *more* values.

    Of several plans in one page each numbers its rows from *first*, begins its anchors with *within*, and ends the
    labels of its tables with *named*.
    """
    rows, limits = tuple(_rows(plan, first)), _limits(plan.settings.values)
    pools: dict[str, list[Row]] = {}
    for row in rows:
        pools.setdefault(row.node.pool, []).append(row)
    summary, teams = plan.summary, teams_of(plan, within=within)
    ordered = sorted(pools.items())
    fleet = {shown(pool): [Slot(row.number, row.cpu, row.memory) for row in of] for pool, of in ordered}
    currency = "" if summary.money is None else summary.money.currency
    told, extended = headline(summary), tuple(summary.other)[:EXTENDED_SHOWN]
    values = {
        "plan": plan,
        "within": within,
        "named": named,
        "summary": summary,
        "headline": told,
        "rows": rows,
        "ids": {row.node.name: row.number for row in rows},
        "pools": [Pool(pool, of) for pool, of in ordered],
        "totals_of": {each.pool: each for each in summary.pools},
        "extended": extended,
        "extended_names": [short(name).replace("gpu", "GPU") for name in extended],
        "most": BLOCKERS_SHOWN,
        "advice": () if plan.advice is None else numbered(plan.advice),
        "together": "" if plan.advice is None else together(plan.advice, currency),
        "fleet": fleet_of(fleet),
        "limits": sorted({f"{limit:.0%}" for limit in limits.values()}),
        "teams": teams,
        "shared": _shared(teams) if len(rows) > MANY else {},
        "currency": currency,
        "in_money": tuple(money_lines(summary.money, plan.strategy, summary.nodes.before)),
        "measured": any(each.gain is not None for each in summary.kept_by),
        "besides": tuple(besides(plan)),
        "states": STATES,
        "gained": gained,
        "origin": origin,
        "shown": shown,
        **more,
    }
    title = f"{plan.source.shown}: {told} · {plan.generator.name}"
    return Page(title, template, values, (*alerts, *plan.warnings), refresh)


def headline(summary: Summary) -> str:
    """Return what a plan comes to: ``$2.12 an hour, 6 of 40 nodes``."""
    nodes, totals = summary.nodes, summary.money
    if not nodes.removed:
        return f"None of {counted(nodes.before, 'node')} would go" if nodes.before else "There is no node"
    told = f"{nodes.removed:,} of {counted(nodes.before, 'node')}"
    if totals is None or not totals.micros_per_month.saved:
        return f"{told} would go"
    return f"{an_hour(totals.micros_per_month.saved, totals.hours_per_month, totals.currency)} an hour, {told}"


class Pool(Struct, frozen=True):
    """A pool in a page, with the *rows* of its nodes."""

    name: str
    rows: Sequence[Row]

    @property
    def going(self) -> Sequence[NodeEntry]:
        """Its nodes that would go."""
        return [row.node for row in self.rows if row.state == "go"]

    @property
    def cpu(self) -> tuple[float | None, float | None]:
        """Its utilization of CPU, before and after."""
        return _ratios((row.node.cpu_milli, row.cpu) for row in self.rows)

    @property
    def memory(self) -> tuple[float | None, float | None]:
        """Its utilization of memory, before and after."""
        return _ratios((row.node.memory_bytes, row.memory) for row in self.rows)


def _ratios(of: Iterable[tuple[Share, Bar]]) -> tuple[float | None, float | None]:
    before = after = kept = total = 0.0
    for share, bar in of:
        before += share.requested
        total += share.allocatable
        if not bar.gone:
            after += (bar.after or 0) * share.allocatable
            kept += share.allocatable
    return before / total if total else None, after / kept if kept else None


def _rows(plan: NodePlan, first: int) -> Iterator[Row]:
    arrived, limits = arrivals_of(plan), _limits(plan.settings.values)
    forecast = plan.summary.scheduler
    stuck = {} if forecast is None else {each.node: each.refusals for each in forecast.stuck}
    for number, node in enumerate(plan.nodes, first):
        came, goes = arrived.get(node.name, ()), node.decision == "remove"
        limit = limits.get(node.pool, limits.get("*"))
        yield Row(
            number,
            node,
            "go" if goes else "take" if came else "stay",
            came,
            _bar(node.cpu_milli, goes, sum(each.move.cpu_milli for each in came), limit),
            _bar(node.memory_bytes, goes, sum(each.move.memory_bytes for each in came)),
            plan.held.get(node.name),
            stuck.get(node.name, ()),
        )


def _bar(share: Share, goes: bool, came: int, limit: float | None = None) -> Bar:
    if goes:
        return Bar(share.ratio, None, gone=True, limit=limit)
    if not came or share.ratio is None:
        return Bar(share.ratio, share.ratio, limit=limit)
    after = (share.requested + came) / share.allocatable
    return Bar(share.ratio, after, came / share.allocatable, limit=limit)


def _limits(settings: Mapping[str, Setting]) -> Mapping[str, float]:
    """Return the limit of CPU below which nodes of each pool may go, if the settings have one; ``*`` is every other."""
    pools = settings.get("nodePools")
    found = {}
    for name, pool in pools.items() if isinstance(pools, dict) else ():
        limit = pool.get("cpuRequestRatioLimit") if isinstance(pool, Mapping) else None
        if isinstance(limit, int | float) and limit:
            found[name] = float(limit)
    return found


def arrivals_of(plan: NodePlan) -> Mapping[str, tuple[Arrival, ...]]:
    """Return the arrivals on each node that stays and receives pods, in the order of the moves."""
    ended: dict[str, Arrival] = {}
    for node in sorted((each for each in plan.nodes if each.order is not None), key=lambda each: each.order or 0):
        for move in node.moves:
            before = ended.pop(move.pod, None)
            ended[move.pod] = Arrival(move, node.name if before is None else before.origin)
    found: dict[str, list[Arrival]] = {}
    for arrival in ended.values():
        found.setdefault(arrival.move.to, []).append(arrival)
    return {name: tuple(arrived) for name, arrived in found.items()}


def blockers(refusals: Iterable[RefusalEntry]) -> Mapping[BlockerKey, list[str]]:
    """Return the subjects of each reason, detail and fix."""
    found: dict[BlockerKey, list[str]] = {}
    for each in refusals:
        found.setdefault((each.reason, each.detail, each.fix), []).append(each.subject)
    return found


def teams_of(plan: NodePlan, owners: Mapping[str, str] = {}, *, within: str = "") -> Sequence[Team]:
    """Return each namespace whose pods keep nodes or are to move, that with the dearest nodes first.

    *owners* names the team of a namespace that is none of its own.
    """

    def team_of(subject: str) -> str:
        space = namespace_of(subject)
        return owners.get(space, space)

    kept: dict[str, dict[BlockerKey, tuple[list[str], dict[str, None]]]] = {}
    nodes: dict[str, set[str]] = {}
    alone: Counter[str] = Counter()
    micros: Counter[str] = Counter()
    moves: dict[str, Counter[str]] = {}
    for node in plan.nodes:
        spaces = {team_of(each.subject) for each in node.refusals}
        for each in node.refusals:
            if space := team_of(each.subject):
                pods, where = kept.setdefault(space, {}).setdefault((each.reason, each.detail, each.fix), ([], {}))
                pods.append(each.subject)
                where[node.name] = None
                nodes.setdefault(space, set()).add(node.name)
        if len(spaces) == 1 and (only := next(iter(spaces))):
            alone[only] += 1
            micros[only] += node.cost.micros_per_month if node.cost is not None else 0
    for pod, owner in {move.pod: move.owner for node in plan.nodes for move in node.moves}.items():
        moves.setdefault(team_of(pod), Counter())[owner or pod] += 1
    advice = () if plan.advice is None else numbered(plan.advice)
    names = kept.keys() | moves.keys()
    teams = [
        Team(
            name=name,
            anchor=within + _anchor(name, names),
            nodes=len(nodes.get(name, ())),
            alone=alone[name],
            micros=micros[name],
            blockers=sorted(
                (Blocker(*key, pods, tuple(where)) for key, (pods, where) in kept.get(name, {}).items()),
                key=lambda each: -len(each.nodes),
            ),
            changes=[
                (number, entry)
                for number, entry in advice
                if any(team_of(change.thing.removeprefix("PDB ")) == name for change in entry.changes)
            ],
            evicted=moves.get(name, Counter()).total(),
            moves=moves.get(name, Counter()).most_common(),
        )
        for name in names
        if name
    ]
    return sorted(teams, key=lambda each: (-each.micros, -each.alone, -each.nodes, each.name))


def _anchor(name: str, names: Collection[str]) -> str:
    """Return ``team-shop`` for the namespaces shop and team-shop; where both exist, the former is ``of-shop``."""
    if name.startswith("team-"):
        return name
    return f"of-{name}" if f"team-{name}" in names else f"team-{name}"


def _shared(teams: Iterable[Team]) -> Mapping[BlockerKey, tuple[str, int]]:
    """Return the team that tells of each blocker of several nodes, and the blocker's number in the page."""
    found: dict[BlockerKey, tuple[str, int]] = {}
    for team in teams:
        for each in team.blockers:
            if len(each.nodes) > 1:
                found.setdefault(each.key, (team.name, len(found)))
    return found


def namespace_of(subject: str) -> str:
    """Return the namespace of a pod, or of another thing named so; empty if *subject* is not in one."""
    space, slash, _ = subject.partition("/")
    return space if slash and " " not in space else ""


def evicted(told: Summary | SchedulerForecast) -> str:
    """Return both numbers: the evictions, and the pods that they move."""
    return f"{counted(told.evictions, 'eviction')} of {counted(told.pods_evicted, 'pod')}"


def besides(plan: NodePlan) -> Iterator[tuple[str, str]]:
    """Return the texts about a plan besides its numbers, each with its label."""
    summary = plan.summary
    if summary.search is not None:
        for number, text in enumerate(search_lines(summary.search)):
            yield "Searched" if number == 0 else "", text
    if summary.excess is not None:
        yield "Excess", _excess(summary.excess)
        for taints, each in summary.excess.dedicated.items():
            yield "", f"{taints}: {_excess(each)}, {counted(each.counted_nodes, 'node is', 'nodes are')} counted"
        yield "Counted", _counted(summary.excess)
    if summary.karpenter is not None:
        yield "Karpenter", karpenter_line(summary.karpenter, summary.nodes.before)
    if summary.pending is not None:
        yield "Pending", pending_line(summary.pending)
    if summary.waits_for:
        waits = f"{_names(summary.waits_for)}: pods of one node leave one after another, as replacements become Ready"
        yield "PDB waits", waits
    for text in _scheduler(plan):
        yield "Scheduler", text


def _names(values: Iterable[str]) -> str:
    listed = list(values)
    more = len(listed) - NAMES_SHOWN
    return ", ".join(listed[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _excess(excess: ExcessSummary) -> str:
    could, limit = (
        f"{counted(excess.could_go, 'node')} could go, one after another",
        f"the threshold is {excess.threshold:g}",
    )
    if excess.candidate is None:
        return f"{could}, no node is counted; {limit}"
    each = f"CPU {_nodes(excess.cpu)}, memory {_nodes(excess.memory)}"
    return f"{could}; room is free for {_nodes(excess.nodes)} like {excess.candidate} ({each}); {limit}"


def _nodes(number: float | None) -> str:
    return "any" if number is None else f"{number:.2f}"


def _counted(excess: ExcessSummary) -> str:
    cpu, ram = excess.cpu_milli, excess.memory_bytes
    return (
        f"{counted(excess.counted_nodes, 'node')}: "
        f"CPU {cores(cpu.requested)} of {cores(cpu.allocatable)} requested ({percent(cpu.ratio)}), "
        f"memory {memory(ram.requested)} of {memory(ram.allocatable)} ({percent(ram.ratio)})"
    )


def _scheduler(plan: NodePlan) -> Iterator[str]:
    forecast = plan.summary.scheduler
    if forecast is None or not plan.summary.nodes.removed:
        return
    planned = sum(1 for node in plan.nodes if node.round == 1)
    which = "the first round" if plan.summary.rounds > 1 else "the plan"
    done = f"with {evicted(forecast)} (modelled)"
    if not forecast.stuck:
        yield f"its own choices would reach all of {which}, {done}"
        return
    stuck = _names(each.node for each in forecast.stuck)
    yield (
        f"its own choices would reach {forecast.removed:,} of the {counted(planned, 'removal')} of {which}, "
        f"{done}; "
        f"it would strand {stuck}"
    )
