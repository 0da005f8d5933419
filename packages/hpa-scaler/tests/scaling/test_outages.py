"""A Prometheus that fails in every way there is, and floors that stand all the while."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tightship_simulator.life.prometheus import Outage, Prometheus
from tightship_simulator.life.responders import Responder, body, cut_off, fails, redirects, says, silent, success
from tightship_simulator.life.scraping import Exporter, Past, Places
from tightship_testkit.fleet import GUARDED, PER_POD, Fleet
from tightship_testkit.stall import Stall, stall

pytestmark = pytest.mark.virtual_time

ASKS = {"prometheus_query": "rate", "requests_per_replica": 10, "minimum_replicas": 1}
WEB = {**PER_POD, "prometheus_query": "sum(load)"}
SLOW = "vector(1) + vector(1)"

PAGE = says("<html><h1>502 Bad Gateway</h1></html>", 502, "text/html")
HALF = '{"status":"success","data":{"resultType":"vector","result":[{"met'

BETWEEN: Mapping[str, tuple[Responder, str]] = {
    "hangs": (silent, "TimedOut"),
    "cut-off": (cut_off(b'{"status":"success","data":{"resultType":"vector","result":[]}}', 40), "ConnectionFailed"),
    "no-place": (fails(400, "bad_data", 'invalid parameter "query": context deadline exceeded'), "TimedOut"),
    "throttled": (fails(429, "too_many_requests", "too many outstanding requests"), "HttpError"),
    "broken": (fails(500, "internal", "expanding series: no store"), "HttpError"),
    "starting": (fails(503, "unavailable", "not ready"), "HttpError"),
    "gateway": (PAGE, "HttpError"),
    "half": (says(HALF), "BadAnswer"),
    "error-200": (says({**success([]), "status": "error"}), "BadAnswer"),
    "partial": (says(body("3", warnings=["a store is away"])), "AnswerWithWarnings"),
    "is-partial": (says(body("3", isPartial=True)), "AnswerWithWarnings"),
    "error-beside": (says(body("3", errorType="execution", error="a shard is away")), "AnswerWithWarnings"),
    "not-its-own": (says(body("3"), 203), "AnswerWithWarnings"),
    "a-part": (says(body("3"), 206), "AnswerWithWarnings"),
    "a-day-old": (says(body("3", at=1.0)), "AnswerWithWarnings"),
    "of-the-future": (says(body("3", at=4e9)), "AnswerWithWarnings"),
    "negative": (says(body("-3")), "Negative"),
}
"""What something between us and Prometheus makes of the query of an HPA, and the reason that it has then."""

NATIVE: Mapping[str, tuple[str, str]] = {
    "unparsable": ("sum(load{", "QueryRejected"),
    "slow": (SLOW, "TimedOut"),
    "matrix": ("load[5m]", "WrongResultType"),
    "text": ('"72"', "WrongResultType"),
    "absent": ("sum(lod)", "EmptyResult"),
    "beyond": ("sum(load) * 1e300", "OutOfRange"),
}
"""What its author made of a query, and what Prometheus has for that."""

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


@pytest.fixture
def exporter() -> Exporter:
    """What is scraped."""
    made = Exporter()
    for name, value in {"load": 72, "one": 1, "half": 0.5}.items():
        made.set(name, value)
    made.set("twin", 0, n="1")
    return made


@pytest_asyncio.fixture
async def on(tmp_path: Path, exporter: Exporter) -> AsyncIterator[Stall]:
    """A cluster whose Prometheus has scraped what there is for an hour."""
    prometheus = Prometheus(past=Past([exporter]), places=Places(20, 5.0))
    prometheus.takes[SLOW] = 7.0
    async with stall(tmp_path, prometheus=prometheus) as made:
        await made.sleep(3600)
        yield made


async def test_no_useless_answer_lowers_and_each_has_its_reason(on: Stall, exporter: Exporter) -> None:
    fleet = Fleet(on)
    await on.configured({**GUARDED, "circuitBreakerFailures": 1000})
    ratio = {"scale_down_max_ratio": 0.2}
    notes = {name: {**PER_POD, **ratio, "prometheus_query": query(name)} for name in ALL}
    notes["several"] |= {"several_series": "error"}
    await fleet.stand(notes)
    fleet.start()
    await fleet.until_floors(dict.fromkeys(ALL, 8))

    # All at once, and each in its own way.
    for name, (responder, _) in BETWEEN.items():
        on.prometheus.answers[query(name)] = responder
    for name, (text, _) in NATIVE.items():
        await on.annotate(name, prometheus_query=text)
    exporter.set("one", 0)
    exporter.set("half", -1)
    exporter.set("twin", 0, n="2")
    await fleet.until_reported(ALL)
    await fleet.cycles(10)
    assert await fleet.floors(ALL) == dict.fromkeys(ALL, 8)
    # What was scaled up meanwhile still raises its floor.
    await fleet.scale(ALL, 12)
    await fleet.until_floors(dict.fromkeys(ALL, 10))
    await fleet.cycles(10)
    assert fleet.lowered(ALL) == {}

    # Mended, they follow again by themselves.
    on.prometheus.answers.clear()
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


async def test_a_server_that_hangs_or_is_gone_lowers_nothing_and_following_goes_on_by_itself(
    on: Stall, exporter: Exporter
) -> None:
    """Held up, killed and back, and without anything to scrape; meanwhile the ratio raises what was scaled up."""
    fleet = Fleet(on)
    await on.configured({**GUARDED, "prometheusServers": {"default": {"timeout": "5s", "maximumConcurrency": 4}}})
    names = ["web", "step"]
    await fleet.stand({"web": WEB, "step": {**WEB, "scale_down_max_ratio": 0.2}}, maximum=60)
    fleet.start()
    await fleet.until_floors({"web": 8, "step": 8})

    async def meanwhile(*reported: str, scaled: int, raised: int) -> None:
        for reason in reported:
            await fleet.until_events(dict.fromkeys(names, reason))
        await fleet.scale(["step"], scaled)
        await fleet.until_floors({"web": 8, "step": raised})
        await fleet.cycles(10)
        assert await fleet.floors(names) == {"web": 8, "step": raised}
        assert fleet.lowered(names) == {}

    on.prometheus.outage = Outage.SILENT
    await meanwhile("TimedOut", "CircuitOpen", scaled=20, raised=16)
    on.prometheus.outage = Outage.NONE
    await fleet.until_reported({"web": "FollowsQuery"})
    await on.prometheus.kill()
    await meanwhile("ConnectionFailed", "CircuitOpen", scaled=30, raised=24)
    explained = await fleet.explained("web", on.prometheus.url)
    assert (explained["action"], explained["reasons"][0]) == ("hold", "ConnectionFailed")
    assert explained["minimum"] == {"now": 8, "after": 8}
    await on.prometheus.start()
    await fleet.until_reported({"web": "FollowsQuery"})
    exporter.set("load", 73)
    await on.sleep(60)
    exporter.stop()
    await meanwhile("EmptyResult", scaled=40, raised=32)
    exporter.start()
    exporter.set("load", 90)
    await fleet.until_floors({"web": 10, "step": 32})
    exporter.set("load", 41)
    await fleet.until_floors({"web": 5})
    assert fleet.moves("web") == [(2, 8), (8, 10), (10, 5)]
    assert fleet.moves("step") == [(2, 8), (8, 16), (16, 24), (24, 32)]


# Several servers.


async def test_each_server_is_asked_with_what_it_needs_and_what_it_refuses_lowers_nothing(
    on: Stall, exporter: Exporter, tmp_path: Path
) -> None:
    """But for TLS, which is in ``prometheus/test_servers.py``: here a server is unknown by its port."""
    token = tmp_path / "token"
    token.write_text("first\n")
    elsewhere, credentials = "http://127.0.0.2:9/api/v1/query", "http://169.254.169.254/latest"
    before = {name: Prometheus(past=Past([exporter])) for name in ("bearer", "tenant", "plainly", "moved")}
    before["bearer"].demands = {"Authorization": "Bearer first"}
    before["tenant"].demands = {"X-Scope-OrgID": "shop"}
    fleet = Fleet(on)
    async with AsyncExitStack() as stack:
        for each in before.values():
            await stack.enter_async_context(each.served())
        needs: Mapping[str, Mapping[str, object]] = {
            "bearer": {"bearerTokenFile": str(token)},
            "tenant": {"headers": {"X-Scope-OrgID": "shop"}},
            "plainly": {},
            "moved": {},
        }
        servers = {name: {"url": before[name].url, **each} for name, each in needs.items()}
        servers["stranger"] = {"url": "http://127.0.0.1:9"}
        servers["secretive"] = {"url": on.prometheus.url, "bearerTokenFile": str(tmp_path / "no-such-token")}
        await on.configured({**GUARDED, "prometheusServers": servers, "circuitBreakerFailures": 1000})
        await on.sleep(3600)
        on_default = ["plain", "mistaken", "untrusted", "linked"]
        names = [*needs, *on_default]
        own = {name: {"prometheus_server": name} for name in needs}
        await fleet.stand({name: {**WEB, **own.get(name, {})} for name in names})
        fleet.start()
        await fleet.until_floors(dict.fromkeys(names, 8))
        shown = before["bearer"].seen[-1].headers
        assert (shown["Authorization"], shown.get("X-Scope-OrgID")) == ("Bearer first", None)

        # Each is refused in its own way, and only the one that is not goes on.
        before["bearer"].demands = {"Authorization": "Bearer second"}
        before["tenant"].demands = {"X-Scope-OrgID": "other"}
        before["moved"].otherwise = redirects(elsewhere)
        await on.annotate("plainly", prometheus_server="stranger")
        await on.annotate("mistaken", prometheus_server="no-such-server")
        await on.annotate("untrusted", prometheus_server="secretive")
        await on.annotate("linked", prometheus_server_url=credentials)
        reported = {
            "bearer": "HttpError",
            "tenant": "HttpError",
            "moved": "ServerNotAllowed",
            "plainly": "ConnectionFailed",
            "mistaken": "ServerUnknown",
            "untrusted": "CredentialsUnreadable",
            "linked": "ServerNotAllowed",
        }
        await fleet.until_reported(reported)
        exporter.set("load", 41)
        await fleet.until_floors({"plain": 5})
        exporter.set("load", 91)
        await fleet.until_floors({"plain": 10})
        await fleet.cycles()
        assert await fleet.floors(reported) == dict.fromkeys(reported, 8)
        assert fleet.lowered(reported) == {}

        # A token that is renewed where it is mounted; the others are mended.
        token.write_text("second\n")
        before["tenant"].demands = {}
        before["moved"].otherwise = None
        await on.annotate("plainly", prometheus_server="plainly")
        await fleet.annotate(["mistaken", "untrusted"], prometheus_server=None)
        await on.annotate("linked", prometheus_server_url=None)
        await fleet.until_floors(dict.fromkeys(names, 10))
        assert before["bearer"].seen[-1].headers["Authorization"] == "Bearer second"


async def test_a_server_that_is_slow_or_hangs_holds_up_nobody_who_asks_another(on: Stall, exporter: Exporter) -> None:
    """One place for all queries, three that never leave it; then nothing at all from it, and many who ask."""
    hogs = ["hog-1", "hog-2", "hog-3"]
    starved = [*hogs, "behind"]
    crowd = [f"crowd-{number}" for number in range(50)]
    slow = Prometheus(past=Past([exporter]), places=Places(1, 30.0))
    heavy = {name: f"{SLOW} # {name}" for name in hogs}
    slow.takes = dict.fromkeys(heavy.values(), 20.0)
    async with slow.served():
        fleet = Fleet(on)
        servers = {"slow": {"url": slow.url, "timeout": "5s"}}
        await on.configured(
            {**GUARDED, "prometheusServers": servers, "circuitBreakerFailures": 1000, "queryDeadline": "15s"}
        )
        await on.sleep(3600)
        on_slow = {**WEB, "prometheus_server": "slow"}
        await fleet.stand({"plain": WEB, **dict.fromkeys(starved, on_slow)})
        fleet.start()
        await fleet.until_floors(dict.fromkeys(["plain", *starved], 8))

        for name, query in heavy.items():
            await fleet.annotate([name], prometheus_query=query)
        await fleet.until_reported(dict.fromkeys(starved, "TimedOut"))
        exporter.set("load", 41)
        await fleet.until_floors({"plain": 5})
        # Its places being taken is nobody's bad query.
        outcomes = {labels for labels in await fleet.samples("tightship_hpa_queries_total") if "slow" in labels}
        assert outcomes == {("answered", "slow"), ("TimedOut", "slow")}
        assert fleet.lowered(hogs) == {}

        slow.outage = Outage.SILENT
        await fleet.stand({name: {**on_slow, "prometheus_query": f"sum(load) # {name}"} for name in crowd}, minimum=8)
        await fleet.until_reported({"crowd-1": "TimedOut", "behind": "TimedOut"})

        async def asked() -> float:
            return (await fleet.samples("tightship_hpa_queries_total"))["TimedOut", "slow"]

        asked_before, cycles_before = await asked(), fleet.replica.log.count('"judged"')
        exporter.set("load", 91)
        await fleet.until_floors({"plain": 10})
        await fleet.cycles(2)
        assert fleet.lowered([*hogs, *crowd]) == {}
        # Eight at once, and 6 s for each: after two rounds a cycle is done with it. All of them would be 39 s.
        more = await asked() - asked_before
        assert 0 < more <= 2 * 8 * (fleet.replica.log.count('"judged"') - cycles_before + 1)
