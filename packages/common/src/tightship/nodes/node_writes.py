"""Writes that are no drains: a controller's notes, such as marks, soft taints, labels, and deletion costs on pods."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial

import msgspec

from tightship.cluster import Snapshot
from tightship.cluster.installations import Beside
from tightship.draining.extensions import PodCosts
from tightship.draining.writing import LiveNode, patch_node, read_node
from tightship.draining.writing import Taint as WireTaint
from tightship.kube.connection import Connection
from tightship.kube.host import monotonic
from tightship.nodes.controller import NodeNote
from tightship.nodes.soft_taints import NEITHER, Marks, labelled_by_others, marked, marks_patch, next_to_go, steer
from tightship.objects import Node
from tightship.objects.api_errors import Conflict, NotFound, NotSent, one_line
from tightship.objects.counting import some
from tightship.objects.node import LEAVING
from tightship.objects.reasons import Refusal
from tightship.planning.evaluate import Evaluation
from tightship.planning.plan.model import CANDIDATE
from tightship.process.logging import log
from tightship.process.loop import a_few_at_a_time
from tightship.process.settings.sections import SteeringKeys

AT_ONCE = 8
"""Concurrent writes."""

LONGEST = 240.0
"""Seconds after which a pass begins no more writes of a kind: while admission is slow, a pass must not seem to hang."""

Allowed = Callable[[], bool]
"""Whether writes may still be made: asked before each, and again when its patch is about to leave."""


class NodeWrites:
    """Writes notes, soft taints, labels and deletion costs of the installation that *beside* tells.

    A write that comes too late, because the node has changed or may not be written any more, is left to the next pass.
    """

    def __init__(
        self, connection: Connection, beside: Callable[[], Beside], costs: PodCosts, logger: logging.Logger
    ) -> None:
        self._connection = connection
        self._beside = beside
        self._log = logger
        self._note_pace, self._marks_pace = WritePace(), WritePace()
        # Nodes on which a soft taint or a label was put from here: the cache may lag behind our own writes.
        self._steered: set[str] = set()
        # Nodes as the last notes have left them: the next write of the pass goes over that.
        self._noted: dict[str, LiveNode] = {}
        self._foreign = ""
        self._costs = costs

    async def notes(self, snapshot: Snapshot, notes: Sequence[NodeNote], allowed: Allowed) -> None:
        """Write *notes*, each against the version of the node in *snapshot* that was judged."""

        async def write(note: NodeNote) -> None:
            judged = snapshot.nodes[note.node].node
            live = LiveNode(judged, judged.resource_version, ())
            self._noted[note.node] = await patch_node(self._connection, live, note.patch, only_if=allowed)

        self._noted.clear()
        await self._each(
            [(each.node, partial(write, each)) for each in notes if self._note_pace.lets(each.node)], allowed
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Whole sentences about what can't be written."""
        return tuple(each for each in (self._foreign, self._costs.refused) if each)

    def waiting(
        self, evaluation: Evaluation, settings: SteeringKeys, pauses: Callable[[str], Refusal | None]
    ) -> Evaluation:
        """Return *evaluation* with what *pauses* or waits for scale-ins, and choose whose pods get deletion costs."""
        snapshot, plan = evaluation.snapshot, evaluation.plan
        planned = [each.node for each in plan.removals]
        held = {name: why for name in planned if (why := pauses(name)) is not None} | dict(evaluation.held)
        evaluation = msgspec.structs.replace(evaluation, held=held)
        going: Sequence[str] = ()
        if settings.deletion_cost:
            spared = _spared(evaluation)
            going = next_to_go(snapshot, plan, len(snapshot.nodes), spared=spared)
        waits = self._costs.choose(snapshot, planned, going, settings.scale_in_timeout, evaluation.now)
        return msgspec.structs.replace(evaluation, held={**waits, **evaluation.held})

    async def steer(
        self,
        evaluation: Evaluation,
        settings: SteeringKeys,
        allowed: Allowed,
        *,
        label: bool | None = False,
        spared: Collection[str] = (),
        early: bool = False,
    ) -> None:
        """Have the nodes that go next, and their pods, carry what *settings* ask for, and no others.

        *label* says whether nodes that go carry the label, ``None`` that those that do keep it; *spared* ones get
        nothing. While it is too *early* for a claim, nodes only lose what they carry. :meth:`waiting` has chosen the
        pods.
        """
        snapshot, plan = evaluation.snapshot, evaluation.plan
        limit, enabled = settings.candidate_taints, settings.steering != "off"
        spared = (*_spared(evaluation), *spared)
        todo = steer(snapshot, plan, limit, enabled, self._beside(), label=label, spared=spared)
        if early:
            todo = {name: wanted for name, wanted in todo.items() if not (wanted.taint or wanted.label)}
        self._say_foreign(labelled_by_others(snapshot) if label else ())
        self._steered.intersection_update(snapshot.nodes)
        paced = [(name, wanted) for name, wanted in todo.items() if self._marks_pace.lets(name)]
        nodes = {name: snapshot.nodes[name].node for name, _ in paced}
        await self._each(
            [(name, partial(self._mark, name, wanted, allowed, nodes[name])) for name, wanted in paced], allowed
        )
        await self._costs.write(snapshot, allowed)

    def left(self, snapshot: Snapshot) -> bool:
        """Whether a node carries, or may carry, a taint or label of the controller, or a pod a cost that can go."""
        return bool(self._marked(snapshot)) or self._costs.left(snapshot)

    async def clear(self, snapshot: Snapshot, allowed: Allowed) -> None:
        """Remove all soft taints, labels and deletion costs of the controller."""
        names = self._marked(snapshot)
        await self._each([(name, partial(self._mark, name, NEITHER, allowed)) for name in names], allowed)
        await self._costs.clear(snapshot, allowed)

    def _marked(self, snapshot: Snapshot) -> list[str]:
        return sorted(self._steered.union(marked(snapshot, self._beside())))

    async def _mark(self, name: str, wanted: Marks, allowed: Allowed, judged: Node | None = None) -> None:
        """Write *wanted*, on the node as *judged* if its taints, of which a patch sends all, are known well enough."""
        known = self._noted.pop(name, None)
        if known is None and judged is not None and not any(each.key != CANDIDATE for each in judged.taints):
            taints: tuple[WireTaint, ...] = tuple(
                {"key": each.key, "value": each.value, "effect": each.effect} for each in judged.taints
            )
            known = LiveNode(judged, judged.resource_version, taints)
        if known is not None:
            try:
                await self._patch(known, wanted, allowed)
            except Conflict:
                pass  # the node reports its state now and then
            else:
                return
        # The other controllers of nodes end with an uninstall too, and take their marks off the same nodes.
        for last in (False, False, True):
            live = await read_node(self._connection, name)
            if live is None:
                if wanted == NEITHER:
                    self._steered.discard(name)
                return
            try:
                await self._patch(live, wanted, allowed)
            except Conflict:
                if last:
                    raise
            else:
                return

    async def _patch(self, live: LiveNode, wanted: Marks, allowed: Allowed) -> None:
        patch = marks_patch(live, wanted, self._beside())
        if patch is not None:
            if wanted.taint or wanted.label:
                self._steered.add(live.node.name)
            await patch_node(self._connection, live, patch, only_if=allowed)
        if not (wanted.taint or wanted.label):
            self._steered.discard(live.node.name)

    def _say_foreign(self, nodes: Sequence[str]) -> None:
        said = (
            f"Somebody else labelled nodes with {LEAVING}, which stays: {some(nodes)}. Replacements of evicted "
            f"pods keep off them until you remove it: kubectl label node NAME {LEAVING}-"
            if nodes
            else ""
        )
        if said and said != self._foreign:
            self._log.warning(said)
        self._foreign = said

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


def _spared(evaluation: Evaluation) -> list[str]:
    return [name for name, fact in evaluation.facts.items() if fact.pool in evaluation.paused]


FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds between two writes of one node; they double while the node is written again and again."""


class WritePace:
    """Lets a node be written seldom while it is written again and again.

    A configuration that somebody switches on and off, and a policy that takes back what was written, would otherwise
    cost several writes a pass.
    """

    def __init__(self) -> None:
        # When a node was last written, and for how long it was not to be written after that.
        self._last: dict[str, tuple[float, float]] = {}

    def lets(self, node: str) -> bool:
        """Whether *node* may be written now. If so it counts as written."""
        now = monotonic()
        before, pause = self._last.get(node, (now, 0.0))
        if now < before + pause:
            return False
        calm = now >= before + 2 * LONGEST_PAUSE
        self._last[node] = now, FIRST_PAUSE if calm or not pause else min(2 * pause, LONGEST_PAUSE)
        return True
