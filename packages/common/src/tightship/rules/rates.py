"""How many drains may begin, and how many pods they may evict, in an hour and in a day: a rate is a limit. Pure.

A budget limits how many nodes are out at once, and says nothing of how many go in a day (karpenter#2909).
Hours and days slide: nothing is free again at a border of the clock. What all controllers have begun is kept beside
their claims (:mod:`tightship.draining.begun`). A drain counts from its claim, with the pods that it would evict then.

A workload rests between evictions of its pods, whichever drains evict them: no two drains evict its pods at once, and a
drain with several of them waits in between.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, chain

from msgspec import Struct

from tightship.cluster import Snapshot
from tightship.objects import Pod
from tightship.objects.counting import counted
from tightship.objects.drain_record import Begun, Spent, owner_mark
from tightship.objects.reasons import Check, Reason, Refusal, remark
from tightship.objects.times import format_duration, rfc3339
from tightship.rules.limits import CLUSTER

HOUR, DAY = 3600.0, 86400.0

SKEW = 10.0
"""Seconds by which a window is longer, since clocks of replicas differ: two that are 5 s off, one each way."""

SHOWN = 3
"""Most workloads whose last evictions are shown of a node that may go."""

UNREADABLE_FIX = "remove that annotation of the claims' Lease, so that counting begins anew"


class Rates(Struct, frozen=True, kw_only=True):
    """Most nodes whose drains may begin, and most pods that they may evict, in an hour and in a day; 0 is no limit.

    The rates apply to *of_pool*, or to the cluster if that is ``None``. *workload_pause* seconds go by between two
    evictions of one workload's pods, and the replacements have been Ready for *min_stable_time*; a drain waits for that
    for *node_timeout* in all.
    """

    of_pool: str | None = None
    nodes_per_hour: int = 0
    nodes_per_day: int = 0
    evictions_per_hour: int = 0
    evictions_per_day: int = 0
    workload_pause: float = 0.0
    min_stable_time: float = 0.0
    workload_evictions_per_day: int = 0
    node_timeout: float = 0.0

    @property
    def limited(self) -> bool:
        """Whether there is any rate."""
        of_nodes = self.nodes_per_hour or self.nodes_per_day or self.evictions_per_hour or self.evictions_per_day
        return bool(of_nodes or self.rest or self.workload_evictions_per_day)

    @property
    def rest(self) -> float:
        """Least seconds between two evictions of one workload's pods."""
        return max(self.workload_pause, self.min_stable_time)


def workload_of(pod: Pod) -> str:
    """Return the workload of *pod* for people: a ReplicaSet's is its Deployment; empty without controller."""
    owner, release = pod.owner, pod.template.labels.get("pod-template-hash")
    if owner is None:
        return ""
    if owner.kind == "ReplicaSet" and release and owner.name.endswith(f"-{release}"):
        return f"Deployment {pod.namespace}/{owner.name.removesuffix(f'-{release}')}"
    return f"{owner.kind} {pod.namespace}/{owner.name}"


def marks_of(pods: Iterable[Pod]) -> dict[str, int]:
    """Return how many of *pods* each workload has, by the mark under which the Lease counts its evictions."""
    return {owner_mark(name): many for name, many in Counter(map(workload_of, pods)).items() if name}


def newcomers(snapshot: Snapshot, now: float) -> Mapping[str, Sequence[tuple[float, float]]]:
    """Return the pods of *snapshot* by workload that may replace one evicted in the last day; see :class:`Begun`."""
    found = defaultdict[str, list[tuple[float, float]]](list)
    for pod in chain(snapshot.unscheduled, *(view.pods for view in snapshot.nodes.values())):
        if pod.created > now - DAY and not pod.finished and pod.deletion is None and (name := workload_of(pod)):
            since = pod.created if pod.ready_since is None else pod.ready_since
            found[name].append((pod.created, since if pod.ready else math.inf))
    return found


def stable_at(young: Iterable[tuple[float, float]], last: float, least: float) -> float:
    """Return when all pods of a workload made since its *last* eviction have been Ready for *least* seconds.

    Infinity stands for one that isn't Ready. *young* are the workload's, as in :class:`Begun`.
    """
    return max([last, *(ready for created, ready in young if created >= last - SKEW)]) + least if least else last


def rate_checks(rates: Sequence[Rates], begun: Begun, pods: Sequence[Pod]) -> Iterator[Check]:
    """Yield what *rates* say to a drain that begins now and evicts *pods*, after what has *begun*."""
    for each in rates:
        yield from _checks(each, begun, len(pods))
        if each.rest or each.workload_evictions_per_day:
            yield from (*crowded(each, pods), *_rest(each, begun, pods))


def crowded(rates: Rates, pods: Sequence[Pod]) -> Iterator[Check]:
    """Yield whether the pauses of a drain that evicts *pods* fit into its time, if there are any."""
    [(name, many)] = Counter(filter(None, map(workload_of, pods))).most_common(1) or [("", 0)]
    if many < 2:
        return
    waits = (many - 1) * rates.rest
    pauses = f"{counted(many - 1, 'pause')} of {format_duration(rates.rest)}"
    detail = f"has {counted(many, 'pod')} of {name}: {pauses}, of at most {format_duration(rates.node_timeout)} in all"
    fix = "lower workloadPause or minStableTime, raise nodeDrainTimeout, or spread the workload's pods"
    yield Check("workloads on it", Reason.RATE_LIMITED, waits <= rates.node_timeout, detail, fix)


