"""The lines above and below a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tightship.core.counting import counted
from tightship.report.amounts import cores, memory, percent
from tightship.report.document import ExcessSummary, NodePlan, Share, ShareTotals
from tightship.report.explanation import NodeExplanation
from tightship.report.terminal import Terminal, clean

NAMES_SHOWN = 5
"""Names a line lists before it says how many more there are."""

LABEL = 11
"""Columns of the labels below a table."""


def heading(document: NodePlan | NodeExplanation, terminal: Terminal) -> list[str]:
    """Return what was judged and by which settings; with the settings' own line last."""
    where = "standard input" if document.source.name == "-" else document.source.name
    first = f"{document.source.type} {clean(where)} at {document.evaluated_at}"
    second = f"{clean(document.settings.summary)}; strategy {document.strategy}, placement {document.placement}"
    return [terminal.paint(line, "dim") for line in (*terminal.fold(first, ""), *terminal.fold(second, ""))]


def summary_lines(plan: NodePlan, terminal: Terminal) -> list[str]:
    """Return the plan in numbers, what keeps the rest, and warnings."""
    arrow = terminal.sign("→", "->")
    summary = plan.summary
    nodes = summary.nodes
    parts: list[tuple[str, str, str]] = []
    share = f" ({percent(nodes.removed / nodes.before)})" if nodes.before else ""
    rounds = f" in {counted(summary.rounds, 'round')}" if summary.rounds > 1 else ""
    evictions = f", {counted(summary.evictions, 'eviction')}{rounds}" if nodes.removed else ""
    outcome = f"{nodes.before:,} {arrow} {nodes.after:,}   {nodes.removed:,} to remove{share}{evictions}"
    parts.append(("Nodes", outcome, "bold"))
    parts.append(("CPU", _share_line(summary.cpu_milli, cores, arrow, " cores"), ""))
    parts.append(("Memory", _share_line(summary.memory_bytes, memory, arrow, ""), ""))
    parts += [(label, text, "bold" if label == "Excess" else "") for label, text in besides(plan)]
    widest = max((len(each.reason) for each in summary.kept_by), default=0)
    digits = max((len(f"{each.nodes:,}") for each in summary.kept_by), default=0)
    for number, each in enumerate(summary.kept_by):
        only = f"   {each.alone:,} by nothing else" if each.alone else ""
        noun = "node " if each.nodes == 1 else "nodes"
        line = f"{each.reason.ljust(widest)}  {each.nodes:>{digits},} {noun}{only}".rstrip()
        parts.append(("Kept by" if number == 0 else "", line, "why"))
    parts += [("Warning", clean(text), "bad") for text in plan.warnings]
    return [line for label, text, style in parts for line in labelled(label, text, style, terminal)]


def besides(plan: NodePlan) -> Iterator[tuple[str, str]]:
    """Return what there is to say of a plan besides its numbers, each text with its label."""
    summary = plan.summary
    if summary.excess is not None:
        yield "Excess", _excess(summary.excess)
        yield "Counted", _counted(summary.excess)
    if summary.waits_for:
        waits = f"{names(summary.waits_for)}: pods of one node leave one after another, as replacements become Ready"
        yield "PDB waits", waits
    for text in _scheduler(plan):
        yield "Scheduler", text


def names(values: Iterable[str]) -> str:
    """Return the first names and how many more there are."""
    listed = [clean(value) for value in values]
    more = len(listed) - NAMES_SHOWN
    return ", ".join(listed[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def warning_lines(warnings: Iterable[str], terminal: Terminal) -> list[str]:
    """Return the lines of warnings alone."""
    return [line for text in warnings for line in labelled("Warning", clean(text), "bad", terminal)]


def _share_line(totals: ShareTotals, shown: Callable[[int], str], arrow: str, unit: str) -> str:
    def side(share: Share) -> str:
        return f"{shown(share.requested)} of {shown(share.allocatable)}{unit} requested ({percent(share.ratio)})"

    freed = totals.before.allocatable - totals.after.allocatable
    if not freed:
        return side(totals.before)
    after = totals.after
    kept = f"{shown(after.requested)} of {shown(after.allocatable)} ({percent(after.ratio)})"
    return f"{side(totals.before)} {arrow} {kept}   {shown(freed)} freed"


def _excess(excess: ExcessSummary) -> str:
    could = f"{excess.could_go:,} could really go; the threshold is {excess.threshold:g}"
    if excess.candidate is None:
        return f"no node is counted; {could}"
    each = f"CPU {_nodes(excess.cpu)}, memory {_nodes(excess.memory)}"
    return f"{_nodes(excess.nodes)} nodes like {clean(excess.candidate)} ({each}); {could}"


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
    done = f"with {counted(forecast.evictions, 'eviction')} (modelled)"
    if not forecast.stuck:
        yield f"its own choices would reach all of {which}, {done}"
        return
    stuck = names(each.node for each in forecast.stuck)
    yield (
        f"its own choices would reach {forecast.removed:,} of the {counted(planned, 'removal')} of {which}, "
        f"{done}; "
        f"it would strand {stuck}"
    )


def labelled(label: str, text: str, style: str, terminal: Terminal) -> list[str]:
    """Return *text* beside *label*, folded where the terminal ends; of the style ``bad`` only the label is painted."""
    head = label.ljust(LABEL)
    folded = terminal.fold(text, " " * LABEL)
    first, *rest = folded
    painted = terminal.paint(head, "bad" if style == "bad" else "bold") if label else head
    body = "" if style == "bad" else style
    return [painted + terminal.paint(first, body), *(" " * LABEL + terminal.paint(line, body) for line in rest)]
