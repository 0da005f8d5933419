"""The changes of the refiner's settings that advice may name: the threshold and the minimums."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from node_refiner.excess import is_counted, remains
from node_refiner.judge import RefinerGates, RefinerJudge
from node_refiner.outlook import Outlook
from node_refiner.settings import RefinerSettings
from tightship.objects.reasons import Reason
from tightship.planning.changes import Change
from tightship.planning.evaluate import Evaluation, Facts
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Plan
from tightship.process.settings.changes import SettingChanges


class RefinerChanges(SettingChanges):
    """See :class:`tightship.process.settings.changes.SettingChanges`."""

    settings: RefinerSettings

    def __init__(self, settings: RefinerSettings, given: Collection[str] = ()) -> None:
        super().__init__(settings, RefinerJudge, given)

    def own(self, reason: Reason, fact: NodeFacts, evaluation: Evaluation) -> Change | None:
        """Return the change of the threshold, or of the minimums."""
        del fact
        assert isinstance(evaluation.gates, RefinerGates)
        ahead = evaluation.gates.outlook
        if reason is Reason.EXCESS_BELOW_THRESHOLD:
            return self._threshold(ahead, 0.0)
        if reason is Reason.MIN_NODES:
            return self._minimums(ahead, evaluation.facts, 0, 0)
        return None

    def _threshold(self, ahead: Outlook, threshold: float) -> Change:
        def reached(names: Iterable[str]) -> float:
            # Rounded down, because the shown threshold must let the nodes through.
            turns = [ahead.turns.get(name) for name in names]
            return min((0.0 if turn is None else math.floor(turn.reached * 100) / 100 for turn in turns), default=0.0)

        return self.setting(
            Reason.EXCESS_BELOW_THRESHOLD,
            "excess_nodes_threshold",
            threshold,
            flag=f"--threshold {threshold:g}",
            tighter=lambda plan: (self._threshold(ahead, reached(each.node for each in plan.removals)),),
            only=lambda fact: self._threshold(ahead, max(0.0, reached([fact.view.name]))),
        )

    def _minimums(self, ahead: Outlook, facts: Facts, nodes: int, untainted: int) -> Change:
        least = min(nodes, self.settings.minimum_nodes)
        bare = min(untainted, self.settings.minimum_non_tainted_nodes)

        def tighter(plan: Plan) -> Sequence[Change]:
            gone = {removal.node for removal in plan.removals}
            left = [fact.view.node for name, fact in facts.items() if name not in gone]
            return (self._minimums(ahead, facts, sum(map(remains, left)), sum(map(is_counted, left))),)

        def only(fact: NodeFacts) -> Change:
            turn = ahead.turns.get(fact.view.name)
            before = None if turn is None else turn.number + 1
            if before is None:
                return self._minimums(ahead, facts, nodes, untainted)
            return self._minimums(ahead, facts, max(0, ahead.remaining - before), max(0, ahead.counted.many - before))

        def tune(settings: RefinerSettings) -> RefinerSettings:
            return settings.model_copy(update={"minimum_nodes": least, "minimum_non_tainted_nodes": bare})

        flags = []
        if least != self.settings.minimum_nodes:
            flags.append(f"--min-nodes {least}")
        if bare != self.settings.minimum_non_tainted_nodes:
            flags.append(f"--min-non-tainted-nodes {bare}")
        return Change(Reason.MIN_NODES, "the minimums", tune=tune, flags=tuple(flags), tighter=tighter, only=only)
