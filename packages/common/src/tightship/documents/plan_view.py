"""The look of a plan of nodes: a table with a row for each node, and the plan in numbers below it; and as a page.

The page says what to do, what keeps the rest, a part for each team, and every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from tightship.cluster.pools import shown
from tightship.documents.advice import AdviceEntry, advice_lines, gained, numbered, patches, together
from tightship.documents.amounts import age, amount, cores, cores_pair, memory, memory_pair, percent, short
from tightship.documents.build import extended_resources
from tightship.documents.document import (
    Blocker,
    ExcessSummary,
    KarpenterSummary,
    KeptBy,
    MoveEntry,
    NodeEntry,
    NodePlan,
    PendingSummary,
    PoolEntry,
    RefusalEntry,
    SchedulerForecast,
    SearchSummary,
    Setting,
    Share,
    ShareTotals,
    ShownRows,
    Summary,
)
from tightship.documents.html.fleet import Bar, Slot, fleet_of
from tightship.documents.html.page import Page
from tightship.documents.money import an_hour, change, hourly, money, money_lines, monthly, origin
from tightship.documents.presentation import (
    Block,
    Column,
    Grid,
    GridShape,
    Printout,
    Style,
    TextLine,
    View,
    figure,
    warning,
)
from tightship.documents.terminal import length, pad
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason

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


class TeamBlocker(Struct, frozen=True):
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
    blockers: Sequence[TeamBlocker]
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
    outcome, extended = headline(summary), tuple(summary.other)[:EXTENDED_SHOWN]
    values = {
        "plan": plan,
        "within": within,
        "named": named,
        "summary": summary,
        "headline": outcome,
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
    title = f"{plan.source.shown}: {outcome} · {plan.generator.name}"
    waits = dict.fromkeys(each.detail for each in plan.held.values() if each.reason == Reason.OUTSIDE_WINDOW)
    held = (f"{Reason.OUTSIDE_WINDOW}: {detail}" for detail in waits)
    return Page(title, template, values, (*alerts, *held, *plan.warnings), refresh)


def headline(summary: Summary) -> str:
    """Return what a plan comes to: ``$2.12 an hour, 6 of 40 nodes``."""
    nodes, totals = summary.nodes, summary.money
    if not nodes.removed:
        return f"None of {counted(nodes.before, 'node')} would go" if nodes.before else "There is no node"
    outcome = f"{nodes.removed:,} of {counted(nodes.before, 'node')}"
    if totals is None or not totals.micros_per_month.saved:
        return f"{outcome} would go"
    return f"{an_hour(totals.micros_per_month.saved, totals.hours_per_month, totals.currency)} an hour, {outcome}"


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
                (TeamBlocker(*key, pods, tuple(where)) for key, (pods, where) in kept.get(name, {}).items()),
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


def evicted(outcome: Summary | SchedulerForecast) -> str:
    """Return both numbers: the evictions, and the pods that they move."""
    return f"{counted(outcome.evictions, 'eviction')} of {counted(outcome.pods_evicted, 'pod')}"


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


POOLS_NAMED = 3
"""Most NodePools that a line names."""


def karpenter_line(summary: KarpenterSummary, nodes: int) -> str:
    """Return *summary* of a cluster of *nodes* nodes in one line for people."""
    names, unknown = summary.node_pools, len(summary.unknown)
    more = len(names) - POOLS_NAMED
    listed = ", ".join(names[:POOLS_NAMED]) + (f" and {more} more" if more > 0 else "")
    pools = f"{counted(summary.nodes, 'node')} of NodePool{'s' if len(names) > 1 else ''} {listed}"
    if not unknown:
        said = f"consolidates {pools} itself; the plan leaves them to it"
    elif unknown == len(names):
        said = f"may consolidate {pools}, whose settings were not read; the plan leaves them to it"
    else:
        said = f"consolidates, or may consolidate, {pools}; the plan leaves them to it"
    if summary.nodes_after is None:
        return said
    asked = f"asked as if it did not: {nodes:,} → {summary.nodes_after:,} nodes"
    return f"{said} ({asked}, --disable-rule {Reason.KARPENTER_MANAGED})"


def pending_line(summary: PendingSummary) -> str:
    """Return *summary* in one line for people."""
    pods, could = counted(summary.pods, "pod waits", "pods wait"), summary.could_run
    if not could:
        return f"{pods} for a node, and no node could run {'it' if summary.pods == 1 else 'any of them'} now"
    which = "a node could run it" if summary.pods == 1 else f"nodes could run {could:,} of them"
    return f"{pods} for a node; {which} now, and the plan keeps that room"


HOW_TO_SOLVE = (
    "the bound may be lower than need be, unless its solver (pip install 'tightship[solver]') ends in a minute"
)
"""What the line says where HiGHS is not installed, or found no optimum in time."""


def search_lines(search: SearchSummary) -> Iterator[str]:
    """Return *search* in lines for people."""
    took = counted(search.iterations, "iteration")
    if search.seconds is not None:
        took = f"{search.seconds:g} s, {took}"
    greedy, found, costliest = search.greedy, search.searched, search.costliest
    nodes = f"{greedy.nodes_after:,} → {found.nodes_after:,} nodes stay"
    evictions = f"{greedy.evictions:,} → {found.evictions:,} evictions"
    yield f"for {took}: {nodes}, {evictions}; no plan of one round keeps fewer than {search.bound:,}"
    if costliest is not None:
        reason, how = costliest.changes[0].reason, " ".join(costliest.flags) or costliest.values
        more = f"by the strategy alone, {counted(costliest.gain.nodes, 'more node')} would go with {how}"
        yield f"the setting behind {reason} costs most: {more}"
    if search.solver == "ascent" and search.bound < found.nodes_after:
        yield HOW_TO_SOLVE


POOLS_IN_SUMMARY = 4
"""Most pools that a summary names."""

KEPT_BY_IN_SUMMARY = 6
"""Most reasons that a summary counts."""

_LONGEST_NAME = 63
"""Most characters of a node's name in a table: one name of 253 would push every other column out of sight."""

