"""The proxy before a Prometheus: it passes calls on, holds them back, or answers in the server's place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from tightship.kube.connector import connector
from tightship_simulator.life.prometheus import Prometheus, body, says, serving
from tightship_testkit.fault_proxy import Proxy
from tightship_testkit.faults import Fault, Hang, ResetMidAnswer, Slow, Verbatim, always, demanding
from tightship_testkit.virtual import on_virtual_network

pytestmark = pytest.mark.virtual_time

HEADERS = {"Authorization": "Bearer s3cret", "X-Scope-OrgID": "shop"}
FAILURE = Verbatim(422, '{"status":"error","errorType":"execution","error":"no"}')


@pytest_asyncio.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    with on_virtual_network():
        async with serving(Prometheus(otherwise=says(body("12.5")))) as made:
            yield made


async def ask(proxy: Proxy, headers: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Status, type and body of an answer to a query; redirections are not followed."""
    async with (
        aiohttp.ClientSession(connector=connector(), timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(
            f"{proxy.url}/api/v1/query", data={"query": "up"}, headers=headers, allow_redirects=False
        ) as answer,
    ):
        return answer.status, answer.content_type, await answer.text()


async def test_it_passes_only_those_who_show_the_right_headers(prometheus: Prometheus) -> None:
    async with Proxy(prometheus.url, demanding(HEADERS)) as proxy:
        assert await ask(proxy) == (401, "text/plain", "Unauthorized\n")
        assert (await ask(proxy, {**HEADERS, "X-Scope-OrgID": "other"}))[0] == 401
        status, kind, text = await ask(proxy, HEADERS)
        assert (status, kind) == (200, "application/json")
        assert '"12.5"' in text
        assert [(each.call.verb, each.status, each.answered) for each in proxy.log] == [
            ("POST", None, 401),
            ("POST", None, 401),
            ("POST", 200, 200),
        ]
        assert proxy.log[-1].call.headers["x-scope-orgid"] == "shop"
        assert [each.query for each in prometheus.seen] == ["up"]
        # Behind the right headers another plan has its say.
        proxy.plan = demanding(HEADERS, always(FAILURE))
        assert [(await ask(proxy, headers))[0] for headers in (None, HEADERS)] == [401, 422]


@pytest.mark.parametrize(
    "told",
    [
        Verbatim(429, "slow down\n", "text/plain", {"Retry-After": "7"}),
        Verbatim(200, '{"status":"success","data":{"resu'),
        Verbatim(307, headers={"Location": "http://127.0.0.2:9/api/v1/query"}),
    ],
    ids=["429", "half of JSON", "redirection"],
)
async def test_it_says_what_it_is_told_to_say(prometheus: Prometheus, told: Verbatim) -> None:
    async with Proxy(prometheus.url, always(told)) as proxy, aiohttp.ClientSession(connector=connector()) as session:
        async with session.post(f"{proxy.url}/api/v1/query", allow_redirects=False) as answer:
            assert (answer.status, await answer.text()) == (told.status, told.body)
            assert told.headers.items() <= answer.headers.items()
            assert answer.content_type == told.content_type
        assert [(each.status, each.answered) for each in proxy.log] == [(None, told.status)]
    assert prometheus.seen == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Hang(), TimeoutError), (Slow(60), TimeoutError), (ResetMidAnswer(10), aiohttp.ClientError)],
    ids=["hangs", "slow", "cut off"],
)
async def test_it_holds_an_answer_back_or_cuts_it_off(
    prometheus: Prometheus, fault: Fault, error: type[Exception]
) -> None:
    async with Proxy(prometheus.url, always(fault)) as proxy:
        with pytest.raises(error):
            async with asyncio.timeout(59):
                await ask(proxy)
        proxy.plan = always(Slow(5, done=True))
        began = asyncio.get_running_loop().time()
        assert (await ask(proxy))[0] == 200
        assert asyncio.get_running_loop().time() == began + 5


async def test_a_call_that_is_no_write_ends_with_its_client(prometheus: Prometheus) -> None:
    prometheus.takes["up"] = 100.0
    async with Proxy(prometheus.url) as proxy:
        asking = asyncio.create_task(ask(proxy))
        await asyncio.sleep(1)
        assert prometheus.on_the_way == 1
        asking.cancel()
        await asyncio.sleep(1)
        assert prometheus.on_the_way == 0


async def test_during_an_outage_connections_are_refused(prometheus: Prometheus) -> None:
    async with Proxy(prometheus.url) as proxy:
        url = proxy.url
        async with proxy.outage():
            with pytest.raises(aiohttp.ClientConnectorError):
                await ask(proxy)
        assert (await ask(proxy))[0] == 200
        assert proxy.url == url
