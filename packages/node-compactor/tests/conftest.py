"""What the command's tests share: the small clusters, and running the command in this process or its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_runner import Cli, runner

from node_compactor.cli import PROGRAM, command

DATA = Path(__file__).parent / "data"


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MINIMUM_NODE_AGE_SECONDS", "NEEDED_MARKED_TIME_FOR_REMOVAL_SECONDS", "NO_COLOR", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Run the command here: ``cli("plan", "-f", ...)``, at a fixed time unless ``--now`` is given."""
    return runner(PROGRAM, command, capfdbinary)


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Start the command as a process of its own, stdin and both outputs being pipes."""

    def begin(*arguments: str | Path, **environment: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(each for each in sys.path if each)
        return subprocess.Popen(
            [sys.executable, "-m", "node_compactor.cli", *(str(each) for each in arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **environment},
            # A run in the background of a script ignores interrupts, and its children would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
        )

    return begin
