"""Exec plugins: the cases of client-go's plugin/pkg/client/auth/exec/exec_test.go, and what users have reported."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tightship.kube import credentials
from tightship.kube.connection import connect
from tightship.kube.credentials import ClusterAccess, find
from tightship.objects.api_errors import ConfigError, Unauthorized
from tightship_testkit.credentials import Authority
from tightship_testkit.scripted import ScriptedApi, page, status

from .conftest import Json

BETA, V1 = "client.authentication.k8s.io/v1beta1", "client.authentication.k8s.io/v1"
TOKEN = {"token": "foo-bar"}
SCRIPT = """
printf %s "$KUBERNETES_EXEC_INFO" > "$ASKED"
printf %s "$ANSWER"
exit "${CODE:-0}"
"""


def answer(status: Json | None, version: str | None = BETA, kind: str = "ExecCredential") -> str:
    document = {"kind": kind, "apiVersion": version, "status": status}
    return json.dumps({key: value for key, value in document.items() if value is not None})


def kubeconfig(folder: Path, plugin: Json, *, user: Json | None = None, **cluster: Any) -> Path:
    path = folder / "config"
    document = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/prefix/", **cluster}}],
        "users": [{"name": "u", "user": {"exec": plugin, **(user or {})}}],
    }
    path.write_text(json.dumps(document))
    return path


def scripted(folder: Path, reported: str = "", script: str = SCRIPT, **more: Any) -> Json:
    variables = {"ASKED": str(folder / "asked"), "ANSWER": reported, **more.pop("env", {})}
    listed = [{"name": name, "value": value} for name, value in variables.items()]
    return {"apiVersion": BETA, "command": "sh", "args": ["-c", script], "env": listed, **more}


async def until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)


async def access(path: Path) -> ClusterAccess:
    return await find(path).access()


# The plugin's settings, whether stdin is a terminal, and what the plugin is told of that.
ASKED = [
    ({}, False, False),
    ({"interactiveMode": "Never"}, False, False),
    ({"interactiveMode": "Never"}, True, False),
    ({"interactiveMode": "IfAvailable"}, False, False),
    ({"interactiveMode": "IfAvailable"}, True, True),
    ({"interactiveMode": "Always"}, True, True),
    ({"interactiveMode": "Always", "apiVersion": V1}, True, True),
    ({"interactiveMode": "IfAvailable", "apiVersion": V1}, False, False),
]


@pytest.mark.parametrize(("settings", "terminal", "interactive"), ASKED)
async def test_a_plugin_is_asked_in_its_version_and_told_whether_it_has_a_terminal(
    settings: Json, terminal: bool, interactive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_is_terminal", lambda: terminal)
    version = settings.get("apiVersion", BETA)
    found = await access(kubeconfig(tmp_path, scripted(tmp_path, answer(TOKEN, version), **settings)))
    assert found.headers == (("Authorization", "Bearer foo-bar"),)
    assert json.loads((tmp_path / "asked").read_text()) == {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {"interactive": interactive},
    }


ERRORS = [
    pytest.param({"interactiveMode": "Always"}, "", "Always, but standard input is not a terminal", id="no terminal"),
    pytest.param({"interactiveMode": "Maybe"}, "", "'Maybe': allowed are Never, IfAvailable, Always", id="mode"),
    pytest.param({"apiVersion": V1}, "", "exec.interactiveMode: None: allowed are Never", id="v1 without a mode"),
    pytest.param({"apiVersion": f"{V1}alpha1"}, "", "exec.apiVersion: .*v1alpha1': allowed are", id="alpha"),
    pytest.param({"apiVersion": None}, "", "exec.apiVersion: None: allowed are", id="no version"),
    pytest.param({"command": ""}, "", "exec.command: names no command", id="no command"),
    pytest.param({"args": [5]}, "", "exec.args: .* is not a list of texts", id="a number"),
    pytest.param({"env": {"": "x"}}, "", "exec.env: allowed is a list with the texts name", id="no name"),
    pytest.param(
        {"command": "does not exist", "installHint": "get\n\x1b[1mit here"},
        "",
        r"does not exist: there is no such program; get \[1mit here$",
        id="no program",
    ),
    pytest.param({"env": {"CODE": "73"}}, "", "the exec plugin sh failed with exit code 73$", id="it fails"),
    pytest.param({}, "{", "the exec plugin sh printed no JSON$", id="no JSON"),
    pytest.param({}, answer(TOKEN, None), "and returned None", id="no group version"),
    pytest.param({}, answer(TOKEN, V1), f"is configured for {BETA}, and returned '{V1}'", id="another version"),
    pytest.param({}, answer(TOKEN, kind="Pod"), "printed no ExecCredential", id="another kind"),
    pytest.param({}, answer(None), "returned no status", id="no status"),
    pytest.param({}, answer({}), "returned neither a token nor a certificate", id="no token"),
    pytest.param({}, answer({"token": 5}), "that is not text", id="a token that is a number"),
    pytest.param({}, answer({"clientCertificateData": "x"}), "only a certificate or only a key", id="no key"),
    pytest.param({}, answer({"clientKeyData": "x"}), "only a certificate or only a key", id="no certificate"),
    pytest.param({}, answer({**TOKEN, "expirationTimestamp": "soon"}), "'soon', which is no time", id="no time"),
]


@pytest.mark.parametrize(("settings", "reported", "problem"), ERRORS)
async def test_a_plugin_that_gives_nothing_is_one_clear_error(
    settings: Json, reported: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_is_terminal", lambda: False)
    with pytest.raises(ConfigError, match=problem) as caught:
        await access(kubeconfig(tmp_path, scripted(tmp_path, reported, **settings)))
    text = str(caught.value)
    assert text.startswith(f"kubeconfig {tmp_path}/config: users[u].user.exec")
    assert text.isprintable()
    assert "b'" not in text


async def test_a_plugin_may_give_a_certificate_which_no_file_needs(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    asked: list[Any] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.transport.get_extra_info("peercert"))["subject"])
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/version", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server(demands_client=True)).start()
    server = f"https://127.0.0.1:{runner.addresses[0][1]}"
    certificate, key = (each.read_text() for each in authority.issue("me"))
    pair = {"clientCertificateData": certificate, "clientKeyData": key}
    config = kubeconfig(
        tmp_path, scripted(tmp_path, answer(pair)), server=server, **{"certificate-authority": "ca.crt"}
    )
    try:
        async with await connect(config) as connection:
            await connection.request("GET", "/version")
    finally:
        await runner.cleanup()
    assert asked == [((("commonName", "me"),),)]
    bad = {"clientCertificateData": "foo", "clientKeyData": "bar"}
    with pytest.raises(ConfigError, match="certificates"):
        await access(kubeconfig(tmp_path, scripted(tmp_path, answer(bad)), server=server))


async def test_the_cluster_is_told_to_a_plugin_that_wants_to_know(tmp_path: Path) -> None:
    audience = {"apiVersion": "group/v1", "kind": "PluginConfig", "spec": {"audience": "snorlax"}}
    cluster = {
        "tls-server-name": "bar",
        "certificate-authority-data": base64.b64encode(b"baz").decode(),
        "proxy-url": "http://proxy:1",
        "extensions": [
            {"name": "other", "extension": 5},
            {"name": credentials.CLUSTER_EXTENSION, "extension": audience},
        ],
    }
    for wanted in (True, False):
        plugin = scripted(tmp_path, answer(TOKEN), provideClusterInfo=wanted)
        await access(kubeconfig(tmp_path, plugin, **cluster))
        reported = json.loads((tmp_path / "asked").read_text())["spec"]
        assert ("cluster" in reported) == wanted
        if wanted:
            assert reported["cluster"] == {
                "server": "http://127.0.0.1:1/prefix/",
                "tls-server-name": "bar",
                "certificate-authority-data": "YmF6",
                "proxy-url": "http://proxy:1",
                "config": audience,
            }


async def test_the_authority_of_a_file_and_no_check_are_told_too(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"baz")
    plugin = scripted(tmp_path, answer(TOKEN), provideClusterInfo=True)
    skipped = {"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"}
    await access(kubeconfig(tmp_path, plugin, **skipped))
    reported = json.loads((tmp_path / "asked").read_text())["spec"]["cluster"]
    assert (reported["certificate-authority-data"], reported["insecure-skip-tls-verify"]) == ("YmF6", True)


async def test_stderr_is_shown_at_once_and_its_last_line_is_in_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = 'echo "open https://example.com and enter CODE" >&2; until [ -e "$ASKED" ]; do sleep 0.05; done; exit 1'
    loading = asyncio.create_task(access(kubeconfig(tmp_path, scripted(tmp_path, script=script))))
    shown = ""
    while "enter CODE" not in shown:
        assert not loading.done()
        await asyncio.sleep(0.01)
        shown += capsys.readouterr().err
    (tmp_path / "asked").touch()
    with pytest.raises(ConfigError, match=r"failed with exit code 1: open https://example\.com and enter CODE$"):
        await loading


async def test_any_amount_of_output_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        'head -c 3000000 /dev/zero | tr "\\0" "\\n" >&2; head -c 3000000 /dev/zero | tr "\\0" " "; printf %s "$ANSWER"'
    )
    found = await access(kubeconfig(tmp_path, scripted(tmp_path, answer(TOKEN), script)))
    assert found.headers == (("Authorization", "Bearer foo-bar"),)
    assert len(capsys.readouterr().err) == 3_000_000


async def test_a_child_that_keeps_stderr_delays_nothing(tmp_path: Path) -> None:
    script = 'sleep 60 >/dev/null & printf %s "$ANSWER"; echo $! > "$ASKED"'
    began = time.monotonic()
    await access(kubeconfig(tmp_path, scripted(tmp_path, answer(TOKEN), script)))
    assert time.monotonic() - began < 30
    os.kill(int((tmp_path / "asked").read_text()), 9)


async def test_a_plugin_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    loading = asyncio.create_task(
        access(
            kubeconfig(
                tmp_path, scripted(tmp_path, script='echo $$ > "$ASKED.new"; mv "$ASKED.new" "$ASKED"; exec sleep 600')
            )
        )
    )
    await until((tmp_path / "asked").exists)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    pid = int((tmp_path / "asked").read_text())
    await until(lambda: not os.path.exists(f"/proc/{pid}"))  # noqa: PTH110


async def test_a_plugin_that_nobody_watches_has_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "TIMEOUT", 0.2)
    with pytest.raises(ConfigError, match=r"did not end within 0.2 s: waiting for you$"):
        await access(kubeconfig(tmp_path, scripted(tmp_path, script="echo waiting for you >&2; exec sleep 600")))


@pytest.mark.parametrize(
    "user",
    [{"token": "t"}, {"tokenFile": "token"}, {"username": "u", "password": "p"}],
    ids=["token", "token file", "password"],
)
async def test_what_is_written_down_comes_before_a_plugin(user: Json, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t\n")
    found = await access(kubeconfig(tmp_path, scripted(tmp_path, answer(TOKEN)), user=user))
    assert [name for name, _ in found.headers] == ["Authorization"]
    assert not (tmp_path / "asked").exists()


async def test_a_command_with_a_slash_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "login"
    program.write_text(f"#!/bin/sh\n{SCRIPT}")
    program.chmod(0o755)
    await access(kubeconfig(tmp_path, scripted(tmp_path, answer(TOKEN), command="./bin/login", args=None)))
    program.chmod(0o644)
    with pytest.raises(ConfigError, match=r"/bin/login: there is no such program$"):
        await access(kubeconfig(tmp_path, scripted(tmp_path, answer(TOKEN), command="./bin/login", args=None)))


async def test_a_token_is_kept_until_it_is_refused_or_expires(api: ScriptedApi, tmp_path: Path) -> None:
    """As TestRoundTripper of client-go; here the refused request itself is repeated."""
    good = ""

    async def respond(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") == f"Bearer {good}":
            return await page([])(request)
        return await status(401, "Unauthorized", "who are you?")(request)

    def says(token: str, **more: Any) -> None:
        (tmp_path / "said").write_text(answer({"token": token, **more}))

    api.on("LIST /api/v1/nodes", respond)
    script = 'cat "$ANSWER"; echo run >> "$ASKED"'
    path = kubeconfig(tmp_path, scripted(tmp_path, str(tmp_path / "said"), script), server=api.url)
    says("token1")
    good = "token1"
    async with await connect(path) as connection:
        await connection.request("GET", "/api/v1/nodes")
        says("token2")
        await connection.request("GET", "/api/v1/nodes")
        assert (tmp_path / "asked").read_text() == "run\n"
        good = "token2"
        await connection.request("GET", "/api/v1/nodes")
        assert (tmp_path / "asked").read_text() == "run\n" * 2
        good = "token3"
        with pytest.raises(Unauthorized):
            await connection.request("GET", "/api/v1/nodes")
        assert (tmp_path / "asked").read_text() == "run\n" * 3


@pytest.mark.parametrize(("left", "valid"), [(3600, 3540), (-5, 10)])
async def test_a_credential_is_renewed_a_minute_before_it_expires(left: int, valid: int, tmp_path: Path) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + left))
    reported = answer({**TOKEN, "expirationTimestamp": stamp})
    source = find(kubeconfig(tmp_path, scripted(tmp_path, reported)))
    source._clock = lambda: 0.0
    await source.access()
    assert source._expires is not None
    assert valid - 30 <= source._expires <= valid


async def test_a_key_with_a_password_is_an_error_and_no_question(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("me")
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        loaded.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    user = {"client-certificate": certificate.name, "client-key": key.name, "exec": None}
    with pytest.raises(ConfigError, match="the key is encrypted; allowed is one without a password"):
        await access(kubeconfig(tmp_path, {}, user=user, server="https://127.0.0.1:1"))


def test_trust_is_that_of_go(tmp_path: Path) -> None:
    """Any given certificate is an anchor, and one without a key identifier is as good."""
    from tightship.kube.credentials import ClientTls

    authority = Authority(tmp_path).ca_file.read_bytes()
    context = ClientTls(authority="# Größe\n".encode("latin-1") + authority).context()
    assert len(context.get_ca_certs()) == 1
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
