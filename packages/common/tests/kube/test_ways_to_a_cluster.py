"""What stands between us and a cluster: older logins, proxies, and a file system that can't be written."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tightship.kube.connection import connect
from tightship.kube.credentials import find
from tightship.kube.pacing import RetryPolicy
from tightship.objects.api_errors import ConfigError, ConnectionFailed
from tightship_testkit.credentials import Authority
from tightship_testkit.scripted import ScriptedApi

from .conftest import Json, kubeconfig

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ONCE = RetryPolicy(attempts=1)


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def through(path: Path, server: str, proxy: str, **cluster: Any) -> Path:
    named = {"name": "c", "cluster": {"server": server, "proxy-url": proxy, **cluster}}
    return kubeconfig(path, server, {"token": "t"}, clusters=[named])


# Logins that kubectl had once, and those that it has still.


@pytest.mark.parametrize(
    ("provider", "problem"),
    [
        ({"name": "azure", "config": {}}, "'azure': kubectl has removed it; use .*github.com/Azure/kubelogin"),
        ({"name": "gcp"}, "'gcp': kubectl has removed it; use .*gke-gcloud-auth-plugin"),
        ({"name": "openstack"}, "'openstack': kubectl has removed it; use .*client-keystone-auth"),
        ({"name": "tectonic"}, "'tectonic': allowed is oidc, or an exec plugin instead"),
        ("azure", "None: allowed is oidc"),
        ({"name": "oidc"}, "oidc needs idp-issuer-url and client-id"),
    ],
)
async def test_a_login_that_no_longer_works_is_named_with_its_replacement(
    provider: object, problem: str, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1", {"auth-provider": provider})
    with pytest.raises(ConfigError, match=r"users\[u\].user.auth-provider: " + problem):
        await find(path).access()


@pytest.mark.parametrize(("token", "problem"), [("\n", "is empty"), ("a\nb", "holds characters that no token has")])
async def test_a_token_file_without_a_token_is_an_error_and_no_anonymous_request(
    token: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token)
    path = kubeconfig(tmp_path / "config", "https://127.0.0.1:1", {"tokenFile": "token", "token": "beside"})
    with pytest.raises(ConfigError, match=r"users\[u\].user.tokenFile: " + problem):
        await find(path).access()


def id_token(expires: float | str) -> str:
    parts = ({"alg": "none"}, {"exp": expires})
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts), "s"]
    )


class Issuer:
    """An OpenID provider that takes each refresh token once."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[dict[str, str]] = []
        self.headers: list[str] = []
        self.answer: Json = {}

    async def metadata(self, _: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"{self.url}/token"})

    async def token(self, request: web.Request) -> web.Response:
        self.seen.append({key: str(value) for key, value in (await request.post()).items()})
        self.headers.append(request.headers.get("Authorization", ""))
        if "client_id" not in self.seen[-1]:
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response(self.answer, status=400 if "error" in self.answer else 200)


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", issuer.metadata)
    app.router.add_post("/token", issuer.token)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield issuer
    finally:
        await runner.cleanup()


def with_oidc(path: Path, issuer: str, **config: str) -> Path:
    settings = {"idp-issuer-url": f"{issuer}/", "client-id": "me", "client-secret": "s", **config}
    return kubeconfig(path, "http://127.0.0.1:1", {"auth-provider": {"name": "oidc", "config": settings}})


async def test_an_id_token_is_used_while_valid_and_then_refreshed(tmp_path: Path) -> None:
    hour = time.time() + 3600
    async with issuing() as issuer:
        valid = id_token(hour)
        found = await find(with_oidc(tmp_path / "config", issuer.url, **{"id-token": valid})).access()
        assert (found.headers, issuer.seen) == ((("Authorization", f"Bearer {valid}"),), [])

        old = {"id-token": id_token(time.time() - 1), "refresh-token": "r1"}
        source = find(with_oidc(tmp_path / "config", issuer.url, **old))
        issuer.answer = {"id_token": id_token(time.time() + 5), "refresh_token": "r2"}
        await source.access()
        assert [each["refresh_token"] for each in issuer.seen] == ["r1", "r1"]
        assert issuer.seen[1] == {
            "grant_type": "refresh_token", "refresh_token": "r1", "client_id": "me", "client_secret": "s",
        }  # fmt: skip
        assert issuer.headers == ["Basic " + base64.b64encode(b"me:s").decode(), ""]
        issuer.answer = {"id_token": valid}
        source._expires = 0.0
        found = await source.access()
        assert found.headers == (("Authorization", f"Bearer {valid}"),)
        assert issuer.seen[-1]["refresh_token"] == "r2"