_SHAPES = tuple(
    GridShape(without, bar, amounts, _LONGEST_NAME, shortest)
    for without, bar, amounts, shortest in (
        ((), 10, True, None),
        ((), 5, True, None),
        ((), 0, True, None),
        ((), 5, False, None),
        ((), 0, False, None),
        (("AGE",), 0, False, None),
        (("AGE", "extended"), 0, False, None),
        (("AGE", "extended", "PODS"), 0, False, None),
        (("AGE", "extended", "PODS", "DECISION"), 0, False, 20),
        (("AGE", "extended", "PODS", "DECISION", "MEMORY"), 0, False, 20),
        (("AGE", "extended", "PODS", "DECISION", "MEMORY", "POOL", "MONTH"), 0, False, None),
    )
)

_FILLED = Reason.FILLED_BY_PLAN.value


def _printout(plan: NodePlan, rows: ShownRows, *, brief: bool = False) -> Printout:
    nodes, note = rows.of(plan, brief=brief)
    columns = (*_about(nodes), *_extended(nodes), *_months(nodes), *_decided(nodes))
    grid = Grid(columns, _SHAPES, reasons=[node.reasons for node in nodes], instead="DECISION")
    return Printout(
        plan.heading,
        start=tuple(_now(plan, brief=brief)),
        grid=grid if nodes or not brief else None,
        note=note,
        below=tuple(_kept(plan)),
        end=tuple(_rest(plan, brief=brief)),
    )


def _wide(nodes: Sequence[NodeEntry]) -> Iterator[Column]:
    """Return the columns with every reason, with details and the targets of the pods."""
    yield from _about(nodes)
    if any(node.other for node in nodes):
        yield Column("OTHER", [_other(node) for node in nodes])
    if any(node.cost for node in nodes):
        yield Column("HOUR", [hourly(node.cost) if node.cost else "-" for node in nodes], ">")
        yield from _months(nodes)
        yield Column("PRICE FROM", [_origin(node) for node in nodes])
    yield from _decided(nodes)
    yield Column("REASONS", [_reasons(node) for node in nodes], style="why")
    yield Column("DETAILS", [_details(node) for node in nodes])


