"""The look of a plan of nodes: a table with a row for each node, and the plan in numbers below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tightship.cluster.pools import shown
from tightship.documents.advice import advice_lines, gained, patches
from tightship.documents.amounts import age, amount, cores, cores_pair, memory, memory_pair, percent, short
from tightship.documents.blockers import SHOWN, blocker_grid
from tightship.documents.document import KeptBy, NodeEntry, NodePlan, PoolEntry, Share, ShareTotals
from tightship.documents.inputs import extended_resources
from tightship.documents.money import change, hourly, money, money_lines, monthly, origin
from tightship.documents.plan_page import besides, evicted, plan_page
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
from tightship.documents.shown_rows import ShownRows
from tightship.documents.terminal import length, pad
from tightship.objects.counting import counted
from tightship.objects.reasons import Reason

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
    shown = summary.kept_by[:KEPT_BY_IN_SUMMARY] if brief else summary.kept_by
    widest = max((len(each.reason) for each in shown), default=0)
    digits = max((len(f"{each.nodes:,}") for each in shown), default=0)
    for number, each in enumerate(shown):
        noun = "node " if each.nodes == 1 else "nodes"
        line = f"{each.reason.ljust(widest)}  {each.nodes:>{digits},} {noun}{without(each, currency)}".rstrip()
        yield figure("Kept by" if number == 0 else "", line, "why")
    if len(shown) < len(summary.kept_by):
        yield figure("", f"and {counted(len(summary.kept_by) - len(shown), 'more reason')} (-o table)")
    for label, text in besides(plan):
        yield figure(label, text, "bold" if label == "Excess" else "")
    for number, line in enumerate(_held(plan)):
        yield figure("Held back" if number == 0 else "", line, "why")
    yield from advice_lines(plan.advice, currency, brief=brief)
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
