"""What a controller serves, to kubelets, Prometheus and people."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import Gauge

from tightship.documents.html.page import Page, render_page
from tightship.process.http import Content, HttpServer
from tightship.process.loop import Heartbeat
from tightship.process.metrics import new_registry
from tightship_testkit.ports import free_ports

HOST = "127.0.0.1"
PROBES = -1


class Scene:
    def __init__(self) -> None:
        self.clock = 0.0
        self.reasons: list[str] = []
        self.broken = False
        self.page: Callable[[], Page] = lambda: Page("node-compactor")
        beats = [
            Heartbeat("planning", 60, clock=lambda: self.clock),
            Heartbeat("draining", 90, clock=lambda: self.clock),
        ]
        self.content = Content(
            registry=new_registry("node-compactor", "1"),
            heartbeats=beats,
            not_ready=lambda: self.reasons,
            status=lambda: self.status,
            page=lambda: self.page,
        )

    def status(self) -> bytes:
        if self.broken:
            raise RuntimeError("secret\ndetail")
        return b'{"nodes": 3}'


@pytest.fixture
def scene() -> Scene:
    return Scene()


class Served:
    def __init__(self, session: aiohttp.ClientSession, server: HttpServer) -> None:
        self._session = session
        self.server = server

    async def get(
        self, path: str, method: str = "GET", port: int = 0, **headers: str
    ) -> tuple[int, str, aiohttp.ClientResponse]:
        number = self.server.probe_port if port == PROBES else self.server.ports[port]
        url = f"http://{HOST}:{number}{path}"
        async with self._session.request(method, url, headers=headers) as response:
            return response.status, await response.text(), response


@pytest_asyncio.fixture
async def served(scene: Scene) -> AsyncIterator[Served]:
    server = HttpServer(scene.content, host=HOST, ports=(0, 0), probe_port=0)
    async with server, aiohttp.ClientSession() as session:
        yield Served(session, server)


@pytest.mark.parametrize(("has_both", "found"), [(True, "::"), (False, "0.0.0.0")])
async def test_by_default_every_address_is_served_where_ipv6_is_off_those_of_ipv4(
    has_both: bool, found: str, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_both and not socket.has_dualstack_ipv6():
        pytest.skip("this system has no IPv6")
    bound: list[str] = []
    create = socket.create_server

    def recorded(address: tuple[str, int], **options: Any) -> socket.socket:
        bound.append(address[0])
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", recorded)
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: has_both)
    async with (
        HttpServer(scene.content, host="::", ports=(0,), probe_port=0) as server,
        aiohttp.ClientSession() as session,
    ):
        assert (await Served(session, server).get("/metrics"))[0] == 200
    assert bound == [found, found]


async def test_the_port_of_the_probes_serves_nothing_else(served: Served) -> None:
    assert served.server.probe_port not in served.server.ports
    for path in ("/healthz", "/liveness", "/alive", "/readyz", "/readiness"):
        assert (await served.get(path, port=PROBES))[0] == 200, path
    for path in ("/metrics", "/status", "/"):
        assert (await served.get(path, port=PROBES))[0] == 404, path


async def test_probes_on_one_of_the_ports_have_none_of_their_own(scene: Scene) -> None:
    port = free_ports("http")["http"]
    async with HttpServer(scene.content, host=HOST, ports=(port,), probe_port=port) as server:
        assert (server.ports, server.probe_port) == ((port,), None)
        async with aiohttp.ClientSession() as session:
            assert (await Served(session, server).get("/metrics"))[0] == 200


@pytest.mark.parametrize("port", [0, 1])
async def test_every_port_serves_everything(served: Served, port: int) -> None:
    assert served.server.ports[0] != served.server.ports[1]
    for path in ("/metrics", "/healthz", "/liveness", "/alive", "/readyz", "/readiness", "/status", "/"):
        status, body, _ = await served.get(path, port=port)
        assert (status, bool(body)) == (200, True), path
        status, body, response = await served.get(path, "HEAD", port=port)
        assert (status, body) == (200, ""), path
        assert response.headers["Server"] == "tightship"


@pytest.mark.parametrize("path", ["/healthz", "/liveness", "/alive"])
async def test_health_is_that_of_the_slowest_loop(scene: Scene, served: Served, path: str) -> None:
    scene.reasons = ["the API server does not answer"]
    scene.clock = 60
    status, body, _ = await served.get(path)
    assert (status, body.splitlines()) == (
        200,
        [
            "ok",
            "planning: last beat 60 s ago, 60 s late, may be 60 s late",
            "draining: last beat 60 s ago, 60 s late, may be 90 s late",
        ],
    )
    scene.clock = 61
    status, body, _ = await served.get(path)
    assert (status, body.splitlines()[0]) == (503, "not ok")


@pytest.mark.parametrize("path", ["/readyz", "/readiness"])
async def test_readiness_says_what_is_missing(scene: Scene, served: Served, path: str) -> None:
    scene.reasons = ["Pod: not listed\nyet", "the configuration was not read"]
    assert (await served.get(path))[:2] == (503, "not ok\nPod: not listed yet\nthe configuration was not read\n")
    scene.reasons.clear()
    assert (await served.get(path))[:2] == (200, "ok\n")


async def test_metrics_in_the_format_that_is_asked_for(served: Served) -> None:
    _, body, response = await served.get("/metrics")
    assert 'tightship_build_info{controller="node-compactor",version="1"} 1.0' in body
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    _, body, response = await served.get("/metrics", Accept="application/openmetrics-text;version=1.0.0")
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith("# EOF\n")


async def test_a_scrape_never_tells_what_was_true_before_it(scene: Scene, served: Served) -> None:
    gauge = Gauge("own", "A gauge.", registry=scene.content.registry)
    for value in (1.0, 2.0):
        gauge.set(value)
        answers = await asyncio.gather(*(served.get("/metrics") for _ in range(3)))
        assert [f"own {value}" in body for _, body, _ in answers] == [True] * 3


async def test_a_connection_carries_one_request(served: Served) -> None:
    for path, port in (("/healthz", PROBES), ("/metrics", 0), ("/nothing", 0)):
        _, _, response = await served.get(path, port=port)
        assert response.headers["Connection"] == "close"


async def test_a_header_beyond_the_bound_is_refused(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    assert (await served.get("/healthz", Cookie="x" * 10_000))[0] == 200
    assert (await served.get("/healthz", Cookie="x" * 20_000))[0] == 431
    assert not caplog.records


async def test_what_strangers_can_bring_about_is_logged_ten_times_a_minute(
    scene: Scene, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    scene.broken = True
    for _ in range(30):
        assert (await served.get("/status"))[0] == 500
    assert len(caplog.records) == 10


async def test_status_is_json_and_not_kept(served: Served) -> None:
    _, body, response = await served.get("/status")
    assert body == '{"nodes": 3}'
    assert response.content_type == "application/json"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_handler_that_fails_costs_one_answer(
    scene: Scene, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    scene.broken = True
    status, body, _ = await served.get("/status")
    assert (status, body) == (500, "500 RuntimeError; the log says more\n")
    assert "answering GET /status failed: secret detail" in caplog.text
    scene.broken = False
    assert (await served.get("/status"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/metrics/", 404),
        ("GET", "/favicon.ico", 404),
        ("GET", "/../etc/passwd", 404),
        ("POST", "/status", 405),
        ("DELETE", "/", 405),
    ],
)
async def test_anything_else_is_refused_in_one_line(served: Served, method: str, path: str, expected: int) -> None:
    status, body, response = await served.get(path, method)
    assert status == expected
    assert body.count("\n") == 1
    assert ("Allow" in response.headers) is (expected == 405)


async def test_a_port_that_is_taken_is_an_error_that_names_it(scene: Scene) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=str(port)):
            async with HttpServer(scene.content, host=HOST, ports=(0, port)):
                raise AssertionError


async def test_a_port_named_twice_is_one_port(scene: Scene) -> None:
    port = free_ports("http")["http"]
    async with HttpServer(scene.content, host=HOST, ports=(port, port)) as server:
        assert server.ports == (port,)


async def test_the_page_is_what_was_drawn_and_may_run_nothing_else(scene: Scene, served: Served) -> None:
    page = Page("<b>x</b>", refresh=30)
    scene.page = lambda: page
    status, body, response = await served.get("/")
    assert (status, body) == (200, render_page(page))
    assert (response.content_type, response.charset) == ("text/html", "utf-8")
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "connect-src 'self'; frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


async def test_a_page_that_has_not_changed_is_not_sent_again(scene: Scene, served: Served) -> None:
    drawn = 0

    def draw() -> Page:
        nonlocal drawn
        drawn += 1
        return Page("the same")

    scene.page = draw
    _, body, response = await served.get("/")
    version = response.headers["ETag"]
    status, nothing, again = await served.get("/", **{"If-None-Match": version})
    assert (status, nothing, again.headers["ETag"]) == (304, "", version)
    assert drawn == 1
    scene.page = lambda: Page("another")
    status, other, response = await served.get("/", **{"If-None-Match": version})
    assert (status, response.headers["ETag"] == version, other == body) == (200, False, False)


async def test_a_page_is_packed_only_for_who_can_unpack_it(served: Served) -> None:
    _, packed, response = await served.get("/", **{"Accept-Encoding": "gzip"})
    assert response.headers["Content-Encoding"] == "gzip"
    _, plain, response = await served.get("/", **{"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in response.headers
    assert packed == plain
