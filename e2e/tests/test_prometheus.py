"""The real Prometheus, what it scrapes, and a proxy before it: each can be made to fail as in the field."""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from parents import leaves_nothing

from tightship_e2e import binaries
from tightship_e2e.exporter import Exporter, growing
from tightship_e2e.plugin import require_programs
from tightship_e2e.prometheus import SLOW, Prometheus, failure, success
from tightship_testkit.client import Json, wait_for
from tightship_testkit.credentials import Authority
from tightship_testkit.fault_proxy import Proxy
from tightship_testkit.faults import Fault, Hang, ResetMidAnswer, Slow, Verbatim, always, demanding
from tightship_testkit.processes import ServerError

INTERVAL = 0.2
DEADLINE = 60.0
SHORT = 0.5  # seconds in which a server that runs has answered long since


@contextmanager
def both() -> Iterator[tuple[Exporter, Prometheus]]:
    require_programs("prometheus")
    with Exporter() as exporter, Prometheus(exporter.target, interval=INTERVAL) as prometheus:
        exporter.set("requests", 12.5, app="web")
        prometheus.wait_for_value("requests", 12.5)
        yield exporter, prometheus


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Exporter, Prometheus]]:
    """One for the tests that leave it as it is."""
    with both() as made:
        yield made


@pytest.fixture
def exporter(running: tuple[Exporter, Prometheus]) -> Exporter:
    return running[0]


@pytest.fixture
def prometheus(running: tuple[Exporter, Prometheus]) -> Prometheus:
    return running[1]


@pytest.fixture
def own() -> Iterator[tuple[Exporter, Prometheus]]:
    """One for a test that stops the exporter, or kills or empties Prometheus."""
    with both() as made:
        yield made


def vector(prometheus: Prometheus, query: str) -> list[Json]:
    reply = prometheus.query(query)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    document = reply.document
    assert document["status"] == "success"
    assert document["data"]["resultType"] == "vector"
    result: list[Json] = document["data"]["result"]
    return result


def one(prometheus: Prometheus, query: str) -> Json:
    """The only series of an answer: waited for, since a scrape that takes too long ends every series until the next."""
    until = time.monotonic() + DEADLINE
    while not (found := vector(prometheus, query)):
        assert time.monotonic() < until, query
    [series] = found
    return series


# What it answers.


def test_a_query_answers_what_was_scraped(exporter: Exporter, prometheus: Prometheus) -> None:
    series = one(prometheus, 'requests{app="web"}')
    assert series["metric"] == {"__name__": "requests", "app": "web", "instance": exporter.target, "job": "e2e"}
    assert series["value"][1] == "12.5"


def test_a_series_follows_what_the_exporter_is_set_to(exporter: Exporter, prometheus: Prometheus) -> None:
    exporter.set("orders", 7, app="shop")
    exporter.set("orders", 12, app="web")
    exporter.set("orders", 13, app="web")
    prometheus.wait_for_value("sum(orders)", 20)
    with pytest.raises(ValueError, match="2 series"):
        prometheus.wait_for_value("orders", -1)  # there are none, or two
    exporter.remove("orders", app="shop")
    prometheus.wait_for_value("sum(orders)", 13)


def test_values_that_are_no_numbers_come_through(exporter: Exporter, prometheus: Prometheus) -> None:
    for name, value in (("none", math.nan), ("high", math.inf), ("low", -math.inf), ("huge", 1e12)):
        exporter.set(name, value)
    exporter.text = "quiet 0\n"
    prometheus.wait_for_value("quiet", 0)
    prometheus.wait_for_value("none", math.nan)
    shown = [one(prometheus, name)["value"][1] for name in ("none", "high", "low", "huge")]
    assert shown == ["NaN", "+Inf", "-Inf", "1000000000000"]
    assert one(prometheus, "quiet / quiet")["value"][1] == "NaN"


