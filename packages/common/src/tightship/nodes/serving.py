"""A controller of nodes in one process: the frame of all controllers, the cluster, and drains."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from tightship.drain.events import DrainEvent
from tightship.draining.drain_manager import Drainer
from tightship.draining.installations import Installations, lasts
from tightship.draining.landing_map import LandingMap
from tightship.draining.ledger import Ledger
from tightship.draining.missed_landings import MissedLandings
from tightship.draining.pilot import Pilot
from tightship.draining.terms import Terms
from tightship.draining.tools import Tools
from tightship.kube.cache import ClusterCache
from tightship.kube.resources import resources
from tightship.nodes.controller import NodeController
from tightship.nodes.event_sink import Herald
from tightship.nodes.loop import ConsolidationLoop
from tightship.nodes.metrics import ConsolidationMetrics
from tightship.nodes.node_prices import NodePrices
from tightship.objects import Node
from tightship.objects.drain_record import UNPRICED, Price
from tightship.planning.evaluate import ExplainedGates
from tightship.process.loop import in_thread
from tightship.process.main import Runtime
from tightship.process.serving import Frame, serve
from tightship.process.settings.process import NodeProcessSettings
from tightship.process.settings.sections import NodeSettings

S = TypeVar("S", bound=NodeSettings)
G = TypeVar("G", bound=ExplainedGates)


async def serve_nodes(runtime: Runtime, run: NodeProcessSettings, controller: NodeController[S, G]) -> None:
    """Run *controller* until ``runtime.stop``: watch, lead or stand by, pass after pass, and shut down cleanly."""

    @asynccontextmanager
    async def make(frame: Frame[S]) -> AsyncIterator[ConsolidationLoop[S, G]]:
        # The first pass follows buffers, and their templates if there are any.
        read = resources(autoscalers=controller.judge(frame.live.current).ahead.replicas > 0, buffers=False)
        async with ClusterCache(frame.connection, resources=read, crashed=frame.wake.set) as cache:
            loop, pilot, installations = _loop(frame, run, controller, cache)
            flights = [
                frame.runtime.spawn(pilot.run(), "pilot"),
                frame.runtime.spawn(installations.keep(), "sign of life"),
            ]
            try:
                yield loop
            finally:
                for flight in flights:
                    flight.cancel()
                await asyncio.gather(*flights, return_exceptions=True)

    await serve(runtime, run, controller.program, controller.configuration, make)


def _loop(
    frame: Frame[S], run: NodeProcessSettings, controller: NodeController[S, G], cache: ClusterCache
) -> tuple[ConsolidationLoop[S, G], Pilot, Installations]:
    live, name = frame.live, controller.program.name
    metrics = ConsolidationMetrics(frame.registry, name)
    frame.metrics.watch_cache(cache.stats)
    own = controller.metrics(frame.registry)
    herald = Herald(frame.events)

    def tell(news: DrainEvent) -> None:
        herald(news)
        metrics.news(news)
        own.news(news)

    # Drains park once it is known whether another replica continues them, not at once.
    parting = asyncio.Event()
    terms = Terms(
        steering=lambda: live.current.steering,
        acting=frame.acting,
        leading=frame.leading,
    )
    lease = f"{run.namespace}/{run.lease_name}"
    ledger = Ledger(frame.connection, namespace=run.claims_namespace, name=run.claims_lease)
    installations = Installations(
        ledger,
        controller=name,
        lease=lease,
        lasts=lasts(run.lease_duration),
        leading=lambda: frame.leading() and not run.dry_run,
    )
    landing_map = LandingMap(frame.connection, run.namespace, run.landings)
    missed = MissedLandings(
        frame.connection, cache, beside=lambda: installations.beside, leading=frame.leading, in_thread=in_thread
    )
    pilot = Pilot(cache, landing_map, terms, missed, metrics.landed)

    tools = Tools(
        connection=frame.connection,
        cache=cache,
        tell=tell,
        leading=frame.leading,
        stopping=parting.is_set,
        releasing=frame.finishing.is_set if not run.dry_run else lambda: True,
        settings=lambda: controller.drain_settings(live.current.led if pilot.available else live.current),
        clock=frame.connection.clock.now,
        in_thread=in_thread,
        pilot=pilot,
        landings=lambda: drainer.landings(cache.snapshot()),
    )

    prices: NodePrices[S] = NodePrices(frame.logger, frame.connection.clock.now)

    def paid(node: Node) -> Price:
        price = controller.price_of(node, prices.applied(live.current))
        return UNPRICED if price is None else (price.hourly, price.currency)

    drainer = Drainer(
        tools,
        ledger,
        controller=name,
        holder=run.identity,
        epoch=lambda: frame.elector.epoch,
        pool_of=lambda node: controller.pool_of(node, live.current),
        price_of=paid,
        lease=lease,
        installations=installations,
    )
    loop = ConsolidationLoop(
        frame,
        run,
        controller,
        cache=cache,
        drainer=drainer,
        ledger=ledger,
        installations=installations,
        pilot=pilot,
        metrics=metrics,
        own=own,
        parting=parting,
        prices=prices,
        clock=frame.connection.clock.now,
    )
    return loop, pilot, installations
