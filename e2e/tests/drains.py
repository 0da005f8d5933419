"""Drains on a control plane: a loaded cluster, and replicas that reach its API server through a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from tightship_e2e import ControlPlane, load
from tightship_e2e.source import Source
from tightship_testkit.client import Client
from tightship_testkit.drains import DEADLINE, SETTINGS, Place
from tightship_testkit.fault_proxy import FaultProxy, evicted_again
from tightship_testkit.invariants import Recorder
from tightship_testkit.replica import COMPACTOR, NAMESPACE, Program, Replica, Settings, permit

PATIENT = {
    "LEASE_DURATION": "60s",
    "LEASE_RENEW_DEADLINE": "50s",
    "REQUEST_TIMEOUT": "30s",
}
"""For a replica that is alone. What it remembers, and what it is about to write, goes with its Lease: on a machine that
stands still for some seconds it would write something once more, or later."""


class Site(Place):
    """A place on a plane, whose replicas have accounts and reach the API server through a proxy."""

    def __init__(self, plane: ControlPlane, api: Client, proxy: FaultProxy, path: Path, recorder: Recorder) -> None:
        super().__init__(plane, api, recorder)
        self.plane = plane
        self.proxy = proxy
        self.path = path

    def start(self, **variables: str) -> Replica:
        """Start one more replica, which is patient unless *variables* say otherwise."""
        return super().start(**{**PATIENT, **variables})

    async def staff(self, program: Program, settings: Settings) -> None:
        """Have replicas that are started from now on be *program*'s, with an account and a ConfigMap of its own."""
        await permit(self.api, program.name)
        base = await asyncio.to_thread(self.plane.service_account_kubeconfig, NAMESPACE, program.name)
        self.kubeconfig = self.proxy.kubeconfig(self.path / f"{program.name}-{self.proxy.port}", base=base)
        await super().staff(program, settings)

    async def checked(self) -> None:
        """Hold everything that was seen against the invariants, and every eviction that was asked for."""
        await super().checked()
        again = evicted_again(self.proxy.log)
        assert not again, f"evicted more than once: {again}\n{self.logs()}"


@asynccontextmanager
async def site(
    plane: ControlPlane,
    api: Client,
    path: Path,
    cluster: Source,
    settings: Settings = SETTINGS,
    budget: int = 1,
    program: Program = COMPACTOR,
) -> AsyncIterator[Site]:
    """Load *cluster* into the emptied plane and watch it."""
    await load(api, cluster)
    async with FaultProxy(plane) as proxy, Recorder(plane, budget=budget, pending=DEADLINE) as recorder:
        made = Site(plane, api, proxy, path, recorder)
        await made.staff(program, settings)
        try:
            yield made
        finally:
            await asyncio.to_thread(_end, made.replicas)


def _end(replicas: Iterable[Replica]) -> None:
    for each in replicas:
        each.kill()


Work = Callable[[Site], Awaitable[None]]
Run = Callable[..., None]
"""What the fixture ``on_site`` is: runs work on a cluster, with the options of :func:`site`."""
