"""Requests: who we say we are, what is repeated, what an error says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from tightship.kube import credentials
from tightship.kube.connection import Connection, connect
from tightship.kube.credentials import ClusterAccess, ClusterCredentials, LoadedAccess, find, in_cluster
from tightship.kube.host import monotonic
from tightship.objects.api_errors import (
    ApiError,
    ConfigError,
    Conflict,
    ConnectionFailed,
    NotFound,
    NotSent,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from tightship_testkit.scripted import Responder, ScriptedApi, page, status

from .conftest import FakeSleep, kubeconfig

pytestmark = pytest.mark.virtual_time

NODES = "LIST /api/v1/nodes"


def accepting(token: str) -> Responder:
    async def respond(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") == f"Bearer {token}":
            return await page([])(request)
        return await status(401, "Unauthorized", "who are you?")(request)

    return respond


async def test_a_token_is_really_sent(api: ScriptedApi, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", api.url, {"token": "s3cret"})
    async with await connect(path) as connection:
        await connection.request("GET", "/api/v1/nodes")
        assert connection.identity == f"context here at {api.url}"
    assert api.seen[0].headers["Authorization"] == "Bearer s3cret"


async def test_a_rotated_token_file_is_read_again_after_401_and_the_request_repeated(
    api: ScriptedApi, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    path = kubeconfig(tmp_path / "config", api.url, {"tokenFile": "token", "token": "written beside"})
    api.on(NODES, accepting("old"))
    async with await connect(path) as connection:
        await connection.request("GET", "/api/v1/nodes")
        token.write_text("new\n")
        api.on(NODES, accepting("new"))
        await connection.request("GET", "/api/v1/nodes")
    sent = [each.headers["Authorization"] for each in api.seen]
    assert sent == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_second_401_is_an_error_that_does_not_tell_the_token(api: ScriptedApi, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", api.url, {"token": "s3cret"})
    api.on(NODES, status(401, "Unauthorized", "Unauthorized"))
    async with await connect(path) as connection:
        with pytest.raises(Unauthorized) as caught:
            await connection.request("GET", "/api/v1/nodes", params={"continue": "hidden"})
    reported, hint = str(caught.value).split("; ")
    assert reported == f"GET /api/v1/nodes at {api.url}: 401 Unauthorized: Unauthorized"
    assert hint == "the server does not accept these credentials: log in again, or name another user or context"
    assert len(api.seen) == 2


async def test_a_token_file_is_read_again_as_it_ages(tmp_path: Path) -> None:
    loads = 0
    now = 0.0

    async def load() -> LoadedAccess:
        nonlocal loads
        loads += 1
        if loads == 3:
            raise ConfigError("being replaced")
        return LoadedAccess(ClusterAccess(f"http://{loads}"), 60)

    source = ClusterCredentials("c", load, clock=lambda: now)
    assert (await source.access()).server == "http://1"
    now = 59
    assert (await source.access()).server == "http://1"
    now = 60
    assert (await source.access()).server == "http://2"
    now = 120
    assert (await source.access()).server == "http://2", "kept when loading fails"
    assert (await source.access(refused=ClusterAccess("http://another"))).server == "http://2"


async def test_impersonation_is_honoured(api: ScriptedApi, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", api.url, {"token": "t", "as": "viewer", "as-groups": ["readers"]})
    async with await connect(path) as connection:
        await connection.request("GET", "/api/v1/nodes")
    assert api.seen[0].headers["Impersonate-User"] == "viewer"
    assert api.seen[0].headers["Impersonate-Group"] == "readers"


async def test_several_kubeconfigs_are_merged_and_the_first_current_context_counts(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "token").write_text("from-file")
    one = tmp_path / "one"
    one.write_text(
        json.dumps({"current-context": "far", "contexts": [{"name": "far", "context": {"cluster": "c", "user": "u"}}]})
    )
    two = kubeconfig(tmp_path / "sub" / "two", "http://far:1/k8s/", {"tokenFile": "token"})
    source = find(environ={"KUBECONFIG": f"{one}:{tmp_path / 'absent'}:{two}"})
    access = await source.access()
    assert (source.context, access.server) == ("far", "http://far:1/k8s")
    assert access.headers == (("Authorization", "Bearer from-file"),)
    assert find(context="here", environ={"KUBECONFIG": f"{one}:{two}"}).context == "here"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "holds no configuration", id="empty"),
        pytest.param('{"kind": "List"}', "kind 'List': allowed is Config; plan -f reads snapshots", id="a snapshot"),
        pytest.param("kind: [Config]", r"kind .*: allowed is Config", id="a kind that is no text"),
        pytest.param("{a: [", "kubeconfig .*config", id="not YAML"),
        pytest.param("{contexts: []}", "no current-context", id="no context"),
        pytest.param("{current-context: x}", "no context 'x'", id="unknown context"),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}]}",
            "no cluster with a server",
            id="no cluster",
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {server: 'ftp://a'}}]}",
            "not an http or https address",
            id="strange server",
        ),
        pytest.param(
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: "
            "{server: 'https://a', certificate-authority: nowhere.crt}}]}",
            "nowhere.crt",
            id="no such certificate",
        ),
    ],
)
async def test_an_unusable_kubeconfig_is_one_clear_error(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        await find(path).access()
    assert "\n" not in str(caught.value)


async def test_no_configuration_anywhere_names_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"\.kube/config does not exist and this is not a pod"):
        find(environ={})
    with pytest.raises(ConfigError, match=r"no such file|No such file"):
        find(tmp_path / "absent")


async def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert find(environ=environ).context == "in-cluster"
    (tmp_path / "token").write_text("mounted\n")
    (tmp_path / "ca.crt").write_text("not a certificate")
    with pytest.raises(ConfigError, match="certificates"):
        await in_cluster(tmp_path, environ).access()
    monkeypatch.setattr(credentials._AccessBuilder, "_context", lambda *_: None)
    access = await in_cluster(tmp_path, environ).access()
    assert (access.server, access.headers) == ("https://[fd00::1]:443", (("Authorization", "Bearer mounted"),))


async def test_retry_after_is_waited_for(api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep) -> None:
    api.on(NODES, status(429, "TooManyRequests", "slow down", {"Retry-After": "7"}), page([]))
    await connection.request("GET", "/api/v1/nodes")
    assert len(fake_sleep.waits) == 1
    assert 7 <= fake_sleep.waits[0] < 8


async def test_retries_are_bounded_and_the_last_error_is_raised(
    api: ScriptedApi, connection: Connection, fake_sleep: FakeSleep
) -> None:
    api.on(NODES, status(503, "ServiceUnavailable", "starting"))
    with pytest.raises(Unavailable, match="503 ServiceUnavailable: starting"):
        await connection.request("GET", "/api/v1/nodes")
    assert (len(api.seen), len(fake_sleep.waits)) == (3, 2)
    assert all(wait <= 10 for wait in fake_sleep.waits)


async def test_a_write_is_sent_once_unless_asked_otherwise(api: ScriptedApi, connection: Connection) -> None:
    blocked = status(
        429, "TooManyRequests", "budget", details={"causes": [{"reason": "DisruptionBudget", "message": "needs 2"}]}
    )
    api.on("POST /api/v1/namespaces/a/pods/b/eviction", blocked)
    with pytest.raises(TooManyRequests) as caught:
        await connection.request("POST", "/api/v1/namespaces/a/pods/b/eviction", body=b"{}")
    assert caught.value.retry_after is None
    assert caught.value.causes[0].reason == "DisruptionBudget"
    assert len(api.seen) == 1
    assert api.seen[0].headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("code", "kind"), [(404, NotFound), (409, Conflict), (500, Unavailable), (418, ApiError), (302, ApiError)]
)
async def test_errors_are_typed_by_status(
    api: ScriptedApi, connection: Connection, code: int, kind: type[ApiError]
) -> None:
    api.on("DELETE /x", status(code, "", "what it says", {"Location": "/elsewhere"}))
    with pytest.raises(kind, match=rf"DELETE /x at .*: {code} without a reason: what it says") as caught:
        await connection.request("DELETE", "/x")
    assert type(caught.value) is kind
    assert len(api.seen) == 1, "redirects are not followed"


async def test_plain_text_errors_are_cut_to_one_line(api: ScriptedApi, connection: Connection) -> None:
    async def proxy(_: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="<html>\n" + "bad gateway " * 100)

    api.on("PATCH /x", proxy)
    with pytest.raises(Unavailable) as caught:
        await connection.request("PATCH", "/x")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


async def test_a_server_that_never_answers_times_out(api: ScriptedApi, connection: Connection) -> None:
    api.on("POST /x", never)
    began = monotonic()
    with pytest.raises(ConnectionFailed, match=r"POST /x at .*: no answer in 5 s|[Tt]imeout"):
        await connection.request("POST", "/x", timeout=5)
    assert monotonic() - began == pytest.approx(5), "others have more"


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_write_is_withheld_if_its_sender_may_not_write_any_more_once_there_is_a_connection(
    api: ScriptedApi, connection: Connection
) -> None:
    leading = [True]
    api.on("PATCH /x", status(200))

    # The connection has to be opened first, which takes a turn of the loop at least.
    asyncio.get_running_loop().call_soon(leading.clear)
    with pytest.raises(NotSent, match=r"PATCH /x at .*: the sender may not write any more"):
        await connection.request("PATCH", "/x", body=b"{}", only_if=lambda: bool(leading))
    assert api.seen == []

    await connection.request("PATCH", "/x", body=b"{}", only_if=lambda: True)
    assert [each.path for each in api.seen] == ["/x"], "a withheld write breaks no later one"
