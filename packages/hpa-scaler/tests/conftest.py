"""What the command's tests share: running it in this process, at a fixed time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpa_scaler.cli import command
from hpa_scaler.process.settings import PROGRAM
from tightship_testkit import commands
from tightship_testkit.commands import Outcome

DATA = Path(__file__).parent / "data"


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ("PROMETHEUS_SERVER_URL", "MINIMUM_REPLICAS_LOWER_BOUND", "ANNOTATION_PREFIX")
    for name in (*ours, "NO_COLOR", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """Run the command here: ``cli("plan", "-f", ...)``, at a fixed time unless ``--now`` is given."""
    return lambda *arguments: commands.call(PROGRAM, command, capfdbinary.readouterr, arguments)
