"""How the process of a controller ends: real processes, real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import asyncio, logging, signal, sys, threading, time
from tightship.objects.api_errors import KubeError
from tightship.process.logging import set_up
from tightship.process.loop import in_thread
from tightship.process.loop import run_controller

set_up("json")

def say(word):
    print(word, flush=True)

"""
TAIL = """

code = run_controller(main, {grace}, name="node-compactor")
say("returned")
sys.exit(code)
"""
DEADLINE = 60.0


class Controller:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def says(self, word: str) -> None:
        assert self._process.stdout.readline() == word + "\n"

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str, list[dict[str, Any]]]:
        """Return the exit code, the rest of stdout, and the log."""
        out, log = self._process.communicate(timeout=DEADLINE)
        return self._process.returncode, out, [json.loads(line) for line in log.splitlines()]


Start = Callable[..., Controller]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(body: str, grace: float = 15) -> Controller:
        script = tmp_path / "controller.py"
        script.write_text(HEAD + textwrap.dedent(body) + TAIL.format(grace=grace))
        pipe = subprocess.PIPE
        started.append(subprocess.Popen([sys.executable, script], stdout=pipe, stderr=pipe, text=True))
        return Controller(started[-1])

    yield start
    for process in started:
        process.kill()
        process.communicate()


POLITE = """
    async def main(runtime):
        say("ready")
        await runtime.stop.wait()
        say("stopping")
"""


def messages(log: list[dict[str, Any]]) -> list[str]:
    return [each["message"] for each in log]


def test_sigterm_is_a_proper_end(start: Start) -> None:
    controller = start(POLITE)
    controller.says("ready")
    controller.send(signal.SIGTERM)
    code, out, log = controller.end()
    assert (code, out) == (0, "stopping\nreturned\n")
    assert messages(log) == ["node-compactor: stopping on SIGTERM"]


def test_an_interrupt_ends_properly_with_its_own_code(start: Start) -> None:
    controller = start(POLITE)
    controller.says("ready")
    controller.send(signal.SIGINT)
    assert controller.end()[:2] == (130, "stopping\nreturned\n")


def test_a_second_interrupt_ends_at_once(start: Start) -> None:
    controller = start("""
        async def main(runtime):
            say("ready")
            await runtime.stop.wait()
            say("stopping")
            await asyncio.Event().wait()
    """)
    controller.says("ready")
    controller.send(signal.SIGINT)
    controller.says("stopping")
    controller.send(signal.SIGTERM)  # no impatience: the kubelet sends it to everybody
    controller.send(signal.SIGINT)
    code, out, log = controller.end()
    assert (code, out) == (130, "")
    assert messages(log)[-1] == "node-compactor: interrupted twice; ending at once"


def test_a_controller_that_is_done_ends_with_zero_and_takes_its_tasks_along(start: Start) -> None:
    code, out, log = start("""
        async def forever():
            try:
                await asyncio.Event().wait()
            finally:
                say("cancelled")

        async def main(runtime):
            runtime.spawn(forever(), "forever")
            await asyncio.sleep(0)
    """).end()
    assert (code, out, log) == (0, "cancelled\nreturned\n", [])


def test_a_task_that_crashes_ends_the_process_with_one_clear_line(start: Start) -> None:
    code, out, log = start("""
        async def broken():
            raise ValueError("of\\nno use")

        async def main(runtime):
            runtime.spawn(broken(), "metrics of nodes")
            await runtime.stop.wait()
            say("stopping")
    """).end()
    assert (code, out) == (1, "stopping\nreturned\n")
    [line] = log
    assert (line["level"], line["message"]) == ("fatal", "metrics of nodes ended: of no use")
    assert "Traceback" in line["stack_trace"]


@pytest.mark.parametrize(("error", "stack"), [("KubeError('no access')", False), ("ValueError('no access')", True)])
def test_an_error_of_the_controller_itself_is_one_line_too(start: Start, error: str, stack: bool) -> None:
    code, out, log = start(f"""
        async def main(runtime):
            raise {error}
    """).end()
    assert (code, out) == (1, "returned\n")
    assert messages(log) == ["node-compactor ended: no access"]
    assert ("stack_trace" in log[0]) is stack


def test_a_controller_that_will_not_end_is_cancelled_within_its_grace(start: Start) -> None:
    controller = start(
        """
        async def main(runtime):
            say("ready")
            try:
                await asyncio.Event().wait()
            finally:
                say("cancelled")
        """,
        grace=10,
    )
    controller.says("ready")
    controller.send(signal.SIGTERM)
    code, out, log = controller.end()
    assert (code, out) == (1, "cancelled\nreturned\n")
    assert "was told to stop; cancelling it" in messages(log)[1]


@pytest.mark.parametrize(
    ("body", "running"),
    [
        pytest.param(
            """
            async def stubborn():
                while True:
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        pass

            async def main(runtime):
                runtime.spawn(stubborn(), "stubborn task")
                say("ready")
                await runtime.stop.wait()
            """,
            "stubborn task",
            id="a task that swallows its cancellation",
        ),
        pytest.param(
            """
            def plan():
                say("ready")
                threading.Event().wait()

            async def main(runtime):
                asyncio.create_task(in_thread(plan))
                await runtime.stop.wait()
            """,
            "thread of plan",
            id="a thread",
        ),
        pytest.param(
            """
            async def main(runtime):
                say("ready")
                await runtime.stop.wait()
                threading.Event().wait()
            """,
            "node-compactor",
            id="the event loop",
        ),
    ],
)
def test_what_can_not_be_ended_is_named_and_left_behind(start: Start, body: str, running: str) -> None:
    controller = start(body, grace=5)
    controller.says("ready")
    controller.send(signal.SIGTERM)
    code, out, log = controller.end()
    assert (code, out) == (1, "")
    assert messages(log)[-1] == f"node-compactor: not ended within 5 s; exiting anyway. Still running: {running}"
