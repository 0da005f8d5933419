"""Six days of real traffic with a real outage, replayed cycle by cycle: a minute each, the rate taken a thousandfold.

The outage of 37.7 hours is taken for one of the metrics: queries fail, and afterwards the server has only what it has
seen since, so that a rate over five minutes reads low for five minutes.
"""

from __future__ import annotations

import math

import msgspec
import pytest
from hpa_builder import HpaCycles, answer, failure, hpa, spec
from traffic import longest_silence, requests_of_1995

from hpa_scaler.annotations.queries import Query
from hpa_scaler.annotations.spec import Rules

SCALE = 1000.0
PER_REPLICA = 20.0
RANGE = 5
AGE = Query("time() - min(min_over_time(timestamp(up)[300s:15s]))")
ASKED = spec(
    prometheus_query="sum(rate(requests_total[5m]))",
    requests_per_replica="20",
    scale_down_max_ratio="0.1",
    lowering_window="10m",
    deadband="5%",
)


def test_the_outage_lowers_nothing_and_quiet_nights_do() -> None:
    minutes = requests_of_1995()[: 6 * 24 * 60]
    rates = [rate * SCALE for _, rate in minutes]
    down, up = longest_silence(rates)
    assert (up - down) / 60 == pytest.approx(37.7, abs=0.1)

    cycles = HpaCycles(hpa(3, 400, 30), ASKED, Rules())
    floors, changes = [], 0
    for minute, (at, _) in enumerate(minutes):
        seen_from = max(0, minute - RANGE, up if minute >= up else 0)
        value = sum(rates[seen_from : minute + 1]) / (RANGE + 1)
        age = min(RANGE * 60.0, 60.0 * (minute - (up if minute >= up else 0)))
        cycles.now = at
        answered = failure() if down <= minute < up else answer(value)
        decision = cycles.cycle(answered, others={} if down <= minute < up else {AGE: answer(age)})
        changes += decision.changes
        floors.append(cycles.bounds[0])
        # The HPA of this story wants a tenth more than the floor does, and takes a tenth of its pods away at most.
        wanted = math.ceil(1.1 * value / PER_REPLICA) if not down <= minute < up else 0
        now = cycles.hpa.current_replicas or 0
        replicas = max(cycles.bounds[0], min(cycles.bounds[1], wanted), math.floor(now * 0.9))
        cycles.hpa = msgspec.structs.replace(cycles.hpa, current_replicas=replicas)

    before = floors[down - 1]
    assert before > 20
    assert min(floors[down : up + RANGE]) >= before
    assert max(floors[down:up]) <= before * 1.5
    # It is never below what the true rate wants, and comes down: in the quietest minutes to a small part of the peak.
    for minute in range(RANGE, len(minutes)):
        if not down <= minute <= up + RANGE:
            true = sum(rates[minute - RANGE : minute + 1]) / (RANGE + 1)
            assert floors[minute] >= math.ceil(true / PER_REPLICA - 1e-9)
    later = floors[up + 24 * 60 :]
    assert min(later) * 5 < max(later)
    assert changes < len(minutes) / 4
