"""Whether another replica comes after this one. A successor continues; without one, the leader gives back its nodes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from tightship.cluster import Snapshot
from tightship.kube.cache import CacheCrashed, ClusterCache
from tightship.kube.connection import Connection
from tightship.kube.listing import list_all
from tightship.kube.resources import BY_KIND
from tightship.objects import ApiObject, Owner, Workload
from tightship.objects.api_errors import KubeError, one_line
from tightship.process.logging import log

ASKED_AT_THE_END = 3.0
"""Seconds for asking the API server, on shutdown, whether another replica comes."""

_KIND = "ReplicaSet"

_log = logging.getLogger(__name__)


class Succession:
    """Finds out from the Deployment of the pod *name* whether more pods come after it; nobody does after a process that
    a person has started *by_hand*.
    """

    def __init__(self, namespace: str, name: str, *, by_hand: bool = False) -> None:
        self.namespace = namespace
        self.by_hand = by_hand
        self._name = name
        self._set: Owner | None = None

    def look(self, snapshot: Snapshot) -> None:
        """Find the pod's ReplicaSet now, because the pod's own object may be gone at the end."""
        if self._set is not None:
            return
        for view in snapshot.nodes.values():
            for pod in view.pods:
                if pod.name == self._name and pod.namespace == self.namespace:
                    if pod.owner is not None and pod.owner.kind == _KIND:
                        self._set = pod.owner
                    return

    def expected(self, snapshot: Snapshot, listed: Iterable[ApiObject] | None = None) -> bool:
        """Return whether another pod exists, or will exist; *listed* are ReplicaSets newer than the snapshot's.

        True if nobody knows: in a pod of another cluster, or of another kind.
        """
        self.look(snapshot)
        if self._set is None or (listed is None and _KIND in snapshot.missing):
            return True
        sets = snapshot.workloads.get(_KIND, {})
        if listed is not None:
            sets = {f"{each.namespace}/{each.name}": each for each in listed if isinstance(each, Workload)}
        own = sets.get(f"{self.namespace}/{self._set.name}")
        if own is None or own.uid != self._set.uid:
            return False
        if own.owner is None:
            return own.replicas != 0
        # In a rollout the next pod belongs to another ReplicaSet of the same Deployment.
        return any(each.replicas != 0 for each in sets.values() if each.owner == own.owner)


async def another_comes(succession: Succession, cache: ClusterCache, connection: Connection) -> bool:
    """Ask the API server whether another replica comes: SIGTERM may arrive before the watch shows its cause."""
    if succession.by_hand:
        return False
    try:
        snapshot = cache.snapshot()
    except CacheCrashed:
        return True  # nobody knows
    sets: Sequence[ApiObject] | None = None
    try:
        async with asyncio.timeout(ASKED_AT_THE_END):
            here = BY_KIND[_KIND].within(namespace=succession.namespace)
            sets = (await list_all(connection, here)).things
    except (KubeError, TimeoutError) as error:
        log(_log, logging.DEBUG, "ReplicaSets can't be read, those known count", error=one_line(error))
    return succession.expected(snapshot, sets)