def test_a_label_may_hold_anything(exporter: Exporter, prometheus: Prometheus) -> None:
    odd = 'a"b\\c\nd é'
    exporter.set("odd", 1, name=odd, value="v")
    prometheus.wait_for_value("odd", 1)
    assert one(prometheus, "odd")["metric"]["name"] == odd


def test_not_every_result_is_a_vector(prometheus: Prometheus) -> None:
    data = [prometheus.query(query).document["data"] for query in ("1", '"x"', "up[5m]")]
    assert [each["resultType"] for each in data] == ["scalar", "string", "matrix"]
    assert prometheus.value("1") == 1
    assert data[1]["result"][1] == "x"
    assert data[2]["result"][0]["values"]


def test_a_warning_stands_beside_the_result(prometheus: Prometheus) -> None:
    document = prometheus.query("quantile(2, up)").document
    assert document["status"] == "success"
    assert "quantile value should be between 0 and 1" in document["warnings"][0]


TWO = 'label_replace(up, "a", "1", "", "") or label_replace(up, "a", "2", "", "")'


@pytest.mark.parametrize(
    ("query", "status", "kind"),
    [("foo(", 400, "bad_data"), ("", 400, "bad_data"), (f"({TWO}) + on() ({TWO})", 422, "execution")],
    ids=["not a query", "nothing", "many to many"],
)
def test_a_bad_query_is_an_error_with_a_kind(prometheus: Prometheus, query: str, status: int, kind: str) -> None:
    reply = prometheus.query(query)
    assert reply.status == status
    assert (reply.document["status"], reply.document["errorType"]) == ("error", kind)
    with pytest.raises(ServerError, match=kind):
        prometheus.value(query)


def test_a_slow_query_ends_by_its_timeout() -> None:
    require_programs("prometheus")
    # Long enough for the evaluation to have begun, on a slow machine too.
    with Prometheus(flags=["--query.timeout=2s"]) as prometheus:
        told = failure(503, "timeout", "query timed out in expression evaluation")
        for parameters in ({}, {"timeout": "1s"}):
            reply = prometheus.query(SLOW, **parameters)
            assert (reply.status, reply.body.decode()) == (told.status, told.body)


def test_a_query_that_waits_too_long_for_its_turn_fails_otherwise() -> None:
    require_programs("prometheus")
    flags = ["--query.timeout=5s", "--query.max-concurrency=1"]
    with Prometheus(flags=flags) as prometheus, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(prometheus.query, SLOW)
        # Whose turn it is gets an answer, or runs out of time while it is evaluated.
        while (reply := prometheus.query("vector(1)", timeout="100ms")).status in (200, 503):
            assert not slow.done()
        # Mostly the first: it depends on where in the server the time ran out.
        late = "context deadline exceeded"
        told = (failure(400, "bad_data", f'invalid parameter "query": {late}'), failure(422, "execution", late))
        assert (reply.status, reply.body.decode()) in [(each.status, each.body) for each in told]


# How series end.


def test_series_are_gone_once_the_exporter_is(own: tuple[Exporter, Prometheus]) -> None:
    exporter, prometheus = own
    exporter.stop()
    prometheus.wait_for_value("up", 0)
    assert vector(prometheus, "requests") == []
    assert prometheus.value("sum(requests) or vector(0)") == 0
    exporter.start()
    prometheus.wait_for_value("requests", 12.5)


def test_a_sample_with_a_time_of_its_own_ages_by_the_lookback() -> None:
    require_programs("prometheus")
    flags = ["--query.lookback-delta=2s"]
    with Exporter() as exporter, Prometheus(exporter.target, interval=INTERVAL, flags=flags) as prometheus:
        exporter.set("requests", 5)
        prometheus.wait_for_value("requests", 5)
        began = time.time()
        exporter.set("dated", 5, at=began)
        prometheus.wait_for_value(f"timestamp(dated @ {began + 1:.3f})", lambda at: at is not None)
        exporter.stop()
        prometheus.wait_for_value("up", 0)
        assert vector(prometheus, "requests") == []
        # Asked for certain times, so that it does not matter when.
        assert prometheus.value(f"timestamp(dated @ {began + 1.9:.3f})") == pytest.approx(began, abs=0.001)
        assert prometheus.value(f"dated @ {began + 1.9:.3f}") == 5
        assert prometheus.value(f"dated @ {began + 2.1:.3f}") is None
        prometheus.wait_for_value("dated", None)


