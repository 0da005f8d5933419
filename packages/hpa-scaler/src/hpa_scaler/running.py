"""``hpa-scaler run``: the shared frame, the Prometheus client, the loop and the watch of HPAs in one process."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import hpa_scaler
from hpa_scaler.annexes import FORECASTS
from hpa_scaler.process.forecasts import made_by
from hpa_scaler.process.loop import ScalerLoop
from hpa_scaler.process.settings import (
    CYCLES_APART,
    PROGRAM,
    ScalerRunSettings,
    ScalerSettings,
    allowed_of,
    limits_of,
    parse_config_map,
    servers_of,
)
from hpa_scaler.prometheus.client import PrometheusClient
from hpa_scaler.write.events import FloorEvents
from hpa_scaler.write.metrics import ScalerMetrics
from hpa_scaler.write.records import Records
from tightship.documents.document import Generator
from tightship.kube.host import monotonic, wall
from tightship.kube.reflector import Reflector, Timing
from tightship.kube.resources import AUTOSCALERS, Resource
from tightship.kube.retrying import RetryPolicy
from tightship.objects import ApiObject, HorizontalPodAutoscaler, ObjectError
from tightship.objects.api_errors import Forbidden, KubeError, one_line
from tightship.process.events import ObjectRef
from tightship.process.logging import log
from tightship.process.main import Runtime
from tightship.process.serving import Configuration, Frame
from tightship.process.serving import serve as serve_frame

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


async def serve(runtime: Runtime, run: ScalerRunSettings, environment: Mapping[str, str]) -> None:
    """Run until ``runtime.stop``."""
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
            forecasts = made_by(FORECASTS)(client, frame.logger, wall)
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
