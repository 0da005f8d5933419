"""What if only this node were drained, now, whatever the gates say? So that its blockers elsewhere are seen as well."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from tightship.core.objects import Pod
from tightship.core.reasons import Reason, Refusal
from tightship.planning.cluster import Budgets, Snapshot
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.plan import Candidate, Placement, Planner


class Alone(Struct, frozen=True):
    """Where each pod (``namespace/name``) could go, and what stands against the others' finding a place."""

    targets: Mapping[str, str]
    refusals: tuple[Refusal, ...]


class DrainAlone:
    """Answers for the nodes of one snapshot. PodDisruptionBudgets are left out: the judgement has told them already."""

    def __init__(self, snapshot: Snapshot, placement: Placement) -> None:
        self._snapshot = msgspec.structs.replace(snapshot, budgets=Budgets(), unreadable=())
        self._placement = placement

    def of(self, name: str, pods: tuple[Pod, ...]) -> Alone:
        """Return what draining just *name* of *pods* would find.

        Pods without a place are set aside, one try after another, so that the places of the others are known too.
        """
        placement = self._placement
        left = {pod.key: pod for pod in pods}
        found: dict[tuple[Reason, str], Refusal] = {}
        while True:
            candidate = Candidate(name=name, pool="", ratio=0.0, evict=tuple(left.values()))
            planner = Planner(self._snapshot, DisruptionLedger(self._snapshot), (candidate,), placement)
            refusals = planner.attempt(candidate)
            for refusal in refusals:
                found.setdefault((refusal.reason, refusal.subject), refusal)
            if not refusals:
                targets = {move.pod.key: move.target for removal in planner.removals for move in removal.moves}
                return Alone(targets, tuple(sorted(found.values())))
            homeless = [refusal.subject for refusal in refusals if refusal.subject in left]
            for key in homeless:
                del left[key]
            if not homeless:
                # Nothing about a single pod: the scheduler's choices, or a pending pod that needs this node.
                if placement == "possible":
                    return Alone({}, tuple(sorted(found.values())))
                placement = "possible"
