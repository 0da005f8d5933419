"""The output of the running hpa-scaler: its last cycle as JSON and as a page, and the last day of each HPA."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import BY_NAME
from hpa_scaler.annotations.spec import PREFIX
from hpa_scaler.documents import FloorPlan, PlanContext, plan_document, plan_page
from hpa_scaler.documents.pages import RecentTimelines
from hpa_scaler.documents.timeline import Effect, Timeline, TimelineLimits, TimelineLog
from hpa_scaler.judge.decision import CautionLedger, Guard
from hpa_scaler.judge.judge import Cycle
from hpa_scaler.judge.ownership import Ending
from hpa_scaler.process.settings import ScalerRunSettings, ScalerSettings, servers_of
from hpa_scaler.prometheus.client import CircuitState
from hpa_scaler.write.applying import Records
from tightship.documents.document import API_VERSION, Setting, SettingsView
from tightship.documents.html.page import REFRESH, Page
from tightship.objects.api_errors import one_line
from tightship.objects.counting import some
from tightship.objects.reasons import Reason
from tightship.objects.times import rfc3339, spell_duration
from tightship.process.http import Write
from tightship.process.logging import log
from tightship.process.settings.loading import wire, wire_keys

KEPT = TimelineLimits(points=240, seconds=86_400.0, changes=20)
"""How much of an HPA's timeline the process keeps."""


_log = logging.getLogger(__name__)

_NAMED = 3
LONGEST_GAP = 600.0
"""Seconds between two cycles of which the guards' cost counts at most; what came between is unknown."""
KIND = "ScalerStatus"
STATUS = "hpa_scaler.documents/status.html"
"""The template of the controller's page."""


class DecisionLogFile:
    """Appends to the file *path*; at *largest* bytes the file becomes ``path.1``. Not thread-safe.

    A failure to write is logged once, and each cycle tries again: no decision waits for the file.
    """

    def __init__(self, path: Path, largest: float) -> None:
        self._path = path
        self._largest = largest
        self._failing = False

    def append(self, lines: Iterable[bytes]) -> None:
        """Append *lines*, which belong to one cycle, to one file."""
        try:
            if self._path.exists() and self._path.stat().st_size >= self._largest:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            with self._path.open("ab") as file:
                file.writelines(lines)
        except OSError as error:
            if not self._failing:
                log(_log, logging.ERROR, "decision log not written", file=str(self._path), error=one_line(error))
            self._failing = True
        else:
            self._failing = False


class Timelines:
    """The timelines in *records* *since* a time, in a term that *writes* or in a dry run."""

    def __init__(self, records: Records, since: float, *, writes: bool) -> None:
        self._records = records
        self._since = since
        self._writes = writes
        self._until = since
        self._ledger = CautionLedger()
        # Held for one HPA at a time, so that nobody waits for long.
        self._lock = Lock()

    def note(self, final: Cycle, endings: Mapping[str, Ending], now: float) -> Mapping[Guard, float]:
        """Add the outcome of a cycle for each HPA; *endings* says how its writes ended, by uid.

        Return what the guards have cost since the last cycle, in replica-seconds.
        """
        for decision in final.decisions:
            ending = endings.get(decision.uid)
            if ending == "gone":
                continue
            effect: Effect = "set" if ending == "written" or not decision.changes else "left"
            if decision.dry_run or not self._writes:
                effect = "would"
            record, hpa = self._records.of(decision.uid), decision.subject.hpa
            if record.timeline is None:
                record.timeline = TimelineLog(hpa.key, str(hpa.target), KEPT)
            with self._lock:
                record.timeline.add(now, hpa.current_replicas, decision, effect)
        self._until = now
        return self._ledger.note(final.decisions, now, LONGEST_GAP)

    def caution(self) -> CautionSpent:
        """Return what the guards have cost so far."""
        spent, whole = self._ledger.spent, self._ledger.replicas
        hours: dict[str, float] = {guard: round(seconds / 3600, 2) for guard, seconds in spent.items()}
        return CautionSpent(rfc3339(self._since), hours, round(whole / 3600, 2))

    def recent(self) -> RecentTimelines:
        """Return the timelines so far; later notes do not change the result."""
        until, timelines = self._until, self._records.timelines()

        def timeline(key: str) -> Timeline | None:
            with self._lock:
                return timelines[key].timeline(until) if key in timelines else None

        return RecentTimelines(self._since, not self._writes, timeline)


