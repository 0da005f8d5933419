"""What the running hpa-scaler shows of its last cycle: every floor with all reasons as JSON, and the same as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from hpa_scaler.prometheus.circuit import CircuitState
from hpa_scaler.reasons import TROUBLE, Reason
from hpa_scaler.report import FloorPlan, Sights, plan_document
from hpa_scaler.report.document import HpaEntry
from tightship.report.document import API_VERSION
from tightship.runtime.page import Cell, Fact, Page, Section, Table

KIND = "ScalerStatus"
ROWS = 1000
"""HPAs shown in a table of the page; /status has all."""

_TONES = {"raise": "good", "lower": "warn"}
_TROUBLE = frozenset(reason.value for reason in TROUBLE)


class Status(Struct, frozen=True, rename="camel", kw_only=True):
    """The answer of ``/status``. *servers* are the circuits to those asked; *plan* is what ``plan -o json`` prints."""

    api_version: str
    kind: str
    dry_run: bool
    leader: str
    correlated_drop: str | None
    servers: Mapping[str, CircuitState]
    plan: FloorPlan


class Situation(Struct, frozen=True):
    """What is shown besides a cycle: who leads, whether nothing is written, and why a configuration can't be used."""

    leader: str
    dry_run: bool
    circuits: Mapping[str, CircuitState]
    problems: Sequence[str] = ()


class Shown(Struct, frozen=True):
    """One cycle made ready to be served."""

    json: bytes
    page: Page


def nothing_yet(name: str, why: str, leader: str = "") -> Shown:
    """Return what is served while there is no cycle to show, because of *why*."""
    status = msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "leader": leader, "plan": None})
    return Shown(status + b"\n", Page(name, alerts=(why,), refresh=5))


def show(sights: Sights, situation: Situation) -> Shown:
    """Return the status of a cycle. Takes as long as ``plan -o json``: to be called in a thread."""
    cause = sights.cycle.verdict.cause
    status = Status(
        api_version=API_VERSION,
        kind=KIND,
        dry_run=situation.dry_run,
        leader=situation.leader,
        correlated_drop=None if cause is None else cause.detail,
        servers=dict(sorted(situation.circuits.items())),
        plan=plan_document(sights),
    )
    return Shown(msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n", _page(sights, situation, status))


def _page(sights: Sights, situation: Situation, status: Status) -> Page:
    plan = status.plan
    summary = plan.summary
    moving = [hpa for hpa in plan.hpas if hpa.action in ("raise", "lower") or hpa.maximum.now != hpa.maximum.after]
    troubled = [hpa for hpa in plan.hpas if not _TROUBLE.isdisjoint(hpa.reasons)]
    alerts = [f"The configuration was refused, the last good one stands: {line}" for line in situation.problems]
    if status.correlated_drop is not None:
        alerts.append(f"{Reason.CORRELATED_DROP}: {status.correlated_drop}")
    if status.dry_run:
        alerts.append("Dry run: nothing is changed.")
    alerts += [f"Server {name} is left alone: it failed." for name, state in status.servers.items() if state == "open"]
    alerts += plan.warnings
    return Page(
        title=sights.generator.name,
        subtitle=f"judged at {plan.evaluated_at}; leader {status.leader or 'none'}; {plan.settings.summary}",
        alerts=tuple(alerts),
        facts=(
            Fact("HPAs", f"{summary.hpas:,}"),
            Fact("raised", f"{summary.actions.raised:,}", "good" if summary.actions.raised else ""),
            Fact("lowered", f"{summary.actions.lowered:,}", "warn" if summary.actions.lowered else ""),
            Fact("held", f"{summary.actions.held:,}"),
            Fact("skipped", f"{summary.actions.skipped:,}"),
            Fact("in trouble", f"{len(troubled):,}", "bad" if troubled else ""),
            Fact("sum of floors", f"{summary.floor.now:,}"),
        ),
        sections=(
            _section("Moves", moving, "no floor moves"),
            _section("Trouble", troubled, "no HPA needs anybody's attention"),
            _section("All", plan.hpas, "no HPA is opted in"),
        ),
    )


def _section(heading: str, hpas: Sequence[HpaEntry], empty: str) -> Section:
    more = "" if len(hpas) <= ROWS else f"the first {ROWS:,} of {len(hpas):,}; all are in /status"
    columns = ("HPA", "target", "replicas", "minReplicas", "maxReplicas", "formula", "because")
    rows = tuple(
        (
            f"{hpa.namespace}/{hpa.name}",
            Cell(hpa.target, "dim"),
            Cell("-" if hpa.replicas is None else str(hpa.replicas), number=True),
            Cell(_move(hpa.minimum.now, hpa.minimum.after), _TONES.get(hpa.action, ""), number=True),  # type: ignore[arg-type]
            Cell(_move(hpa.maximum.now, hpa.maximum.after), number=True),
            Cell(hpa.formula or "-", "dim"),
            Cell(", ".join(hpa.reasons[:3]), lines=tuple(each.detail for each in hpa.causes[:3] if each.detail)),
        )
        for hpa in hpas[:ROWS]
    )
    return Section(heading, note=more, table=Table(columns, rows, empty))


def _move(now: int, after: int) -> str:
    return str(now) if now == after else f"{now} → {after}"


__all__ = ["ROWS", "Shown", "Situation", "Status", "nothing_yet", "show"]
