"""The replicas of the last days, as a Prometheus server has them from kube-state-metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from hpa_scaler.annotations.queries import Failure, Query
from hpa_scaler.prometheus.client import DEFAULT, PrometheusClient
from tightship.cli.app import CliError
from tightship.fit.model import Past
from tightship.objects.query_servers import Address, Server

DAYS = 14
MOST = 1_000_000
"""Replicas that no workload has."""
STEP = 3600.0
_DAY = 86_400.0

_KINDS = {"Deployment": "deployment", "StatefulSet": "statefulset"}
_LABEL = re.compile(r'(\w+)="([^"]*)"')


async def read_past(address: Address, now: float, known: Iterable[Server]) -> Past:
    """Return the most replicas in each hour of the :data:`DAYS` before *now*, in seconds since 1970.

    The server is the one of those *known* at *address*, with its credentials, or one without any. kube-state-metrics
    counts the replicas (docs/metrics/workload). Raises :class:`CliError` if the server doesn't answer, or
    has no such series.
    """
    at_address = next((each for each in known if each.address == address), Server(DEFAULT, address))
    server = msgspec.structs.replace(at_address, name=DEFAULT)
    replicas: dict[tuple[str, str, str], dict[float, int]] = {}
    end = now // STEP * STEP
    async with PrometheusClient({server.name: server}) as client:
        for kind, label in _KINDS.items():
            metric = f"kube_{label}_status_replicas"
            query = Query(f"max by (namespace, {label}) (max_over_time({metric}[1h]))")
            for day in range(DAYS, 0, -1):
                answer = await client.ask_range(query, end - day * _DAY + STEP, end - (day - 1) * _DAY, STEP)
                if isinstance(answer, Failure):
                    raise CliError(f"--prometheus {address}: {answer.reason}: {answer.detail}")
                for name, samples in zip(answer.names, answer.series, strict=True):
                    labels = dict(_LABEL.findall(name))
                    counts = replicas.setdefault((labels.get("namespace", ""), kind, labels.get(label, "")), {})
                    counts.update((at, int(value)) for at, value in samples if 0 <= value < MOST)
    if not replicas:
        raise CliError(
            f"--prometheus {address}: no series kube_deployment_status_replicas in the last {DAYS} days; "
            "allowed is a server with the metrics of kube-state-metrics"
        )
    return Past(DAYS, replicas)
