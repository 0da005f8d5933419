"""Whoever reaches a controller over HTTP can't stop it: its probes answer, its memory and its log stay small."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest

HOST = "127.0.0.1"
HALF_OPEN, NEVER_READ, SLOW, OVERLONG = 2_000, 200, 50, 300
SPARE = 300
MEGABYTES, LINES = 20, 100
TRIES, PATIENCE = 3, 5.0
"""A kubelet restarts a container after so many failed probes.

Its patience is a second by default. A busy machine gets more: an attack that works ends all answers.
"""


class Big:
    """The server under attack, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.pid = process.pid
        self.port, self.probe_port = map(int, process.stdout.readline().split())
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20

    async def probed(self, port: int) -> None:
        """Ask as a kubelet does, and raise where it would restart the container."""
        for path in ("/healthz", "/readyz"):
            for attempt in range(TRIES):
                try:
                    assert await answer(port, path, PATIENCE) == 200
                    break
                except (TimeoutError, aiohttp.ClientError):
                    if attempt == TRIES - 1:
                        raise


async def answer(port: int, path: str, patience: float = 60.0, **headers: str) -> int:
    timeout = aiohttp.ClientTimeout(total=patience)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://{HOST}:{port}{path}", headers=headers) as response,
    ):
        await response.read()
        return response.status


@pytest.fixture
def big(tmp_path: Path) -> Iterator[Big]:
    log = tmp_path / "log"
    program = Path(__file__).with_name("big_server.py")
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(program.parents[1]), *sys.path])}
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=stderr, text=True, env=variables
        )
        try:
            yield Big(process, log)
        finally:
            process.terminate()
            process.communicate(timeout=60)


@pytest.fixture
def descriptors() -> Iterator[int]:
    """Raise the number of files that this process may open as far as it can; return how many it may use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HALF_OPEN + NEVER_READ + SLOW + SPARE
    raised = max(soft, wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    yield raised - SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def connected(port: int, *, receives: int = 0) -> socket.socket:
    link = socket.socket()
    if receives:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    link.setblocking(False)
    await asyncio.get_running_loop().sock_connect(link, (HOST, port))
    return link


async def send(link: socket.socket, data: bytes) -> None:
    """Send what the other side has not closed itself against."""
    with suppress(ConnectionError):
        await asyncio.get_running_loop().sock_sendall(link, data)


async def test_nobody_can_stop_the_probes_or_fill_memory_or_log(big: Big, descriptors: int) -> None:
    async def attack(port: int, count: int, data: bytes, *, receives: int = 0) -> list[socket.socket]:
        links = []
        for number in range(count):
            links.append(stack.enter_context(await connected(port, receives=receives)))
            await send(links[-1], data)
            if number % 200 == 0:
                await big.probed(big.probe_port)
        return links

    for path in ("/", "/status", "/metrics"):
        assert await answer(big.port, path) == 200
    before = big.megabytes
    with ExitStack() as stack:
        half = min(HALF_OPEN, descriptors - NEVER_READ - SLOW)
        await attack(big.port, half * 3 // 4, b"GET / HT")
        await attack(big.probe_port, half // 4, b"GET /healthz HT")
        for path in (b"/", b"/status", b"/metrics"):
            request = b"GET %s HTTP/1.1\r\nHost: x\r\n\r\n" % path
            await attack(big.port, NEVER_READ // 3, request * 50, receives=4096)
        slow = await attack(big.port, SLOW, b"GET / HTTP/1.1\r\n")
        for _ in range(10):
            for link in slow:
                await send(link, b"X")
            await big.probed(big.probe_port)
        for _ in range(OVERLONG):
            with await connected(big.port) as link:
                await send(link, b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 70_000))
            with await connected(big.port) as link:
                await send(link, b"GE\x00T / HTTP/1.1\r\nHost: \xff\r\n\r\n")
        await big.probed(big.probe_port)
        # The newest connection counts for more than those that do nothing.
        await big.probed(big.port)
        assert big.megabytes - before <= MEGABYTES
    assert await answer(big.port, "/", **{"Accept-Encoding": "identity"}) == 200
    assert len(big.log.splitlines()) <= LINES, big.log[-4000:]
