"""Floors on a control plane: a Prometheus to answer queries, and replicas that reach the API server through a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from drains import PATIENT

from tightship_e2e import ControlPlane
from tightship_simulator.life.prometheus import Prometheus, serving
from tightship_testkit.client import Client
from tightship_testkit.fault_proxy import FaultProxy
from tightship_testkit.floors import Market, answering_one
from tightship_testkit.replica import NAMESPACE, SCALER, Replica, Settings, permit


class Shop(Market):
    """A market on a plane, whose replicas have an account and reach the API server through a proxy."""

    def __init__(self, plane: ControlPlane, api: Client, proxy: FaultProxy, prometheus: Prometheus) -> None:
        super().__init__(plane, api, prometheus)
        self.plane = plane
        self.proxy = proxy
        self.prometheus = prometheus
        self.admin = plane.kubeconfig

    def start(self, **variables: str) -> Replica:
        """Start one more replica, which is patient unless *variables* say otherwise."""
        return super().start(**{**PATIENT, **variables})

    async def configured(self, settings: Settings | str | None = None, **more: object) -> None:
        """Write the configuration. A sudden rise is believed at once; that it is waited for is tested elsewhere."""
        given = settings if isinstance(settings, str) else {"suddenRiseFactor": 0, **(settings or {})}
        await super().configured(given, **more)

    async def staff(self, path: Path) -> None:
        """Make the account of the replicas, and their way to the API server."""
        await permit(self.api, SCALER.name)
        base = await asyncio.to_thread(self.plane.service_account_kubeconfig, NAMESPACE, SCALER.name)
        self.kubeconfig = self.proxy.kubeconfig(path / f"hpa-scaler-{self.proxy.port}", base=base)


@asynccontextmanager
async def shop(plane: ControlPlane, api: Client, path: Path) -> AsyncIterator[Shop]:
    """Open a shop in an emptied plane."""
    async with FaultProxy(plane) as proxy, serving(answering_one()) as prometheus:
        made = Shop(plane, api, proxy, prometheus)
        await made.open()
        await made.staff(path)
        try:
            yield made
        finally:
            for each in made.replicas:
                await asyncio.to_thread(each.kill)


Work = Callable[[Shop], Awaitable[None]]
Open = Callable[[Work], None]
"""What the fixture ``in_shop`` is: runs work in a shop."""
