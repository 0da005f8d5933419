"""Floors held falsely in a week, and floors lowered falsely when series are lost, on virtual time.

    python bench/holds.py                   both: a minute
    python bench/holds.py --only losses
    python bench/holds.py --json

*holds*: traffic goes up and down each day, and one thing is wrong that costs no data. An hour counts as held while the
floor is above all that the true values of the query wanted within the lowering window, or (*below*) under all that they
wanted within the last two cycles. While another writer keeps the floor down, nothing counts.

*losses*: the traffic is at its peak and stays there, and the series of a query are lost, in each shape of
`tightship_e2e.lost_series`. A floor that comes down within a day comes down falsely. Half of the targets that fail for
an hour are no longer held against the answers (docs/reasons.md#failedscrapes). Nor is one of two alternatives such as
``new or old`` while the other answers, or a flag after ``and`` (docs/reasons.md#fallbackanswer). No number tells such
losses from traffic that went elsewhere or ended: there the bar is the first hour.

Exit code 1 when a bar does not hold. Nothing is random: equal code prints equal figures.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from instant import Series, answer

from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.promql import fallbacks
from hpa_scaler.annotations.queries import Outcome, Query, QueryAnswer, answer_of
from hpa_scaler.annotations.spec import PREFIX, FloorSpec, Rules
from hpa_scaler.judge.decision import FloorDecision
from hpa_scaler.judge.history import BUCKETS, LENGTHEN, FloorHistory
from hpa_scaler.judge.judge import judge_one, questions, subject_of
from hpa_scaler.judge.sources import lowering_window
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.autoscaling import FieldManager, ScaleTargetRef
from tightship.objects.node import Condition
from tightship_e2e.lost_series import SHAPES

CYCLE = 75.0
HOUR, DAY = 3600.0, 86400.0
START = 20_000 * DAY
"""Midnight, in seconds since 1970."""
RULES = Rules()
LEAST = RULES.lower_bound
FIRST = DAY
"""Seconds before the week: until the controller has seen one day, every morning is a sudden rise."""
INSTANCES = ("a", "b")


def outcome(query: Query, series: Sequence[Series], at: float) -> QueryAnswer:
    found = answer(query.text, series, at)
    targets = tuple(dict(labels) for labels in found) if query.labels else ()
    return msgspec.structs.replace(answer_of(list(found.values())), targets=targets)


class Life:
    """One HPA from cycle to cycle: what is decided is set, and the replicas are the floor."""

    def __init__(self, query: str, per_replica: float, managers: tuple[FieldManager, ...] = ()) -> None:
        notes = {"prometheus-query": query, "requests-per-replica": f"{per_replica:g}"}
        asked = parse_spec({f"{PREFIX}/hpa-scaler-{name}": text for name, text in notes.items()})
        if not isinstance(asked, FloorSpec):
            raise TypeError(f"{query!r} is refused: {asked}")
        self.asked, self.history = asked, FloorHistory()
        self.queries = questions([asked], RULES)
        self.hpa = HorizontalPodAutoscaler(
            namespace="shop", name="web", uid="u", labels={}, annotations={}, owner=None, deletion=None,
            min_replicas=LEAST, max_replicas=200, target=ScaleTargetRef("Deployment", "web", "apps/v1"),
            scale_up=None, scale_down=None, current_replicas=LEAST, desired_replicas=LEAST,
            conditions=(Condition("AbleToScale", "True"), Condition("ScalingActive", "True")), managers=managers,
        )  # fmt: skip

    @property
    def floor(self) -> int:
        return self.hpa.min_replicas

    def set(self, floor: int) -> None:
        self.hpa = msgspec.structs.replace(self.hpa, min_replicas=floor, current_replicas=floor, desired_replicas=floor)

    def judge(self, outcomes: Mapping[Query, Outcome], now: float) -> FloorDecision:
        subject = subject_of(
            self.hpa, self.asked, outcomes=outcomes, rollout=None, rules=RULES, now=now, remembered=self.history
        )
        decision = judge_one(subject)
        self.history = decision.written if decision.changes else decision.history
        self.set(decision.target)
        return decision


# Floors held falsely.


def daily(name: str, low: float, high: float, *, quiet: float = 0.0) -> tuple[Series, ...]:
    """Return the counter *name* of each instance; together they rise from *low* a second at 02:00 to *high* at 14:00.

    Nothing comes before the hour *quiet*.
    """
    middle, swing, turn = (low + high) / 2, (high - low) / 2, 2 * math.pi / DAY

    def count(at: float) -> float:
        return (middle * at - swing / turn * math.sin(turn * (at - 2 * HOUR))) / len(INSTANCES)

    def quieted(at: float) -> float:
        begun, days = at // DAY * DAY + quiet * HOUR, at // DAY
        a_day = count(DAY) - count(quiet * HOUR)
        return days * a_day + max(0.0, count(at) - count(begun))

    labels = [{"namespace": "shop", "service": "web", "job": "web", "instance": each} for each in INSTANCES]
    return tuple(Series(name, each, quieted if quiet else count) for each in labels)


def up(_: float) -> float:
    return 1.0


def finished(at: float) -> float:
    """Whether the pod of an hourly Job, that runs for five minutes, is up; its target stays."""
    return float(at % HOUR < 300)


UP = tuple(
    Series("up", {"namespace": "shop", "service": "web", "job": "web", "instance": each}, up) for each in INSTANCES
)
HTTP = (*daily("http_total", 100, 900), *UP)
JOB = Series("up", {"namespace": "shop", "job": "pods", "pod": "report", "instance": "c"}, finished)
RATE = 'sum(rate(http_total{namespace="shop",service="web"}[5m]))'
INFO = 'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "http"'
DOWNSCALER = FieldManager("pykube-ng", "Update", 0, sets_min=True, sets_max=False)


@dataclass(frozen=True)
class Kind:
    """One thing that is wrong: the *query*, its *series*, and what becomes of every *second* answer, or of each."""

    name: str
    query: str = RATE
    series: tuple[Series, ...] = HTTP
    per_replica: float = 20.0
    warnings: tuple[str, ...] = ()
    missing: bool = False
    nights: bool = False


KINDS = (
    Kind("nothing"),
    Kind("kube-downscaler sets 2 from 20:00 to 06:00", nights=True),
    Kind("PromQL info: among the warnings", warnings=(INFO,)),
    Kind("a finished Job's target, every hour anew", series=(*HTTP, JOB)),
    Kind("no answer in every second cycle", RATE.replace("5m", "1m"), missing=True),
    Kind("a schedule by hour()", "vector(10) and on() (hour() >= 8 < 18) or vector(4)", per_replica=1),
    Kind("nothing comes at night, x > 0 or vector(0)", f"{RATE} > 0 or vector(0)",
         (*daily("http_total", 100, 900, quiet=6), *UP)),
    Kind("a part never had series, + (errors or vector(0))", f"{RATE} + (sum(rate(errors[5m])) or vector(0))"),
    Kind("two parts fall back, one never had series",
         f"({RATE} or vector(0)) + (sum(rate(grpc_total[5m])) or vector(0))"),
    Kind("two parts fall back, both have series", f"({RATE} or vector(0)) + (sum(rate(grpc_total[5m])) or vector(0))",
         (*HTTP, *daily("grpc_total", 50, 300))),
)  # fmt: skip


@dataclass
class Held:
    """A week of one kind: the hours held too high and too low, of those the hours with the advice, and the reasons."""

    kind: str
    above: float = 0.0
    below: float = 0.0
    advised: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)


def week(kind: Kind) -> Held:
    life = Life(kind.query, kind.per_replica, (DOWNSCALER,) if kind.nights else ())
    first = life.queries[0]
    known: dict[tuple[Query, float], QueryAnswer] = {}

    def ask(query: Query, now: float) -> QueryAnswer:
        """Every day is like the first."""
        key = (query, now % DAY)
        if key not in known:
            known[key] = outcome(query, kind.series, START + now % DAY)
        return known[key]

    held, found = Held(kind.name), LEAST
    wants: deque[tuple[float, int]] = deque()
    for number in range(round((FIRST + 7 * DAY) / CYCLE)):
        now = START + number * CYCLE
        night = kind.nights and not 6 <= now % DAY / HOUR < 20
        if night and life.floor != 2:
            found = life.floor
            life.set(2)
        elif kind.nights and not night and life.floor == 2:
            life.set(found)
        outcomes: dict[Query, Outcome] = {query: ask(query, now) for query in life.queries}
        value = ask(first, now).highest or 0.0
        wants.append((now, max(LEAST, math.ceil(value / kind.per_replica))))
        if kind.missing and number % 2:
            outcomes[first] = answer_of([])
        elif kind.warnings:
            outcomes[first] = msgspec.structs.replace(ask(first, now), warnings=kind.warnings)
        decision = life.judge(outcomes, now)
        window = lowering_window(life.asked, RULES)
        while wants[0][0] < now - window * (1 + 1 / BUCKETS) - 2 * CYCLE:
            wants.popleft()
        above = life.floor > max(floor for _, floor in wants)
        below = life.floor < min(floor for at, floor in wants if at >= now - 2 * CYCLE)
        if number * CYCLE < FIRST or night or not (above or below):
            continue
        held.above += above * CYCLE / HOUR
        held.below += below * CYCLE / HOUR
        held.advised += any(cause.fix == LENGTHEN for cause in decision.causes) * CYCLE / HOUR
        held.reasons[decision.reason.value] += 1
    return held


# Floors lowered falsely.

WAYS = ("the metric is renamed", "the other metric is renamed", "the targets are gone", "half of the targets fail")
METRICS = ("the metric", "the other metric")
BEFORE = HOUR
SETTLED = 90 * 60.0
"""Seconds after a loss from which the answers stay as they are: the queries for failed scrapes look back an hour."""


@dataclass
class Lost:
    """The shapes whose floor came down within a day of the loss: the minutes until then, from where, and how far."""

    way: str
    shapes: int = 0
    raised: int = 0
    lowered: dict[str, tuple[float, int, int]] = field(default_factory=dict)


def lost_world(way: str, at: float) -> list[Series]:
    """Return the series of two instances, of which *at* some are lost."""
    found = [Series("up", {"job": "other", "instance": "c"}, up)]
    for each in INSTANCES:
        labels = {"job": "e2e", "instance": each}
        gone, fails = way == "the targets are gone", way == "half of the targets fail" and each == "b"
        http, grpc = (at if gone or fails or way == f"{name} is renamed" else math.inf for name in METRICS)
        found.append(Series("http_total", labels, lambda now: 197.5 * (now - START), http))
        found.append(Series("grpc", labels, lambda _: 30.0, grpc))
        found.append(Series("up", labels, (lambda now: float(now <= at)) if fails else up, at if gone else math.inf))
    return found


def losses(way: str) -> Lost:
    at = START + BEFORE
    series = lost_world(way, at)
    known: dict[tuple[Query, float], QueryAnswer] = {}

    def ask(query: Query, now: float) -> QueryAnswer:
        key = (query, min(now, at + SETTLED))
        if key not in known:
            known[key] = outcome(query, series, key[1])
        return known[key]

    lost = Lost(way)
    for text in SHAPES:
        query = re.sub(r"(\d)s\b", r"\1m", text)
        life, now, high = Life(query, 10), START, LEAST
        while now < at + DAY:
            if now == at:
                high = life.floor
            life.judge({query: ask(query, now) for query in life.queries}, now)
            if now > at and life.floor < high:
                after = lost.lowered[query][0] if query in lost.lowered else (now - at) / 60
                lost.lowered[query] = (after, high, life.floor)
            now += CYCLE
        lost.shapes += 1
        lost.raised += high > LEAST
    return lost


# What is printed.


def bars(held: Sequence[Held], lost: Sequence[Lost]) -> dict[str, bool]:
    missing = [each.name for each in KINDS if each.missing]
    made = {}
    if held:
        true = [each for each in held if each.kind not in missing]
        made["no floor is held falsely while answers come"] = not any(each.above or each.below for each in true)
        gaps = [each for each in held if each.kind in missing]
        made["what holds it without them is said"] = all(each.advised >= 0.99 * each.above > 0 for each in gaps)
    if lost:
        made["every floor was raised before"] = all(each.raised == each.shapes for each in lost)
        fell = [(each.way, query, after) for each in lost for query, (after, _, _) in each.lowered.items()]
        made["no floor falls within an hour of a loss"] = all(after >= 60 for _, _, after in fell)
        made["none falls within a day where nothing answers instead, and no flag is gone"] = all(
            way == WAYS[-1] or any(each.group or each.optional for each in fallbacks(query).operands)
            for way, query, _ in fell
        )
    return made


def table(held: Sequence[Held], lost: Sequence[Lost]) -> str:
    lines = []
    if held:
        lines.append(f"{'hours of a week held falsely':52}{'above':>7}{'below':>7}  most often for")
        for one in held:
            why = ", ".join(name for name, _ in one.reasons.most_common(2))
            lines.append(f"{one.kind:52}{one.above:7.1f}{one.below:7.1f}  {why}")
    if lost:
        lines += ["", f"{'floors lowered falsely':52}{'shapes':>7}{'hour':>7}{'day':>7}"]
        for each in lost:
            hour = sum(after < 60 for after, _, _ in each.lowered.values())
            lines.append(f"{each.way:52}{each.shapes:7}{hour:7}{len(each.lowered):7}")
        for each in lost[:-1]:
            lines += [
                f"    {each.way}: {floor} -> {now} after {after:.0f} min: {query}"
                for query, (after, floor, now) in each.lowered.items()
            ]
    return "\n".join([*lines, "", *(f"{bar}: {'met' if met else 'NOT met'}" for bar, met in bars(held, lost).items())])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("holds", "losses"), help="one of the two")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    held = [week(kind) for kind in KINDS] if options.only != "losses" else []
    lost = [losses(way) for way in WAYS] if options.only != "holds" else []
    found = {"held": held, "lost": lost, "bars": bars(held, lost)}
    print(json.dumps(msgspec.to_builtins(found), indent=2) if options.json else table(held, lost))
    return 0 if all(bars(held, lost).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
