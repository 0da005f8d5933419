"""What the command's tests share: the small clusters, and running the command in this process or its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from node_compactor.controller import COMMANDS
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

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
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """Run the command here: ``cli("plan", "-f", ...)``, at a fixed time unless ``--now`` is given."""
    return lambda *arguments: commands.call(COMMANDS.name, COMMANDS.command, capfdbinary.readouterr, arguments)


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Start the command as a process of its own, stdin and both outputs being pipes."""
    return partial(commands.start, "node_compactor")
