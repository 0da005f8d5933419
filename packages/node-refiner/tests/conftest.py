"""What the command's tests share: the small cluster, and running the command in this process or its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from node_refiner.controller import COMMANDS
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

CLUSTER = Path(__file__).parents[2] / "node-compactor" / "tests" / "data" / "cluster.yaml"
"""The cluster on which node-compactor's outputs are shown: both commands tell of the same nodes."""


@pytest.fixture
def cluster() -> Path:
    return CLUSTER


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """Run the command here: ``cli("plan", "-f", ...)``, at a fixed time unless ``--now`` is given."""
    return lambda *arguments: commands.call(COMMANDS.name, COMMANDS.command, capfdbinary.readouterr, arguments)


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[bytes]]:
    """Start the command as a process of its own, stdin and both outputs being pipes."""
    return partial(commands.start, "node_refiner")
