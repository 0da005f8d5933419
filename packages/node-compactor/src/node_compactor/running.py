"""``node-compactor run``: everything put together in one process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

import node_compactor
from node_compactor.configuration import parse_config_map
from node_compactor.controller import Compactor
from node_compactor.drains import drain_settings
from node_compactor.metrics import CompactorMetrics
from node_compactor.run_settings import RunSettings
from node_compactor.settings import CompactorSettings
from tightship.drain.claims import ClaimLedger
from tightship.drain.drainer import Drainer
from tightship.drain.driving import Tools
from tightship.drain.history import DrainHistory
from tightship.drain.news import News
from tightship.drain.telling import Herald
from tightship.kube.cache import ClusterCache
from tightship.kube.connection import Connection, connect
from tightship.kube.election import Elector, LeaseTiming
from tightship.observability.events import EventRecorder, ObjectRef
from tightship.observability.logging import log
from tightship.observability.metrics import RunMetrics, new_registry
from tightship.pools import pool_of
from tightship.runtime.heartbeat import Heartbeat
from tightship.runtime.http import Content, HttpServer
from tightship.runtime.loop import every, in_thread
from tightship.runtime.main import Runtime
from tightship.settings.live import LiveConfig, Report
from tightship.settings.sources import ConfigMapSource, FileSource, Source

_log = logging.getLogger("node_compactor")

CONTROLLER = "node-compactor"
LEAST_PAUSE = 1.0
"""Seconds between two passes at least, however often the loop is woken."""
PASS_DEADLINE = 600.0
"""Seconds a pass may take before the process counts as hung."""


async def serve(runtime: Runtime, run: RunSettings, environment: Mapping[str, str]) -> None:
    """Run until ``runtime.stop``: watch, lead or stand by, pass after pass, and end in good order."""
    registry = new_registry(CONTROLLER, node_compactor.__version__)
    metrics, own = RunMetrics(registry), CompactorMetrics(registry)
    wake = asyncio.Event()
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            await connect(run.kubeconfig, run.context, timeout=run.request_timeout)
        )
        events = await stack.enter_async_context(
            EventRecorder(
                connection,
                controller=f"tightship.dev/{CONTROLLER}",
                instance=run.identity,
                dropped=metrics.event_dropped,
            )
        )
        live = await stack.enter_async_context(
            LiveConfig(
                _source(run, connection),
                lambda data: parse_config_map(data, environment),
                starting=parse_config_map({}, environment),
                report=lambda report: _reported(report, metrics, events, run),
                changed=wake,
            )
        )
        cache = await stack.enter_async_context(ClusterCache(connection))
        metrics.watch_cache(cache.stats)
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
            on_change=lambda leads: _leads(leads, wake),
        )
        metrics.leader.set_function(lambda: float(elector.is_leader))
        metrics.lease_epoch.set_function(lambda: float(elector.epoch))

        def leading() -> bool:
            # Before the configuration was read nobody knows what is allowed.
            return live.read and (elector.is_leader or not run.leader_elect)

        herald = Herald(events)

        def tell(news: News) -> None:
            herald(news)
            own.news(news)

        drainer = Drainer(
            Tools(
                connection=connection,
                cache=cache,
                tell=tell,
                leading=leading,
                stopping=runtime.stop.is_set,
                settings=lambda: drain_settings(live.current),
                clock=time.time,
                in_thread=in_thread,
            ),
            ClaimLedger(connection, namespace=run.claims_namespace, name=run.claims_lease),
            DrainHistory(connection, namespace=run.claims_namespace, name=run.claims_lease),
            controller=CONTROLLER,
            holder=run.identity,
            epoch=lambda: elector.epoch,
            pool_of=lambda node: pool_of(node, live.current.pool_labels),
        )
        compactor = Compactor(
            connection=connection,
            cache=cache,
            drainer=drainer,
            history=DrainHistory(connection, namespace=run.claims_namespace, name=run.claims_lease),
            metrics=own,
            settings=lambda: live.current,
            leading=leading,
            holder=lambda: elector.holder,
            dry_run=run.dry_run,
        )
        heartbeat = Heartbeat("loop", PASS_DEADLINE)
        not_ready = _Readiness(cache, live)
        content = Content(
            registry=registry,
            heartbeats=(heartbeat,),
            not_ready=not_ready,
            status=lambda: compactor.shown.json,
            page=lambda: compactor.shown.page,
        )
        await stack.enter_async_context(HttpServer(content, host=run.host, ports=run.ports))
        await _synced(cache, runtime, heartbeat)
        resign = asyncio.Event()
        election = None
        if run.leader_elect and not run.dry_run:
            election = runtime.spawn(elector.run(resign), "leader election")
        await every(
            run.interval,
            compactor.once,
            stop=runtime.stop,
            wake=wake,
            least=LEAST_PAUSE,
            heartbeat=heartbeat,
            metrics=metrics,
            name="pass",
        )
        # The order matters: no drain writes after the Lease is given up.
        for node, why in (await drainer.stop(run.stop_timeout)).items():
            log(_log, logging.WARNING, "drain not parked in time", node=node, detail=why)
        if leading() and not run.dry_run:
            await compactor.release()
        resign.set()
        if election is not None:
            await asyncio.wait((election,), timeout=5.0)


def _source(run: RunSettings, connection: Connection) -> Source:
    if run.config_path:
        return FileSource(run.config_path)
    return ConfigMapSource(connection, run.namespace, run.config_map)


class _Readiness:
    """Why the replica is not ready yet; a standby that has synced is."""

    def __init__(self, cache: ClusterCache, live: LiveConfig[CompactorSettings]) -> None:
        self._cache = cache
        self._live = live

    def __call__(self) -> list[str]:
        reasons = []
        if not self._cache.has_synced:
            waiting = sorted(kind for kind, stats in self._cache.stats().items() if not stats.synced)
            reasons.append(f"not synced: {', '.join(waiting)}")
        if not self._live.read:
            reasons.append(f"configuration not read yet: {self._live.trouble or 'no answer'}")
        return reasons


async def _synced(cache: ClusterCache, runtime: Runtime, heartbeat: Heartbeat) -> None:
    while not runtime.stop.is_set() and not cache.has_synced:
        heartbeat.beat()
        await asyncio.sleep(0.1)


def _leads(leads: bool, wake: asyncio.Event) -> None:
    if leads:
        wake.set()


def _reported(report: Report, metrics: RunMetrics, events: EventRecorder, run: RunSettings) -> None:
    metrics.config_valid.set(1 if report.valid else 0)
    if report.valid:
        log(_log, logging.INFO, "configuration in use", source=report.source, absent=report.absent)
        return
    for problem in report.problems:
        log(_log, logging.ERROR, "configuration refused, the last good one stands", source=report.source, error=problem)
    regarding = ObjectRef(kind="ConfigMap", name=run.config_map, namespace=run.namespace)
    events.record(regarding, "Warning", "ConfigInvalid", "; ".join(report.problems), "Configure")
