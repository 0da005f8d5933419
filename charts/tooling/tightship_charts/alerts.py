"""The alerts of each chart: only what needs a person.

In an expression ``SELECTOR`` stands for the labels of the controller's series and ``THRESHOLD`` for the threshold; the
chart fills in both. ``docs/alerts.md`` says what to do about each alert.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tightship_charts.configuration import Json


class Alert(Struct, frozen=True, kw_only=True):
    """One alert; its name in Prometheus begins with the controller's name.

    *patience* is how long *expr* must hold (Prometheus' ``for``). A threshold is raised to *passes* intervals if those
    are longer. The chart leaves out an alert about *leaders* where no replica can lead: in a dry run, without election.
    """

    name: str
    expr: str
    patience: str
    summary: str
    description: str
    severity: str = "warning"
    threshold: float | None = None
    passes: int = 0
    leaders: bool = False

    def named(self, controller: str) -> str:
        """Return the alert's name in Prometheus, such as ``NodeCompactorDown``."""
        return "".join(part.capitalize() for part in controller.split("-")) + self.name


_ALL = (
    Alert(
        name="Down",
        expr="absent(tightship_build_info{SELECTOR})",
        patience="15m",
        summary="CONTROLLER is missing.",
        description="Prometheus sees no replica: none runs, or none is scraped.",
        severity="critical",
    ),
    Alert(
        name="NoLeader",
        expr="max(tightship_leader{SELECTOR}) == 0",
        patience="10m",
        summary="No replica of CONTROLLER leads.",
        description="The controller does nothing until a replica gets the Lease.",
        leaders=True,
    ),
    Alert(
        name="SeveralLeaders",
        expr="sum(tightship_leader{SELECTOR}) > 1",
        patience="5m",
        summary="More than one replica of CONTROLLER leads.",
        description="{{ $value }} replicas believe that they lead.",
        severity="critical",
        leaders=True,
    ),
    Alert(
        name="LoopStuck",
        expr="max(tightship_loop_age_seconds{SELECTOR}) > THRESHOLD",
        patience="5m",
        summary="A replica of CONTROLLER completes no passes.",
        description="Its last successful pass was {{ $value | humanizeDuration }} ago; THRESHOLD s are allowed.",
        threshold=900,
        passes=3,
    ),
    Alert(
        name="PassesFail",
        expr="sum(increase(tightship_loop_failures_total{SELECTOR}[30m])) > THRESHOLD",
        patience="5m",
        summary="Passes of CONTROLLER fail again and again.",
        description="{{ $value | humanize }} passes failed in the last 30 minutes.",
        threshold=3,
    ),
    Alert(
        name="ConfigInvalid",
        expr="min(tightship_config_valid{SELECTOR}) == 0",
        patience="5m",
        summary="The configuration of CONTROLLER is invalid or gone.",
        description="The page, the log and an Event on the ConfigMap say why, and what is in force.",
    ),
)
_NODES = (
    Alert(
        name="ApiSilent",
        expr="max by (kind) (tightship_cache_age_seconds{SELECTOR}) > THRESHOLD",
        patience="5m",
        summary="CONTROLLER receives nothing from the API server.",
        description="Its data of kind {{ $labels.kind }} are {{ $value | humanizeDuration }} old.",
        threshold=600,
    ),
    Alert(
        name="ClusterUnhealthy",
        expr="max(tightship_cluster_unhealthy{SELECTOR}) == 1",
        patience="1h",
        summary="CONTROLLER drains nothing because the cluster is unhealthy.",
        description="Too many nodes are not Ready, or pods can't be scheduled; the page names them.",
    ),
    Alert(
        name="DrainTooLong",
        expr="max(tightship_drain_oldest_seconds{SELECTOR}) > THRESHOLD",
        patience="10m",
        summary="A drain of CONTROLLER does not end.",
        description="The drain began {{ $value | humanizeDuration }} ago. An empty node still costs money.",
        threshold=7200,
    ),
    Alert(
        name="DrainsGivenBack",
        expr='sum(increase(tightship_drains_total{SELECTOR,ending="restored"}[6h])) > THRESHOLD',
        patience="5m",
        summary="CONTROLLER gives up drain after drain.",
        description="{{ $value | humanize }} drains in the last 6 hours: pods move for nothing.",
        threshold=5,
    ),
    Alert(
        name="EvictionsImpossible",
        expr="sum by (answer) (increase(tightship_evictions_total{SELECTOR,"
        'answer=~"forbidden|multiple_budgets|budget_sync_failed"}[1h])) > 0',
        patience="5m",
        summary="The API server refuses evictions of CONTROLLER for a lasting cause.",
        description="The answer is {{ $labels.answer }}: somebody has to correct a right, a webhook or a budget.",
    ),
)
_HPAS = (
    Alert(
        name="CorrelatedDrop",
        expr="max(tightship_hpa_correlated_drop{SELECTOR}) == 1",
        patience="5m",
        summary="Too many floors would drop at once.",
        description="The metrics have probably failed: the controller lowers nothing for now.",
        severity="critical",
    ),
    Alert(
        name="QueriesFail",
        expr='sum by (server) (increase(tightship_hpa_queries_total{SELECTOR,outcome!="answered"}[15m]))'
        " / sum by (server) (increase(tightship_hpa_queries_total{SELECTOR}[15m])) > THRESHOLD",
        patience="15m",
        summary="Prometheus does not answer CONTROLLER.",
        description="{{ $value | humanizePercentage }} of the queries to {{ $labels.server }} fail; floors are held.",
        threshold=0.5,
    ),
    Alert(
        name="WritesFail",
        expr='sum(increase(tightship_hpa_writes_total{SELECTOR,result=~"refused|failed|unheard"}[30m])) > THRESHOLD',
        patience="5m",
        summary="CONTROLLER can't set floors.",
        description="{{ $value | humanize }} writes failed in the last 30 minutes.",
        threshold=5,
    ),
    Alert(
        name="SetBackByOthers",
        expr="sum(increase(tightship_hpa_changed_by_others_total{SELECTOR}[1h])) > THRESHOLD",
        patience="5m",
        summary="Somebody undoes what CONTROLLER sets.",
        description="{{ $value | humanize }} times in the last hour; most likely minReplicas is in Git.",
        threshold=10,
    ),
    Alert(
        name="InvalidAnnotations",
        expr='max(tightship_hpas_by_reason{SELECTOR,reason="InvalidAnnotation"}) > 0',
        patience="30m",
        summary="HPAs have invalid annotations.",
        description="The controller does nothing for {{ $value }} HPAs; an Event on each says what is wrong.",
    ),
)

ALERTS: Mapping[str, tuple[Alert, ...]] = {
    "node-compactor": (*_ALL, *_NODES),
    "node-refiner": (*_ALL, *_NODES),
    "hpa-scaler": (*_ALL, *_HPAS),
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
