"""The last pass of a controller of nodes for display: the plan with all reasons as JSON, and the same as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import msgspec
from msgspec import Struct

from tightship.cluster.installations import Installation
from tightship.cluster.pools import shown
from tightship.documents.build import Inputs, plan_document, refusal_entry
from tightship.documents.document import (
    API_VERSION,
    ExcessSummary,
    Generator,
    NodePlan,
    RefusalEntry,
    SettingsView,
    Source,
)
from tightship.documents.html.page import REFRESH, Page
from tightship.documents.money import money
from tightship.documents.plan_view import plan_page
from tightship.documents.warnings import warnings_of
from tightship.draining.extensions import LandingFigures
from tightship.nodes.background import MeasuredAdvice, SearchState
from tightship.objects.counting import counted
from tightship.objects.drain_record import Finished
from tightship.objects.times import rfc3339
from tightship.planning.evaluate import Evaluation
from tightship.planning.plan import Plan
from tightship.planning.savings import saved
from tightship.process.http import Write
from tightship.rules.nodes import drain_record

STATUS = "tightship.documents.html/status.html"
"""The template of a controller's page."""


class DrainEntry(Struct, frozen=True, rename="camel"):
    """A node in drain, from its annotation. *pods_left* are the pods that have not left yet."""

    node: str
    pool: str
    controller: str
    phase: str
    since: str | None
    deadline: str | None
    reason: str
    pods_left: tuple[str, ...]


class EndedEntry(Struct, frozen=True, rename="camel"):
    """A drain that ended: how, when, and why if it did not end as planned."""

    node: str
    pool: str
    controller: str
    ending: str
    at: str
    reason: str


class SavedEntry(Struct, frozen=True, rename="camel"):
    """What drains have saved in a pool since the first: hours of nodes, and micros by currency."""

    pool: str
    node_hours: float
    micros: dict[str, int]


class InstallationEntry(Struct, frozen=True, rename="camel"):
    """Another live installation of the controller: its Lease, and which pools it drains, ``*`` for all others."""

    lease: str
    pools: tuple[str, ...]


