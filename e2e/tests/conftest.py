"""Fixtures for tests on a real control plane."""

from __future__ import annotations

import os

import pytest
from draining import TALLY

pytest_plugins = ["tightship_e2e.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    clusters = int(os.environ.get("TIGHTSHIP_CLUSTERS", "200"))
    first = int(os.environ.get("TIGHTSHIP_FIRST_SEED", "0"))
    parser.addoption("--clusters", type=int, default=clusters, help="random clusters to try on the scheduler")
    parser.addoption("--first-seed", type=int, default=first, help="seed of the first random cluster")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TALLY:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(TALLY.items()))
        terminalreporter.write_line(f"agreement with kube-scheduler: {counts}")