def settings_view(
    settings: ScalerSettings, run: ScalerRunSettings, config: str | None, outcomes: str | None = None
) -> SettingsView:
    """Return the settings in force, without secrets, which stay in files.

    *config* is the configuration file, if any; *outcomes* is the file of recorded answers, if no server was queried.
    """
    keys, served = wire_keys(ScalerSettings), wire(settings)
    values: dict[str, Setting] = {
        "minimumReplicasLowerBound": run.lower_bound,
        "annotationPrefix": run.annotation_prefix,
        keys["servers"]: {
            name: {
                "url": str(server.address),
                "timeout": spell_duration(server.timeout),
                "maximumConcurrency": server.concurrency,
                "authorization": "bearer" if server.token_file else "basic" if server.username else None,
            }
            for name, server in sorted(servers_of(settings, run).items())
        },
        keys["defaults"]: {BY_NAME[name].key: {"value": text} for name, text in sorted(settings.defaults.items())},
    }
    for key in keys.values():
        if key not in values:
            values[key] = served[key]
    return SettingsView(_summary(settings, run, config, outcomes), values)


def _summary(settings: ScalerSettings, run: ScalerRunSettings, config: str | None, outcomes: str | None) -> str:
    servers = [
        f"{server.address}" if name == "default" else f"{name} ({server.address})"
        for name, server in sorted(servers_of(settings, run).items(), key=lambda item: (item[0] != "default", item[0]))
    ]
    named = some(servers, _NAMED)
    asked = f"{'servers' if len(servers) > 1 else 'server'} {named}" if servers else "no server is configured"
    parts = [asked if outcomes is None else f"answers from {outcomes}"]
    parts.append(f"lower bound {run.lower_bound}")
    if run.annotation_prefix != PREFIX:
        parts.append(f"annotations {run.annotation_prefix}/hpa-scaler")
    if settings.defaults:
        texts = (f"{BY_NAME[name].key} {text}" for name, text in sorted(settings.defaults.items()))
        parts.append(f"by default {', '.join(texts)}")
    if config is not None:
        parts.append(f"from {config}")
    return "; ".join(parts)


class ScalerStatus(Struct, frozen=True, rename="camel", kw_only=True):
    """The answer of ``/status``; *cluster* is the name of the cluster.

    *servers* are the circuits of the queried servers. *plan* is the document that ``plan -o json`` prints. *problems*
    are whole sentences about the configuration: why it was refused, or that it was deleted, and which one is in force.
    """

    api_version: str
    kind: str
    cluster: str
    dry_run: bool
    leader: str
    correlated_drop: str | None
    servers: Mapping[str, CircuitState]
    problems: tuple[str, ...]
    plan: FloorPlan
    caution: CautionSpent | None = None


class CautionSpent(Struct, frozen=True, rename="camel"):
    """What guards have cost at most *since* a time: *replica_hours* by guard, beside those of all judged HPAs."""

    since: str
    replica_hours: Mapping[str, float]
    of_replica_hours: float


class ServedCycle(Struct, frozen=True):
    """One cycle, made into *json* or a *page* on request, because few ask."""

    json: Write
    page: Callable[[], Page]


def nothing_yet(name: str, why: str, cluster: str, leader: str = "") -> ServedCycle:
    """Return the output while there is no cycle to show; *why* says the reason, *cluster* is its name."""
    served = {"apiVersion": API_VERSION, "kind": KIND, "cluster": cluster, "leader": leader, "plan": None}
    page = Page(f"{cluster} · {name}", alerts=(why,), refresh=5)
    return ServedCycle(lambda: msgspec.json.encode(served) + b"\n", lambda: page)


def show(
    context: PlanContext,
    recent: RecentTimelines,
    *,
    leader: str,
    dry_run: bool,
    circuits: Mapping[str, CircuitState],
    caution: CautionSpent | None = None,
    problems: Sequence[str] = (),
) -> ServedCycle:
    """Return the status of a cycle, and a page that also shows the timelines in *recent*.

    *problems* are problems of the configuration. What it is made into takes as long as ``plan -o json``, so a thread
    makes it.
    """

    @cache
    def written() -> bytes:
        cause = context.cycle.verdict.cause
        status = ScalerStatus(
            api_version=API_VERSION,
            kind=KIND,
            cluster=context.source.name,
            dry_run=dry_run,
            leader=leader,
            correlated_drop=None if cause is None else cause.detail,
            servers=dict(sorted(circuits.items())),
            problems=tuple(problems),
            plan=plan_document(context),
            caution=caution,
        )
        return msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n"

    return ServedCycle(written, partial(_page, written, recent))


def _page(write: Write, recent: RecentTimelines) -> Page:
    status = msgspec.json.decode(write(), type=ScalerStatus)
    return plan_page(status.plan, recent, template=STATUS, alerts=_alerts(status), refresh=REFRESH, status=status)


def _alerts(status: ScalerStatus) -> Sequence[str]:
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
