"""A history whose clock was ahead of ours: of another leader, or of this one before its clock was set right. Pure."""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec

from hpa_scaler.decide.history import Floor, FloorHistory, Raise, Spike

_Dated = TypeVar("_Dated", Floor, Raise, Spike)


def caught_up(history: FloorHistory, now: float) -> FloorHistory:
    """Return *history* with its last judgement at *now*, if that is in the future, and all else as long before.

    Otherwise what it holds would be held until our clock has caught up, for days if the other one was days ahead.
    """
    if history.evaluated is None or history.evaluated <= now:
        return history
    late = math.floor(history.evaluated - now)

    def moved(each: _Dated) -> _Dated:
        return msgspec.structs.replace(each, at=each.at - late)

    def earlier(at: float | None) -> float | None:
        return None if at is None else at - late

    return msgspec.structs.replace(
        history,
        evaluated=now,
        failing=earlier(history.failing),
        answered=earlier(history.answered),
        incident=earlier(history.incident),
        rolling=earlier(history.rolling),
        falling=earlier(history.falling),
        reset_at=history.reset_at - late,
        floors=tuple(map(moved, history.floors)),
        raises=tuple(map(moved, history.raises)),
        known=tuple(map(moved, history.known)),
        answers=tuple(map(moved, history.answers)),
        look=None if history.look is None else moved(history.look),
        last=None if history.last is None else moved(history.last),
        spike=None if history.spike is None else moved(history.spike),
        met={mark: at - late for mark, at in history.met.items()},
    )
