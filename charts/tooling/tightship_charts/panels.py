"""What the dashboards show: rows of panels, each row the answer to one question.

Standby replicas judge as the leader does, so that a gauge is the largest of all replicas', not their sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tightship_charts.configuration import Json
from tightship_charts.places import UMBRELLA

OF = 'namespace=~"$namespace",job=~"$job"'
"""Series of the chosen controllers; those with a ``namespace`` of their own go by ``job`` alone."""

_GREEN_TO_RED = ({"color": "green", "value": None}, {"color": "red", "value": 1})
_RED_TO_GREEN = ({"color": "red", "value": None}, {"color": "green", "value": 1})


class Panel(Struct, frozen=True, kw_only=True):
    """One panel. *queries* are expressions by their legend; *kind* is Grafana's name of it."""

    title: str
    queries: Mapping[str, str]
    about: str = ""
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    steps: Sequence[Json] = ()
    maximum: float | None = None


def stat(title: str, expression: str, about: str, *, unit: str = "short", steps: Sequence[Json] = ()) -> Panel:
    """Return a single number."""
    return Panel(
        title=title, queries={"": expression}, about=about, kind="stat", unit=unit, width=4, height=4, steps=steps
    )


Rows = Sequence[tuple[str, Sequence[Panel]]]

_OUTCOME_NODES = (
    stat("Would go now", f"sum(max by (pool) (tightship_nodes_planned{{{OF}}}))", "Nodes in the last plan."),
    stat(
        "Nodes removed",
        f'sum(increase(tightship_drains_total{{{OF},ending=~"handed_over|node_gone"}}[$__range]))',
        "Drains in this time after which the autoscaler took the node.",
    ),
    stat(
        "Given back",
        f'sum(increase(tightship_drains_total{{{OF},ending="restored"}}[$__range]))',
        "Drains in this time that were given up: their nodes are in use again.",
    ),
    stat(
        "Pods evicted",
        f'sum(increase(tightship_evictions_total{{{OF},answer="accepted"}}[$__range]))',
        "Evictions in this time that the API server accepted.",
    ),
    stat("Evictions planned", f"max(tightship_evictions_planned{{{OF}}})", "What the last plan would take."),
    stat(
        "Held back",
        f"max(tightship_cluster_unhealthy{{{OF}}})",
        "1: the health brake holds, since the cluster is not well; nothing is drained.",
        steps=_GREEN_TO_RED,
    ),
    Panel(
        title="Plan by pool",
        queries={"{{pool}}": f"max by (pool) (tightship_nodes_planned{{{OF}}})"},
        about="Nodes that the last plan would remove.",
        stacked=True,
        width=12,
    ),
    Panel(
        title="Drains that ended",
        queries={"{{ending}} {{reason}}": f"sum by (ending, reason) (increase(tightship_drains_total{{{OF}}}[1h]))"},
        about="In each hour, by how and why.",
        stacked=True,
        width=12,
    ),
)
_WHY_NODES = (
    Panel(
        title="Why nodes stay",
        queries={"{{reason}}": f"sum by (reason) (max by (reason, pool) (tightship_nodes_refused{{{OF}}}))"},
        about="A node counts under each of its reasons; docs/reasons.md says what to do about each.",
        stacked=True,
        width=16,
        height=10,
    ),
    Panel(
        title="Now, by pool",
        queries={"{{pool}} {{reason}}": f"max by (pool, reason) (tightship_nodes_refused{{{OF}}}) > 0"},
        kind="bargauge",
        height=10,
    ),
)
_SAFETY_NODES = (
    Panel(
        title="Nodes in drain",
        queries={"{{phase}}": f"max by (phase) (tightship_drains_in_phase{{{OF}}})"},
        about="By phase; docs/drain.md has them all.",
        stacked=True,
    ),
    Panel(
        title="Answers to evictions",
        queries={"{{answer}}": f"sum by (answer) (rate(tightship_evictions_total{{{OF}}}[5m])) > 0"},
        about="Each second; `budget` is a PodDisruptionBudget that was kept.",
        stacked=True,
    ),
    Panel(
        title="Oldest drain under way",
        queries={"age": f"max(tightship_drain_oldest_seconds{{{OF}}})"},
        unit="s",
    ),
    Panel(
        title="Time in a phase (90 %)",
        queries={
            "{{phase}}": "histogram_quantile(0.9, sum by (phase, le) "
            f"(rate(tightship_drain_phase_seconds_bucket{{{OF}}}[1h])))"
        },
        unit="s",
        width=12,
    ),
    Panel(
        title="Claims",
        queries={"{{result}}": f"sum by (result) (increase(tightship_claims_total{{{OF}}}[1h]))"},
        about="Nodes claimed or taken over in each hour, and claims refused, by reason.",
        width=12,
    ),
)
_HEALTH = (
    stat("Leaders", f"sum(tightship_leader{{{OF}}})", "One of each controller that is live.", steps=_RED_TO_GREEN),
    stat(
        "Configuration",
        f"min(tightship_config_valid{{{OF}}})",
        "0: it was refused, and the last good one applies, or it was deleted; the page says which one applies.",
        steps=_RED_TO_GREEN,
    ),
    stat("Last good pass", f"max(tightship_loop_age_seconds{{{OF}}})", "Since when, at the latest.", unit="s"),
    stat(
        "Failed passes",
        f"sum(increase(tightship_loop_failures_total{{{OF}}}[$__range]))",
        "In this time.",
        steps=_GREEN_TO_RED,
    ),
    stat(
        "Events lost",
        f"sum(increase(tightship_events_dropped_total{{{OF}}}[$__range]))",
        "In this time, for whatever cause.",
    ),
    stat("Lease changes", f"max(tightship_lease_epoch{{{OF}}})", "How often it has changed hands."),
    Panel(
        title="A pass takes (99 %)",
        queries={
            "{{job}}": "histogram_quantile(0.99, sum by (job, le) "
            f"(rate(tightship_loop_duration_seconds_bucket{{{OF}}}[15m])))"
        },
        unit="s",
    ),
    Panel(title="Memory", queries={"{{pod}}": f"process_resident_memory_bytes{{{OF}}}"}, unit="bytes"),
    Panel(title="CPU", queries={"{{pod}}": f"rate(process_cpu_seconds_total{{{OF}}}[5m])"}),
)
_CACHE = Panel(
    title="Silence of the API server",
    queries={"{{kind}}": f"max by (kind) (tightship_cache_age_seconds{{{OF}}})"},
    about="Since it last said anything about a kind; a bookmark comes each minute.",
    unit="s",
    width=24,
)

