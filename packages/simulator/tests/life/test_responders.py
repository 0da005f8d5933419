"""How the Prometheus fails, asked over the virtual network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from tightship.kube.connector import connector
from tightship_simulator.life.prometheus import Prometheus, body, says, serving
from tightship_simulator.life.responders import cut, cut_off, fails, late, redirects
from tightship_simulator.life.scraping import Places
from tightship_testkit.virtual import on_virtual_network

pytestmark = pytest.mark.virtual_time


@pytest_asyncio.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    with on_virtual_network():
        async with serving(Prometheus(otherwise=says(body("1")), places=Places(2, 10.0))) as made:
            yield made


async def ask(prometheus: Prometheus, query: str = "up", **more: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(connector=connector(), timeout=aiohttp.ClientTimeout(total=None)) as session,
        session.post(f"{prometheus.url}/api/v1/query", data={"query": query, **more}, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text()


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("responder", [cut, cut_off(b'{"status":"success"}', 5)], ids=["at once", "half way"])
async def test_a_connection_that_is_cut_is_an_error(prometheus: Prometheus, responder: object) -> None:
    prometheus.answers["up"] = responder  # type: ignore[assignment]
    with pytest.raises(aiohttp.ClientError):
        await ask(prometheus)


async def test_an_answer_is_as_late_as_it_was_told(prometheus: Prometheus) -> None:
    prometheus.answers["up"] = late(9, fails(422, "execution", "no"))
    began = now()
    assert await ask(prometheus) == (422, '{"status":"error","errorType":"execution","error":"no"}')
    assert now() == began + 9


async def test_it_sends_elsewhere(prometheus: Prometheus) -> None:
    prometheus.otherwise = redirects("http://elsewhere:9090/")
    assert await ask(prometheus) == (307, "")


async def test_queries_wait_for_a_place_in_their_order(prometheus: Prometheus) -> None:
    prometheus.takes["heavy"] = 4.0
    began = now()
    asking = [asyncio.create_task(ask(prometheus, "heavy")) for _ in range(5)]
    await asyncio.sleep(0)
    quick = asyncio.create_task(ask(prometheus))
    ended = []
    for each in [*asking, quick]:
        each.add_done_callback(lambda _: ended.append(now() - began))
    answers = await asyncio.gather(*asking, quick)
    # Two at once, for four seconds each; the fifth has two left when its turn comes.
    assert [code for code, _ in answers] == [200, 200, 200, 200, 503, 200]
    assert ended == [4, 4, 8, 8, 8, 10]
    assert prometheus.on_the_way == 0
