"""The refiner's gates for one node, open ones too, each with its numbers; and what else it knows of the node."""

from __future__ import annotations

from collections.abc import Mapping

from node_refiner.facts import NodeFacts
from node_refiner.ordering import Keys
from node_refiner.outlook import Outlook, below_minimums, below_threshold, figures
from node_refiner.policy import CONTROLLER
from node_refiner.settings import RefinerSettings
from tightship.core.counting import counted
from tightship.core.drain_record import Phase
from tightship.core.durations import format_duration
from tightship.core.objects import Node
from tightship.core.reasons import Reason
from tightship.core.times import rfc3339
from tightship.nodes.soft_taints import CANDIDATE
from tightship.planning.cluster import Snapshot
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.facts import candidates_of
from tightship.planning.nodes import drain_record
from tightship.planning.plan import Planner
from tightship.report import GateCheck


class GateChecks:
    """Looks at the gates as they stand when a node's turn comes, or, for one that could not go, before the plan."""

    def __init__(
        self,
        settings: RefinerSettings,
        snapshot: Snapshot,
        facts: Mapping[str, NodeFacts],
        outlook: Outlook,
        now: float,
    ) -> None:
        self._settings = settings
        self._facts = facts
        self._outlook = outlook
        self._now = now
        self._snapshot = snapshot
        self._places: dict[str, int] | None = None

    def of(self, name: str) -> tuple[GateCheck, ...]:
        """Return the gates of node *name*, and what is only told: those without a reason."""
        return (
            self._order(name),
            self._excess(name),
            self._minimums(name),
            *self._plan_size(name),
            self._pauses(),
            *_marks(self._facts[name].view.node),
        )

    def _order(self, name: str) -> GateCheck:
        fact, settings = self._facts[name], self._settings
        score = (
            f"score {fact.score:.3f} ({settings.cpu_weight:g} x {fact.cpu_ratio:.0%} CPU + "
            f"{settings.memory_weight:g} x {fact.memory_ratio:.0%} memory)"
        )
        places = self._order_of_candidates()
        if name not in places:
            return _told("order", f"{score}; no candidate")
        return _told("order", f"{score}; candidate {places[name]} of {len(places)} by {settings.candidate_order}")

    def _order_of_candidates(self) -> dict[str, int]:
        """The places of the candidates before anything is planned."""
        if self._places is None:
            snapshot, keys = self._snapshot, Keys(self._settings)
            planner = Planner(snapshot, DisruptionLedger(snapshot), candidates_of(self._facts), "likely")
            order = sorted((keys.of(planner, each), name) for name, each in planner.candidates.items())
            self._places = {name: number for number, (_, name) in enumerate(order, 1)}
        return self._places

    def _excess(self, name: str) -> GateCheck:
        ahead, turn = self._outlook, self._outlook.turns.get(name)
        threshold = self._settings.excess_nodes_threshold
        excess = ahead.counted.excess(self._facts[name].view.node) if turn is None else turn.excess
        could_go = len(ahead.turns) - self._before(name)
        passed = below_threshold(excess, could_go, self._settings) is None
        when = "at its turn " if self._before(name) else ""
        detail = f"{when}the excess is {figures(excess)}, {could_go} could really go; the threshold is {threshold:g}"
        return self._check("excess", name, Reason.EXCESS_BELOW_THRESHOLD, passed, detail)

    def _minimums(self, name: str) -> GateCheck:
        ahead, before, fact, settings = self._outlook, self._before(name), self._facts[name], self._settings
        nodes, untainted = ahead.remaining - before - fact.remains, ahead.counted.many - before - fact.counted
        passed = below_minimums(name, nodes, untainted, settings) is None
        detail = (
            f"{counted(nodes, 'node')} would be left, minimum_nodes is {settings.minimum_nodes}; "
            f"{counted(untainted, 'untainted node')} would be left, "
            f"minimum_non_tainted_nodes is {settings.minimum_non_tainted_nodes}"
        )
        return self._check("minimums", name, Reason.MIN_NODES, passed, detail)

    def _plan_size(self, name: str) -> tuple[GateCheck, ...]:
        allowed = self._settings.max_nodes
        if allowed is None:
            return ()
        passed, detail = self._before(name) < allowed, f"the plan stops after {counted(allowed, 'node')}"
        return (self._check("plan size", name, Reason.MAX_NODES_REACHED, passed, detail),)

    def _before(self, name: str) -> int:
        """Return how many nodes could go before node *name*, 0 where it could not itself."""
        turn = self._outlook.turns.get(name)
        return 0 if turn is None else turn.number

    def _check(self, gate: str, name: str, reason: Reason, passed: bool, detail: str) -> GateCheck:
        """Of a node that could go the plan says whether the gate is closed: it may be so since an earlier turn."""
        turn = self._outlook.turns.get(name)
        if turn is not None:
            passed = all(each.reason is not reason for each in self._outlook.reached(turn.number))
        return GateCheck(gate, reason, passed, detail)

    def _pauses(self) -> GateCheck:
        newest = max((fact.view.node.created for fact in self._facts.values()), default=0)
        settings, age = self._settings, format_duration(self._now - newest)
        added, gap = format_duration(settings.time_since_last_addition), format_duration(settings.time_gap)
        detail = f"while running: {added} after a node was added (the newest is {age} old), {gap} after a drain"
        return _told("pauses", detail)


def _marks(node: Node) -> tuple[GateCheck, ...]:
    """What a sibling has written on *node*, which keeps nobody from it."""
    found: list[GateCheck] = []
    record = drain_record(node)
    since = record.entered(Phase.MARKED) if record is not None and not record.owns_node else None
    if record is not None and since is not None:
        detail = f"marked underutilized by {record.controller or 'a sibling'} since {rfc3339(since)}; no obstacle"
        found.append(_told("mark", detail))
    steering = [taint.value for taint in node.taints if taint.key == CANDIDATE]
    if steering and steering[0] != CONTROLLER:
        found.append(_told("steering", f"{steering[0] or 'a sibling'} would take it soon too; no obstacle"))
    return tuple(found)


def _told(name: str, detail: str) -> GateCheck:
    return GateCheck(name, "", True, detail)
