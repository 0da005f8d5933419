"""What a controller of nodes shows of its last pass: the plan with all reasons as JSON, and the same as a page."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from tightship.consolidation.decision import Decision
from tightship.nodes import drain_record
from tightship.pools import shown
from tightship.report import ExcessSummary, Generator, Inputs, plan_document, warnings_of
from tightship.report.document import API_VERSION, NodePlan, RefusalEntry, Source
from tightship.report.inputs import refusal_entry
from tightship.runtime.page import Cell, Fact, Page, Section, Table
from tightship.times import rfc3339

ROWS = 1000
"""Nodes shown on the page; /status has all."""


class DrainEntry(Struct, frozen=True, rename="camel"):
    """A node in drain, by what is written on it."""

    node: str
    pool: str
    controller: str
    phase: str
    since: str | None
    deadline: str | None
    reason: str


class Status(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The answer of ``/status``; *kind* is the controller's.

    *held* says of planned nodes what they wait for, *unhealthy* why nothing is drained at all; *plan* is what the
    command ``plan -o json`` prints, budgets left out: they say how fast to go, not where. *switched_off* is left out
    while the controller is on.
    """

    api_version: str
    kind: str
    dry_run: bool
    switched_off: bool = False
    leader: str
    judged_at: str
    unhealthy: RefusalEntry | None
    in_drain: tuple[DrainEntry, ...]
    held: dict[str, RefusalEntry]
    plan: NodePlan


class Remarks(Struct, frozen=True):
    """What a controller adds: to the page figures after those that all have, and alerts after the brake's; to the plan
    the figures of an excess.
    """

    facts: tuple[Fact, ...] = ()
    alerts: tuple[str, ...] = ()
    excess: ExcessSummary | None = None


class Situation(Struct, frozen=True, kw_only=True):
    """What is shown besides a decision: who made it (*generator*), and as what. *cluster* names the API server."""

    generator: Generator
    kind: str
    cluster: str
    leader: str
    dry_run: bool
    switched_off: bool


class Shown(Struct, frozen=True):
    """One pass made ready to be served."""

    json: bytes
    page: Page


def nothing_yet(name: str, kind: str) -> Shown:
    """Return what the controller *name* serves before the first pass."""
    status = msgspec.json.encode({"apiVersion": API_VERSION, "kind": kind, "plan": None})
    return Shown(status + b"\n", Page(name, alerts=("No pass has been made yet.",), refresh=5))


def show(decision: Decision, situation: Situation, remarks: Remarks = Remarks()) -> Shown:
    """Return the status of *decision*. Takes as long as ``plan -o json``: to be called in a thread."""
    inputs = Inputs(
        generator=situation.generator,
        source=Source("cluster", situation.cluster),
        settings=decision.settings_view,
        snapshot=decision.snapshot,
        facts=decision.facts,
        plan=decision.plan,
        now=decision.now,
        warnings=warnings_of(decision.snapshot),
        excess=remarks.excess,
    )
    status = Status(
        api_version=API_VERSION,
        kind=situation.kind,
        dry_run=situation.dry_run,
        switched_off=situation.switched_off,
        leader=situation.leader,
        judged_at=rfc3339(decision.now),
        unhealthy=None if decision.unhealthy is None else refusal_entry(decision.unhealthy),
        in_drain=_drains(decision),
        held={name: refusal_entry(refusal) for name, refusal in sorted(decision.held.items())},
        plan=plan_document(inputs),
    )
    page = _page(situation.generator.name, status, decision.plan.evictions, remarks)
    return Shown(msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n", page)


def _drains(decision: Decision) -> tuple[DrainEntry, ...]:
    found = []
    for name, fact in decision.facts.items():
        record = drain_record(fact.view.node)
        if record is None or not record.owns_node:
            continue
        since = record.entered(record.phase)
        found.append(
            DrainEntry(
                node=name,
                pool=fact.pool,
                controller=record.controller,
                phase=record.phase.value,
                since=None if since is None else rfc3339(since),
                deadline=None if record.deadline is None else rfc3339(record.deadline),
                reason=record.reason,
            )
        )
    return tuple(found)


def _page(name: str, status: Status, evictions: int, remarks: Remarks) -> Page:
    plan = status.plan
    planned = sorted((node for node in plan.nodes if node.order is not None), key=lambda node: node.order or 0)
    staying = [node for node in plan.nodes if node.order is None]
    alerts = [] if status.unhealthy is None else [f"{status.unhealthy.reason}: {status.unhealthy.detail}"]
    if status.dry_run:
        alerts.append("Dry run: nothing is changed.")
    if status.switched_off:
        alerts.append("Switched off: what is under way is finished, nothing new is begun.")
    alerts += remarks.alerts
    drains = tuple(
        (each.node, shown(each.pool), each.phase, each.controller, each.since or "", Cell(each.reason, "dim"))
        for each in status.in_drain
    )
    plans = tuple(
        (
            Cell(str(node.order), number=True),
            node.name,
            shown(node.pool),
            Cell(_percent(node.cpu_milli.ratio), number=True),
            Cell(_percent(node.memory_bytes.ratio), number=True),
            Cell(str(len(node.moves)), number=True),
            _waits(status.held.get(node.name)),
        )
        for node in planned[:ROWS]
    )
    stays = tuple(
        (
            node.name,
            shown(node.pool),
            Cell(_percent(node.cpu_milli.ratio), number=True),
            Cell(_percent(node.memory_bytes.ratio), number=True),
            Cell(", ".join(node.reasons[:3]), lines=tuple(each.detail for each in node.refusals[:3])),
        )
        for node in staying[:ROWS]
    )
    more = "" if len(staying) <= ROWS else f"the first {ROWS:,} of {len(staying):,}; all are in /status"
    return Page(
        title=name,
        subtitle=f"judged at {status.judged_at}; leader {status.leader or 'none'}; {plan.settings.summary}",
        alerts=tuple(alerts),
        facts=(
            Fact("nodes", f"{len(plan.nodes):,}"),
            Fact("would go", f"{len(planned):,}", "good" if planned else ""),
            Fact("evictions for that", f"{evictions:,}"),
            Fact("in drain", f"{len(status.in_drain):,}"),
            Fact("held back", f"{len(status.held):,}", "warn" if status.held else ""),
            *remarks.facts,
        ),
        sections=(
            Section(
                "In drain",
                table=Table(("node", "pool", "phase", "controller", "since", "reason"), drains, "no node is in drain"),
            ),
            Section(
                "Would go, in this order",
                table=Table(
                    ("#", "node", "pool", "CPU", "memory", "evictions", "waits for"), plans, "no node would go"
                ),
            ),
            Section("Stays, and why", note=more, table=Table(("node", "pool", "CPU", "memory", "because"), stays)),
        ),
    )


def _waits(held: RefusalEntry | None) -> Cell:
    return Cell("") if held is None else Cell(held.reason, "warn", detail=held.detail)


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.0%}"