_POOLS = (
    Panel(
        title="Underutilized nodes",
        queries={
            "{{nodepool}} underutilized": "max by (nodepool) "
            f"(estafette_node_compactor_underutilized_node_count{{{OF}}})",
            "{{nodepool}} marked": "max by (nodepool) "
            f"(estafette_node_compactor_marked_for_removal_node_count{{{OF}}})",
        },
        about="By pool, and those marked for removal.",
    ),
    Panel(
        title="Nodes",
        queries={"{{nodepool}}": f"max by (nodepool) (estafette_node_compactor_total_node_count{{{OF}}})"},
        stacked=True,
    ),
    Panel(
        title="CPU requests over allocatable",
        queries={
            "{{nodepool}}": f"avg by (nodepool) (estafette_node_compactor_utilized_cpu_ratio{{{OF}}})",
            "{{nodepool}} lowest": f"min by (nodepool) (estafette_node_compactor_utilized_cpu_ratio{{{OF}}})",
        },
        unit="percentunit",
        maximum=1,
    ),
)
_CLUSTER = (
    Panel(
        title="Excess nodes",
        queries={
            "excess": f"max(node_refiner_cluster_excess_nodes{{{OF}}})",
            "could really go": f"max(node_refiner_cluster_could_go_nodes{{{OF}}})",
        },
        about="What the sums say, and what holds pod by pod.",
    ),
    Panel(
        title="Nodes",
        queries={
            "all": f"max(node_refiner_cluster_nodes{{{OF}}})",
            "counted": f"max(node_refiner_cluster_non_tainted_nodes{{{OF}}})",
            "cordoned": f"max(node_refiner_cluster_unschedulable_nodes{{{OF}}})",
        },
    ),
    Panel(
        title="Requests over allocatable",
        queries={
            "CPU": f"max(node_refiner_cluster_cpu_utilization{{{OF}}})",
            "memory": f"max(node_refiner_cluster_memory_utilization{{{OF}}})",
        },
        about="Of the counted nodes.",
        unit="percent",
        maximum=100,
    ),
)

