"""Writes the deletion costs of :mod:`tightship.deletion_costs.costs` on pods, a bounded number in each pass."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.deletion_costs.costs import OURS, Costs, ScaleIns, notes_of, priced, removal, share_costs
from tightship.draining.extensions import PodCosts
from tightship.kube.connection import WRITE_TIMEOUT, Connection
from tightship.kube.resources import BY_KIND
from tightship.objects import Pod
from tightship.objects.api_errors import ApiError, BadAnswer, Conflict, Forbidden, Invalid, NotFound, NotSent, one_line
from tightship.objects.drain_record import FIELD_MANAGER
from tightship.objects.reasons import Refusal
from tightship.objects.unreadable import UNREADABLE
from tightship.process.logging import log
from tightship.process.loop import a_few_at_a_time
from tightship.rules.disruption_cost import DELETION_COST

AT_ONCE = 8
"""Concurrent requests."""

WRITES = 100
"""Most pods that a pass adds a cost to, or takes one from. Only when the controller stops or is switched off are all
costs removed at once."""


class _Meta(Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str = ""
    annotations: dict[str, str] | None = None


class _Live(Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Pods(Struct, frozen=True):
    items: list[_Live] = []


class CostWrites(PodCosts):
    """Writes and removes deletion costs of the installation that *beside* tells.

    Needs the right to patch pods, which the chart grants only with ``deletionCost``. Without it nothing else suffers.
    """

    def __init__(self, connection: Connection, beside: Callable[[], Beside], logger: logging.Logger) -> None:
        self._connection = connection
        self._beside = beside
        self._log = logger
        # Pods that got a cost from here which the cache may not show yet, by uid.
        self._unseen: dict[str, Pod] = {}
        self._blocked = False
        self._costs = Costs()
        self._scale_ins = ScaleIns()
        self.refused = ""

    def choose(
        self, snapshot: Snapshot, planned: Sequence[str], going: Sequence[str], timeout: float, now: float
    ) -> Mapping[str, Refusal]:
        """See :meth:`tightship.draining.extensions.PodCosts.choose`."""
        self._costs = share_costs(snapshot, going, self._beside())
        if not going or self.refused:
            return {}
        return self._scale_ins.waiting(planned, self._costs.chosen, timeout, now)

    def left(self, snapshot: Snapshot) -> bool:
        """See :meth:`tightship.draining.extensions.PodCosts.left`."""
        return bool(self.carrying(snapshot)) and not self.refused

    def carrying(self, snapshot: Snapshot) -> list[Pod]:
        """Return the pods that carry, or may carry, a cost of the controller."""
        found = {pod.uid: pod for pod in priced(snapshot, self._beside())}
        for uid, pod in list(self._unseen.items()):
            view = snapshot.nodes.get(pod.node)
            if uid in found or view is None or all(each.uid != uid for each in view.pods):
                del self._unseen[uid]
        return [*found.values(), *self._unseen.values()]

    async def write(self, snapshot: Snapshot, allowed: Callable[[], bool]) -> None:
        """Make the first :data:`WRITES` changes of the chosen costs: what goes before what comes. Raises KubeError."""
        costs = self._costs
        self.carrying(snapshot)
        self._begin(bool(costs.add or costs.remove))
        remove = costs.remove[:WRITES]
        add = costs.add[: WRITES - len(remove)]
        await self._each([partial(self._remove, pod, allowed) for pod in remove])
        nodes: dict[str, list[tuple[Pod, int]]] = {}
        for pod, cost in add:
            nodes.setdefault(pod.node, []).append((pod, cost))
        for name, pods in nodes.items():
            if not allowed() or self._blocked:
                break
            live = await self._live(name)
            await self._each(
                [partial(self._add, pod, cost, live[pod.uid], allowed) for pod, cost in pods if pod.uid in live]
            )

    async def clear(self, snapshot: Snapshot, allowed: Callable[[], bool]) -> None:
        """Remove all costs of the controller. Raises KubeError."""
        pods = self.carrying(snapshot)
        self._begin(bool(pods))
        await self._each([partial(self._remove, pod, allowed) for pod in pods])

    def _begin(self, something: bool) -> None:
        self._blocked = False
        if not something:
            self.refused = ""

    async def _live(self, node: str) -> Mapping[str, _Meta]:
        """Return what the server says of the pods on *node*, by uid. The right to list pods is there anyway."""
        path, params = BY_KIND["Pod"].path, {"fieldSelector": f"spec.nodeName={node}"}
        raw = await self._connection.request("GET", path, params=params, timeout=WRITE_TIMEOUT)
        try:
            pods = msgspec.json.decode(raw, type=_Pods).items
        except UNREADABLE as error:
            raise BadAnswer("GET", path, self._connection.server, f"not a list of pods: {error}") from error
        return {each.metadata.uid: each.metadata for each in pods}

    async def _add(self, pod: Pod, cost: int, live: _Meta, allowed: Callable[[], bool]) -> None:
        notes = live.annotations or {}
        if DELETION_COST in notes or OURS in notes or live.deletion_timestamp:
            return
        ours = notes_of(self._beside().mark, cost)
        # Until the server has said no, the pod may carry the cost: an answer may get lost.
        self._unseen[pod.uid] = msgspec.structs.replace(pod, annotations={**pod.annotations, **ours})
        body = {"metadata": {"resourceVersion": live.resource_version, "annotations": ours}}
        try:
            written = await self._patch(pod, body, "application/merge-patch+json", allowed)
        except Invalid as error:
            # An admission policy is against it, such as the chart's fence in another revision.
            written = self._refuse(pod, error)
        if not written:
            del self._unseen[pod.uid]

    async def _remove(self, pod: Pod, allowed: Callable[[], bool]) -> None:
        try:
            await self._patch(pod, removal(pod.annotations), "application/json-patch+json", allowed)
        except Invalid as error:
            log(self._log, logging.DEBUG, "deletion cost changed meanwhile", pod=pod.key, error=one_line(error))
        self._unseen.pop(pod.uid, None)

    async def _patch(self, pod: Pod, body: object, kind: str, allowed: Callable[[], bool]) -> bool:
        """Return whether the pod is changed now. Raises Invalid, and what tells of no answer."""
        if not allowed():
            return False
        try:
            await self._connection.request(
                "PATCH",
                f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}",
                params={"fieldManager": FIELD_MANAGER},
                body=msgspec.json.encode(body),
                content_type=kind,
                timeout=WRITE_TIMEOUT,
                only_if=allowed,
            )
        except (Conflict, NotFound, NotSent) as error:
            log(self._log, logging.DEBUG, "deletion cost not written", pod=pod.key, error=one_line(error))
            return False
        except Forbidden as error:
            return self._refuse(pod, error)
        self.refused = ""
        return True

    def _refuse(self, pod: Pod, error: ApiError) -> bool:
        if not self.refused:
            log(self._log, logging.WARNING, "deletion costs can't be written", pod=pod.key, error=one_line(error))
        self._blocked = True
        self.refused = (
            "Deletion costs of pods can't be written or removed, because the API server refuses that to this "
            "controller: upgrade the chart's release with deletionCost, or see docs/permissions.md."
        )
        return False

    async def _each(self, writes: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Make *writes*, but none after a refusal; while a refusal holds, the first shows whether it still does."""

        async def one(write: Callable[[], Awaitable[None]]) -> None:
            if not self._blocked:
                await write()

        await a_few_at_a_time(one, writes, 1 if self.refused else AT_ONCE)


def pod_costs(connection: Connection, beside: Callable[[], Beside], logger: logging.Logger) -> PodCosts:
    """Return what writes the costs of the installation that *beside* tells."""
    return CostWrites(connection, beside, logger)
