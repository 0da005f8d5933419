"""Helps led pods that find no node: labels go from nodes that leave, so that no pod ever waits for a plan.

The admission policy keeps a replacement off the nodes that leave. When kube-scheduler calls such a pod Unschedulable,
the label goes from the last nodes of the plan that would take the pod. If none would, or the pod still waits after
:data:`ALL` seconds, every label of this installation goes: the rules known here may be wrong, and Cluster Autoscaler
makes the template of a group from a node, with its labels (``createSanitizedNode`` in simulator/node_info_utils.go).
For a group without nodes it keeps the last template for ten years (``--node-info-cache-expire-time``), so after
:data:`ANEW` seconds the pod is evicted: its controller makes another one, which the policy leaves alone by then.

All that is known of a pod comes from its object, so a new leader goes on where the last one has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct

from tightship.cluster.installations import Beside
from tightship.draining.writing import LiveNode, NodePatch, patch_node, read_node, send_away
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.landing.expected import led, room_for
from tightship.objects import Node, Pod
from tightship.objects.api_errors import Conflict, KubeError, NotFound, NotSent, problem_of
from tightship.objects.counting import counted
from tightship.objects.node import LEAVING
from tightship.objects.reasons import Reason, Refusal

_log = logging.getLogger(__name__)

ALL, ANEW = 3.0, 8.0
"""Seconds for which a led pod has been Unschedulable when all labels go, and when it is made anew."""

HELD = 60.0
"""Seconds for which a node stays that has lost its label to let a pod in."""

_AGAIN = 1.5
_AT_ONCE = 16

Room = Callable[[Callable[[], list[str] | None]], Awaitable[list[str] | None]]
"""Runs a search for room, perhaps in a thread."""


class _Miss(Struct):
    """A led pod, Unschedulable since *since*; *again* is when to take labels off next, *anew* when to evict it."""

    pod: Pod
    since: float
    again: float
    anew: float


class MissedLandings:
    """The led pods that wait for a node. *beside* tells which labels are ours; times are monotonic seconds."""

    def __init__(
        self,
        connection: Connection,
        cache: ClusterCache,
        *,
        beside: Callable[[], Beside],
        leading: Callable[[], bool],
        in_thread: Room,
    ) -> None:
        self._connection = connection
        self._cache = cache
        self._beside = beside
        self._leading = leading
        self._in_thread = in_thread
        self._misses: dict[str, _Miss] = {}
        self._held: dict[str, tuple[float, str]] = {}
        self._freeing: asyncio.Task[None] | None = None
        self._evicting: set[asyncio.Task[object]] = set()
        self.order: Sequence[str] = ()
        """The nodes that the plan removes, in its order."""

    @property
    def waiting(self) -> bool:
        """Whether a led pod has no node."""
        return bool(self._misses)

    @property
    def owners(self) -> frozenset[str]:
        """The uids of the controllers whose next pods must not be led."""
        pods = (each.pod for each in self._misses.values())
        return frozenset(pod.owner.uid for pod in pods if pod.owner is not None)

    def held(self) -> frozenset[str]:
        """The nodes that stay for a while, because a pod needed them."""
        now = monotonic()
        return frozenset(name for name, (until, _) in self._held.items() if now < until)

    def refusal(self, node: str) -> Refusal | None:
        """Return why *node* of the plan is not drained now, if a pod that was led found no node."""
        if self._misses:
            pods = sorted(each.pod.key for each in self._misses.values())
            some = ", ".join(pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
            return Refusal(Reason.LANDING_MISSED, node, f"replacements of evicted pods wait for a node: {some}")
        until, pod = self._held.get(node, (0.0, ""))
        if monotonic() >= until:
            return None
        return Refusal(Reason.LANDING_MISSED, node, f"pod {pod} found no node among those that stay")

    def see(self, pods: Iterable[Pod], now: float) -> None:
        """Note which of *pods*, all without a node, were led and find none; help those whose turn it is."""
        there = {each.uid: each for each in pods if each.unschedulable and each.deletion is None and led(each)}
        for uid in self._misses.keys() - there.keys():
            del self._misses[uid]
        for uid, pod in there.items():
            self._misses.setdefault(uid, _Miss(pod, now, now, now + ANEW)).pod = pod
        for each in self._misses.values():
            if now >= each.anew:
                each.anew = now + ANEW
                _log.warning("pod %s is made anew: it has had no node for %.0f s", each.pod.key, now - each.since)
                evict = send_away(self._connection, each.pod, past_budgets=False, only_if=self._leading)
                task = asyncio.create_task(evict, name=f"eviction of {each.pod.key}")
                self._evicting.add(task)
                task.add_done_callback(self._evicting.discard)
        due = [each for each in self._misses.values() if now >= each.again]
        # Admission may take half a minute over each label: the eviction does not wait for that.
        if due and (self._freeing is None or self._freeing.done()):
            self._freeing = asyncio.create_task(self._help(due, now), name="missed landings")

    def forget(self) -> None:
        """Forget everything: this replica leads no more."""
        self._misses.clear()
        self._held.clear()

    async def stop(self) -> None:
        """End the requests under way."""
        tasks = [*self._evicting, *([self._freeing] if self._freeing is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _help(self, due: Sequence[_Miss], now: float) -> None:
        for each in due:
            each.again = now + _AGAIN
        try:
            await self._free(due, now)
        except CacheCrashed:
            return
        except (KubeError, TimeoutError) as error:
            _log.warning("labels of nodes that leave are still there: %s", problem_of(error))

    async def _free(self, due: Sequence[_Miss], now: float) -> None:
        snapshot, beside = self._cache.snapshot(), self._beside()
        place = {name: number for number, name in enumerate(self.order)}
        ours = [name for name, view in snapshot.nodes.items() if beside.ours(view.node.leaving or "")]
        ours.sort(key=lambda name: place.get(name, len(place)))
        if not ours:
            return
        pods = [each.pod for each in due]
        names: Sequence[str] | None = None
        if all(now < each.since + ALL for each in due):
            names = await self._in_thread(lambda: room_for(snapshot, pods, ours))
        some = ", ".join(each.key for each in pods[:3]) + (f" and {len(pods) - 3} more" if len(pods) > 3 else "")
        what = ", ".join(names) if names is not None else f"all {counted(len(ours), 'node')} that leave"
        _log.warning("no node for %s among those that stay: label %s goes from %s", some, LEAVING, what)
        for name in names or ():
            self._held[name] = (monotonic() + HELD, pods[0].key)
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(name: str) -> None:
            async with places:
                await self._unlabel(snapshot.nodes[name].node, beside)

        await asyncio.gather(*(one(name) for name in (ours if names is None else names)))

    async def _unlabel(self, node: Node, beside: Beside) -> None:
        patch = NodePatch(labels={LEAVING: None})
        try:
            judged = LiveNode(node, node.resource_version, ())
            await patch_node(self._connection, judged, patch, only_if=self._leading)
        except Conflict:
            live = await read_node(self._connection, node.name)
            if live is not None and beside.ours(live.node.leaving or ""):
                await patch_node(self._connection, live, patch, only_if=self._leading)
        except (NotFound, NotSent):
            pass


__all__ = ["ALL", "ANEW", "HELD", "MissedLandings"]
