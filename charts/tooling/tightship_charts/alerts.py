"""The alerts of each chart, as ``alerts.yaml`` says them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from tightship_charts.configuration import Json
from tightship_charts.places import AUDIENCES, CONTROLLERS, TOOLING


class Alert(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One alert. *patience* is how long *expr* must hold: ``for`` in Prometheus and in the file."""

    name: str
    expr: str
    patience: str = msgspec.field(name="for")
    summary: str
    description: str
    severity: str = "warning"
    threshold: float | None = None
    passes: int = 0
    leaders: bool = False

    def named(self, controller: str) -> str:
        """Return the alert's name in Prometheus, such as ``NodeCompactorDown``."""
        return "".join(part.capitalize() for part in controller.split("-")) + self.name


_READ = msgspec.yaml.decode((TOOLING / "alerts.yaml").read_bytes(), type=dict[str, list[Alert]])

ALERTS: Mapping[str, tuple[Alert, ...]] = {
    chart: tuple(
        each for audience, alerts in _READ.items() if chart in AUDIENCES.get(audience, [audience]) for each in alerts
    )
    for chart in CONTROLLERS
}
"""The alerts of each chart."""


def alert_file(chart: str) -> list[Json]:
    """Return what the chart's templates read: the alerts, by their names in Prometheus."""
    return [
        {
            "alert": alert.named(chart),
            "anchor": alert.name.lower(),
            "expr": alert.expr,
            "for": alert.patience,
            "severity": alert.severity,
            "threshold": alert.threshold,
            "passes": alert.passes,
            "leaders": alert.leaders,
            "summary": alert.summary.replace("CONTROLLER", chart),
            "description": alert.description,
        }
        for alert in ALERTS[chart]
    ]


__all__ = ["ALERTS", "Alert", "alert_file"]
