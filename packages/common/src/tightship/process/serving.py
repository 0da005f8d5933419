"""The frame in which every controller runs: from the connection to the order of the shutdown.

A controller fills the frame with its passes, its status, and its work before the Lease is released. The live
configuration may switch a controller off. It then judges and shows, but changes nothing. It keeps the Lease until its
unfinished work is done, releases the Lease, and runs for it again when it is switched on.

Somebody may stop a controller by an annotation on its Lease (:data:`tightship.kube.leases.STOP_ANNOTATION`). It then
judges and shows, begins nothing, gives back what is under way, and keeps the Lease.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar

from msgspec import Struct
from prometheus_client import CollectorRegistry

from tightship.documents.document import Generator
from tightship.kube.cache import CacheCrashed
from tightship.kube.connection import Connection, connect
from tightship.kube.leases import STOP_ANNOTATION, Elector, LeaseTiming
from tightship.process.access import Access
from tightship.process.certificate import Certificate
from tightship.process.events import EventRecorder, ObjectRef, cut
from tightship.process.http import Content, Draw, HttpServer, Write
from tightship.process.logging import log
from tightship.process.loop import Heartbeat, Runtime, any_of, every
from tightship.process.metrics import RunMetrics, new_registry
from tightship.process.settings.live import ConfigMapSource, FileSource, LiveConfig, LiveSource, Report
from tightship.process.settings.process import ProcessSettings

LOOK = 1.0
"""Seconds between two checks whether the controller needs the Lease."""
LEAST_PAUSE = 1.0
"""Least seconds between two passes, however often the loop is woken."""
FINISHING = 2.0
"""Most seconds between two passes while the controller gives remains back, because somebody waits for the end."""
PASS_DEADLINE = 600.0
"""Seconds a pass may take before the process counts as hung."""
RESIGNATION = 5.0
"""Seconds for releasing the Lease at the end."""
_LONGEST_WORD = 40

T = TypeVar("T")


class Configuration(Struct, Generic[T], frozen=True):
    """How a controller's live configuration is read: see :class:`tightship.process.settings.live.LiveConfig`.

    Without a configuration, the result of *parse* for no texts is in use. If somebody deletes the configuration, or it
    is invalid from the start, *lost*, if given, turns the configuration in use into the one that applies. *acting* says
    whether a configuration has the controller switched on.
    """

    parse: Callable[[Mapping[str, str]], T]
    acting: Callable[[T], bool] = lambda _: True
    lost: Callable[[T], T] | None = None


class Frame(Struct, Generic[T], frozen=True, kw_only=True):
    """Everything that a controller finds in its frame. Setting *wake* causes a pass.

    *finishing* is set while nobody will continue the controller's work, so the controller gives it back: in a dry run
    that finds such remains, or at the final shutdown. A dry run leads for no other purpose.

    *program* is the controller: its name in metrics, Events, annotations and the log, and its version.
    """

    program: Generator
    run: ProcessSettings
    configuration: Configuration[T]
    runtime: Runtime
    connection: Connection
    events: EventRecorder
    live: LiveConfig[T]
    elector: Elector
    registry: CollectorRegistry
    metrics: RunMetrics
    wake: asyncio.Event
    finishing: asyncio.Event

    @property
    def logger(self) -> logging.Logger:
        return logging.getLogger(self.program.name.replace("-", "_"))

    def switched_on(self) -> bool:
        """Whether the controller is live and switched on, so that a replica has to lead."""
        # Before the configuration is read, nobody knows what is allowed.
        return not self.run.dry_run and self.live.read and not self.switched_off()

    def acting(self) -> bool:
        """Whether the controller may begin something, if it leads: it is switched on, and nobody has stopped it."""
        return self.switched_on() and not self.stopped

    @property
    def stopped(self) -> tuple[str, ...]:
        """Say who is stopped, by what, and how to start it again; empty unless somebody has stopped the controller."""
        word, run = self.elector.stopped, self.run
        if word is None:
            return ()
        odd = "" if word == "true" else f"; {cut(word, _LONGEST_WORD)!r} counts as true, allowed are true and false"
        who = f"{self.program.name} is stopped by {STOP_ANNOTATION} on Lease {run.namespace}/{run.lease_name}{odd}."
        start = f"kubectl -n {run.namespace} annotate lease {run.lease_name} {STOP_ANNOTATION}-"
        return (f"{who} It begins nothing, and gives back what is under way. To start it again: {start}",)

    def switched_off(self) -> bool:
        """Whether a configuration has been read and has the controller switched off."""
        return self.live.read and not self.configuration.acting(self.live.current)

    def leading(self) -> bool:
        """Whether this replica may change things. Check this before every change.

        A leader that is not :meth:`acting` may only finish work under way; one that is :attr:`stopped` may only give
        it back.
        """
        if (self.run.dry_run and not self.finishing.is_set()) or not self.live.read:
            return False
        return self.elector.is_leader or not self.run.leader_elect


class Controller(ABC):
    """The content of a frame. The event loop calls all methods, so synchronous ones must be quick."""

    @property
    @abstractmethod
    def unfinished(self) -> bool:
        """Whether this controller has work under way that somebody has to finish even if it is switched off."""

    @abstractmethod
    def waits_for(self) -> Sequence[str]:
        """Return why no pass can run yet, one line each. An exception ends the process."""

    @abstractmethod
    async def once(self) -> None:
        """Run one pass."""

    @abstractmethod
    async def stop(self) -> None:
        """Finish the writes, or leave them in good order. The Lease is released afterwards."""

    @abstractmethod
    def status(self) -> Write:
        """Return a function that writes the last pass as JSON."""

    @abstractmethod
    def page(self) -> Draw:
        """Return a function that draws the last pass for people."""


async def serve(
    runtime: Runtime,
    run: ProcessSettings,
    program: Generator,
    configuration: Configuration[T],
    make: Callable[[Frame[T]], AbstractAsyncContextManager[Controller]],
    *,
    pass_deadline: float = PASS_DEADLINE,
) -> None:
    """Run the controller that *make* returns until ``runtime.stop``: lead or stand by, pass after pass, then shut down.

    A pass of more than *pass_deadline* seconds counts as hung. A dry run begins nothing. Raises
    :class:`~tightship.objects.api_errors.KubeError` and :class:`OSError` if the process can't start.
    """
    runtime.starting = True
    registry = new_registry(program.name, program.version)
    metrics = RunMetrics(registry)
    wake = asyncio.Event()
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            await connect(run.kubeconfig, run.context, timeout=run.request_timeout)
        )
        _introduce(run, program, connection)
        events = await stack.enter_async_context(
            EventRecorder(
                connection,
                controller=f"tightship.dev/{program.name}",
                instance="/".join(filter(None, (run.cluster_name, run.identity))),
                dropped=metrics.event_dropped,
                silent=run.dry_run,
            )
        )
        live = LiveConfig(
            _source(run, connection),
            configuration.parse,
            starting=configuration.parse({}),
            lost=configuration.lost,
            report=lambda report: _reported(report, frame),
            changed=wake,
        )
        elector = Elector(
            connection,
            namespace=run.namespace,
            name=run.lease_name,
            identity=run.identity,
            timing=LeaseTiming(
                duration=run.lease_duration,
                renew_deadline=run.lease_renew_deadline,
                retry_period=run.lease_retry_period,
            ),
            on_change=lambda leads: _tell_stop(frame, unless_on=True) if leads else None,
            on_stop=lambda: _tell_stop(frame),
        )
        metrics.leader.set_function(lambda: float(elector.is_leader))
        metrics.lease_epoch.set_function(lambda: float(elector.epoch))
        metrics.stopped.set_function(lambda: float(elector.stopped is not None))
        frame = Frame(
            program=program,
            run=run,
            configuration=configuration,
            runtime=runtime,
            connection=connection,
            events=events,
            live=live,
            elector=elector,
            registry=registry,
            metrics=metrics,
            wake=wake,
            finishing=asyncio.Event(),
        )
        await stack.enter_async_context(live)
        controller = await stack.enter_async_context(make(frame))
        heartbeat = Heartbeat("loop", pass_deadline)
        content = Content(
            registry=registry,
            heartbeats=(heartbeat,),
            not_ready=lambda: [*controller.waits_for(), *_unread(live)],
            status=controller.status,
            page=controller.page,
        )
        await stack.enter_async_context(await _server(content, frame))
        runtime.starting = False
        await _passes(frame, controller, heartbeat)


def _introduce(run: ProcessSettings, program: Generator, connection: Connection) -> None:
    """Say whose cluster this is and what will be done to it: outside a pod a slip of the hand may have started this."""
    if run.dry_run:
        doing = "dry run: nothing is changed"
        if not run.in_pod:
            doing += f"; to change this cluster, type {program.name} run --dry-run=false"
    else:
        doing = "live: this process changes the cluster"
    level = logging.INFO if run.in_pod else logging.WARNING
    logging.getLogger(program.name.replace("-", "_")).log(level, "%s; %s", connection.identity, doing)


async def _server(content: Content, frame: Frame[T]) -> HttpServer:
    run, runtime = frame.run, frame.runtime
    if not run.http_secure:
        return HttpServer(content, host=run.host, ports=run.ports, probe_port=run.probe_port)
    certificate = Certificate(run.http_tls_path, frame.program.name)
    await certificate.renew()
    runtime.spawn(certificate.keep(runtime.stop), "certificate")
    return HttpServer(
        content,
        host=run.host,
        ports=run.ports,
        probe_port=run.probe_port,
        tls=certificate.context,
        access=Access(frame.connection).denial,
    )


async def _passes(frame: Frame[T], controller: Controller, heartbeat: Heartbeat) -> None:
    runtime, run = frame.runtime, frame.run
    resign = asyncio.Event()
    election = None
    try:
        while not runtime.stop.is_set() and controller.waits_for():
            heartbeat.beat()
            await asyncio.sleep(0.1)
        if run.leader_elect:
            work = campaign(frame.elector, lambda: frame.switched_on() or controller.unfinished, resign)
            election = runtime.spawn(work, "leader election")
        await every(
            lambda: min(run.interval, FINISHING) if frame.finishing.is_set() else run.interval,
            controller.once,
            stop=runtime.stop,
            wake=frame.wake,
            least=LEAST_PAUSE,
            heartbeat=heartbeat,
            metrics=frame.metrics,
            fatal=(CacheCrashed,),
            name="pass",
        )
    except CacheCrashed as error:
        # The known state of the cluster gets older and older, so another process must begin anew.
        runtime.crash(frame.program.name, error)
    # The order matters: nothing is written after the Lease is given up.
    await controller.stop()
    resign.set()
    if election is not None:
        await asyncio.wait((election,), timeout=RESIGNATION)


async def campaign(elector: Elector, wanted: Callable[[], bool], stop: asyncio.Event) -> None:
    """Have *elector* run for the Lease while it is *wanted*, until *stop*. Release the Lease when it no longer is.

    *wanted* is called again and again. It must stay true until nothing writes any more: as soon as it is false, anybody
    may take the Lease. Raises the election's errors.
    """
    while not stop.is_set():
        if not wanted():
            await any_of(stop, timeout=LOOK)
            continue
        resign = asyncio.Event()
        election = asyncio.create_task(elector.run(resign), name="election")
        try:
            while wanted() and not stop.is_set() and not election.done():
                await any_of(stop, timeout=LOOK)
            resign.set()
            await election
        finally:
            election.cancel()
            await asyncio.gather(election, return_exceptions=True)


def _source(run: ProcessSettings, connection: Connection) -> LiveSource:
    if run.config_path:
        return FileSource(run.config_path)
    return ConfigMapSource(connection, run.namespace, run.config_map)


def _unread(live: LiveConfig[T]) -> list[str]:
    return [] if live.read else [f"configuration not read yet: {live.trouble or 'no answer'}"]


def _tell_stop(frame: Frame[T], *, unless_on: bool = False) -> None:
    """Wake the loop, and have the leader say whether somebody has stopped the controller, or only if so."""
    frame.wake.set()
    run, stopped = frame.run, bool(frame.stopped)
    if not frame.leading() or (unless_on and not stopped):
        return
    text = frame.stopped[0] if stopped else f"{frame.program.name} is no longer stopped"
    log(frame.logger, logging.WARNING if stopped else logging.INFO, text)
    lease = ObjectRef("Lease", run.lease_name, "", run.namespace, "coordination.k8s.io/v1")
    frame.events.record(lease, "Warning" if stopped else "Normal", "Stopped" if stopped else "Started", text, "Stop")


def _reported(report: Report, frame: Frame[T]) -> None:
    frame.metrics.config_valid.set(1 if report.valid else 0)
    if report.valid:
        log(frame.logger, logging.INFO, "configuration in use", source=report.source, absent=report.absent)
        return
    # A controller that is off writes nothing, unless this report has just switched it off.
    if report.notice is not None and (frame.acting() or report.changed):
        regarding = ObjectRef(kind="ConfigMap", name=frame.run.config_map, namespace=frame.run.namespace)
        frame.events.record(regarding, "Warning", "ConfigInvalid", str(report.notice), "Configure")
