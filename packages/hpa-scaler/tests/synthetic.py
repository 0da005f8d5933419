"""The past of an HPA whose truth is known: traffic, and replicas as the HPA controller's arithmetic makes them."""

from __future__ import annotations

import math
import random
from array import array

import msgspec
from hpa_builder import annotated, hpa
from msgspec import Struct

from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.queries import value_query
from hpa_scaler.annotations.spec import FloorSpec, Rules
from hpa_scaler.backtest.replay import BacktestSetup, RecordedHpa
from hpa_scaler.prometheus.samples import Trace
from tightship.objects.horizontal import ReplicaLoop

STEP = 120.0
BEGIN = 1_800_000_000.0
DAY = 86_400.0


class Truth(Struct, frozen=True):
    """A past, and what one replica of it carries at its end; *flat* says that the HPA never left its floor."""

    past: RecordedHpa
    setup: BacktestSetup
    per_replica: float
    flat: bool


def truth(seed: int, days: int = 6) -> Truth:
    """Return a past by *seed*: noise, a trend, perhaps a deploy, an outage and a cold start, metrics or replicas."""
    dice = random.Random(seed)
    load = math.exp(dice.uniform(math.log(3), math.log(800)))
    deploy = dice.random() < 0.35
    changed = dice.uniform(0.6, 0.8) if dice.random() < 0.5 else dice.uniform(1.2, 1.6)
    deployed = dice.uniform(0.2, 0.9) * days * DAY if deploy else math.inf
    base = dice.uniform(6, 60)
    trend = dice.uniform(-0.3, 0.3) / (days * DAY)
    noise, lag = dice.uniform(0.01, 0.12), dice.randrange(3)
    outage = dice.uniform(0.2, 0.8) * days * DAY if dice.random() < 0.5 else math.inf
    away = dice.uniform(600, 6 * 3600)
    minimum = 3 if dice.random() < 0.9 else 200
    measured = dice.random() < 0.5
    count = int(days * DAY / STEP)
    loop, replicas, drift = ReplicaLoop(), max(minimum, math.ceil(base)), 0.0
    answers, counts, running, wanted = array("d"), bytearray(), array("d"), array("d")
    needs: list[float] = []
    for number in range(count):
        at = number * STEP
        drift = 0.8 * drift + dice.gauss(0, noise) * 0.6
        wave = 1 + 0.6 * math.sin(2 * math.pi * at / DAY) + 0.1 * math.sin(14 * math.pi * at / DAY)
        pods = max(0.5, base * wave * (1 + trend * at) * math.exp(drift))
        rate = pods * load
        carries = load * (changed if at >= deployed else 1.0)
        needs.append(rate / carries * math.exp(dice.gauss(0, 0.03)))
        seen = needs[max(0, number - lag)]
        replicas = loop.look(at, replicas, seen / replicas, minimum, 1000)
        gone = outage <= at < outage + away
        cold = min(1.0, max(0.05, (at - outage - away) / 600)) if at >= outage + away else 1.0
        answers.append(math.nan if gone else rate * cold)
        counts.append(not gone)
        running.append(replicas)
        wanted.append(seen)
    query = "sum(rate(requests_total[5m]))"
    notes = annotated(prometheus_query=query, requests_per_replica=f"{load * dice.uniform(0.5, 1.2):.4g}")
    spec = parse_spec(notes)
    assert isinstance(spec, FloorSpec)

    def trace(values: array[float], known: bytearray | None = None) -> Trace:
        return Trace(BEGIN, STEP, values, bytearray(b"\1" * count) if known is None else known)

    past = RecordedHpa(
        hpa=msgspec.structs.replace(hpa(minimum, 1000, replicas), annotations=notes),
        traces={value_query(spec.queries[0]): trace(answers, counts)},
        yardstick=spec,
        wanted=trace(wanted) if measured else None,
        replicas=trace(running),
    )
    setup = BacktestSetup(Rules(), BEGIN, BEGIN + days * DAY, interval=300.0, drawn=0)
    setup = msgspec.structs.replace(setup, rules=msgspec.structs.replace(setup.rules, longest_gap=1200.0))
    return Truth(past, setup, load * (changed if deploy else 1.0), max(running) <= minimum)
