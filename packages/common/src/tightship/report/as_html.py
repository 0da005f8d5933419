"""A plan as a page for people: every node before and after, every move, every reason. One file that loads nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tightship.core.counting import counted
from tightship.planning.pools import shown
from tightship.report.amounts import cores, memory, moved, percent
from tightship.report.arrivals import Arrival, arrivals_of
from tightship.report.document import NodeEntry, NodePlan, RefusalEntry, Share, ShareTotals
from tightship.report.html.model import Cell, Fact, Fleet, Group, Listing, Page, Part, Section, Slot, Table
from tightship.report.html.page import render_page
from tightship.report.node_rows import COLUMNS, STATES, cpu_bar, memory_bar, node_rows
from tightship.report.summary import besides, heading
from tightship.report.terminal import Terminal

_PLAIN = Terminal()


def render_html(plan: NodePlan, terminal: Terminal) -> str:
    """Return *plan* as an HTML document; the terminal makes no difference."""
    del terminal
    return render_page(plan_page(plan))


def plan_page(plan: NodePlan, held: Mapping[str, RefusalEntry] | None = None) -> Page:
    """Return the page of *plan*; *held* says of planned nodes what they wait for."""
    nodes = plan.summary.nodes
    outcome = f"{nodes.before:,} → {counted(nodes.after, 'node')}"
    if not nodes.removed:
        outcome = f"{counted(nodes.before, 'node')}, none would go"
    told = tuple(f"{label}: {text}" for label, text in besides(plan))
    arrived = arrivals_of(plan)
    return Page(
        title=f"{plan.generator.name}: {outcome}",
        subtitle=(*heading(plan, _PLAIN), *told),
        facts=_facts(plan),
        alerts=plan.warnings,
        sections=tuple(_sections(plan, arrived)),
        listing=Listing(
            heading="Nodes",
            columns=COLUMNS,
            keys=tuple(node.name for node in plan.nodes),
            rows=lambda: node_rows(plan, arrived, held or {}),
            states=STATES,
            noun="node",
            hint="name, pool, namespace, pod or reason",
            note="A name shows what moves from and to its node; the last column opens. Arrow keys go from name to "
            "name. Pods are those that can be evicted, of all.",
            empty="There is no node.",
        ),
    )


def _facts(plan: NodePlan) -> tuple[Fact, ...]:
    summary = plan.summary
    nodes = summary.nodes
    rounds = f" in {counted(summary.rounds, 'round')}" if summary.rounds > 1 else ""
    share = f"{percent(nodes.removed / nodes.before)} of {counted(nodes.before, 'node')}" if nodes.before else "no node"
    return (
        Fact("nodes that would go", f"{nodes.removed:,}", "good" if nodes.removed else "", share),
        Fact("pods evicted", f"{summary.evictions:,}", detail=f"for that{rounds}"),
        Fact("CPU freed", f"{cores(_freed(summary.cpu_milli))} cores", detail=_filled(summary.cpu_milli, cores)),
        Fact("memory freed", memory(_freed(summary.memory_bytes)), detail=_filled(summary.memory_bytes, memory)),
        Fact("CPU requested", _change(summary.cpu_milli), detail="of all that is allocatable"),
        Fact("memory requested", _change(summary.memory_bytes), detail="of all that is allocatable"),
    )


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
    if plan.summary.kept_by:
        yield Section(
            "What keeps nodes",
            note="A node has all of its reasons; the solid part of a bar is nodes that nothing else keeps. "
            "docs/reasons.md has each word as a heading, with what to do about it.",
            table=Table(
                ("Reason", "Nodes", "By nothing else", "Of the nodes that stay"),
                tuple(
                    (
                        Cell(each.reason, anchor=each.reason),
                        Cell(f"{each.nodes:,}", number=True),
                        Cell(f"{each.alone:,}", number=True),
                        Cell("", picture=Part(each.nodes, each.alone, plan.summary.nodes.after)),
                    )
                    for each in plan.summary.kept_by
                ),
                filters=True,
            ),
            half=True,
        )
    if len(pools) > 1:
        rows = tuple(_pool(pool, nodes, arrived) for pool, nodes in sorted(pools.items()))
        columns = ("Pool", "Nodes", "Cores freed", "Memory freed", "CPU", "Memory")
        yield Section("Pools", note="CPU and memory are what is requested.", table=Table(columns, rows), half=True)


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


__all__ = ["plan_page", "render_html"]
