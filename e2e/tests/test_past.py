"""The past of a query as the real Prometheus tells it: limits of samples, a short retention, and a forecast of it."""

from __future__ import annotations

import logging
import time

import pytest

from hpa_scaler.annotations.queries import Query
from hpa_scaler.annotations.spec import ForecastSpec
from hpa_scaler.forecast.reader import ForecastReader
from hpa_scaler.prometheus.client import DEFAULT, PrometheusClient
from hpa_scaler.prometheus.ranges import RangeRequest, fetch
from tightship.objects.query_servers import Server, parse_address
from tightship_e2e.plugin import require_programs
from tightship_e2e.prometheus import Prometheus

pytestmark = pytest.mark.controlplane

DAY, CELL, DAYS = 86_400, 300, 5
LOAD, TWINS = Query("sum(load)"), Query("load")


def past(now: int) -> str:
    """Five days of two series every five minutes, whose sum doubles for two hours, soon at this time of each day."""
    lines = ["# TYPE load gauge"]
    for name in ("a", "b"):
        for at in range(now - DAYS * DAY, now, CELL):
            high = 600 <= (at - now) % DAY < 7800
            lines.append(f'load{{pod="{name}"}} {200 if high else 100} {at}')
    return "\n".join([*lines, "# EOF", ""])


@pytest.mark.takes(8)
async def test_the_past_of_a_real_prometheus_is_read_in_parts_and_forecast_from() -> None:
    require_programs("prometheus", "promtool")
    now = int(time.time()) // CELL * CELL
    with Prometheus(flags=["--query.max-samples=700", "--storage.tsdb.retention.time=30d"]) as prometheus:
        prometheus.stop()
        prometheus.backfill(past(now))
        prometheus.start()
        servers = {DEFAULT: Server(DEFAULT, parse_address(prometheus.url))}
        async with PrometheusClient(servers) as client:
            found = await fetch(client, [LOAD, TWINS], RangeRequest(now - 7 * DAY, now - CELL, CELL), lambda _: None)
            reader = ForecastReader(client, logging.getLogger("test"), time.time)
            key = (LOAD, ForecastSpec("daily"))
            reader.want([key])
            assert await reader.read_next()
            expected = reader.expected(now + 1)[key]
    whole, twins = found.traces[LOAD], found.traces[TWINS]
    assert (whole.begin, whole.step) == (now - DAYS * DAY, CELL)
    assert set(whole.values) == {200.0, 400.0}
    assert set(twins.counts) == {2}
    detail = " ".join(found.remarks)
    assert "the data begin only at" in detail
    assert "of several series" in detail
    assert "no answers for" not in detail
    assert expected.seasons == 4
    assert expected.value == pytest.approx(400, rel=0.05)
