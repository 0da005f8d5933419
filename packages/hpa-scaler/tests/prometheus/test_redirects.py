"""Where a query may go: the allow-list, at each hop, and addresses that are never asked."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from hpa_scaler.annotations.queries import Failure, QueryAnswer
from hpa_scaler.annotations.spec import ServerRef
from hpa_scaler.prometheus.client import MOST_REDIRECTS, GuardedResolver, ServerDirectory
from tightship.objects.query_servers import AllowList, parse_address
from tightship.objects.reasons import Reason

from .conftest import Prometheus, answering_one, asking, body, failure_of, one, redirects, says, server, serving

pytestmark = pytest.mark.virtual_time

QUERY_PATH = "/api/v1/query"


@pytest_asyncio.fixture
async def elsewhere(network: None) -> AsyncIterator[Prometheus]:
    async with serving(answering_one()) as fake:
        yield fake


async def refusal(client: Any, ref: ServerRef = ServerRef()) -> str:
    found = await one(client, ref=ref)
    assert isinstance(found, Failure)
    assert found.reason is Reason.SERVER_NOT_ALLOWED, found
    return found.detail


async def test_an_address_of_an_hpa_is_asked_within_the_allow_list(prometheus: Prometheus) -> None:
    ref = ServerRef(url=prometheus.url + "/team")
    async with asking(allowed=(prometheus.url + "/team",)) as client:
        assert isinstance(await one(client, ref=ref), QueryAnswer)
        assert await refusal(client, ServerRef(url=prometheus.url)) == f"{prometheus.url} is not in allowedServerURLs"
    assert [each.path for each in prometheus.seen] == ["/team" + QUERY_PATH]


async def test_without_an_allow_list_only_configured_servers_are_asked(prometheus: Prometheus) -> None:
    configured = server(prometheus.url, headers=(("X-Scope-OrgID", "a"),))
    async with asking(configured) as client:
        assert isinstance(await one(client, ref=ServerRef(url=prometheus.url)), QueryAnswer)
        await refusal(client, ServerRef(url="http://elsewhere:9090"))
    assert prometheus.seen[0].headers["X-Scope-OrgID"] == "a"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_on_the_same_server_is_followed_with_everything(prometheus: Prometheus, status: int) -> None:
    async def moved(request: Any) -> Any:
        answer = says(body("3")) if request.path.startswith("/new") else redirects("/new" + QUERY_PATH, status)
        return await answer(request)

    prometheus.otherwise = moved
    async with asking(server(prometheus.url, headers=(("X", "1"),), parameters=(("dedup", "true"),))) as client:
        found = await one(client, "up")
    assert isinstance(found, QueryAnswer)
    assert found.highest == 3
    last = prometheus.seen[-1]
    assert (last.method, last.path, last.form["query"], last.headers["X"]) == ("POST", "/new" + QUERY_PATH, "up", "1")
    assert last.params == {"dedup": "true"}


async def test_a_redirect_that_asks_for_get_is_followed_by_get(prometheus: Prometheus) -> None:
    async def moved(request: Any) -> Any:
        return await (says(body("3")) if request.method == "GET" else redirects("/x?query=evil", 303))(request)

    prometheus.otherwise = moved
    async with asking(server(prometheus.url)) as client:
        assert isinstance(await one(client, "up"), QueryAnswer)
    assert prometheus.seen[-1].params["query"] == "up"


async def test_a_redirect_elsewhere_is_followed_only_within_the_allow_list(
    prometheus: Prometheus, elsewhere: Prometheus
) -> None:
    prometheus.otherwise = redirects(elsewhere.url + QUERY_PATH)
    async with asking(server(prometheus.url)) as client:
        assert await refusal(client) == (f"default redirects: {elsewhere.url}{QUERY_PATH} is not in allowedServerURLs")
    assert elsewhere.seen == []
    async with asking(server(prometheus.url), allowed=(elsewhere.url,)) as client:
        assert isinstance(await one(client), QueryAnswer)
    assert len(elsewhere.seen) == 1


async def test_credentials_stay_with_their_server(prometheus: Prometheus, elsewhere: Prometheus) -> None:
    prometheus.otherwise = redirects(elsewhere.url + QUERY_PATH)
    given = server(
        prometheus.url, headers=(("Authorization", "Bearer secret"), ("X-Scope-OrgID", "a")), parameters=(("t", "s"),)
    )
    async with asking(given, allowed=(elsewhere.url,)) as client:
        assert isinstance(await one(client), QueryAnswer)
    assert prometheus.seen[0].headers["Authorization"] == "Bearer secret"
    assert "Authorization" not in elsewhere.seen[0].headers
    assert "X-Scope-OrgID" not in elsewhere.seen[0].headers
    assert elsewhere.seen[0].params == {}


async def test_each_hop_is_looked_at(prometheus: Prometheus, elsewhere: Prometheus) -> None:
    prometheus.otherwise = redirects(elsewhere.url + "/a")
    elsewhere.otherwise = redirects("http://169.254.169.254/latest/meta-data")
    async with asking(server(prometheus.url), allowed=(elsewhere.url,)) as client:
        assert "http://169.254.169.254/latest/meta-data is not in allowedServerURLs" in await refusal(client)


@pytest.mark.parametrize(
    "location", ["ftp://x/", "http://me:secret@x/", "//[::1", "http://x/%2e%2e/y", "javascript:1", "http://\u0440/"]
)
async def test_a_redirect_to_what_is_no_address_is_refused(prometheus: Prometheus, location: str) -> None:
    prometheus.otherwise = redirects(location)
    found = await failure_of(server(prometheus.url))
    assert found.reason in (Reason.SERVER_NOT_ALLOWED, Reason.CONNECTION_FAILED)


async def test_redirects_in_a_circle_end(prometheus: Prometheus) -> None:
    prometheus.otherwise = redirects(QUERY_PATH)
    found = await failure_of(server(prometheus.url))
    assert (found.reason, found.detail) == (Reason.HTTP_ERROR, "default: more than 5 redirects")
    assert len(prometheus.seen) == MOST_REDIRECTS + 1


async def test_a_link_local_address_is_refused_unless_it_is_listed_itself() -> None:
    wide = AllowList.of(["http://*.monitoring.svc", "http://[fe80::1]:9090"])
    directory = ServerDirectory({}, wide)
    assert directory.refuses(parse_address("http://[fe80::1]:9090")) is None
    listed_by_port = ServerDirectory({}, AllowList.of(["http://169.254.7.7:9090"]))
    assert listed_by_port.refuses(parse_address("http://169.254.7.7:9090")) is None
    configured = server("http://169.254.20.10:9090")
    assert ServerDirectory({"default": configured}, AllowList()).find(ServerRef()) == configured


@pytest.mark.parametrize(
    ("leads_to", "kept"),
    [
        (["169.254.169.254"], None),
        (["10.0.0.7", "169.254.169.254"], ["10.0.0.7"]),
        (["fe80::1"], None),
        (["10.0.0.7"], ["10.0.0.7"]),
        (["169.254.7.7"], ["169.254.7.7"]),
    ],
)
async def test_what_a_name_leads_to_is_looked_at_too(
    leads_to: list[str], kept: list[str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: Any) -> list[dict[str, Any]]:
        return [{"hostname": "x", "host": each, "port": 80, "family": socket.AF_INET} for each in leads_to]

    resolver = GuardedResolver(ServerDirectory({}, AllowList.of(["http://169.254.7.7"])))
    monkeypatch.setattr(resolver._resolver, "resolve", resolve)
    if kept is None:
        with pytest.raises(OSError, match=r"x resolves to .*, which is not listed itself"):
            await resolver.resolve("x", 80)
    else:
        assert [each["host"] for each in await resolver.resolve("x", 80)] == kept


async def test_a_name_that_leads_to_metadata_is_told_as_not_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any) -> list[dict[str, Any]]:
        found = {"hostname": "x", "host": "169.254.169.254", "port": 80, "family": socket.AF_INET}
        return [{**found, "proto": 0, "flags": 0}]

    monkeypatch.setattr("hpa_scaler.prometheus.client.ThreadedResolver.resolve", resolve)
    async with asking(allowed=("http://innocent.example.com",)) as client:
        detail = await refusal(client, ServerRef(url="http://innocent.example.com"))
    assert "innocent.example.com resolves to 169.254.169.254, which is not listed itself" in detail
