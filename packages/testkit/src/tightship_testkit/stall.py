"""Replicas of the hpa-scaler on virtual time: an embedded cluster with an HPA controller, HPAs, and a Prometheus.

::

    async with stall(tmp_path) as on:
        await on.stock("web", 3, 20, prometheus_query="rate", requests_per_replica=10)
        on.prometheus.set("rate", 72)
        replica = on.start()
        await on.until_bounds("web", 8, 20)

All durations are those that a release has by default. Replicas reach the API server through ``on.proxy``, whose plan
disturbs chosen calls and whose log has all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tightship_simulator.life.horizontal import Measure
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.prometheus import Prometheus
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.client import Client, Items, Json
from tightship_testkit.fault_proxy import FaultProxy
from tightship_testkit.floors import HPA, SHOP, Market, answering_one
from tightship_testkit.replica import SCALER, Replica
from tightship_testkit.virtual import Machine

DEADLINE = 3600.0
"""Seconds to wait for something: virtual ones."""

CYCLE = 75.0
"""Seconds between two cycles."""

DEFAULTS = {
    SCALER.interval: f"{CYCLE:g}",
    "LEASE_DURATION": "15s",
    "LEASE_RENEW_DEADLINE": "10s",
    "LEASE_RETRY_PERIOD": "2s",
    "REQUEST_TIMEOUT": "30s",
}
"""What a release says by default: variables of a replica."""

NEVER = Speeds(horizontal_every=1e9, nodes_every=1e9)
"""For a cluster in which no HPA is scaled: its status is what a test says."""


class Stall(Market):
    """HPAs, a Prometheus, and a team of replicas, in *simulation*. The store is read without a request."""

    def __init__(self, simulation: Simulation, machine: Machine, api: Client, proxy: FaultProxy) -> None:
        super().__init__(machine, api, simulation.prometheus, "scaler")
        self.simulation = simulation
        self.machine = machine
        self.prometheus = simulation.prometheus
        self.store = simulation.store
        self.proxy = proxy
        self.admin = simulation.kubeconfig
        self.kubeconfig = proxy.kubeconfig(simulation.kubeconfig.parent / "through-the-proxy")

    def start(self, **variables: str) -> Replica:
        """Start one more replica."""
        return super().start(**{**DEFAULTS, **variables})

    async def hpa(self, name: str) -> Json:
        """Return an HPA as it is."""
        return self.store.get(HPA, name, SHOP)

    async def hpas(self) -> dict[str, Json]:
        """Return all HPAs by name."""
        return {each["metadata"]["name"]: each for each in self.store.list(HPA, SHOP)}

    async def events(self, namespace: str = SHOP) -> Items:
        """Return the Events of a namespace."""
        return self.store.list("Event", namespace)

    async def until_bounds(self, name: str, minimum: int, maximum: int, deadline: float = DEADLINE) -> None:
        """Wait until an HPA has these bounds."""
        await super().until_bounds(name, minimum, maximum, deadline)

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, deadline: float = DEADLINE) -> None:
        """Wait for a condition; the replicas' logs are in the error."""
        await super().until(condition, what, deadline)

    async def sleep(self, seconds: float) -> None:
        """Let so much time pass."""
        await self.simulation.sleep(seconds)

    @asynccontextmanager
    async def another_way(self) -> AsyncIterator[FaultProxy]:
        """Open a second way to the API server, so that it shows which replica asks what."""
        async with FaultProxy(_Server(self.simulation)) as proxy:
            yield proxy


class _Server:
    """The embedded API server as a proxy knows it."""

    ca_file = Path()

    def __init__(self, simulation: Simulation) -> None:
        self.server = simulation.url
        self.kubeconfig = simulation.kubeconfig


@asynccontextmanager
async def stall(
    folder: Path,
    *,
    prometheus: Prometheus | None = None,
    measure: Measure = lambda *_: None,
    speeds: Speeds = Speeds(),
    seed: int = 0,
) -> AsyncIterator[Stall]:
    """Open a stall in a cluster without nodes; its Prometheus answers 1 to what it is not told otherwise.

    *measure* tells the HPA controller its metrics; without it each HPA stays at its floor.
    """
    prometheus = answering_one() if prometheus is None else prometheus
    async with Simulation(seed, folder, prometheus=prometheus, measure=measure, speeds=speeds) as simulation:
        machine = Machine(simulation)
        with machine.logging():
            async with Client(simulation.url, {}, None) as api, FaultProxy(_Server(simulation)) as proxy:
                on = Stall(simulation, machine, api, proxy)
                await on.open()
                yield on
                for each in on.replicas:
                    each.kill()


__all__ = ["CYCLE", "DEADLINE", "DEFAULTS", "NEVER", "Stall", "stall"]
