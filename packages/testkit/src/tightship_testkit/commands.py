"""Running a controller's command in a test: in this process, in one of its own, or on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tightship.cli import output
from tightship.cli.app import run

NOW = "2026-03-10T00:00:00Z"
"""The time at which plans are made unless ``--now`` says otherwise."""

_HOUR = 3600.0


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
        # On a loaded machine an import alone may outlast the silence; a test of progress lines sets 0.
        with patch.object(output, "SILENCE", output.SILENCE and _HOUR):
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


_RUNS = """
import importlib, json, os, sys
module, runs = sys.argv[1], json.loads(sys.argv[2])
main = importlib.import_module(module).main
for width, environment, arguments in runs:
    os.environ.update(environment, COLUMNS=str(width))
    sys.argv = [module, *arguments]
    try:
        main()
    except SystemExit as leaving:
        assert not leaving.code, (arguments, leaving.code)
    print(end="\\f", flush=True)
"""


def on_a_terminal(module: str, *runs: tuple[int, Mapping[str, str], Sequence[str]]) -> list[str]:
    """Run a command several times in one process whose stdout is a pseudo-terminal; return what each wrote there.

    Each of *runs* is the terminal's width in columns, variables that hold from then on, and the arguments.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _RUNS, module, json.dumps(runs)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**_environment(), "PYTHONIOENCODING": "utf-8"},
    )
    os.close(theirs)
    parts: list[bytes] = []
    with contextlib.suppress(OSError):  # the terminal's other end has closed
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 0, complaint.decode()
    return b"".join(parts).decode().split("\f")[:-1]


def spilled(text: str, width: int) -> list[str]:
    """Return the lines of a terminal's text that are too long for it though they could have been broken."""
    assert "\x1b" not in text
    lines = text.replace("\r", "").splitlines()
    return [line for line in lines if len(line) > width and " " in line.removesuffix(" \\").strip()]


def printed(folder: Path, module: str, *arguments: str) -> str:
    """Return what ``python -m module`` prints in *folder* to who has 120 columns and wants no colour."""
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
