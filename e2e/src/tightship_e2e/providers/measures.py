"""What controllers and HPAs measure on a real cluster: a pod that answers for Prometheus and for external metrics."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tightship_e2e.external_metrics import GROUP, NAME, VERSION
from tightship_e2e.names import LABELS, MEASURES
from tightship_e2e.providers import measures_server
from tightship_testkit.client import RESOURCES, Client, Json, wait_for
from tightship_testkit.credentials import Authority
from tightship_testkit.manifests import POOL

DEADLINE = 180.0
POD = "measures"
PORTS = {"prometheus": 9090, "external": 8443, "control": 8080}
RESTRICTED: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What any namespace lets in."""


def manifests(image: Json, certificate: str, key: str) -> list[Json]:
    """Return the objects, whose namespace is there; *image* is ``image`` and ``imagePullPolicy`` of one with Python."""
    meta: Json = {"name": POD, "namespace": MEASURES, "labels": LABELS}
    chosen = {"e2e.tightship.dev/pod": POD}
    container = {
        **image,
        "name": POD,
        "command": ["python3", "/etc/measures/code/server.py"],
        "args": [f"--{name}={port}" for name, port in PORTS.items()],
        "ports": [{"name": name, "containerPort": port} for name, port in PORTS.items()],
        "readinessProbe": {"httpGet": {"path": "/", "port": "control"}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "securityContext": RESTRICTED,
        "volumeMounts": [
            {"name": name, "mountPath": f"/etc/measures/{name}", "readOnly": True} for name in ("code", "tls")
        ],
    }
    volumes = [{"name": "code", "configMap": {"name": POD}}, {"name": "tls", "secret": {"secretName": POD}}]
    ports = [("prometheus", 9090), ("external", 443)]
    return [
        {
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"server.py": Path(measures_server.__file__).read_text()},
        },
        {
            "kind": "Secret",
            "metadata": meta,
            "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": certificate, "tls.key": key},
        },
        {
            "kind": "Service",
            "metadata": meta,
            "spec": {
                "selector": chosen,
                "ports": [{"name": name, "port": port, "targetPort": name} for name, port in ports],
            },
        },
        {
            "kind": "Pod",
            "metadata": {**meta, "labels": {**LABELS, **chosen}},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [container],
                "nodeSelector": {POOL: "system"},
                "terminationGracePeriodSeconds": 1,
                "volumes": volumes,
            },
        },
        {
            "kind": "APIService",
            "metadata": {"name": NAME, "labels": LABELS},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,  # the certificate is of this run, and names no Service
                "service": {"name": POD, "namespace": MEASURES, "port": 443},
            },
        },
    ]


class RemoteMetrics:
    """The numbers in the pod, which is asked and told through the API server."""

    url = f"http://{POD}.{MEASURES}:9090"

    def __init__(self, api: Client) -> None:
        self._api = api

    async def set(self, gauges: Mapping[str, float], external: Mapping[str, float]) -> None:
        """Have gauges and external metrics be of these values at once."""
        await self._tell({"gauges": dict(gauges), "external": dict(external)})

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Have nobody listen at the port of Prometheus; what HPAs scale by goes on."""
        await self._tell({"down": True})
        try:
            yield
        finally:
            await self._tell({"down": False})

    async def ready(self) -> None:
        """Wait until the pod answers, and the API server takes its metrics for available."""

        async def served() -> bool:
            found = await self._api.get("APIService", NAME)
            conditions = found.get("status", {}).get("conditions") or []
            return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

        await wait_for(served, DEADLINE, f"{NAME} is available")

    async def _tell(self, state: Json) -> None:
        path = f"/api/v1/namespaces/{MEASURES}/pods/{POD}:{PORTS['control']}/proxy/state"
        await self._api.call("PUT", path, body=state)


async def served_already(api: Client) -> bool:
    """Return whether somebody else serves external metrics: there can be only one who does."""
    status, _ = await api.request("GET", RESOURCES["APIService"].path(name=NAME))
    return status == 200


async def install(api: Client, image: Json) -> RemoteMetrics:
    """Make the pod and what belongs to it, and wait until it answers."""
    with tempfile.TemporaryDirectory() as folder:
        file, key_file = Authority(Path(folder)).issue("measures")
        made = manifests(image, file.read_text(), key_file.read_text())
    for each in made:
        await api.create(each)
    metrics = RemoteMetrics(api)
    await metrics.ready()
    return metrics


async def remove(api: Client) -> None:
    """Take the API out of the cluster, if it is ours: no namespace can go while there is one without a server."""
    path = RESOURCES["APIService"].path(name=NAME)
    status, found = await api.request("GET", path)
    if status == 200 and LABELS.items() <= (found["metadata"].get("labels") or {}).items():
        await api.delete("APIService", NAME)


__all__ = ["RESTRICTED", "RemoteMetrics", "install", "manifests", "remove", "served_already"]
