"""The real Prometheus as a process, and its exporter.

What it answers is in ``packages/simulator/tests/contract/test_prometheus.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tightship_e2e.exporter import Exporter
from tightship_e2e.plugin import require_programs
from tightship_e2e.prometheus import Prometheus
from tightship_testkit.processes import ServerError


@pytest.fixture
def own() -> Iterator[tuple[Exporter, Prometheus]]:
    require_programs("prometheus")
    with Exporter() as exporter, Prometheus(exporter.target, interval=0.2) as prometheus:
        exporter.set("requests", 12.5, app="web")
        prometheus.wait_for_value("requests", 12.5)
        yield exporter, prometheus


def test_killed_it_refuses_even_when_it_was_paused(own: tuple[Exporter, Prometheus]) -> None:
    exporter, prometheus = own
    exporter.set("requests", 12, app="shop")
    prometheus.wait_for_value("sum(requests)", 24.5)
    with pytest.raises(ValueError, match="2 series"):
        prometheus.wait_for_value("requests", -1)
    with pytest.raises(ServerError, match="only after `stop` or `kill`"):
        prometheus.wipe()
    prometheus.pause()
    prometheus.kill()
    with pytest.raises(ConnectionRefusedError):
        prometheus.query("up")
    with pytest.raises(ServerError, match=r"last value None; prometheus ended with code -9"):
        prometheus.wait_for_value("up", 1)


def test_an_error_shows_the_log() -> None:
    require_programs("prometheus")
    with pytest.raises(ServerError, match=r"prometheus ended with code \d+(.|\n)*no-such-flag"):
        Prometheus(flags=["--no-such-flag"]).start()


def test_an_exporter_that_listens_is_not_started_twice() -> None:
    with Exporter() as exporter, pytest.raises(ValueError, match="listens already"):
        exporter.start()
