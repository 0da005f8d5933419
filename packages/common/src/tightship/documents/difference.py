"""What differs between two plans: the nodes whose decision changed, and the figures of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from tightship.documents.document import API_VERSION, Decision, Generator, NodeEntry, NodePlan, NodeTotals
from tightship.documents.money import money
from tightship.documents.presentation import Column, Grid, Printout, TextLine, View, figure
from tightship.objects.counting import counted

_WORDS = {None: "-", "remove": "remove", "keep": "keep"}


class PlanFigures(Struct, frozen=True, rename="camel"):
    """One of the two plans in numbers. *saved_micros_per_month* is ``null`` if no node has a price."""

    judged: str
    settings: str
    nodes: NodeTotals
    evictions: int
    saved_micros_per_month: int | None
    currency: str


class NodeDifference(Struct, frozen=True, rename="camel"):
    """A node whose decision differs; ``null`` in the plan whose cluster lacks the node. *reasons* keep it after all."""

    name: str
    pool: str
    before: Decision | None
    after: Decision | None
    reasons: tuple[str, ...]


class PlanDifference(Struct, frozen=True, rename="camel", tag_field="kind", tag="PlanDifference"):
    """Two plans, and the nodes whose decisions differ, by pool and name."""

    api_version: Literal["tightship.dev/v1"]
    generator: Generator
    before: PlanFigures
    after: PlanFigures
    nodes: tuple[NodeDifference, ...]


def difference(generator: Generator, before: NodePlan, after: NodePlan) -> PlanDifference:
    """Return what differs between *before* and *after*, which may be of different clusters."""
    old, new = ({node.name: node for node in plan.nodes} for plan in (before, after))
    found = (_compared(old.get(name), new.get(name)) for name in {**old, **new})
    changed = sorted((each for each in found if each.before != each.after), key=lambda each: (each.pool, each.name))
    return PlanDifference(API_VERSION, generator, _figures(before), _figures(after), tuple(changed))


def _compared(old: NodeEntry | None, new: NodeEntry | None) -> NodeDifference:
    entry = new or old
    assert entry is not None
    return NodeDifference(
        entry.name,
        entry.pool,
        None if old is None else old.decision,
        None if new is None else new.decision,
        () if new is None else new.reasons,
    )


def _figures(plan: NodePlan) -> PlanFigures:
    summary = plan.summary
    cost = summary.money
    return PlanFigures(
        plan.judged,
        plan.heading[1],
        summary.nodes,
        summary.evictions,
        None if cost is None else cost.micros_per_month.saved,
        "" if cost is None else cost.currency,
    )


def _printout(found: PlanDifference) -> Printout:
    nodes = found.nodes
    columns = (
        Column("NODE", [node.name for node in nodes]),
        Column("POOL", [node.pool or "-" for node in nodes]),
        Column("BEFORE", [_WORDS[node.before] for node in nodes]),
        Column(
            "AFTER", [_WORDS[node.after] for node in nodes], styles=["go" if n.after == "remove" else "" for n in nodes]
        ),
    )
    grid = Grid(columns, reasons=[node.reasons for node in nodes]) if nodes else None
    heading = (f"before: {found.before.judged}", f"after:  {found.after.judged}")
    return Printout(heading, grid, end=tuple(_end(found)))


def _end(found: PlanDifference) -> Iterator[TextLine]:
    before, after = found.before, found.after
    if before.settings != after.settings:
        yield figure("Settings", before.settings)
        yield figure("", f"→ {after.settings}")
    to = f"{before.nodes.removed:,} → {after.nodes.removed:,} to remove"
    yield figure("Nodes", f"{to}, {before.nodes.after:,} → {after.nodes.after:,} kept", "bold")
    yield figure("Evictions", f"{before.evictions:,} → {after.evictions:,}")
    if before.currency or after.currency:
        yield figure("Saved", f"{_saved(before)} → {_saved(after)} a month")
    gone = sum(node.after is None for node in found.nodes)
    added = sum(node.before is None for node in found.nodes)
    if gone or added:
        yield figure("Cluster", f"{counted(gone, 'node')} gone, {added:,} added")
    if not found.nodes:
        yield figure("", "no node is decided otherwise")


def _saved(side: PlanFigures) -> str:
    if side.saved_micros_per_month is None:
        return "no price"
    return money(side.saved_micros_per_month, side.currency)


DIFFERENCE = View(_printout)
