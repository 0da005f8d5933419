"""The look of a plan of nodes: a table with a row for each node, and the plan in numbers below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tightship.core.counting import counted
from tightship.report.amounts import age, cores, cores_pair, memory, memory_pair, percent
from tightship.report.document import NodeEntry, NodePlan, Share, ShareTotals
from tightship.report.plan_page import besides, plan_page
from tightship.report.presentation import Column, Grid, GridShape, Printout, Style, TextLine, View, figure, warning

_SHAPES = (
    GridShape(),
    GridShape(bar=5),
    GridShape(bar=0),
    GridShape(bar=5, amounts=False),
    GridShape(bar=0, amounts=False),
    GridShape(("AGE",), bar=0, amounts=False),
    GridShape(("AGE", "POOL"), bar=0, amounts=False),
)


def _printout(plan: NodePlan) -> Printout:
    grid = Grid((*_about(plan.nodes), *_decided(plan.nodes)), _SHAPES, reasons=[node.reasons for node in plan.nodes])
    return Printout(plan.heading, grid, end=tuple(_summary(plan)))


def _wide(plan: NodePlan) -> Iterator[Column]:
    """Return the columns with every reason, with details and the targets of the pods."""
    nodes = plan.nodes
    yield from _about(nodes)
    if any(node.other for node in nodes):
        yield Column("OTHER", [_other(node) for node in nodes])
    yield from _decided(nodes)
    yield Column("REASONS", [_reasons(node) for node in nodes], style="why")
    yield Column("DETAILS", [_details(node) for node in nodes])


def _about(nodes: Sequence[NodeEntry]) -> Iterator[Column]:
    yield Column("NODE", [node.name for node in nodes])
    yield Column("POOL", [node.pool or "-" for node in nodes])
    yield Column("AGE", [age(node.age_seconds) for node in nodes], ">")
    yield _shares("CPU", [node.cpu_milli for node in nodes], cores_pair)
    yield _shares("MEMORY", [node.memory_bytes for node in nodes], memory_pair)


def _shares(title: str, shares: Sequence[Share], pair: Callable[[Share], str]) -> Column:
    ratios = [share.ratio for share in shares]
    return Column(title, list(map(percent, ratios)), ">", ratios=ratios, amounts=list(map(pair, shares)))


def _decided(nodes: Sequence[NodeEntry]) -> Iterator[Column]:
    words = [f"remove #{node.order}" if node.decision == "remove" else "keep" for node in nodes]
    styles: list[Style] = ["go" if node.decision == "remove" else "" for node in nodes]
    yield Column("PODS", [f"{node.pods.evictable}/{node.pods.total}" for node in nodes], ">")
    yield Column("DECISION", words, styles=styles)


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


def _summary(plan: NodePlan) -> Iterator[TextLine]:
    summary = plan.summary
    nodes = summary.nodes
    share = f" ({percent(nodes.removed / nodes.before)})" if nodes.before else ""
    rounds = f" in {counted(summary.rounds, 'round')}" if summary.rounds > 1 else ""
    evictions = f", {counted(summary.evictions, 'eviction')}{rounds}" if nodes.removed else ""
    yield figure("Nodes", f"{nodes.before:,} → {nodes.after:,}   {nodes.removed:,} to remove{share}{evictions}", "bold")
    yield figure("CPU", _share_line(summary.cpu_milli, cores, " cores"))
    yield figure("Memory", _share_line(summary.memory_bytes, memory, ""))
    for label, text in besides(plan):
        yield figure(label, text, "bold" if label == "Excess" else "")
    for number, line in enumerate(_held(plan)):
        yield figure("Held back" if number == 0 else "", line, "why")
    widest = max((len(each.reason) for each in summary.kept_by), default=0)
    digits = max((len(f"{each.nodes:,}") for each in summary.kept_by), default=0)
    for number, each in enumerate(summary.kept_by):
        only = f"   {each.alone:,} by nothing else" if each.alone else ""
        noun = "node " if each.nodes == 1 else "nodes"
        line = f"{each.reason.ljust(widest)}  {each.nodes:>{digits},} {noun}{only}".rstrip()
        yield figure("Kept by" if number == 0 else "", line, "why")
    yield from map(warning, plan.warnings)


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


PLAN = View(_printout, lambda plan: tuple(_wide(plan)), plan_page)
