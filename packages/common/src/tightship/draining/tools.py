"""What a drain works with: its settings, and the tools that it shares with all drains of a replica."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.drain.events import EventSink
from tightship.drain.rules import DrainRules
from tightship.draining.pilot import Pilot
from tightship.draining.writing import LiveNode, NodePatch, patch_node
from tightship.kube.cache import ClusterCache
from tightship.kube.connection import Connection
from tightship.objects import Node
from tightship.objects.api_errors import Conflict, KubeError
from tightship.objects.reasons import Refusal
from tightship.planning.demand import ReservedDemand
from tightship.planning.plan.model import Placement
from tightship.rules.eviction_rules import EvictionRules
from tightship.rules.nodes import opt_outs

NodeRefusals = Callable[[Snapshot, Node], Sequence[Refusal]]
"""Returns what keeps a node of a snapshot as a whole now."""


class DrainSettings(Struct, frozen=True, kw_only=True):
    """The settings of drains. They may change while drains run.

    *ahead* is the demand without pods for which to keep room. *node_refusals* is called before a claim and before each
    eviction, since something that keeps a node may appear during its drain.
    """

    rules: DrainRules = DrainRules()
    eviction: EvictionRules = EvictionRules()
    placement: Placement = "likely"
    ahead: ReservedDemand = ReservedDemand()
    node_refusals: NodeRefusals = lambda snapshot, node: opt_outs(snapshot.at(node), pools=snapshot.node_pools)


class Tools(Struct, frozen=True, kw_only=True):
    """The tools of a drain. Every request that changes something is preceded by a call of *leading*.

    While *releasing* is true, drains give their nodes back, whatever their phase. A *pilot* is told before pods are
    evicted; *landings* are the nodes where all drains want pods to land, by uid.
    """

    connection: Connection
    cache: ClusterCache
    tell: EventSink
    leading: Callable[[], bool]
    stopping: Callable[[], bool]
    releasing: Callable[[], bool] = lambda: False
    settings: Callable[[], DrainSettings]
    clock: Callable[[], float]
    in_thread: Callable[[Callable[[], list[Refusal]]], Awaitable[list[Refusal]]]
    pilot: Pilot | None = None
    landings: Callable[[], Mapping[str, str]] = dict

    def sight(self) -> Snapshot:
        """Return the cluster as the cache has it, with the landings that drains under way want."""
        snapshot, landings = self.cache.snapshot(), self.landings()
        return msgspec.structs.replace(snapshot, landings=landings) if landings else snapshot

    async def patch(self, live: LiveNode, patch: NodePatch) -> LiveNode:
        """Write *patch* on *live* while this replica leads; see :func:`~tightship.draining.writing.patch_node`."""
        return await patch_node(self.connection, live, patch, only_if=self.leading)


async def collected(repair: Awaitable[None], troubles: list[KubeError]) -> None:
    """Await *repair*, and add its error to *troubles*: the other repairs go on."""
    try:
        await repair
    except Conflict:
        pass  # somebody else was quicker: the next loop sees the result
    except KubeError as error:
        troubles.append(error)


__all__ = ["DrainSettings", "NodeRefusals", "Tools", "collected"]
