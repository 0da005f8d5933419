"""Running a controller's command in the test's own process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tightship.cli import run

NOW = "2026-03-10T00:00:00Z"
"""The time at which plans of tests are made, unless they say another."""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Outcome]


def runner(program: str, command: Callable[[Sequence[str]], int], capture: pytest.CaptureFixture[bytes]) -> Cli:
    """Return what runs *command*: ``cli("plan", "-f", ...)``."""

    def call(*arguments: str | Path) -> Outcome:
        given = [str(each) for each in arguments]
        if given[:1] in (["plan"], ["explain"]) and "--now" not in given and "--help" not in given:
            given += ["--now", NOW]
        try:
            code = run(program, command, given)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
        sys.stdout.flush()
        captured = capture.readouterr()
        return Outcome(code, captured.out.decode(), captured.err.decode())

    return call
