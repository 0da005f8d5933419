"""Between two cycles: a watch reports at once whose bounds were set back.

The watch is only a doorbell. Its events may be older than our own last write, so nothing is judged by them: an HPA that
they name is read again. The watch is open only while this replica leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from hpa_scaler.app.settings import ScalerSettings
from tightship.app.runtime.serving import Frame
from tightship.core.objects import ApiObject, HorizontalPodAutoscaler, ObjectError
from tightship.kube.reflector import Reflector, Timing
from tightship.kube.resources import AUTOSCALERS, Resource

LOOK = 1.0
"""Seconds between two checks whether to watch, and what."""


class Doorbell:
    """Calls *ring* for each reported HPA that *concerns* us. Keeps no HPA. A sink of reflectors."""

    def __init__(
        self,
        concerns: Callable[[HorizontalPodAutoscaler], bool],
        ring: Callable[[HorizontalPodAutoscaler], None],
    ) -> None:
        self._concerns = concerns
        self._ring = ring

    def upsert(self, kind: str, thing: ApiObject) -> None:
        """See :class:`tightship.kube.reflector.Sink`."""
        del kind
        if isinstance(thing, HorizontalPodAutoscaler) and self._concerns(thing):
            self._ring(thing)

    def replace(self, kind: str, things: Iterable[ApiObject], errors: Iterable[tuple[ObjectError, str]] = ()) -> None:
        """See :class:`tightship.kube.reflector.Sink`."""
        del errors
        for thing in things:
            self.upsert(kind, thing)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Leave it to the next cycle."""

    def mark_unreadable(self, error: ObjectError, node: str = "") -> None:
        """Leave it to the next cycle."""

    def mark_missing(self, kind: str, why: str) -> None:
        """Leave it to the next cycle."""


async def watch(frame: Frame[ScalerSettings], doorbell: Doorbell, timing: Timing = Timing()) -> None:
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
                reflectors = [Reflector(frame.connection, each, doorbell, lambda: None, timing) for each in wanted]
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


__all__ = ["Doorbell", "watch"]