def _about(nodes: Sequence[NodeEntry]) -> Iterator[Column]:
    yield Column("NODE", [node.name for node in nodes])
    yield Column("POOL", [node.pool or "-" for node in nodes])
    yield Column("AGE", [age(node.age_seconds) for node in nodes], ">")
    yield _shares("CPU", [node.cpu_milli for node in nodes], cores_pair, list(map(_cpu, nodes)))
    memories = [node.memory_bytes for node in nodes]
    yield _shares("MEMORY", memories, memory_pair, [percent(each.ratio) for each in memories])


def _cpu(node: NodeEntry) -> str:
    """Return the CPU ratio, and of a node that the plan filled the one that it leaves: nothing else explains it."""
    share = node.cpu_milli
    if _FILLED not in node.reasons or share.ratio is None:
        return percent(share.ratio)
    return f"{share.ratio * 100:.0f}→{percent((share.requested + node.cpu_milli_arriving) / share.allocatable)}"


def _shares(title: str, shares: Sequence[Share], pair: Callable[[Share], str], cells: Sequence[str]) -> Column:
    return Column(title, cells, ">", ratios=[share.ratio for share in shares], amounts=list(map(pair, shares)))


def _decided(nodes: Sequence[NodeEntry]) -> Iterator[Column]:
    words = [f"remove #{node.order}" if node.decision == "remove" else "keep" for node in nodes]
    styles: list[Style] = ["go" if node.decision == "remove" else "" for node in nodes]
    yield Column("PODS", [f"{node.pods.evictable}/{node.pods.total}" for node in nodes], ">")
    yield Column("DECISION", words, styles=styles)


def _extended(nodes: Sequence[NodeEntry]) -> Iterator[Column]:
    """Return one column for the extended resources, named after the resource if there is only one."""
    names = extended_resources(nodes)
    if not names:
        return

    def cell(node: NodeEntry) -> str:
        own = [(name, node.other[name]) for name in names if name in node.other]
        return " ".join(f"{_named(names, name)}{used.requested:,}/{used.allocatable:,}" for name, used in own) or "-"

    yield Column(short(names[0]).upper() if len(names) == 1 else "OTHER", list(map(cell, nodes)), ">", name="extended")


def _named(names: Sequence[str], name: str) -> str:
    return "" if len(names) == 1 else f"{short(name)} "


def _months(nodes: Sequence[NodeEntry]) -> Iterator[Column]:
    if any(node.cost for node in nodes):
        yield Column("MONTH", [monthly(node.cost) for node in nodes], ">")


def _origin(node: NodeEntry) -> str:
    return "-" if node.cost is None else origin(node.cost.source, node.cost.basis)


def _other(node: NodeEntry) -> str:
    return ",".join(f"{name}={share.requested}/{share.allocatable}" for name, share in node.other.items()) or "-"


def _reasons(node: NodeEntry) -> str:
    if not node.reasons:
        return "-"
    counts = Counter(refusal.reason for refusal in node.refusals)
    return ",".join(f"{reason}({counts[reason]})" if counts[reason] > 1 else reason for reason in node.reasons)


def _details(node: NodeEntry) -> str:
    if node.decision == "remove":
        if not node.moves:
            return "no pod to evict"
        targets = Counter(move.to for move in node.moves)
        where = ", ".join(f"{name} ({number})" if number > 1 else name for name, number in targets.items())
        return f"{counted(len(node.moves), 'pod')} → {where}"
    parts: list[str] = []
    for reason in node.reasons:
        first, *others = [refusal for refusal in node.refusals if refusal.reason == reason]
        about = "" if first.subject == node.name else f"{first.subject} "
        more = f" (+{len(others)} more)" if others else ""
        parts.append(f"{about}{first.detail}{more}")
    return "; ".join(parts) or "-"