def test_an_old_sample_is_scraped_with_its_age(exporter: Exporter, prometheus: Prometheus) -> None:
    exporter.set("old", 5, at=time.time() - 60)
    prometheus.wait_for_value("old", 5)
    age = prometheus.value("time() - timestamp(old)")
    assert age is not None
    assert age >= 60


# How it fails and comes back.


def test_what_it_knows_survives_a_kill_and_an_orderly_end(own: tuple[Exporter, Prometheus]) -> None:
    exporter, prometheus = own
    port = prometheus.port
    exporter.set("requests", 99, app="web")
    prometheus.wait_for_value("requests", 99)
    prometheus.restart()
    assert prometheus.value("min_over_time(requests[1h])") == 12.5
    prometheus.stop()
    with pytest.raises(ConnectionRefusedError):
        prometheus.query("up")
    prometheus.start()
    assert prometheus.value("min_over_time(requests[1h])") == 12.5
    assert prometheus.port == port


def test_without_its_data_it_answers_with_an_empty_vector(own: tuple[Exporter, Prometheus]) -> None:
    exporter, prometheus = own
    with pytest.raises(ServerError, match="only after `stop` or `kill`"):
        prometheus.wipe()
    exporter.stop()
    prometheus.restart(wipe=True)
    prometheus.wait_for_value("up", 0)
    assert vector(prometheus, "min_over_time(requests[1h])") == []
    assert prometheus.value("sum(requests) or vector(0)") == 0


def test_without_its_data_a_rate_is_far_too_small_and_nothing_says_so(own: tuple[Exporter, Prometheus]) -> None:
    exporter, prometheus = own
    exporter.set("hits_total", growing(110))
    prometheus.restart(wipe=True)
    low = prometheus.wait_for_value("rate(hits_total[5m])", lambda rate: rate is not None)
    assert low is not None
    assert 0 < low < 55
    assert prometheus.query("rate(hits_total[5m])").document.keys() == {"status", "data"}
    prometheus.wait_for_value("rate(hits_total[1s])", lambda rate: rate is not None and 80 < rate < 140)


def test_paused_it_accepts_and_does_not_answer(prometheus: Prometheus) -> None:
    with prometheus.paused(), pytest.raises(TimeoutError):
        prometheus.request("POST", "/api/v1/query", "query=up", timeout=SHORT)
    assert prometheus.value("vector(1)") == 1
    prometheus.pause()
    with pytest.raises(TimeoutError):
        prometheus.request("GET", "/-/ready", timeout=SHORT)
    prometheus.resume()
    # A scrape that the pause cut in two has failed by its own clock: `up` is 0 until the next one.
    prometheus.wait_for_value("up", 1)


def test_killed_it_refuses_even_when_it_was_paused(own: tuple[Exporter, Prometheus]) -> None:
    _, prometheus = own
    prometheus.pause()
    prometheus.kill()
    with pytest.raises(ConnectionRefusedError):
        prometheus.query("up")
    with pytest.raises(ServerError, match=r"last value None; prometheus ended with code -9"):
        prometheus.wait_for_value("up", 1)


def test_two_know_nothing_of_each_other(prometheus: Prometheus) -> None:
    with Prometheus() as other:
        assert vector(other, "requests") == []
        other.kill()
    prometheus.wait_for_value("requests", 12.5)


