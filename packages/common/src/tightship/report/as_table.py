"""A plan as a table that fits its terminal: bars go first, then amounts, then columns; names last."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tightship.report.amounts import age, cores_pair, memory_pair, percent
from tightship.report.columns import Column, lines
from tightship.report.document import NodeEntry, NodePlan
from tightship.report.fitting import fitted
from tightship.report.summary import heading, summary_lines
from tightship.report.terminal import Terminal, clean


class _Shape(Struct, frozen=True):
    bar: int = 10
    amounts: bool = True
    age: bool = True
    pool: bool = True


_SHAPES = (
    _Shape(),
    _Shape(bar=5),
    _Shape(bar=0),
    _Shape(bar=5, amounts=False),
    _Shape(bar=0, amounts=False),
    _Shape(bar=0, amounts=False, age=False),
    _Shape(bar=0, amounts=False, age=False, pool=False),
)
"""From roomy to narrow; the first whose lines fit, with at least the first reason in full, is taken."""


def render_table(plan: NodePlan, terminal: Terminal) -> str:
    """Return the table of *plan*, with its summary unless headers are off."""
    reasons = [node.reasons for node in plan.nodes]
    columns = fitted(_SHAPES, lambda shape: _columns(plan.nodes, terminal, shape), reasons, terminal)
    body = lines(columns, terminal)
    if not terminal.headers:
        return "".join(f"{line}\n" for line in body)
    return "\n".join([*heading(plan, terminal), "", *body, "", *summary_lines(plan, terminal)]) + "\n"


def _columns(nodes: Sequence[NodeEntry], terminal: Terminal, shape: _Shape) -> list[Column]:
    columns = [Column("NODE", [clean(node.name) for node in nodes])]
    if shape.pool:
        columns.append(Column("POOL", [clean(node.pool) or "-" for node in nodes]))
    if shape.age:
        columns.append(Column("AGE", [age(node.age_seconds) for node in nodes], ">"))
    columns += shares("CPU", [(node.cpu_milli.ratio, cores_pair(node.cpu_milli)) for node in nodes], terminal, shape)
    columns += shares(
        "MEMORY", [(node.memory_bytes.ratio, memory_pair(node.memory_bytes)) for node in nodes], terminal, shape
    )
    columns.append(Column("PODS", [f"{node.pods.evictable}/{node.pods.total}" for node in nodes], ">"))
    columns.append(decisions(nodes))
    return columns


def shares(
    title: str, values: Sequence[tuple[float | None, str]], terminal: Terminal, shape: _Shape = _Shape()
) -> list[Column]:
    """Return the columns of one resource: used/allocatable, the percentage, and a bar as far as *shape* has them."""
    percents = [percent(ratio) for ratio, _ in values]
    if shape.bar:
        # One column, so that the bar stands right beside its number.
        percents = [
            f"{text:>4} {terminal.bar(ratio, shape.bar)}" for text, (ratio, _) in zip(percents, values, strict=True)
        ]
    columns = [Column(title, [text for _, text in values], ">")] if shape.amounts else []
    align = "<" if shape.bar else ">"
    styles = ["bar"] * len(values) if shape.bar else ()
    columns.append(Column("" if shape.amounts else title, percents, align, styles))
    return columns


def decisions(nodes: Sequence[NodeEntry]) -> Column:
    """Return the column of decisions: ``remove #3`` or ``keep``."""
    return Column(
        "DECISION",
        [f"remove #{node.order}" if node.decision == "remove" else "keep" for node in nodes],
        styles=["go" if node.decision == "remove" else "" for node in nodes],
    )
