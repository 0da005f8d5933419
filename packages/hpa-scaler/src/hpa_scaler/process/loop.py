"""The loop of the hpa-scaler: list, query, judge, write, show. :mod:`hpa_scaler.judge.judge` decides.

Only the leader runs cycles; in a dry run, every replica does. Cycles of a standby would send every query a second time,
and show every HPA twice in the metrics. A cycle that can't read all HPAs decides nothing.

Between two cycles, :class:`ImmediateRaiser` raises a floor again at once, by the last answers, if somebody has lowered
it. A :class:`BoundChangeWatch` reports the HPAs whose bounds somebody has set back. Its events may be older than our
last write, so a reaction reads the HPA again and never judges by the event.

Only cycles lower floors, and only cycles change counts of cycles. No reaction runs during the second half of a cycle,
from the judgement on. If a reaction has written an HPA since the cycle began to list, the cycle reads that HPA again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

import hpa_scaler
from hpa_scaler.annotations.queries import Outcomes
from hpa_scaler.annotations.spec import Rollout, Rules
from hpa_scaler.documents import PlanContext
from hpa_scaler.judge.decision import DropState
from hpa_scaler.judge.decision_log import log_lines
from hpa_scaler.judge.judge import Cycle, forecasts_of, judge_cycle, subject_of
from hpa_scaler.process.fleet import ListedHpas, Selection, ask_fleet, fleet_of_cluster, returns_of, sort_fleet
from hpa_scaler.process.forecasts import ForecastMaker, Forecasts
from hpa_scaler.process.settings import (
    CYCLES_APART,
    PROGRAM,
    ScalerRunSettings,
    ScalerSettings,
    allowed_of,
    limits_of,
    parse_config_map,
    rules_of,
    servers_of,
)
from hpa_scaler.process.status import DecisionLogFile, Timelines, nothing_yet, settings_view, show
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.write.applying import Applier, CycleWrites, FloorEvents, Records, WritesDone, judge_again, read_again
from hpa_scaler.write.metrics import ScalerMetrics
from tightship.documents.document import Generator, Source
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic, wall
from tightship.kube.pacing import RetryPolicy, TokenBucket
from tightship.kube.reflector import Reflector, Timing
from tightship.kube.resources import AUTOSCALERS, Resource
from tightship.objects import ApiObject, HorizontalPodAutoscaler, ObjectError
from tightship.objects.api_errors import Forbidden, KubeError, one_line
from tightship.objects.reasons import Reason, Refusal
from tightship.process.events import ObjectRef
from tightship.process.http import Draw, Write
from tightship.process.logging import log
from tightship.process.loop import JITTER, Runtime, in_thread
from tightship.process.serving import Configuration, Controller, Frame
from tightship.process.serving import serve as serve_frame


class ImmediateRaiser:
    """Reacts to HPAs whose bounds have changed. *may* says whether this replica may write now.

    Reactions use the answers of the cycle *last*; ``None``: no reactions. *touched* are the uids of the HPAs written.
    """

    def __init__(
        self,
        connection: Connection,
        records: Records,
        applier: Applier,
        metrics: ScalerMetrics,
        *,
        may: Callable[[], bool],
        logger: logging.Logger,
        clock: Callable[[], float],
    ) -> None:
        self.lock = asyncio.Lock()
        self.last: CycleWrites | None = None
        self.touched: set[str] = set()
        self._connection = connection
        self._records = records
        self._applier = applier
        self._metrics = metrics
        self._may = may
        self._log = logger
        self._clock = clock
        self._changed: dict[str, HorizontalPodAutoscaler] = {}
        self._woken = asyncio.Event()

    def may_concern(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether to look at *hpa*. While a write is under way, nobody can tell which bounds are ours."""
        return self.lock.locked() or self.concerns(hpa)

    def concerns(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether somebody seems to have changed our bounds; the given *hpa* may be outdated."""
        return not self._records.ours(hpa)

    def notify(self, hpa: HorizontalPodAutoscaler) -> None:
        """Queue *hpa* for a check before the next cycle."""
        self._changed[hpa.uid] = hpa
        self._woken.set()

    async def run(self) -> None:
        """React to each notification, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._changed:
                _, hpa = self._changed.popitem()
                async with self.lock:
                    try:
                        await self._react(hpa)
                    except (KubeError, ObjectError) as error:
                        log(self._log, logging.DEBUG, "left to the next cycle", hpa=hpa.key, error=one_line(error))

    async def refreshed(self, hpas: Iterable[HorizontalPodAutoscaler]) -> tuple[HorizontalPodAutoscaler, ...]:
        """Return *hpas*, with the touched HPAs read again and the unreadable HPAs left out."""
        found = []
        for hpa in hpas:
            if hpa.uid not in self.touched:
                found.append(hpa)
                continue
            try:
                present = await read_again(self._connection, hpa)
            except (KubeError, ObjectError):
                continue
            if present.uid == hpa.uid:
                found.append(present)
        return tuple(found)

    async def _react(self, hpa: HorizontalPodAutoscaler) -> None:
        last, now = self.last, self._clock()
        if last is None or now - last.now > last.rules.longest_gap or not (self._may() and self.concerns(hpa)):
            return
        judged = next((each for each in last.cycle.decisions if each.uid == hpa.uid), None)
        present = None if judged is None else await read_again(self._connection, hpa)
        if judged is None or present is None or present.uid != hpa.uid or not self.concerns(present):
            return
        todo = msgspec.structs.replace(last, now=now, returns=())
        again = judge_again(judged, present, todo, self._records)
        if again is None or again.action != "raise" or again.dry_run:
            return
        # Only a cycle counts queries without an answer.
        history = msgspec.structs.replace(again.history, failures=again.subject.history.failures)
        again = msgspec.structs.replace(again, history=history)
        self.touched.add(hpa.uid)
        cycle = msgspec.structs.replace(last.cycle, decisions=(again,))
        applied = await self._applier.apply(msgspec.structs.replace(todo, cycle=cycle), self._may)
        if applied.endings.get(hpa.uid) == "written":
            self._metrics.reacted()


T = TypeVar("T")


class CycleTooLongError(KubeError):
    """The API server did not answer within the cycle's deadline."""


class _Stopping(Exception):  # noqa: N818 - no error
    """The process stops, and the cycle is abandoned."""


class _Role(Struct, frozen=True):
    """The role in which a cycle runs. Another *epoch* means another leader, who may have written in between."""

    epoch: int
    writes: bool


class _CycleInputs(Struct, frozen=True):
    """The inputs of one cycle."""

    settings: ScalerSettings
    rules: Rules
    term: _Role
    until: float
    """The cycle's deadline, by the monotonic clock."""


class ScalerLoop(Controller):
    """Runs cycles in a *frame*."""

    def __init__(
        self,
        frame: Frame[ScalerSettings],
        run: ScalerRunSettings,
        *,
        client: PrometheusClient,
        forecasts: Forecasts,
        metrics: ScalerMetrics,
        events: FloorEvents,
        records: Records,
        waits_for: Callable[[], Sequence[str]],
    ) -> None:
        self._frame = frame
        self._run = run
        self._client = client
        self._forecasts = forecasts
        self._metrics = metrics
        self._events = events
        self._waits_for = waits_for
        self._log = frame.logger
        self._records = records
        rate = frame.live.current.writes_per_second
        self._bucket = TokenBucket(rate, max(1.0, rate / 10))
        self._applier = Applier(frame.connection, self._records, bucket=self._bucket, events=events, metrics=metrics)
        self._journal = (
            DecisionLogFile(run.decision_log, run.decision_log_megabytes * 1e6) if run.decision_log else None
        )
        self._term: _Role | None = None
        self._drops = DropState()
        self._last: CycleWrites | None = None
        self._timelines = Timelines(records, wall(), writes=False)
        self._cluster = run.cluster_name or frame.connection.cluster
        self._shown = nothing_yet(frame.program.name, "No cycle has run yet.", self._cluster)
        self.raiser = ImmediateRaiser(
            frame.connection, self._records, self._applier, metrics, may=self._may, logger=self._log, clock=wall
        )
        """Acts between two cycles."""

    @property
    def unfinished(self) -> bool:
        """Always false: no cycle leaves anything unfinished."""
        return False

    def waits_for(self) -> Sequence[str]:
        """Return why no cycle can run yet."""
        return self._waits_for()

    def status(self) -> Write:
        """Return a function that writes the last cycle as JSON."""
        return self._shown.json

    def page(self) -> Draw:
        """Return the function that draws the last cycle as a page."""
        return self._shown.page

    async def once(self) -> None:
        """Run one cycle. Raises :class:`~tightship.objects.api_errors.KubeError` if the HPAs can't be read."""
        term = self._term_now()
        if term != self._term:
            self._begin(term)
        if term is None:
            self._stand_by()
            return
        settings = self._frame.live.current
        # Commands show how the leader continues; here another leader may have judged without writing.
        gap = (1 - JITTER) * self._run.interval
        rules = msgspec.structs.replace(rules_of(settings, self._run), handover_gap=gap)
        inputs = _CycleInputs(settings, rules, term, monotonic() + self._run.cycle_deadline)
        try:
            await self._cycle(inputs)
        except _Stopping:
            self._log.info("stopping: abandoning the cycle where it is")

    async def stop(self) -> None:
        """Write down, as far as time allows, what lowerings wait for: a restart would begin the wait anew."""
        last, term = self._last, self._term
        if last is None or term is None:
            return
        until = monotonic() + self._run.stop_timeout
        async with self.raiser.lock:
            # Nothing was judged since the last cycle, nor will be: the next leader continues from now.
            last = msgspec.structs.replace(last, now=wall())
            await self._applier.remember(last, lambda: self._holds(term) and monotonic() < until)

    def _term_now(self) -> _Role | None:
        """Return the role in which this replica may run a cycle now, ``None`` for a standby."""
        frame = self._frame
        if frame.run.dry_run and frame.live.read:
            return _Role(-1, writes=False)
        return _Role(frame.elector.epoch, writes=True) if frame.leading() else None

    def _may(self) -> bool:
        """Whether this replica may start and write anything now."""
        term = self._term
        return term is not None and self._holds(term) and not self._frame.runtime.stop.is_set()

    def _holds(self, term: _Role) -> bool:
        # Who is stopped judges on, and leaves all floors as they are.
        return term.writes and self._frame.acting() and self._term_now() == term

    def _begin(self, term: _Role | None) -> None:
        """Forget what the previous term knew."""
        self._term = term
        self._records.begin_term()
        self._forecasts.forget()
        self._drops = DropState()
        self._last = self.raiser.last = None
        self._timelines = Timelines(self._records, wall(), writes=term is not None and term.writes)

    def _stand_by(self) -> None:
        frame = self._frame
        self._metrics.clear()
        leader = frame.elector.holder
        why = f"Stands by: {leader} leads." if leader else "Stands by: there is no leader."
        if not frame.live.read:
            why = "The configuration has not been read yet."
        self._shown = nothing_yet(frame.program.name, why, self._cluster, leader)

    async def _cycle(self, inputs: _CycleInputs) -> None:
        settings, rules = inputs.settings, inputs.rules
        self._client.configure(servers_of(settings, self._run), allowed_of(settings), limits_of(settings))
        self._metrics.serve(servers_of(settings, self._run))
        self._bucket.change(settings.writes_per_second, max(1.0, settings.writes_per_second / 10))
        selection = Selection(settings.namespaces, settings.label_selector)
        self.raiser.touched.clear()
        fleet = await self._in_time(fleet_of_cluster(self._frame.connection, selection, lambda _: None), inputs)
        seen = await in_thread(sort_fleet, fleet, settings.defaults, rules, wall(), self._records)
        del fleet
        self._records.retain(seen.asked.keys(), [hpa.uid for hpa in seen.others])
        self._forecasts.want(forecasts_of(seen.asked.values()))
        outcomes, rollouts = await self._in_time(
            ask_fleet(self._client, self._frame.connection, seen, settings.query_deadline), inputs
        )
        async with self.raiser.lock:
            present = await self._in_time(self.raiser.refreshed(seen.opted_in), inputs)
            seen = msgspec.structs.replace(seen, opted_in=present)
            await self._settle(seen, outcomes, rollouts, inputs)

    async def _settle(
        self, seen: ListedHpas, outcomes: Outcomes, rollouts: Mapping[str, Rollout], inputs: _CycleInputs
    ) -> None:
        rules, before = inputs.rules, self._drops
        cycle = await in_thread(self._judge, seen, outcomes, rollouts, inputs)
        self._drops = cycle.verdict.state
        self._forecasts.learn(cycle.decisions)
        await self._record(cycle, f"{seen.now:.3f}", before, rules, seen.now)
        self._events.drops(cycle.verdict.cause)
        done = await self._write(cycle, seen, inputs) if inputs.term.writes else self._pretend(cycle)
        final = done.final(cycle)
        if done.again:
            # Logged as a separate cycle: the first one has counted the drops.
            again = msgspec.structs.replace(cycle, decisions=tuple(done.again.values()))
            await self._record(again, f"{seen.now:.3f}-again", DropState(), rules, seen.now)
        self._metrics.counted(final, seen.passed_over, done.endings)
        self._metrics.cautioned(await in_thread(self._timelines.note, final, done.endings, seen.now))
        self._show(final, seen, inputs)
        self._say(cycle, seen, inputs.term)

    async def _record(self, cycle: Cycle, name: str, before: DropState, rules: Rules, now: float) -> None:
        if self._journal is not None:
            await in_thread(self._journal.append, log_lines(cycle, name, before, rules, now))

    def _judge(
        self, seen: ListedHpas, outcomes: Outcomes, rollouts: Mapping[str, Rollout], inputs: _CycleInputs
    ) -> Cycle:
        forecasts = self._forecasts.expected(seen.now)
        subjects = [
            subject_of(
                hpa,
                seen.asked[hpa.uid],
                outcomes=outcomes,
                rollout=rollouts.get(hpa.key),
                rules=inputs.rules,
                now=seen.now,
                forecasts=forecasts,
                remembered=self._records.recall(hpa),
            )
            for hpa in seen.opted_in
        ]
        return judge_cycle(subjects, self._drops, inputs.rules, seen.now)

    def _show(self, cycle: Cycle, seen: ListedHpas, inputs: _CycleInputs) -> None:
        frame, run, settings = self._frame, self._run, inputs.settings
        place = str(run.config_path) if run.config_path else f"ConfigMap {run.namespace}/{run.config_map}"
        circuits = self._client.circuits()
        self._metrics.show(
            cycle,
            passed_over=seen.passed_over,
            unreadable=len(seen.problems),
            circuits=circuits,
            each=settings.hpa_metrics,
            dry=not inputs.term.writes,
        )
        context = PlanContext(
            generator=frame.program,
            source=Source("cluster", self._cluster),
            settings=settings_view(settings, run, place),
            cycle=cycle,
            rules=inputs.rules,
            not_enabled=sum(seen.passed_over.values()),
            now=seen.now,
            warnings=tuple(str(Refusal(Reason.UNREADABLE, detail=problem)) for problem in seen.problems),
        )
        self._shown = show(
            context,
            self._timelines.recent(),
            leader=frame.elector.holder,
            dry_run=frame.run.dry_run,
            circuits=circuits,
            caution=self._timelines.caution(),
            problems=(*frame.stopped, *frame.live.problems),
        )

    async def _write(self, cycle: Cycle, seen: ListedHpas, inputs: _CycleInputs) -> WritesDone:
        """Write, and report the outcome for each HPA."""
        rules = inputs.rules
        returns = returns_of(seen, rules, self._records)
        todo = CycleWrites(cycle, returns, inputs.settings.defaults, rules, seen.now)
        self._last = todo

        def may() -> bool:
            return self._may() and monotonic() < inputs.until

        done = await self._applier.apply(todo, may)
        final = done.final(cycle)
        self._last = self.raiser.last = msgspec.structs.replace(todo, cycle=final)
        self._records.settle(final.decisions, done.endings)
        for each in final.decisions:
            if each.uid not in done.endings or each.pending:
                self._events.kept(each)
                self._events.noted(each)
        return done

    def _pretend(self, cycle: Cycle) -> WritesDone:
        """In a dry run, remember and report what would happen."""
        for decision in cycle.decisions:
            self._records.keep(decision.subject.hpa, decision.history)
            if decision.changes:
                self._events.changed(decision, dry=True)
            else:
                self._events.kept(decision)
            self._events.noted(decision)
        return WritesDone()

    def _say(self, cycle: Cycle, seen: ListedHpas, term: _Role) -> None:
        """Log one line for the cycle; each change has its own line."""
        actions = Counter(each.action for each in cycle.decisions)
        fields: dict[str, Any] = {
            "hpas": len(cycle.decisions),
            "queries": len(seen.queries),
            "raised": actions["raise"],
        }
        fields |= {"lowered": actions["lower"], "held": actions["hold"], "skipped": actions["skip"]}
        log(self._log, logging.INFO, "judged", dry_run=not term.writes, **fields)

    async def _in_time(self, work: Coroutine[Any, Any, T], inputs: _CycleInputs) -> T:
        """Return the result of *work*, unless the process stops or the cycle's time is over first."""
        stop = self._frame.runtime.stop
        task, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
        try:
            left = max(0.0, inputs.until - monotonic())
            await asyncio.wait((task, stopping), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            for each in (task, stopping):
                each.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)
        if stop.is_set():
            raise _Stopping
        raise CycleTooLongError(f"the API server did not answer within the {self._run.cycle_deadline:g} s of a cycle")


LOOK = 1.0
"""Seconds between two checks of the HPAs to watch."""

_RETRY = RetryPolicy(attempts=math.inf, first=0.5, longest=30.0, jitter=0.5)
_LOOK = 0.1


class FirstRead:
    """Requests one HPA from each selected namespace until all requests succeed."""

    def __init__(self, frame: Frame[ScalerSettings]) -> None:
        self._frame = frame
        self._why = "HPAs were not looked at yet"

    def waits_for(self) -> Sequence[str]:
        """Return why HPAs can't be read; empty after the first success."""
        return (self._why,) if self._why else ()

    async def run(self) -> None:
        """Retry until the first look succeeds."""
        while not self._frame.live.read:  # noqa: ASYNC110 - a configuration is told to no event
            # The configuration says which namespaces to read.
            await asyncio.sleep(_LOOK)
        async for attempt in _RETRY.retrying(lambda error: isinstance(error, KubeError)):
            with attempt:
                await self._look(again=attempt.retry_state.attempt_number > 1)

    async def _look(self, *, again: bool) -> None:
        frame = self._frame
        try:
            for namespace in frame.live.current.namespaces or ("",):
                path = AUTOSCALERS.within(namespace=namespace).path
                await frame.connection.request("GET", path, params={"limit": "1"}, retry=False)
        except KubeError as error:
            hint = "; see docs/permissions.md" if isinstance(error, Forbidden) else ""
            self._why = f"HPAs can't be read: {one_line(error)}{hint}"
            log(frame.logger, logging.DEBUG if again else logging.WARNING, "not ready", error=self._why)
            raise
        self._why = ""


class BoundChangeWatch:
    """A reflector's sink that calls *notify* for each reported HPA that *concerns* us, and keeps no HPA."""

    def __init__(
        self,
        concerns: Callable[[HorizontalPodAutoscaler], bool],
        notify: Callable[[HorizontalPodAutoscaler], None],
    ) -> None:
        self._concerns = concerns
        self._notify = notify

    def upsert(self, kind: str, thing: ApiObject) -> None:
        """See :class:`tightship.kube.reflector.Sink`."""
        del kind
        if isinstance(thing, HorizontalPodAutoscaler) and self._concerns(thing):
            self._notify(thing)

    def replace(self, kind: str, things: Iterable[ApiObject], errors: Iterable[tuple[ObjectError, str]] = ()) -> None:
        """See :class:`tightship.kube.reflector.Sink`."""
        del errors
        for thing in things:
            self.upsert(kind, thing)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Leave deletions to the next cycle."""

    def mark_unreadable(self, error: ObjectError, node: str = "") -> None:
        """Leave unreadable HPAs to the next cycle."""

    def mark_missing(self, kind: str, why: str) -> None:
        """Leave missing kinds to the next cycle."""


async def watch(frame: Frame[ScalerSettings], changes: BoundChangeWatch, timing: Timing = Timing()) -> None:
    """Watch the HPAs that the configuration names while this replica leads, until cancelled.

    API errors only delay the notification; bugs propagate.
    """
    watched: tuple[Resource, ...] = ()
    tasks: list[asyncio.Task[None]] = []
    try:
        while True:
            settings = frame.live.current
            namespaces = settings.namespaces or ("",)
            wanted = tuple(
                AUTOSCALERS.within(namespace=namespace, label_selector=settings.label_selector)
                for namespace in (namespaces if frame.leading() else ())
            )
            if wanted != watched:
                await _ended(tasks)
                watched = wanted
                reflectors = [Reflector(frame.connection, each, changes, lambda: None, timing) for each in wanted]
                tasks = [asyncio.create_task(each.run(), name=f"watch of {each.resource.path}") for each in reflectors]
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(LOOK)
    finally:
        await _ended(tasks)


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    running = list(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def serve(
    runtime: Runtime, run: ScalerRunSettings, environment: Mapping[str, str], *, forecasts_from: ForecastMaker
) -> None:
    """``hpa-scaler run``: the loop, the Prometheus client and the watch of HPAs, until ``runtime.stop``."""
    del environment  # *run* has all of it

    @asynccontextmanager
    async def make(frame: Frame[ScalerSettings]) -> AsyncIterator[ScalerLoop]:
        settings = frame.live.current
        metrics = ScalerMetrics(frame.registry)
        client = PrometheusClient(
            servers_of(settings, run), allowed_of(settings), limits=limits_of(settings), observe=metrics.asked
        )
        lease = ObjectRef("Lease", run.lease_name, "", run.namespace, "coordination.k8s.io/v1")
        records = Records(run.annotation_prefix, writes=not run.dry_run)
        events = FloorEvents(frame.events, frame.logger, lease, records, monotonic)
        first = FirstRead(frame)
        runtime.spawn(first.run(), "first look at HPAs")
        async with client:
            forecasts = forecasts_from(client, frame.logger, wall)
            runtime.spawn(forecasts.run(), "pasts of forecasts")
            loop = ScalerLoop(
                frame,
                run,
                client=client,
                forecasts=forecasts,
                metrics=metrics,
                events=events,
                records=records,
                waits_for=first.waits_for,
            )
            if run.watch and not run.dry_run:
                runtime.spawn(
                    watch(frame, BoundChangeWatch(loop.raiser.may_concern, loop.raiser.notify)), "watch of HPAs"
                )
                runtime.spawn(loop.raiser.run(), "reaction to changes by others")
            yield loop

    await serve_frame(
        runtime,
        run,
        Generator(PROGRAM, hpa_scaler.__version__),
        Configuration(parse_config_map),
        make,
        pass_deadline=run.cycle_deadline + CYCLES_APART * run.interval,
    )