def test_an_error_shows_the_log() -> None:
    require_programs("prometheus")
    with pytest.raises(ServerError, match=r"prometheus ended with code \d+(.|\n)*no-such-flag"):
        Prometheus(flags=["--no-such-flag"]).start()


def test_an_exporter_that_listens_is_not_started_twice() -> None:
    with Exporter() as exporter, pytest.raises(ValueError, match="listens already"):
        exporter.start()


PARENT = """
import json, time
from tightship_e2e.prometheus import Prometheus
prometheus = Prometheus().start()
prometheus.pause()
print(json.dumps({"pids": prometheus.pids, "data": str(prometheus.storage.parent)}), flush=True)
time.sleep(600)
"""


def test_a_killed_parent_leaves_nothing() -> None:
    require_programs("prometheus")
    leaves_nothing(PARENT, processes=2)


# The proxy before it.

HEADERS = {"Authorization": "Bearer s3cret", "X-Scope-OrgID": "shop"}


async def ask(
    proxy: Proxy, headers: dict[str, str] | None = None, *, seconds: float = 20, trust: ssl.SSLContext | None = None
) -> tuple[int, str, str]:
    """Status, type and body of an answer to a query; redirections are not followed."""
    timeout = aiohttp.ClientTimeout(total=seconds)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(
            f"{proxy.url}/api/v1/query",
            data={"query": "vector(12.5)"},  # whatever was scraped
            headers=headers,
            allow_redirects=False,
            ssl=trust or True,
        ) as answer,
    ):
        return answer.status, answer.content_type, await answer.text()


async def test_the_proxy_passes_only_those_who_show_the_right_headers(prometheus: Prometheus) -> None:
    async with Proxy(prometheus.url, demanding(HEADERS)) as proxy:
        assert await ask(proxy) == (401, "text/plain", "Unauthorized\n")
        assert (await ask(proxy, {**HEADERS, "X-Scope-OrgID": "other"}))[0] == 401
        status, kind, body = await ask(proxy, HEADERS)
        assert (status, kind) == (200, "application/json")
        assert json.loads(body)["data"]["result"][0]["value"][1] == "12.5"
        assert [(each.call.verb, each.status, each.answered) for each in proxy.log] == [
            ("POST", None, 401),
            ("POST", None, 401),
            ("POST", 200, 200),
        ]
        assert proxy.log[-1].call.headers["x-scope-orgid"] == "shop"
        # Behind the right headers another plan has its say.
        proxy.plan = demanding(HEADERS, always(failure(422, "execution", "no")))
        assert [(await ask(proxy, headers))[0] for headers in (None, HEADERS)] == [401, 422]


@pytest.mark.parametrize(
    "told",
    [
        failure(500, "internal", "broken"),
        failure(503, "unavailable", "not now"),
        failure(400, "bad_data", "no query"),
        failure(422, "execution", "too much"),
        Verbatim(429, "slow down\n", "text/plain", {"Retry-After": "7"}),
        Verbatim(502, "<html><h1>Bad Gateway</h1></html>", "text/html"),
        Verbatim(200, '{"status":"success","data":{"resu'),
        Verbatim(307, headers={"Location": "http://127.0.0.2:9/api/v1/query"}),
        success([{"metric": {}, "value": [1.5, "3"]}], warnings=["partial response"]),
        success([1.5, "3"], "scalar"),
    ],
    ids=["500", "503", "400", "422", "429", "HTML", "half of JSON", "redirection", "warning", "scalar"],
)
async def test_the_proxy_says_what_it_is_told_to_say(told: Verbatim) -> None:
    async with Proxy("http://127.0.0.1:9", always(told)) as proxy, aiohttp.ClientSession() as session:
        async with session.post(f"{proxy.url}/api/v1/query", allow_redirects=False) as answer:
            assert (answer.status, await answer.text()) == (told.status, told.body)
            assert told.headers.items() <= answer.headers.items()
            assert answer.content_type == told.content_type
        assert [(each.status, each.answered) for each in proxy.log] == [(None, told.status)]


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Hang(), TimeoutError), (Slow(60), TimeoutError), (ResetMidAnswer(10), aiohttp.ClientError)],
    ids=["hangs", "slow", "cut off"],
)
async def test_the_proxy_holds_an_answer_back_or_cuts_it_off(
    prometheus: Prometheus, fault: Fault, error: type[Exception]
) -> None:
    async with Proxy(prometheus.url, always(fault)) as proxy:
        with pytest.raises(error):
            await ask(proxy, seconds=SHORT if error is TimeoutError else 20)
        proxy.plan = always(Slow(0.01, done=True))
        assert (await ask(proxy))[0] == 200