def _now(plan: NodePlan, *, brief: bool) -> Iterator[TextLine]:
    """Yield how many nodes would go, and what that is in money and in room."""
    summary = plan.summary
    nodes = summary.nodes
    share = f" ({percent(nodes.removed / nodes.before)})" if nodes.before else ""
    rounds = f" in {counted(summary.rounds, 'round')}" if summary.rounds > 1 else ""
    evictions = f", {evicted(summary)}{rounds}" if nodes.removed else ""
    yield figure("Nodes", f"{nodes.before:,} → {nodes.after:,}   {nodes.removed:,} to remove{share}{evictions}", "bold")
    for number, line in enumerate(money_lines(summary.money, plan.strategy, summary.nodes.before)):
        yield figure("Money" if number == 0 else "", line, "bold" if number == 0 and summary.money is not None else "")
    if summary.trough and nodes.removed:
        yield figure("A moment", summary.trough, "why")
    if not brief:
        yield figure("CPU", _share_line(summary.cpu_milli, cores, " cores"))
        yield figure("Memory", _share_line(summary.memory_bytes, memory, ""))
        for name, totals in summary.other.items():
            yield figure(short(name).replace("gpu", "GPU"), _extended_line(name, totals))
    yield from _pools(plan, POOLS_IN_SUMMARY if brief else None)


SHOWN = 10
"""Most blockers that the output for people names."""


def blocker_grid(found: tuple[Blocker, ...], currency: str) -> Grid:
    """Return a table of the first blockers."""
    rows = found[:SHOWN]
    columns = [
        Column("WHAT IS BEHIND IT", [each.thing for each in rows]),
        Column("BLOCKER", [each.reason for each in rows], style="why"),
        Column("NODES", [f"{each.nodes:,}" for each in rows], ">"),
        Column("ALONE", [f"{each.alone:,}" for each in rows], ">"),
    ]
    if any(each.micros_alone is not None for each in rows):
        columns.append(Column("A MONTH", [money(each.micros_alone or 0, currency) for each in rows], ">"))
    return Grid(columns, (GridShape(names=63), GridShape(shortest=24)))


def _kept(plan: NodePlan) -> Iterator[Block]:
    """Yield what keeps the rest: a table of the things behind it."""
    found = plan.summary.blockers
    if not found:
        return
    money = plan.summary.money
    many = f" (the first {SHOWN} of {len(found):,}; all in -o json)" if len(found) > SHOWN else ""
    yield Block(f"What keeps the rest{many}", grid=blocker_grid(found, "" if money is None else money.currency))


def _rest(plan: NodePlan, *, brief: bool) -> Iterator[TextLine]:
    summary = plan.summary
    currency = summary.money.currency if summary.money is not None else ""
    shown = () if brief else summary.kept_by
    if brief and summary.kept_by:
        yield figure("Kept by", _kept_in_brief(summary.kept_by), "why")
    widest = max((len(each.reason) for each in shown), default=0)
    digits = max((len(f"{each.nodes:,}") for each in shown), default=0)
    for number, each in enumerate(shown):
        noun = "node " if each.nodes == 1 else "nodes"
        line = f"{each.reason.ljust(widest)}  {each.nodes:>{digits},} {noun}{without(each, currency)}".rstrip()
        yield figure("Kept by" if number == 0 else "", line, "why")
    for label, text in besides(plan):
        yield figure(label, text, "bold" if label == "Excess" else "")
    for number, line in enumerate(_held(plan)):
        yield figure("Held back" if number == 0 else "", line, "why")
    yield from advice_lines(plan.advice, currency, brief=brief)
    if plan.advice is None and plan.summary.search is not None:
        yield figure("Advice", "none about a searched plan: plan without --search to see what would free nodes")
    yield from map(warning, plan.warnings)


