"""Values for an HPA's annotations, fitted to its recorded past; or the reason why the past doesn't tell. Pure.

One replica's load is fitted where the HPA itself set the replicas: by what its metrics asked for, or else by its
replicas above every floor. A median of medians decides, so that outages, cold starts and bursts don't. Where the load
of a replica has changed, as by a deploy, only the time since then counts. Every suggestion is replayed: a value under
which a minute would be short of replicas, where today's was not, is made safer or not suggested at all.
"""

from __future__ import annotations

import math
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal

import msgspec
from msgspec import Struct

from hpa_scaler.annotations.parsing import enabled, name_of, prefix_of
from hpa_scaler.annotations.queries import value_query
from hpa_scaler.annotations.spec import ENABLE, FloorSpec, QuerySpec
from hpa_scaler.backtest.replay import (
    EVERY,
    TODAY,
    AnnotationChange,
    BacktestSetup,
    RecordedHpa,
    Replay,
    Variant,
    WorstMoment,
    backtest,
)
from hpa_scaler.documents.document import FloorHead
from hpa_scaler.judge.sources import lowering_window
from hpa_scaler.prometheus.samples import Trace
from tightship.objects.counting import counted
from tightship.objects.horizontal import STABILIZATION
from tightship.objects.times import format_duration, rfc3339

Sure = Literal["sure", "fairly sure", "can't tell"]

_BLOCK = 6 * 3600.0
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
"""The spread of the votes above which the load is unknown, and up to which it is sure."""
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
    """The load of one replica, ``None`` if the data don't tell, and *why* in one sentence.

    *spread* is the usual distance of a vote from the load, as a part of it; *blocks* is the number of votes.
    """

    why: str
    spread: float = 0.0
    blocks: int = 0
    per_replica: float | None = None
    sure: Sure = "can't tell"


class SuggestedAnnotation(Struct, frozen=True, rename="camel"):
    """One *annotation* by its whole name, its *value* (``null``: leave it out), and *why* in one sentence."""

    annotation: str
    value: str | None
    why: str


class Replayed(Struct, frozen=True, rename="camel"):
    """What a replay of the past came to: replica-hours rounded to a tenth, whole minutes."""

    replica_hours_a_week: float
    short_minutes: int
    worst: WorstMoment | None


