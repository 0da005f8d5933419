"""The usual names of request rates, as queries to propose for an HPA without one. Pure.

From the most specific source to the least: what a mesh or a gateway counts for the target itself, what an ingress
counts for the Service of the target's name, and what the pods count themselves, by the names of client libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpa_scaler.spec.queries import Query
from hpa_scaler.spec.spec import ServerRef
from tightship.core.objects import HorizontalPodAutoscaler

_RANGE = "5m"
_NAME = re.compile(r"[a-z0-9-]+/[a-z0-9.-]+", re.ASCII)
"""Names that need no quoting in a selector; the API server allows no others."""

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
    if not _NAME.fullmatch(f"{hpa.namespace}/{hpa.target.name}"):
        return
    names = {"namespace": hpa.namespace, "target": hpa.target.name}
    selectors = [each.format(**names) for each in _SOURCES]
    selectors += [
        f'{metric}{{namespace="{hpa.namespace}",{label}="{hpa.target.name}"}}' for metric in _OWN for label in _LABELS
    ]
    for selector in selectors:
        yield Query(f"sum(rate({selector}[{_RANGE}]))", server)
