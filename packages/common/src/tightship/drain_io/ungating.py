"""Sets gated pods free: nominates a node, if one is wanted, and removes our gate, whatever came of the nomination."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from msgspec import Struct

from tightship.core.api_errors import Forbidden, Invalid, KubeError, NotFound, one_line, problem_of
from tightship.core.backoff import doubled
from tightship.core.objects import Pod
from tightship.core.objects.pod import LANDING_GATE
from tightship.drain_io.landing_map import nominate, ungate
from tightship.kube.connection import WRITE_TIMEOUT, Connection
from tightship.kube.host import monotonic

_log = logging.getLogger(__name__)

NOMINATION = 2.0
"""Seconds that a nomination may take. The pod waits."""

_AT_ONCE = 16
_SEEN_AGAIN = 2.0
_FIRST, _LAST = 0.5, 15.0


class _Waiting(Struct):
    """A gated pod: since when this replica has seen the pod, when to try next, and how often a try has failed."""

    since: float
    again: float = 0.0
    failures: int = 0
    refused: str = ""


class Ungating:
    """The gated pods that this replica sees, and the requests for them under way. Times are monotonic seconds."""

    def __init__(self, connection: Connection, leading: Callable[[], bool]) -> None:
        self._connection = connection
        self._leading = leading
        self._waiting: dict[str, _Waiting] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.surprised = False
        """Whether a pod was gated that no entry of this replica explains."""

    @property
    def refused(self) -> bool:
        """Whether the server has refused to let this replica remove the gate of a pod that waits."""
        return any(each.refused for each in self._waiting.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Whole sentences about the pods whose gate this controller may not remove."""
        return tuple(each.refused for each in self._waiting.values() if each.refused)

    def see(self, pods: Iterable[Pod], now: float) -> list[Pod]:
        """Note which of *pods* have our gate now, and return them."""
        gated = [pod for pod in pods if pod.lands and pod.deletion is None]
        there = {pod.uid for pod in gated}
        for uid in self._waiting.keys() - there:
            del self._waiting[uid]
        for uid in there:
            self._waiting.setdefault(uid, _Waiting(now))
        return gated

    def due(self, pod: Pod, now: float) -> bool:
        """Whether nobody sets *pod* free at the moment."""
        return now >= self._waiting[pod.uid].again

    def any_after(self, seconds: float) -> bool:
        """Whether a pod has been gated for so many *seconds*, and nothing says that its gate can't be removed."""
        now = monotonic()
        return any(not each.refused and now - each.since >= seconds for each in self._waiting.values())

    def waited(self, pod: Pod, now: float) -> float:
        """Return for how many seconds this replica has seen *pod* gated."""
        return now - self._waiting[pod.uid].since

    def begin(self, pod: Pod, node: str | None, why: str, *, surprising: bool = False) -> asyncio.Task[None]:
        """Set *pod* free, and first nominate *node*, if it has one; *why* says why not."""
        waiting = self._waiting.setdefault(pod.uid, _Waiting(monotonic()))
        waiting.again = monotonic() + NOMINATION + WRITE_TIMEOUT + _SEEN_AGAIN
        self.surprised |= surprising
        level = logging.WARNING if surprising else logging.INFO
        if not waiting.failures:
            _log.log(level, "landing of pod %s: %s", pod.key, f"wanted on node {node}" if node else f"anywhere, {why}")
        task = asyncio.create_task(self._set_free(pod, node, waiting), name=f"landing of {pod.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """End the requests under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set_free(self, pod: Pod, node: str | None, waiting: _Waiting) -> None:
        async with self._places:
            if node is not None and self._leading():
                await self._nominate(pod, node)
            try:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await ungate(self._connection, pod)
            except NotFound:
                pass  # gone; if not, the cache shows the gate again
            except Invalid as error:
                if not another(error):
                    self._failed(pod, waiting, error)
                    return
            except (KubeError, TimeoutError) as error:
                self._failed(pod, waiting, error)
                return
        waiting.again, waiting.failures, waiting.refused = monotonic() + _SEEN_AGAIN, 0, ""

    async def _nominate(self, pod: Pod, node: str) -> None:
        try:
            async with asyncio.timeout(NOMINATION):
                await nominate(self._connection, pod, node, only_if=self._leading)
        except (KubeError, TimeoutError) as error:
            _log.info("landing of pod %s: node %s not nominated: %s", pod.key, node, problem_of(error))

    def _failed(self, pod: Pod, waiting: _Waiting, error: BaseException) -> None:
        waiting.again = monotonic() + doubled(_FIRST, _LAST, waiting.failures)
        waiting.failures += 1
        if not isinstance(error, Forbidden | Invalid):
            _log.debug("gate of pod %s not removed, trying again: %s", pod.key, problem_of(error))
            return
        if not waiting.refused:
            _log.warning("gate of pod %s can't be removed: %s", pod.key, one_line(error))
        waiting.refused = refused(pod)


def another(error: Invalid) -> bool:
    """Whether a patch was refused because another pod has the name now: the server takes the uid for a change."""
    return any(each.field == "metadata.uid" for each in error.causes)


def refused(pod: Pod) -> str:
    """Return what a person has to do for *pod*, from which this controller may not remove the gate."""
    patch = f'{{"spec":{{"schedulingGates":[{{"name":"{LANDING_GATE}","$patch":"delete"}}]}}}}'
    return (
        f"Pod {pod.key} waits at the scheduling gate {LANDING_GATE}, which this controller may not remove: "
        f"kubectl -n {pod.namespace} patch pod {pod.name} -p '{patch}'"
    )


__all__ = ["NOMINATION", "Ungating", "another", "refused"]
