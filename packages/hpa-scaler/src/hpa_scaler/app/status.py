"""The running hpa-scaler's last cycle for display: every floor with all reasons as JSON, and the same as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from hpa_scaler.prometheus.circuit import CircuitState
from hpa_scaler.report import FloorPlan, Sights, plan_document, plan_page
from hpa_scaler.report.over_time import Lately
from tightship.core.reasons import Reason
from tightship.report.document import API_VERSION
from tightship.report.html.model import REFRESH, SERVED_LINKS, Page, Section, Table

KIND = "ScalerStatus"


class Status(Struct, frozen=True, rename="camel", kw_only=True):
    """The answer of ``/status``. *servers* are the circuits of the queried servers; *plan* is what ``plan -o json``
    prints.

    *problems* are whole sentences about the configuration: why it was refused, or that it was deleted, and what is in
    force.
    """

    api_version: str
    kind: str
    dry_run: bool
    leader: str
    correlated_drop: str | None
    servers: Mapping[str, CircuitState]
    problems: tuple[str, ...]
    plan: FloorPlan


class Situation(Struct, frozen=True):
    """What is shown besides a cycle: who leads, whether this is a dry run, and problems of the configuration."""

    leader: str
    dry_run: bool
    circuits: Mapping[str, CircuitState]
    problems: Sequence[str] = ()


class Shown(Struct, frozen=True):
    """One cycle, ready to be served. Few people open the *page*, so it is drawn from the *json* on request."""

    json: bytes
    page: Callable[[], Page]


def nothing_yet(name: str, why: str, leader: str = "") -> Shown:
    """Return what to serve while there is no cycle to show, because of *why*."""
    status = msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "leader": leader, "plan": None})
    return Shown(status + b"\n", lambda: Page(name, alerts=(why,), links=SERVED_LINKS, refresh=5))


def show(sights: Sights, situation: Situation, lately: Lately) -> Shown:
    """Return the status of a cycle, and a page that also shows what was *lately*.

    Takes as long as ``plan -o json``: call it in a thread.
    """
    cause = sights.cycle.verdict.cause
    status = Status(
        api_version=API_VERSION,
        kind=KIND,
        dry_run=situation.dry_run,
        leader=situation.leader,
        correlated_drop=None if cause is None else cause.detail,
        servers=dict(sorted(situation.circuits.items())),
        problems=tuple(situation.problems),
        plan=plan_document(sights),
    )
    written = msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n"
    return show_lately(written, lately)


def show_lately(written: bytes, lately: Lately) -> Shown:
    """Return the status of a cycle as *written*, and its page with what was *lately*."""
    return Shown(written, partial(_page, written, lately))


def _page(written: bytes, lately: Lately) -> Page:
    status = msgspec.json.decode(written, type=Status)
    page = plan_page(status.plan, lately)
    leader = f"judged at {status.plan.evaluated_at}; leader {status.leader or 'none'}"
    servers = Table(("Server", "Circuit"), tuple(status.servers.items()), "No server was asked.")
    return msgspec.structs.replace(
        page,
        subtitle=(leader, *page.subtitle[1:]),
        alerts=(*_alerts(status), *page.alerts),
        sections=(*page.sections, Section("Servers", table=servers)),
        links=SERVED_LINKS,
        refresh=REFRESH,
    )


def _alerts(status: Status) -> Sequence[str]:
    alerts = list(status.problems)
    if status.correlated_drop is not None and not status.plan.summary.drops.held:
        alerts.append(f"{Reason.CORRELATED_DROP}: {status.correlated_drop}")
    if status.dry_run:
        alerts.append("Dry run: nothing is changed.")
    alerts += [
        f"Server {name} gets no queries for now, because it failed."
        for name, state in status.servers.items()
        if state == "open"
    ]
    return alerts


__all__ = ["KIND", "Shown", "Situation", "Status", "nothing_yet", "show", "show_lately"]
