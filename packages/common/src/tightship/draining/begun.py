"""What drains have begun in the last day, and how many pods they evict: an annotation on the claims' Lease. Pure.

The rates of all controllers (:mod:`tightship.rules.rates`) go by these counts. They change in the write that makes or
drops a claim, so that no drain is under way that they don't have. One line for each minute of the last hour, and for
each hour before that, has a pool's nodes and evictions, under the time of the newest drain in it: so a count never ends
too soon. Beyond :data:`MOST` lines, the oldest are joined over all pools, and then count for each pool.

Counts that nobody can read are as good as spent: no drain begins under a rate until somebody removes the annotation.
Nothing here overwrites them meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from tightship.objects.drain_record import BEGUN_ANNOTATION, WORKLOADS_ANNOTATION, Spent, begun_in
from tightship.objects.times import rfc3339, with_times
from tightship.rules.rates import DAY, HOUR, SKEW

MOST = 300
"""Most lines: about 25 kB."""

LONGEST = 96 * 1024
"""Most bytes of the workloads' evictions: 4,000 workloads. With more, the marks get shorter, and several workloads that
share the beginning of a mark rest together."""


def counts_of(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return those of *annotations* that count what has begun."""
    return {name: text for name, text in annotations.items() if name in (BEGUN_ANNOTATION, WORKLOADS_ANNOTATION)}


def without_names(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return *annotations*, which count what has begun, with no name in them: each line counts for all pools."""
    begun = begun_in(annotations)
    return (
        {}
        if begun.problem or not begun.spent
        else _encoded([msgspec.structs.replace(each, pool=None) for each in begun.spent])
    )


def with_begun(annotations: Mapping[str, str], more: Iterable[Spent], now: float) -> Mapping[str, str]:
    """Return *annotations* with *more* drains, as of *now*."""
    return _written(annotations, [*begun_in(annotations).spent, *more], now)


def with_evicted(annotations: Mapping[str, str], marks: Mapping[str, int], now: float) -> Mapping[str, str]:
    """Return *annotations* with evictions until *now* of so many pods of each workload, by its mark.

    The evictions of an hour are one, at the time of the last.
    """
    begun = begun_in(annotations)
    if begun.problem or not marks:
        return annotations
    kept_for = now - DAY - 2 * SKEW
    found = [(mark, at, many) for mark, each in begun.workloads.items() for at, many in each if at > kept_for]
    found += [(mark, math.ceil(now), many) for mark, many in marks.items()]
    text = ""
    for length, slot in ((8, HOUR), *((each, 2 * DAY) for each in range(8, 0, -1))):
        kept: dict[str, dict[float, tuple[float, int]]] = {}
        for mark, at, many in found:
            times = kept.setdefault(mark[:length], {})
            last, before = times.get(at // slot, (0, 0))
            times[at // slot] = max(at, last), before + many
        text = msgspec.json.encode({mark: sorted(each.values()) for mark, each in kept.items()}).decode()
        if len(text) <= LONGEST:
            break
    return {**annotations, WORKLOADS_ANNOTATION: text}


def given_back(annotations: Mapping[str, str], unused: Spent, now: float) -> Mapping[str, str]:
    """Return *annotations* without what a drain that began at ``unused.at`` has counted and not used."""
    found = list(begun_in(annotations).spent)
    # Where lines were joined, the one with the drain is the first that isn't older.
    at = min(
        (at for at, each in enumerate(found) if each.pool in (unused.pool, None) and each.at >= int(unused.at)),
        key=lambda at: found[at].at,
        default=None,
    )
    if at is None:
        return annotations
    nodes, evictions = found[at].nodes - unused.nodes, found[at].evictions - unused.evictions
    found[at] = msgspec.structs.replace(found[at], nodes=max(0, nodes), evictions=max(0, evictions))
    return _written(annotations, found, now)


def _written(annotations: Mapping[str, str], spent: Iterable[Spent], now: float) -> Mapping[str, str]:
    if begun_in(annotations).problem:
        return annotations
    kept = _joined(
        (each.at // (60 if each.at > now - HOUR else HOUR), each.pool, each)
        for each in spent
        if each.at > now - DAY - 2 * SKEW and (each.nodes or each.evictions)
    )
    if len(kept) > MOST:
        old, new = kept[: len(kept) - MOST // 2], kept[len(kept) - MOST // 2 :]
        kept = [*_joined((each.at // HOUR, None, each) for each in old), *new]
    return {**annotations, **_encoded(kept)}


def _encoded(spent: Iterable[Spent]) -> Mapping[str, str]:
    plain = with_times(msgspec.to_builtins(list(spent)), frozenset({"at"}), rfc3339)
    return {BEGUN_ANNOTATION: msgspec.json.encode(plain).decode()}


def _joined(lines: Iterable[tuple[float, str | None, Spent]]) -> list[Spent]:
    """Return one line for each time and pool, the oldest first."""
    found: dict[tuple[float, str | None], Spent] = {}
    for time, pool, each in lines:
        known = found.get((time, pool))
        if known is None:
            found[time, pool] = msgspec.structs.replace(each, pool=pool)
        else:
            nodes, evictions = known.nodes + each.nodes, known.evictions + each.evictions
            found[time, pool] = Spent(max(known.at, each.at), pool, nodes, evictions)
    return sorted(found.values(), key=lambda each: each.at)
