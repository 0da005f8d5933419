"""Who may get metrics, status and page, by what the API server says of a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from links import connected

from tightship.kube.credentials import ClusterAccess
from tightship.process.access import AT_ONCE, GRANTED_FOR, KEPT, REFUSED_FOR, Access
from tightship.process.http import HttpServer
from tightship_simulator.virtual.loop import VirtualLoop
from tightship_testkit.scripted import Responder, ScriptedApi, serving, status, stream

from .test_http_server import HOST, Scene

pytestmark = pytest.mark.virtual_time

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PROMETHEUS = "Bearer of-prometheus"


class Cluster:
    """An API server that knows two tokens, and lets one of their users get /metrics."""

    def __init__(self, api: ScriptedApi, access: Access) -> None:
        self.api = api
        self.access = access
        self.allowed = {"prometheus"}
        self.asked: list[object] = []
        api.on(f"POST {TOKENS}", self._whose)
        api.on(f"POST {REVIEWS}", self._may)

    async def _whose(self, request: web.Request) -> web.StreamResponse:
        token = (await request.json())["spec"]["token"]
        name = token.removeprefix("of-")
        user = {"username": name, "groups": ["a"], "extra": {"b": ["c"]}}
        found = {"authenticated": True, "user": user} if token.startswith("of-") else {"error": "no such token"}
        return web.json_response({"kind": "TokenReview", "status": found})

    async def _may(self, request: web.Request) -> web.StreamResponse:
        spec = (await request.json())["spec"]
        self.asked.append(spec)
        may = spec["user"] in self.allowed and spec["nonResourceAttributes"]["path"] == "/metrics"
        return web.json_response({"kind": "SubjectAccessReview", "status": {"allowed": may}})

    async def code(self, authorization: str, path: str = "/metrics") -> int:
        """What a request would be answered with; 200 if it may get the path."""
        denial = await self.access.denial(authorization, path)
        return 200 if denial is None else int(denial.status)

    @property
    def questions(self) -> int:
        """How many tokens were reviewed."""
        return self.api.count("POST", TOKENS)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with serving() as api, connected(ClusterAccess(server=api.url)) as connection:
        yield Cluster(api, Access(connection))


async def test_only_a_user_who_may_get_the_path_gets_it(cluster: Cluster) -> None:
    assert await cluster.code(PROMETHEUS) == 200
    assert cluster.asked == [
        {
            "user": "prometheus",
            "uid": "",
            "groups": ["a"],
            "extra": {"b": ["c"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
    ]
    assert await cluster.code(PROMETHEUS, "/status") == 403
    assert await cluster.code("Bearer of-somebody") == 403
    assert await cluster.code("Bearer unknown") == 401


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "of-prometheus", "Bearer t\u00f6ken"])
async def test_what_is_no_bearer_token_is_refused_without_a_question(cluster: Cluster, header: str) -> None:
    assert await cluster.code(header) == 401
    assert cluster.questions == 0


async def test_a_verdict_counts_for_a_while_a_refusal_for_less(cluster: Cluster) -> None:
    for _ in range(3):
        assert await cluster.code(PROMETHEUS) == 200
        assert await cluster.code("Bearer of-somebody") == 403
    assert cluster.questions == 2
    cluster.allowed = {"somebody"}
    await asyncio.sleep(REFUSED_FOR)
    assert await cluster.code("Bearer of-somebody") == 200
    assert await cluster.code(PROMETHEUS) == 200
    await asyncio.sleep(GRANTED_FOR - REFUSED_FOR)
    assert await cluster.code(PROMETHEUS) == 403


async def _garbled(_: web.Request) -> web.StreamResponse:
    return web.Response(body=b"{")


@pytest.mark.parametrize(
    "answer", [status(403, "Forbidden"), status(500, "InternalError"), stream(end="reset"), _garbled]
)
@pytest.mark.parametrize("of", [TOKENS, REVIEWS])
async def test_an_api_server_that_refuses_or_is_gone_says_nothing_about_anybody(
    cluster: Cluster, of: str, answer: Responder
) -> None:
    works = cluster.api.script[f"POST {of}"][0]
    cluster.api.on(f"POST {of}", answer)
    assert await cluster.code(PROMETHEUS) == 503
    cluster.api.on(f"POST {of}", works)
    assert await cluster.code(PROMETHEUS) == 200


async def test_strangers_can_not_have_it_asked_without_limit_and_shut_out_nobody_who_was_let_in(
    cluster: Cluster,
) -> None:
    assert await cluster.code(PROMETHEUS) == 200
    await asyncio.sleep(GRANTED_FOR)
    before = cluster.questions
    flood = [asyncio.create_task(cluster.code(f"Bearer {number}")) for number in range(200)]
    await asyncio.sleep(0)
    assert await cluster.code(PROMETHEUS) == 200
    codes = await asyncio.gather(*flood)
    assert set(codes) == {401, 503}
    assert codes.count(401) == cluster.questions - before <= 2 * AT_ONCE


async def test_few_verdicts_are_kept(cluster: Cluster) -> None:
    for number in range(KEPT + 1):
        assert await cluster.code(f"Bearer {number}") == 401
        await asyncio.sleep(0.2)
    assert len(cluster.access._verdicts) <= KEPT


async def test_nothing_but_probes_is_answered_to_strangers(cluster: Cluster) -> None:
    server = HttpServer(Scene().content, host=HOST, ports=(8080,), probe_port=8081, access=cluster.access.denial)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    async with server, aiohttp.ClientSession(connector=loop.network.connector()) as session:

        async def get(path: str, port: int = 8080, **headers: str) -> aiohttp.ClientResponse:
            async with session.get(f"http://{HOST}:{port}{path}", headers=headers) as response:
                await response.read()
                return response

        for path in ("/metrics", "/status", "/"):
            refused = await get(path)
            assert refused.status == 401
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            assert (await get(path, Authorization=PROMETHEUS)).status == (200 if path == "/metrics" else 403)
        for path in ("/healthz", "/readyz"):
            assert [(await get(path, port)).status for port in (8080, 8081)] == [200, 200]
        assert (await get("/secret")).status == 404
