"""Writes to nodes that are no drains: a controller's notes, such as marks, and soft taints."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tightship.app.observability.logging import log
from tightship.app.runtime.loop import a_few_at_a_time
from tightship.core.api_errors import Conflict, NotFound, NotSent, one_line
from tightship.drain_io.writing import LiveNode, patch_node, read_node
from tightship.kube.connection import Connection
from tightship.nodes.controller import NodeNote
from tightship.nodes.soft_taints import Steering, candidate_patch, tainted
from tightship.planning.cluster import Snapshot

AT_ONCE = 8
"""Concurrent writes."""

Allowed = Callable[[], bool]
"""Whether writes may still be made: asked before each, and again when its patch is about to leave."""


class NodeWrites:
    """Writes notes and soft taints in the name of *controller*.

    A write that comes too late, because the node has changed or may not be written any more, is left to the next pass.
    """

    def __init__(self, connection: Connection, controller: str, logger: logging.Logger) -> None:
        self._connection = connection
        self._controller = controller
        self._log = logger
        # Nodes on which a soft taint was put from here: the cache may lag behind our own writes.
        self._steered: set[str] = set()

    async def notes(self, snapshot: Snapshot, notes: Sequence[NodeNote], allowed: Allowed) -> None:
        """Write *notes*, each against the version of the node in *snapshot* that was judged."""

        async def write(note: NodeNote) -> None:
            judged = snapshot.nodes[note.node].node
            live = LiveNode(judged, judged.resource_version, ())
            await patch_node(self._connection, live, note.patch, only_if=allowed)

        await self._each([(note.node, partial(write, note)) for note in notes], allowed)

    async def steer(self, snapshot: Snapshot, steering: Steering, allowed: Allowed) -> None:
        """Put soft taints on nodes of *snapshot*, and remove others, as *steering* says."""
        self._steered.intersection_update(snapshot.nodes)
        todo = [(name, True) for name in steering.add] + [(name, False) for name in steering.remove]
        await self._each([(name, partial(self._taint, name, on, allowed)) for name, on in todo], allowed)

    def tainted(self, snapshot: Snapshot) -> list[str]:
        """Return the nodes that carry, or may carry, a soft taint of the controller."""
        return sorted(self._steered.union(tainted(snapshot, self._controller)))

    async def untaint(self, snapshot: Snapshot, allowed: Allowed) -> None:
        """Remove all soft taints of the controller."""
        names = self.tainted(snapshot)
        await self._each([(name, partial(self._taint, name, False, allowed)) for name in names], allowed)

    async def _taint(self, name: str, on: bool, allowed: Allowed) -> None:
        live = await read_node(self._connection, name)
        patch = candidate_patch(live, on, self._controller) if live is not None else None
        if on and patch is not None:
            self._steered.add(name)
        if live is not None and patch is not None:
            await patch_node(self._connection, live, patch, only_if=allowed)
        if not on:
            self._steered.discard(name)

    async def _each(self, writes: Sequence[tuple[str, Callable[[], Awaitable[None]]]], allowed: Allowed) -> None:
        async def one(todo: tuple[str, Callable[[], Awaitable[None]]]) -> None:
            name, write = todo
            if not allowed():
                return
            try:
                await write()
            except (Conflict, NotFound) as error:
                log(self._log, logging.DEBUG, "node changed meanwhile", node=name, error=one_line(error))
            except NotSent as error:
                log(self._log, logging.DEBUG, "not written", node=name, error=one_line(error))

        await a_few_at_a_time(one, writes, AT_ONCE)
