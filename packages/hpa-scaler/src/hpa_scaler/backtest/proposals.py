"""The usual names of request rates, as queries to propose for an HPA without one.

From the most specific source to the least: what a mesh or a gateway counts for the target itself, what an ingress
counts for the Service of the target's name, and what the pods count themselves, by the names of client libraries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpa_scaler.annotations.queries import Outcome, Query, QueryAnswer
from hpa_scaler.annotations.spec import FloorSpec, QuerySpec, ServerRef
from hpa_scaler.prometheus.client import PrometheusClient
from tightship.objects import HorizontalPodAutoscaler

_RANGE = "5m"
PROPOSED = 100
"""HPAs whose proposed queries are asked at once."""
_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
"""The characters of names that the API server allows; they need no quoting in a selector."""

_SOURCES = (
    (
        'istio_requests_total{{reporter="destination",destination_workload_namespace="{namespace}",'
        'destination_workload="{target}"}}'
    ),
    'response_total{{direction="inbound",namespace="{namespace}",deployment="{target}"}}',
    'envoy_cluster_upstream_rq_total{{envoy_cluster_name=~"httproute/{namespace}/{target}/.*"}}',
    'nginx_ingress_controller_requests{{exported_namespace="{namespace}",exported_service="{target}"}}',
    'nginx_ingress_controller_requests{{namespace="{namespace}",service="{target}"}}',
    'traefik_service_requests_total{{service=~"{namespace}-{target}-[^-]*@.*"}}',
    'haproxy_backend_http_requests_total{{proxy=~"{namespace}_(svc_)?{target}_.*"}}',
)
_OWN = (
    "http_server_request_duration_seconds_count",
    "http_server_requests_seconds_count",
    "http_requests_total",
    "http_request_duration_seconds_count",
    "grpc_server_handled_total",
)
_LABELS = ("service", "job", "app", "deployment")


def proposals(hpa: HorizontalPodAutoscaler, server: ServerRef = ServerRef()) -> Iterator[Query]:
    """Yield the queries that may tell the requests a second of the target of *hpa*, the best first."""
    if not _NAME.issuperset(hpa.namespace + hpa.target.name):
        return
    names = {"namespace": hpa.namespace, "target": hpa.target.name}
    selectors = [each.format(**names) for each in _SOURCES]
    selectors += [
        f'{metric}{{namespace="{hpa.namespace}",{label}="{hpa.target.name}"}}' for metric in _OWN for label in _LABELS
    ]
    for selector in selectors:
        yield Query(f"sum(rate({selector}[{_RANGE}]))", server)


async def proposed_specs(
    client: PrometheusClient, hpas: Sequence[HorizontalPodAutoscaler], seconds: float
) -> dict[str, FloorSpec]:
    """Return a spec with a query for each of *hpas* for which one answers above 0, by the HPA's key.

    A hundred HPAs at a time are asked for, within so many *seconds*.
    """
    found: dict[str, FloorSpec] = {}
    for first in range(0, len(hpas), PROPOSED):
        asked = {hpa.key: list(proposals(hpa)) for hpa in hpas[first : first + PROPOSED]}
        queries = dict.fromkeys(query for each in asked.values() for query in each)
        outcomes = await client.ask(queries, seconds)
        for key, tried in asked.items():
            best = next((query for query in tried if _answers(outcomes.get(query))), None)
            if best is not None:
                found[key] = FloorSpec(queries=(QuerySpec(best.text, server=best.server),))
    return found


def _answers(outcome: Outcome | None) -> bool:
    return isinstance(outcome, QueryAnswer) and outcome.highest is not None and outcome.highest > 0
