"""Metrics for the HPA controller: an API of the cluster that a test serves itself, behind the real aggregator.

    async with ExternalMetrics(api, tmp_path) as metrics:
        metrics.values["traffic"] = lambda: 12.5

An HPA with ``type: External`` and that name gets the value at each of its looks. The API server finds the server by an
APIService whose Service is another name of ``localhost``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from tightship_testkit.client import Client, Json, wait_for
from tightship_testkit.credentials import Authority

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
PATH = f"/apis/{GROUP}/{VERSION}"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
NAMESPACE = "default"
DEADLINE = 120.0  # seconds until the aggregator takes the API for available


class ExternalMetrics:
    """Serves *values* by their names, in the test's own event loop, to every namespace; registered by *api*.

    *folder* is for its certificate. A name that is not in *values* is answered with 404, as an adapter does.
    """

    def __init__(self, api: Client, folder: Path) -> None:
        self.values: dict[str, Callable[[], float]] = {}
        self._api = api
        self._tls = Authority(folder).server()
        app = web.Application()
        app.router.add_get(PATH, self._resources)
        app.router.add_get(PATH + "/namespaces/{namespace}/{name}", self._value)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        await self._register(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A plane that knows of an API without a server can't delete a namespace any more.
        await self._api.request("DELETE", f"{SERVICES}/{NAME}")
        await self._api.delete("Service", "external-metrics", NAMESPACE)
        # The aggregator keeps its connections, and would be waited for.
        for connection in self._runner.server.connections if self._runner.server is not None else ():
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()

    async def _register(self, port: int) -> None:
        meta = {"name": "external-metrics", "namespace": NAMESPACE}
        await self._api.create(
            {"kind": "Service", "metadata": meta, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        )
        spec = {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {**meta, "port": port},
        }
        body = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME}}
        await self._api.call("POST", SERVICES, body={**body, "spec": spec})

        async def available() -> bool:
            found = await self._api.call("GET", f"{SERVICES}/{NAME}")
            conditions = found.get("status", {}).get("conditions") or []
            return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)

        await wait_for(available, DEADLINE, f"{NAME} is available")

    async def _resources(self, _: web.Request) -> web.Response:
        known: Json = {"name": "*", "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList"}
        resources = [{**known, "verbs": ["get"]}]
        groups = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        return web.json_response({**groups, "resources": resources})

    async def _value(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        value = self.values.get(name)
        if value is None:
            return web.json_response({"kind": "Status", "status": "Failure", "code": 404}, status=404)
        item = {
            "metricName": name,
            "metricLabels": {},
            "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "value": f"{round(value() * 1000)}m",
        }
        found = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
        return web.json_response({**found, "items": [item]})
