"""The provider ``controlplane``: real servers as processes, charts by the real Helm, controllers as their pods say."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from tightship_e2e.exporter import Exporter
from tightship_e2e.external_metrics import ExternalMetrics
from tightship_e2e.helm import objects, run
from tightship_e2e.plane import ControlPlane
from tightship_e2e.prometheus import Prometheus
from tightship_e2e.providers.pods import Pods, Running
from tightship_e2e.providers.releases import Releases
from tightship_e2e.renderings import HOOK
from tightship_testkit.audit import AuditEvent
from tightship_testkit.client import ApiError, Client, Json, wait_for
from tightship_testkit.fault_proxy import FaultProxy
from tightship_testkit.faults import Plan
from tightship_testkit.manifests import POOL
from tightship_testkit.marks import STARTUP, taints

DEADLINE = 120.0
PATIENCE = 1
"""Seconds for which the test of a chart asks again: whoever wants a yes waits for it himself."""
STARTING = {"key": f"{STARTUP}kwok", "effect": "NoSchedule"}
NODE_LEASES = "kube-node-lease"
"""The namespace of the Leases that kubelets hold."""


class LocalMetrics:
    """A real Prometheus with an exporter that it scrapes, and external metrics behind the real aggregator."""

    def __init__(self, exporter: Exporter, prometheus: Prometheus, external: ExternalMetrics) -> None:
        self._exporter = exporter
        self._prometheus = prometheus
        self._external = external

    @property
    def url(self) -> str:
        """The address of Prometheus."""
        return self._prometheus.url

    async def set(self, gauges: Mapping[str, float], external: Mapping[str, float]) -> None:
        """Have gauges be of these values from the next scrape on, and external metrics at once."""
        for name, value in gauges.items():
            self._exporter.set(name, value)
        for name, value in external.items():
            self._external.values[name] = float(value).__float__

    async def backfill(self, text: str) -> None:
        """Give Prometheus a past: *text* is OpenMetrics with times."""
        async with self.outage():
            await asyncio.to_thread(self._prometheus.backfill, text)

    @asynccontextmanager
    async def outage(self) -> AsyncIterator[None]:
        """Kill Prometheus, and have it come back with its data."""
        await asyncio.to_thread(self._prometheus.kill)
        try:
            yield
        finally:
            await asyncio.to_thread(self._prometheus.start)


class ControlPlaneProvider(Releases):
    """Releases on a control plane. The controllers reach its API server through a proxy."""

    def __init__(
        self, plane: ControlPlane, api: Client, folder: Path, proxy: FaultProxy, metrics: LocalMetrics
    ) -> None:
        super().__init__(folder / "helm", plane.kubeconfig)
        self.client = api
        self.metrics = metrics
        self.container: Json = {"image": "none"}
        self.selector = ""
        self.pods = Pods(plane, api, folder / "volumes", self._via)
        self._plane = plane
        self._proxy = proxy
        self._folder = folder

    def _via(self, account: Path) -> Path:
        return self._proxy.kubeconfig(self._folder / f"{account.name}-{self._proxy.port}", base=account)

    async def add_node(self, name: str, pool: str) -> None:
        """Add a node to a pool, and wait until kwok has taken it on: what is bound to it before may never run."""
        room = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        # The second label of the operating system would be added by the controller-manager.
        system = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}
        kept = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"} if pool == "system" else {}
        meta = {"name": name, "labels": {"kubernetes.io/hostname": name, POOL: pool, **system}, "annotations": kept}
        conditions = [{"type": "Ready", "status": "True"}]
        status = {"capacity": room, "allocatable": room, "conditions": conditions}
        made = await self.client.create(
            {"kind": "Node", "metadata": meta, "spec": {"taints": [STARTING]}, "status": status}
        )
        uid = made["metadata"]["uid"]

        async def taken_on() -> bool:
            found = await self.client.list("Lease", NODE_LEASES, fieldSelector=f"metadata.name={name}")
            return any(each["uid"] == uid for lease in found for each in lease["metadata"].get("ownerReferences") or [])

        async def started() -> bool:
            node = await self.client.get("Node", name)
            others = [each for each in taints(node) if each["key"] != STARTING["key"]]
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            try:
                await self.client.patch("Node", name, {"metadata": version, "spec": {"taints": others or None}})
            except ApiError as error:
                if error.status != 409:
                    raise
                return False  # somebody else wrote meanwhile
            return True

        await wait_for(taken_on, DEADLINE, f"kwok takes {name} on")
        await wait_for(started, DEADLINE, f"{name} has started")

    async def uninstall(self, release: str, namespace: str, *, hooks: bool = True) -> None:
        """Uninstall a release, if it is there, and wait until its controllers have ended."""
        await super().uninstall(release, namespace, hooks=hooks)
        await self.pods.gone(namespace)

    async def tested(self, release: str, namespace: str) -> str:
        """Do what ``helm test`` does, as a process in place of each pod; no controller that has ended is reached."""
        hooks = objects(await asyncio.to_thread(self._helm, "get", "hooks", release, "--namespace", namespace))
        ports = {each.name: each.port for each in await self.controllers(namespace)}
        said = []
        for hook in hooks:
            if (hook["kind"], hook["metadata"]["annotations"][HOOK]) != ("Pod", "test"):
                continue
            [container] = hook["spec"]["containers"]
            given = {each["name"]: each["value"] for each in container["env"]}
            port = ports.get(given["CONTROLLER"]) or self._plane.free_port()
            given |= {"TARGET": f"http://127.0.0.1:{port}", "DEADLINE": str(PATIENCE)}
            said.append(await asyncio.to_thread(run, [sys.executable, "-c", *container["args"]], b"", given))
        return "".join(said)

    async def controllers(self, namespace: str) -> Sequence[Running]:
        """Return what runs in a namespace now, in the order of their start."""
        return [each for each in self.pods.running.values() if each.namespace == namespace and not each.job]

    async def ended(self) -> Mapping[str, int]:
        """Return the exit codes of controllers that ended though their pods had not been deleted, by pod."""
        return self.pods.ended

    async def logs(self) -> str:
        """Return the ends of what all controllers have said, for an error."""
        every = [*self.pods.past.values(), *self.pods.running.values()]
        return "\n".join([f"--- {each.pod}\n{(await each.said())[-6000:]}" for each in every])

    def outage(self) -> AbstractAsyncContextManager[None]:
        """Keep the controllers from the API server for the body's time."""
        return self._proxy.outage()

    def disturb(self, plan: Plan) -> None:
        """Disturb what the controllers ask of the API server."""
        self._proxy.plan = plan

    async def audit(self) -> list[AuditEvent]:
        """Return the audit log's events since the last call."""
        return self._plane.audit_events()


@asynccontextmanager
async def on_plane(plane: ControlPlane, api: Client, folder: Path) -> AsyncIterator[ControlPlaneProvider]:
    """Provide a plane; *folder* is for what releases and pods have on disk."""
    with Exporter() as exporter, Prometheus(exporter.target, interval=0.5) as prometheus:
        async with ExternalMetrics(api, folder) as external, FaultProxy(plane) as proxy:
            metrics = LocalMetrics(exporter, prometheus, external)
            made = ControlPlaneProvider(plane, api, folder, proxy, metrics)
            async with made.pods:
                yield made


__all__ = ["ControlPlaneProvider", "LocalMetrics", "on_plane"]
