"""``node-compactor run``: everything put together in one process."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import node_compactor
from node_compactor.configuration import parse_config_map
from node_compactor.controller import Compactor
from node_compactor.drains import drain_settings
from node_compactor.metrics import CompactorMetrics
from node_compactor.policy import CONTROLLER
from node_compactor.run_settings import RunSettings
from node_compactor.settings import CompactorSettings
from tightship.drain.claims import ClaimLedger
from tightship.drain.drainer import Drainer
from tightship.drain.driving import Tools
from tightship.drain.history import DrainHistory
from tightship.drain.news import News
from tightship.drain.telling import Herald
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.observability.logging import log
from tightship.pools import pool_of
from tightship.runtime.loop import in_thread
from tightship.runtime.main import Runtime
from tightship.runtime.page import Page
from tightship.runtime.serving import Configuration, Frame, Program
from tightship.runtime.serving import serve as serve_in_frame

PROGRAM = Program(CONTROLLER, node_compactor.__version__)


async def serve(runtime: Runtime, run: RunSettings, environment: Mapping[str, str]) -> None:
    """Run until ``runtime.stop``: watch, lead or stand by, pass after pass, and end in good order."""

    @asynccontextmanager
    async def make(frame: Frame[CompactorSettings]) -> AsyncIterator[_Nodes]:
        async with ClusterCache(frame.connection, crashed=frame.wake.set) as cache:
            yield _Nodes(frame, run, cache)

    configuration = Configuration(lambda data: parse_config_map(data, environment))
    await serve_in_frame(runtime, run, PROGRAM, configuration, make)


class _Nodes:
    """What controllers of nodes have in the frame: the cluster, and drains."""

    def __init__(self, frame: Frame[CompactorSettings], run: RunSettings, cache: ClusterCache) -> None:
        own = CompactorMetrics(frame.registry)
        frame.metrics.watch_cache(cache.stats)
        herald = Herald(frame.events)

        def tell(news: News) -> None:
            herald(news)
            own.news(news)

        live = frame.live
        history = DrainHistory(frame.connection, namespace=run.claims_namespace, name=run.claims_lease)
        self._frame = frame
        self._timeout = run.stop_timeout
        self._cache = cache
        self._drainer = Drainer(
            Tools(
                connection=frame.connection,
                cache=cache,
                tell=tell,
                leading=frame.leading,
                stopping=frame.runtime.stop.is_set,
                settings=lambda: drain_settings(live.current),
                clock=time.time,
                in_thread=in_thread,
            ),
            ClaimLedger(frame.connection, namespace=run.claims_namespace, name=run.claims_lease),
            history,
            controller=CONTROLLER,
            holder=run.identity,
            epoch=lambda: frame.elector.epoch,
            pool_of=lambda node: pool_of(node, live.current.pool_labels),
        )
        self._compactor = Compactor(
            connection=frame.connection,
            cache=cache,
            drainer=self._drainer,
            history=history,
            metrics=own,
            settings=lambda: live.current,
            leading=frame.leading,
            holder=lambda: frame.elector.holder,
            dry_run=run.dry_run,
        )

    @property
    def unfinished(self) -> bool:
        return False

    def waits_for(self) -> Sequence[str]:
        if self._cache.has_synced:
            return ()
        waiting = sorted(kind for kind, stats in self._cache.stats().items() if not stats.synced)
        return (f"not synced: {', '.join(waiting)}",)

    async def once(self) -> None:
        await self._compactor.once()

    async def stop(self) -> None:
        for node, why in (await self._drainer.stop(self._timeout)).items():
            log(self._frame.program.logger, logging.WARNING, "drain not parked in time", node=node, detail=why)
        try:
            if self._frame.leading():
                await self._compactor.release()
        except CacheCrashed:
            return  # nobody knows which nodes have a taint; the next leader will

    def status(self) -> bytes:
        return self._compactor.shown.json

    def page(self) -> Page:
        return self._compactor.shown.page
