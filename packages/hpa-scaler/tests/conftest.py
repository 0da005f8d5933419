"""What the command's tests share: running it in this process, at a fixed time."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_runner import Cli, runner

from hpa_scaler.cli import command
from hpa_scaler.looking import PROGRAM

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
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return runner(PROGRAM, command, capfdbinary)
