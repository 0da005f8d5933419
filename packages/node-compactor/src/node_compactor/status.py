"""What the running compactor shows of its last pass: the plan with all reasons as JSON, and the same as a page."""

from __future__ import annotations

import msgspec
from msgspec import Struct

import node_compactor
from node_compactor.deciding import Decision
from node_compactor.describing import summarize, wire
from node_compactor.policy import shown
from tightship.nodes import drain_record
from tightship.report import Generator, Inputs, SettingsView, plan_document, warnings_of
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


class CompactorStatus(Struct, frozen=True, rename="camel"):
    """The answer of ``/status``.

    *held* says of planned nodes what they wait for, *unhealthy* why nothing is drained at all; *plan* is what
    ``node-compactor plan -o json`` prints, budgets left out: they say how fast to go, not where.
    """

    api_version: str
    kind: str
    dry_run: bool
    leader: str
    judged_at: str
    unhealthy: RefusalEntry | None
    in_drain: tuple[DrainEntry, ...]
    held: dict[str, RefusalEntry]
    plan: NodePlan


class Shown(Struct, frozen=True):
    """One pass made ready to be served."""

    json: bytes
    page: Page


_NOTHING_YET = b'{"apiVersion":"tightship.dev/v1","kind":"CompactorStatus","plan":null}\n'


def nothing_yet() -> Shown:
    """Return what is served before the first pass."""
    return Shown(_NOTHING_YET, Page("node-compactor", alerts=("No pass has been made yet.",), refresh=5))


def show(decision: Decision, *, leader: str, dry_run: bool, cluster: str) -> Shown:
    """Return the status of *decision*. Takes as long as ``plan -o json``: to be called in a thread."""
    settings = decision.settings
    inputs = Inputs(
        generator=Generator("node-compactor", node_compactor.__version__),
        source=Source("cluster", cluster),
        settings=SettingsView(summarize(settings, "live"), wire(settings)),
        snapshot=decision.snapshot,
        facts=decision.facts,
        plan=decision.plan,
        now=decision.now,
        warnings=warnings_of(decision.snapshot),
    )
    document = plan_document(inputs)
    status = CompactorStatus(
        api_version=API_VERSION,
        kind="CompactorStatus",
        dry_run=dry_run,
        leader=leader,
        judged_at=rfc3339(decision.now),
        unhealthy=None if decision.unhealthy is None else refusal_entry(decision.unhealthy),
        in_drain=_drains(decision),
        held={name: refusal_entry(refusal) for name, refusal in sorted(decision.held.items())},
        plan=document,
    )
    return Shown(msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n", _page(status, decision))


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


def _page(status: CompactorStatus, decision: Decision) -> Page:
    plan = status.plan
    planned = sorted((node for node in plan.nodes if node.order is not None), key=lambda node: node.order or 0)
    staying = [node for node in plan.nodes if node.order is None]
    alerts = [] if status.unhealthy is None else [f"{status.unhealthy.reason}: {status.unhealthy.detail}"]
    if status.dry_run:
        alerts.append("Dry run: nothing is changed.")
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
        title="node-compactor",
        subtitle=f"judged at {status.judged_at}; leader {status.leader or 'none'}; {plan.settings.summary}",
        alerts=tuple(alerts),
        facts=(
            Fact("nodes", f"{len(plan.nodes):,}"),
            Fact("would go", f"{len(planned):,}", "good" if planned else ""),
            Fact("evictions for that", f"{decision.plan.evictions:,}"),
            Fact("in drain", f"{len(status.in_drain):,}"),
            Fact("held back", f"{len(status.held):,}", "warn" if status.held else ""),
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
