"""Asking over HTTP on virtual time: what is sent, how often, and every way in which a server may fail.

What needs sockets is in ``test_sockets.py``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from hpa_scaler.annotations.queries import Failure, Query, QueryAnswer
from hpa_scaler.annotations.spec import ServerRef
from hpa_scaler.prometheus import client as client_module
from hpa_scaler.prometheus.client import ClientLimits
from tightship.objects.query_servers import AllowList
from tightship.objects.reasons import Reason

from .conftest import Prometheus, asking, body, failure_of, now, one, says, server, silent, trickling

pytestmark = pytest.mark.virtual_time


async def test_a_query_is_posted_with_how_long_it_may_take_and_without_a_time(
    prometheus: Prometheus,
) -> None:
    prometheus.otherwise = says(body("110.5"))
    async with asking(server(prometheus.url + "/prefix/", timeout=2.5)) as client:
        found = await one(client, 'sum(rate(x{a="ö&+"}[5m]))')
    assert isinstance(found, QueryAnswer)
    assert (found.series, found.highest) == (1, 110.5)
    assert found.seconds >= 0
    [seen] = prometheus.seen
    assert (seen.method, seen.path, seen.params) == ("POST", "/prefix/api/v1/query", {})
    assert seen.form == {"query": 'sum(rate(x{a="ö&+"}[5m]))', "timeout": "2500ms"}
    assert seen.headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("status", [403, 405, 501])
async def test_a_gateway_that_refuses_post_is_asked_by_get_from_then_on(
    prometheus: Prometheus, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def by_get(request: web.Request) -> web.StreamResponse:
        return await (says(body("7")) if request.method == "GET" else says("no", status))(request)

    prometheus.otherwise = by_get
    caplog.set_level("INFO")
    configured = server(prometheus.url, parameters=(("tenant", "a"),))
    async with asking(configured) as client:
        for _ in range(3):
            found = await one(client, 'sum(rate(x{a="ö&+"}[5m]))')
            assert isinstance(found, QueryAnswer)
            assert found.highest == 7
        client.configure({"default": configured}, AllowList(), ClientLimits())
        await one(client, "up")
    assert [each.method for each in prometheus.seen] == ["POST", "GET", "GET", "GET", "GET"]
    assert prometheus.seen[1].params == {
        "query": 'sum(rate(x{a="ö&+"}[5m]))',
        "timeout": prometheus.seen[0].form["timeout"],
        "tenant": "a",
    }
    assert [each.getMessage() for each in caplog.records if "refuses POST" in each.getMessage()] == [
        "server default refuses POST; queries go there by GET from now on"
    ]


async def test_who_refuses_get_as_well_is_no_gateway_for_get(prometheus: Prometheus) -> None:
    prometheus.otherwise = says("no right to query", 403)
    async with asking(server(prometheus.url)) as client:
        for _ in range(2):
            found = await one(client)
            assert isinstance(found, Failure)
            assert (found.reason, "HTTP 403: no right to query" in found.detail) == (Reason.HTTP_ERROR, True)
    assert [each.method for each in prometheus.seen] == ["POST", "GET"] * 2


async def test_an_equal_query_is_asked_once_however_it_names_its_server(prometheus: Prometheus) -> None:
    refs = [ServerRef(), ServerRef(name="default"), ServerRef(url=prometheus.url), ServerRef(name="same")]
    queries = [Query("up", ref) for ref in refs]
    async with asking(server(prometheus.url), server(prometheus.url, "same", headers=(("X", "1"),))) as client:
        outcomes = await client.ask([*queries, Query("down")], 60)
    assert Counter(prometheus.texts) == {"up": 2, "down": 1}
    assert all(isinstance(outcomes[query], QueryAnswer) for query in queries)


async def test_nothing_to_ask_is_nothing_asked(prometheus: Prometheus) -> None:
    async with asking(server(prometheus.url)) as client:
        assert await client.ask([], 60) == {}
    assert prometheus.seen == []


async def test_no_more_are_on_the_way_than_the_server_may_get(prometheus: Prometheus) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        return await says(body("1"))(request)

    prometheus.otherwise = slow
    async with asking(server(prometheus.url, concurrency=3)) as client:
        outcomes = await client.ask([Query(f"q{number}") for number in range(30)], 60)
    assert all(isinstance(each, QueryAnswer) for each in outcomes.values())
    assert len(prometheus.seen) == 30
    assert prometheus.most == 3


FAILING: list[tuple[str, Any, str, str]] = [
    ("silent after it accepted", silent, "TimedOut", "no answer within"),
    ("a body that trickles", trickling, "TimedOut", "no answer within"),
    ("not JSON", says("hello"), "BadAnswer", "not a Prometheus answer"),
    ("an error with 200", says({**body("7"), "status": "error"}), "BadAnswer", "the status is 'error'"),
    ("an error of the query", says({"status": "error", "errorType": "bad_data"}, 400), "QueryRejected", "bad_data"),
    ("a gateway's error", says("<html>", 502), "HttpError", "HTTP 502"),
    ("no right", says("who are you?", 401), "HttpError", "HTTP 401: who are you?"),
]


@pytest.mark.parametrize(("responder", "reason", "says_"), [each[1:] for each in FAILING], ids=[e[0] for e in FAILING])
async def test_a_failure_has_its_own_reason(prometheus: Prometheus, responder: Any, reason: str, says_: str) -> None:
    prometheus.otherwise = responder
    found = await failure_of(server(prometheus.url, timeout=10.0))
    # The server is given a fifth more than the query may take, to say so itself.
    assert found.seconds == (12 if responder in (silent, trickling) else 0)
    assert found.reason == reason
    assert says_ in found.detail


async def test_an_encoded_answer_is_not_unpacked(prometheus: Prometheus) -> None:
    async def encoded(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    prometheus.otherwise = encoded
    found = await failure_of(server(prometheus.url))
    assert (found.reason, found.detail) == (Reason.BAD_ANSWER, "encoded as gzip, which was not requested")


async def test_an_unknown_server_is_named_with_those_that_are_known(prometheus: Prometheus) -> None:
    async with asking(server(prometheus.url, "main"), server(prometheus.url, "other")) as client:
        found = await one(client, ref=ServerRef(name="mian"))
        default = await one(client)
    assert isinstance(found, Failure)
    assert (found.reason, found.detail) == (Reason.SERVER_UNKNOWN, "there is no server 'mian'; known are main, other")
    assert isinstance(default, Failure)
    assert default.detail.endswith("set PROMETHEUS_SERVER_URL or prometheusServers.default")


# Time.


async def test_a_server_that_hangs_holds_up_nobody_who_asks_another(
    prometheus: Prometheus, another: Prometheus
) -> None:
    prometheus.otherwise = silent
    queries = [Query(f"q{n}", ServerRef(name=name)) for n in range(50) for name in ("hangs", "works")]
    hanging, working = server(prometheus.url, "hangs", timeout=10), server(another.url, "works")
    async with asking(hanging, working) as client:
        outcomes = await client.ask(queries, 60)
    for query, found in outcomes.items():
        assert isinstance(found, QueryAnswer if query.server.name == "works" else Failure)
    assert len(prometheus.seen) <= 8 + 3


async def test_a_cycle_ends_at_its_deadline_with_what_it_has(prometheus: Prometheus, another: Prometheus) -> None:
    prometheus.otherwise = silent
    queries = [Query("a", ServerRef(name="hangs")), Query("b", ServerRef(name="works"))]
    async with asking(server(prometheus.url, "hangs", timeout=60), server(another.url, "works")) as client:
        began = now()
        outcomes = await client.ask(queries, 50)
        assert now() == began + 50
    late, fine = (outcomes[query] for query in queries)
    assert isinstance(fine, QueryAnswer)
    assert isinstance(late, Failure)
    assert (late.reason, late.detail) == (Reason.TIMED_OUT, "not answered within the 50 s of the cycle")


async def test_a_cycle_that_is_cancelled_leaves_nothing_behind(prometheus: Prometheus) -> None:
    prometheus.otherwise = silent
    async with asking(server(prometheus.url, timeout=60)) as client:
        asking_ = asyncio.create_task(client.ask([Query("a")], 60))
        await asyncio.sleep(1)
        assert prometheus.seen
        asking_.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking_
        assert [task for task in asyncio.all_tasks() if "queries to" in task.get_name()] == []


async def test_the_queries_of_one_hpa_never_delay_those_of_another(prometheus: Prometheus) -> None:
    slow = [Query(f"slow{number}") for number in range(16)]
    quick = [Query(f"quick{number}") for number in range(100)]
    prometheus.takes = dict.fromkeys((each.text for each in slow), 19.0)
    asks = {"greedy": slow, **{f"u{number}": [query] for number, query in enumerate(quick)}}
    async with asking(server(prometheus.url, timeout=30, concurrency=2)) as client:
        outcomes = await client.ask([*slow, *quick], 40, asks)
    assert [each for each in quick if not isinstance(outcomes[each], QueryAnswer)] == []
    late = [found for each in slow if isinstance(found := outcomes[each], Failure)]
    assert len(late) >= 14
    assert {(each.reason, each.detail) for each in late} == {
        (Reason.TIMED_OUT, "the queries of this HPA have had their 20 s of the cycle")
    }
    assert client.circuits() == {"default": "closed"}


async def test_a_query_of_many_costs_each_of_them_its_part_only(prometheus: Prometheus) -> None:
    shared, own = Query("shared"), [Query(f"own{number}") for number in range(10)]
    prometheus.takes = {"shared": 18.0, **dict.fromkeys((each.text for each in own), 3.0)}
    asks = {f"u{number}": [each, shared] for number, each in enumerate(own)}
    async with asking(server(prometheus.url, timeout=30)) as client:
        outcomes = await client.ask([shared, *own], 40, asks)
    assert [each for each in outcomes if not isinstance(outcomes[each], QueryAnswer)] == []


async def test_a_query_that_a_server_never_ends_opens_its_circuit_for_nobody(prometheus: Prometheus) -> None:
    bad = [Query(f"bad{number}") for number in range(16)]
    good = [Query(f"good{number}") for number in range(40)]
    prometheus.answers |= dict.fromkeys((each.text for each in bad), silent)
    asks = {"greedy": bad, **{f"u{number}": [query] for number, query in enumerate(good)}}
    async with asking(server(prometheus.url, timeout=5)) as client:
        for _ in range(3):
            outcomes = await client.ask([*bad, *good], 45, asks)
            assert [each for each in good if not isinstance(outcomes[each], QueryAnswer)] == []
        assert client.circuits() == {"default": "closed"}


async def test_what_each_asks_first_is_asked_first(prometheus: Prometheus) -> None:
    shared = Query("shared")
    asks = {f"u{number}": [Query(f"first{number}"), shared, Query(f"last{number}")] for number in range(20)}
    async with asking(server(prometheus.url, concurrency=1)) as client:
        await client.ask(sorted({each for queries in asks.values() for each in queries}), 60, asks)
    assert [each.rstrip("0123456789") for each in prometheus.texts] == ["first"] * 20 + ["shared"] + ["last"] * 20


# The circuit.


async def test_a_server_that_is_down_is_tried_a_few_times_only(prometheus: Prometheus) -> None:
    prometheus.otherwise = says("down", 503)
    one_by_one = server(prometheus.url, concurrency=1)
    async with asking(one_by_one, limits=ClientLimits(failures=3, pause=30)) as client:
        outcomes = await client.ask([Query(f"q{number}") for number in range(500)], 60)
        reasons = Counter(each.reason for each in outcomes.values() if isinstance(each, Failure))
        assert reasons == {Reason.HTTP_ERROR: 3, Reason.CIRCUIT_OPEN: 497}
        assert len(prometheus.seen) == 3
        assert client.circuits() == {"default": "open"}
        opened = await one(client, "later")
    assert isinstance(opened, Failure)
    assert opened.detail == "default gets no queries for another 30 s, because it failed: HTTP 503: down"


async def test_a_server_that_hangs_costs_one_timeout_not_two(prometheus: Prometheus) -> None:
    prometheus.otherwise = silent
    async with asking(server(prometheus.url, timeout=2.0, concurrency=8), limits=ClientLimits(failures=3)) as client:
        outcomes = await client.ask([Query(f"q{number}") for number in range(100)], 60)
    reasons = Counter(each.reason for each in outcomes.values() if isinstance(each, Failure))
    assert reasons == {Reason.TIMED_OUT: 8, Reason.CIRCUIT_OPEN: 92}
    assert len(prometheus.seen) == 8


async def test_after_its_pause_one_small_query_decides(prometheus: Prometheus) -> None:
    prometheus.otherwise = says("down", 503)
    async with asking(server(prometheus.url), limits=ClientLimits(failures=1, pause=30)) as client:
        await one(client, "heavy")
        await asyncio.sleep(30)
        assert client.circuits() == {"default": "half-open"}
        assert isinstance(await one(client, "heavy"), Failure)
        assert prometheus.texts == ["heavy", "1"]
        assert client.circuits() == {"default": "open"}
        await asyncio.sleep(30)
        prometheus.otherwise = says(body("4"))
        assert isinstance(await one(client, "heavy"), QueryAnswer)
        assert prometheus.texts == ["heavy", "1", "1", "heavy"]
        assert client.circuits() == {"default": "closed"}


@pytest.mark.parametrize(
    "refusal",
    [
        says({"status": "error", "errorType": "bad_data", "error": "x"}, 400),
        says({"status": "error", "errorType": "timeout", "error": "x"}, 503),
        says({"status": "error", "errorType": "bad_data", "error": "context deadline exceeded"}, 400),
        says(body()),
        says(body("NaN")),
    ],
    ids=["refused", "too slow, says the server", "no place in time, says the server", "empty", "NaN"],
)
async def test_what_a_server_says_of_a_query_is_no_outage(prometheus: Prometheus, refusal: Any) -> None:
    prometheus.otherwise = refusal
    async with asking(server(prometheus.url), limits=ClientLimits(failures=1)) as client:
        await client.ask([Query(f"q{number}") for number in range(10)], 60)
        assert client.circuits() == {"default": "closed"}
    assert len(prometheus.seen) == 10


@pytest.mark.parametrize(
    ("kind", "status"), [("too_many_requests", 429), ("unavailable", 503), ("internal", 500), ("canceled", 499)]
)
async def test_a_server_that_says_it_can_not_answer_is_left_alone(
    prometheus: Prometheus, kind: str, status: int
) -> None:
    prometheus.otherwise = says({"status": "error", "errorType": kind, "error": "not now"}, status)
    async with asking(server(prometheus.url, concurrency=1), limits=ClientLimits(failures=3)) as client:
        outcomes = await client.ask([Query(f"q{number}") for number in range(10)], 60)
        assert client.circuits() == {"default": "open"}
    reasons = Counter(each.reason for each in outcomes.values() if isinstance(each, Failure))
    assert reasons == {Reason.HTTP_ERROR: 3, Reason.CIRCUIT_OPEN: 7}
    assert len(prometheus.seen) == 3


async def test_a_failure_now_and_then_opens_nothing(prometheus: Prometheus) -> None:
    prometheus.answers["bad"] = says("oops", 500)
    async with asking(server(prometheus.url), limits=ClientLimits(failures=2)) as client:
        for _ in range(4):
            await one(client, "bad")
            await one(client, "good")
        assert client.circuits() == {"default": "closed"}


async def test_a_configuration_without_a_change_keeps_the_circuit(prometheus: Prometheus) -> None:
    prometheus.otherwise = says("down", 503)
    given, limits = server(prometheus.url), ClientLimits(failures=1)
    async with asking(given, limits=limits) as client:
        await one(client)
        client.configure({"default": given}, client._directory._allowed, limits)
        assert client.circuits() == {"default": "open"}
        await one(client)
        assert len(prometheus.seen) == 1
        client.configure({"default": server(prometheus.url, timeout=3)}, client._directory._allowed, limits)
        await one(client)
        assert len(prometheus.seen) == 2


async def test_what_is_asked_is_observed(prometheus: Prometheus) -> None:
    seen: list[tuple[str, str]] = []
    prometheus.answers["bad"] = says("oops", 500)
    async with asking(
        server(prometheus.url), observe=lambda name, what, seconds: seen.append((name, what)) if seconds >= 0 else None
    ) as client:
        await client.ask([Query("up"), Query("bad")], 60)
    assert sorted(seen) == [("default", "HttpError"), ("default", "answered")]


async def test_a_defect_met_by_one_query_costs_no_other_its_answer(
    prometheus: Prometheus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = client_module.outcome

    def broken(status: int, raw: bytes, *more: Any, **named: Any) -> Any:
        if b"odd" in raw:
            raise ZeroDivisionError("division by zero")
        return real(status, raw, *more, **named)

    monkeypatch.setattr(client_module, "outcome", broken)
    prometheus.answers["odd"] = says("odd")
    async with asking(server(prometheus.url)) as client:
        outcomes = await client.ask([Query("odd"), Query("even")], 60)
    found = outcomes[Query("odd")]
    assert isinstance(found, Failure)
    assert found.detail == "default: unexpected ZeroDivisionError: division by zero"
    assert isinstance(outcomes[Query("even")], QueryAnswer)
    assert "failed unexpectedly" in caplog.text
