"""The look of a plan of nodes: a table with a row for each node, and the plan in numbers below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tightship.cluster.pools import shown
from tightship.documents.advice import advice_lines, gained
from tightship.documents.amounts import age, amount, cores, cores_pair, memory, memory_pair, percent, short
from tightship.documents.document import KeptBy, NodeEntry, NodePlan, PoolEntry, Share, ShareTotals
from tightship.documents.inputs import extended_resources
from tightship.documents.money import change, hourly, money, money_lines, monthly, origin
from tightship.documents.plan_page import besides, evicted, plan_page
from tightship.documents.presentation import (
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

_LONGEST_NAME = 63
"""Most characters of a node's name in a table: one name of 253 would push every other column out of sight."""

_SHAPES = tuple(
    GridShape(without, bar, amounts, _LONGEST_NAME)
    for without, bar, amounts in (
        ((), 10, True),
        ((), 5, True),
        ((), 0, True),
        ((), 5, False),
        ((), 0, False),
        (("extended",), 0, False),
        (("AGE", "extended"), 0, False),
        (("AGE", "extended", "POOL"), 0, False),
        (("AGE", "extended", "POOL", "MONTH"), 0, False),
    )
)


def _printout(plan: NodePlan) -> Printout:
    columns = (*_about(plan.nodes), *_extended(plan.nodes), *_months(plan.nodes), *_decided(plan.nodes))
    grid = Grid(columns, _SHAPES, reasons=[node.reasons for node in plan.nodes])
    return Printout(plan.heading, grid, end=tuple(_summary(plan)))


def _wide(plan: NodePlan) -> Iterator[Column]:
    """Return the columns with every reason, with details and the targets of the pods."""
    nodes = plan.nodes
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


def _summary(plan: NodePlan) -> Iterator[TextLine]:
    summary = plan.summary
    nodes = summary.nodes
    share = f" ({percent(nodes.removed / nodes.before)})" if nodes.before else ""
    rounds = f" in {counted(summary.rounds, 'round')}" if summary.rounds > 1 else ""
    evictions = f", {evicted(summary)}{rounds}" if nodes.removed else ""
    yield figure("Nodes", f"{nodes.before:,} → {nodes.after:,}   {nodes.removed:,} to remove{share}{evictions}", "bold")
    yield figure("CPU", _share_line(summary.cpu_milli, cores, " cores"))
    yield figure("Memory", _share_line(summary.memory_bytes, memory, ""))
    for name, totals in summary.other.items():
        yield figure(short(name).replace("gpu", "GPU"), _extended_line(name, totals))
    for number, line in enumerate(money_lines(summary.money, plan.strategy, summary.nodes.before)):
        yield figure("Money" if number == 0 else "", line, "bold" if number == 0 and summary.money is not None else "")
    yield from _pools(plan)
    for label, text in besides(plan):
        yield figure(label, text, "bold" if label == "Excess" else "")
    for number, line in enumerate(_held(plan)):
        yield figure("Held back" if number == 0 else "", line, "why")
    currency = summary.money.currency if summary.money is not None else ""
    widest = max((len(each.reason) for each in summary.kept_by), default=0)
    digits = max((len(f"{each.nodes:,}") for each in summary.kept_by), default=0)
    for number, each in enumerate(summary.kept_by):
        noun = "node " if each.nodes == 1 else "nodes"
        line = f"{each.reason.ljust(widest)}  {each.nodes:>{digits},} {noun}{without(each, currency)}".rstrip()
        yield figure("Kept by" if number == 0 else "", line, "why")
    yield from advice_lines(plan.advice, currency)
    if plan.advice is None and plan.summary.search is not None:
        yield figure("Advice", "none about a searched plan: plan without --search to see what would free nodes")
    yield from map(warning, plan.warnings)


def without(kept: KeptBy, currency: str) -> str:
    """Return what more would go without a reason, nothing if that was not measured."""
    if kept.gain is None:
        return ""
    gains = kept.gain.nodes or kept.gain.micros_per_month
    return f"   {gained(kept.gain, currency)} without it" if gains else "   none more without it"


def _extended_line(name: str, totals: ShareTotals) -> str:
    return _share_line(totals, lambda number: amount(name, number), f" {name}")


def _pools(plan: NodePlan) -> Iterator[TextLine]:
    """Return a line for each pool of a plan in money, if there are several."""
    summary = plan.summary
    if summary.money is None or len(summary.pools) < 2:
        return
    currency = summary.money.currency
    rows = [
        (
            shown(pool.pool),
            _pool_nodes(pool),
            "no price" if pool.micros_per_month is None else change(pool.micros_per_month, currency),
            money(pool.micros_per_month.saved, currency) + " saved"
            if pool.micros_per_month is not None and pool.micros_per_month.saved
            else "",
        )
        for pool in summary.pools
    ]
    widths = [max(length(row[column]) for row in rows) for column in range(4)]
    for number, row in enumerate(rows):
        cells = [
            pad(cell, width, "><"[column == 0]) for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield figure("Pools" if number == 0 else "", f"{cells[0]}  {cells[1]}   {cells[2]}   {cells[3]}".rstrip())


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


def _rows(plan: NodePlan) -> list[tuple[str, NodeEntry]]:
    return [(f"node/{node.name}" if node.decision == "remove" else "", node) for node in plan.nodes]


PLAN = View(_printout, lambda plan: tuple(_wide(plan)), plan_page, _rows)