async def test_a_query_ends_with_its_client_through_the_proxy_too() -> None:
    require_programs("prometheus")
    with Prometheus(flags=["--query.max-concurrency=1"]) as prometheus:
        async with Proxy(prometheus.url) as proxy, aiohttp.ClientSession() as session:
            endless = " + ".join([SLOW] * 20)
            query = asyncio.create_task(session.post(f"{proxy.url}/api/v1/query", data={"query": endless}))

            async def waits() -> bool:
                reply = await asyncio.to_thread(prometheus.query, "vector(1)", timeout="100ms")
                return reply.status == 400

            await wait_for(waits, DEADLINE, "the one place is taken")
            query.cancel()
            # The place is free long before the query would have ended.
            assert (await asyncio.to_thread(prometheus.query, "vector(1)", timeout="15s")).status == 200


async def test_during_an_outage_of_the_proxy_connections_are_refused(prometheus: Prometheus) -> None:
    async with Proxy(prometheus.url) as proxy:
        async with proxy.outage():
            with pytest.raises(aiohttp.ClientConnectorError):
                await ask(proxy)
        assert (await ask(proxy))[0] == 200


async def test_the_proxy_takes_only_clients_with_a_certificate_of_the_ca(
    prometheus: Prometheus, tmp_path: Path
) -> None:
    for name in ("ours", "foreign"):
        (tmp_path / name).mkdir()
    authority, foreign = Authority(tmp_path / "ours"), Authority(tmp_path / "foreign")

    def client(of: Authority | None, trusted: Authority = authority) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(trusted.ca_file))
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        if of:
            context.load_cert_chain(*of.issue("client"))
        return context

    async with Proxy(prometheus.url, tls=authority.server(demands_client=True)) as proxy:
        assert (await ask(proxy, trust=client(authority)))[0] == 200
        for context in (client(None), client(foreign), client(authority, trusted=foreign)):
            with pytest.raises(aiohttp.ClientError):
                await ask(proxy, trust=context)
    async with Proxy(prometheus.url, tls=authority.server()) as proxy:
        assert (await ask(proxy, trust=client(None)))[0] == 200


# The rules' tests.

RULES: Json = {
    "groups": [{"name": "g", "rules": [{"alert": "Quiet", "expr": "requests == 0", "for": "1m"}]}],
}


def test_promtool_tests_an_alert(tmp_path: Path) -> None:
    require_programs("promtool")
    (tmp_path / "rules.yaml").write_text(json.dumps(RULES))

    def verdict(values: str) -> int:
        fires = {"eval_time": "3m", "alertname": "Quiet", "exp_alerts": [{"exp_labels": {"app": "web"}}]}
        series = [{"series": 'requests{app="web"}', "values": values}]
        case = {"interval": "1m", "input_series": series, "alert_rule_test": [fires]}
        (tmp_path / "case.yaml").write_text(json.dumps({"rule_files": ["rules.yaml"], "tests": [case]}))
        program = binaries.find("promtool")["promtool"]
        command = [str(program), "test", "rules", "case.yaml"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert verdict("0 0 0 0") == 0
    assert verdict("5 5 5 5") == 1
