"""The rows of a plan's page: one for each node, with its bars, its reasons, and its moves in both directions.

A plan of several rounds may move a pod more than once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from tightship.cluster.pools import shown
from tightship.documents.amounts import age, cores, cores_pair, memory, memory_pair, moved, percent, short
from tightship.documents.document import MoveEntry, NodeEntry, NodePlan, RefusalEntry, Share
from tightship.documents.money import hourly, monthly, origin
from tightship.documents.presentation import Bar, Cell, Entry, Section, Table
from tightship.objects.counting import counted
from tightship.objects.money import HOURS_PER_MONTH

STATES = (
    ("go", "nodes that would go"),
    ("take", "nodes that take pods"),
    ("stay", "nodes that stay as they are"),
)
"""The states of a row and their meanings."""
COLUMNS = ("Node", "CPU requested", "Memory requested", "Pods", "Decision", "Why, and what moves")


class Arrival(Struct, frozen=True):
    """A pod that a plan leaves on another node: its last *move*, and its present node *origin*."""

    move: MoveEntry
    origin: str


def arrivals_of(plan: NodePlan) -> Mapping[str, tuple[Arrival, ...]]:
    """Return the arrivals on each node that stays and receives pods, in the order of the moves."""
    ended: dict[str, Arrival] = {}
    for node in sorted((each for each in plan.nodes if each.order is not None), key=lambda each: each.order or 0):
        for move in node.moves:
            before = ended.pop(move.pod, None)
            ended[move.pod] = Arrival(move, node.name if before is None else before.origin)
    found: dict[str, list[Arrival]] = {}
    for arrival in ended.values():
        found.setdefault(arrival.move.to, []).append(arrival)
    return {name: tuple(arrived) for name, arrived in found.items()}


def node_rows(
    plan: NodePlan, arrived: Mapping[str, Sequence[Arrival]], held: Mapping[str, RefusalEntry]
) -> Iterator[Entry]:
    """Return the rows in the plan's own order; *held* says why planned nodes wait."""
    forecast = plan.summary.scheduler
    stuck = {} if forecast is None else {each.node: each.refusals for each in forecast.stuck}
    for node in plan.nodes:
        came = arrived.get(node.name, ())
        yield Entry(
            key=node.name,
            state="go" if node.decision == "remove" else "take" if came else "stay",
            cells=(
                Cell(node.name, detail=_about(node)),
                Cell(_ratios(cpu_bar(node, came)), detail=cores_pair(node.cpu_milli), picture=cpu_bar(node, came)),
                Cell(
                    _ratios(memory_bar(node, came)),
                    detail=memory_pair(node.memory_bytes),
                    picture=memory_bar(node, came),
                ),
                Cell(f"{node.pods.evictable}/{node.pods.total}"),
                _decision(node, came, held.get(node.name)),
            ),
            tags=node.reasons,
            summary=_summary(node, came),
            details=tuple(_details(node, came, stuck.get(node.name, ()))),
        )


def cpu_bar(node: NodeEntry, came: Sequence[Arrival]) -> Bar:
    """Return the CPU utilization of *node*, before and with *came*."""
    return _bar("cpu", node, node.cpu_milli, sum(each.move.cpu_milli for each in came))


def memory_bar(node: NodeEntry, came: Sequence[Arrival]) -> Bar:
    """Return the memory utilization of *node*, before and with *came*."""
    return _bar("memory", node, node.memory_bytes, sum(each.move.memory_bytes for each in came))


def _bar(kind: Literal["cpu", "memory"], node: NodeEntry, share: Share, came: int) -> Bar:
    if node.decision == "remove":
        return Bar(kind, share.ratio, None, gone=True)
    if not came or share.ratio is None:
        return Bar(kind, share.ratio, share.ratio)
    return Bar(kind, share.ratio, (share.requested + came) / share.allocatable, came / share.allocatable)


def _ratios(bar: Bar) -> str:
    return f"{percent(bar.now)} → gone" if bar.gone else moved(bar.now, bar.after)


def _about(node: NodeEntry) -> str:
    parts = [shown(node.pool), f"{age(node.age_seconds)} old"]
    extended = ((name, used) for name, used in node.other.items() if "/" in name)
    parts += [f"{used.requested:,}/{used.allocatable:,} {short(name)}" for name, used in extended]
    parts += [f"{monthly(node.cost)} a month"] if node.cost is not None else []
    return ", ".join(parts if node.ready else [*parts, "not Ready"])


