"""The whole demo as a process, and what must hold of any night, told by its record."""

from __future__ import annotations

import asyncio
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tightship_simulator.demo.processes import Controller, DiedError
from tightship_simulator.demo.recording import Recorder, read
from tightship_simulator.demo.running import Options, Show, settled
from tightship_simulator.demo.scene import Scene
from tightship_simulator.demo.sights import BudgetSeen, EventSeen, FloorSeen, Gone, Moment, NodeSeen, PodSeen, Told
from tightship_simulator.demo.story import demand
from tightship_simulator.demo.town import SPARE, WORKS

COMMAND = [sys.executable, "-m", "tightship_simulator.demo"]
DEADLINE = 540
ENDS_WITHIN = 90
LINUX = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found by /proc, which Linux has"
)
STUBBORN = {f"{work.namespace}/{work.name}" for work in WORKS if work.stubborn}
STEADY = {f"{work.namespace}/{work.name}" for work in WORKS if not work.rate and work.budget}


class Night:
    """A night that has passed."""

    def __init__(self, record: Path, output: str, code: int) -> None:
        self.output, self.code = output, code
        options, moments = read(record)
        self.moments: list[Moment] = list(moments)
        self.scene = Scene(options.seconds, options.price)
        for moment in self.moments:
            self.scene.take(moment)

    def of(self, *kinds: type) -> list[Moment]:
        return [each for each in self.moments if isinstance(each.sight, kinds)]


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    record = tmp_path_factory.mktemp("night") / "night.jsonl"
    ended = subprocess.run(
        [*COMMAND, "--seconds", "30", "--lines", "--record", str(record)],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    return Night(record, ended.stdout + ended.stderr, ended.returncode)


def test_the_night_ends_well_and_says_what_it_came_to(night: Night) -> None:
    assert night.code == 0, night.output
    assert "One night: 38 nodes became" in night.output
    assert "Next:" in night.output


def test_both_controllers_drain_nodes_and_the_autoscaler_removes_them(night: Night) -> None:
    assert night.scene.drained["node-compactor"] > 0
    assert night.scene.drained["node-refiner"] > 0
    gone = {each.sight.key for each in night.of(Gone) if isinstance(each.sight, Gone) and each.sight.what == "node"}
    drained = {
        each.sight.name
        for each in night.of(NodeSeen)
        if isinstance(each.sight, NodeSeen) and each.sight.drain == "Drained"
    }
    assert gone & drained
    assert night.scene.fewest < night.scene.began
    assert night.scene.saved > 0


def test_no_node_is_cordoned_without_somebody_who_is_responsible(night: Night) -> None:
    for each in night.of(NodeSeen):
        assert isinstance(each.sight, NodeSeen)
        if each.sight.cordoned:
            assert each.sight.drain or each.sight.taken, each


def test_no_pod_is_evicted_past_its_budget(night: Night) -> None:
    """Of workloads that nobody scales, so that only evictions can make pods fewer."""
    looked_at = [each.sight for each in night.of(BudgetSeen) if each.sight.key in STEADY]  # type: ignore[union-attr]
    assert {each.key for each in looked_at if isinstance(each, BudgetSeen)} == STEADY
    for budget in looked_at:
        assert isinstance(budget, BudgetSeen)
        assert budget.healthy >= budget.desired, budget


def test_stubborn_pods_are_never_touched(night: Night) -> None:
    pods: dict[str, set[str]] = {}
    for each in night.of(PodSeen):
        assert isinstance(each.sight, PodSeen)
        if each.sight.app in STUBBORN:
            assert not each.sight.leaving, each
            pods.setdefault(each.sight.app, set()).add(each.sight.key)
    assert {app: len(keys) for app, keys in pods.items()} == dict.fromkeys(STUBBORN, 1)
    names = {key for keys in pods.values() for key in keys}
    assert not any(each.sight.about in names for each in night.of(EventSeen) if isinstance(each.sight, EventSeen))


def _failure(night: Night) -> tuple[float, float]:
    """Return the hours from which on there were no answers, and were answers again."""
    told = [each for each in night.of(Told) if isinstance(each.sight, Told) and "gateway" in each.sight.text]
    assert len(told) == 2
    return told[0].hour, told[1].hour


def test_floors_hold_while_prometheus_is_away(night: Night) -> None:
    """Whatever was still answered before has said at least what traffic there was when it went away."""
    begin, end = _failure(night)
    guarded = {f"{work.namespace}/{work.name}": work for work in WORKS if work.rate and work.guarded}
    looked_at = set()
    floors: dict[str, int] = {}
    for each in night.of(FloorSeen):
        floor = each.sight
        assert isinstance(floor, FloorSeen)
        if floor.key not in guarded or each.hour > end:
            continue
        floors[floor.key] = floor.floor
        if each.hour >= begin:
            work = guarded[floor.key]
            assert floor.floor >= math.ceil(work.peak * demand(begin) / (work.rate * SPARE)), floor
            looked_at.add(floor.key)
    assert looked_at == guarded.keys()
    assert all(floor > 2 for floor in floors.values())


def test_an_hpa_whose_floor_nobody_keeps_falls_below_what_is_needed_meanwhile(night: Night) -> None:
    begin, end = _failure(night)
    [quote] = [work for work in WORKS if work.rate and not work.guarded]
    seen = [each for each in night.of(FloorSeen) if isinstance(each.sight, FloorSeen) and each.hour >= begin]
    key = f"{quote.namespace}/{quote.name}"
    fewest = min(each.sight.desired for each in seen if each.sight.key == key)  # type: ignore[union-attr]
    assert fewest < quote.peak * demand(end) / quote.rate


def test_nodes_come_back_in_the_morning_and_every_pod_runs(night: Night) -> None:
    assert night.scene.added > 0
    assert settled(night.scene)
    apps = Counter(pod.app for pod in night.scene.pods.values())
    assert all(apps[f"{work.namespace}/{work.name}"] == work.replicas for work in WORKS if not work.rate)
    for floor in night.scene.floors.values():
        assert floor.current >= floor.floor
        assert apps[floor.key] == floor.current


def test_the_story_is_told_to_its_end(night: Night) -> None:
    told = [each.sight.text for each in night.of(Told) if isinstance(each.sight, Told)]
    assert len(told) == 8
    assert told[-1] == "the end of the night"


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


def test_whoever_reads_may_have_had_enough(tmp_path: Path) -> None:
    record = tmp_path / "short.jsonl"
    with Recorder(record, Options(seconds=1)) as recorder:
        recorder.take(Moment(0, 21, NodeSeen("a", "general", 4000, 8000)))
        recorder.take(Moment(0.5, 26, Gone("node", "a")))
        # Figures are printed now and then until somebody has had enough, however late that is.
        recorder.take(Moment(3600, 27, Gone("node", "b")))
    with subprocess.Popen(
        [*COMMAND, "--replay", str(record)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(DEADLINE) == 141
        assert process.stderr.read() == ""


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@LINUX
async def test_told_to_end_it_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    async with _begun(tmp_path) as (process, printed), asyncio.timeout(DEADLINE):
        assert os.listdir(tmp_path)  # noqa: PTH208
        process.send_signal(number)
        rest = (await printed.read()).decode()
        assert await process.wait() == 130, rest
    assert "nothing is left behind" in rest
    await _none_is_left(tmp_path)
    assert os.listdir(tmp_path) == []  # noqa: PTH208


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
        async with asyncio.timeout(DEADLINE):
            while not show.scene.began or "leader" not in show.controllers[1].tail():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        os.kill(show.controllers[1].pid, signal.SIGKILL)

    killer = asyncio.create_task(kill())
    with pytest.raises(DiedError) as died:
        async with asyncio.timeout(DEADLINE):
            await show.run()
    await killer
    assert re.match(r"node-refiner ended by itself with -9; the end of its log:\n.*leader", str(died.value), re.DOTALL)


async def test_a_controller_that_is_not_installed_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(DiedError, match=r"hpa-scaler can't be started: .*hpa-scaler is no program; make install"):
        await Controller("hpa-scaler", tmp_path / "kubeconfig", tmp_path, "").start()


def test_bad_options_are_named_with_what_is_allowed() -> None:
    ended = subprocess.run([*COMMAND, "--seconds", "0"], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "--seconds: '0': allowed is a number above 0" in ended.stderr