_OUTCOME_HPAS = (
    stat(
        "Floors now",
        f'max(tightship_hpa_floor_replicas{{{OF},which="now"}})',
        "The sum of minReplicas of all HPAs that are opted in.",
    ),
    stat(
        "Floors wanted",
        f'max(tightship_hpa_floor_replicas{{{OF},which="wanted"}})',
        "Where the last cycle wants them.",
    ),
    stat("Raised", f'max(tightship_hpas{{{OF},action="raise"}})', "HPAs whose floor the last cycle raised."),
    stat("Lowered", f'max(tightship_hpas{{{OF},action="lower"}})', "HPAs whose floor the last cycle lowered."),
    stat("Held", f'max(tightship_hpas{{{OF},action="hold"}})', "HPAs whose floor stays, for a reason."),
    stat("Not opted in", f'max(tightship_hpas{{{OF},action="not-enabled"}})', "HPAs without the annotation."),
    Panel(
        title="Floors",
        queries={"{{which}}": f"max by (which) (tightship_hpa_floor_replicas{{{OF}}})"},
        about="The sum of minReplicas of all HPAs that are opted in.",
    ),
    Panel(
        title="Decisions",
        queries={"{{action}}": f"sum by (action) (increase(tightship_hpa_decisions_total{{{OF}}}[5m]))"},
        about="In each five minutes.",
        stacked=True,
    ),
    Panel(
        title="The ten largest floors",
        queries={"{{hpa}}": 'topk(10, max by (hpa) (estafette_hpa_scaler_min_replicas{job=~"$job"}))'},
    ),
)
_WHY_HPAS = (
    Panel(
        title="Why",
        queries={"{{reason}}": f"max by (reason) (tightship_hpas_by_reason{{{OF}}})"},
        about="An HPA counts under each of its reasons; docs/reasons.md says what to do about each.",
        stacked=True,
        width=16,
        height=10,
    ),
    Panel(
        title="What dry runs would set",
        queries={"{{hpa}}": 'max by (hpa) (tightship_hpa_would_be_min_replicas{job=~"$job"})'},
        kind="bargauge",
        height=10,
    ),
)
_SAFETY_HPAS = (
    Panel(
        title="Failures of the metrics",
        queries={
            "held: too many drop at once": f"max(tightship_hpa_correlated_drop{{{OF}}})",
            "{{which}}": f"max by (which) (tightship_hpas_dropping{{{OF}}})",
        },
        about="HPAs with answers, those that would drop at once, and whether that holds all of them.",
    ),
    Panel(
        title="Answers of Prometheus",
        queries={"{{server}} {{outcome}}": f"sum by (server, outcome) (rate(tightship_hpa_queries_total{{{OF}}}[5m]))"},
        about="Each second, by server and outcome.",
        stacked=True,
    ),
    Panel(
        title="A query takes (99 %)",
        queries={
            "{{server}}": "histogram_quantile(0.99, sum by (server, le) "
            f"(rate(tightship_hpa_query_duration_seconds_bucket{{{OF}}}[5m])))"
        },
        unit="s",
    ),
    Panel(
        title="Circuits that are not closed",
        queries={
            "{{server}} {{state}}": f'max by (server, state) (tightship_hpa_server_circuit{{{OF},state!="closed"}})',
        },
        about="A server that failed too often is left alone for a while.",
    ),
    Panel(
        title="Writes",
        queries={"{{result}}": f"sum by (result) (increase(tightship_hpa_writes_total{{{OF}}}[5m]))"},
        about="In each five minutes, by how they ended.",
    ),
    Panel(
        title="Set back by others",
        queries={
            "bounds of ours changed": f"sum(increase(tightship_hpa_changed_by_others_total{{{OF}}}[1h]))",
            "judged again": f"sum(increase(tightship_hpa_rejudged_total{{{OF}}}[1h]))",
        },
        about="In each hour: somebody else writes the same field.",
    ),
)
_SUITE = (
    stat("Nodes that would go", f"sum(max by (pool) (tightship_nodes_planned{{{OF}}}))", "In the last plans."),
    stat(
        "Nodes removed",
        f'sum(increase(tightship_drains_total{{{OF},ending=~"handed_over|node_gone"}}[$__range]))',
        "Drains in this time after which the autoscaler took the node.",
    ),
    stat(
        "Pods evicted",
        f'sum(increase(tightship_evictions_total{{{OF},answer="accepted"}}[$__range]))',
        "Evictions in this time that the API server accepted.",
    ),
    stat("Floors now", f'max(tightship_hpa_floor_replicas{{{OF},which="now"}})', "The sum of minReplicas."),
    stat("HPAs held", f'max(tightship_hpas{{{OF},action="hold"}})', "HPAs whose floor stays, for a reason."),
    stat(
        "Held back",
        f"max(tightship_cluster_unhealthy{{{OF}}})",
        "1: the health brake holds, since the cluster is not well; nothing is drained.",
        steps=_GREEN_TO_RED,
    ),
    Panel(
        title="Nodes in drain",
        queries={"{{job}} {{phase}}": f"max by (job, phase) (tightship_drains_in_phase{{{OF}}})"},
        stacked=True,
        width=12,
    ),
    Panel(
        title="Floors",
        queries={"{{which}}": f"max by (which) (tightship_hpa_floor_replicas{{{OF}}})"},
        width=12,
    ),
)
_WHY_SUITE = (
    Panel(
        title="Why nodes stay",
        queries={
            "{{controller}} {{reason}}": "sum by (controller, reason) "
            f"(max by (controller, reason, pool) (tightship_nodes_refused{{{OF}}}))"
        },
        stacked=True,
        width=12,
    ),
    Panel(
        title="Why floors stay",
        queries={"{{reason}}": f"max by (reason) (tightship_hpas_by_reason{{{OF}}})"},
        stacked=True,
        width=12,
    ),
)
_SAFETY_SUITE = (
    Panel(
        title="Answers to evictions",
        queries={"{{answer}}": f"sum by (answer) (rate(tightship_evictions_total{{{OF}}}[5m])) > 0"},
        stacked=True,
    ),
    Panel(
        title="Drains given back",
        queries={"{{reason}}": f'sum by (reason) (increase(tightship_drains_total{{{OF},ending="restored"}}[1h]))'},
        stacked=True,
    ),
    Panel(
        title="Failures of the metrics",
        queries={"held: too many drop at once": f"max(tightship_hpa_correlated_drop{{{OF}}})"},
    ),
)
_VERSIONS = Panel(
    title="What runs",
    queries={
        "{{controller}} {{version}}": f"count by (controller, version) (tightship_build_info{{{OF}}})",
    },
    kind="bargauge",
    width=24,
    height=5,
)

