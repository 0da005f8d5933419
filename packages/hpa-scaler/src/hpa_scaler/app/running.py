"""``hpa-scaler run``, put together in one process: the frame that all controllers share, Prometheus, and the loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import hpa_scaler
from hpa_scaler.app.configuration import CYCLES_APART, allowed_of, limits_of, parse_config_map, servers_of
from hpa_scaler.app.first_look import FirstLook
from hpa_scaler.app.loop import ScalerLoop
from hpa_scaler.app.run_settings import PROGRAM, RunSettings
from hpa_scaler.app.settings import ScalerSettings
from hpa_scaler.app.watching import Doorbell, watch
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.write.events import Herald
from hpa_scaler.write.metrics import ScalerMetrics
from tightship.app.observability.events import ObjectRef
from tightship.app.runtime.main import Runtime
from tightship.app.runtime.serving import Configuration, Frame
from tightship.app.runtime.serving import serve as serve_frame
from tightship.kube.host import monotonic
from tightship.report.document import Generator


async def serve(runtime: Runtime, run: RunSettings, environment: Mapping[str, str]) -> None:
    """Run until ``runtime.stop``."""
    del environment  # all of it is in *run*

    @asynccontextmanager
    async def make(frame: Frame[ScalerSettings]) -> AsyncIterator[ScalerLoop]:
        settings = frame.live.current
        metrics = ScalerMetrics(frame.registry)
        client = PrometheusClient(
            servers_of(settings, run), allowed_of(settings), limits=limits_of(settings), observe=metrics.asked
        )
        lease = ObjectRef("Lease", run.lease_name, "", run.namespace, "coordination.k8s.io/v1")
        herald = Herald(frame.events, frame.logger, lease, monotonic)
        first = FirstLook(frame)
        runtime.spawn(first.run(), "first look at HPAs")
        async with client:
            loop = ScalerLoop(frame, run, client=client, metrics=metrics, herald=herald, waits_for=first.waits_for)
            if run.watch and not run.dry_run:
                runtime.spawn(watch(frame, Doorbell(loop.reactor.may_concern, loop.reactor.ring)), "watch of HPAs")
                runtime.spawn(loop.reactor.run(), "reaction to changes by others")
            yield loop

    await serve_frame(
        runtime,
        run,
        Generator(PROGRAM, hpa_scaler.__version__),
        Configuration(parse_config_map),
        make,
        pass_deadline=run.cycle_deadline + CYCLES_APART * run.interval,
    )


__all__ = ["serve"]
