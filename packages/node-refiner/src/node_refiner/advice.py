"""The changes of the refiner's settings that advice may name: the threshold and the minimums."""

from __future__ import annotations

from typing import Any

from node_refiner.describing import wire
from node_refiner.excess import is_counted, remains
from node_refiner.judge import RefinerJudge
from node_refiner.settings import KEYS, RefinerSettings
from tightship.app.settings.changes import SettingChanges
from tightship.core.reasons import Reason
from tightship.planning.advice import Change
from tightship.planning.evaluate import Evaluation, Facts
from tightship.planning.facts import NodeFacts
from tightship.planning.plan import Plan


class RefinerChanges(SettingChanges):
    """See :class:`tightship.app.settings.changes.SettingChanges`."""

    settings: RefinerSettings

    def __init__(self, settings: RefinerSettings) -> None:
        super().__init__(settings, RefinerJudge, wire, KEYS)

    def own(self, reason: Reason, fact: NodeFacts, evaluation: Evaluation[Any]) -> Change | None:
        """Return the change of the threshold, or of the minimums."""
        del fact
        if reason is Reason.EXCESS_BELOW_THRESHOLD:
            return self.setting(reason, "excess_nodes_threshold", 0.0, flag="--threshold 0")
        if reason is Reason.MIN_NODES:
            return self._minimums(evaluation.facts, 0, 0)
        return None

    def _minimums(self, facts: Facts, nodes: int, untainted: int) -> Change:
        least = min(nodes, self.settings.minimum_nodes)
        bare = min(untainted, self.settings.minimum_non_tainted_nodes)

        def tighter(plan: Plan) -> Change:
            gone = {removal.node for removal in plan.removals}
            left = [fact.view.node for name, fact in facts.items() if name not in gone]
            return self._minimums(facts, sum(map(remains, left)), sum(map(is_counted, left)))

        def tune(settings: RefinerSettings) -> RefinerSettings:
            return settings.model_copy(update={"minimum_nodes": least, "minimum_non_tainted_nodes": bare})

        flags = []
        if least != self.settings.minimum_nodes:
            flags.append(f"--min-nodes {least}")
        if bare != self.settings.minimum_non_tainted_nodes:
            flags.append(f"--min-non-tainted-nodes {bare}")
        return Change(Reason.MIN_NODES, "the minimums", tune=tune, flags=tuple(flags), tighter=tighter)


__all__ = ["RefinerChanges"]