@pytest.mark.parametrize(
    ("config", "reported", "problem"),
    [
        ({"id-token": id_token(0)}, {}, "not valid any more, and there is no refresh-token"),
        ({}, {}, "there is no refresh-token"),
        ({"id-token": "notanidtoken"}, {}, "is no JWT"),
        ({"id-token": id_token("foobar")}, {}, "no readable exp"),
        ({"refresh-token": "r"}, {}, "holds no id_token"),
        ({"refresh-token": "r"}, {"error": "invalid_grant", "error_description": "gone"}, "400 .*: invalid_grant gone"),
    ],
)
async def test_a_login_by_oidc_that_ended_is_an_error(
    config: Json, reported: Json, problem: str, tmp_path: Path
) -> None:
    async with issuing() as issuer:
        issuer.answer = reported
        with pytest.raises(ConfigError, match=f"auth-provider: oidc: .*{problem}"):
            await find(with_oidc(tmp_path / "config", issuer.url, **config)).access()


# Proxies.


@pytest.mark.parametrize(
    "proxy", ["socks6://example.com", "example.com", "chewbacca@example.com", "ftp://example.com", "http://"]
)
async def test_a_proxy_of_another_kind_is_an_error_that_lists_the_kinds(proxy: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"clusters\[c\].cluster.proxy-url: .*http, https, socks5 and socks5h"):
        await find(through(tmp_path / "config", "https://127.0.0.1:1", proxy)).access()


class Relay:
    """A proxy of every kind: it relays after the greeting that *talk* reads, and records whither."""

    def __init__(self, target: int, *, login: tuple[str, str] | None = None, refuse: int = 0) -> None:
        self.asked: list[str] = []
        self._target = target
        self._login = login
        self._refuse = refuse

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head.split("\r\n")[0])
        if (
            self._login
            and "Proxy-Authorization: Basic " + base64.b64encode(":".join(self._login).encode()).decode() not in head
        ):
            writer.write(b"HTTP/1.1 407 no\r\nContent-Length: 0\r\n\r\n")
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await self._relay(reader, writer)

    async def socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 2 if self._login else 0
        if wanted not in methods:
            writer.write(b"\x05\xff")
            return
        writer.write(bytes((5, wanted)))
        if self._login:
            await reader.readexactly(1)
            name, password = [await reader.readexactly((await reader.readexactly(1))[0]) for _ in range(2)]
            known = (name.decode(), password.decode()) == self._login
            writer.write(b"\x01\x00" if known else b"\x01\x01")
        _, _, _, kind = await reader.readexactly(4)
        size = {1: 4, 4: 16}.get(kind) or (await reader.readexactly(1))[0]
        host = await reader.readexactly(size)
        port = int.from_bytes(await reader.readexactly(2))
        self.asked.append(f"{host.decode() if kind == 3 else list(host)}:{port}")
        writer.write(bytes((5, self._refuse, 0, 3, 1)) + b"x\x00\x00")
        if not self._refuse:
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while piece := await source.read(65536):
                sink.write(piece)
            sink.close()

        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer), return_exceptions=True)


