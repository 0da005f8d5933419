"""A program that does not outlive who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tightship_simulator.demo import die_with_parent

DEADLINE = 120
WAITS = "import signal; print('here', flush=True); signal.pause()"


@contextmanager
def with_pipe(code: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run *code* that dies with its parent, and give its process and the end that keeps it alive."""
    end, ours = os.pipe()
    command = [sys.executable, "-I", die_with_parent.__file__, sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, text=True) as process:
        os.close(end)
        try:
            yield process, ours
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_it_is_killed_when_the_other_end_is_gone() -> None:
    with with_pipe(WAITS) as (process, ours):
        assert said(process) == "here"
        assert process.poll() is None
        os.close(ours)
        assert process.wait(DEADLINE) == -signal.SIGKILL


def test_one_that_answers_no_signal_is_killed_too() -> None:
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
    with with_pipe(stubborn) as (process, ours):
        assert said(process) == "here"
        process.terminate()
        os.close(ours)
        assert process.wait(DEADLINE) == -signal.SIGKILL


def test_it_has_the_process_id_the_exit_code_and_nothing_to_read() -> None:
    with with_pipe("import os, sys; print(os.getpid(), repr(sys.stdin.read()), flush=True); sys.exit(7)") as (
        process,
        ours,
    ):
        assert said(process) == f"{process.pid} ''"
        assert process.wait(DEADLINE) == 7
        os.close(ours)


def test_after_a_program_that_has_ended_nothing_is_left() -> None:
    with with_pipe("print('over')") as (process, ours):
        assert said(process) == "over"
        assert process.wait(DEADLINE) == 0
        os.close(ours)
        # What watches over it holds its output too, and ends with the reading.
        assert process.stdout
        assert process.stdout.read() == ""
