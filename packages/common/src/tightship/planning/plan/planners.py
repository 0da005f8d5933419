"""Makes planners over the snapshots of one cluster, and keeps what they share: the space and its compiled rules."""

from __future__ import annotations

from collections.abc import Sequence

from tightship.planning.cluster import Snapshot
from tightship.planning.disruption import DisruptionLedger
from tightship.planning.placement.scoring import Choice, best_fit
from tightship.planning.placement.space import Space
from tightship.planning.plan.going import Going
from tightship.planning.plan.model import Candidate, Placement
from tightship.planning.plan.planner import Planner


class Planners:
    """Makes one planner after another. A new planner ends the one before it, since both plan in the same space.

    From one snapshot to the next, the space follows what has changed. A planner over the same snapshot with the same
    candidates repeats what the one before it has searched, if that one *remembers*.
    """

    def __init__(self) -> None:
        self._last: Planner | None = None
        self._space: Space | None = None
        self._empty_plan: Space | None = None

    def planner(
        self,
        snapshot: Snapshot,
        candidates: Sequence[Candidate],
        placement: Placement,
        *,
        choose: Choice = best_fit,
        round_number: int = 1,
        explain: bool = True,
        remembers: bool = False,
        going: Going = Going(),
    ) -> Planner:
        """Return a planner with nothing planned yet; see :class:`Planner`."""
        ledger, last = DisruptionLedger(snapshot), self._last
        if last is not None and last.began_with(snapshot, candidates, placement, going):
            self._last = last.again(ledger, round_number, choose=choose, explain=explain)
        else:
            self._last = None
            self._space = _at(self._space, snapshot)
            self._last = Planner(
                snapshot,
                ledger,
                candidates,
                placement,
                choose=choose,
                round_number=round_number,
                explain=explain,
                remembers=remembers,
                space=self._space,
                without_plan=self._without_plan,
                going=going,
            )
        return self._last

    def rest(self) -> None:
        """Forget the last planner. The spaces stay for the next snapshot."""
        self._last = None

    def _without_plan(self, snapshot: Snapshot) -> Space:
        self._empty_plan = _at(self._empty_plan, snapshot)
        return self._empty_plan


def _at(space: Space | None, snapshot: Snapshot) -> Space:
    return space if space is not None and space.follow(snapshot) else Space(snapshot)
