"""What the command's tests share: running it in this process, at a fixed time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hpa_scaler.cli import command
from hpa_scaler.looking import PROGRAM
from tightship.cli import run

DATA = Path(__file__).parent / "data"
NOW = "2026-03-10T00:00:00Z"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Ended]


@pytest.fixture
def data() -> Path:
    return DATA


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PROMETHEUS_SERVER_URL",
        "MINIMUM_REPLICAS_LOWER_BOUND",
        "ANNOTATION_PREFIX",
        "NO_COLOR",
        "KUBECONFIG",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    """Run the command here: ``cli("plan", "-f", ...)``."""

    def call(*arguments: str | Path) -> Ended:
        given = [str(each) for each in arguments]
        if given[:1] in (["plan"], ["explain"]) and "--now" not in given and "--help" not in given:
            given += ["--now", NOW]
        try:
            code = run(PROGRAM, command, given)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        sys.stdout.flush()
        captured = capfdbinary.readouterr()
        return Ended(code, captured.out.decode(), captured.err.decode())

    return call
