"""The real Prometheus as a process, and its exporter.

What it answers is in ``packages/simulator/tests/contract/test_prometheus.py``.
"""

from __future__ import annotations

import pytest

from tightship_e2e.exporter import Exporter
from tightship_e2e.plugin import require_programs
from tightship_e2e.prometheus import Prometheus
from tightship_testkit.processes import ServerError

pytestmark = pytest.mark.controlplane


def test_it_knows_what_was_scraped_and_refuses_when_it_was_killed() -> None:
    require_programs("prometheus")
    with Exporter() as exporter, Prometheus(exporter.target, interval=0.2) as prometheus:
        exporter.set("requests", 12.5, app="web")
        exporter.set("requests", 12, app="shop")
        prometheus.wait_for_value("sum(requests)", 24.5)
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
