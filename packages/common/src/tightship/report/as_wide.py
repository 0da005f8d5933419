"""A plan as a wide table: every reason, with details and where the pods go. Nothing is cut; one line for each node."""

from __future__ import annotations

from collections import Counter

from tightship.core.counting import counted
from tightship.report.amounts import age, cores_pair, memory_pair
from tightship.report.as_table import decisions, shares
from tightship.report.columns import Column, lines
from tightship.report.document import NodeEntry, NodePlan
from tightship.report.summary import heading, summary_lines
from tightship.report.terminal import Terminal, clean


def render_wide(plan: NodePlan, terminal: Terminal) -> str:
    """Return the wide table of *plan*, with its summary unless headers are off."""
    nodes = plan.nodes
    columns = [
        Column("NODE", [clean(node.name) for node in nodes]),
        Column("POOL", [clean(node.pool) or "-" for node in nodes]),
        Column("AGE", [age(node.age_seconds) for node in nodes], ">"),
        *shares("CPU", [(node.cpu_milli.ratio, cores_pair(node.cpu_milli)) for node in nodes], terminal),
        *shares("MEMORY", [(node.memory_bytes.ratio, memory_pair(node.memory_bytes)) for node in nodes], terminal),
    ]
    if any(node.other for node in nodes):
        columns.append(Column("OTHER", [_other(node) for node in nodes]))
    columns += [
        Column("PODS", [f"{node.pods.evictable}/{node.pods.total}" for node in nodes], ">"),
        decisions(nodes),
        Column("REASONS", [_reasons(node) for node in nodes], styles=["why"] * len(nodes)),
        Column("DETAILS", [_details(node, terminal) for node in nodes]),
    ]
    body = lines(columns, terminal)
    if not terminal.headers:
        return "".join(f"{line}\n" for line in body)
    return "\n".join([*heading(plan, terminal), "", *body, "", *summary_lines(plan, terminal)]) + "\n"


def _other(node: NodeEntry) -> str:
    return ",".join(f"{clean(name)}={share.requested}/{share.allocatable}" for name, share in node.other.items()) or "-"


def _reasons(node: NodeEntry) -> str:
    if not node.reasons:
        return "-"
    counts = Counter(refusal.reason for refusal in node.refusals)
    return ",".join(f"{reason}({counts[reason]})" if counts[reason] > 1 else reason for reason in node.reasons)


def _details(node: NodeEntry, terminal: Terminal) -> str:
    if node.decision == "remove":
        if not node.moves:
            return "no pod to evict"
        targets = Counter(move.to for move in node.moves)
        arrow = terminal.sign("→", "->")
        where = ", ".join(
            f"{clean(name)} ({number})" if number > 1 else clean(name) for name, number in targets.items()
        )
        return f"{counted(len(node.moves), 'pod')} {arrow} {where}"
    parts: list[str] = []
    for reason in node.reasons:
        refusals = [refusal for refusal in node.refusals if refusal.reason == reason]
        first = refusals[0]
        about = "" if first.subject == node.name else f"{first.subject} "
        more = f" (+{len(refusals) - 1} more)" if len(refusals) > 1 else ""
        parts.append(clean(f"{about}{first.detail}{more}"))
    return "; ".join(parts) or "-"
