"""The plans of several clusters as one document: a line for each cluster and team, and the dearest blockers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Literal

import msgspec
from msgspec import Struct

from tightship.documents.document import API_VERSION, Blocker, Generator, NodePlan, NodeTotals
from tightship.documents.html.page import Page
from tightship.documents.money import MonthTotals, change, money
from tightship.documents.plan_view import SHOWN, plan_page, teams_of
from tightship.documents.presentation import Block, Column, Grid, GridShape, Printout, TextLine, View, figure, warning
from tightship.objects.counting import counted

TEAMS_SHOWN = 20
"""Most teams that the output for people names."""


class ClusterEntry(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One cluster: what its plan comes to, or the *error* for which there is none."""

    name: str
    error: str = ""
    evaluated_at: str = ""
    nodes: NodeTotals = NodeTotals(0, 0, 0)
    evictions: int = 0
    currency: str = ""
    micros_per_month: MonthTotals | None = None
    unpriced: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def saved(self) -> int | None:
        """Micros saved in a month, ``None`` without prices."""
        return None if self.micros_per_month is None else self.micros_per_month.saved


class TeamEntry(Struct, frozen=True, rename="camel"):
    """A *team* in a cluster: its pods keep *nodes*, *alone* of which nothing else keeps, and *moves* pods would move.

    *micros_alone* is what the nodes that it alone keeps cost in a month, ``null`` without prices.
    """

    cluster: str
    team: str
    nodes: int
    alone: int
    moves: int
    micros_alone: int | None
    currency: str


class FleetBlocker(Blocker, frozen=True, rename="camel", kw_only=True):
    """A blocker of one cluster."""

    cluster: str
    currency: str


class FleetTotals(Struct, frozen=True, rename="camel"):
    """All clusters together; *money* by currency. *unread* clusters are in no sum."""

    clusters: int
    unread: int
    nodes: NodeTotals
    evictions: int
    money: Mapping[str, MonthTotals]


class FleetPlan(Struct, frozen=True, rename="camel", tag_field="kind", tag="FleetPlan"):
    """Several clusters: *totals*, each cluster and team, the dearest *blockers* over all, and the *plans* made."""

    api_version: Literal["tightship.dev/v1"]
    generator: Generator
    totals: FleetTotals
    clusters: tuple[ClusterEntry, ...]
    teams: tuple[TeamEntry, ...]
    blockers: tuple[FleetBlocker, ...]
    plans: tuple[NodePlan, ...]


class Planned(Struct, frozen=True):
    """A cluster called *name*, with its *plan* and the *teams* of its namespaces, or the *error* instead."""

    name: str
    plan: NodePlan | None = None
    teams: Mapping[str, str] = {}
    error: str = ""


def fleet_plan(generator: Generator, found: Sequence[Planned]) -> FleetPlan:
    """Return the document of the clusters *found*."""
    clusters = tuple(_cluster(each) for each in found)
    spent: dict[str, MonthTotals] = {}
    for each in clusters:
        if each.micros_per_month is not None:
            before, more = spent.get(each.currency, MonthTotals(0, 0, 0)), each.micros_per_month
            spent[each.currency] = MonthTotals(
                *map(add, msgspec.structs.astuple(before), msgspec.structs.astuple(more))
            )
    planned = [(each.name, each.plan, each.teams) for each in found if each.plan is not None]
    blockers = (_blocker(name, plan, each) for name, plan, _ in planned for each in plan.summary.blockers)
    teams = (each for name, plan, teams in planned for each in _teams(name, plan, teams))
    totals = FleetTotals(
        clusters=len(found),
        unread=sum(bool(each.error) for each in found),
        nodes=NodeTotals(
            *(sum(getattr(each.nodes, name) for each in clusters) for name in NodeTotals.__struct_fields__)
        ),
        evictions=sum(each.evictions for each in clusters),
        money=dict(sorted(spent.items())),
    )
    return FleetPlan(
        API_VERSION,
        generator,
        totals,
        clusters,
        tuple(
            sorted(
                teams, key=lambda each: (-(each.micros_alone or 0), -each.alone, -each.nodes, each.cluster, each.team)
            )
        ),
        tuple(sorted(blockers, key=_worth)[:SHOWN]),
        tuple(plan for _, plan, _ in planned),
    )


def _worth(each: FleetBlocker) -> tuple[int, int, int, str, str, str]:
    return -(each.micros_alone or 0), -each.alone, -each.nodes, each.cluster, each.reason, each.thing


def _cluster(found: Planned) -> ClusterEntry:
    if found.plan is None:
        return ClusterEntry(found.name, found.error)
    plan, spent = found.plan, found.plan.summary.money
    return ClusterEntry(
        found.name,
        evaluated_at=plan.evaluated_at,
        nodes=plan.summary.nodes,
        evictions=plan.summary.evictions,
        currency="" if spent is None else spent.currency,
        micros_per_month=None if spent is None else spent.micros_per_month,
        unpriced=0 if spent is None else spent.unpriced,
        warnings=plan.warnings,
    )


def _blocker(name: str, plan: NodePlan, each: Blocker) -> FleetBlocker:
    spent = plan.summary.money
    currency = "" if spent is None else spent.currency
    return FleetBlocker(**msgspec.structs.asdict(each), cluster=name, currency=currency)


