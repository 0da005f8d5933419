"""No floor falls when the series behind its query are lost, whatever fallback the query has: on a real Prometheus."""

from __future__ import annotations

import asyncio
import time

import pytest

from hpa_scaler.annotations.parsing import parse_spec
from hpa_scaler.annotations.queries import Failure
from hpa_scaler.annotations.spec import PREFIX, FloorSpec, Rules
from hpa_scaler.judge.decision import FloorDecision, Subject
from hpa_scaler.judge.history import FloorHistory
from hpa_scaler.judge.judge import judge_one, questions
from hpa_scaler.prometheus.client import DEFAULT, PrometheusClient
from tightship.objects import HorizontalPodAutoscaler
from tightship.objects.autoscaling import ScaleTargetRef
from tightship.objects.node import Condition
from tightship.objects.query_servers import Server, parse_address
from tightship_e2e.exporter import Exporter
from tightship_e2e.lost_series import SHAPES
from tightship_e2e.plugin import require_programs
from tightship_e2e.prometheus import Prometheus

pytestmark = pytest.mark.controlplane

ANNOTATIONS = {"requests-per-replica": "10", "lowering-window": "8s", "query-range": "5s"}
"""The window is as long as a rate takes to run out, as the default is; what is lost is lost for longer."""
RULES = Rules(rise_factor=0, maximum_factor=0)
CYCLE = 0.8


class Floor:
    """One HPA without an API server: what is decided is set."""

    def __init__(self, query: str) -> None:
        notes = {**ANNOTATIONS, "prometheus-query": query}
        asked = parse_spec({f"{PREFIX}/hpa-scaler-{name}": text for name, text in notes.items()})
        assert isinstance(asked, FloorSpec), asked
        self.query, self.asked, self.history = query, asked, FloorHistory()
        self.floor = 3

    def judge(self, outcomes: dict[object, object], now: float) -> FloorDecision:
        able = (Condition("AbleToScale", "True"), Condition("ScalingActive", "True"))
        hpa = HorizontalPodAutoscaler(
            namespace="shop", name="web", uid="u", labels={}, annotations={}, owner=None, deletion=None,
            min_replicas=self.floor, max_replicas=900, target=ScaleTargetRef("Deployment", "web", "apps/v1"),
            scale_up=None, scale_down=None, current_replicas=self.floor, desired_replicas=self.floor,
            conditions=able, managers=(),
        )  # fmt: skip
        subject = Subject(hpa=hpa, asked=self.asked, outcomes=outcomes, history=self.history, rules=RULES, now=now)  # type: ignore[arg-type]
        decision = judge_one(subject)
        self.history = decision.written if decision.changes else decision.history
        self.floor = decision.target
        return decision


class Shop:
    """All floors, asked about together."""

    def __init__(self, client: PrometheusClient) -> None:
        self.client = client
        self.floors = [Floor(each) for each in SHAPES]
        self.reported: dict[str, FloorDecision] = {}

    async def live(self, seconds: float) -> dict[str, list[int]]:
        """Let cycles pass for *seconds*, and return the floors that fell, from and to."""
        asked = questions([each.asked for each in self.floors], RULES)
        fell: dict[str, list[int]] = {}
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            outcomes = await self.client.ask(asked, 20)
            assert {q.text: o for q, o in outcomes.items() if isinstance(o, Failure)} == {}
            for each in self.floors:
                before = each.floor
                self.reported[each.query] = each.judge(dict(outcomes), time.time())
                if each.floor < before:
                    fell.setdefault(each.query, [before]).append(each.floor)
            await asyncio.sleep(CYCLE)
        return fell


@pytest.mark.takes(75)
async def test_no_floor_falls_with_its_series_whatever_the_fallback() -> None:
    require_programs("prometheus")
    assert len(set(SHAPES)) >= 40
    begin = time.monotonic()
    with Exporter() as one, Exporter() as two, Prometheus(one.target, two.target, interval=0.2) as prometheus:

        def named(name: str) -> None:
            for each in (one, two):
                each.set(name, lambda: 200 * (time.monotonic() - begin))

        named("http_total")
        for each in (one, two):
            each.set("grpc", 30)
        servers = {DEFAULT: Server(DEFAULT, parse_address(prometheus.url))}
        async with PrometheusClient(servers) as client:
            shop = Shop(client)
            await shop.live(14)
            high = {each.query: each.floor for each in shop.floors}
            assert {query: floor for query, floor in high.items() if floor < 9} == {}
            for each in shop.floors:
                each.floor = max(3, each.floor * 9 // 10)  # a rate that is read a little lower is no loss

            # A metric is renamed, and its targets stay up.
            for each in (one, two):
                each.remove("http_total")
            named("requests_total")
            assert await shop.live(14) == {}
            held = [query for query, reported in shop.reported.items() if "FallbackAnswer" in reported.reasons]
            assert len(held) >= 30
            named("http_total")
            assert await shop.live(8) == {}

            # A ServiceMonitor is removed: its targets are gone, with all their series.
            prometheus.scrape()
            assert await shop.live(14) == {}
            prometheus.scrape(one.target, two.target)
            assert await shop.live(8) == {}

            # Half the targets can't be scraped.
            two.stop()
            assert await shop.live(14) == {}
