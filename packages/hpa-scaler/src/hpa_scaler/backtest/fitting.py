"""Values for an HPA's annotations, fitted to its recorded past; or the reason why the past doesn't tell. Pure.

One replica's load is fitted where the HPA itself set the replicas: by what its metrics asked for, or else by its
replicas above every floor. A median of medians decides, so that outages, cold starts and bursts don't. Where the load
of a replica has changed, as by a deploy, only the time since then counts. Every suggestion is replayed: a value under
which a minute would be short of replicas, where today's was not, is made safer or not suggested at all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.queries import value_query
from hpa_scaler.annotations.spec import FloorSpec, QuerySpec
from hpa_scaler.backtest.replaying import backtest
from hpa_scaler.backtest.variants import EVERY, AnnotationChange, BacktestResult, BacktestSetup, HpaPast, Variant
from hpa_scaler.judge.sources import lowering_window
from hpa_scaler.prometheus.samples import Trace
from tightship.objects.counting import counted
from tightship.objects.durations import format_duration
from tightship.objects.horizontal import STABILIZATION
from tightship.objects.times import rfc3339

Sure = Literal["sure", "fairly sure", "can't tell"]

BLOCK = 6 * 3600.0
"""Seconds of one block, whose median is one vote."""
_LEAST_BLOCKS = 4
_LEAST_SAMPLES = 20
"""Samples that a block needs for a vote."""
_ENOUGH_BLOCKS = 12
_FEWEST = 3
"""Replicas below which rounding hides the load of one."""
_APART = 0.12
"""How far the votes of one load may differ from their median."""
_SPREAD, _SURE = 0.10, 0.04
"""The spread of the votes above which nothing is told, and up to which it is sure."""
_AGREES = 0.12
"""How far what the metrics asked for may be from the replicas that the HPA set."""
_MARGIN = 0.98
_SAFER = ((1.0, 0), (1.0, 1), (1.0, 2), (0.96, 2), (0.93, 3), (0.93, 5))
"""What is tried until no minute is short that is not today: a part of the load, and so many spare twentieths."""
_RATIOS = (0.1, 0.2, 0.3, 0.5)
_LONGEST_DIP = 1800.0
_CAUTION = 0.05
"""The most that a longer lowering window may cost, as a part of the replica-hours."""


class LoadFit(Struct, frozen=True):
    """The load of one replica, ``None`` if the data don't tell, and the replicas *idle* needed without any traffic.

    *spread* is the usual distance of a vote from the load, as a part of it; *blocks* is the number of votes. *why* is
    one sentence.
    """

    per_replica: float | None
    sure: Sure
    why: str
    spread: float = 0.0
    blocks: int = 0


class AnnotationAdvice(Struct, frozen=True):
    """One annotation: its *name*, its *text* (``None``: leave it out), and *why* in one sentence."""

    name: str
    text: str | None
    why: str


class Suggestion(Struct, frozen=True):
    """What to write for one HPA: the *fit*, the *advice*, and the replays *before* and *after* it.

    Without *advice*, today's annotations stay, and *why* says the reason.
    """

    past: HpaPast
    fit: LoadFit
    advice: tuple[AnnotationAdvice, ...] = ()
    why: str = ""
    before: BacktestResult | None = None
    after: BacktestResult | None = None


def fit_load(past: HpaPast, query: QuerySpec, begin: float, end: float) -> LoadFit:
    """Return the load of one replica by the answers to *query* from *begin* to *end*."""
    traffic = past.traces.get(value_query(query))
    if traffic is None:
        return LoadFit(None, "can't tell", "the query has no recorded answers")
    if several := _several(past):
        return LoadFit(None, "can't tell", several)
    past, proven = _proven(past, begin, end)
    if past.hpa.namesakes and past.wanted is not None and not proven:
        return LoadFit(
            None, "can't tell", "two of the HPA's metrics have one name, and kube-state-metrics may know one"
        )
    blocks: dict[int, list[float]] = {}
    seen = 0
    for at, load in _loads(past, traffic, begin, end):
        blocks.setdefault(int(at // BLOCK), []).append(load)
        seen += 1
    votes = [(place * BLOCK, median(each)) for place, each in sorted(blocks.items()) if len(each) >= _LEAST_SAMPLES]
    if len(votes) < _LEAST_BLOCKS:
        return LoadFit(None, "can't tell", _too_little(past, seen, len(votes), end - begin), blocks=len(votes))
    since = _since(votes)
    latest = [load for at, load in votes if at >= since]
    if len(latest) < _LEAST_BLOCKS:
        old, new = median([load for at, load in votes if at < since]), median(latest)
        changed = f"the load of a replica changed at about {rfc3339(since)}, from {old:.4g} to {new:.4g}"
        return LoadFit(None, "can't tell", f"{changed}, and there is too little since", blocks=len(latest))
    load = median(latest)
    spread = median([abs(each - load) for each in latest]) / load
    if spread > _SPREAD:
        why = f"the load of a replica varies by {spread:.0%} from one time to another"
        return LoadFit(None, "can't tell", why, spread, len(latest))
    half = len(latest) // 2
    foretold = abs(median(latest[:half]) / median(latest[half:]) - 1)
    known = proven and max(spread, foretold) <= _SURE and len(latest) >= _ENOUGH_BLOCKS
    sure: Sure = "sure" if known else "fairly sure"
    by = "its own metrics asked for" if past.wanted is not None else "it ran, where no bound set them"
    detail = f"{load:.4g} for each of the replicas that {by}, give or take {spread:.0%}"
    if since > votes[0][0]:
        detail += f"; from {rfc3339(since)} on, before that it was another"
    return LoadFit(load, sure, detail, spread, len(latest))


def _loads(past: HpaPast, traffic: Trace, begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield the load of a replica at each time at which the HPA itself set the replicas."""
    peaks: deque[tuple[float, float]] = deque()
    known = sorted(value for value, count in zip(traffic.values, traffic.counts, strict=True) if count and value > 0)
    busy = known[len(known) // 4] if known else 0.0
    before: float | None = None
    place = 0
    while (at := traffic.begin + place * traffic.step) <= min(end, traffic.end):
        place += 1
        value = traffic.value(at)
        if value is None:
            peaks.clear()
            before = None
            continue
        while peaks and peaks[-1][1] <= value:
            peaks.pop()
        peaks.append((at, value))
        while peaks[0][0] < at - STABILIZATION:
            peaks.popleft()
        if at < begin or value < busy:
            continue
        if past.wanted is not None:
            wanted = past.wanted.value(at)
            if wanted is not None and wanted >= _FEWEST - 1:
                yield at, value / wanted
            continue
        replicas = None if past.replicas is None else past.replicas.value(at)
        steady, before = replicas is not None and replicas == before, replicas
        if replicas is None or not steady or not max(_FEWEST, past.hpa.min_replicas + 1) <= replicas:
            continue
        if replicas < past.hpa.max_replicas and not _floored(past, at, replicas):
            # The HPA keeps the most of its stabilization window, and rounds up: half a replica on average.
            yield at, peaks[0][1] / (replicas - 0.5)


def _several(past: HpaPast) -> str:
    """Return that the records are of several HPAs of this name, empty if they aren't."""
    for trace in (past.wanted, past.replicas):
        if trace is not None and 20 * sum(count > 1 for count in trace.counts) > sum(
            count > 0 for count in trace.counts
        ):
            return (
                "several HPAs of this name are recorded, as of several clusters: name a server that knows one of them"
            )
    return ""


def _proven(past: HpaPast, begin: float, end: float) -> tuple[HpaPast, bool]:
    """Return *past*, without what the HPA's metrics asked for if its replicas contradict that, and whether they agree.

    An HPA that sets its replicas itself runs about as many as its metrics ask for: its tolerance is a tenth. Otherwise
    the metrics are not all recorded, as where several have one name.
    """
    if past.wanted is None:
        return past, True
    shares: list[float] = []
    before: float | None = None
    replicas = past.replicas
    at = begin
    lately = deque[float](maxlen=1 if replicas is None else max(1, round(STABILIZATION / replicas.step)))
    while replicas is not None and at <= min(end, replicas.end):
        now, wanted = replicas.value(at), past.wanted.value(at)
        lately.append(wanted or 0.0)
        free = now is not None and max(_FEWEST, past.hpa.min_replicas + 1) <= now < past.hpa.max_replicas
        if now is not None and wanted is not None and free and now == before and not _floored(past, at, now):
            shares.append(max(lately) / (now - 0.5))  # as in _loads
        before = now
        at += replicas.step
    if len(shares) < _LEAST_SAMPLES:
        return past, False
    if abs(median(shares) - 1) <= _AGREES:
        return past, True
    return msgspec.structs.replace(past, wanted=None), False


def _floored(past: HpaPast, at: float, replicas: float) -> bool:
    """Whether a floor may have set so many *replicas*."""
    floor = None if past.floor is None else past.floor.value(at)
    return floor is not None and replicas <= floor


def _too_little(past: HpaPast, seen: int, votes: int, span: float) -> str:
    if past.wanted is None and past.replicas is None:
        return "neither the HPA's own metrics nor its replicas are recorded"
    if not seen:
        return "the replicas never were above the floor and below maxReplicas, so the HPA never set them"
    return (
        f"only {counted(seen, 'sample')} of {format_duration(span)} show what the HPA wanted, in "
        f"{counted(votes, 'stretch', 'stretches')} of 6 hours; {_LEAST_BLOCKS} are needed"
    )


def _since(votes: Sequence[tuple[float, float]]) -> float:
    """Return since when the load is what it is at the end: where two votes running don't belong to it any more."""
    kept: list[float] = [load for _, load in votes[-_LEAST_BLOCKS:]]
    strange = 0
    since = votes[-1][0]
    for at, load in reversed(votes):
        if abs(load / median(kept) - 1) <= _APART:
            since, strange = at, 0
            kept.append(load)
        else:
            strange += 1
            if strange == 2:
                return since
    return votes[0][0]


def suggest(
    past: HpaPast, setup: BacktestSetup, today: Variant, tell: Callable[[str], None] | None = None
) -> Suggestion:
    """Return what to write for the HPA of *past*; *today* is how it lives now."""
    spec = past.yardstick
    if spec is None or not spec.queries:
        return Suggestion(past, LoadFit(None, "can't tell", "there is no query"), why="there is no query to follow")
    if len(spec.queries) > 1:
        why = "the HPA has several queries, and the past doesn't say which of them its load follows"
        return Suggestion(past, LoadFit(None, "can't tell", why), why=why)
    query = spec.queries[0]
    fit = fit_load(past, query, setup.begin, setup.end)
    if fit.per_replica is None:
        return Suggestion(past, fit, why=fit.why)
    # One replica carries what was fitted, whatever the annotation says.
    fitted = msgspec.structs.replace(query, per_replica=fit.per_replica, delta=0.0)
    past = msgspec.structs.replace(past, yardstick=msgspec.structs.replace(spec, queries=(fitted,)))
    known = sorted(need for at in setup.cycles() if (need := past.need(at)) is not None)
    spare = max(1, math.ceil(known[len(known) // 2] / 20)) if known else 1
    ratio, why_ratio = _ratio(past, setup)
    window, why_window = _window(past, spec, setup)
    before: BacktestResult | None = None
    number = 0
    while number < len(_SAFER):
        part, times = _SAFER[number]
        load, delta = rounded_down(fit.per_replica * _MARGIN * part), times * spare
        if tell is not None:
            tell(f"replaying {past.hpa.key}, suggestion {number + 1}")
        advice: tuple[AnnotationAdvice, ...] = (
            AnnotationAdvice("requests-per-replica", f"{load:.10g}", fit.why),
            AnnotationAdvice("delta", str(delta) if delta else None, _why_delta(delta)),
            AnnotationAdvice("scale-down-max-ratio", f"{ratio:g}", why_ratio),
            AnnotationAdvice("lowering-window", None if window is None else f"{window / 60:.0f}m", why_window),
        )
        if past.proposed:
            advice = (
                AnnotationAdvice("prometheus-query", query.text, "of the usual request rates, this one answers"),
                *advice,
            )
        changes = tuple(AnnotationChange(EVERY, each.name, each.text) for each in advice)
        tried = Variant("suggested", "changed", changes)
        [row] = backtest([past], [today, tried] if before is None else [tried], setup)
        before, after = (row[0], row[1]) if before is None else (before, row[0])
        if set(after.shorts) - set(before.shorts):
            number += 1
            continue
        cost = after.caution["lowering-window"] / max(1.0, after.replicas - sum(after.caution.values()))
        if window is None or cost <= _CAUTION:
            return Suggestion(past, fit, advice, before=before, after=after)
        why_window = f"{format_duration(window)} would outlast most dips, but cost {cost:.0%} more replicas"
        window = None
    why = "every value tried would have been short of replicas at a time when today's was not"
    return Suggestion(past, LoadFit(None, "can't tell", why, fit.spread, fit.blocks), why=why, before=before)


def rounded_down(value: float) -> float:
    """Return *value* with at most three digits, never above it."""
    power = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / power + 1e-9) * power:.6g}")


def _why_delta(delta: int) -> str:
    if not delta:
        return "no spare replica was needed: the replay has no short minute that today's settings don't have"
    return f"with fewer than {counted(delta, 'spare replica')} a minute would have been short that is not today"


def _ratio(past: HpaPast, setup: BacktestSetup) -> tuple[float, str]:
    """Return the smallest ratio with which a floor keeps up with nearly every real fall."""
    before: float | None = None
    falls: list[float] = []
    for at in setup.cycles():
        need = past.need(at)
        if need is not None and before is not None and before >= _FEWEST:
            falls.append((before - need) / before)
        before = need
    falls.sort()
    usual = falls[int(len(falls) * 0.99)] if falls else 0.0
    ratio = next((each for each in _RATIOS if each >= usual), _RATIOS[-1])
    detail = f"in 99 of 100 cycles the traffic fell by no more than {max(0.0, usual):.1%}"
    return ratio, f"{detail}, so a floor that comes down by {ratio:.0%} a cycle keeps up, and an error takes no more"


def _window(past: HpaPast, spec: FloorSpec, setup: BacktestSetup) -> tuple[float | None, str]:
    """Return a window that outlasts nearly every dip, ``None`` if the default one does."""
    plain = lowering_window(msgspec.structs.replace(spec, window=None), setup.rules)
    dips = sorted(_dips(past, setup))
    longest = dips[int(len(dips) * 0.9)] if len(dips) >= 3 else 0.0
    if longest <= plain:
        seen = f"{counted(len(dips), 'dip')} of the traffic came back" if dips else "no dip of the traffic came back"
        return (
            None,
            f"{seen} within half an hour, and the default of {format_duration(plain)} covers 9 of 10",
        )
    window = math.ceil(longest / 60) * 60.0
    detail = f"9 of 10 of the {len(dips)} dips of the traffic that came back within half an hour lasted up to"
    return window, f"{detail} {format_duration(window)}"


def _dips(past: HpaPast, setup: BacktestSetup) -> Iterator[float]:
    """Yield how long each dip lasted: a fall by a fifth and two replicas from which the traffic came back."""
    high, since = 0.0, 0.0
    low = math.inf
    for at in setup.cycles():
        need = past.need(at)
        if need is None or at - since > _LONGEST_DIP or need >= 0.95 * high:
            if need is not None and need >= 0.95 * high and low <= 0.8 * high and high - low >= 2 and at > since:
                yield at - since
            high, since, low = need or 0.0, at, math.inf
        else:
            low = min(low, need)
