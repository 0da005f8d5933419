"""Every answer that says nothing of use, from a real Prometheus or something in between, each to an HPA of its own."""

from __future__ import annotations

import random
import urllib.parse
from collections.abc import Iterator, Mapping

import pytest
from fleets import GUARDED, PER_POD, Fleet, scraped
from floors import Open, Shop

from tightship_e2e.exporter import Exporter
from tightship_e2e.prometheus import SLOW, Prometheus, failure, success
from tightship_testkit.fault_proxy import Proxy
from tightship_testkit.faults import Call, Fault, Hang, ResetMidAnswer, Verbatim

PAGE = Verbatim(502, "<html><h1>502 Bad Gateway</h1></html>", "text/html")

BETWEEN: Mapping[str, tuple[Fault, str]] = {
    "hangs": (Hang(), "TimedOut"),
    "cut-off": (ResetMidAnswer(40), "ConnectionFailed"),
    "no-place": (failure(400, "bad_data", 'invalid parameter "query": context deadline exceeded'), "TimedOut"),
    "throttled": (failure(429, "too_many_requests", "too many outstanding requests"), "HttpError"),
    "broken": (failure(500, "internal", "expanding series: no store"), "HttpError"),
    "starting": (failure(503, "unavailable", "not ready"), "HttpError"),
    "gateway": (PAGE, "HttpError"),
    "half": (Verbatim(200, '{"status":"success","data":{"resultType":"vector","result":[{"met'), "BadAnswer"),
    "error-200": (Verbatim(200, '{"status":"error","data":{"resultType":"vector","result":[]}}'), "BadAnswer"),
    "partial": (success([{"metric": {}, "value": [1.5, "3"]}], warnings=["a store is away"]), "AnswerWithWarnings"),
}
"""What something between us and Prometheus makes of the query of an HPA, and the reason that it has then."""

NATIVE: Mapping[str, tuple[str, str]] = {
    "unparsable": ("sum(load{", "QueryRejected"),
    "slow": (SLOW, "TimedOut"),
    "matrix": ("load[5s]", "WrongResultType"),
    "text": ('"72"', "WrongResultType"),
    "absent": ("sum(lod)", "EmptyResult"),
    "beyond": ("sum(load) * 1e300", "OutOfRange"),
}
"""What its author made of a query, and what the real Prometheus has for that."""

TURNED: Mapping[str, tuple[str, str]] = {
    "no-number": ("sum(load) * scalar(one) / scalar(one)", "NotANumber"),
    "infinite": ("sum(load) / scalar(one)", "Infinite"),
    "many-to-many": ("sum(load) + on() twin", "QueryRejected"),
    "warned": ("clamp_min(quantile(scalar(half), load), 5)", "AnswerWithWarnings"),
    "several": ("sum by (n) (load) + on() group_right twin", "SeveralSeries"),
}
"""Queries that were good until their series changed, and the reason that follows then."""

ALL = {name: reason for table in (BETWEEN, NATIVE, TURNED) for name, (_, reason) in table.items()}


def query(name: str) -> str:
    """Return the query of an HPA as it should be; each has a text of its own."""
    return TURNED[name][0] if name in TURNED else f"sum(load) # {name}"


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Exporter, Prometheus]]:
    with scraped(flags=["--query.timeout=500ms"], load=72, one=1, half=0.5) as made:
        made[0].set("twin", 0, n="1")
        yield made


async def between(call: Call) -> Fault | None:
    """Disturb the queries of :data:`BETWEEN`."""
    text = dict(urllib.parse.parse_qsl(call.body.decode()))["query"]
    return BETWEEN.get(text.rpartition("# ")[2], (None, ""))[0]


def test_no_useless_answer_lowers_and_each_has_its_reason(in_shop: Open, running: tuple[Exporter, Prometheus]) -> None:
    exporter, prometheus = running

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured(
            {**GUARDED, "circuitBreakerFailures": 1000, "prometheusServers": {"default": {"timeout": 1}}}
        )
        ratio = {"scale_down_max_ratio": 0.2}
        notes = {name: {**PER_POD, **ratio, "prometheus_query": query(name)} for name in ALL}
        notes["several"] |= {"several_series": "error"}
        await fleet.stand(notes)
        async with Proxy(prometheus.url) as proxy:
            fleet.start(proxy.url)
            await fleet.until_floors(dict.fromkeys(ALL, 8))

            # All at once, and each in its own way.
            proxy.plan = between
            for name, (text, _) in NATIVE.items():
                await on.annotate(name, prometheus_query=text)
            exporter.set("one", 0)
            exporter.set("half", -1)
            exporter.set("twin", 0, n="2")
            await fleet.until_told(ALL)
            await fleet.cycles(2)
            assert await fleet.floors(ALL) == dict.fromkeys(ALL, 8)
            # What was scaled up meanwhile still raises its floor.
            await fleet.scale(ALL, 12)
            await fleet.until_floors(dict.fromkeys(ALL, 10))
            await fleet.cycles(2)
            assert fleet.lowered(ALL) == {}

            # Mended, they follow again by themselves.
            proxy.plan = None
            for name in NATIVE:
                await on.annotate(name, prometheus_query=query(name))
            for series, value in {"load": 110, "one": 1, "half": 0.5}.items():
                exporter.set(series, value)
            exporter.remove("twin", n="2")
            await fleet.until_floors(dict.fromkeys(ALL, 12))
            await fleet.annotate(ALL, scale_down_max_ratio=None)
            exporter.set("load", 41)
            await fleet.until_floors(dict.fromkeys(ALL, 5))
            for name in ALL:
                assert fleet.moves(name) == [(2, 8), (8, 10), (10, 12), (12, 5)]

    in_shop(work)


def test_a_wobble_is_written_at_most_once(in_shop: Open, running: tuple[Exporter, Prometheus]) -> None:
    exporter, prometheus = running
    # Not in turn: cycles that lasted an even number of scrapes would see but one of the two.
    chance = random.Random(7)
    exporter.set("wobble", lambda: 72 * chance.choice((1.05, 0.95)))
    prometheus.wait_for_value("wobble", lambda value: value is not None)

    async def work(on: Shop) -> None:
        fleet = Fleet(on)
        await on.configured(GUARDED)
        ways: Mapping[str, Mapping[str, object]] = {
            "band": {"deadband": "15%"},
            "window": {"lowering_window": "10m"},
            "both": {"deadband": 1, "lowering_window": "10m"},
            "follows": {},
        }
        await fleet.stand({name: {**PER_POD, **way, "prometheus_query": "wobble"} for name, way in ways.items()})
        fleet.start(prometheus.url)

        # Up to the crest, from where all but one stay.
        await fleet.until_floors(dict.fromkeys(ways.keys() - {"follows"}, 9))
        fleet.patches()
        patches: list[str] = []

        async def wobbled() -> bool:
            patches.extend(fleet.patches())
            return patches.count("follows") >= 5

        await on.until(wobbled, "five times up or down", 180)
        assert {name: patches.count(name) for name in ways if patches.count(name) > 1}.keys() == {"follows"}

    in_shop(work)
