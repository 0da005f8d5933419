"""A plan as a page for people: every node before and after, every move, every reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from tightship.cluster.pools import shown
from tightship.documents.advice import advice_section, gained
from tightship.documents.amounts import amount, cores, memory, moved, percent, short
from tightship.documents.document import (
    ExcessSummary,
    KeptBy,
    NodeEntry,
    NodePlan,
    PoolEntry,
    SchedulerForecast,
    Share,
    ShareTotals,
    Summary,
)
from tightship.documents.karpenter import karpenter_line
from tightship.documents.money import MoneySummary, an_hour, change, money, money_lines
from tightship.documents.node_rows import COLUMNS, STATES, Arrival, arrivals_of, cpu_bar, memory_bar, node_rows
from tightship.documents.pending import pending_line
from tightship.documents.presentation import Cell, EntryList, Fact, Fleet, Group, Page, Part, Section, Slot, Table, Tone
from tightship.documents.search import search_lines
from tightship.objects.counting import counted

EXTENDED_SHOWN = 3
"""Most extended resources that the figures and the pools of a page name."""

POOL_COLUMNS = 7
"""Most columns that the table of pools has on half of a page."""

NAMES_SHOWN = 5
"""Most names that a line lists before it gives the number of the others."""


def plan_page(plan: NodePlan) -> Page:
    """Return the page of *plan*."""
    nodes = plan.summary.nodes
    outcome = f"{nodes.before:,} → {counted(nodes.after, 'node')}"
    if not nodes.removed:
        outcome = f"{counted(nodes.before, 'node')}, none would go"
    in_money = "; ".join(money_lines(plan.summary.money, plan.strategy, plan.summary.nodes.before)).replace("   ", ", ")
    told = (
        f"Money: {in_money}",
        *(f"{label}: {text}" if label else text for label, text in besides(plan)),
    )
    arrived = arrivals_of(plan)
    return Page(
        title=f"{plan.generator.name}: {outcome}",
        subtitle=(*plan.heading, *told),
        facts=_facts(plan),
        alerts=plan.warnings,
        sections=tuple(_sections(plan, arrived)),
        listing=EntryList(
            heading="Nodes",
            columns=COLUMNS,
            keys=tuple(node.name for node in plan.nodes),
            rows=lambda: node_rows(plan, arrived, plan.held),
            states=STATES,
            noun="node",
            hint="name, pool, namespace, pod or reason",
            note="A name shows what moves from and to its node; the last column opens. Arrow keys go from name to "
            "name. Pods are those that can be evicted, of all.",
            empty="There is no node.",
        ),
    )


def evicted(told: Summary | SchedulerForecast) -> str:
    """Return both numbers: the evictions, and the pods that they move."""
    return f"{counted(told.evictions, 'eviction')} of {counted(told.pods_evicted, 'pod')}"


def _facts(plan: NodePlan) -> tuple[Fact, ...]:
    summary = plan.summary
    nodes = summary.nodes
    rounds = f" in {counted(summary.rounds, 'round')}" if summary.rounds > 1 else ""
    share = f"{percent(nodes.removed / nodes.before)} of {counted(nodes.before, 'node')}" if nodes.before else "no node"
    return (
        Fact("nodes that would go", f"{nodes.removed:,}", "good" if nodes.removed else "", share),
        *_saved(summary.money),
        Fact(
            "pods evicted", f"{summary.pods_evicted:,}", detail=f"in {counted(summary.evictions, 'eviction')}{rounds}"
        ),
        Fact("CPU freed", f"{cores(_freed(summary.cpu_milli))} cores", detail=_filled(summary.cpu_milli, cores)),
        Fact("memory freed", memory(_freed(summary.memory_bytes)), detail=_filled(summary.memory_bytes, memory)),
        *(
            Fact(f"{_named(name)} freed", amount(name, _freed(totals)), detail=_filled(totals, partial(amount, name)))
            for name, totals in list(summary.other.items())[:EXTENDED_SHOWN]
        ),
        Fact("CPU requested", _change(summary.cpu_milli), detail="of all that is allocatable"),
        Fact("memory requested", _change(summary.memory_bytes), detail="of all that is allocatable"),
    )


def _saved(summary: MoneySummary | None) -> tuple[Fact, ...]:
    if summary is None:
        return ()
    totals, currency = summary.micros_per_month, summary.currency
    tone: Tone = "good" if totals.saved else ""
    kept = f"{money(totals.after, currency)} of {money(totals.before, currency)} kept"
    without = f"; {counted(summary.unpriced, 'node')} without a price" if summary.unpriced else ""
    return (
        Fact("saved an hour", an_hour(totals.saved, summary.hours_per_month, currency), tone, "now"),
        Fact("saved a month", money(totals.saved, currency), tone, f"if it lasts; {kept}{without}"),
    )


def _named(resource: str) -> str:
    return short(resource).replace("gpu", "GPU")


def _freed(totals: ShareTotals) -> int:
    return totals.before.allocatable - totals.after.allocatable


def _filled(totals: ShareTotals, shown_as: Callable[[int], str]) -> str:
    return f"{shown_as(totals.after.allocatable)} of {shown_as(totals.before.allocatable)} kept"


def _change(totals: ShareTotals) -> str:
    return moved(totals.before.ratio, totals.after.ratio)


def _sections(plan: NodePlan, arrived: Mapping[str, Sequence[Arrival]]) -> Iterator[Section]:
    pools: dict[str, list[NodeEntry]] = {}
    for node in plan.nodes:
        pools.setdefault(node.pool, []).append(node)
    if plan.nodes:
        groups = tuple(
            Group(shown(pool), tuple(_slot(node, arrived.get(node.name, ())) for node in nodes))
            for pool, nodes in sorted(pools.items())
        )
        yield Section("Before and after", fleet=Fleet(groups))
    currency = plan.summary.money.currency if plan.summary.money is not None else ""
    yield from advice_section(plan.advice, currency)
    if plan.summary.kept_by:
        yield Section(
            "What keeps nodes",
            note="A node has all of its reasons. The solid part of a bar is what more would go without the reason, "
            "measured by planning again. docs/reasons.md has each word as a heading, with what to do about it.",
            table=Table(
                ("Reason", "Nodes", "More would go without it", "Of the nodes that stay"),
                tuple(
                    (
                        Cell(each.reason, anchor=each.reason),
                        Cell(f"{each.nodes:,}", number=True),
                        Cell("-" if each.gain is None else gained(each.gain, currency).lstrip("+"), number=True),
                        Cell("", picture=Part(each.nodes, _solid(each), plan.summary.nodes.after)),
                    )
                    for each in plan.summary.kept_by
                ),
                filters=True,
            ),
            half=len(pools) > 1 and len(_pool_columns(plan)) <= POOL_COLUMNS,
        )
    if len(pools) > 1:
        summary = plan.summary
        totals = {each.pool: each for each in summary.pools}
        extended = tuple(summary.other)[:EXTENDED_SHOWN]
        rows = tuple(
            (*_pool(pool, nodes, arrived), *_of_pool(totals.get(pool), extended, summary.money))
            for pool, nodes in sorted(pools.items())
        )
        columns = _pool_columns(plan)
        table = Table(columns, rows)
        narrow = len(columns) <= POOL_COLUMNS
        yield Section("Pools", note="CPU and memory are what is requested.", table=table, half=narrow)


def _solid(kept: KeptBy) -> int:
    return 0 if kept.gain is None else min(kept.gain.nodes, kept.nodes)


def _pool_columns(plan: NodePlan) -> tuple[str, ...]:
    extended = (_named(name) for name in tuple(plan.summary.other)[:EXTENDED_SHOWN])
    in_money = ("A month", "Saved") if plan.summary.money is not None else ()
    return ("Pool", "Nodes", "Cores freed", "Memory freed", "CPU", "Memory", *extended, *in_money)


def _of_pool(pool: PoolEntry | None, extended: Sequence[str], summary: MoneySummary | None) -> Iterator[Cell]:
    """Yield the cells of a pool for its extended resources and, if the plan is told in money, its price."""
    for name in extended:
        own = None if pool is None else pool.other.get(name)
        before = "-" if own is None else amount(name, own.before)
        gone = own is not None and own.removed
        yield Cell(f"{before} → {amount(name, own.after)}" if own is not None and gone else before, number=True)
    if summary is not None:
        month = None if pool is None else pool.micros_per_month
        yield Cell("no price" if month is None else change(month, summary.currency), number=True)
        yield Cell("-" if month is None else money(month.saved, summary.currency), number=True)


def _pool(pool: str, nodes: Sequence[NodeEntry], arrived: Mapping[str, Sequence[Arrival]]) -> tuple[Cell, ...]:
    going = [node for node in nodes if node.decision == "remove"]
    stay = [node for node in nodes if node.decision == "keep"]

    def ratios(of: Callable[[NodeEntry], Share], size: Callable[[Arrival], int]) -> str:
        came = sum(size(each) for node in stay for each in arrived.get(node.name, ()))
        before = _ratio(sum(of(node).requested for node in nodes), sum(of(node).allocatable for node in nodes))
        after = _ratio(sum(of(node).requested for node in stay) + came, sum(of(node).allocatable for node in stay))
        return moved(before, after)

    return (
        Cell(shown(pool)),
        Cell(f"{len(nodes):,} → {len(stay):,}" if going else f"{len(nodes):,}", number=True),
        Cell(cores(sum(node.cpu_milli.allocatable for node in going)), number=True),
        Cell(memory(sum(node.memory_bytes.allocatable for node in going)), number=True),
        Cell(ratios(lambda node: node.cpu_milli, lambda each: each.move.cpu_milli), number=True),
        Cell(ratios(lambda node: node.memory_bytes, lambda each: each.move.memory_bytes), number=True),
    )


def _ratio(requested: int, allocatable: int) -> float | None:
    return requested / allocatable if allocatable > 0 else None


def _slot(node: NodeEntry, arrived: Sequence[Arrival]) -> Slot:
    return Slot(node.name, cpu_bar(node, arrived), memory_bar(node, arrived))


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