class Status(Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The answer of ``/status``; *kind* is the controller's, *cluster* the name of its cluster.

    *held* says why planned nodes wait, *unhealthy* why nothing is drained at all. *ended* are recent drains, the newest
    first, and *saved* what drains have saved, as far as a leader knows. *landings* say where the replacements of
    evicted pods landed that this process led there. *installations* are the other live ones, as far as a leader knows.
    *problems* say why the configuration was refused, or what does not
    work. *plan* is the output of ``plan -o json``, without budgets: these limit the pace, not the direction.
    *finishing* are nodes that a dry run gives back because drains of this controller hold them; *hindrance* says why it
    can't. *search* says how searches for a better plan go, and ``plan.summary.search`` what the last one came to. The
    JSON omits *switched_off* while the controller is on, and the other optional fields while they are empty.
    """

    api_version: str
    kind: str
    cluster: str
    dry_run: bool
    switched_off: bool = False
    finishing: tuple[str, ...] = ()
    hindrance: str = ""
    leader: str
    judged_at: str
    unhealthy: RefusalEntry | None
    in_drain: tuple[DrainEntry, ...]
    ended: tuple[EndedEntry, ...] = ()
    saved: tuple[SavedEntry, ...] = ()
    landings: LandingFigures | None = None
    installations: tuple[InstallationEntry, ...] = ()
    problems: tuple[str, ...] = ()
    search: SearchState | None = None
    held: dict[str, RefusalEntry]
    plan: NodePlan


class Situation(Struct, frozen=True, kw_only=True):
    """The context of an evaluation: its *generator* and the role of this replica. *cluster* is its name for people.

    *finished* are recent drains, the oldest first. *problems* are whole sentences about the configuration: why it was
    refused, or that it was deleted, and which one is in use. *figures* are the controller's own, *excess* the plan's.
    """

    generator: Generator
    settings: SettingsView
    kind: str
    cluster: str
    leader: str
    dry_run: bool
    switched_off: bool
    finishing: tuple[str, ...] = ()
    hindrance: str = ""
    finished: Sequence[Finished] = ()
    landings: LandingFigures | None = None
    installations: Sequence[Installation] = ()
    problems: Sequence[str] = ()
    search: SearchState | None = None
    figures: Sequence[tuple[str, str]] = ()
    excess: ExcessSummary | None = None


class Shown(Struct, frozen=True):
    """One pass, made into *json* or a *page* on request, because few ask; a page takes the
    :class:`~tightship.nodes.background.MeasuredAdvice` so far, if any.
    """

    json: Write
    page: Callable[..., Page]


def nothing_yet(name: str, kind: str, cluster: str) -> Shown:
    """Return the status of the controller *name* before the first pass."""
    status = msgspec.json.encode({"apiVersion": API_VERSION, "kind": kind, "cluster": cluster, "plan": None})
    page = Page(f"{cluster} · {name}", alerts=("No pass has run yet.",), refresh=5)
    return Shown(lambda: status + b"\n", lambda *_: page)


def show(evaluation: Evaluation, situation: Situation, as_if: Plan | None = None) -> Shown:
    """Return the status of *evaluation*. What it is made into takes as long as ``plan -o json``, so a thread makes it.

    *as_if* is the plan as if Karpenter did not consolidate, if anything is left to it.
    """
    written = cache(partial(_written, evaluation, situation, as_if))
    return Shown(written, partial(_page, written, tuple(situation.figures)))


def _written(evaluation: Evaluation, situation: Situation, as_if: Plan | None) -> bytes:
    inputs = Inputs(
        generator=situation.generator,
        source=Source("cluster", situation.cluster),
        settings=situation.settings,
        snapshot=evaluation.snapshot,
        facts=evaluation.facts,
        plan=evaluation.plan,
        now=evaluation.now,
        warnings=warnings_of(evaluation.snapshot, evaluation.unknown_minimums, evaluation.untold),
        excess=situation.excess,
        as_if_unmanaged=as_if,
    )
    status = Status(
        api_version=API_VERSION,
        kind=situation.kind,
        cluster=situation.cluster,
        dry_run=situation.dry_run,
        switched_off=situation.switched_off,
        finishing=situation.finishing,
        hindrance=situation.hindrance if situation.finishing else "",
        leader=situation.leader,
        judged_at=rfc3339(evaluation.now),
        unhealthy=None if evaluation.unhealthy is None else refusal_entry(evaluation.unhealthy),
        in_drain=_drains(evaluation),
        ended=tuple(
            EndedEntry(each.node, each.pool, each.controller, each.ending, rfc3339(each.at), each.reason)
            for each in reversed(situation.finished)
        ),
        saved=tuple(
            SavedEntry(pool, round(each.node_hours, 2), dict(each.micros))
            for pool, each in sorted(saved(evaluation.history, evaluation.now).items())
        ),
        landings=situation.landings,
        installations=tuple(
            InstallationEntry(each.lease, tuple(sorted(pool for pool, drained in each.pools.items() if drained)))
            for each in situation.installations
        ),
        problems=tuple(situation.problems),
        search=situation.search,
        held={name: refusal_entry(refusal) for name, refusal in sorted(evaluation.held.items())},
        plan=plan_document(inputs),
    )
    return msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n"


def _drains(evaluation: Evaluation) -> tuple[DrainEntry, ...]:
    found = []
    for name, fact in evaluation.facts.items():
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
                pods_left=tuple(pod.key for pod in fact.evict),
            )
        )
    return tuple(found)


def _page(write: Write, figures: tuple[tuple[str, str], ...], measured: MeasuredAdvice | None = None) -> Page:
    status = msgspec.json.decode(write(), type=Status)
    plan = msgspec.structs.replace(status.plan, held=status.held)
    if measured is not None:
        kept = (msgspec.structs.replace(each, gain=measured.costs.get(each.reason)) for each in plan.summary.kept_by)
        summary = msgspec.structs.replace(plan.summary, kept_by=tuple(kept))
        plan = msgspec.structs.replace(plan, summary=summary, advice=measured.advice)
    return plan_page(
        plan,
        template=STATUS,
        alerts=_alerts(status),
        refresh=REFRESH,
        status=status,
        figures=(*_figures(status), *figures),
        measured_at="" if measured is None else measured.at,
    )


def _figures(status: Status) -> Iterator[tuple[str, str]]:
    """Yield what the controller does now, and what came of it so far, each with its name."""
    drains = len(status.in_drain)
    yield "in drain", f"{counted(drains, 'node')} of all controllers" if drains else "no node"
    if status.held:
        yield "held back", f"{counted(len(status.held), 'node')} planned, and waiting"
    if status.saved:
        micros = sum((Counter(each.micros) for each in status.saved), Counter[str]())
        amounts = [money(amount, currency) for currency, amount in sorted(micros.items())]
        hours = f"{sum(each.node_hours for each in status.saved):,.1f} node-hours"
        yield "saved so far", ", ".join([*amounts, hours])
    if (figures := status.landings) is not None:
        text = "off" if figures.problem else "none yet"
        if figures.landed:
            share = f"{100 * figures.target / figures.landed:.1f} %"
            text = f"{share}: {figures.target:,} of {figures.landed:,} pods on their target"
        yield "landings", f"{text}; steering: {figures.mode}"
    for each in status.installations:
        yield "other installation", f"{each.lease} drains {', '.join(map(shown, each.pools)) or 'no pool'}"
    if (search := status.search) is not None:
        ended = f"{counted(search.searches, 'search', 'searches')} ended, {search.improved:,} found better"
        now = "searching" if search.running else "at rest"
        yield "search", f"{now}; {'no node is claimed before the first has ended' if search.claims_wait else ended}"


def _alerts(status: Status) -> Sequence[str]:
    alerts = list(status.problems)
    if status.unhealthy is not None:
        alerts.append(f"{status.unhealthy.reason}: {status.unhealthy.detail}")
    if status.dry_run and not status.finishing:
        alerts.append("Dry run: nothing is changed.")
    if status.finishing:
        what = f"Dry run, finishing: drains of this controller hold {', '.join(status.finishing)}"
        hindered = f"; they can't be given back: {status.hindrance}" if status.hindrance else "; they are given back."
        alerts.append(what + hindered)
    if status.switched_off:
        alerts.append("Switched off: drains under way end, and no new drain begins.")
    return alerts
