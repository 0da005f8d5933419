"""An embedded cluster that lives, for controllers that run on it on virtual time, and clusters to begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tightship_simulator.api.requests import Asked
from tightship_simulator.life.changes import Json
from tightship_simulator.life.kubelet import Pace
from tightship_simulator.life.living import Speeds
from tightship_simulator.life.node_autoscaler import NodeGroup, Rules
from tightship_simulator.life.prometheus import Prometheus
from tightship_simulator.small import replicas
from tightship_simulator.virtual.simulation import Simulation
from tightship_testkit.client import Client
from tightship_testkit.drains import Place, spare
from tightship_testkit.invariants import Recorder
from tightship_testkit.manifests import POOL, as_list, budget
from tightship_testkit.replica import COMPACTOR, Program, Replica, Settings
from tightship_testkit.virtual import Machine

AGENT = "tightship/"
"""With what the controllers' ``User-Agent`` begins."""

OFTEN = "0.3"
"""Seconds between two passes of a controller."""

PATIENT = {
    "LEASE_DURATION_SECONDS": "60",
    "LEASE_RENEW_DEADLINE_SECONDS": "40",
    "REQUEST_TIMEOUT_SECONDS": "30",
}
"""Variables of a replica that a busy machine may hold up for a while: it leads on, and asks nothing twice."""

SHORT = {"LEASE_DURATION_SECONDS": "3", "LEASE_RENEW_DEADLINE_SECONDS": "2", "LEASE_RETRY_PERIOD_SECONDS": "0.3"}
"""Variables of replicas that have to wait for each other's Leases."""


class Yard:
    """A served store with life in it, its administrator, and the processes of the controllers."""

    def __init__(self, simulation: Simulation, machine: Machine, api: Client, kubeconfig: Path) -> None:
        self.simulation = simulation
        self.cluster = simulation.cluster
        self.machine = machine
        self.api = api
        self.kubeconfig = kubeconfig

    def client(self) -> Client:
        """Return an administrator's client, not yet opened."""
        return Client(self.cluster.url, {}, None)

    def asked(self) -> list[Asked]:
        """Return the requests of controllers."""
        return [each for each in self.cluster.requests if each.agent.startswith(AGENT)]

    def written(self) -> list[Asked]:
        """Return those of them that may have changed something."""
        return [each for each in self.asked() if each.writes]

    def evicted(self) -> list[str]:
        """Return the pods that controllers have evicted, each time."""
        return [each.name for each in self.written() if each.subresource == "eviction" and each.code == 201]


@asynccontextmanager
async def yard(
    folder: Path, cluster: Json | None = None, *, ending: float = 0.2, prometheus: Prometheus | None = None
) -> AsyncIterator[Yard]:
    """Serve *cluster* and let it live: pods start within half a second and end within *ending* seconds."""
    items = (cluster or {"items": []})["items"]
    # The autoscaler removes what is empty and nothing else: what it does by itself is tested elsewhere.
    speeds = Speeds(Pace(0.5, ending, 0.5), Rules(0.5, 0.2, 30, threshold=0), horizontal_every=0.2, nodes_every=0.2)
    async with Simulation(0, folder, groups=groups(items), speeds=speeds, prometheus=prometheus) as simulation:
        assert simulation.store.load(items) == {}
        machine = Machine(simulation)
        with machine.logging():
            async with Client(simulation.url, {}, None) as api:
                yield Yard(simulation, machine, api, simulation.kubeconfig)


def groups(items: list[Json]) -> list[NodeGroup]:
    """Return the pools of nodes as a cloud would know them; none can grow."""
    pools: dict[str, list[Json]] = {}
    for item in items:
        if item["kind"] == "Node":
            pools.setdefault(item["metadata"]["labels"].get(POOL, ""), []).append(item)
    return [NodeGroup(name, nodes[0], 0, 0) for name, nodes in pools.items() if name]


class Ground(Place):
    """A yard whose nodes, pods and budgets are watched, and a team of replicas."""

    def __init__(self, yard: Yard, recorder: Recorder) -> None:
        super().__init__(yard.machine, yard.api, recorder)
        self.yard = yard
        self.kubeconfig = yard.kubeconfig

    def start(self, **variables: str) -> Replica:
        """Start one more replica, which judges often."""
        return super().start(**{self.program.interval: OFTEN, **PATIENT, **variables})


@asynccontextmanager
async def ground(
    folder: Path, cluster: Json, settings: Settings, program: Program = COMPACTOR, *, ending: float = 0.2
) -> AsyncIterator[Ground]:
    """Serve *cluster*, write *settings*, and hold all that is seen against the invariants in the end."""
    async with yard(folder, cluster, ending=ending) as made, Recorder(made) as recorder:
        on = Ground(made, recorder)
        await on.staff(program, settings)
        yield on
        await on.checked()
        twice = [pod for pod in set(made.evicted()) if made.evicted().count(pod) > 1]
        assert twice == []


# Clusters.


def cluster(
    places: Mapping[str, int], *, pools: Mapping[str, str] = {}, least: int | str = 0, cpu: str = "100m"
) -> Json:
    """Return nodes with so many pods of one ReplicaSet each, and a budget; without *least* it allows one disruption.

    *pools* are the nodes' pools, ``rest`` by default, as in :func:`drains.small`.
    """
    where = [name for name, count in places.items() for _ in range(count)]
    nodes = [spare(name, pool=pools.get(name, "rest")) for name in places]
    return as_list(*nodes, *replicas("web", where, {}, cpu=cpu), budget("web", least or len(where) - 1, app="web"))


def small(*, least: int | str = 0) -> Json:
    """Return a cluster whose n1 may go; n2 and n3 have room and stay."""
    return cluster({"n1": 3, "n2": 1, "n3": 1}, pools={"n1": "spare"}, least=least)
