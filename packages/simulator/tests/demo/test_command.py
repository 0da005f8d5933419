"""The demo's command line: what it takes, and what it says where it can't."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest
from nights import COMMAND, DEADLINE

from tightship_simulator.demo import settings, simulated
from tightship_simulator.demo.backend import DiedError
from tightship_simulator.demo.command import main
from tightship_simulator.demo.running import Options, Show


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--seconds 0", "argument --seconds: '0': allowed is a number above 0"),
        ("--fast --seed x", "argument --seed: 'x': allowed is a whole number"),
        ("--fast --seed 1.5", "argument --seed: '1.5': allowed is a whole number"),
        ("--fast --seconds 30", "--seconds: not with --fast; allowed beside it are --seed, --price, --speed, --record"),
        ("--fast --replay x", "--replay: not with --fast; allowed beside it are --seed, --price, --speed, --record"),
        ("--fast --record a --replay b", "argument --replay: not allowed with argument --record"),
        ("--fast --sed 3", "--sed 3: not known; allowed are --fast, --seconds, --speed, --seed, --price, --lines, "),
        ("--faster", "--faster: not known; allowed are --fast, "),
        ("--seed", "argument --seed: expected one argument"),
    ],
)
def test_bad_input_is_one_line_with_what_is_allowed(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == 64
    out, reported = capsys.readouterr()
    assert out == ""
    assert reported.startswith(f"python -m tightship_simulator.demo: {said}")
    assert reported.count("\n") == 1


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    reported = capsys.readouterr().out
    for option in ("fast", "seconds", "speed", "seed", "price", "lines", "record", "replay"):
        assert f"  --{option}" in reported


@pytest.mark.takes(2)
def test_a_fast_night_is_lines_on_a_terminal_too_and_ends_when_told(tmp_path: Path) -> None:
    terminal, inner = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "TMPDIR": str(tmp_path)}
    environment.pop("NO_COLOR", None)
    shown = b""
    try:
        with subprocess.Popen(
            [*COMMAND, "--fast"], stdin=inner, stdout=inner, stderr=inner, env=environment
        ) as process:
            os.close(inner)
            while b"nodes 38" not in shown:
                shown += os.read(terminal, 65536)
            process.send_signal(signal.SIGINT)
            try:
                while True:
                    shown += os.read(terminal, 65536)
            except OSError:  # the other side is closed: the process has ended
                pass
            assert process.wait(DEADLINE) == 130
    finally:
        os.close(terminal)
    assert b"\x1b" not in shown
    assert shown.endswith(b"ended: the controllers are stopped, nothing is left behind\r\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.takes(2)
def test_whoever_reads_a_fast_night_may_have_had_enough() -> None:
    unread, written = os.pipe()
    os.close(unread)
    try:
        ended = subprocess.run(
            [*COMMAND, "--fast"], stdout=written, stderr=subprocess.PIPE, timeout=DEADLINE, check=False
        )
    finally:
        os.close(written)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.virtual_time
async def test_a_controller_that_dies_on_virtual_time_is_named_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def environment(name: str) -> dict[str, str]:
        found = settings.environment(name)
        return {**found, "LEASE_RETRY_PERIOD": "often"} if name == "node-refiner" else found

    monkeypatch.setattr(simulated, "environment", environment)
    with pytest.raises(DiedError, match=r"node-refiner ended by itself with .*LEASE_RETRY_PERIOD"):
        await Show(Options(), lambda _: None).run(simulated.simulated)


@pytest.mark.virtual_time
async def test_a_crash_on_virtual_time_is_told_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    show = Show(Options(), lambda _: None)

    async def crash() -> None:
        while not show.scene.began:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        refiner = show.controllers[1]
        assert isinstance(refiner, simulated.ControllerReplica)
        runtime = refiner._replica._runtime  # type: ignore[union-attr]
        assert runtime is not None
        refiner._replica.process.context.run(runtime.crash, "the loop", RuntimeError("torn"))  # type: ignore[union-attr]

    crashing = asyncio.create_task(crash())
    with pytest.raises(DiedError, match=r"node-refiner ended by itself with 1; .*\n(.*\n)*CRITICAL .*the loop.*torn"):
        await show.run(simulated.simulated)
    await crashing
