"""The refiner's gates: they end a plan where the outlook does, and explain themselves for a single node. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from node_refiner.excess import is_counted, remains
from node_refiner.ordering import Scoring, strategy_of
from node_refiner.outlook import Outlook, ended, minimums_check, plan_size_check, pool_of, threshold_check
from node_refiner.settings import RefinerSettings
from tightship.core.counting import counted
from tightship.core.drain_record import Phase
from tightship.core.durations import format_duration
from tightship.core.objects import Node
from tightship.core.reasons import Refusal
from tightship.core.times import rfc3339
from tightship.planning.checks import Check, remark
from tightship.planning.claim_budget import nodes_out
from tightship.planning.cluster import Snapshot
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.evaluate import Facts
from tightship.planning.facts import candidates_of
from tightship.planning.group_size import GroupSizes
from tightship.planning.nodes import drain_record
from tightship.planning.plan import Candidate, Going, Planner
from tightship.planning.plan.going import CANDIDATE

CONTROLLER = "node-refiner"
"""Our name in annotations, taints, claims and metrics."""


class RefinerGates:
    """The gates over one set of facts; see :class:`tightship.planning.evaluate.ExplainedGates`."""

    def __init__(  # noqa: PLR0917
        self,
        settings: RefinerSettings,
        ground: Snapshot,
        facts: Facts,
        outlooks: Mapping[str, Outlook],
        now: float,
        going: Going | None = None,
    ) -> None:
        self.outlook = outlooks[""]
        self.outlooks = outlooks
        self.going = going
        self._settings = settings
        self._ground = ground
        self._facts = facts
        self._now = now
        self._places: dict[str, int] | None = None
        self._groups = GroupSizes(facts)

    def refuses(self, candidate: Candidate, planner: Planner) -> list[Refusal]:
        """Return the refusals that end the plan before the turn of *candidate*, and the candidate's other refusals.

        The free plan refused a candidate without a turn in a state that the real plan may never reach. So once the real
        plan has ended, such a candidate gets another attempt on the resulting cluster.
        """
        ahead = self._ahead(candidate.name)
        turn = ahead.turns.get(candidate.name)
        if not ahead.ends or (self._gone(ahead, planner) if turn is None else turn.number) < ahead.goes:
            return self._groups.refuses(candidate, planner)
        found = ended(candidate.name, ahead, self._settings)
        if turn is None or turn.later:
            found += planner.attempt(candidate, keep=False)
        return sorted({*found, *self._groups.refuses(candidate, planner)})

    def checks(self, name: str) -> tuple[Check, ...]:
        """Return the gates as they stand at the node's turn, or before the plan if the node has no turn."""
        gates = (self._excess(name), self._minimums(name), plan_size_check(self._before(name), self._settings))
        return (
            self._order(name),
            *(self._as_ended(each, name) for each in gates if each is not None),
            *self._group(name),
            self._pauses(),
            *_marks(self._facts[name].view.node),
        )

    def _group(self, name: str) -> tuple[Check, ...]:
        check = self._groups.check(name)
        return () if check is None else (check,)

    def _order(self, name: str) -> Check:
        fact, settings = self._facts[name], self._settings
        cpu, memory = fact.cpu_ratio, fact.memory_ratio
        score = (
            f"score {Scoring(settings).of(cpu, memory):.3f} ({settings.cpu_weight:g} x {cpu:.0%} CPU + "
            f"{settings.memory_weight:g} x {memory:.0%} memory)"
        )
        places = self._order_of_candidates()
        if name not in places:
            return remark("order", f"{score}; no candidate")
        return remark("order", f"{score}; candidate {places[name]} of {len(places)} by {settings.candidate_order}")

    def _order_of_candidates(self) -> dict[str, int]:
        if self._places is None:
            snapshot, strategy = self._ground, strategy_of(self._settings)
            planner = Planner(snapshot, DisruptionLedger(snapshot), candidates_of(self._facts), "likely")
            order = sorted((strategy.key(planner, each), name) for name, each in planner.candidates.items())
            self._places = {name: number for number, (_, name) in enumerate(order, 1)}
        return self._places

    def _excess(self, name: str) -> Check:
        ahead = self._ahead(name)
        turn = ahead.turns.get(name)
        excess = ahead.counted.excess(self._facts[name].view.node) if turn is None else turn.excess
        return threshold_check(excess, len(ahead.turns) - self._before(name), self._settings)

    def _minimums(self, name: str) -> Check:
        ahead, before, node = self._ahead(name), self._before(name), self._facts[name].view.node
        nodes, untainted = ahead.remaining - before - remains(node), self.outlook.counted.many
        if ahead is self.outlook:
            untainted -= before + is_counted(node)
        return minimums_check(name, nodes, untainted, self._settings)

    def _as_ended(self, check: Check, name: str) -> Check:
        """Close the gate of a node that could go if its reason ends the plan at the same or an earlier turn."""
        ahead = self._ahead(name)
        turn = ahead.turns.get(name)
        if turn is None:
            return check
        is_open = all(each.reason is not check.reason for each in ahead.reached(turn.number))
        return Check(check.gate, check.reason, is_open, check.detail)

    def _before(self, name: str) -> int:
        """Return how many nodes could go before node *name*, 0 if *name* could not go."""
        turn = self._ahead(name).turns.get(name)
        return 0 if turn is None else turn.number

    def _ahead(self, name: str) -> Outlook:
        """Return the outlook of the dedicated pool of node *name*, or of all nodes that have none."""
        if len(self.outlooks) == 1:
            return self.outlook
        return self.outlooks.get(pool_of(self._facts[name], self._settings), self.outlook)

    def _gone(self, ahead: Outlook, planner: Planner) -> int:
        """Return how many of the removals of *planner* count for *ahead*."""
        if len(self.outlooks) == 1:
            return len(planner.removals)
        return sum(self._ahead(each.node) is ahead for each in planner.removals)

    def _pauses(self) -> Check:
        newest = max((fact.view.node.created for fact in self._facts.values()), default=0)
        settings, age = self._settings, format_duration(self._now - newest)
        added, gap = format_duration(settings.time_since_last_addition), format_duration(settings.time_gap)
        out = f"at most {settings.cluster_budget} out at once ({counted(len(nodes_out(self._facts)), 'is', 'are')} now)"
        detail = f"while running: {added} after a node was added (the newest is {age} old), {gap} after a drain; {out}"
        return remark("pauses", detail)


def _marks(node: Node) -> tuple[Check, ...]:
    """Return a sibling's notes on *node*, which are no obstacle."""
    found: list[Check] = []
    record = drain_record(node)
    since = record.entered(Phase.MARKED) if record is not None and not record.owns_node else None
    if record is not None and since is not None:
        detail = f"marked underutilized by {record.controller or 'a sibling'} since {rfc3339(since)}; no obstacle"
        found.append(remark("mark", detail))
    steering = [(taint.value or "").partition(".")[0] for taint in node.taints if taint.key == CANDIDATE]
    if steering and steering[0] != CONTROLLER:
        found.append(remark("steering", f"{steering[0] or 'a sibling'} would take it soon too; no obstacle"))
    return tuple(found)
