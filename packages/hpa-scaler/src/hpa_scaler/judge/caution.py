"""What the guards cost while the controller runs, beside a floor that waits for nothing. Pure.

Nobody knows how many replicas an HPA would keep under a lower floor, so this is an upper limit: where the replicas
stand on the floor, all above the lower floor counts. While answers are missing or doubtful, the last good ones count.
:mod:`~hpa_scaler.backtest.replay` knows what came, and compares replicas.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from hpa_scaler.judge.decision import DOUBTS, GUARDS, FloorDecision, Guard, guard_of
from hpa_scaler.judge.floors import QueryTerm, unguarded
from hpa_scaler.judge.judge import Cycle
from tightship.objects.reasons import Reason


class _Free(Struct):
    """The *floor* of one HPA without guards, its last good *terms*, and the *guard* that last kept the real floor."""

    floor: int
    terms: tuple[QueryTerm, ...]
    guard: Guard = "other"


class CautionLedger:
    """Adds up what the guards cost, in replica-seconds."""

    def __init__(self) -> None:
        self.spent: dict[Guard, float] = dict.fromkeys(GUARDS, 0.0)
        self.replicas = 0.0
        """The replica-seconds of all judged HPAs."""
        self._free: dict[str, _Free] = {}
        self._last: float | None = None

    def note(self, cycle: Cycle, now: float, longest: float) -> Mapping[Guard, float]:
        """Add the time since the last cycle, at most *longest* seconds, as *cycle* found it; return what was added."""
        seconds = 0.0 if self._last is None else min(longest, max(0.0, now - self._last))
        self._last = now
        added: dict[Guard, float] = dict.fromkeys(GUARDS, 0.0)
        before, self._free = self._free, {}
        for decision in cycle.decisions:
            if decision.inputs is None:
                continue
            running = decision.subject.hpa.current_replicas or decision.minimum
            free = before.get(decision.uid) or _Free(decision.minimum, ())
            if running <= decision.minimum:
                added[free.guard] += max(0, running - free.floor) * seconds
            self.replicas += running * seconds
            self._free[decision.uid] = _next(free, decision, running)
        for guard, each in added.items():
            self.spent[guard] += each
        return added


def _next(free: _Free, decision: FloorDecision, running: int) -> _Free:
    assert decision.inputs is not None
    known = all(each.value is not None for each in decision.terms) and DOUBTS.isdisjoint(decision.reasons)
    terms = decision.terms if known else free.terms
    if len(terms) != len(decision.terms):
        return _Free(decision.minimum, ())
    replicas = running if running > decision.minimum else min(running, free.floor)
    # A dry run's floor stays as it is, and costs nothing.
    target = decision.minimum if decision.dry_run else decision.target
    floor = unguarded(msgspec.structs.replace(decision.inputs, terms=terms), free.floor, replicas)
    ahead = Reason.FOLLOWS_FORECAST in decision.reasons
    kept = ahead or (decision.solution is not None and target > decision.solution.wanted)
    return _Free(min(floor, target), terms, guard_of(decision) if kept else free.guard)