def _rest(rates: Rates, begun: Begun, pods: Sequence[Pod]) -> Iterator[Check]:
    gate, most = "workloads' rest", rates.workload_evictions_per_day
    if problem := _problem(begun):
        yield Check(gate, Reason.RATE_LIMITED, False, f"nobody knows it: {problem}", UNREADABLE_FIX)
        return
    closed, told = [], []
    for name, takes in Counter(filter(None, map(workload_of, pods))).items():
        found = [each for each in begun.evicted(owner_mark(name)) if each[0] > begun.now - DAY - SKEW]
        last, many = max(found, default=(-math.inf, 0))[0], sum(each[1] for each in found)
        until = max(last + rates.rest + SKEW, stable_at(begun.newcomers.get(name, ()), last, rates.min_stable_time))
        if found and rates.rest and until > begun.now:
            if last == math.inf:
                when = "a drain under way evicts its pods"
            elif until == math.inf:
                when = f"{_ago(last, begun)}, and a pod made since isn't Ready"
            else:
                when = f"{_ago(last, begun)}, {_next(until, begun)}"
            closed.append((until, f"{name}: {when}", "wait, or lower workloadPause or minStableTime"))
        elif most and many + takes > most:
            detail = f"{name}: {many} of {most} evictions in a day, {takes} on the node"
            closed.append((begun.now, detail, "wait, or raise workloadEvictionsPerDay"))
        elif found:
            told.append((last, f"{name}: {_ago(last, begun)}, {many} in a day"))
    if closed:
        _, detail, fix = max(closed)
        yield Check(gate, Reason.RATE_LIMITED, False, detail, fix)
    else:
        yield from (remark(gate, text) for _, text in sorted(told, reverse=True)[:SHOWN])


def _problem(begun: Begun) -> str:
    """Return why nobody knows what has begun: counts that nobody can read, or that somebody has dated ahead by hand."""
    times = [each.at for each in begun.spent]
    times += [at for each in begun.workloads.values() for at, _ in each if at < math.inf]
    ahead = max(times, default=0.0)
    odd = (
        f"annotation tightship.dev/begun or tightship.dev/evicted-workloads has {rfc3339(ahead)}, which is to come"
        if ahead > begun.now + HOUR
        else ""
    )
    return begun.problem or odd


def _ago(last: float, begun: Begun) -> str:
    return f"last eviction {format_duration(max(0.0, begun.now - last))} ago"


def _next(at: float, begun: Begun) -> str:
    clock = datetime.fromtimestamp(int(at), UTC).strftime("%H:%M")
    return f"the next at {clock} UTC, in {format_duration(max(0.0, at - begun.now))}"


def _checks(rates: Rates, begun: Begun, evicts: int) -> Iterator[Check]:
    pool, problem = rates.of_pool, _problem(begun)
    kind = CLUSTER if pool is None else f"pool {pool or '(none)'}"
    gate = "cluster's rate" if pool is None else "pool's rate"
    for what, per, most, takes in (
        ("nodes", "Hour", rates.nodes_per_hour, 1),
        ("nodes", "Day", rates.nodes_per_day, 1),
        ("evictions", "Hour", rates.evictions_per_hour, evicts),
        ("evictions", "Day", rates.evictions_per_day, evicts),
    ):
        span, within = (HOUR, "in an hour") if per == "Hour" else (DAY, "in a day")
        if not (most and takes):
            continue
        if problem:
            detail = f"nobody knows {kind}'s {what} {within}: {problem}"
            yield Check(gate, Reason.RATE_LIMITED, False, detail, UNREADABLE_FIX)
            continue
        counts = [each for each in begun.spent if pool is None or each.pool in (pool, None)]
        spent = sorted((each.at, getattr(each, what)) for each in counts if each.at > begun.now - span - SKEW)
        many = sum(amount for _, amount in spent)
        detail, fix = (
            f"{many} of {most} {what} of {kind} {within}",
            f"wait, or raise maximum{what.capitalize()}Per{per}",
        )
        if many + takes <= most:
            detail += f", {most - many} left"
        else:
            detail += f"; the node has {counted(takes, 'pod')} to evict" if what == "evictions" else ""
            gone = accumulate(amount for _, amount in spent)
            frees = (at for (at, _), before in zip(spent, gone, strict=True) if many - before + takes <= most)
            last = next(frees, None)
            detail += ", more than the rate ever lets go" if last is None else f"; {_next(last + span + SKEW, begun)}"
        yield Check(gate, Reason.RATE_LIMITED, many + takes <= most, detail, f"{fix} of {kind}")


def refused_by_rate(rates: Sequence[Rates], begun: Begun, node: str, pods: Sequence[Pod]) -> Refusal | None:
    """Return the first refusal of :func:`rate_checks`, ``None`` if the drain may begin."""
    return next((each.refusal(node) for each in rate_checks(rates, begun, pods) if not each.open), None)


def beside_drains(begun: Begun, snapshot: Snapshot, nodes: Iterable[str]) -> Begun:
    """Return *begun* with the workloads that have pods on *nodes* in drain.

    A pod that was bound between the plan and the cordon is in no claim, though the drain will evict the pod.
    """
    views = (snapshot.nodes[name] for name in nodes if name in snapshot.nodes)
    pods = [pod for view in views for pod in view.pods if not (pod.daemon or pod.mirror or pod.finished)]
    return begun.with_drain(None, dict.fromkeys(marks_of(pods), 0))  # a claim counts its pods itself


def planned(begun: Begun, pool: str, pods: Sequence[Pod]) -> Begun:
    """Return *begun* with one more drain in *pool*, which begins now and evicts *pods*.

    Their workloads count from the claim: until then nothing keeps the next node of a plan from going instead.
    """
    return begun.with_drain(Spent(begun.now, pool, 1, len(pods)), {})
