"""The alerts of each chart: what would have to be seen by a person, and nothing else.

In an expression ``SELECTOR`` stands for the labels of the controller's series and ``THRESHOLD`` for the threshold; the
chart puts both in. What to do about each is in ``docs/alerts.md``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tightship_charts.configuration import Json


class Alert(Struct, frozen=True, kw_only=True):
    """One alert; the name in Prometheus has the controller in front.

    *patience* is how long it must hold (Prometheus' ``for``). A threshold is raised to *passes* intervals, where those
    are longer. One that is of *leaders* is left out where nothing is ever to lead: in a dry run, without election.
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
        summary="CONTROLLER is not there.",
        description="Prometheus sees no replica of it: it does not run, or is not scraped.",
        severity="critical",
    ),
    Alert(
        name="NoLeader",
        expr="max(tightship_leader{SELECTOR}) == 0",
        patience="10m",
        summary="No replica of CONTROLLER leads.",
        description="Nothing is done until one gets the Lease.",
        leaders=True,
    ),
    Alert(
        name="SeveralLeaders",
        expr="sum(tightship_leader{SELECTOR}) > 1",
        patience="5m",
        summary="More than one replica of CONTROLLER leads.",
        description="{{ $value }} replicas take themselves for the leader.",
        severity="critical",
        leaders=True,
    ),
    Alert(
        name="LoopStuck",
        expr="max(tightship_loop_age_seconds{SELECTOR}) > THRESHOLD",
        patience="5m",
        summary="A replica of CONTROLLER makes no passes.",
        description="Its last good one was {{ $value | humanizeDuration }} ago; THRESHOLD s are allowed.",
        threshold=900,
        passes=3,
    ),
    Alert(
        name="PassesFail",
        expr="sum(increase(tightship_loop_failures_total{SELECTOR}[30m])) > THRESHOLD",
        patience="5m",
        summary="Passes of CONTROLLER fail again and again.",
        description="{{ $value | humanize }} in the last 30 minutes.",
        threshold=3,
    ),
    Alert(
        name="ConfigInvalid",
        expr="min(tightship_config_valid{SELECTOR}) == 0",
        patience="5m",
        summary="The configuration of CONTROLLER can't be used.",
        description="It was refused or deleted; page, log and an Event on the ConfigMap say why, and what is in force.",
    ),
)
_NODES = (
    Alert(
        name="ApiSilent",
        expr="max by (kind) (tightship_cache_age_seconds{SELECTOR}) > THRESHOLD",
        patience="5m",
        summary="CONTROLLER hears nothing from the API server.",
        description="Nothing of kind {{ $labels.kind }} for {{ $value | humanizeDuration }}: it goes by what was then.",
        threshold=600,
    ),
    Alert(
        name="ClusterUnhealthy",
        expr="max(tightship_cluster_unhealthy{SELECTOR}) == 1",
        patience="1h",
        summary="CONTROLLER drains nothing, since the cluster is not well.",
        description="Too many nodes are not Ready, or pods find no place; its page says which.",
    ),
    Alert(
        name="DrainTooLong",
        expr="max(tightship_drain_oldest_seconds{SELECTOR}) > THRESHOLD",
        patience="10m",
        summary="A drain of CONTROLLER comes to no end.",
        description="It began {{ $value | humanizeDuration }} ago. An empty node that nobody takes is paid for.",
        threshold=7200,
    ),
    Alert(
        name="DrainsGivenBack",
        expr='sum(increase(tightship_drains_total{SELECTOR,ending="restored"}[6h])) > THRESHOLD',
        patience="5m",
        summary="CONTROLLER has to give up drain after drain.",
        description="{{ $value | humanize }} in the last 6 hours: pods are moved for nothing.",
        threshold=5,
    ),
    Alert(
        name="EvictionsImpossible",
        expr="sum by (answer) (increase(tightship_evictions_total{SELECTOR,"
        'answer=~"forbidden|multiple_budgets|budget_sync_failed"}[1h])) > 0',
        patience="5m",
        summary="CONTROLLER is refused evictions that will never be allowed.",
        description="Answered {{ $labels.answer }}: somebody has to mend a right, a webhook or a budget.",
    ),
)
_HPAS = (
    Alert(
        name="CorrelatedDrop",
        expr="max(tightship_hpa_correlated_drop{SELECTOR}) == 1",
        patience="5m",
        summary="Too many floors would drop at once.",
        description="It is taken for a failure of the metrics: nothing is lowered for now.",
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
        description="{{ $value | humanize }} changes failed in the last 30 minutes.",
        threshold=5,
    ),
    Alert(
        name="SetBackByOthers",
        expr="sum(increase(tightship_hpa_changed_by_others_total{SELECTOR}[1h])) > THRESHOLD",
        patience="5m",
        summary="Somebody sets back what CONTROLLER sets.",
        description="{{ $value | humanize }} times in the last hour; most likely GitOps has minReplicas in Git.",
        threshold=10,
    ),
    Alert(
        name="InvalidAnnotations",
        expr='max(tightship_hpas_by_reason{SELECTOR,reason="InvalidAnnotation"}) > 0',
        patience="30m",
        summary="Annotations of HPAs can't be read.",
        description="Nothing is done for {{ $value }} of them; an Event on each says what is wrong.",
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