DASHBOARDS: Mapping[str, tuple[str, Rows]] = {
    "node-compactor": (
        "node-compactor",
        (
            ("Outcome", (*_OUTCOME_NODES, *_POOLS)),
            ("Why not", _WHY_NODES),
            ("Safety", _SAFETY_NODES),
            ("Health", (*_HEALTH, _CACHE)),
        ),
    ),
    "node-refiner": (
        "node-refiner",
        (
            ("Outcome", (*_OUTCOME_NODES, *_CLUSTER)),
            ("Why not", _WHY_NODES),
            ("Safety", _SAFETY_NODES),
            ("Health", (*_HEALTH, _CACHE)),
        ),
    ),
    "hpa-scaler": (
        "hpa-scaler",
        (("Outcome", _OUTCOME_HPAS), ("Why not", _WHY_HPAS), ("Safety", _SAFETY_HPAS), ("Health", _HEALTH)),
    ),
    UMBRELLA: (
        ".+",
        (
            ("Outcome", _SUITE),
            ("Why not", _WHY_SUITE),
            ("Safety", _SAFETY_SUITE),
            ("Health", (*_HEALTH, _VERSIONS)),
        ),
    ),
}
"""Rows by chart, and which controllers (a regular expression) a dashboard is about."""


__all__ = ["DASHBOARDS", "Panel", "Rows"]
