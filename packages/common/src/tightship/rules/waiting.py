"""What makes a pool, or the whole cluster, wait: nodes added lately, and the cluster's health. Pure.

A pool pauses after a node was added to it; or every pool, if the settings say so. What was added lately is likely to be
needed again soon: loads that rise and fall together do so again and again. So a pool waits after a node was added, even
if the autoscaler has removed that node meanwhile: one node fewer in each trough is one more to add in each peak. Where
the node came soon after a drain, the drain was not worth it, and the pause doubles with each such node in a row.

The history that all controllers share keeps the result of each drain and the additions of each pool. So a restart or a
takeover forgets nothing, and each controller learns from the other's drains too.

Nothing at all is drained while the cluster is unhealthy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from tightship.cluster import NodeView, Snapshot
from tightship.cluster.node_marks import virtual
from tightship.cluster.pools import shown
from tightship.cluster.snapshot import Usage
from tightship.objects import Node, Pod
from tightship.objects.counting import counted, some
from tightship.objects.drain_record import Addition, Ending, Finished, PastDrains, owner_mark
from tightship.objects.reasons import Reason, Refusal
from tightship.objects.times import format_duration
from tightship.rules.nodes import owner_elsewhere
from tightship.scheduler.space import Space

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


class HealthRules(Protocol):
    """What a cluster may show before nothing is drained any more; times are in seconds."""

    @property
    def not_ready_count(self) -> int: ...
    @property
    def not_ready_share(self) -> float: ...
    @property
    def api_failures(self) -> int: ...
    @property
    def stranded_after(self) -> float: ...
    @property
    def stranded_window(self) -> float: ...


def brake(
    snapshot: Snapshot, finished: Sequence[Finished], keys: HealthRules, now: float, api_failures: int
) -> Refusal | None:
    """Return why nothing at all is drained, with all causes in the detail; ``None`` while the cluster is healthy.

    *api_failures* counts passes in a row in which the API server failed.
    """
    causes = [*_not_ready(snapshot, keys), *_stranded(snapshot, finished, keys, now)]
    if api_failures > keys.api_failures:
        failed = counted(api_failures, "pass", "passes")
        causes.append(f"the API server failed {failed} in a row, and at most {keys.api_failures} may fail")
    return Refusal(Reason.CLUSTER_UNHEALTHY, "cluster", "; ".join(causes)) if causes else None


def _not_ready(snapshot: Snapshot, keys: HealthRules) -> list[str]:
    """Nodes on their way out normally stop being Ready, and virtual ones say little: neither side counts them."""

    def counts(node: Node) -> bool:
        return owner_elsewhere(node) is None and virtual(node) is None

    names = [view.name for view in snapshot.nodes.values() if not view.node.ready and counts(view.node)]
    if len(names) <= keys.not_ready_count:
        return []
    nodes = [view.node for view in snapshot.nodes.values() if counts(view.node)]
    if len(names) <= max(keys.not_ready_count, round(keys.not_ready_share * len(nodes), 9)):
        return []
    limit = f"{keys.not_ready_count} or {100 * keys.not_ready_share:g}%"
    nodes_not = counted(len(names), f"of {counted(len(nodes), 'node')} is", f"of {counted(len(nodes), 'node')} are")
    return [f"{nodes_not} not Ready ({some(names)}), at most {limit} may be"]


def _stranded(snapshot: Snapshot, finished: Sequence[Finished], keys: HealthRules, now: float) -> list[str]:
    """Pods that have found no place since the last drain: the next drain would add to them.

    Only pods of controllers whose pods were evicted by drains count: no other pod waits because of us. A DaemonSet's
    pod can run only on its own node, and an autoscaler adds no node for an expendable pod.
    """
    last = max((each.at for each in finished), default=None)
    if last is None or now > last + keys.stranded_window:
        return []
    lately = [each for each in finished if now <= each.at + keys.stranded_window]
    waiting = [
        pod
        for pod in snapshot.unscheduled
        # Creation times are whole seconds.
        if pod.created >= int(last)
        and now - pod.created >= keys.stranded_after
        and not pod.gated
        and not pod.daemon
        and not pod.expendable
        and pod.deletion is None
        and pod.spec.scheduler in snapshot.schedulers
        and _displaced(pod, lately)
    ]
    names = [pod.key for pod in _could_run(snapshot, waiting)]
    if not names:
        return []
    since = format_duration(keys.stranded_after)
    pods = counted(len(names), "pod created since the last drain has", "pods created since the last drain have")
    return [f"{pods} had no node for {since} or longer ({some(names)})"]


def _displaced(pod: Pod, drains: Sequence[Finished]) -> bool:
    """Whether one of *drains* may have evicted a pod of the controller of *pod*."""
    mark = None if pod.owner is None else owner_mark(pod.owner.uid)
    return any(each.displaced is None or mark in each.displaced for each in drains)


def _could_run(snapshot: Snapshot, pods: Sequence[Pod]) -> list[Pod]:
    """Return those of *pods* that some node of the cluster could run if that node were empty.

    A pod that requests what no node has says nothing about the room that drains have left.
    """
    if not pods:
        return []
    empty = {name: NodeView(view.node, (), Usage()) for name, view in snapshot.nodes.items()}
    space = Space(msgspec.structs.replace(snapshot, nodes=empty, unscheduled=()))
    return [pod for pod in pods if space.feasible(space.demand_of(pod)).any()]