def _teams(name: str, plan: NodePlan, teams: Mapping[str, str]) -> Iterable[TeamEntry]:
    spent = plan.summary.money
    for each in teams_of(plan, teams):
        micros = None if spent is None else each.micros
        currency = "" if spent is None else spent.currency
        yield TeamEntry(name, each.name, each.nodes, each.alone, each.evicted, micros, currency)


def saved(document: FleetPlan) -> str:
    """Return what all clusters save, in each currency; empty without prices."""
    return ", ".join(money(each.saved, currency) for currency, each in document.totals.money.items())


def headline(document: FleetPlan) -> str:
    """Return the totals for people."""
    totals = document.totals
    nodes = f"{totals.nodes.removed:,} of {counted(totals.nodes.before, 'node')} would go"
    spent = f", {saved(document)} a month if it lasts" if any(each.saved for each in totals.money.values()) else ""
    return f"{counted(totals.clusters - totals.unread, 'cluster')}: {nodes}{spent}"


def _amount(micros: int | None, currency: str) -> str:
    return "-" if micros is None else money(micros, currency)


def _printout(document: FleetPlan) -> Printout:
    clusters, totals = document.clusters, document.totals
    read = [each for each in clusters if not each.error]
    grid = Grid(
        [
            Column("CLUSTER", [each.name for each in read]),
            Column("NODES", [f"{each.nodes.before:,}" for each in read], ">"),
            Column("GO", [f"{each.nodes.removed:,}" for each in read], ">", style="go"),
            Column("EVICTIONS", [f"{each.evictions:,}" for each in read], ">"),
            Column(
                "A MONTH",
                [
                    "-" if each.micros_per_month is None else change(each.micros_per_month, each.currency)
                    for each in read
                ],
                ">",
            ),
            Column(
                "SAVED",
                [_amount(each.saved, each.currency) for each in read],
                ">",
                style="go",
            ),
        ],
        (GridShape(names=63), GridShape(shortest=16)),
    )
    teams, shown = document.teams, document.teams[:TEAMS_SHOWN]
    of_teams = Grid(
        [
            Column("TEAM", [each.team for each in shown]),
            Column("CLUSTER", [each.cluster for each in shown]),
            Column("KEEPS", [f"{each.nodes:,}" for each in shown], ">"),
            Column("ALONE", [f"{each.alone:,}" for each in shown], ">"),
            Column("PODS MOVE", [f"{each.moves:,}" for each in shown], ">"),
            Column("A MONTH, ALONE", [_amount(each.micros_alone, each.currency) for each in shown], ">"),
        ],
        (GridShape(names=40), GridShape(shortest=12)),
    )
    found = document.blockers
    of_blockers = Grid(
        [
            Column("WHAT IS BEHIND IT", [each.thing for each in found]),
            Column("CLUSTER", [each.cluster for each in found]),
            Column("BLOCKER", [each.reason for each in found], style="why"),
            Column("NODES", [f"{each.nodes:,}" for each in found], ">"),
            Column("ALONE", [f"{each.alone:,}" for each in found], ">"),
            Column("A MONTH", [_amount(each.micros_alone, each.currency) for each in found], ">"),
        ],
        (GridShape(names=63), GridShape(shortest=20)),
    )
    more = f" (the first {TEAMS_SHOWN} of {len(teams):,}; all in -o json)" if len(teams) > TEAMS_SHOWN else ""
    below = [Block(f"What each team keeps{more}", grid=of_teams)] if shown else []
    below += [Block("The dearest blockers", grid=of_blockers)] if found else []
    end = [figure("Evictions", f"{totals.evictions:,}")]
    for currency, each in totals.money.items():
        end.append(figure("Money", f"{change(each, currency)} a month, {money(each.saved, currency)} saved"))
    unpriced = sum(each.unpriced for each in clusters)
    end += [figure("", f"{counted(unpriced, 'node has', 'nodes have')} no price")] if unpriced else []
    end += [warning(f"{each.name} is not in here: {each.error}") for each in clusters if each.error]
    end += [warning(f"{each.name}: {text}") for each in clusters for text in each.warnings]
    start = [TextLine(headline(document), indent=0, style="bold")]
    return Printout(start=start, grid=grid if read else None, below=below, end=end)


def _page(document: FleetPlan) -> Page:
    parts, first = [], 0
    named = [each for each in document.clusters if not each.error]
    for number, (entry, plan) in enumerate(zip(named, document.plans, strict=True), 1):
        within = f"c{number}-" if first else ""
        part = plan_page(plan, first=first, within=within, named=f" of {entry.name}")
        parts.append((f"cluster-{number}", entry, part))
        first += len(plan.nodes)
    values = {
        "fleet": document,
        "headline": headline(document),
        "saved": saved(document),
        "spent": ", ".join(money(each.before, currency) for currency, each in document.totals.money.items()),
        "parts": parts,
        "anchors": {entry.name: anchor for anchor, entry, _ in parts},
        "most": TEAMS_SHOWN,
        "states": parts[0][2].values["states"] if parts else (),
    }
    alerts = tuple(f"{each.name} is not in here: {each.error}" for each in document.clusters if each.error)
    title = f"{headline(document)} · {document.generator.name}"
    return Page(title, "tightship_cli.fleet/fleet.html", values, alerts)


FLEET: View[FleetPlan] = View(
    _printout, page=_page, rows=lambda document: [(each.name, each) for each in document.clusters]
)