class HpaSuggestion(Struct, frozen=True, rename="camel"):
    """One HPA: how *sure* the fit is and *why*, the *annotations*, and the replays *before* and *after* them.

    *query* is what they are for; *proposed* says that the HPA has no query yet, and this one was found to answer.
    Without *annotations* the past does not tell. *kubectl* is a command, *values* a patch for a chart that takes
    annotations of its HPA, *kustomize* an entry of a kustomization; ``null`` without annotations.
    """

    namespace: str
    name: str
    target: str
    query: str | None
    proposed: bool
    sure: Sure
    why: str
    per_replica: float | None
    spread: float | None
    annotations: tuple[SuggestedAnnotation, ...] = ()
    before: Replayed | None = None
    after: Replayed | None = None
    kubectl: str | None = None
    values: str | None = None
    kustomize: str | None = None

    @property
    def key(self) -> str:
        """The HPA as ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class FloorSuggestions(FloorHead, frozen=True, rename="camel", tag_field="kind", tag="FloorSuggestions"):
    """Which annotations to write, fitted to the past from *begin* to *end*."""

    begin: str
    end: str
    hpas: tuple[HpaSuggestion, ...]
    warnings: tuple[str, ...]


def fit_load(past: RecordedHpa, query: QuerySpec, begin: float, end: float) -> LoadFit:
    """Return the load of one replica by the answers to *query* from *begin* to *end*."""
    traffic = past.traces.get(value_query(query))
    if traffic is None:
        return LoadFit("the query has no recorded answers")
    if any(trace is not None and _is_several(trace) for trace in (past.wanted, past.replicas)):
        several = "several HPAs of this name are recorded, as of several clusters"
        return LoadFit(f"{several}: name a server that knows one of them")
    past, proven = _proven(past, begin, end)
    if past.hpa.namesakes and past.wanted is not None and not proven:
        return LoadFit("two of the HPA's metrics have one name, and kube-state-metrics may know one")
    blocks: dict[int, list[float]] = {}
    for at, load in _loads(past, traffic, begin, end):
        blocks.setdefault(int(at // _BLOCK), []).append(load)
    votes = [(place * _BLOCK, median(each)) for place, each in sorted(blocks.items()) if len(each) >= _LEAST_SAMPLES]
    if len(votes) < _LEAST_BLOCKS:
        return LoadFit(_too_little(past, sum(map(len, blocks.values())), len(votes), end - begin), blocks=len(votes))
    since = _since(votes)
    latest = [load for at, load in votes if at >= since]
    load = median(latest)
    if len(latest) < _LEAST_BLOCKS:
        old = median([each for at, each in votes if at < since])
        changed = f"the load of a replica changed at about {rfc3339(since)}, from {old:.4g} to {load:.4g}"
        return LoadFit(f"{changed}, and there is too little since", blocks=len(latest))
    spread = median([abs(each - load) for each in latest]) / load
    if spread > _SPREAD:
        return LoadFit(f"the load of a replica varies by {spread:.0%} from one time to another", spread, len(latest))
    half = len(latest) // 2
    drift = abs(median(latest[:half]) / median(latest[half:]) - 1)
    known = proven and max(spread, drift) <= _SURE and len(latest) >= _ENOUGH_BLOCKS
    by = "its own metrics asked for" if past.wanted is not None else "it ran, where no bound set them"
    detail = f"{load:.4g} for each of the replicas that {by}, give or take {spread:.0%}"
    if since > votes[0][0]:
        detail += f"; from {rfc3339(since)} on, before that it was another"
    return LoadFit(detail, spread, len(latest), load, "sure" if known else "fairly sure")


def _is_several(trace: Trace) -> bool:
    """Whether *trace* is of several HPAs of one name; one that was scraped twice for a while is not."""
    return 20 * sum(count > 1 for count in trace.counts) > sum(count > 0 for count in trace.counts)


def _loads(past: RecordedHpa, traffic: Trace, begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield the load of a replica at each time at which the HPA itself set the replicas."""
    peaks: deque[tuple[float, float]] = deque()
    known = sorted(value for value, count in zip(traffic.values, traffic.counts, strict=True) if count and value > 0)
    busy = known[len(known) // 4] if known else 0.0
    before: float | None = None
    for place in range(len(traffic.values)):
        at = traffic.begin + place * traffic.step
        value = traffic.value(at)
        if at > end:
            return
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
        if replicas is not None and replicas == before and _is_free(past, at, replicas):
            # The HPA keeps the most of its stabilization window, and rounds up: half a replica on average.
            yield at, peaks[0][1] / (replicas - 0.5)
        before = replicas


def _is_free(past: RecordedHpa, at: float, replicas: float) -> bool:
    """Whether the HPA itself set so many *replicas*, and no bound did."""
    floor = None if past.floor is None else past.floor.value(at)
    least = max(_FEWEST, past.hpa.min_replicas + 1)
    return least <= replicas < past.hpa.max_replicas and (floor is None or replicas > floor)


def _proven(past: RecordedHpa, begin: float, end: float) -> tuple[RecordedHpa, bool]:
    """Return *past*, without what the HPA's metrics asked for if its replicas contradict that, and whether they agree.

    An HPA that sets its replicas itself runs about as many as its metrics ask for: its tolerance is a tenth. Otherwise
    the metrics are not all recorded, as where several have one name.
    """
    replicas, wanted = past.replicas, past.wanted
    if wanted is None or replicas is None:
        return past, wanted is None
    shares: list[float] = []
    before: float | None = None
    lately = deque[float](maxlen=max(1, round(STABILIZATION / replicas.step)))
    at = begin
    while at <= min(end, replicas.end):
        now, asked = replicas.value(at), wanted.value(at)
        lately.append(asked or 0.0)
        if now is not None and asked is not None and now == before and _is_free(past, at, now):
            shares.append(max(lately) / (now - 0.5))  # as in _loads
        before = now
        at += replicas.step
    if len(shares) < _LEAST_SAMPLES:
        return past, False
    if abs(median(shares) - 1) <= _AGREES:
        return past, True
    return msgspec.structs.replace(past, wanted=None), False


def _too_little(past: RecordedHpa, seen: int, votes: int, span: float) -> str:
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


def suggest(past: RecordedHpa, setup: BacktestSetup, say: Callable[[str], None] = lambda _: None) -> HpaSuggestion:
    """Return what to write for the HPA of *past*, beside its annotations of today."""
    spec = past.yardstick
    if not spec.queries:
        return _suggestion(past, setup, LoadFit("there is no query to follow"))
    if len(spec.queries) > 1:
        why = "the HPA has several queries, and the past doesn't say which of them its load follows"
        return _suggestion(past, setup, LoadFit(why))
    query = spec.queries[0]
    fit = fit_load(past, query, setup.begin, setup.end)
    if fit.per_replica is None:
        return _suggestion(past, setup, fit)
    # One replica carries what was fitted, whatever the annotation says.
    fitted = msgspec.structs.replace(query, per_replica=fit.per_replica, delta=0.0)
    past = msgspec.structs.replace(past, yardstick=msgspec.structs.replace(spec, queries=(fitted,)))
    needs = [past.need(at) for at in setup.cycles()]
    known = sorted(need for need in needs if need is not None)
    spare = max(1, math.ceil(known[len(known) // 2] / 20)) if known else 1
    ratio, why_ratio = _ratio(needs)
    window, why_window = _window(needs, spec, setup)
    before: Replay | None = None
    number = 0
    while number < len(_SAFER):
        part, times = _SAFER[number]
        load, delta = rounded_down(fit.per_replica * _MARGIN * part), times * spare
        say(f"replaying {past.hpa.key}, suggestion {number + 1}")
        advice: list[tuple[str, str | None, str]] = [
            ("requests-per-replica", f"{load:.10g}", fit.why),
            ("delta", str(delta) if delta else None, _why_delta(delta)),
            ("scale-down-max-ratio", f"{ratio:g}", why_ratio),
            ("lowering-window", None if window is None else f"{window / 60:.0f}m", why_window),
        ]
        if past.proposed:
            advice.insert(0, ("prometheus-query", query.text, "of the usual request rates, this one answers"))
        changes = tuple(AnnotationChange(EVERY, name, text) for name, text, _ in advice)
        tried = Variant("suggested", "changed", changes)
        [row] = backtest([past], [tried] if before is not None else [tried, TODAY], setup)
        before, after = before or row[1], row[0]
        if set(after.shorts) - set(before.shorts):
            number += 1
            continue
        cost = after.caution["lowering-window"] / max(1.0, after.replicas - sum(after.caution.values()))
        if window is None or cost <= _CAUTION:
            return _suggestion(past, setup, fit, advice=advice, before=before, after=after)
        why_window = f"{format_duration(window)} would outlast most dips, but cost {cost:.0%} more replicas"
        window = None
    why = "every value tried would have been short of replicas at a time when today's was not"
    return _suggestion(past, setup, LoadFit(why, fit.spread, fit.blocks), before=before)


def rounded_down(value: float) -> float:
    """Return *value* with at most three digits, never above it."""
    power = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.floor(value / power + 1e-9) * power:.6g}")


def _why_delta(delta: int) -> str:
    if not delta:
        return "no spare replica was needed: the replay has no short minute that today's settings don't have"
    return f"with fewer than {counted(delta, 'spare replica')} a minute would have been short that is not today"


def _ratio(needs: Sequence[float | None]) -> tuple[float, str]:
    """Return the smallest ratio with which a floor keeps up with nearly every real fall."""
    falls = sorted(
        (before - need) / before
        for before, need in pairwise(needs)
        if need is not None and before is not None and before >= _FEWEST
    )
    usual = falls[int(len(falls) * 0.99)] if falls else 0.0
    ratio = next((each for each in _RATIOS if each >= usual), _RATIOS[-1])
    detail = f"in 99 of 100 cycles the traffic fell by no more than {max(0.0, usual):.1%}"
    return ratio, f"{detail}, so a floor that comes down by {ratio:.0%} a cycle keeps up, and an error takes no more"


def _window(needs: Sequence[float | None], spec: FloorSpec, setup: BacktestSetup) -> tuple[float | None, str]:
    """Return a window that outlasts nearly every dip, ``None`` if the default one does."""
    plain = lowering_window(msgspec.structs.replace(spec, window=None), setup.rules)
    dips = sorted(_dips(needs, setup))
    longest = dips[int(len(dips) * 0.9)] if len(dips) >= 3 else 0.0
    if longest <= plain:
        seen = f"{counted(len(dips), 'dip')} of the traffic came back" if dips else "no dip of the traffic came back"
        return None, f"{seen} within half an hour, and the default of {format_duration(plain)} covers 9 of 10"
    window = math.ceil(longest / 60) * 60.0
    detail = f"9 of 10 of the {len(dips)} dips of the traffic that came back within half an hour lasted up to"
    return window, f"{detail} {format_duration(window)}"


def _dips(needs: Sequence[float | None], setup: BacktestSetup) -> Iterator[float]:
    """Yield how long each dip lasted: a fall by a fifth and two replicas from which the traffic came back."""
    high, since = 0.0, 0.0
    low = math.inf
    for at, need in zip(setup.cycles(), needs, strict=True):
        if need is None or at - since > _LONGEST_DIP or need >= 0.95 * high:
            if need is not None and need >= 0.95 * high and low <= 0.8 * high and high - low >= 2 and at > since:
                yield at - since
            high, since, low = need or 0.0, at, math.inf
        else:
            low = min(low, need)


def _suggestion(
    past: RecordedHpa,
    setup: BacktestSetup,
    fit: LoadFit,
    *,
    advice: Sequence[tuple[str, str | None, str]] = (),
    before: Replay | None = None,
    after: Replay | None = None,
) -> HpaSuggestion:
    hpa, prefix = past.hpa, prefix_of(past.hpa.annotations, setup.rules.prefix)
    queries = past.yardstick.queries
    annotations = [SuggestedAnnotation(name_of(prefix, name), text, why) for name, text, why in advice]
    if annotations and not enabled(hpa.annotations, prefix):
        annotations.insert(0, SuggestedAnnotation(f"{prefix}/{ENABLE}", "true", "the HPA is not opted in yet"))
    found = HpaSuggestion(
        namespace=hpa.namespace,
        name=hpa.name,
        target=str(hpa.target),
        query=queries[0].text if queries else None,
        proposed=past.proposed,
        sure=fit.sure,
        why=fit.why,
        per_replica=fit.per_replica,
        spread=round(fit.spread, 3) if fit.blocks else None,
        annotations=tuple(annotations),
        before=_replayed(before),
        after=_replayed(after),
    )
    if not annotations:
        return found
    texts = {each.annotation: each.value for each in annotations}
    settings = [f"{key}-" if text is None else f"{key}={text}" for key, text in texts.items()]
    return msgspec.structs.replace(
        found,
        kubectl=shlex.join(["kubectl", "-n", hpa.namespace, "annotate", "--overwrite", "hpa", hpa.name, *settings]),
        values=_yaml("autoscaling:\n  annotations:", texts, "    "),
        kustomize=_yaml(_PATCH.format(name=_as_json(hpa.name), namespace=_as_json(hpa.namespace)), texts, "          "),
    )


_PATCH = """patches:
  - patch: |-
      apiVersion: autoscaling/v2
      kind: HorizontalPodAutoscaler
      metadata:
        name: {name}
        namespace: {namespace}
        annotations:"""


def _yaml(head: str, texts: Mapping[str, str | None], indent: str) -> str:
    return "".join([f"{head}\n", *(f"{indent}{key}: {_as_json(text)}\n" for key, text in texts.items())])


def _as_json(thing: object) -> str:
    """Return *thing* as JSON in one line, which YAML takes too."""
    return msgspec.json.encode(thing).decode()


def _replayed(replay: Replay | None) -> Replayed | None:
    if replay is None:
        return None
    return Replayed(round(replay.week(), 1), round(replay.short / 60), replay.moment())
