"""Writes that are no drains: a controller's notes, such as marks, soft taints, and deletion costs on pods."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from tightship.app.observability.logging import log
from tightship.app.runtime.loop import a_few_at_a_time
from tightship.app.settings.sections import SteeringKeys
from tightship.core.api_errors import Conflict, NotFound, NotSent, one_line
from tightship.core.reasons import Refusal
from tightship.drain_io.writing import LiveNode, patch_node, read_node
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.nodes.controller import NodeNote
from tightship.nodes.cost_writes import CostWrites
from tightship.nodes.deletion_costs import Costs, share_costs
from tightship.nodes.scale_ins import ScaleIns
from tightship.nodes.soft_taints import candidate_patch, next_to_go, steer, tainted
from tightship.nodes.write_pace import WritePace
from tightship.planning.cluster import Snapshot
from tightship.planning.evaluate import Evaluation, ExplainedGates
from tightship.planning.installations import Beside

G = TypeVar("G", bound=ExplainedGates)

AT_ONCE = 8
"""Concurrent writes."""

LONGEST = 240.0
"""Seconds after which a pass begins no more writes of a kind: while admission is slow, a pass must not seem to hang."""

Allowed = Callable[[], bool]
"""Whether writes may still be made: asked before each, and again when its patch is about to leave."""


class NodeWrites:
    """Writes notes, soft taints and deletion costs of the installation that *beside* tells.

    A write that comes too late, because the node has changed or may not be written any more, is left to the next pass.
    """

    def __init__(self, connection: Connection, beside: Callable[[], Beside], logger: logging.Logger) -> None:
        self._connection = connection
        self._beside = beside
        self._log = logger
        self._note_pace, self._taint_pace = WritePace(), WritePace()
        # Nodes on which a soft taint was put from here: the cache may lag behind our own writes.
        self._steered: set[str] = set()
        self._costs = CostWrites(connection, beside, logger)
        self._shared = Costs()
        self._scale_ins = ScaleIns()

    async def notes(self, snapshot: Snapshot, notes: Sequence[NodeNote], allowed: Allowed) -> None:
        """Write *notes*, each against the version of the node in *snapshot* that was judged."""

        async def write(note: NodeNote) -> None:
            judged = snapshot.nodes[note.node].node
            live = LiveNode(judged, judged.resource_version, ())
            await patch_node(self._connection, live, note.patch, only_if=allowed)

        await self._each(
            [(each.node, partial(write, each)) for each in notes if self._note_pace.lets(each.node)], allowed
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Whole sentences about what can't be written."""
        return (self._costs.refused,) if self._costs.refused else ()

    def waiting(
        self, evaluation: Evaluation[G], settings: SteeringKeys, pauses: Callable[[str], Refusal | None]
    ) -> Evaluation[G]:
        """Return *evaluation* with what *pauses* or waits for scale-ins, and choose whose pods get deletion costs."""
        snapshot, plan = evaluation.snapshot, evaluation.plan
        planned = [each.node for each in plan.removals]
        held = {name: why for name in planned if (why := pauses(name)) is not None} | dict(evaluation.held)
        evaluation = msgspec.structs.replace(evaluation, held=held)
        going: Sequence[str] = ()
        if settings.deletion_cost:
            spared = _spared(evaluation)
            going = next_to_go(snapshot, plan, len(snapshot.nodes), spared=spared)
        costs = self._shared = share_costs(snapshot, going, self._beside())
        if not going or self._costs.refused:
            return evaluation
        timeout = settings.scale_in_timeout
        waits = self._scale_ins.waiting(planned, costs.chosen, timeout, evaluation.now)
        return msgspec.structs.replace(evaluation, held={**waits, **evaluation.held})

    async def steer(self, evaluation: Evaluation[ExplainedGates], settings: SteeringKeys, allowed: Allowed) -> None:
        """Have the nodes that go next, and their pods, carry what *settings* ask for, and no others.

        :meth:`waiting` has chosen the pods.
        """
        snapshot, plan = evaluation.snapshot, evaluation.plan
        limit, enabled = settings.candidate_taints, settings.steering != "off"
        steering = steer(snapshot, plan, limit, enabled, self._beside(), spared=_spared(evaluation))
        self._steered.intersection_update(snapshot.nodes)
        todo = [(name, True) for name in steering.add] + [(name, False) for name in steering.remove]
        paced = [each for each in todo if self._taint_pace.lets(each[0])]
        await self._each([(name, partial(self._taint, name, on, allowed)) for name, on in paced], allowed)
        await self._costs.write(snapshot, self._shared, allowed)

    def left(self, snapshot: Snapshot) -> bool:
        """Whether a node carries, or may carry, a soft taint of the controller, or a pod a cost that can be removed."""
        return bool(self._tainted(snapshot) or (self._costs.carrying(snapshot) and not self._costs.refused))

    async def clear(self, snapshot: Snapshot, allowed: Allowed) -> None:
        """Remove all soft taints and deletion costs of the controller."""
        names = self._tainted(snapshot)
        await self._each([(name, partial(self._taint, name, False, allowed)) for name in names], allowed)
        await self._costs.clear(snapshot, allowed)

    def _tainted(self, snapshot: Snapshot) -> list[str]:
        return sorted(self._steered.union(tainted(snapshot, self._beside())))

    async def _taint(self, name: str, on: bool, allowed: Allowed) -> None:
        live = await read_node(self._connection, name)
        patch = candidate_patch(live, on, self._beside()) if live is not None else None
        if on and patch is not None:
            self._steered.add(name)
        if live is not None and patch is not None:
            await patch_node(self._connection, live, patch, only_if=allowed)
        if not on:
            self._steered.discard(name)

    async def _each(self, writes: Sequence[tuple[str, Callable[[], Awaitable[None]]]], allowed: Allowed) -> None:
        until = monotonic() + LONGEST

        async def one(todo: tuple[str, Callable[[], Awaitable[None]]]) -> None:
            name, write = todo
            if not allowed() or monotonic() >= until:
                return
            try:
                await write()
            except (Conflict, NotFound) as error:
                log(self._log, logging.DEBUG, "node changed meanwhile", node=name, error=one_line(error))
            except NotSent as error:
                log(self._log, logging.DEBUG, "not written", node=name, error=one_line(error))

        await a_few_at_a_time(one, writes, AT_ONCE)


def _spared(evaluation: Evaluation[ExplainedGates]) -> list[str]:
    return [name for name, fact in evaluation.facts.items() if fact.pool in evaluation.paused]
