"""A pool pauses after a node was added to it; or every pool, if the settings say so. Pure.

What was added lately is likely to be needed again soon: loads that rise and fall together do so again and again. So a
pool waits after a node was added, even if the autoscaler has removed that node meanwhile: one node fewer in each trough
is one more to add in each peak. Where the node came soon after a drain, the drain was not worth it, and the pause
doubles with each such node in a row.

The history that all controllers share keeps the result of each drain and the additions of each pool. So a restart or a
takeover forgets nothing, and each controller learns from the other's drains too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from tightship.cluster.pools import shown
from tightship.objects.drain_record import Addition, Ending, Finished, PastDrains
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration

_REMOVED = frozenset({Ending.HANDED_OVER.value, Ending.NODE_GONE.value})
_NO_DRAINS = frozenset({Ending.NOT_OURS.value})

EVERY_POOL = "every pool pauses"
"""Who pauses where all do."""


class Pause(Struct, frozen=True):
    """Nothing of *subject*, a pool or the cluster, is drained until *until* (seconds since 1970), because of
    *detail*.
    """

    until: float
    subject: str
    detail: str

    @property
    def refusal(self) -> Refusal:
        """The pause as a refusal."""
        return Refusal(Reason.COOL_DOWN, self.subject, self.detail)


def pause(
    subject: str, what: str, at: float, length: float, now: float, *, who: str, key: str = "", why: str = ""
) -> Pause | None:
    """Return the pause of *length* seconds after *what* happened *at* that time, ``None`` if it is over *now*.

    *who* pauses, as half a sentence; *key* sets the length, and *why* says why it lasts that long.
    """
    at = min(at, now)  # a node's clock may be ahead of ours: what has not happened yet happens now
    if at + length <= now:
        return None
    ago, left = format_duration(now - at), format_duration(at + length - now)
    set_by = f" ({key})" if key else ""
    detail = f"{what} {ago} ago{why}: {who} for {format_duration(length)}{set_by}, {left} left"
    return Pause(at + length, subject, detail)


def longest(*pauses: Pause | None) -> Pause | None:
    """Return the one of *pauses* that lasts longest, the first of equals; ``None`` without any."""
    return max((each for each in pauses if each is not None), key=lambda each: each.until, default=None)


class AdditionRules(Protocol):
    """For how long a pool learns from a drain, and for how long it pauses at most, in seconds."""

    @property
    def regret_window(self) -> float: ...
    @property
    def regret_limit(self) -> float: ...


Added = tuple[float, str, str]
"""When a node was added (seconds since 1970), its pool and its name."""


def learned(history: PastDrains, nodes: Sequence[Added], keys: AdditionRules, now: float) -> PastDrains:
    """Return *history* with the results of its drains, as far as the *nodes* that exist at *now* show them.

    An added node regrets at most one drain of its pool: the last earlier one without a known result. A drain that
    removed its node was worth it if no node was added until the window is over.
    """
    if keys.regret_window <= 0:
        return history
    finished, additions = list(history.finished), _latest(history, nodes, keys.regret_window, now)
    for at, pool, name in sorted(nodes):
        of_pool = [(place, each) for place, each in enumerate(finished) if each.pool == pool]
        before_it = [(place, each) for place, each in of_pool if _regrets(at, each, keys.regret_window)]
        if any(each.came == name for _, each in before_it):
            continue
        open_ones = [place for place, each in before_it if not (each.came or each.stayed)]
        for place in open_ones[-1:]:
            finished[place] = msgspec.structs.replace(finished[place], came=name)
            before = additions.get(pool, Addition())
            additions[pool] = msgspec.structs.replace(before, level=before.level + 1, regretted_at=at, regretted=name)
    for place, each in enumerate(finished):
        if each.came or each.stayed or each.ending not in _REMOVED or now <= each.at + keys.regret_window:
            continue
        finished[place] = msgspec.structs.replace(each, stayed=True)
        before = additions.get(each.pool, Addition())
        if before.level > 1:
            additions[each.pool] = msgspec.structs.replace(before, level=before.level - 1)
        elif before.level:
            additions[each.pool] = Addition(before.at, before.node)
    kept = {pool: each for pool, each in additions.items() if each.level or each.node}
    return msgspec.structs.replace(history, finished=tuple(finished), additions=kept)


def _latest(history: PastDrains, nodes: Sequence[Added], window: float, now: float) -> dict[str, Addition]:
    """Return the additions of each pool, with the last node that was added within the window. A pool without older
    nodes has just begun.
    """
    found = {
        pool: each if now - each.at < window else msgspec.structs.replace(each, at=0.0, node="")
        for pool, each in history.additions.items()
    }
    oldest: dict[str, float] = {}
    for at, pool, name in sorted(nodes):
        begun = at - oldest.setdefault(pool, at) <= window
        known = found.get(pool, Addition())
        if not begun and now - at < window and at > known.at and name != known.node:
            # A node's clock may be ahead of ours: what has not happened yet happens now.
            found[pool] = msgspec.structs.replace(known, at=min(at, now), node=name)
    return found


def _regrets(at: float, drain: Finished, window: float) -> bool:
    """Whether a node added *at* that time regrets *drain*: it came after the drain began, and soon enough after its
    end.
    """
    began = drain.at if drain.began is None else drain.began
    return drain.ending not in _NO_DRAINS and began <= at <= drain.at + window


def after_additions(history: PastDrains, keys: AdditionRules, now: float) -> dict[str, Pause]:
    """Return by pool what pauses it at *now*: its pause doubles with each drain that it regrets, and then halves again.

    After the pause one drain at a time shows whether draining is worth it now.
    """
    window, found = keys.regret_window, dict[str, Pause]()
    for pool, each in history.additions.items() if window > 0 else ():
        who, to = "the pool pauses", f"was added to pool {shown(pool)}"
        likely = ", so its load is likely to need a node again"
        added = each.node and pause(shown(pool), f"node {each.node} {to}", each.at, window, now, who=who, why=likely)
        times = "" if each.level == 1 else f", {each.level} times in a row"
        after = f", within {format_duration(window)} of a drain{times}"
        length = min(keys.regret_limit, window * 2.0 ** min(each.level - 1, 30))
        came = f"node {each.regretted} {to}"
        again = each.level and pause(shown(pool), came, each.regretted_at, length, now, who=who, why=after)
        tries = _tries(history, pool, window, now, came) if each.level and not again else None
        if held := longest(again or None, tries, added or None):
            found[pool] = held
    return found


def _tries(history: PastDrains, pool: str, window: float, now: float, came: str) -> Pause | None:
    """Return the pause until it is known whether the last drain of *pool* was worth it."""
    last = next((each for each in reversed(history.finished) if each.pool == pool and _removed(each)), None)
    if last is None or last.came or last.stayed or now > last.at + window:
        return None
    shows = format_duration(last.at + window - now)
    detail = f"{came} soon after a drain: whether node {last.node} stays away is known in {shows}"
    return Pause(last.at + window, shown(pool), detail)


def newest(nodes: Sequence[Added]) -> dict[str, Added]:
    """Return by pool the node that was added last, as evidence of a scale-up; of equals the last by name."""
    return {each[1]: each for each in sorted(nodes, key=lambda each: (each[0], each[2]))}


def _removed(drain: Finished) -> bool:
    return drain.ending in _REMOVED
