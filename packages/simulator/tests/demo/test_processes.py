"""The demo as a command, with controllers that are processes: how it ends, whatever ends it."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nights import COMMAND, DEADLINE

from tightship_simulator.demo.backend import DiedError
from tightship_simulator.demo.observations import Gone, Moment, NodeSeen
from tightship_simulator.demo.processes import ControllerProcess, processes
from tightship_simulator.demo.recording import Recorder
from tightship_simulator.demo.running import Options, Show

pytestmark = [pytest.mark.slow, pytest.mark.takes(4)]

ENDS_WITHIN = 90
LINUX = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found by /proc, which Linux has"
)


def test_a_record_is_shown_again(tmp_path: Path) -> None:
    record, nodes = tmp_path / "short.jsonl", [NodeSeen(name, "general", 4000, 8000) for name in "ab"]
    with Recorder(record, Options(seconds=1)) as recorder:
        for moment in (*(Moment(0, 21, node) for node in nodes), Moment(0.5, 26, Gone("node", "b"))):
            recorder.take(moment)
    ended = subprocess.run(
        [*COMMAND, "--lines", "--replay", str(record)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "One night: 2 nodes became 1" in ended.stdout


def test_ctrl_c_while_it_is_loaded_just_ends_it(tmp_path: Path) -> None:
    (tmp_path / "rich").mkdir()
    (tmp_path / "rich" / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""


def _processes_of(group: str) -> list[str]:
    """Return the command lines of running processes whose environment names *group*."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if group.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@asynccontextmanager
async def _begun(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """Start the demo, and give it and what it prints once the night has begun; *folder* is for its files."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--lines", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            while b"nodes 38" not in (line := await process.stdout.readline()):
                assert line, "it ended by itself"
            # The demo, three controllers, and what ends each of those when the demo is no more.
            while len(_processes_of(str(folder))) != 7:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        yield process, process.stdout
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _none_is_left(folder: Path) -> None:
    """Wait until none of its processes runs any more."""
    async with asyncio.timeout(ENDS_WITHIN):
        while _processes_of(str(folder)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@LINUX
async def test_told_to_end_it_leaves_nothing_behind(tmp_path: Path) -> None:
    async with _begun(tmp_path) as (process, printed), asyncio.timeout(DEADLINE):
        assert os.listdir(tmp_path)  # noqa: PTH208
        process.send_signal(signal.SIGTERM)
        rest = (await printed.read()).decode()
        assert await process.wait() == 130, rest
    assert "nothing is left behind" in rest
    await _none_is_left(tmp_path)
    # Ports are reserved among all processes of a user, for good.
    left = os.listdir(tmp_path)  # noqa: PTH208
    assert [each for each in left if not each.startswith("tightship-ports-")] == []


@LINUX
async def test_killed_it_leaves_no_controller_behind(tmp_path: Path) -> None:
    async with _begun(tmp_path) as (process, _), asyncio.timeout(DEADLINE):
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        await _none_is_left(tmp_path)


def _read_until(terminal: int, text: bytes, process: subprocess.Popen[bytes]) -> bytes:
    """Return what the process shows until *text* is there, or until its end where that is empty."""
    shown, end = b"", time.monotonic() + DEADLINE
    while not text or text not in shown:
        assert time.monotonic() < end, shown[-2000:]
        ended = process.poll() is not None  # asked first: what it showed before is there then
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65536)
            except OSError:  # the other side is closed: the process has ended
                break
        elif ended:
            break
    return shown


def test_the_screen_is_drawn_in_place_and_the_terminal_is_given_back() -> None:
    terminal, inner = pty.openpty()
    try:
        termios.tcsetwinsize(terminal, (24, 80))
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        process = subprocess.Popen(COMMAND, stdin=inner, stdout=inner, stderr=inner, env=environment)
        os.close(inner)
        shown = _read_until(terminal, "38 → 38".encode(), process)
        assert b"\x1b[?1049h" in shown
        assert b"\x1b[?25l" in shown
        process.send_signal(signal.SIGINT)
        rest = _read_until(terminal, b"", process)
        assert process.wait(DEADLINE) == 130
    finally:
        os.close(terminal)
    assert b"\x1b[?1049l" in rest
    assert rest.rindex(b"\x1b[?25h") > rest.rfind(b"\x1b[?25l")
    assert b"nothing is left behind" in rest[rest.rindex(b"\x1b[?1049l") :]


async def test_a_controller_that_dies_is_named_with_the_end_of_its_log() -> None:
    show = Show(Options(seconds=600), lambda _: None)

    async def kill() -> None:
        while not show.scene.began or "leader" not in show.controllers[1].tail():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        refiner = show.controllers[1]
        assert isinstance(refiner, ControllerProcess)
        os.kill(refiner.pid, signal.SIGKILL)

    killer = asyncio.create_task(kill())
    try:
        with pytest.raises(DiedError) as died:
            async with asyncio.timeout(DEADLINE):
                await show.run(processes)
    finally:
        killer.cancel()
        await asyncio.gather(killer, return_exceptions=True)
    assert re.match(r"node-refiner ended by itself with -9; the end of its log:\n.*leader", str(died.value), re.DOTALL)


async def test_a_controller_that_is_not_installed_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(DiedError, match=r"hpa-scaler can't be started: .*hpa-scaler is no program; make install"):
        await ControllerProcess("hpa-scaler", tmp_path / "kubeconfig", tmp_path, "").start()
