"""The last pass of a controller of nodes for display: the plan with all reasons as JSON, and the same as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from tightship.cluster.installations import Installation
from tightship.cluster.pools import shown
from tightship.documents.build import plan_document
from tightship.documents.document import (
    API_VERSION,
    ExcessSummary,
    Generator,
    NodePlan,
    RefusalEntry,
    SettingsView,
    Source,
)
from tightship.documents.inputs import Inputs, refusal_entry
from tightship.documents.money import money
from tightship.documents.plan_page import plan_page
from tightship.documents.presentation import REFRESH, SERVED_LINKS, Cell, Fact, Page, Section, Table
from tightship.documents.warnings import warnings_of
from tightship.draining.extensions import LandingFigures
from tightship.nodes.background_search import SearchState
from tightship.objects.counting import counted
from tightship.objects.drain_record import Finished
from tightship.objects.times import rfc3339
from tightship.planning.evaluate import Evaluation
from tightship.planning.plan import Plan
from tightship.planning.savings import saved
from tightship.rules.nodes import drain_record

PODS_SHOWN, ENDED_SHOWN = 5, 10
"""Most pods of a drain and most ended drains that the page names; ``/status`` has all."""


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
    """The answer of ``/status``; *kind* is the controller's.

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
    """The context of an evaluation: its *generator* and the role of this replica. *cluster* names the API server.

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
    figures: Sequence[Fact] = ()
    excess: ExcessSummary | None = None


class Shown(Struct, frozen=True):
    """One pass, ready to be served. *page* draws itself from *json* on request, because few people open it."""

    json: bytes
    page: Callable[[], Page]


def nothing_yet(name: str, kind: str) -> Shown:
    """Return the status of the controller *name* before the first pass."""
    status = msgspec.json.encode({"apiVersion": API_VERSION, "kind": kind, "plan": None})
    return Shown(status + b"\n", lambda: Page(name, alerts=("No pass has run yet.",), links=SERVED_LINKS, refresh=5))


def show(evaluation: Evaluation, situation: Situation, as_if: Plan | None = None) -> Shown:
    """Return the status of *evaluation*. Takes as long as ``plan -o json``, so call it in a thread.

    *as_if* is the plan as if Karpenter did not consolidate, if anything is left to it.
    """
    inputs = Inputs(
        generator=situation.generator,
        source=Source("cluster", situation.cluster),
        settings=situation.settings,
        snapshot=evaluation.snapshot,
        facts=evaluation.facts,
        plan=evaluation.plan,
        now=evaluation.now,
        warnings=warnings_of(evaluation.snapshot, evaluation.unknown_minimums),
        excess=situation.excess,
        as_if_unmanaged=as_if,
    )
    status = Status(
        api_version=API_VERSION,
        kind=situation.kind,
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
    written = msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n"
    return Shown(written, partial(_page, written, tuple(situation.figures)))


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


def _page(written: bytes, figures: tuple[Fact, ...]) -> Page:
    status = msgspec.json.decode(written, type=Status)
    page = plan_page(msgspec.structs.replace(status.plan, held=status.held))
    leader = f"judged at {status.judged_at}; leader {status.leader or 'none'}"
    return msgspec.structs.replace(
        page,
        subtitle=(leader, *page.subtitle[1:]),
        alerts=(*_alerts(status), *page.alerts),
        facts=(
            Fact("in drain", f"{len(status.in_drain):,}", detail="of all controllers"),
            *_saved(status.saved),
            *_landings(status.landings),
            *_installations(status.installations),
            Fact("held back", f"{len(status.held):,}", "warn" if status.held else "", "planned, and waiting"),
            *_search(status.search),
            *figures,
            *page.facts,
        ),
        sections=(*_lately(status), *page.sections),
        links=SERVED_LINKS,
        refresh=REFRESH,
    )


def _saved(pools: Sequence[SavedEntry]) -> Sequence[Fact]:
    if not pools:
        return ()
    micros = sum((Counter(each.micros) for each in pools), Counter[str]())
    amounts = ", ".join(money(amount, currency) for currency, amount in sorted(micros.items()))
    hours = f"{sum(each.node_hours for each in pools):,.1f} node-hours"
    return (Fact("saved so far", amounts or hours, detail=hours if amounts else "since the first drain"),)


def _landings(figures: LandingFigures | None) -> Sequence[Fact]:
    if figures is None:
        return ()
    if not figures.landed:
        said = "off" if figures.problem else "none yet"
        return (Fact("landings", said, "warn" if figures.problem else "", f"steering: {figures.mode}"),)
    share = f"{100 * figures.target / figures.landed:.1f} %"
    detail = f"{figures.target:,} of {figures.landed:,} pods on their target; steering: {figures.mode}"
    return (Fact("landings", share, "warn" if figures.problem else "", detail),)


def _installations(others: Sequence[InstallationEntry]) -> Sequence[Fact]:
    if not others:
        return ()
    told = "; ".join(f"{each.lease} drains {', '.join(map(shown, each.pools)) or 'no pool'}" for each in others)
    return (Fact("other installations", f"{len(others):,}", detail=told),)


def _search(state: SearchState | None) -> Sequence[Fact]:
    if state is None:
        return ()
    now = "searching" if state.running else "at rest"
    waits = "no node is claimed before the first has ended"
    found = f"{counted(state.searches, 'search', 'searches')} ended, {state.improved:,} found better"
    return (Fact("search", now, "warn" if state.claims_wait else "", waits if state.claims_wait else found),)


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


def _lately(status: Status) -> Sequence[Section]:
    drains = tuple(
        (
            Cell(each.node, to=each.node),
            shown(each.pool),
            each.phase,
            Cell(f"{len(each.pods_left):,}", number=True),
            Cell(", ".join(each.pods_left[:PODS_SHOWN]) or "-"),
            each.controller,
            each.since or "-",
            each.deadline or "-",
            each.reason or "-",
        )
        for each in status.in_drain
    )
    columns = ("Node", "Pool", "Phase", "Pods left", "Which", "Controller", "Since", "Deadline", "Reason")
    held = tuple(
        (Cell(node, to=node), Cell(each.reason, "warn"), each.detail, each.fix or "none is known")
        for node, each in status.held.items()
    )
    ended = tuple(
        (
            Cell(each.node, to=each.node),
            shown(each.pool),
            each.ending.replace("_", " "),
            each.controller,
            each.at,
            each.reason or "-",
        )
        for each in status.ended[:ENDED_SHOWN]
    )
    sections = [Section("In drain", table=Table(columns, drains, "No node is in drain."))]
    if held:
        sections.append(Section("Held back", table=Table(("Node", "Reason", "Detail", "Smallest change"), held)))
    if ended:
        names = ("Node", "Pool", "Ending", "Controller", "At", "Reason")
        more = len(status.ended) - len(ended)
        note = f"The newest; /status has {more:,} more." if more else ""
        sections.append(Section("Drains that ended lately", note, Table(names, ended)))
    return sections