@asynccontextmanager
async def listening(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def secure_api(authority: Authority) -> AsyncIterator[int]:
    async def respond(request: web.Request) -> web.StreamResponse:
        return web.json_response({"major": "1"})

    app = web.Application()
    app.router.add_get("/version", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server()).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("login", [None, ("us:er"[:2], "p@ss")], ids=["open", "with a password"])
@pytest.mark.parametrize("scheme", ["http", "https", "socks5", "socks5h"])
async def test_requests_go_through_each_kind_of_proxy_which_resolves_the_name(
    scheme: str, login: tuple[str, str] | None, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    user = "us:p%40ss@" if login else ""
    async with secure_api(authority) as api:
        relay = Relay(api, login=login)
        talk = relay.socks if scheme.startswith("socks") else relay.http
        async with listening(talk, authority.server() if scheme == "https" else None) as port:
            path = through(
                tmp_path / "config",
                "https://api.nowhere.invalid:6443",
                f"{scheme}://{user}127.0.0.1:{port}",
                **{"certificate-authority": "ca.crt", "tls-server-name": "localhost"},
            )
            async with await connect(path, retry=ONCE) as connection:
                assert json.loads(await connection.request("GET", "/version")) == {"major": "1"}
    target = "api.nowhere.invalid:6443"
    assert relay.asked == [target if scheme.startswith("socks") else f"CONNECT {target} HTTP/1.1"]


async def test_plain_http_goes_through_socks_too(api: ScriptedApi, tmp_path: Path) -> None:
    relay = Relay(int(api.url.rpartition(":")[2]))
    async with listening(relay.socks) as port:
        path = through(tmp_path / "config", "http://[fd00::1]:80", f"socks5://127.0.0.1:{port}")
        async with await connect(path, retry=ONCE) as connection:
            await connection.request("GET", "/api/v1/nodes")
    assert relay.asked == [f"{[0xFD, *([0] * 14), 1]}:80"]
    assert (api.seen[0].path, api.seen[0].headers["Authorization"]) == ("/api/v1/nodes", "Bearer t")


async def _silent_end(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(100)


async def _other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")


@pytest.mark.parametrize(
    ("scheme", "talk", "problem"),
    [
        ("socks5", _silent_end, "the proxy: it closed the connection; is this a SOCKS proxy?"),
        ("socks5", _other, "the proxy: it does not speak SOCKS 5"),
        ("socks5", Relay(1, login=("a", "b")).socks, "the proxy: it demands a login that the proxy's address does not"),
        ("socks5", Relay(1, refuse=5).socks, "the proxy: api.invalid:443: connection refused"),
        ("socks5", Relay(1, refuse=99).socks, "the proxy: api.invalid:443: refused with 99"),
        ("http", _other, "broken HTTP: .*'SSH-2.0-OpenSSH_9.9"),
        ("http", Relay(1, login=("a", "b")).http, "the proxy answered 407"),
    ],
)
async def test_a_proxy_that_fails_is_one_line_without_bytes(
    scheme: str, talk: Talk, problem: str, tmp_path: Path
) -> None:
    async with listening(talk) as port:
        path = through(tmp_path / "config", "https://api.invalid", f"{scheme}://127.0.0.1:{port}")
        async with await connect(path, retry=ONCE) as connection:
            with pytest.raises(ConnectionFailed, match=problem) as caught:
                await connection.request("GET", "/version")
    assert "b'" not in str(caught.value)
    assert str(caught.value).isprintable()


async def test_a_socks_proxy_that_is_not_there_is_named_as_the_obstacle(tmp_path: Path) -> None:
    path = through(tmp_path / "config", "https://api.invalid", "socks5://user:s3cret@127.0.0.1:1")
    async with await connect(path, retry=ONCE) as connection:
        with pytest.raises(ConnectionFailed, match="cannot connect to the proxy: Connection refused") as caught:
            await connection.request("GET", "/version")
    assert "s3cret" not in str(caught.value)


async def test_a_server_that_speaks_no_http_is_quoted_as_text(tmp_path: Path) -> None:
    async with listening(_other) as port:
        path = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}", {})
        async with await connect(path, retry=ONCE) as connection:
            with pytest.raises(ConnectionFailed, match=r"broken HTTP: .*'SSH-2\.0-OpenSSH_9\.9") as caught:
                await connection.request("GET", "/version")
    assert "b'" not in str(caught.value)


@pytest.mark.parametrize("excepted", ["127.0.0.0/8", "", "*"])
async def test_the_environment_never_takes_loopback_away(
    excepted: str, api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", excepted)
    async with await connect(kubeconfig(tmp_path / "config", api.url, {}), retry=ONCE) as connection:
        await connection.request("GET", "/api/v1/nodes")
    assert len(api.seen) == 1


# A read-only root file system.

LOGIN = """
    import asyncio, sys
    from pathlib import Path
    from tightship.kube.connection import connect

    for folder in ("/tmp", "/var/tmp", "/dev/shm", str(Path.home())):
        try:
            Path(folder, "written").touch()
        except OSError:
            continue
        sys.exit(f"{folder} can be written: the test would prove nothing")

    async def main():
        async with await connect("/run/kubeconfig") as connection:
            print(connection.server, connection._source._access.tls.cert_store_stats()["x509_ca"])

    asyncio.run(main())
"""
READ_ONLY = """
    set -e
    mount -t tmpfs tmpfs /run
    cp "$1" /run/kubeconfig
    cp "$2" /run/login.py
    for folder in /tmp /var/tmp /dev/shm "$HOME" /run; do
        mount --bind "$folder" "$folder"
        mount -o remount,ro,bind "$folder"
    done
    cd /
    exec "$3" /run/login.py
"""


def test_all_certificates_are_loaded_where_nothing_can_be_written(tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("the kernel gives no mount namespace to this user")
    authority = Authority(tmp_path)
    certificate, key = authority.issue("me")

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": data(authority.ca_file)}
    path = kubeconfig(tmp_path / "config", "", user, clusters=[{"name": "c", "cluster": cluster}])
    login = tmp_path / "login.py"
    login.write_text(textwrap.dedent(LOGIN))
    command = ["unshare", "-rm", "sh", "-c", textwrap.dedent(READ_ONLY), "sh", str(path), str(login), sys.executable]
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, "HOME": str(home)}
    )
    assert (done.stdout, done.stderr) == ("https://127.0.0.1:1 1\n", "")
