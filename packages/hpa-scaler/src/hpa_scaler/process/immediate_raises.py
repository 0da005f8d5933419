"""Between two cycles: raises a floor again at once, by the last answers, if somebody has lowered it.

A :class:`~hpa_scaler.running.BoundChangeWatch` reports the HPAs whose bounds somebody has set back. Its events may
be older than our last write, so a reaction reads the HPA again and never judges by the event.

Only cycles lower floors, and only cycles change counts of cycles. No reaction runs during the second half of a cycle,
from the judgement on. If a reaction has written an HPA since the cycle began to list, the cycle reads that HPA again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from hpa_scaler.write.applying import Applier, Todo, judge_again, read_again
from hpa_scaler.write.metrics import ScalerMetrics
from hpa_scaler.write.records import Records
from tightship.kube.connection import Connection
from tightship.objects import HorizontalPodAutoscaler, ObjectError
from tightship.objects.api_errors import KubeError, one_line
from tightship.process.logging import log


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
        self.last: Todo | None = None
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