def _kept_in_brief(kept: Sequence[KeptBy]) -> str:
    """Return the reasons that keep most nodes, and how many each keeps."""
    shown = [f"{each.reason} {counted(each.nodes, 'node')}" for each in kept[:KEPT_BY_IN_SUMMARY]]
    more = len(kept) - len(shown)
    return ", ".join([*shown, *([f"{counted(more, 'more reason')} (-o table)"] if more else [])])


def without(kept: KeptBy, currency: str) -> str:
    """Return what more would go without a reason, nothing if that was not measured."""
    if kept.gain is None:
        return ""
    gains = kept.gain.nodes or kept.gain.micros_per_month
    return f"   {gained(kept.gain, currency)} without it" if gains else "   none more without it"


def _extended_line(name: str, totals: ShareTotals) -> str:
    return _share_line(totals, lambda number: amount(name, number), f" {name}")


def _pools(plan: NodePlan, most: int | None) -> Iterator[TextLine]:
    """Return a line for each pool of a plan in money, if there are several: of *most*, those that save most."""
    summary = plan.summary
    if summary.money is None or len(summary.pools) < 2:
        return
    currency = summary.money.currency
    pools = summary.pools
    if most is not None and len(pools) > most:
        pools = tuple(sorted(pools, key=lambda each: -(each.micros_per_month.saved if each.micros_per_month else 0)))
    rows = [
        (
            shown(pool.pool),
            _pool_nodes(pool),
            "no price" if pool.micros_per_month is None else change(pool.micros_per_month, currency),
            money(pool.micros_per_month.saved, currency) + " saved"
            if pool.micros_per_month is not None and pool.micros_per_month.saved
            else "",
        )
        for pool in pools[:most]
    ]
    widths = [max(length(row[column]) for row in rows) for column in range(4)]
    for number, row in enumerate(rows):
        cells = [
            pad(cell, width, "><"[column == 0]) for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield figure("Pools" if number == 0 else "", f"{cells[0]}  {cells[1]}   {cells[2]}   {cells[3]}".rstrip())
    if len(rows) < len(pools):
        yield figure("", f"and {counted(len(pools) - len(rows), 'more pool')} (-o table)")


def _pool_nodes(pool: PoolEntry) -> str:
    nodes = pool.nodes
    change = f"{nodes.before:,} → {nodes.after:,}" if nodes.removed else f"{nodes.before:,}"
    return f"{change} node " if nodes.before == 1 else f"{change} nodes"


def _held(plan: NodePlan) -> Iterator[str]:
    """Return how many of the nodes to remove have to wait, and the causes, the most frequent first."""
    waits = Counter((each.reason, each.detail) for each in plan.held.values())
    for (reason, detail), nodes in waits.most_common():
        yield f"{counted(nodes, 'node')} for now, {reason}: {detail}"


def _share_line(totals: ShareTotals, shown: Callable[[int], str], unit: str) -> str:
    def side(share: Share) -> str:
        return f"{shown(share.requested)} of {shown(share.allocatable)}{unit} requested ({percent(share.ratio)})"

    freed = totals.before.allocatable - totals.after.allocatable
    if not freed:
        return side(totals.before)
    after = totals.after
    kept = f"{shown(after.requested)} of {shown(after.allocatable)} ({percent(after.ratio)})"
    return f"{side(totals.before)} → {kept}   {shown(freed)} freed"


def plan_view(rows: ShownRows = ShownRows()) -> View[NodePlan]:
    """Return the look of a plan; outputs for people print those of its nodes that *rows* says."""
    return View(
        printout=lambda plan: _printout(plan, rows),
        wide=lambda plan: tuple(_wide(rows.of(plan)[0])),
        page=plan_page,
        rows=lambda plan: [(_named_row(node), node) for node in rows.of(plan)[0]],
        summary=lambda plan: _printout(plan, rows, brief=True),
        patches=lambda plan: patches(plan.advice, "" if plan.summary.money is None else plan.summary.money.currency),
    )


def _named_row(node: NodeEntry) -> str:
    return f"node/{node.name}" if node.decision == "remove" else ""


PLAN = plan_view()
