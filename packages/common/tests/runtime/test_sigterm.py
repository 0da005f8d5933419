"""SIGTERM at any moment: a controller ends with 0 and without an error, whatever it waits for.

Its grace is ten minutes here, so whoever only ends with the grace does not end within the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tightship_simulator.serve import EmbeddedCluster

pytestmark = pytest.mark.slow

PROGRAMS = ("node_compactor", "node_refiner", "hpa_scaler")
POD = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "HTTP_HOST": "127.0.0.1",
    "STOP_GRACE": "600s",
    "STOP_TIMEOUT": "5s",
    "LOG_FORMAT": "json",
}
DEADLINE = 60.0


def kubeconfig(folder: Path, server: str, user: dict[str, Any] | None = None) -> Path:
    path = folder / "kubeconfig"
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(document))
    return path


def command(program: str, config: Path) -> list[str]:
    ports = ["--port", "0", "--probe-port", "0"]
    return [sys.executable, "-m", program, "run", "--kubeconfig", str(config), *ports]


async def ended_well(process: asyncio.subprocess.Process) -> None:
    """Send SIGTERM, and check that the process ends by it."""
    process.send_signal(signal.SIGTERM)
    try:
        _, log = await asyncio.wait_for(process.communicate(), DEADLINE)
    except TimeoutError:
        process.kill()
        await process.communicate()
        raise
    lines = [json.loads(line) for line in log.splitlines()]
    bad = [each for each in lines if each["level"].lower() in ("error", "critical", "fatal")]
    assert (process.returncode, bad) == (0, []), lines


async def started(program: str, config: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command(program, config), env={**os.environ, **POD}, stderr=asyncio.subprocess.PIPE
    )


async def heeds(process: asyncio.subprocess.Process) -> None:
    """Wait until the process has a handler of SIGTERM, whatever it does besides."""
    while True:
        text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")  # noqa: ASYNC240
        caught = next(int(line.split()[1], 16) for line in text.splitlines() if line.startswith("SigCgt"))
        if caught >> (signal.SIGTERM - 1) & 1:
            return
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_while_it_loads(program: str, tmp_path: Path) -> None:
    process = await started(program, kubeconfig(tmp_path, "http://127.0.0.1:1"))
    await heeds(process)
    await ended_well(process)


@pytest.mark.parametrize("program", PROGRAMS[1:])
async def test_while_the_api_server_refuses(program: str, tmp_path: Path) -> None:
    process = await started(program, kubeconfig(tmp_path, "http://127.0.0.1:1"))
    assert process.stderr is not None
    while b"context x" not in await process.stderr.readline():
        assert process.returncode is None
    await ended_well(process)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_while_the_api_server_says_nothing(program: str, tmp_path: Path) -> None:
    asked, over = asyncio.Event(), asyncio.Event()

    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        process = await started(program, kubeconfig(tmp_path, f"http://127.0.0.1:{port}"))
        await asyncio.wait_for(asked.wait(), DEADLINE)
        await ended_well(process)
        over.set()


async def test_while_an_exec_plugin_runs(tmp_path: Path) -> None:
    mark = tmp_path / "runs"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "interactiveMode": "Never",
        "command": "sh",
        "args": ["-c", f"touch '{mark}'; exec sleep 600"],
    }
    process = await started("node_compactor", kubeconfig(tmp_path, "http://127.0.0.1:1", {"exec": plugin}))
    while not mark.exists():  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)
    await ended_well(process)


# The namespace has a name server that takes queries and never answers.
LOST = """
    import asyncio, os, signal, socket, subprocess, sys

    listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listening.bind(("127.0.0.1", 53))
    process = subprocess.Popen(sys.argv[1:])
    while b"nowhere" not in listening.recv(4096):
        pass
    process.send_signal(signal.SIGTERM)
    sys.exit(process.wait())
"""
NAMES = """
    set -e
    ip link set lo up
    mount --bind "$1" /etc/resolv.conf
    shift
    exec "$@"
"""


@pytest.mark.parametrize("program", PROGRAMS[1:])
def test_while_a_name_is_being_resolved(program: str, tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rnm", "true"], check=False).returncode:
        pytest.skip("the kernel gives no network namespace to this user")
    if not shutil.which("ip"):
        pytest.skip("the program ip is missing, which sets up a network")
    resolver, scene = tmp_path / "resolv.conf", tmp_path / "scene.py"
    resolver.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:5\n")
    scene.write_text(textwrap.dedent(LOST))
    asked = [sys.executable, str(scene), *command(program, kubeconfig(tmp_path, "http://api.nowhere.example"))]
    done = subprocess.run(
        ["unshare", "-rnm", "sh", "-c", textwrap.dedent(NAMES), "sh", str(resolver), *asked],
        env={**os.environ, **POD}, capture_output=True, text=True, check=False, timeout=DEADLINE,
    )  # fmt: skip
    levels = {json.loads(line)["level"].lower() for line in done.stderr.splitlines()}
    assert (done.returncode, levels) == (0, {"info"}), done.stderr


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.mark.parametrize(
    ("program", "number"),
    [
        *(("node_compactor", number) for number in (1, 2, 4, 8, 16, 24)),
        *(("hpa_scaler", number) for number in (1, 2, 4)),
    ],
)
async def test_with_one_of_the_first_requests_under_way(program: str, number: int, tmp_path: Path) -> None:
    asked, count = asyncio.Event(), 0

    @web.middleware
    async def counting(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal count
        count += 1
        if count == number:
            asked.set()
        return await handler(request)

    async with EmbeddedCluster(middlewares=[counting]) as cluster:
        process = await started(program, kubeconfig(tmp_path, cluster.url))
        await asyncio.wait_for(asked.wait(), DEADLINE)
        await ended_well(process)
