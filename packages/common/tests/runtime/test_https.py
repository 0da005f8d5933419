"""HTTPS: a certificate that is made here or kept by somebody else, and changes while it is in use."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from tightship.process import certificate as certificates
from tightship.process.certificate import Certificate
from tightship.process.http import HttpServer
from tightship_testkit.client import wait_for
from tightship_testkit.credentials import Authority

from .test_http_server import HOST, Scene


def server(certificate: Certificate, ports: Sequence[int] = (0,)) -> HttpServer:
    return HttpServer(Scene().content, host=HOST, ports=ports, probe_port=0, tls=certificate.context)


async def get(port: int | None, path: str, scheme: str = "https") -> int:
    async with aiohttp.ClientSession() as session, session.get(f"{scheme}://{HOST}:{port}{path}", ssl=False) as answer:
        await answer.read()
        return answer.status


async def shown(port: int) -> str:
    """The name on the certificate that a new connection gets."""
    pem = await asyncio.to_thread(ssl.get_server_certificate, (HOST, port), timeout=60)
    [name] = x509.load_pem_x509_certificate(pem.encode()).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(name.value)


async def test_a_made_certificate_serves_https_and_the_probes_stay_plain() -> None:
    made = Certificate(None, "node-compactor")
    assert await made.renew()
    async with server(made) as serving:
        [port] = serving.ports
        assert await shown(port) == "node-compactor"
        assert [await get(port, path) for path in ("/metrics", "/status", "/", "/healthz")] == [200] * 4
        assert await get(serving.probe_port, "/readyz", "http") == 200
        with pytest.raises(aiohttp.ClientError):
            await get(port, "/metrics", "http")
        assert await get(port, "/metrics") == 200


async def test_a_made_certificate_is_replaced_long_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(certificates, "monotonic", lambda: now[0])
    made = Certificate(None, "node-compactor")
    assert [await made.renew(), await made.renew()] == [True, False]
    now[0] += certificates.RENEWED_DAYS * 86400
    assert [await made.renew(), await made.renew()] == [True, False]


async def test_without_the_program_the_error_says_what_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OSError, match=r"needs the program openssl, or a folder with tls\.crt and tls\.key"):
        await Certificate(None, "node-compactor").renew()


def _put(folder: Path, certificate: Path, key: Path) -> None:
    (folder / "tls.crt").write_bytes(certificate.read_bytes())
    (folder / "tls.key").write_bytes(key.read_bytes())


async def test_a_certificate_that_is_renewed_in_its_folder_is_used_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "LOOK", 0.01)
    authority = Authority(tmp_path)
    folder = tmp_path / "mounted"
    folder.mkdir()
    kept = Certificate(folder, "unused")
    with pytest.raises(OSError, match=r"tls\.crt"):
        await kept.renew()
    first, second = authority.issue("first"), authority.issue("second")
    _put(folder, *first)
    assert [await kept.renew(), await kept.renew()] == [True, False]
    async with server(kept) as serving:
        [port] = serving.ports
        assert await shown(port) == "first"
        _put(folder, second[0], first[1])
        with pytest.raises(OSError, match="no certificate with its key"):
            await kept.renew()
        assert await shown(port) == "first"
        stop = asyncio.Event()
        keeping = asyncio.create_task(kept.keep(stop))
        _put(folder, *second)

        async def used() -> bool:
            return await shown(port) == "second"

        await wait_for(used, 60.0, "the second certificate is in use")
        stop.set()
        await keeping


async def test_connections_without_a_handshake_count_and_shut_out_nobody() -> None:
    made = Certificate(None, "node-compactor")
    await made.renew()
    async with server(made) as serving:
        [port] = serving.ports
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection((HOST, port))) for _ in range(100)]
            assert await get(port, "/status") == 200
            ended = 0
            for each in silent:
                each.setblocking(False)
                with suppress(BlockingIOError):
                    ended += _ended(each)
        assert ended >= 100 - 64


def _ended(connection: socket.socket) -> bool:
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True
