"""Running a controller's command in a test: in this process, in one of its own, or on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tightship.app.cli.app import run

NOW = "2026-03-10T00:00:00Z"
"""The time at which plans are made unless ``--now`` says otherwise."""


class Outcome(NamedTuple):
    """What a command came to: its exit code, what it printed, and what it complained of."""

    code: int
    out: str
    err: str


def call(
    name: str,
    command: Callable[[Sequence[str]], int],
    capture: Callable[[], tuple[bytes, bytes]],
    arguments: Sequence[str | Path],
) -> Outcome:
    """Run *command* of program *name* in this process; *capture* returns what was printed, as ``capfdbinary`` does."""
    given = [str(each) for each in arguments]
    if given[:1] in (["plan"], ["explain"]) and "--now" not in given and "--help" not in given:
        given += ["--now", NOW]
    try:
        code = run(name, command, given)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    sys.stdout.flush()
    out, err = capture()
    return Outcome(code, out.decode(), err.decode())


def start(module: str, *arguments: str | Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` as a process of its own, stdin and both outputs being pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *(str(each) for each in arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**_environment(), **environment},
        # A run in the background of a script ignores interrupts, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )


def on_a_terminal(module: str, arguments: Sequence[str], width: int, **environment: str) -> str:
    """Run ``python -m module`` with stdout on a pseudo-terminal *width* columns wide; return what it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**_environment(), "COLUMNS": str(width), "PYTHONIOENCODING": "utf-8", **environment},
    )
    os.close(theirs)
    parts: list[bytes] = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the terminal's other end has closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    if process.wait(60) != 0:
        raise AssertionError(f"{module} {' '.join(arguments)} exited with {process.returncode}")
    return b"".join(parts).decode()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