def _decision(node: NodeEntry, came: Sequence[Arrival], held: RefusalEntry | None) -> Cell:
    if node.decision == "remove":
        later = f"in round {node.round}" if (node.round or 1) > 1 else ""
        if held is not None:
            return Cell(f"remove #{node.order}", "warn", detail=f"waits: {held.reason}, {held.detail}".rstrip(", "))
        return Cell(f"remove #{node.order}", "good", detail=later)
    return Cell("keep", detail=f"takes {counted(len(came), 'pod')}" if came else "")


def _summary(node: NodeEntry, came: Sequence[Arrival]) -> Cell:
    if node.decision == "remove":
        return Cell(f"{counted(len(node.moves), 'pod')} to move" if node.moves else "no pod to move")
    if not node.reasons:
        return Cell("nothing prevents the removal" if not came else "what it takes", "dim")
    return Cell(", ".join(node.reasons))


def _details(node: NodeEntry, came: Sequence[Arrival], stuck: Sequence[RefusalEntry]) -> Iterator[Section]:
    if node.moves:
        yield Section("Its pods, and where each can go", table=_moves(node.moves))
    if stuck:
        yield Section("Why kube-scheduler's own choices would strand it", table=_reasons(stuck, counted_above=False))
    if node.refusals:
        yield Section("What keeps it", table=_reasons(node.refusals, counted_above=True))
        fixes = dict.fromkeys(each.fix for each in node.refusals if each.fix)
        unknown = dict.fromkeys(f"{each.reason} {each.subject}" for each in node.refusals if not each.fix)
        if fixes:
            but = f" (no small change is known for {', '.join(unknown)})" if unknown else ""
            yield Section("Smallest change that would free it", note=f"{'; '.join(fixes)}{but}")
    if came:
        yield Section("Pods it takes", table=_arrivals(came))
    if node.other:
        yield Section("Other resources", table=_others(node.other))
    if node.cost is not None:
        price = f"{hourly(node.cost)} an hour, {monthly(node.cost)} a month of {HOURS_PER_MONTH} hours"
        yield Section("Price", note=f"{price}; from the {origin(node.cost.source, node.cost.basis)}.")


def _moves(moves: Sequence[MoveEntry]) -> Table:
    forecast = any(each.scheduler_to is not None for each in moves)
    waits = any(each.waits_for is not None for each in moves)
    columns = ["Pod", "Owner", "CPU", "Memory", "To"]
    columns += ["kube-scheduler's choice"] * forecast + ["Waits for PDB"] * waits

    def row(move: MoveEntry) -> tuple[Cell | str, ...]:
        cells = [
            Cell(move.pod, to=move.to, follows=True),
            Cell(move.owner or "-"),
            Cell(cores(move.cpu_milli), number=True),
            Cell(memory(move.memory_bytes), number=True),
            Cell(move.to, to=move.to),
        ]
        cells += [Cell(move.scheduler_to or "-", to=move.scheduler_to or "")] * forecast
        return (*cells, *[Cell(move.waits_for or "-")] * waits)

    return Table(tuple(columns), tuple(map(row, moves)))


def _arrivals(came: Sequence[Arrival]) -> Table:
    def row(arrival: Arrival) -> tuple[Cell | str, ...]:
        move = arrival.move
        return (
            Cell(move.pod, to=arrival.origin, follows=True),
            Cell(cores(move.cpu_milli), number=True),
            Cell(memory(move.memory_bytes), number=True),
            Cell(arrival.origin, to=arrival.origin),
        )

    return Table(("Pod", "CPU", "Memory", "From"), tuple(map(row, came)))


def _reasons(refusals: Sequence[RefusalEntry], *, counted_above: bool) -> Table:
    """Return one row for each refusal that several pods share. With *counted_above*, reasons link to their counts."""
    found: dict[tuple[str, str, str | None], list[str]] = {}
    for each in refusals:
        found.setdefault((each.reason, each.detail, each.fix), []).append(each.subject)
    rows = tuple(
        (
            Cell(reason, about=reason if counted_above else ""),
            _subjects(subjects),
            Cell(detail),
            Cell(fix or "none is known"),
        )
        for (reason, detail, fix), subjects in found.items()
    )
    return Table(("Reason", "What it is about", "Detail", "Smallest change"), rows)


def _subjects(names: Sequence[str]) -> Cell:
    return Cell(names[0]) if len(names) == 1 else Cell(f"{len(names):,}:", lines=tuple(names))


def _others(amounts: Mapping[str, Share]) -> Table:
    rows = tuple(
        (Cell(name), Cell(f"{share.requested:,} of {share.allocatable:,}"), Cell(percent(share.ratio), number=True))
        for name, share in amounts.items()
    )
    return Table(("Resource", "Requested", "Share"), rows)
