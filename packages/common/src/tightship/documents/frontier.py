"""What evictions buy: ever more nodes removed, with the fewest evictions known and the fewest that are possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tightship.documents.document import NodeHead
from tightship.documents.html.page import Page
from tightship.documents.money import money
from tightship.documents.presentation import Column, Grid, Printout, TextLine, View, figure, warning

if TYPE_CHECKING:
    # hpa-scaler uses documents too, and has no numpy, which plans need.
    from tightship.documents.build import Inputs
    from tightship.planning.plan import Proven

WIDTH, HEIGHT, MARGIN = 720, 360, 60
"""The plot in units, which are pixels in a wide window, with room for the words at its axes."""


class FrontierPoint(Struct, frozen=True, rename="camel"):
    """One plan: the nodes *removed* and those that stay (*nodes_after*), and its *evictions*.

    No plan of one round that removes as many evicts fewer than *least* pods. *saved_micros_per_month* is what the plan
    saves, ``null`` if no node has a price. *knee* marks the point after which a node costs most evictions more.
    """

    removed: int
    nodes_after: int
    evictions: int
    least: int
    saved_micros_per_month: int | None
    knee: bool = False


class NodeFrontier(NodeHead, frozen=True, rename="camel", tag_field="kind", tag="NodeFrontier"):
    """What evictions buy on a cluster. *solver* found the least evictions: ``highs`` by a linear program, ``none`` by
    the nodes with the fewest pods alone, which may be too few.
    """

    nodes: int
    currency: str | None
    solver: Literal["highs", "none"]
    points: tuple[FrontierPoint, ...]
    warnings: tuple[str, ...] = ()


def frontier_document(inputs: Inputs, proven: Proven) -> NodeFrontier:
    """Return the document of the plan of *inputs*, of which *proven* tells."""
    nodes = len(inputs.facts)  # no virtual ones
    prices = {name: fact.price for name, fact in inputs.facts.items() if fact.price is not None}
    monthly = [prices[each.node].monthly if each.node in prices else 0 for each in inputs.plan.removals]
    return NodeFrontier(
        *inputs.head,
        nodes=nodes,
        currency=next((price.currency for price in prices.values()), None),
        solver="highs" if proven.solved else "none",
        points=with_knee(
            [
                FrontierPoint(removed, nodes - removed, evictions, least, sum(monthly[:removed]) if prices else None)
                for removed, evictions, least in proven.points
            ]
        ),
        warnings=inputs.warnings,
    )


def with_knee(points: Sequence[FrontierPoint]) -> tuple[FrontierPoint, ...]:
    """Return *points* with the knee marked: the one farthest above the line from nothing to the last (Satopaa et al.,
    *Finding a "Kneedle" in a Haystack*, 2011). A straight line has none.
    """
    if not points or not points[-1].evictions:
        return tuple(points)
    last = points[-1]
    above = [each.removed / last.removed - each.evictions / last.evictions for each in points]
    best = above.index(max(above))
    if above[best] <= 1e-9:
        return tuple(points)
    return tuple(
        FrontierPoint(p.removed, p.nodes_after, p.evictions, p.least, p.saved_micros_per_month, number == best)
        for number, p in enumerate(points)
    )


def steps(points: Sequence[FrontierPoint]) -> list[float]:
    """Return for each point the evictions for each node that it removes more than the point before it."""
    before = [(0, 0), *((each.removed, each.evictions) for each in points)]
    return [(p.evictions - e) / max(1, p.removed - n) for p, (n, e) in zip(points, before, strict=False)]


def _saved(found: NodeFrontier, point: FrontierPoint) -> str:
    micros = point.saved_micros_per_month
    return "-" if micros is None or found.currency is None else money(micros, found.currency)


def _cells(found: NodeFrontier) -> list[tuple[str, ...]]:
    return [
        (
            f"{p.nodes_after:,}",
            f"{p.removed:,}",
            f"{p.evictions:,}",
            f"{p.least:,}",
            f"{each:.2f}",
            _saved(found, p),
            "knee" if p.knee else "",
        )
        for p, each in zip(found.points, steps(found.points), strict=True)
    ]


TITLES = ("KEPT", "REMOVED", "EVICTIONS", "PROVEN", "FOR ONE MORE", "SAVED A MONTH", "")


def _printout(found: NodeFrontier) -> Printout:
    columns = [
        Column(title, cells, ">" if title else "<", styles=["go" if p.knee else "" for p in found.points])
        for title, cells in zip(TITLES, zip(*_cells(found), strict=True), strict=False)
    ]
    return Printout(found.heading, Grid(columns) if columns else None, end=tuple(_end(found)))


def _end(found: NodeFrontier) -> Iterator[TextLine]:
    knee = next((each for each in found.points if each.knee), None)
    if not found.points:
        yield figure("Nodes", f"none of {found.nodes:,} could go", "bold")
    if knee is not None:
        yield figure("Knee", headline(found, knee), "bold")
        yield figure("", f"--evictions {knee.evictions} is the plan that saves most with at most as many")
    if found.points:
        yield figure("Proven", PROVEN[found.solver])
    for text in found.warnings:
        yield warning(text)


PROVEN = {
    "highs": "no plan of one round that removes as many nodes evicts fewer pods, by a linear program",
    "none": "by the nodes with the fewest pods alone; pip install 'tightship[solver]' proves more of few kinds of pods",
}


def headline(found: NodeFrontier, knee: FrontierPoint) -> str:
    """Return what the knee says in words."""
    last = found.points[-1]
    opening = f"the first {knee.removed:,} nodes take {knee.evictions / knee.removed:.2f} evictions each"
    if last.removed == knee.removed:
        return opening
    more = (last.evictions - knee.evictions) / (last.removed - knee.removed)
    return f"{opening}, the {last.removed - knee.removed:,} after them {more:.2f}"


def plot(points: Sequence[FrontierPoint]) -> dict[str, object]:
    """Return the curves in units, the points of the plans and of the proof, and where the axes have lines."""
    most, nodes = max((p.evictions for p in points), default=0) or 1, points[-1].removed if points else 1

    def at(evictions: float, removed: float) -> tuple[float, float]:
        x = MARGIN + evictions / most * (WIDTH - 2 * MARGIN)
        return round(x, 1), round(HEIGHT - MARGIN - removed / nodes * (HEIGHT - 2 * MARGIN), 1)

    parts = (0, 0.25, 0.5, 0.75, 1)
    return {
        "plans": [(*at(p.evictions, p.removed), p) for p in points],
        "proof": [at(0, 0), *(at(p.least, p.removed) for p in points)],
        "across": [(at(part * most, 0)[0], f"{part * most:,.0f}") for part in parts],
        "up": [(at(0, part * nodes)[1], f"{part * nodes:,.0f}") for part in parts],
    }


def _page(found: NodeFrontier) -> Page:
    knee = next((each for each in found.points if each.knee), None)
    values = {
        "found": found,
        "plot": plot(found.points),
        "cells": _cells(found),
        "titles": TITLES,
        "knee": knee,
        "headline": "" if knee is None else headline(found, knee),
        "proven": PROVEN[found.solver],
        "size": (WIDTH, HEIGHT, MARGIN),
    }
    title = f"What evictions buy: {found.source.shown}"
    return Page(title, "tightship.documents.html/frontier.html", values)


FRONTIER = View(_printout, page=_page)
"""The look of a frontier."""
