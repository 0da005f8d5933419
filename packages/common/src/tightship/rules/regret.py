"""What a pool learns from drains: a drain was not worth it if a node was added again afterwards. Pure.

What was added lately is likely to be needed again soon: loads that rise and fall together do so again and again. So a
pool also waits after a node was added, even if the autoscaler has removed that node meanwhile: one node fewer in each
trough is one more to add in each peak.

The history that all controllers share keeps the result of each drain and the regret of each pool. So a restart or a
takeover forgets nothing, and each controller learns from the other's drains too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tightship.cluster.pools import shown
from tightship.objects.drain_record import Ending, Finished, PastDrains, Regret
from tightship.objects.durations import format_duration
from tightship.objects.reasons import Reason, Refusal

_REMOVED = frozenset({Ending.HANDED_OVER.value, Ending.NODE_GONE.value})
_NO_DRAINS = frozenset({Ending.NOT_OURS.value})


class RegretRules(Protocol):
    """For how long a pool learns from a drain, and for how long it pauses at most, in seconds."""

    @property
    def regret_window(self) -> float: ...
    @property
    def regret_limit(self) -> float: ...


Added = tuple[float, str, str]
"""When a node was added (seconds since 1970), its pool and its name."""


def learned(history: PastDrains, nodes: Sequence[Added], keys: RegretRules, now: float) -> PastDrains:
    """Return *history* with the results of its drains, as far as the *nodes* that exist at *now* show them.

    An added node regrets at most one drain of its pool: the last earlier one without a known result. A drain that
    removed its node was worth it if no node was added until the window is over.
    """
    if keys.regret_window <= 0:
        return history
    finished, regrets = list(history.finished), dict(history.regrets)
    for at, pool, name in sorted(nodes):
        of_pool = [(place, each) for place, each in enumerate(finished) if each.pool == pool]
        before_it = [(place, each) for place, each in of_pool if _regrets(at, each, keys.regret_window)]
        if any(each.came == name for _, each in before_it):
            continue
        open_ones = [place for place, each in before_it if not (each.came or each.stayed)]
        for place in open_ones[-1:]:
            finished[place] = msgspec.structs.replace(finished[place], came=name)
            before = regrets.get(pool)
            regrets[pool] = Regret(1 if before is None else before.level + 1, at, name)
    for place, each in enumerate(finished):
        if each.came or each.stayed or each.ending not in _REMOVED or now <= each.at + keys.regret_window:
            continue
        finished[place] = msgspec.structs.replace(each, stayed=True)
        before = regrets.pop(each.pool, None)
        if before is not None and before.level > 1:
            regrets[each.pool] = msgspec.structs.replace(before, level=before.level - 1)
    additions = _additions(history, nodes, keys.regret_window, now)
    return msgspec.structs.replace(history, finished=tuple(finished), regrets=regrets, additions=additions)


def _additions(history: PastDrains, nodes: Sequence[Added], window: float, now: float) -> dict[str, tuple[float, str]]:
    """Return by pool the last node that was added within the window. A pool without older nodes has just begun."""
    found = {pool: each for pool, each in history.additions.items() if now - each[0] < window}
    oldest: dict[str, float] = {}
    for at, pool, name in sorted(nodes):
        begun = at - oldest.setdefault(pool, at) <= window
        known = found.get(pool, (0.0, ""))
        if not begun and now - at < window and at > known[0] and name != known[1]:
            # A node's clock may be ahead of ours: what has not happened yet happens now.
            found[pool] = (min(at, now), name)
    return found


def _regrets(at: float, drain: Finished, window: float) -> bool:
    """Whether a node added *at* that time regrets *drain*: it came after the drain began, and soon enough after its
    end.
    """
    began = drain.at if drain.began is None else drain.began
    return drain.ending not in _NO_DRAINS and began <= at <= drain.at + window


def regretted(history: PastDrains, keys: RegretRules, now: float) -> dict[str, Refusal]:
    """Return by pool why nothing in it is drained at *now*: its pause doubles with each regret, and then halves again.

    After the pause one drain at a time shows whether draining is worth it now.
    """
    found: dict[str, Refusal] = {}
    for pool, (at, node) in history.additions.items():
        if at + keys.regret_window > now:
            rest = at + keys.regret_window - now
            since = format_duration(now - at)
            detail = (
                f"node {node} was added to pool {shown(pool)} {since} ago, so its load is likely to need a node again: "
                f"the pool pauses for {format_duration(keys.regret_window)}, {format_duration(rest)} left"
            )
            found[pool] = Refusal(Reason.COOL_DOWN, shown(pool), detail)
    for pool, regret in history.regrets.items() if keys.regret_window > 0 else ():
        length = min(keys.regret_limit, keys.regret_window * 2.0 ** min(regret.level - 1, 30))
        # A node's clock may be ahead of ours: what has not happened yet happens now.
        left = min(regret.at, now) + length - now
        if left > 0:
            ago = format_duration(now - min(regret.at, now))
            times = "" if regret.level == 1 else f", {regret.level} times in a row"
            detail = (
                f"node {regret.node} was added to pool {shown(pool)} {ago} ago, within "
                f"{format_duration(keys.regret_window)} of a drain{times}: the pool pauses for "
                f"{format_duration(length)}, {format_duration(left)} left"
            )
            found[pool] = Refusal(Reason.RECENT_REGRET, shown(pool), detail)
            continue
        last = next((each for each in reversed(history.finished) if each.pool == pool and _removed(each)), None)
        if last is not None and not (last.came or last.stayed) and now <= last.at + keys.regret_window:
            shows = format_duration(last.at + keys.regret_window - now)
            detail = (
                f"node {regret.node} was added to pool {shown(pool)} soon after a drain: whether node "
                f"{last.node} stays away is known in {shows}"
            )
            found[pool] = Refusal(Reason.RECENT_REGRET, shown(pool), detail)
    return found


def _removed(drain: Finished) -> bool:
    return drain.ending in _REMOVED
